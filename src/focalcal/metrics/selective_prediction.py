r"""Selective prediction: how well confidence tells right from wrong, and what error rate remains if one abstains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from focalcal.core.checks import Array, ArrayLike, require
from focalcal.core.ranking import Ranking
from focalcal.kernels.ranking import area_under_roc, risk_area
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
    measured: Measured = rows.report(rows.each(risk_area), "area under the risk-coverage curve")
    return measured


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
