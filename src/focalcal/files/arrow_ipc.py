"""Arrow's own files (.arrow, .feather): record batches as they are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from focalcal.errors import InputError
from focalcal.files.arrow_rows import ArrowRows, ColumnsToRead, metadata_of, pyarrow, sliced, tables_of, told_as_damage
from focalcal.files.column_names import find_score_columns, require_once
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.source_file import SourceFile

_MAGIC = b"ARROW1"


def ipc_tables(
    source: SourceFile, columns: Columns, *, by: str | None = None, constants: Mapping[str, str] | None = None
) -> Iterator[PredictionTable]:
    """The rows of an Arrow file in tables of bounded size, unchecked but for nulls and types."""
    with _opened(source) as (schema, batches):
        require_once(source.name, schema.names)
        rows = ArrowRows(source.name, find_score_columns(source.name, schema.names, columns))
        wanted = ColumnsToRead.of(source.name, schema.names, columns, by, constants or {})
        yield from tables_of(rows, sliced(rows, batches), wanted, metadata_of(schema))


@contextmanager
def _opened(source: SourceFile) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema of a file, in either of Arrow's two layouts, and its batches."""
    pa = pyarrow()
    with source.open() as stream:
        random_access = stream.read(len(_MAGIC)) == _MAGIC
    with source.open() as stream, told_as_damage(source.name, "Arrow"):
        reader = pa.ipc.open_file(stream) if random_access else pa.ipc.open_stream(stream)
        yield reader.schema, _batches(source.name, reader, random_access)


def _batches(name: str, reader: Any, random_access: bool) -> Iterator[Any]:
    rows = 0
    with told_as_damage(name, "Arrow"):
        places = range(reader.num_record_batches) if random_access else ()
        for batch in map(reader.get_batch, places) if random_access else reader:
            batch.validate(full=True)  # pyarrow believes lengths and offsets: those that lie would crash the process
            rows += batch.num_rows
            yield batch
    if not rows:
        raise InputError(f"{name}: has no rows. Give a file that has some.")
