"""What a stream is made of: files, pieces of other libraries' datasets, or batches from Python; each gives tables."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from focalcal.core.ranking import Array
from focalcal.errors import InputError
from focalcal.files.arrow_ipc import ipc_tables
from focalcal.files.arrow_rows import ArrowRows, ColumnsToRead, metadata_of, pyarrow, sliced, tables_of, told_as_damage
from focalcal.files.column_names import find_group, find_part, find_score_columns, find_score_key
from focalcal.files.csv import read_text
from focalcal.files.discovery import Shard
from focalcal.files.named_arrays import array_tables
from focalcal.files.parquet import parquet_tables
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.reading import open_arrays

# The label of what does not count, in token-level data.
IGNORED = -100
# Rows that a library is asked for at a time.
_ROWS = 1 << 13


class StreamPart(ABC):
    """Rows that are read by one reader, one after the other. Parts with one `name` stand or fall together."""

    name: str

    @abstractmethod
    def tables(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        """The rows in tables of bounded size, unchecked; with the column `by` as their groups."""

    def first(self, columns: Columns) -> PredictionTable | None:
        """A table with rows, if there is one."""
        return next((table for table in self.tables(columns, None) if table.num_rows), None)


@dataclass(frozen=True)
class FilePart(StreamPart):
    """A file of one of the known formats. Text is read a file at a time; everything else by rows."""

    shard: Shard

    @property
    def name(self) -> str:  # type: ignore[override]
        """The path of the file."""
        return self.shard.name

    def tables(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        """The rows of the file."""
        shard = self.shard
        if shard.format == "parquet":
            return parquet_tables(shard.source, columns, by=by, constants=shard.constants)
        if shard.format in ("arrow", "feather"):
            return ipc_tables(shard.source, columns, by=by, constants=shard.constants)
        if shard.format in ("csv", "tsv"):
            return iter([read_text(shard.source, columns, by)])
        return self._arrays(columns, by)

    def _arrays(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        with open_arrays(self.shard, columns) as (file, names):
            yield from array_tables(file, names, by)


@dataclass(frozen=True)
class RecordPart(StreamPart):
    """Rows that another library gives as Arrow's: a piece of a Hugging Face, pyarrow or Ray dataset.

    `open` gives record batches or tables of Arrow.
    """

    name: str
    open: Callable[[], Iterable[Any]]
    constants: Mapping[str, str]

    def tables(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        """The rows of the piece."""
        for batch in _record_batches(self.name, self.open):
            schema = batch.schema
            rows = ArrowRows(self.name, find_score_columns(self.name, schema.names, columns))
            wanted = ColumnsToRead.of(self.name, schema.names, columns, by, self.constants)
            yield from tables_of(rows, sliced(rows, iter([batch])), wanted, metadata_of(schema))


def _record_batches(name: str, open_it: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    pa = pyarrow()
    with told_as_damage(name, "dataset"):
        for piece in open_it():
            if isinstance(piece, pa.Table):
                yield from piece.combine_chunks().to_batches()
            else:
                yield piece


def dataset_parts(source: Any) -> list[StreamPart] | None:
    """The parts of another library's dataset; None if it is none that is known."""
    home = type(source).__module__.split(".")[0]
    if home == "pyarrow" and hasattr(source, "get_fragments"):
        return _of_pyarrow(source)
    if home == "datasets" and hasattr(source, "with_format"):
        return _of_hugging_face(source)
    if home == "ray":
        from focalcal.files.ray import ray_parts

        return ray_parts(source)
    return None


def _of_pyarrow(dataset: Any) -> list[StreamPart]:
    from pyarrow.dataset import get_partition_keys

    parts: list[StreamPart] = []
    for place, fragment in enumerate(dataset.get_fragments()):
        constants = {key: str(value) for key, value in get_partition_keys(fragment.partition_expression).items()}
        name = getattr(fragment, "path", None) or f"fragment {place}"
        parts.append(RecordPart(name, _Fragment(fragment), constants))
    return parts


@dataclass(frozen=True)
class _Fragment:
    fragment: Any

    def __call__(self) -> Iterable[Any]:
        return self.fragment.to_batches(batch_size=_ROWS, use_threads=False)  # type: ignore[no-any-return]


def _of_hugging_face(dataset: Any) -> list[StreamPart]:
    name = str(getattr(dataset, "split", None) or "dataset")
    if not hasattr(dataset, "num_rows"):  # it is streamed, and only its library knows how long it is
        return [RecordPart(name, _HuggingFace(dataset), {})]
    pieces = max(1, dataset.num_rows // (64 * _ROWS))
    shards = (dataset.shard(pieces, place, contiguous=True) for place in range(pieces))
    names = (name if pieces == 1 else f"{name}, piece {place + 1} of {pieces}" for place in range(pieces))
    return [RecordPart(each, _HuggingFace(shard), {}) for each, shard in zip(names, shards, strict=True)]


@dataclass(frozen=True)
class _HuggingFace:
    dataset: Any

    def __call__(self) -> Iterable[Any]:
        return self.dataset.with_format("arrow").iter(batch_size=_ROWS)  # type: ignore[no-any-return]


class BatchesPart(StreamPart):
    """Batches from Python: tuples (scores, labels) or (scores, labels, weights), or mappings with named columns.

    Scores of tokens (batch, time, classes) with labels (batch, time) become rows; where a `mask` is 0 or the label is
    -100 there is none.
    """

    name = "batches"

    def __init__(self, batches: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self._batches, self._used = batches, False
        self._seen: list[Any] = []  # what was taken from an iterator to see what it has

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
        return (_table_of(self.name, batch, columns, by) for batch in itertools.chain(self._seen, opened))

    def first(self, columns: Columns) -> PredictionTable | None:
        """A table with rows, if there is one; an iterator loses nothing by it."""
        for batch in self._open():
            if isinstance(self._batches, Iterator):
                self._seen.append(batch)
            table = _table_of(self.name, batch, columns, None)
            if table.num_rows:
                return table
        return None

    def _open(self) -> Iterable[Any]:
        opened = self._batches() if callable(self._batches) else self._batches
        if not isinstance(opened, Iterable):
            raise InputError(f"{self.name}: must be an iterable of batches; got {type(opened).__name__}.")
        return opened


def _table_of(name: str, batch: Any, columns: Columns, by: str | None) -> PredictionTable:
    if isinstance(batch, PredictionTable):
        return batch
    if isinstance(batch, Sequence) and not isinstance(batch, str) and len(batch) in (2, 3):
        named = dict(zip((columns.kind or "logits", "labels", "weights"), batch, strict=False))
        named = {key: value for key, value in named.items() if value is not None}
        return _of_mapping(name, named, Columns(kind=columns.kind), by)
    if isinstance(batch, Mapping):
        return _of_mapping(name, batch, columns, by)
    raise InputError(
        f"{name}: each must be a tuple (logits, labels) or (logits, labels, weights), or a mapping with such names; "
        f"got {type(batch).__name__}."
    )


def _of_mapping(name: str, batch: Mapping[str, Any], columns: Columns, by: str | None) -> PredictionTable:
    there = list(batch)
    key, kind = find_score_key(name, there, columns)
    scores, shape = _array(batch[key]), np.shape(_array(batch[key]))
    keys = {part: find_part(name, part, there, getattr(columns, part)) for part in ("labels", "weights", "split")}
    keys["groups"] = find_group(name, there, by)
    parts = {part: _array(batch[found]) for part, found in keys.items() if found is not None}
    if scores.ndim > 2:
        scores, parts = _tokens(name, scores, parts, _array(batch["mask"]) if "mask" in batch else None)
    elif "mask" in batch:
        raise InputError(f"{name}: a mask belongs to scores (batch, time, classes); got shape {shape}.")
    for part in ("split", "groups"):
        if part in parts:
            parts[part] = parts[part].astype(str)
    return PredictionTable(name, scores, kind, **parts)  # type: ignore[arg-type]


def _tokens(name: str, scores: Array, parts: dict[str, Array], mask: Array | None) -> tuple[Array, dict[str, Array]]:
    """The tokens that count, one a row; what is said of a sequence holds for its tokens."""
    place = scores.shape[:-1]
    labels = parts.get("labels")
    if labels is None or labels.shape != place:
        raise InputError(
            f"{name}: labels of scores {scores.shape}, whose last dimension are the classes, must have shape {place}; "
            f"got {None if labels is None else labels.shape}."
        )
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


def _array(values: Any) -> Array:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype.itemsize < 4 and values.is_floating_point() else values).numpy()
    return np.asarray(values)
