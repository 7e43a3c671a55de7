r"""Out-of-distribution detection: how well a score tells known from unknown inputs."""

from __future__ import annotations

from typing import Literal

import numpy as np

from focalcal.core.checks import Array, ArrayLike, require
from focalcal.core.ranking import dense_rank
from focalcal.core.score_kinds import GivenKind, plain_kind
from focalcal.kernels.ranking import area_under_roc, ranked_rows
from focalcal.metrics.prediction_set import Measured
from focalcal.predictions.arrays import Predictions

__all__ = ["fpr95", "ood_auroc"]

OodScore = Literal["entropy", "max_prob", "energy"]
_COLUMN = {"entropy": "entropy", "max_prob": "confidence", "energy": "energy"}


def normality(scores: ArrayLike, kind: GivenKind, score: OodScore, argument: str) -> Array:
    """How much like in-distribution each row looks: higher means more."""
    require(isinstance(score, str) and score in _COLUMN, "score", f"must be one of {', '.join(_COLUMN)}", repr(score))
    fix = "An energy is a sum over logits; probabilities have lost it."
    fine = score != "energy" or plain_kind(kind) == "logits"
    require(fine, "kind", "must be logits for score=energy", repr(kind), fix)
    predictions, name = Predictions(scores, None, kind=kind, argument=argument), _COLUMN[score]
    column = np.concatenate([chunk.columns((name,))[name] for chunk in predictions.chunks()])
    return -column if score == "entropy" else column


def ood_auroc(
    in_scores: ArrayLike, out_scores: ArrayLike, *, kind: GivenKind = "logits", score: OodScore = "entropy"
) -> Measured:
    r"""How well a score tells known from unknown inputs: the area under the ROC curve.

    The probability that a row of `in_scores` (N, K) looks more like in-distribution than a row of `out_scores` (M, K),
    a tie counting one half; `score` is low entropy, high largest probability, or energy $\log \sum_k e^{x_k}$.

    Source: [ghosh2022, App. K] by entropy; [hendrycks2017] for the largest probability, [liu2020] for the energy.

    >>> ood_auroc([[9.0, 0.0], [8.0, 0.0]], [[0.1, 0.0], [8.5, 0.0]])
    0.75
    """
    known, unknown = normality(in_scores, kind, score, "in_scores"), normality(out_scores, kind, score, "out_scores")
    place = dense_rank(np.concatenate([known, unknown]))
    ranked = ranked_rows(place, np.arange(len(place)) < len(known))
    return Measured(area_under_roc(ranked), f"AUROC of in- against out-of-distribution by {score}")


def fpr95(
    in_scores: ArrayLike, out_scores: ArrayLike, *, kind: GivenKind = "logits", score: OodScore = "entropy"
) -> Measured:
    """The share of unknown inputs that pass as known where 95 % of the known ones do.

    The threshold is the largest score that at least 95 % of `in_scores` reach; arguments as in `ood_auroc`.

    Source: [hendrycks2017], as used since.

    >>> fpr95([[9.0, 0.0], [8.0, 0.0]], [[0.1, 0.0], [8.5, 0.0]])
    0.5
    """
    known, unknown = normality(in_scores, kind, score, "in_scores"), normality(out_scores, kind, score, "out_scores")
    allowed = int(np.floor(0.05 * len(known) + 1e-9))  # this many may fall below
    threshold = np.sort(known)[allowed]
    return Measured(float((unknown >= threshold).mean()), f"false positive rate at 95 % true positives by {score}")
