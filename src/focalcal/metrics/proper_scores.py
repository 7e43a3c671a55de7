r"""Proper scores: negative log-likelihood, Brier score and its decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from focalcal.core.binning import Scheme, require_bins
from focalcal.core.checks import ArrayLike
from focalcal.metrics.prediction_set import CLASSWISE, Measured, PredictionSet, RowMean
from focalcal.metrics.read_scores import PAIRS, ReadOptions, TargetedReadOptions, describe_bins, mean_of, rows_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["BrierParts", "brier", "brier_decomposition", "nll"]

NLL = RowMean("nll", ("nll",), lambda rows: rows["nll"])
BRIER = RowMean("brier", ("brier",), lambda rows: rows["brier"])
SQUARED_GAP = RowMean(
    "squared_gap",
    ("confidence", "correct"),
    lambda rows: (rows["confidence"].astype(np.float64) - rows["correct"]) ** 2,
)


def nll(scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[ReadOptions]) -> Measured:
    r"""Negative log-likelihood.

    $$ \mathrm{NLL} = -\frac1N \sum_n \log p_{n, y_n} $$

    where `scores` and `labels` are read as by `read`. Infinite if a label has probability 0.

    >>> round(nll([[0.9, 0.1], [0.5, 0.5]], [0, 0], kind="probs"), 4)
    0.3993
    """
    return mean_of(scores, labels, reading, NLL, "NLL in nats, mean over rows", predicted=False)


def brier(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[ReadOptions]
) -> Measured:
    r"""Brier score: squared error of the whole probability vector.

    $$ \frac1N \sum_n \sum_k (p_{nk} - [y_n = k])^2 $$

    Source: [brier1950]. From 0 to 2; some libraries divide it by 2 or by K.

    >>> round(brier([[0.9, 0.1]], [0], kind="probs"), 4)
    0.02
    """
    return mean_of(scores, labels, reading, BRIER, "Brier score, sum over classes, mean over rows", predicted=False)


@dataclass(frozen=True)
class BrierParts:
    """The Brier score in parts: `calibration`, `refinement`, and `within_bins`, what binning leaves over.

    >>> parts = brier_decomposition([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
    >>> round(parts.calibration, 4), round(parts.refinement, 4), round(parts.total, 4)
    (0.0403, 0.1667, 0.207)
    """

    calibration: Measured
    refinement: Measured
    within_bins: Measured

    @property
    def total(self) -> float:
        """The score that the parts add up to."""
        return self.calibration + self.refinement + self.within_bins


def brier_decomposition(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_bins: int = 15,
    edges: Scheme | Tensor = "equal_width",
    **reading: Unpack[TargetedReadOptions],
) -> BrierParts:
    r"""The Brier score split into miscalibration and lack of sharpness.

    $$ \frac1N \sum_n (c_n - a_n)^2 = \underbrace{\sum_b w_b (C_b - A_b)^2}_{\text{calibration}}
       + \underbrace{\sum_b w_b A_b (1 - A_b)}_{\text{refinement}} + \text{within bins} $$

    where $c$ is the confidence and $a$ the correctness of a row; over classes (`target="classwise"`) each part is
    summed, and their total is `brier`.

    Source: [degroot1983], which mukhoti2020 Sec. 5.1 cites; the part within bins is 0 for discrete confidences.

    >>> parts = brier_decomposition([[0.9, 0.1], [0.9, 0.1]], [0, 1], kind="probs")
    >>> round(parts.calibration, 4), round(parts.refinement, 4), round(abs(parts.within_bins), 4)
    (0.16, 0.25, 0.0)
    """
    rows = rows_of(scores, labels, PAIRS, reading)
    require_bins(num_bins, edges)
    bins = rows.bins(num_bins, edges)
    parts: list[Any] = [
        (bins.weight * bins.gap**2).sum(-1),
        (bins.weight * bins.accuracy * (1 - bins.accuracy)).sum(-1),
    ]
    classwise = rows.target == CLASSWISE
    if classwise:
        parts = [part.sum(-1) for part in parts]
    parts = [part.numpy() for part in parts]
    total = rows.mean(BRIER if classwise else SQUARED_GAP)
    how = f"{'sum over classes' if classwise else rows.target}, {describe_bins(edges, num_bins)}"
    return BrierParts(
        calibration=rows.report(parts[0], f"calibration part of the Brier score, {how}"),
        refinement=rows.report(parts[1], f"refinement part of the Brier score, {how}"),
        within_bins=rows.report(total - parts[0] - parts[1], f"part of the Brier score within bins, {how}"),
    )
