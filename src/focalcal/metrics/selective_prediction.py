r"""Selective prediction: how well confidence tells right from wrong, and what error rate remains if one abstains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from focalcal.core.checks import Array, ArrayLike, require
from focalcal.core.ranking import Ranking
from focalcal.metrics.prediction_set import Measured, PredictionSet
from focalcal.metrics.read_scores import PAIRS, ReadOptions, predicted_rows_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["RiskCoverage", "aurc", "auroc_correctness", "risk_coverage_curve"]


def auroc_correctness(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    by: Literal["confidence", "entropy"] = "confidence",
    **reading: Unpack[ReadOptions],
) -> Measured:
    """How well confidence (or low entropy) tells correct from wrong predictions: the area under the ROC curve.

    The probability that a correct row is surer than a wrong one, a tie counting one half. NaN if all rows are correct,
    or all are wrong.

    >>> auroc_correctness([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]], [0, 0, 1])
    1.0
    """
    known = isinstance(by, str) and by in ("confidence", "entropy")
    require(known, "by", "must be confidence or entropy", repr(by))
    rows = predicted_rows_of(scores, labels, (*PAIRS, by), reading)
    value = rows.each(area_under_roc) if by == "confidence" else rows.by_entropy().each(area_under_roc)
    measured: Measured = rows.report(value, f"AUROC of correctness by {by}")
    return measured


def area_under_roc(ranked: Ranking) -> float:
    """The probability that a right row lies above a wrong one, a tie counting one half.

    >>> area_under_roc(Ranking.of_rows(np.array([0.2, 0.5, 0.5]), np.array([0, 0, 1])))
    0.75
    """
    above, wrong = 0.0, ranked.total - ranked.total_right
    for mass, right, reached, reached_right in ranked.blocks("mass", "right", "reached", "reached_right"):
        wrong_here = mass - right
        above += float((right * (reached - reached_right - wrong_here / 2)).sum())
    return above / (ranked.total_right * wrong) if ranked.total_right > 0 and wrong > 0 else float("nan")


def aurc(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[ReadOptions]
) -> Measured:
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


def _risk_area(ranked: Ranking) -> float:
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
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[ReadOptions]
) -> RiskCoverage:
    """The risk-coverage curve: what error rate remains if only the surest predictions are used.

    One point per distinct confidence.

    >>> risk_coverage_curve([[3.0, 0.0], [2.0, 0.0]], [0, 1])
    RiskCoverage(coverage=array([0.5, 1. ]), risk=array([0. , 0.5]))
    """
    rows = predicted_rows_of(scores, labels, PAIRS, reading)
    curve: RiskCoverage = rows.each(_risk_curve)
    return curve


def _risk_curve(ranked: Ranking) -> RiskCoverage:
    taken = np.cumsum(ranked.mass[::-1], dtype=np.float64)
    errors = taken - np.cumsum(ranked.right[::-1], dtype=np.float64)
    return RiskCoverage(coverage=taken / taken[-1], risk=errors / taken)
