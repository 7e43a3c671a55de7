r"""The criteria that calibrators minimise, by name.

| name | objective | smooth |
|---|---|---|
| `nll` | mean of $-\log p_y$ | yes |
| `brier` | mean of $\lVert p - e_y \rVert^2$ | yes |
| `focal` | mean of $-(1 - p_y)^\gamma \log p_y$ [charoenphakdee2021, Sec. 6] | yes |
| `ece` | expected calibration error, 15 bins of equal width [mukhoti2020, Eq. 2] | no |
| `ada_ece` | the same with bins of equal mass [mukhoti2020, Eq. 3] | no |
| `smooth_ece` | smooth ECE [blasiok2023] | no |
| `ks` | Kolmogorov-Smirnov calibration error [gupta2021, Eq. 5] | no |

Definitions are those of `focalcal.metrics`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from focalcal.calibrators.fit_data import FitData, LabelledLogits
from focalcal.core.binning import Bins, bin_norm, bin_predictions, bin_ranked
from focalcal.core.checks import Array, require
from focalcal.core.ranking import Ranking
from focalcal.core.smooth_ece import smooth_calibration_error
from focalcal.kernels.rows import read_rows
from focalcal.predictions.confidence_summary import ConfidenceSummary

SMOOTH = ("nll", "brier", "focal")
BINNED = ("ece", "ada_ece")
NAMES = (*SMOOTH, *BINNED, "smooth_ece", "ks")

# Maps logits (n, K) to log-probabilities or other logits of the same shape.
LogProbs = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Criterion:
    """A named criterion: `gamma` belongs to `focal`, `num_bins` to `ece` and `ada_ece`.

    >>> from focalcal.calibrators.fit_data import data_of_arrays
    >>> data = data_of_arrays([[0.0, 0.0], [0.0, 0.0]], [0, 1], "logits", None)
    >>> round(Criterion("nll").of(data), 4)
    0.6931
    """

    name: str
    gamma: float | None = None
    num_bins: int = 15

    def __post_init__(self) -> None:
        require(self.name in NAMES, "criterion", f"must be one of {', '.join(NAMES)}", repr(self.name))
        require(self.num_bins >= 1, "num_bins", "must be at least 1", self.num_bins, "The papers use 15.")
        given = self.gamma is not None
        rule = "is needed for criterion focal, and for no other"
        require(given == (self.name == "focal"), "gamma", rule, f"criterion={self.name!r}, gamma={self.gamma}")
        fine = self.gamma is None or (math.isfinite(self.gamma) and self.gamma >= 0)
        require(fine, "gamma", "must be non-negative and finite", self.gamma)

    def settings(self) -> dict[str, Any]:
        """The arguments of a calibrator that choose this criterion."""
        return {"criterion": self.name, "gamma": self.gamma, "num_bins": self.num_bins}

    @property
    def smooth(self) -> bool:
        """Whether it is a mean over rows, which has derivatives."""
        return self.name in SMOOTH

    def of(self, data: FitData, calibrate: LogProbs | None = None) -> float:
        """The criterion of the data's logits, or of the output of `calibrate` for them."""
        if self.smooth:
            return float(data.mean(functools.partial(self._sum, calibrate=calibrate)))
        if self.name == "ece":
            bins = data.reduce(functools.partial(_bins, calibrate=calibrate, num_bins=self.num_bins), Bins.merge)
            return float(bin_norm(bins, "l1"))
        fold = functools.partial(_confidences, calibrate=calibrate, most_rows=data.most_rows)
        return self.of_ranking(data.reduce(fold, ConfidenceSummary.merge).ranked())

    def _sum(self, block: LabelledLogits, calibrate: LogProbs | None) -> float:
        """The weighted sum of a smooth criterion over the rows of a block."""
        name = "brier" if self.name == "brier" else "nll"
        column = _columns(block, calibrate, [name])[name]
        if self.gamma is not None:
            column = (-np.expm1(-column)) ** self.gamma * column
        weight = _weight(block)
        return float(column.sum() if weight is None else column @ weight)

    def of_confidences(self, confidence: Array, correct: Array, weight: Array | None) -> float:
        """The value of a criterion that is not smooth, from confidence and correctness (N,)."""
        if self.name == "ece":
            bins = bin_predictions(confidence, correct, num_bins=self.num_bins, weight=weight)
            return float(bin_norm(bins, "l1"))
        return self.of_ranking(Ranking.of_rows(confidence, correct, weight))

    def of_ranking(self, ranked: Ranking) -> float:
        """The value of a criterion that reads the order of confidences."""
        if self.name == "ada_ece":
            num_bins = min(self.num_bins, int(ranked.count.sum()))
            return float(bin_norm(bin_ranked(ranked, num_bins=num_bins, edges="equal_mass"), "l1"))
        if self.name == "ks":
            return ranked.largest_drift()
        return smooth_calibration_error(ranked.value, ranked.residuals)[0]


def _confidences(
    blocks: Iterator[LabelledLogits], calibrate: LogProbs | None, most_rows: int | None
) -> ConfidenceSummary:
    """Confidence, correctness and weight of all rows."""
    confidences = ConfidenceSummary(most_rows)
    for block in blocks:
        confidences.add(*_pairs(block, calibrate))
    return confidences


def _bins(blocks: Iterator[LabelledLogits], calibrate: LogProbs | None, num_bins: int) -> Bins:
    """Bins of equal width."""
    pairs = (_pairs(block, calibrate) for block in blocks)
    bins = (bin_predictions(*rows, num_bins=num_bins, weight=weight) for *rows, weight in pairs)
    return functools.reduce(Bins.merge, bins)


def _pairs(block: LabelledLogits, calibrate: LogProbs | None) -> tuple[Array, Array, Array | None]:
    columns = _columns(block, calibrate, ["confidence", "correct"])
    return columns["confidence"], columns["correct"], _weight(block)


def _weight(block: LabelledLogits) -> Array | None:
    return None if block.weight is None else np.asarray(block.weight.cpu())


def _columns(block: LabelledLogits, calibrate: LogProbs | None, names: list[str]) -> dict[str, Array]:
    if calibrate is not None:
        return read_rows(calibrate(block.logits).detach(), block.labels, "logits", names)
    if block.probs is not None:
        return read_rows(block.probs, block.labels, "probs", names)
    return read_rows(block.logits, block.labels, "logits", names)
