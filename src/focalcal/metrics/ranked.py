r"""Measures of the predictions in order of confidence: no bins at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from focalcal.core.checks import ArrayLike, require
from focalcal.core.mmce import MMCE_WIDTH, pairs_in_order
from focalcal.core.ranking import Array, Ranked
from focalcal.core.smooth_ece import smooth_calibration_error
from focalcal.metrics.calibration import PAIRS, TargetedReading
from focalcal.metrics.read import Reading, predicted_rows_of, rows_of
from focalcal.metrics.rows import Measured, Readable

if TYPE_CHECKING:
    from typing_extensions import Unpack


def smooth_ece(
    scores: ArrayLike | Readable,
    labels: ArrayLike | None = None,
    *,
    sigma: float | None = None,
    **reading: Unpack[TargetedReading],
) -> Measured:
    r"""Smooth ECE: a kernel instead of bins, as wide as the error that it finds.

    $$ \mathrm{smECE}_\sigma = \int_0^1 \Big| \frac1N \sum_n (c_n - a_n) K_\sigma(t, c_n) \Big| \, dt,
       \qquad \mathrm{smECE} = \mathrm{smECE}_\sigma \text{ at the } \sigma \text{ that equals it} $$

    where $c$ is the confidence, $a$ the correctness and $K_\sigma$ the Gaussian reflected at 0 and 1; `sigma` fixes
    the width instead. Exact to rounding: `focalcal.core.smooth_ece` says how.

    Source: [blasiok2023, Def. 4 and Alg. 1]. Differs from relplot, which loses weight at the ends of [0, 1].

    >>> round(smooth_ece([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs"), 4)
    0.35
    """
    require(sigma is None or sigma > 0, "sigma", "must be positive", sigma)

    def measure(ranked: Ranked) -> float:
        return smooth_calibration_error(ranked.value, ranked.residuals, sigma)[0]

    rows = rows_of(scores, labels, PAIRS, reading)
    width = "its own width" if sigma is None else f"width {sigma:g}"
    measured: Measured = rows.report(rows.combine(rows.each(measure)), f"smooth ECE, {rows.target}, {width}")
    return measured


def ks_error(
    scores: ArrayLike | Readable, labels: ArrayLike | None = None, **reading: Unpack[TargetedReading]
) -> Measured:
    r"""Kolmogorov-Smirnov calibration error: no bins, no width.

    $$ \max_t \Big| \frac1N \sum_{n : c_n \le t} (c_n - a_n) \Big| $$

    where $c$ is the confidence and $a$ the correctness.

    Source: [gupta2021, Eq. 5].

    >>> round(ks_error([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs"), 4)
    0.4
    """
    rows = rows_of(scores, labels, PAIRS, reading)
    measured: Measured = rows.report(
        rows.combine(rows.each(Ranked.largest_drift)), f"KS calibration error, {rows.target}"
    )
    return measured


def mmce(
    scores: ArrayLike | Readable,
    labels: ArrayLike | None = None,
    *,
    weighted: bool = False,
    width: float = MMCE_WIDTH,
    **reading: Unpack[TargetedReading],
) -> Measured:
    r"""Maximum mean calibration error, with a Laplacian kernel, in O(N log N).

    $$ \mathrm{MMCE}^2 = \sum_{ij} \frac{(a_i - c_i)(a_j - c_j)\, e^{-|c_i - c_j| / w}}{N^2} $$

    The `weighted` form divides by the number of correct or of wrong rows instead of N, so that both count alike.

    Source: [kumar2018, Eq. 4 and Sec. 3.2]. Differs from the code of mukhoti2020, which returns the square.

    >>> round(mmce([[0.9, 0.1], [0.9, 0.1]], [0, 0], kind="probs"), 4)  # everyone is 0.1 too modest
    0.1
    """
    require(width > 0, "width", "must be positive", width)

    def measure(ranked: Ranked) -> float:
        total, hits = ranked.total, ranked.total_right
        of_right, of_wrong = (hits, total - hits) if weighted else (total, total)
        squared, before = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for value, mass, right in ranked.blocks("value", "mass", "right"):
            share = right * (1 - value) / max(of_right, 1e-300) - (mass - right) * value / max(of_wrong, 1e-300)
            pairs, before = pairs_in_order(torch.from_numpy(value), torch.from_numpy(share), width, before=before)
            squared = squared + pairs
        return float(squared.clamp_min(0).sqrt())

    rows = rows_of(scores, labels, PAIRS, reading)
    form = "weighted MMCE" if weighted else "MMCE"
    definition = f"{form}, {rows.target}, Laplacian kernel of width {width:g}"
    measured: Measured = rows.report(rows.combine(rows.each(measure)), definition)
    return measured


def auroc_correctness(
    scores: ArrayLike | Readable,
    labels: ArrayLike | None = None,
    *,
    by: Literal["confidence", "entropy"] = "confidence",
    **reading: Unpack[Reading],
) -> Measured:
    """How well confidence (or low entropy) tells correct from wrong predictions: the area under the ROC curve.

    The probability that a correct row is surer than a wrong one, a tie counting one half. NaN if all rows are correct,
    or all are wrong.

    >>> auroc_correctness([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]], [0, 0, 1])
    1.0
    """
    require(by in ("confidence", "entropy"), "by", "must be confidence or entropy", repr(by))
    rows = predicted_rows_of(scores, labels, (*PAIRS, by), reading)
    value = rows.each(area_under_roc) if by == "confidence" else rows.by_entropy().each(area_under_roc)
    measured: Measured = rows.report(value, f"AUROC of correctness by {by}")
    return measured


def area_under_roc(ranked: Ranked) -> float:
    """The probability that a right row lies above a wrong one, a tie counting one half.

    >>> area_under_roc(Ranked.of_rows(np.array([0.2, 0.5, 0.5]), np.array([0, 0, 1])))
    0.75
    """
    above, wrong = 0.0, ranked.total - ranked.total_right
    for mass, right, reached, reached_right in ranked.blocks("mass", "right", "reached", "reached_right"):
        wrong_here = mass - right
        above += float((right * (reached - reached_right - wrong_here / 2)).sum())
    return above / (ranked.total_right * wrong) if ranked.total_right > 0 and wrong > 0 else float("nan")


def aurc(scores: ArrayLike | Readable, labels: ArrayLike | None = None, **reading: Unpack[Reading]) -> Measured:
    r"""Area under the risk-coverage curve: the mean, over k, of the error rate among the k most confident rows.

    $$ \mathrm{AURC} = \frac1N \sum_{k=1}^N \frac1k \sum_{i \le k} [\text{row } i \text{ is wrong}] $$

    with rows in falling order of confidence, equal ones sharing their errors.

    Source: [geifman2019, Sec. 3].

    >>> round(aurc([[3.0, 0.0], [2.0, 0.0]], [0, 1]), 4)
    0.25
    """
    rows = predicted_rows_of(scores, labels, PAIRS, reading)
    measured: Measured = rows.report(rows.each(_risk_area), "area under the risk-coverage curve")
    return measured


def _risk_area(ranked: Ranked) -> float:
    r"""From the surest group down: with E errors among the first m rows, a group of n rows with error rate e adds
    $\sum_{k=m+1}^{m+n} (E + e (k - m)) / k = (E - e m)(H_{m+n} - H_m) + e n$.
    """
    area, errors = 0.0, ranked.total - ranked.total_right
    for mass, right, reached, reached_right in ranked.blocks("mass", "right", "reached", "reached_right"):
        wrong, surer = mass - right, ranked.total - reached
        missed = errors - (reached - reached_right)  # errors among the surer ones
        step = _harmonic_step(surer, mass, ranked.counts_rows)
        area += float(((missed - wrong / mass * surer) * step + wrong).sum())
    return area / ranked.total


def _harmonic_step(before: Array, mass: Array, counts_rows: bool) -> Array:
    """The sum of 1/k over k = before + 1 .. before + mass; its limit, the logarithm, for weights that are no counts."""
    if counts_rows:
        step = 1 / (before + 1)
        several = mass > 1
        if several.any():
            from scipy.special import digamma

            low = before[several] + 1
            step[several] = digamma(low + mass[several]) - digamma(low)
        return np.asarray(step)
    with np.errstate(divide="ignore"):
        step = np.log1p(mass / before)
    return np.where(before > 0, step, 0.0)  # nothing lies before the first group


@dataclass(frozen=True)
class RiskCoverage:
    """The error rate `risk` among the most confident rows, for every `coverage`, the share of rows that they are.

    >>> curve = risk_coverage_curve([[2.0, 0.0], [0.0, 1.5], [1.0, 0.0]], [0, 1, 1])
    >>> [round(float(risk), 4) for risk in curve.risk]
    [0.0, 0.0, 0.3333]
    """

    coverage: Array
    risk: Array


def risk_coverage_curve(
    scores: ArrayLike | Readable, labels: ArrayLike | None = None, **reading: Unpack[Reading]
) -> RiskCoverage:
    """The risk-coverage curve: what error rate remains if only the surest predictions are used.

    One point per distinct confidence.

    >>> risk_coverage_curve([[3.0, 0.0], [2.0, 0.0]], [0, 1])
    RiskCoverage(coverage=array([0.5, 1. ]), risk=array([0. , 0.5]))
    """
    rows = predicted_rows_of(scores, labels, PAIRS, reading)
    curve: RiskCoverage = rows.each(_risk_curve)
    return curve


def _risk_curve(ranked: Ranked) -> RiskCoverage:
    taken = np.cumsum(ranked.mass[::-1], dtype=np.float64)
    errors = taken - np.cumsum(ranked.right[::-1], dtype=np.float64)
    return RiskCoverage(coverage=taken / taken[-1], risk=errors / taken)
