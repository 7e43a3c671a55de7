"""All measures at once: of arrays and of streams, as a whole or by groups."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import ArrayLike, require
from focalcal.core.ranking import Array
from focalcal.metrics.evaluation import Evaluation
from focalcal.metrics.tally import Tally
from focalcal.predictions.arrays import Chunk, Kind, Predictions
from focalcal.predictions.stream import Batch, Stream

# What is shown of each group.
_SHOWN = ("accuracy", "mean_confidence", "nll", "ece", "ada_ece", "classwise_ece")


@dataclass(frozen=True, eq=False)
class GroupedEvaluation(Mapping[str, Evaluation]):
    """The evaluation of each group of rows by its name, in order of the names, and that of all rows together.

    >>> logits, labels = [[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1]
    >>> found = evaluate(logits, labels, by=["en", "de", "de"])
    >>> {name: each.accuracy for name, each in found.items()}, found.overall.n
    ({'de': 0.5, 'en': 1.0}, 3)
    """

    by: str
    overall: Evaluation
    groups: Mapping[str, Evaluation]

    def __getitem__(self, group: str) -> Evaluation:
        return self.groups[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        groups = {name: evaluation.to_dict() for name, evaluation in self.groups.items()}
        return {"by": self.by, "overall": self.overall.to_dict(), "groups": groups}

    def rows(self) -> list[list[str]]:
        """The table of a few measures, one row a group and one for all, its head first."""
        named = [*self.groups.items(), ("all", self.overall)]
        values = [[name, f"{each.n:,}", *(_shown(getattr(each, m)) for m in _SHOWN)] for name, each in named]
        return [[self.by, "rows", *_SHOWN], *values]

    def __rich__(self) -> Any:
        from rich.table import Table

        head, *rows = self.rows()
        table = Table(*head, title=f"{self.overall.n:,} rows in {len(self.groups):,} groups")
        for column in table.columns[1:]:
            column.justify = "right"
        for row in rows:
            table.add_row(*row)
        return table

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = (
            row[0].ljust(widths[0])
            + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
            for row in rows
        )
        return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


@overload
def evaluate(
    scores: ArrayLike | Stream,
    labels: ArrayLike | None = ...,
    *,
    kind: Kind = ...,
    num_bins: int = ...,
    classwise: bool = ...,
    sample_weight: ArrayLike | None = ...,
    ignore_index: int | None = ...,
    by: None = ...,
    engine: str | None = ...,
) -> Evaluation: ...


@overload
def evaluate(
    scores: ArrayLike | Stream,
    labels: ArrayLike | None = ...,
    *,
    kind: Kind = ...,
    num_bins: int = ...,
    classwise: bool = ...,
    sample_weight: ArrayLike | None = ...,
    ignore_index: int | None = ...,
    by: str | ArrayLike,
    engine: str | None = ...,
) -> GroupedEvaluation: ...


def evaluate(
    scores: ArrayLike | Stream,
    labels: ArrayLike | None = None,
    *,
    kind: Kind = "logits",
    num_bins: int = 15,
    classwise: bool = True,
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    by: str | ArrayLike | None = None,
    engine: str | None = None,
) -> Evaluation | GroupedEvaluation:
    """Every measure at once, from one chunked pass over the scores.

    where `scores` and `labels` are read as by `read`. Beyond its input it takes 4 bytes a row for float32 scores (8
    for float64, 8 more with weights) and some temporaries; `classwise=False` saves the pass over all classes.

    A `focalcal.files.PredictionStream` in place of the scores brings its labels, weights and kind along. It is read
    once, in memory that does not grow with it: beyond `stream.memory` a histogram takes the place of the confidences,
    and `warnings` says how far `ada_ece` can be off. `engine="ray"` reads it on a Ray cluster.

    `by`, the group of each row (N,) or the name of a stream's column, gives every measure of every group in the same
    pass, as a `GroupedEvaluation`.

    >>> evaluation = evaluate([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1])
    >>> round(evaluation.accuracy, 3), round(evaluation.ece, 3), evaluation.n
    (0.667, 0.299, 3)
    >>> evaluate([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1], by=["en", "de", "en"])["en"].accuracy
    1.0
    """
    require(isinstance(num_bins, int) and num_bins >= 1, "num_bins", "must be a whole number from 1", num_bins)
    if isinstance(scores, Stream):
        own = labels is None and sample_weight is None and ignore_index is None
        require(
            own, "labels", "must be left out with a stream, which brings its own", "labels, weights or ignore_index"
        )
        return _of_stream(scores.on(engine), num_bins, classwise, by)
    require(engine is None, "engine", "is for streams; arrays are read where they are", repr(engine))
    require(labels is not None, "labels", "must be given with scores", "none")
    assert labels is not None
    predictions = Predictions(scores, labels, kind=kind, sample_weight=sample_weight, ignore_index=ignore_index)
    if by is None:
        tally = Tally(predictions.num_classes, kind, num_bins=num_bins, classwise=classwise)
        for chunk in predictions.chunks():
            tally.add(chunk)
        return tally.evaluation()
    require(ignore_index is None, "by", "does not go with ignore_index", ignore_index, "Leave those rows out before.")
    return _by_arrays(predictions, _labels_of_groups(by, predictions.num_rows), num_bins, classwise)


def _of_stream(stream: Stream, num_bins: int, classwise: bool, by: Any) -> Evaluation | GroupedEvaluation:
    require(by is None or isinstance(by, str), "by", "must name a column of the stream", type(by).__name__)
    fold = functools.partial(_tallies, num_bins=num_bins, classwise=classwise, most_rows=stream.most_rows)
    tallies = stream.reduce(fold, _merged, by=by)
    require(bool(tallies), stream.name, "must have a row that counts", "none", "Check the split and the files.")
    return tallies[_ALL].evaluation() if by is None else _grouped(by, tallies)


# The one group where nothing is asked for by groups: no name is empty.
_ALL = ""


def _tallies(batches: Iterator[Batch], *, num_bins: int, classwise: bool, most_rows: int) -> dict[str, Tally]:
    """The tally of every group in some batches."""
    tallies: dict[str, Tally] = {}
    for batch in batches:
        make = functools.partial(
            Tally,
            batch.predictions.num_classes,
            batch.predictions.kind,
            num_bins=num_bins,
            classwise=classwise,
            most_rows=most_rows,
        )
        start = 0
        for chunk in batch.chunks():
            groups = None if batch.groups is None else batch.groups[start : start + len(chunk.labels)]
            start += len(chunk.labels)
            for name, part in _parts(chunk, groups):
                if name not in tallies:
                    tallies[name] = make()
                tallies[name].add(part)
    return tallies


def _parts(chunk: Chunk, groups: Array | None) -> Iterator[tuple[str, Chunk]]:
    """The rows of each group in a chunk."""
    if groups is None:
        yield _ALL, chunk
        return
    names, code = np.unique(groups, return_inverse=True)
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(np.bincount(code))
    for name, rows in zip(names, np.split(order, ends[:-1]), strict=True):
        place = torch.from_numpy(rows).to(chunk.scores.device)
        weight = None if chunk.weight is None else chunk.weight[rows]
        yield str(name), Chunk(chunk.scores[place], chunk.labels[place], weight)


def _merged(one: dict[str, Tally], other: dict[str, Tally]) -> dict[str, Tally]:
    both = {name: tally.merge(other[name]) if name in other else tally for name, tally in one.items()}
    return both | {name: tally for name, tally in other.items() if name not in one}


def _grouped(by: str, tallies: dict[str, Tally]) -> GroupedEvaluation:
    groups = {name: tallies[name].evaluation() for name in sorted(tallies)}
    return GroupedEvaluation(by, functools.reduce(Tally.merge, tallies.values()).evaluation(), groups)


def _by_arrays(predictions: Predictions, groups: Array, num_bins: int, classwise: bool) -> GroupedEvaluation:
    batch = Batch("scores", predictions, groups)
    tallies = _tallies(iter([batch]), num_bins=num_bins, classwise=classwise, most_rows=predictions.num_rows)
    return _grouped("group", tallies)


def _labels_of_groups(by: Any, num_rows: int) -> Array:
    """The names of the groups of rows (N,)."""
    given = by.cpu().numpy() if isinstance(by, Tensor) else np.asarray(by)
    require(given.shape == (num_rows,), "by", f"must have shape {(num_rows,)}", given.shape)
    return given.astype(str)
