"""The focal calibration map as a calibrator."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from focalcal.calibrators.base import Outcome, StreamFitted
from focalcal.calibrators.criteria import Criterion
from focalcal.calibrators.data import FitData
from focalcal.core.focal import wide_dtype
from focalcal.core.maps import focal_log_probs


class FocalCalibration(StreamFitted):
    """x"""

    FITTED = ("gamma_",)
    gamma_: float

    def __init__(self, gamma: float | None = None, criterion: str = "nll") -> None:
        super().__init__()
        self.gamma, self.criterion = gamma, Criterion(criterion)
        if gamma is not None:
            self._set(gamma_=float(gamma))

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {"gamma": self.gamma, "criterion": self.criterion.name}

    def _fit(self, data: FitData) -> Outcome:
        self._set(gamma_=float(self.gamma or 0))
        return Outcome()

    def _log_probs(self, logits: Tensor) -> Tensor:
        return focal_log_probs(logits.to(wide_dtype(logits.device)), self._value("gamma_"))
