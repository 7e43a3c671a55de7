"""Temperature scaling: one number that divides the logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from focalcal.calibrators.base import Outcome, StreamFitted
from focalcal.calibrators.criteria import Criterion
from focalcal.calibrators.data import FitData
from focalcal.calibrators.nll import fit_nll_temperature
from focalcal.core.inputs import require
from focalcal.core.temperature import TEMPERATURE_BOUNDS


class TemperatureScaling(StreamFitted):
    """x"""

    FITTED = ("temperature_",)
    temperature_: float

    def __init__(self, criterion: str = "nll", *, bounds: tuple[float, float] = TEMPERATURE_BOUNDS) -> None:
        super().__init__()
        self.criterion, self.bounds = Criterion(criterion), (float(bounds[0]), float(bounds[1]))
        require(0 < self.bounds[0] < self.bounds[1], "bounds", "must be 0 < lower < upper", bounds)

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {"criterion": self.criterion.name, "bounds": list(self.bounds)}

    def _fit(self, data: FitData) -> Outcome:
        solved, before = fit_nll_temperature(data, self.bounds)
        self._set(temperature_=solved.temperature)
        return Outcome(solved.passes, solved.converged, solved.at_boundary, before, min(solved.nll, before))

    def _log_probs(self, logits: Tensor) -> Tensor:
        return torch.log_softmax(logits / self._value("temperature_").to(logits.dtype), 1)
