r"""Calibration errors in bins: ECE, AdaECE, MCE, classwise ECE, debiased ECE and the monotone sweep."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from focalcal.core.binning import Bins, Norm, Scheme, bin_norm, require_bins
from focalcal.core.checks import ArrayLike, require
from focalcal.metrics.prediction_set import CLASSWISE, Measured, PredictionSet
from focalcal.metrics.read_scores import PAIRS, ReadOptions, TargetedReadOptions, describe_bins, rows_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ada_ece", "classwise_ece", "ece", "ece_debiased", "ece_sweep", "mce"]


def ece(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_bins: int = 15,
    norm: Norm = "l1",
    edges: Scheme | Tensor = "equal_width",
    **reading: Unpack[TargetedReadOptions],
) -> Measured:
    r"""Expected calibration error.

    $$ \mathrm{ECE} = \sum_b \frac{|B_b|}{N} \, |A_b - C_b| $$

    where $A_b$ and $C_b$ are accuracy and mean confidence of bin b, $((b-1)/M, b/M]$ with 0 in the first; `norm` l2 is
    the root of the mean squared gap, max the largest gap; `edges` as in `bin_predictions`. Over classes
    (`target="classwise"`) it is the mean, of squares for l2. ECE is biased upwards on few rows: see `ece_debiased`,
    `consistency_bars`.

    Source: [mukhoti2020, Eq. 1].

    >>> ece([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs").definition
    'ECE, top label, 15 equal-width bins, l1'
    """
    require_bins(num_bins, edges)
    rows = rows_of(scores, labels, PAIRS, reading)
    value = rows.combine(bin_norm(rows.bins(num_bins, edges), norm), norm)
    name = "MCE" if norm == "max" else "ECE"
    measured: Measured = rows.report(value, f"{name}, {rows.target}, {describe_bins(edges, num_bins)}, {norm}")
    return measured


def ada_ece(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_bins: int = 15,
    norm: Norm = "l1",
    **reading: Unpack[TargetedReadOptions],
) -> Measured:
    r"""Adaptive ECE: `ece` in bins that hold equally many rows.

    Source: [mukhoti2020, Eq. 3]. Differs from the released code, which loses the least confident row: here every row
    counts, the row of rank i is in bin $\lfloor M i / N \rfloor$, and rows of equal confidence share their correctness.

    >>> round(ada_ece([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs", num_bins=2), 4)
    0.45
    """
    return ece(scores, labels, num_bins=num_bins, norm=norm, edges="equal_mass", **reading)


def mce(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_bins: int = 15,
    edges: Scheme | Tensor = "equal_width",
    **reading: Unpack[TargetedReadOptions],
) -> Measured:
    r"""Maximum calibration error, $\max_b |A_b - C_b|$ over the bins that hold a row.

    Source: [mukhoti2020, Sec. 2]. One row in a bin of its own can decide it.

    >>> mce([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs")
    0.8
    """
    return ece(scores, labels, num_bins=num_bins, norm="max", edges=edges, **reading)


def classwise_ece(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_bins: int = 15,
    norm: Norm = "l1",
    edges: Scheme | Tensor = "equal_width",
    **reading: Unpack[ReadOptions],
) -> Measured:
    r"""Classwise ECE: the mean over classes of the ECE of "class k or not", absent classes included.

    Source: [kull2019, Sec. 2].

    >>> round(classwise_ece([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs"), 4)
    0.45
    """
    if isinstance(scores, PredictionSet):
        fix = 'Read them with target="classwise".'
        require(
            scores.target == CLASSWISE, "scores", "must be rows of every class", f"rows of the {scores.target}", fix
        )
        return ece(scores, labels, num_bins=num_bins, norm=norm, edges=edges)
    return ece(scores, labels, num_bins=num_bins, norm=norm, edges=edges, target="classwise", **reading)


def ece_debiased(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_bins: int = 15,
    norm: Literal["l1", "l2"] = "l2",
    edges: Scheme = "equal_mass",
    **reading: Unpack[TargetedReadOptions],
) -> Measured:
    r"""Calibration error with the upward bias of small samples taken off.

    $$ \sqrt{\max\Big(0, \sum_b w_b \Big[(C_b - A_b)^2 - \frac{A_b (1 - A_b)}{n_b - 1}\Big]\Big)} $$

    The l1 form takes off what the noise of $A_b$ adds to $|C_b - A_b|$, a folded normal's mean in closed form; it can
    be negative. Bins of equal mass are cut as in the released code, larger ones first. Over classes: for l2 the root of
    the mean of squares, each floored at 0, for l1 the mean.

    Source: [kumar2019, Sec. 5], its released code for l1. Differs: the released code draws that mean at random.

    >>> round(ece_debiased([[0.9, 0.1]] * 10, [0] * 5 + [1] * 5, kind="probs", num_bins=1), 4)
    0.3636
    """
    require(isinstance(norm, str) and norm in ("l1", "l2"), "norm", "must be l1 or l2", repr(norm))
    require_bins(num_bins, edges)
    rows = rows_of(scores, labels, PAIRS, reading)
    bins = rows.bins(num_bins, "array_split" if edges == "equal_mass" else edges)
    estimate = _debiased_l2 if norm == "l2" else _debiased_l1
    value = rows.combine(estimate(bins, rows.draws), norm)
    measured: Measured = rows.report(value, f"debiased ECE, {rows.target}, {describe_bins(edges, num_bins)}, {norm}")
    return measured


def _debiased_l2(bins: Bins, draws: int) -> Tensor:
    squares = bins.gap**2 - draws * bins.accuracy * (1 - bins.accuracy) / (bins.count - 1).clamp_min(1)
    # A single row says nothing about the gap of its bin: it counts, as in the released code, as none.
    return (bins.weight * torch.where(bins.count > 1, squares, 0.0)).sum(-1).clamp_min(0).sqrt()


def _debiased_l1(bins: Bins, draws: int) -> Tensor:
    gap = bins.gap.abs()
    deviation = (bins.accuracy * (1 - bins.accuracy) / bins.count.clamp_min(1)).sqrt()
    reach = gap / deviation.clamp_min(1e-300)
    folded = deviation * math.sqrt(2 / math.pi) * torch.exp(-(reach**2) / 2) + gap * torch.erf(reach / math.sqrt(2))
    return (bins.weight * (gap - draws * (folded - gap))).sum(-1)


def ece_sweep(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    norm: Norm = "l1",
    edges: Literal["equal_mass", "equal_width"] = "equal_mass",
    **reading: Unpack[TargetedReadOptions],
) -> Measured:
    """ECE with the largest number of bins, counted up from one, for which bin accuracies do not decrease.

    Source: [roelofs2022, Alg. 1]; empty bins are skipped, as in its released code. ghosh2022 reports both forms.

    >>> ece_sweep([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0], kind="probs").definition
    'ECE, top label, equal-mass bins by monotone sweep, l1'
    """
    known = isinstance(edges, str) and edges in ("equal_mass", "equal_width")
    require(known, "edges", "must be equal_mass or equal_width", repr(edges))
    return ece(scores, labels, norm=norm, edges=f"{edges}_sweep", **reading)  # type: ignore[arg-type]
