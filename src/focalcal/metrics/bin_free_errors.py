r"""Calibration errors without bins: smooth ECE, the Kolmogorov-Smirnov error and MMCE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from focalcal.core.checks import ArrayLike, is_number, require
from focalcal.core.mmce import MMCE_WIDTH
from focalcal.core.ranking import Ranking
from focalcal.kernels.ranking import largest_drift, residual_pair_sum, smooth_error
from focalcal.metrics.prediction_set import Measured, PredictionSet
from focalcal.metrics.read_scores import PAIRS, TargetedReadOptions, rows_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ks_error", "mmce", "smooth_ece"]


def smooth_ece(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    sigma: float | None = None,
    **reading: Unpack[TargetedReadOptions],
) -> Measured:
    r"""Smooth ECE: a kernel instead of bins, whose width equals the error.

    $$ \mathrm{smECE}_\sigma = \int_0^1 \Big| \frac1N \sum_n (c_n - a_n) K_\sigma(t, c_n) \Big| \, dt,
       \qquad \mathrm{smECE} = \mathrm{smECE}_\sigma \text{ at the } \sigma \text{ that equals it} $$

    where $c$ is the confidence, $a$ the correctness and $K_\sigma$ the Gaussian reflected at 0 and 1; `sigma` fixes
    the width instead. Exact to rounding: `focalcal.core.smooth_ece` says how.

    Source: [blasiok2023, Def. 4 and Alg. 1]. Differs from relplot, which loses weight at the ends of [0, 1].

    >>> round(smooth_ece([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs"), 4)
    0.35
    """
    require(sigma is None or (is_number(sigma) and sigma > 0), "sigma", "must be positive", repr(sigma))

    def measure(ranked: Ranking) -> float:
        return smooth_error(ranked, sigma)

    rows = rows_of(scores, labels, PAIRS, reading)
    width = "its own width" if sigma is None else f"width {sigma:g}"
    measured: Measured = rows.report(rows.combine(rows.each(measure)), f"smooth ECE, {rows.target}, {width}")
    return measured


def ks_error(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[TargetedReadOptions]
) -> Measured:
    r"""Kolmogorov-Smirnov calibration error, which needs neither bins nor a kernel width.

    $$ \max_t \Big| \frac1N \sum_{n : c_n \le t} (c_n - a_n) \Big| $$

    where $c$ is the confidence and $a$ the correctness.

    Source: [gupta2021, Eq. 5].

    >>> round(ks_error([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs"), 4)
    0.4
    """
    rows = rows_of(scores, labels, PAIRS, reading)
    measured: Measured = rows.report(rows.combine(rows.each(largest_drift)), f"KS calibration error, {rows.target}")
    return measured


def mmce(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    weighted: bool = False,
    width: float = MMCE_WIDTH,
    **reading: Unpack[TargetedReadOptions],
) -> Measured:
    r"""Maximum mean calibration error, with a Laplacian kernel, in O(N log N).

    $$ \mathrm{MMCE}^2 = \sum_{ij} \frac{(a_i - c_i)(a_j - c_j)\, e^{-|c_i - c_j| / w}}{N^2} $$

    The `weighted` form divides by the number of correct or of wrong rows instead of N, so that both count alike.

    Source: [kumar2018, Eq. 4 and Sec. 3.2]. Differs from the code of mukhoti2020, which returns the square.

    >>> round(mmce([[0.9, 0.1], [0.9, 0.1]], [0, 0], kind="probs"), 4)  # everyone is 0.1 too modest
    0.1
    """
    require(is_number(width) and width > 0, "width", "must be positive", repr(width))

    def measure(ranked: Ranking) -> float:
        total, hits = ranked.total, ranked.total_right
        of_right, of_wrong = (hits, total - hits) if weighted else (total, total)
        squared = residual_pair_sum(ranked, 1 / max(of_right, 1e-300), 1 / max(of_wrong, 1e-300), width)
        return math.sqrt(max(squared, 0.0))

    rows = rows_of(scores, labels, PAIRS, reading)
    form = "weighted MMCE" if weighted else "MMCE"
    definition = f"{form}, {rows.target}, Laplacian kernel of width {width:g}"
    measured: Measured = rows.report(rows.combine(rows.each(measure)), definition)
    return measured
