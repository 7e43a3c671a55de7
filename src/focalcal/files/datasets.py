"""Datasets of other libraries (pyarrow, Hugging Face, Ray) as parts of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from focalcal.files.arrow_rows import (
    ArrowRows,
    ColumnsToRead,
    metadata_of,
    pyarrow,
    sliced,
    tables_of,
    told_as_damage,
)
from focalcal.files.column_names import find_score_columns
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.stream_parts import StreamPart

# Rows that are requested from a library at a time.
_ROWS = 1 << 13


@dataclass(frozen=True)
class RecordPart(StreamPart):
    """A piece of a Hugging Face, pyarrow or Ray dataset, read as Arrow record batches.

    `open` gives record batches or tables of Arrow.
    """

    own_memory = True  # Arrow's arrays are never written to

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
    """The parts of another library's dataset; None if the object is not a known kind of dataset."""
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
    if not hasattr(dataset, "num_rows"):  # a streamed dataset, whose length is unknown
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
