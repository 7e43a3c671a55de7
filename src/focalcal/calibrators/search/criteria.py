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

import torch
from torch import Tensor

from focalcal.calibrators.fit_data import FitData, LabelledLogits
from focalcal.core.binning import Bins, bin_norm, bin_predictions, bin_ranked, equal_mass_ece
from focalcal.core.checks import Array, require
from focalcal.core.confidence_summary import ConfidenceSummary
from focalcal.core.ranking import Ranking, is_fractional
from focalcal.core.row_statistics import RowStatistics
from focalcal.core.smooth_ece import smooth_calibration_error

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
            return float(data.mean(lambda block: block.mean_sum(self.column(_read(block, calibrate)))))
        if self.name == "ece":
            bins = data.reduce(functools.partial(_bins, calibrate=calibrate, num_bins=self.num_bins), Bins.merge)
            return float(bin_norm(bins, "l1"))
        fold = functools.partial(_confidences, calibrate=calibrate, most_rows=data.most_rows)
        return self.of_ranking(data.reduce(fold, ConfidenceSummary.merge).ranked())

    def column(self, reader: RowStatistics) -> Tensor:
        """The value of a smooth criterion for each row."""
        if self.gamma is None:
            column: Tensor = getattr(reader, self.name)
            return column
        nll = reader.nll
        return torch.pow(-torch.expm1(-nll), self.gamma) * nll

    def of_confidences(self, confidence: Array, correct: Array, weight: Array | None) -> float:
        """The value of a criterion that is not smooth, from confidence and correctness (N,)."""
        if self.name == "ece":
            bins = bin_predictions(confidence, correct, num_bins=self.num_bins, weight=weight)
            return float(bin_norm(bins, "l1"))
        if self.name == "ada_ece" and weight is None and not is_fractional(correct):
            return equal_mass_ece(confidence, correct, min(self.num_bins, len(confidence)))
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
    reader = _read(block, calibrate)
    weight = None if block.weight is None else block.weight.cpu().numpy()
    return reader.confidence.cpu().numpy(), reader.correct.cpu().numpy(), weight


def _read(block: LabelledLogits, calibrate: LogProbs | None) -> RowStatistics:
    if calibrate is not None:
        return RowStatistics(calibrate(block.logits), block.labels, "logits")
    if block.probs is not None:
        return RowStatistics(block.probs, block.labels, "probs")
    return RowStatistics(block.logits, block.labels, "logits")
