r"""Scores: means of something that each row has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from focalcal.core.checks import ArrayLike, require
from focalcal.core.ranking import Array
from focalcal.metrics.read import Reading, predicted_rows_of, rows_of
from focalcal.metrics.rows import Column, Measured, Readable

if TYPE_CHECKING:
    from typing_extensions import Unpack

NLL = Column("nll", ("nll",), lambda rows: rows["nll"])
BRIER = Column("brier", ("brier",), lambda rows: rows["brier"])
CONFIDENCE = Column("mean_confidence", ("confidence",), lambda rows: rows["confidence"])
ACCURACY = Column("accuracy", ("correct",), lambda rows: rows["correct"])
ERROR = Column("error", ("correct",), lambda rows: ~rows["correct"])
ENTROPY = Column("entropy", ("entropy",), lambda rows: rows["entropy"])
ENTROPY_CORRECT = Column(
    "entropy_correct",
    ("entropy", "correct"),
    lambda rows: rows["entropy"] * rows["correct"],
    lambda rows: rows["correct"],
)
ENTROPY_WRONG = Column(
    "entropy_wrong",
    ("entropy", "correct"),
    lambda rows: rows["entropy"] * ~rows["correct"],
    lambda rows: ~rows["correct"],
)
SQUARED_GAP = Column(
    "squared_gap",
    ("confidence", "correct"),
    lambda rows: (rows["confidence"].astype(np.float64) - rows["correct"]) ** 2,
)


def top_k(k: int) -> Column:
    """Whether the label is among the first k classes."""
    return Column(f"top_{k}_accuracy", ("rank",), lambda rows: rows["rank"] < k)


def sure_share(threshold: float) -> Column:
    """Whether a prediction is this sure."""
    return Column(f"sure_{threshold:g}", ("confidence",), lambda rows: _sure(rows, threshold))


def sure_accuracy(threshold: float) -> Column:
    """Correctness, of the predictions that are this sure."""
    return Column(
        f"sure_{threshold:g}_accuracy",
        ("confidence", "correct"),
        lambda rows: _sure(rows, threshold) & rows["correct"],
        lambda rows: _sure(rows, threshold),
    )


def _sure(rows: Mapping[str, Array], threshold: float) -> Array:
    confidence = rows["confidence"]
    return np.asarray(confidence >= confidence.dtype.type(threshold))


def _mean(scores: Any, labels: Any, reading: Mapping[str, Any], column: Column, definition: str) -> Measured:
    # The scores of whole rows mean the same whatever class was read; correctness does not.
    reader = rows_of if column in (NLL, BRIER) else predicted_rows_of
    rows = reader(scores, labels, column.needs, reading)
    measured: Measured = rows.report(rows.mean(column), definition)
    return measured


def nll(scores: ArrayLike | Readable, labels: ArrayLike | None = None, **reading: Unpack[Reading]) -> Measured:
    r"""Negative log-likelihood.

    $$ \mathrm{NLL} = -\frac1N \sum_n \log p_{n, y_n} $$

    where `scores` and `labels` are read as by `read`. Infinite if a label has probability 0.

    >>> round(nll([[0.9, 0.1], [0.5, 0.5]], [0, 0], kind="probs"), 4)
    0.3993
    """
    return _mean(scores, labels, reading, NLL, "NLL in nats, mean over rows")


def brier(scores: ArrayLike | Readable, labels: ArrayLike | None = None, **reading: Unpack[Reading]) -> Measured:
    r"""Brier score: squared error of the whole probability vector.

    $$ \frac1N \sum_n \sum_k (p_{nk} - [y_n = k])^2 $$

    Source: [brier1950]. From 0 to 2; some libraries divide it by 2 or by K.

    >>> round(brier([[0.9, 0.1]], [0], kind="probs"), 4)
    0.02
    """
    return _mean(scores, labels, reading, BRIER, "Brier score, sum over classes, mean over rows")


def accuracy(scores: ArrayLike | Readable, labels: ArrayLike | None = None, **reading: Unpack[Reading]) -> Measured:
    """The share of rows whose largest score is at the label; of equal scores the one with the lowest number counts.

    >>> accuracy([[2.0, 0.0], [2.0, 0.0]], [0, 1])
    0.5
    """
    return _mean(scores, labels, reading, ACCURACY, "accuracy")


def error(scores: ArrayLike | Readable, labels: ArrayLike | None = None, **reading: Unpack[Reading]) -> Measured:
    """One minus `accuracy`.

    >>> error([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 1, 1, 1])
    0.75
    """
    return _mean(scores, labels, reading, ERROR, "error rate")


def mean_confidence(
    scores: ArrayLike | Readable, labels: ArrayLike | None = None, **reading: Unpack[Reading]
) -> Measured:
    """The mean of the largest probability.

    >>> mean_confidence([[0.75, 0.25]], [0], kind="probs")
    0.75
    """
    return _mean(scores, labels, reading, CONFIDENCE, "mean confidence")


def top_k_accuracy(
    scores: ArrayLike | Readable, labels: ArrayLike | None = None, *, k: int = 5, **reading: Unpack[Reading]
) -> Measured:
    """The share of rows whose label is among the k largest scores; equal scores in the order of their class numbers.

    >>> top_k_accuracy([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], [1, 2], k=2)
    0.5
    """
    require(isinstance(k, int) and k >= 1, "k", "must be a whole number from 1", k)
    return _mean(scores, labels, reading, top_k(k), f"top-{k} accuracy")


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


def entropy(scores: ArrayLike | Readable, labels: ArrayLike | None = None, **reading: Unpack[Reading]) -> Entropies:
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


@dataclass(frozen=True)
class SureShare:
    """The `share` of predictions that are very sure, and their `accuracy` (NaN if there are none).

    >>> found = s99([[9.0, 0.0], [0.0, 9.0], [1.0, 0.0]], [0, 0, 1])
    >>> round(found.share, 4), float(found.accuracy)
    (0.6667, 0.5)
    """

    share: Measured
    accuracy: Measured


def s99(
    scores: ArrayLike | Readable,
    labels: ArrayLike | None = None,
    *,
    threshold: float = 0.99,
    **reading: Unpack[Reading],
) -> SureShare:
    """The share of predictions with a confidence of 0.99 or more, and how many of them are right.

    Source: [mukhoti2020, App. F], |S99|.

    >>> s99([[0.995, 0.005], [0.6, 0.4]], [0, 0], kind="probs")
    SureShare(share=0.5, accuracy=1.0)
    """
    require(0 <= threshold <= 1, "threshold", "must lie in [0, 1]", threshold)
    rows = predicted_rows_of(scores, labels, ("confidence", "correct"), reading)
    above = f"confidence {threshold:g} or more"
    return SureShare(
        share=rows.report(rows.mean(sure_share(threshold)), f"share of rows with {above}"),
        accuracy=rows.report(rows.mean(sure_accuracy(threshold)), f"accuracy of rows with {above}"),
    )
