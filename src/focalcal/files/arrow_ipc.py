"""The Arrow IPC format (.arrow, .feather), in its file and its stream layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from focalcal.files.arrow_rows import ArrowRows, ColumnsToRead, metadata_of, pyarrow, sliced, tables_of, told_as_damage
from focalcal.files.checks import no_rows
from focalcal.files.column_names import find_score_columns, require_once
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.source_file import SourceFile
from focalcal.files.table import ARROW, SNIFFED

if TYPE_CHECKING:
    from focalcal.files.shard import Shard


def ipc_tables(shard: Shard, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
    """The rows of an Arrow file in tables of bounded size; only nulls and types are checked."""
    with _opened(shard.source) as (schema, batches):
        require_once(shard.name, schema.names)
        rows = ArrowRows(shard.name, find_score_columns(shard.name, schema.names, columns))
        wanted = ColumnsToRead.of(shard.name, schema.names, columns, by, shard.constants)
        num_rows = 0
        for table in tables_of(rows, sliced(rows, batches), wanted, metadata_of(schema)):
            num_rows += table.num_rows
            yield table
        if not num_rows:
            raise no_rows(shard.name)


def ipc_batches(shard: Shard, columns: list[str], num_rows: int) -> Iterator[Any]:
    """The rows as record batches of at most `num_rows`, with all columns."""
    with _opened(shard.source) as (_, batches):
        for batch in batches:
            yield from (batch.slice(start, num_rows) for start in range(0, batch.num_rows, num_rows))


@contextmanager
def _opened(source: SourceFile) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema of a file in either of the two layouts, and its batches."""
    pa = pyarrow()
    with source.open() as stream:
        random_access = ARROW.sniff(stream.read(SNIFFED))
    with source.open() as stream, told_as_damage(source.name, "Arrow"):
        reader = pa.ipc.open_file(stream) if random_access else pa.ipc.open_stream(stream)
        yield reader.schema, _batches(source.name, reader, random_access)


def _batches(name: str, reader: Any, random_access: bool) -> Iterator[Any]:
    with told_as_damage(name, "Arrow"):
        places = range(reader.num_record_batches) if random_access else ()
        for batch in map(reader.get_batch, places) if random_access else reader:
            batch.validate(full=True)  # pyarrow trusts lengths and offsets: wrong ones would crash the process
            yield batch
