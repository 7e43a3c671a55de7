"""Batches from Python as a part of a stream: tuples of arrays, or mappings with named columns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from focalcal.core.checks import Array, to_array
from focalcal.errors import InputError
from focalcal.files.column_names import find_parts, find_score_key
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.stream_parts import StreamPart
from focalcal.predictions.labels import plain_labels

# The label of tokens that are ignored.
IGNORED = -100

_USUAL = Columns()


class BatchesPart(StreamPart):
    """Batches from Python: tuples (scores, labels) or (scores, labels, weights), or mappings with named columns.

    Scores with more than two dimensions become rows; where a `mask` is 0 or the label is -100 there is none.
    """

    name = "batches"

    def __init__(self, batches: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self._batches, self._used = batches, False
        self._seen: list[Any] = []  # the batch that `first` took from an iterator

    def tables(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        """The rows of the batches."""
        opened = self._open()
        if isinstance(self._batches, Iterator):
            if self._used:
                raise InputError(
                    f"{self.name}: were read once and cannot be read again. Pass a function that opens the data anew, "
                    "or a list."
                )
            self._used = True
        return (_table_of(self.name, batch, columns, by) for batch in opened)

    def first(self, columns: Columns) -> PredictionTable | None:
        """The first table that has rows, if there is one; `tables` begins with it also where it is an iterator's.

        Only this batch is kept, and no other is asked for, because an iterator may use the memory of one for the next.
        """
        for batch in self._open():
            if isinstance(self._batches, Iterator):
                self._seen = [batch]
            table = _table_of(self.name, batch, columns, None)
            if table.num_rows:
                return table
        return None

    def _open(self) -> Iterable[Any]:
        opened = self._batches() if callable(self._batches) else self._batches
        if not isinstance(opened, Iterable):
            raise InputError(f"{self.name}: must be an iterable of batches; got {type(opened).__name__}.")
        return itertools.chain(self._seen, opened)


def _table_of(name: str, batch: Any, columns: Columns, by: str | None) -> PredictionTable:
    if isinstance(batch, PredictionTable):
        if by is not None and batch.groups is None:
            raise InputError(f"{name}: has a table without groups. Give each the column {by} as its groups.")
        return batch
    if isinstance(batch, Sequence) and not isinstance(batch, str) and len(batch) in (2, 3):
        named = dict(zip((columns.kind or "logits", "labels", "weights"), batch, strict=False))
        named = {key: value for key, value in named.items() if value is not None}
        usual = replace(columns, scores=None, labels=None, weights=None, split=None, class_names=None)
        return table_from_columns(name, named, usual, by)
    if isinstance(batch, Mapping):
        return table_from_columns(name, batch, columns, by)
    raise InputError(
        f"{name}: each must be a tuple (logits, labels) or (logits, labels, weights), or a mapping with such names; "
        f"got {type(batch).__name__}."
    )


def table_from_columns(
    name: str, batch: Mapping[str, Any], columns: Columns = _USUAL, by: str | None = None
) -> PredictionTable:
    """Make a table of named columns; scores, labels, weights and split are found by their usual names or by `columns`.

    Scores with more than two dimensions become rows, as in a `PredictionStream`.

    >>> table_from_columns("mine", {"logits": [[2.0, 0.0], [0.0, 1.0]], "label": [0, 1]}).labels
    array([0, 1])
    """
    there = list(batch)
    key, kind = find_score_key(name, there, columns)

    def array(of: str) -> Array:
        return to_array(batch[of], f"{name}: {of}")

    scores = array(key)
    parts = {part: array(found) for part, found in find_parts(name, there, columns, by).items()}
    if "labels" in parts:
        parts["labels"] = plain_labels(parts["labels"])
    if scores.ndim > 2:
        mask = array("mask") if "mask" in batch else None
        axis = _axis_of_classes(name, scores.shape, parts.get("labels"), columns.class_axis)
        scores, parts = _positions(name, np.moveaxis(scores, axis, -1), parts, mask)
    elif "mask" in batch:
        raise InputError(f"{name}: a mask belongs to scores (batch, time, classes); got shape {scores.shape}.")
    for part in parts.keys() & {"split", "groups"}:
        parts[part] = parts[part].astype(str)
    return PredictionTable(name, scores, kind, **parts)  # type: ignore[arg-type]


def _axis_of_classes(name: str, shape: tuple[int, ...], labels: Array | None, given: int | None) -> int:
    """The axis of the classes: as given, or the one that the shape of the labels shows."""
    came = None if labels is None else labels.shape
    axes = (1, len(shape) - 1) if given is None else (given + len(shape) if given < 0 else given,)
    fits = [axis for axis in axes if shape[:axis] + shape[axis + 1 :] == came]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise InputError(
            f"{name}: labels of shape {came} leave open which axis of the scores {shape} has the classes. Pass "
            "class_axis=-1 for (batch, time, classes), or class_axis=1 for (batch, classes, time)."
        )
    expected = " or ".join(str(shape[:axis] + shape[axis + 1 :]) for axis in reversed(axes))
    raise InputError(
        f"{name}: labels of scores {shape} must have shape {expected}, that of the scores without the axis of the "
        f"classes; got {came}. Transpose the scores, or pass class_axis."
    )


def _positions(name: str, scores: Array, parts: dict[str, Array], mask: Array | None) -> tuple[Array, dict[str, Array]]:
    """One row per position of scores (batch, ..., classes) that is not ignored; values of a sample are repeated."""
    place, labels = scores.shape[:-1], parts["labels"]
    counts = labels != IGNORED
    if mask is not None:
        if mask.shape != place:
            raise InputError(f"{name}: mask must have the shape of the labels, {place}; got {mask.shape}.")
        counts &= mask.astype(bool)
    spread = {
        part: np.broadcast_to(column.reshape(column.shape + (1,) * (len(place) - column.ndim)), place)[counts]
        for part, column in parts.items()
    }
    return scores[counts], spread
