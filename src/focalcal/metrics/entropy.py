r"""Entropy of predictions, and their divergence from a known posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from focalcal.core.checks import ArrayLike, require, require_distribution, to_float_tensor
from focalcal.core.score_kinds import GivenKind
from focalcal.metrics.prediction_set import Measured, PredictionSet, RowMean
from focalcal.metrics.read_scores import ReadOptions, predicted_rows_of
from focalcal.predictions.arrays import Predictions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Entropies", "entropy", "kl_to_posterior"]

ENTROPY = RowMean("entropy", ("entropy",), lambda rows: rows["entropy"])
ENTROPY_CORRECT = RowMean(
    "entropy_correct",
    ("entropy", "correct"),
    lambda rows: rows["entropy"] * rows["correct"],
    lambda rows: rows["correct"],
)
ENTROPY_WRONG = RowMean(
    "entropy_wrong",
    ("entropy", "correct"),
    lambda rows: rows["entropy"] * ~rows["correct"],
    lambda rows: ~rows["correct"],
)


@dataclass(frozen=True)
class Entropies:
    """Mean entropy in nats: `overall`, of the `correct` and of the `wrong` predictions (NaN if there are none).

    >>> found = entropy([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
    >>> round(found.overall, 4), round(found.correct, 4), round(found.wrong, 4)
    (0.5099, 0.4738, 0.5822)
    """

    overall: Measured
    correct: Measured
    wrong: Measured


def entropy(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[ReadOptions]
) -> Entropies:
    r"""Mean entropy of the predictions, over all, the correct and the wrong ones.

    $$ H_n = -\sum_k p_{nk} \log p_{nk} $$

    Source: [mukhoti2020, Fig. 2]: training with cross-entropy drives it down for the wrong ones, too.

    >>> round(entropy([[0.0, 0.0], [9.0, 0.0]], [1, 0]).wrong, 4)
    0.6931
    """
    rows = predicted_rows_of(scores, labels, ("entropy", "correct"), reading)
    return Entropies(
        overall=rows.report(rows.mean(ENTROPY), "entropy in nats, mean over rows"),
        correct=rows.report(rows.mean(ENTROPY_CORRECT), "entropy in nats, mean over correct rows"),
        wrong=rows.report(rows.mean(ENTROPY_WRONG), "entropy in nats, mean over wrong rows"),
    )


def kl_to_posterior(scores: ArrayLike, posterior: ArrayLike, *, kind: GivenKind = "logits") -> Measured:
    r"""The mean Kullback-Leibler divergence of the predictions from the true posterior, where that is known.

    $$ \frac1N \sum_n \sum_k \eta_{nk} \log \frac{\eta_{nk}}{p_{nk}} $$

    where `posterior` (N, K) is $\eta$ and $p$ are the probabilities of `scores` (N, K).

    Source: [charoenphakdee2021, Sec. 5.1].

    >>> round(kl_to_posterior([[0.5, 0.5]], [[0.8, 0.2]], kind="probs"), 4)
    0.1927
    """
    truth = to_float_tensor(posterior, "posterior")
    predictions = Predictions(scores, None, kind=kind)
    expected = (len(scores), predictions.num_classes)  # type: ignore[arg-type]
    require(tuple(truth.shape) == expected, "posterior", f"must have shape {expected}", tuple(truth.shape))
    require_distribution(truth, "posterior", 1)
    total, start = 0.0, 0
    for chunk in predictions.chunks():
        eta = truth[start : start + len(chunk.scores)].to(chunk.scores.device, torch.float64)
        wide = chunk.scores.double()
        log_probs = torch.log(wide) if kind == "probs" else wide if kind == "log_probs" else torch.log_softmax(wide, 1)
        rows = torch.where(eta > 0, eta * (torch.log(eta) - log_probs), 0.0).sum(1)
        total, start = total + float(rows.sum()), start + len(eta)
    return Measured(total / start, "KL divergence of the predictions from the posterior in nats, mean over rows")
