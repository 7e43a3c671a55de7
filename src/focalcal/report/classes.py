"""The classes of some predictions: their names, which are missing, how each fares, and which are confused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from focalcal.core.binning import bin_norm
from focalcal.core.checks import Array, require
from focalcal.files.prediction_table import PredictionTable
from focalcal.metrics import read
from focalcal.metrics.classwise_rows import ClasswiseRows
from focalcal.predictions.arrays import Predictions
from focalcal.report.contents import ClassTable, Confusions

# Classes that the page lists, over all models; pairs that it shows as confused.
MOST_CLASSES = 1000
MOST_CONFUSIONS = 15
# What the surest half of the rows reaches is confident, within these bounds: half of a network's rows may be above
# 0.9999, and its errors at 0.95 are the ones to look at all the same.
_CONFIDENT = (0.5, 0.9)


@dataclass(frozen=True, eq=False)
class Decisions:
    """Label, predicted class and weight of every row that counts, (N,) each."""

    label: Array
    predicted: Array
    weight: Array | None

    @staticmethod
    def of(table: PredictionTable) -> Decisions:
        """The decisions of a table's scores; of equal scores the first class is predicted, as everywhere."""
        labels, predicted, weights = [], [], []
        for chunk in predictions_of(table).chunks(check=False):
            labels.append(chunk.labels.numpy())
            predicted.append(chunk.scores.numpy().argmax(1))
            weights.append(chunk.weight)
        weight = [each for each in weights if each is not None]
        return Decisions(np.concatenate(labels), np.concatenate(predicted), np.concatenate(weight) if weight else None)


def predictions_of(table: PredictionTable) -> Predictions:
    """A table's labelled scores, checked."""
    return Predictions(table.scores, labels_of(table), kind=table.kind, sample_weight=table.weights)


def labels_of(table: PredictionTable) -> Array:
    """The labels of a table that must have some."""
    require(table.labels is not None, table.name, "must have labels here", "scores alone")
    assert table.labels is not None
    return table.labels


def class_names(table: PredictionTable) -> list[str]:
    """The names of a table's classes, or "class 3" and so on where it has none.

    >>> class_names(PredictionTable("t", np.zeros((1, 2)), "logits"))
    ['class 0', 'class 1']
    """
    if table.class_names is None:
        return [f"class {number}" for number in range(table.num_classes)]
    fits = len(table.class_names) == table.num_classes
    require(fits, "class_names", f"must be one for each of {table.num_classes} classes", len(table.class_names))
    return [str(name) for name in table.class_names]


def missing_classes(decisions: Decisions, names: Sequence[str]) -> list[str]:
    """The names of classes that no row has as its label.

    >>> missing_classes(Decisions(np.array([0, 2]), np.array([0, 0]), None), ["a", "b", "c"])
    ['b']
    """
    rows = np.bincount(decisions.label, minlength=len(names))
    return [name for name, count in zip(names, rows, strict=True) if count == 0]


def class_table(
    table: PredictionTable, decisions: Decisions, names: Sequence[str], num_bins: int, at_most: int
) -> ClassTable:
    """What the model does with each class, the worst calibrated ones first."""
    rows = read(table.scores, labels_of(table), kind=table.kind, sample_weight=table.weights, target="classwise")
    assert isinstance(rows, ClasswiseRows)
    bins = rows.bins(num_bins, "equal_width")
    share = bins.weight
    frequency, claimed = ((share * column).sum(-1).numpy() for column in (bins.accuracy, bins.confidence))
    error = bin_norm(bins, "l1").numpy()
    count = np.bincount(decisions.label, minlength=len(names))
    weight = np.ones(len(decisions.label)) if decisions.weight is None else decisions.weight
    mass = np.bincount(decisions.label, weights=weight, minlength=len(names))
    right = np.bincount(
        decisions.label, weights=weight * (decisions.label == decisions.predicted), minlength=len(names)
    )
    worst = np.argsort(-error, kind="stable")[:at_most]
    return ClassTable(
        num_classes=len(names),
        name=[names[number] for number in worst],
        count=count[worst].tolist(),
        frequency=frequency[worst].tolist(),
        mean_probability=claimed[worst].tolist(),
        gap=(claimed - frequency)[worst].tolist(),
        ece=error[worst].tolist(),
        recall=[float(right[number] / mass[number]) if count[number] else None for number in worst],
    )


def confusions(decisions: Decisions, confidence: Array, names: Sequence[str]) -> Confusions:
    """The most frequent pairs of true and predicted class among errors of which the model is sure."""
    threshold = float(np.clip(np.sort(confidence)[len(confidence) // 2], *_CONFIDENT))
    wrong = (decisions.label != decisions.predicted) & (confidence >= threshold)
    pair = decisions.label[wrong].astype(np.int64) * len(names) + decisions.predicted[wrong]
    pairs, place, count = np.unique(pair, return_inverse=True, return_counts=True)
    mean = np.bincount(place, weights=confidence[wrong], minlength=len(pairs)) / np.maximum(count, 1)
    most = np.lexsort((-mean, -count))[:MOST_CONFUSIONS]
    true, predicted = np.divmod(pairs[most], len(names))
    return Confusions(
        threshold=threshold,
        total=int(wrong.sum()),
        true=[names[number] for number in true],
        predicted=[names[number] for number in predicted],
        count=count[most].tolist(),
        mean_confidence=mean[most].tolist(),
    )
