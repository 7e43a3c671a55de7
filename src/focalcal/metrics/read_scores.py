"""Reading scores and labels into rows that the measures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from torch import Tensor

from focalcal.core.binning import Scheme
from focalcal.core.checks import Array, ArrayLike, require, to_array
from focalcal.core.score_kinds import GivenKind
from focalcal.metrics.classwise_rows import ClasswiseRows
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.metrics.prediction_set import COLUMNS, Measured, PredictionSet, RowMean
from focalcal.predictions.arrays import Predictions, Target, checked_weight

__all__ = ["from_pairs", "read"]

_WEIGHT = "sample_weight"
PAIRS = ("confidence", "correct")


class ReadOptions(TypedDict, total=False):
    """How every measure reads scores; see `read`."""

    kind: GivenKind
    sample_weight: ArrayLike | None
    ignore_index: int | None
    class_axis: int
    class_names: Sequence[str] | None


class TargetedReadOptions(ReadOptions, total=False):
    """How a measure reads scores, and whose confidence it means; see `read`."""

    target: Target


def read(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    kind: GivenKind = "logits",
    target: Target = "top_label",
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    class_axis: int = 1,
    class_names: Sequence[str] | None = None,
    columns: tuple[str, ...] = COLUMNS,
) -> PredictionSet:
    """Read scores once for many measures; each takes the result in place of scores and labels.

    where `scores` are (N, K), (N,) for binary scores of the positive class, or have more dimensions: the classes are
    along `class_axis`, which is 1 for images (N, K, H, W) and -1 for tokens (B, T, K). `kind` says what the scores are:
    logits, log_probs, probs, or log_scores, which are not normalised and read as logits. `target` says whose confidence
    is meant: that of the predicted class (`"top_label"`), of class 1 of two (`"positive"`), of the class with a given
    number, or of every class in turn (`"classwise"`). Probabilities must sum to 1 within 1e-5, or as closely as their
    rounding to 2, 3 or 4 digits allows; rows that do not sum to 1 within the rounding of their precision are divided by
    their sum.

    `labels` are class numbers from 0, also as floats; booleans, for two classes; or names, as text or categories. Names
    are looked up among `class_names`, or among the columns of scores that are a data frame. Without either, the sorted
    labels are the names of the classes, and each class must occur. Data frames and columns may come from pandas, polars
    or pyarrow; their rows are matched by position, whatever their index.

    >>> from focalcal import metrics
    >>> rows = metrics.read([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    >>> round(metrics.accuracy(rows), 3), round(metrics.nll(rows), 3)
    (0.5, 0.72)
    """
    predictions = Predictions(
        scores,
        labels,
        kind=kind,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        class_axis=class_axis,
        class_names=class_names,
    )
    if isinstance(target, str) and target == "classwise":
        return ClasswiseRows(predictions)
    number, described = target_class(target, predictions.num_classes)
    joined: dict[str, Array] = {}
    filled = 0
    for chunk in predictions.chunks():
        found = chunk.columns(columns, number)
        found |= {} if chunk.weight is None else {_WEIGHT: chunk.weight}
        rows = slice(filled, filled + len(chunk.labels))
        for name, column in found.items():
            # Written in place: small arrays kept between large temporaries would tear the heap apart.
            if name not in joined:
                joined[name] = np.empty(predictions.num_rows, column.dtype)
            joined[name][rows] = column
        filled = rows.stop
    joined = {name: column[:filled] for name, column in joined.items()}
    weight = joined.pop(_WEIGHT, None)
    return PredictedRows(joined, num_classes=predictions.num_classes, weight=weight, target=described)


def target_class(target: Target, num_classes: int) -> tuple[int | None, str]:
    """The number of the class that a target means, None for the predicted one, and its name in definitions."""
    if isinstance(target, str) and target == "top_label":
        return None, "top label"
    if isinstance(target, str) and target == "positive":
        fix = 'Give the number of the class, or target="classwise".'
        require(num_classes == 2, "target", "is positive for two classes only", f"{num_classes} classes", fix)
        return 1, "positive class"
    known = isinstance(target, int) and not isinstance(target, bool) and 0 <= target < num_classes
    rule = f"must be top_label, positive, classwise or a class number in 0..{num_classes - 1}"
    require(known, "target", rule, repr(target))
    return int(target), f"class {target} against the rest"


def from_pairs(confidence: ArrayLike, correct: ArrayLike, *, sample_weight: ArrayLike | None = None) -> PredictedRows:
    """Rows made from confidences and correctness, where there are no scores.

    >>> from focalcal import metrics
    >>> metrics.accuracy(metrics.from_pairs([0.9, 0.8], [1, 0]))
    0.5
    """
    given = to_array(confidence, "confidence")
    require(given.dtype.kind in "fiub", "confidence", "must be numbers", given.dtype)
    given = given if given.dtype in (np.float32, np.float64) else given.astype(np.float64)
    right = to_array(correct, "correct")
    require(right.dtype.kind in "fiub", "correct", "must be 0 or 1", right.dtype)
    require(given.ndim == 1 and len(given) >= 1, "confidence", "must have shape (N,) with N >= 1", given.shape)
    require(right.shape == given.shape, "correct", "must have confidence's shape", right.shape)
    inside = bool(((given >= 0) & (given <= 1)).all())
    require(inside, "confidence", "must lie in [0, 1]", f"{given.min():.6g}..{given.max():.6g}")
    require(bool(((right == 0) | (right == 1)).all()), "correct", "must be 0 or 1", "other values")
    weight = None if sample_weight is None else checked_weight(sample_weight, given.shape)
    return PredictedRows(
        {"confidence": given, "correct": right.astype(bool)}, num_classes=2, weight=weight, target="given pairs"
    )


def predicted_rows_of(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None, needs: tuple[str, ...], reading: Mapping[str, Any]
) -> PredictionSet:
    """As `rows_of`, for measures that make sense for the predicted class only."""
    rows = rows_of(scores, labels, needs, reading)
    predicted = rows.target in ("top label", "given pairs")
    fix = 'Read them with target="top_label".'
    require(predicted, "scores", "must be rows of the predicted class here", f"rows of the {rows.target}", fix)
    return rows


def rows_of(
    scores: ArrayLike | PredictionSet, labels: ArrayLike | None, needs: tuple[str, ...], reading: Mapping[str, Any]
) -> PredictionSet:
    """Rows as given, or scores and labels read for the columns that a measure needs."""
    if isinstance(scores, PredictionSet):
        taken = labels is None and not reading
        require(taken, "scores", "that were read already take no labels, kind, target or weights", sorted(reading))
        return scores
    require(labels is not None, "labels", "must be given beside scores", None)
    return read(scores, labels, columns=needs, **reading)  # type: ignore[arg-type]


def mean_of(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None,
    reading: Mapping[str, Any],
    mean: RowMean,
    definition: str,
    *,
    predicted: bool = True,
) -> Measured:
    """A measure that is a mean over rows.

    Correctness means something for the predicted class only. Scores of the whole probability vector are the same
    whatever class was read: they are not `predicted`.
    """
    rows = (predicted_rows_of if predicted else rows_of)(scores, labels, mean.needs, reading)
    measured: Measured = rows.report(rows.mean(mean), definition)
    return measured


def describe_bins(edges: Scheme | Tensor, num_bins: int) -> str:
    """How a definition names the bins.

    >>> describe_bins("equal_mass", 15), describe_bins("equal_width_sweep", 15)
    ('15 equal-mass bins', 'equal-width bins by monotone sweep')
    """
    if isinstance(edges, Tensor):
        return f"{len(edges) - 1} given bins"
    if edges.endswith("_sweep"):
        return f"{edges.removesuffix('_sweep').replace('_', '-')} bins by monotone sweep"
    return f"{num_bins} {edges.replace('_', '-')} bins"
