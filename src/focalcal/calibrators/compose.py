"""Calibrators applied one after the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, cast

from torch import Tensor, nn

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData, LabelledLogits, P
from focalcal.core.checks import require
from focalcal.core.optimum import Optimum


class Compose(Calibrator):
    """Applies calibrators one after the other; each is fitted to the output of those before it.

    The criterion is that of the last one. `nn.Sequential` of fitted calibrators computes the same.

    >>> from focalcal import FocalCalibration, TemperatureScaling
    >>> logits, labels = [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1]
    >>> both = Compose(FocalCalibration(1.0), TemperatureScaling()).fit(logits, labels)
    >>> [round(p, 4) for p in both.predict_probs([[2.0, 0.0]])[0].tolist()]
    [0.6667, 0.3333]
    """

    def __init__(self, *calibrators: Calibrator) -> None:
        super().__init__()
        require(len(calibrators) >= 1, "calibrators", "needs at least one calibrator", 0)
        for part in calibrators:
            require(isinstance(part, Calibrator), "calibrators", "must be calibrators", type(part).__name__)
        self.parts = cast("list[Calibrator]", nn.ModuleList(calibrators))
        self.criterion = calibrators[-1].criterion

    def _reset(self) -> None:
        super()._reset()
        for part in self.__dict__["_modules"].get("parts", ()):  # not there yet when the module is made
            part._reset()

    @property
    def is_fitted(self) -> bool:
        """Whether every part is fitted."""
        return all(part.is_fitted for part in self.parts)

    def require_fitted(self) -> None:
        """Raise a NotFittedError unless every part is fitted."""
        for part in self.parts:
            part.require_fitted()

    @property
    def leaves_scores(self) -> bool:
        """Whether every part does, or the fit has ended so."""
        return super().leaves_scores or all(part.leaves_scores for part in self.parts)

    def settings(self) -> dict[str, Any]:
        """It has no settings of its own; its parts have theirs."""
        return {}

    def _fit(self, data: FitData) -> Optimum[Any]:
        for place, part in enumerate(self.parts):
            part._fit_to(data if place == 0 else _CalibratedData(data, list(self.parts)[:place]))
        reports = [part.report_ for part in self.parts]
        return Optimum(
            None,
            math.nan,
            iterations=sum(report.iterations for report in reports),
            converged=all(report.converged for report in reports),
            at_boundary=any(report.at_boundary for report in reports),
        )

    def _log_probs(self, logits: Tensor) -> Tensor:
        for part in self.parts:
            logits = part._calibrated(logits).to(logits.dtype)
        return logits

    def _require_classes(self, num_classes: int) -> None:
        for part in self.parts:
            part._require_classes(num_classes)


class _CalibratedData(FitData):
    """The data of a fit after some calibrators were applied to its logits."""

    def __init__(self, data: FitData, calibrators: list[Calibrator]) -> None:
        self._data, self._calibrators = data, calibrators
        self.memory, self.most_rows, self.in_memory = data.memory, data.most_rows, data.in_memory
        self.progress = data.progress
        self.num_rows, self.mass, self.num_classes = data.num_rows, data.mass, data.num_classes

    def reduce(self, fold: Callable[[Iterator[LabelledLogits]], P], merge: Callable[[P, P], P]) -> P:
        """One pass over the rows, calibrated."""
        calibrated = functools.partial(_calibrated_block, self._calibrators)
        return self._data.reduce(lambda blocks: fold(map(calibrated, blocks)), merge)


def _calibrated_block(calibrators: list[Calibrator], block: LabelledLogits) -> LabelledLogits:
    for calibrator in calibrators:
        if not calibrator.leaves_scores:
            logits = calibrator._calibrated(block.logits).to(block.logits.dtype)
            block = LabelledLogits(logits, block.labels, block.weight)
    return block
