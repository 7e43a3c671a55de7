"""Streams of predictions that do not fit in memory or are on other machines, read shard by shard in passes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from focalcal.core.checks import require
from focalcal.errors import InputError
from focalcal.files.batches import BatchesPart
from focalcal.files.checks import checked, no_rows
from focalcal.files.datasets import dataset_parts
from focalcal.files.discovery import find_shards
from focalcal.files.joining import require_agreement
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.read_ahead import read_ahead, steady_memory
from focalcal.files.reading import Progress
from focalcal.files.stream_parts import StreamPart
from focalcal.predictions.arrays import Predictions
from focalcal.predictions.stream import MEMORY, Batch, Fold, Merge, Stream

if TYPE_CHECKING:
    from typing_extensions import Self

P = TypeVar("P")
StreamSource: TypeAlias = "str | Path | Sequence[str | Path] | Iterable[Any] | Callable[[], Iterable[Any]] | Any"
OnBadShard: TypeAlias = Literal["raise", "skip"]

_USUAL = Columns()


@dataclass(frozen=True)
class ShardReader:
    """Reads and checks the parts of a stream; `like` is a table without rows that all of them must agree with."""

    columns: Columns
    split: str | None
    like: PredictionTable

    def batches(self, part: StreamPart, by: str | None) -> Iterator[Batch]:
        """The rows of a part, checked; an error names the part."""
        before = 0
        for given in part.tables_with_rows(self.columns, by):
            table = given if part.own_memory else given.copy()
            fine = checked(table, need_labels=True, columns=self.columns, before=before, keep_half=True)
            fine = chosen(fine, self.split)
            before += table.num_rows
            require_agreement(self.like, fine)
            if fine.num_rows:
                assert fine.labels is not None
                rows = Predictions(
                    fine.scores,
                    fine.labels,
                    kind=fine.kind,
                    sample_weight=fine.weights,
                    argument=part.name,
                    may_be_empty=True,
                )
                yield Batch(part.name, rows, None if by is None else fine.groups, checked=True)


def chosen(table: PredictionTable, split: str | None) -> PredictionTable:
    """The rows of a split, or all rows if `split` is None."""
    if split is None:
        return table
    if table.split is None:
        raise InputError(f"{table.name}: has no split column, so that there is no split {split!r}. Leave split out.")
    return table.take(table.split == split)


class PredictionStream(Stream):
    """Scores and labels in shards, read in bounded memory.

    where `source` is

    - files: a path, a directory (also with parts such as `split=val/`), a glob, an address such as
      `s3://bucket/scores/*.parquet`, or several of these, in any format; text is read one file at a time, all else by
      rows;
    - a dataset of pyarrow (`pyarrow.dataset.dataset(...)`) or Hugging Face (`datasets`);
    - batches: an iterable, or a function that opens one anew, of (logits, labels), (logits, labels, weights) or
      mappings with named columns. Scores with more than two dimensions become rows, with a `mask` only where that is
      not 0, and without labels of -100: tokens (batch, time, classes) with labels (batch, time), or images (batch,
      classes, height, width) with labels (batch, height, width). `class_axis` is the axis of the classes, which is
      needed where the labels fit two.

    `columns` gives the names of the parts, as for `read_predictions`; `split` keeps the rows of one split, and rows
    whose label is `ignore_index` are left out. `memory` limits what may grow with the number of rows, in bytes. A shard
    that cannot be read, or does not belong to the others, raises an error that names it; with `on_bad_shard="skip"` the
    whole shard is left out and listed in `skipped`. `progress(rows, 0, shard)` is called after each batch.

    >>> from focalcal import TemperatureScaling, evaluate
    >>> batches = [([[2.0, 0.0], [2.0, 0.0]], [0, 0]), ([[2.0, 0.0]], [1])]
    >>> stream = PredictionStream(batches)
    >>> round(evaluate(stream).accuracy, 4), round(TemperatureScaling().fit(stream).temperature_, 4)
    (0.6667, 2.8854)
    """

    def __init__(
        self,
        source: StreamSource,
        columns: Columns = _USUAL,
        *,
        split: str | None = None,
        memory: int = MEMORY,
        on_bad_shard: OnBadShard = "raise",
        class_axis: int | None = None,
        ignore_index: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        known = on_bad_shard in ("raise", "skip")
        require(known, "on_bad_shard", "must be raise or skip", repr(on_bad_shard))
        require(memory >= 0, "memory", "must be a number of bytes, not negative", memory)
        self._stack = ExitStack()
        self.parts, self.name = _parts(source, self._stack)
        self.memory, self.on_bad_shard = memory, on_bad_shard
        self.skipped: dict[str, str] = {}
        how = {"class_axis": class_axis, "ignore_index": ignore_index}
        given: dict[str, Any] = {name: value for name, value in how.items() if value is not None}
        self.columns, self._split, self._progress = replace(columns, **given), split, progress
        self._reader: ShardReader | None = None

    @property
    def num_classes(self) -> int:
        """The number of classes, from the beginning of the first shard."""
        return self.reader.like.num_classes

    @property
    def kind(self) -> str:
        """The kind of the scores."""
        return self.reader.like.kind

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, if the files have any."""
        return self.reader.like.class_names

    @property
    def reader(self) -> ShardReader:
        """The reader of the parts; the first part that has rows and can be read determines kind and classes."""
        if self._reader is None:
            self._reader = ShardReader(self.columns, self._split, self._like())
        return self._reader

    def _like(self) -> PredictionTable:
        """The first table that has rows and can be read, without its rows."""
        for part in self._left():
            try:
                first = part.first(self.columns)
                if first is not None:
                    return checked(first, need_labels=True, columns=self.columns).take(np.zeros(0, dtype=np.int64))
            except InputError as error:  # noqa: PERF203
                self.skip(part.name, error)
        if self.skipped:
            reasons = " ".join(itertools.islice(self.skipped.values(), 3))
            raise InputError(f"{self.name}: no shard can be read. {reasons}")
        raise no_rows(self.name, len(self.parts))

    def skip(self, name: str, error: InputError) -> None:
        """Leave out a bad shard from now on, or raise its error if that is not allowed."""
        if self.on_bad_shard == "raise":
            raise error
        self.skipped[name] = str(error)

    def batches(self, *, by: str | None = None) -> Iterator[Batch]:
        """All rows in order, read ahead, for your own loops."""
        reader = self.reader
        with read_ahead(lambda: (batch for part in self._left() for batch in reader.batches(part, by))) as ahead:
            yield from ahead

    def _left(self) -> list[StreamPart]:
        return [part for part in self.parts if part.name not in self.skipped]

    def reduce(self, fold: Fold[P], merge: Merge[P], *, by: str | None = None) -> P:
        """Make one pass over all rows: `fold` the batches of each part and `merge` the results in order."""
        if not self.is_local:
            from focalcal.files.ray import reduce_on_ray

            return reduce_on_ray(self, fold, merge, by=by)
        folded, reader = MergedShards[P](merge), self.reader
        with steady_memory(), read_ahead(lambda: self._events(reader, by)) as events:
            for part, group in itertools.groupby(events, key=lambda event: event[0]):
                try:
                    folded.add(part.name, fold_batches(fold, self._told(event for _, event in group)))
                except BadShardError as bad:  # noqa: PERF203
                    self.skip(part.name, bad.error)
                    folded.drop(part.name)
        return folded.result(self.name)

    def _events(self, reader: ShardReader, by: str | None) -> Iterator[tuple[StreamPart, Batch | InputError]]:
        """The batches of all parts; a part that cannot be read ends with its error."""
        for part in self._left():
            try:
                for batch in reader.batches(part, by):
                    yield part, batch
            except InputError as error:  # noqa: PERF203
                yield part, error

    def _told(self, events: Iterator[Batch | InputError]) -> Iterator[Batch]:
        """The batches, with progress reported; the error of a bad part is raised."""
        for event in events:
            if isinstance(event, InputError):
                raise BadShardError(event)
            if self._progress is not None:
                self._progress(event.predictions.num_rows, 0, event.name)
            yield event

    def on(self, engine: str | None) -> Self:
        """The same stream, with passes on a Ray cluster (`"ray"`) or in this process (`"local"`)."""
        require(engine in (None, "local", "ray"), "engine", "must be local or ray", repr(engine))
        if engine is None:
            return self
        stream = copy(self)
        stream.is_local = engine == "local"
        return stream

    def close(self) -> None:
        """Remove the temporary copy of standard input."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PredictionStream({self.name!r}, {len(self.parts)} parts)"


class BadShardError(Exception):
    """Carries the error of a shard that cannot be read through the fold that consumes it."""

    def __init__(self, error: InputError) -> None:
        super().__init__(str(error))
        self.error = error


def fold_batches(fold: Fold[P], batches: Iterator[Batch]) -> P | None:
    """Fold batches; None if there are none."""
    first = next(batches, None)
    return None if first is None else fold(itertools.chain([first], batches))


class MergedShards(Generic[P]):
    """Partial results, merged shard by shard, so that a bad shard leaves nothing behind."""

    def __init__(self, merge: Merge[P]) -> None:
        self._merge = merge
        self._whole: P | None = None
        self._shard: tuple[str, P | None] | None = None

    def add(self, name: str, value: P | None) -> None:
        """Add the result of a part of a shard."""
        if self._shard is not None and self._shard[0] == name:
            value = self._both(self._shard[1], value)
        else:
            self._settle()
        self._shard = (name, value)

    def drop(self, name: str) -> None:
        """Discard the results of a shard."""
        if self._shard is not None and self._shard[0] == name:
            self._shard = None

    def result(self, name: str) -> P:
        """All results merged; raises if there are none."""
        self._settle()
        if self._whole is None:
            raise InputError(f"{name}: has no rows that count. Check the split and the files.")
        return self._whole

    def _settle(self) -> None:
        self._whole = self._whole if self._shard is None else self._both(self._whole, self._shard[1])
        self._shard = None

    def _both(self, one: P | None, other: P | None) -> P | None:
        if one is None or other is None:
            return other if one is None else one
        return self._merge(one, other)


def _parts(source: StreamSource, stack: ExitStack) -> tuple[list[StreamPart], str]:
    """The parts of a source, and its name for messages."""
    if isinstance(source, (str, Path)):
        return [*find_shards(source, stack)], str(source)
    known = dataset_parts(source)
    if known is not None:
        return known, "dataset"
    if isinstance(source, Sequence) and source and all(isinstance(each, (str, Path)) for each in source):
        more = "" if len(source) == 1 else f" and {len(source) - 1} more"
        return [*find_shards(source, stack)], f"{source[0]}{more}"
    fine = callable(source) or isinstance(source, Iterable)
    rule = "must be files, a dataset, or batches"
    require(fine and not isinstance(source, (dict, bytes)), "source", rule, type(source).__name__)
    return [BatchesPart(source)], BatchesPart.name
