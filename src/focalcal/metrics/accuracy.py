r"""Accuracy, error rate, top-k accuracy, mean confidence, and how often a model is very sure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from focalcal.core.checks import Array, ArrayLike, is_number, require
from focalcal.metrics.prediction_set import Measured, PredictionSet, RowMean
from focalcal.metrics.read_scores import ReadOptions, mean_of, predicted_rows_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["SureShare", "accuracy", "error", "gap", "mean_confidence", "s99", "top_k_accuracy"]

ACCURACY = RowMean("accuracy", ("correct",), lambda rows: rows["correct"])
ERROR = RowMean("error", ("correct",), lambda rows: ~rows["correct"])
CONFIDENCE = RowMean("mean_confidence", ("confidence",), lambda rows: rows["confidence"])


def top_k(k: int) -> RowMean:
    """Whether the label is among the first k classes."""
    return RowMean(f"top_{k}_accuracy", ("rank",), lambda rows: rows["rank"] < k)


def sure_share(threshold: float) -> RowMean:
    """Whether a prediction is this sure."""
    return RowMean(f"sure_{threshold:g}", ("confidence",), lambda rows: _sure(rows, threshold))


def sure_accuracy(threshold: float) -> RowMean:
    """Correctness, of the predictions that are this sure."""
    return RowMean(
        f"sure_{threshold:g}_accuracy",
        ("confidence", "correct"),
        lambda rows: _sure(rows, threshold) & rows["correct"],
        lambda rows: _sure(rows, threshold),
    )


def _sure(rows: Mapping[str, Array], threshold: float) -> Array:
    confidence = rows["confidence"]
    return np.asarray(confidence >= confidence.dtype.type(threshold))


def accuracy(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[ReadOptions]
) -> Measured:
    """The share of rows whose largest score is at the label; of equal scores the one with the lowest number counts.

    >>> accuracy([[2.0, 0.0], [2.0, 0.0]], [0, 1])
    0.5
    """
    return mean_of(scores, labels, reading, ACCURACY, "accuracy")


def error(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[ReadOptions]
) -> Measured:
    """One minus `accuracy`.

    >>> error([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 1, 1, 1])
    0.75
    """
    return mean_of(scores, labels, reading, ERROR, "error rate")


def mean_confidence(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[ReadOptions]
) -> Measured:
    """The mean of the largest probability.

    >>> mean_confidence([[0.75, 0.25]], [0], kind="probs")
    0.75
    """
    return mean_of(scores, labels, reading, CONFIDENCE, "mean confidence")


def gap(scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, **reading: Unpack[ReadOptions]) -> Measured:
    """Mean confidence minus accuracy: by how much a model is too sure on average.

    >>> from focalcal import metrics
    >>> round(gap(metrics.from_pairs([0.9, 0.7], [1, 0])), 3)
    0.3
    """
    rows = predicted_rows_of(scores, labels, ("confidence", "correct"), reading)
    measured: Measured = rows.report(rows.mean(CONFIDENCE) - rows.mean(ACCURACY), "mean confidence minus accuracy")
    return measured


def top_k_accuracy(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None = None, *, k: int = 5, **reading: Unpack[ReadOptions]
) -> Measured:
    """The share of rows whose label is among the k largest scores; equal scores in the order of their class numbers.

    >>> top_k_accuracy([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], [1, 2], k=2)
    0.5
    """
    require(isinstance(k, int) and k >= 1, "k", "must be a whole number from 1", k)
    return mean_of(scores, labels, reading, top_k(k), f"top-{k} accuracy")


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
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    threshold: float = 0.99,
    **reading: Unpack[ReadOptions],
) -> SureShare:
    """The share of predictions with a confidence of 0.99 or more, and how many of them are right.

    Source: [mukhoti2020, App. F], |S99|.

    >>> s99([[0.995, 0.005], [0.6, 0.4]], [0, 0], kind="probs")
    SureShare(share=0.5, accuracy=1.0)
    """
    fine = is_number(threshold) and 0 <= threshold <= 1
    require(fine, "threshold", "must lie in [0, 1]", repr(threshold))
    rows = predicted_rows_of(scores, labels, ("confidence", "correct"), reading)
    above = f"confidence {threshold:g} or more"
    return SureShare(
        share=rows.report(rows.mean(sure_share(threshold)), f"share of rows with {above}"),
        accuracy=rows.report(rows.mean(sure_accuracy(threshold)), f"accuracy of rows with {above}"),
    )
