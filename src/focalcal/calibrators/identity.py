"""The raw logits as a calibrator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData
from focalcal.calibrators.search.criteria import Criterion
from focalcal.core.optimum import Optimum


class Identity(Calibrator):
    r"""Leaves the probabilities as they are: $\log p = \log \mathrm{softmax}(z)$ of the logits $z$.

    There is nothing to fit. It stands where a calibrator is asked for and none is better than the raw logits: it is
    saved, loaded and exported as any other. A fit only writes the report.

    >>> [round(p, 4) for p in Identity().predict_probs([[2.0, 0.0]])[0].tolist()]
    [0.8808, 0.1192]
    """

    def __init__(self) -> None:
        super().__init__()
        self.criterion = Criterion("nll")

    @property
    def leaves_scores(self) -> bool:
        """Always."""
        return True

    def settings(self) -> dict[str, Any]:
        """It has none."""
        return {}

    def _fit(self, data: FitData) -> Optimum[Any]:
        nll = self.criterion.of(data)
        return Optimum(None, nll, 1, before=nll)

    def _log_probs(self, logits: Tensor) -> Tensor:
        return torch.log_softmax(logits, 1)
