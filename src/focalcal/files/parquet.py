"""The Parquet format, through pyarrow: scores are one column of lists, or one column per class."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from focalcal.core.checks import Array
from focalcal.core.score_kinds import Kind
from focalcal.errors import FileFormatError
from focalcal.files.arrow_rows import (
    ArrowRows,
    ColumnsToRead,
    is_vector,
    metadata_of,
    pyarrow,
    tables_of,
    told_as_damage,
)
from focalcal.files.checks import no_rows
from focalcal.files.column_names import HISTORY, find_score_columns, require_free, require_once
from focalcal.files.joining import joined
from focalcal.files.memory_limits import BATCH_VALUES, require_memory, require_no_bomb, rows_per_batch
from focalcal.files.named_arrays import history_of
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.source_file import SourceFile
from focalcal.files.table import PARQUET, SNIFFED

if TYPE_CHECKING:
    from focalcal.files.rewriting import RewriteJob
    from focalcal.files.shard import Shard

_BUFFER = 1 << 20
# Files up to this size are read without a buffer.
_SMALL = 64 << 20
# What pyarrow itself allows in the metadata.
_LONGEST_STRING, _LONGEST_LIST = 100_000_000, 1_000_000
# The most scores in a row group that is written: 64 MB of float32. Smaller groups are kept as they are.
_GROUP_VALUES = 16 * BATCH_VALUES


@dataclass(frozen=True)
class ParquetFile(ArrowRows):
    """An open Parquet file and which of its columns are scores."""

    file: Any

    @property
    def schema(self) -> Any:
        """The Arrow schema."""
        return self.file.schema_arrow

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.file.metadata.num_rows)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the schema as strings."""
        return metadata_of(self.schema)

    def batches(self, rows: int, *, row_group: int | None = None, columns: list[str] | None = None) -> Iterator[Any]:
        """The rows, at most so many at a time; each row group must have as many as the metadata declare."""
        groups = range(self.file.num_row_groups) if row_group is None else [row_group]
        with told_as_damage(self.name):
            for group in groups:
                left = self.file.metadata.row_group(group).num_rows
                for batch in self.file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                    left -= batch.num_rows
                    if batch.num_rows:
                        yield batch
                if left:
                    raise ValueError(f"row group {group} has not as many rows as it says")

    def width(self) -> int:
        """The number of scores per row."""
        kind = self.schema.field(self.scores.names[0]).type
        if self.scores.single and not pyarrow().types.is_fixed_size_list(kind):
            return self.first_row().size
        return int(kind.list_size) if self.scores.single else len(self.scores.names)

    def first_row(self) -> Array:
        """The scores of the first row."""
        batch = next(self.batches(1, columns=list(self.scores.names)), None)
        if batch is None:
            raise no_rows(self.name)
        return self.read_scores(batch)


@contextmanager
def open_parquet(source: SourceFile, columns: Columns) -> Iterator[ParquetFile]:
    """Open a Parquet file and find its columns of scores."""
    pa = pyarrow()
    with source.open() as stream:
        if not PARQUET.sniff(stream.read(SNIFFED)):
            raise FileFormatError(f"{source.name}: is not a Parquet file. Write it again as Parquet.")
    with told_as_damage(source.name):
        file = pa.parquet.ParquetFile(source.for_arrow(), pre_buffer=False, **_limits(source.size))
    with file:
        with told_as_damage(source.name):
            names = file.schema_arrow.names
            _require_counts(file.metadata)
        require_once(source.name, names)
        yield ParquetFile(source.name, find_score_columns(source.name, names, columns), file)


def _limits(size: int) -> dict[str, int]:
    """Limits for pyarrow: no list or string in the metadata can have more entries than the file has bytes.

    A buffer bounds the memory that large files take. But with one, pyarrow zeroes as many bytes as the header of a page
    declares, which may be 2 GiB even in a tiny file; so small files are read without one.
    """
    return {
        "buffer_size": _BUFFER if size > _SMALL else 0,
        "thrift_string_size_limit": min(size, _LONGEST_STRING),
        "thrift_container_size_limit": min(size, _LONGEST_LIST),
    }


def _require_counts(metadata: Any) -> None:
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
        raise ValueError(f"{metadata.num_rows:,} rows, and {sum(counts):,} in its row groups")


def parquet_tables(shard: Shard, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
    """The rows of a Parquet file in tables of bounded size; only nulls and types are checked."""
    with open_parquet(shard.source, columns) as file:
        wanted = ColumnsToRead.of(file.name, file.schema.names, columns, by, shard.constants)
        rows = rows_per_batch(file.width())
        batches = file.batches(rows, columns=[*file.scores.names, *wanted.stored()])
        yield from tables_of(file, batches, wanted, file.metadata)


def read_parquet(shard: Shard, columns: Columns) -> PredictionTable:
    """Read a whole Parquet file; only nulls and types are checked."""
    with open_parquet(shard.source, columns) as file:
        unpacked = file.num_rows * file.first_row().nbytes
        require_no_bomb(f"{file.name}:", shard.source.size, unpacked)
        require_memory(f"{file.name}:", unpacked)
        history = history_of(file.name, file.metadata)
    return replace(joined(list(parquet_tables(shard, columns, None))), history=history)


def parquet_batches(shard: Shard, columns: list[str], num_rows: int) -> Iterator[Any]:
    """Some columns as record batches of at most `num_rows`; names that the file does not have are left out."""
    with told_as_damage(shard.name), pyarrow().parquet.ParquetFile(shard.source.for_arrow()) as file:
        there = [column for column in columns if column in file.schema_arrow.names]
        yield from file.iter_batches(num_rows, columns=there, use_threads=False)


def write_parquet(table: PredictionTable, file: IO[bytes]) -> None:
    """Write scores as a column of lists, class names and the record of an AdaFocal run as metadata."""
    pa = pyarrow()
    columns = {table.kind: _listed(table.scores), "labels": table.labels, "weights": table.weights}
    there = {key: pa.array(values) for key, values in columns.items() if values is not None}
    if table.split is not None:
        there["split"] = pa.array(table.split.tolist(), pa.string()).dictionary_encode()
    metadata = {HISTORY + key: json.dumps(np.asarray(values).tolist()) for key, values in table.history.items()}
    if table.class_names is not None:
        metadata["class_names"] = json.dumps(table.class_names)
    pa.parquet.write_table(pa.table(there).replace_schema_metadata(metadata), file)


def _listed(values: Array, like: Any = None) -> Any:
    """Convert scores (n, K) to an Arrow array of lists, and (n,) to one of numbers; of the type `like`, if given."""
    pa = pyarrow()
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    if values.ndim == 1:
        return flat
    width = values.shape[1]
    if like is None:
        return pa.FixedSizeListArray.from_arrays(flat, width)
    if pa.types.is_fixed_size_list(like):
        return pa.FixedSizeListArray.from_arrays(flat, type=like)
    lists = pa.LargeListArray if pa.types.is_large_list(like) else pa.ListArray
    return lists.from_arrays(np.arange(len(values) + 1) * width, flat, type=like)


@dataclass(frozen=True)
class ParquetRewriter:
    """The schema, compression and batches of a rewritten file: those of the old one, with new score columns."""

    file: ParquetFile
    to: Kind

    @property
    def names(self) -> dict[str, str]:
        """The new names of the score columns by the old ones."""
        return dict(zip(self.file.scores.names, self.file.scores.renamed(self.to), strict=True))

    def schema(self) -> Any:
        """The new schema."""
        schema = self.file.schema
        for old, new in self.names.items():
            place = schema.get_field_index(old)
            field = schema.field(place).with_name(new)
            if pyarrow().types.is_dictionary(field.type):
                field = field.with_type(field.type.value_type)
            schema = schema.set(place, field)
        return schema

    def options(self) -> dict[str, Any]:
        """Compression and encoding of the columns, as in the first row group, if there is one."""
        if not self.file.file.num_row_groups:
            return {}
        group = self.file.file.metadata.row_group(0)
        columns = [group.column(place) for place in range(group.num_columns)]
        codecs = {self._renamed(each.path_in_schema): _codec(each.compression) for each in columns}
        others = [each for each in columns if each.path_in_schema.split(".")[0] not in self.names]
        coded = [each.path_in_schema for each in others if any("DICTIONARY" in said for said in each.encodings)]
        same = set(codecs.values())
        return {"compression": same.pop() if len(same) == 1 else codecs, "use_dictionary": coded or False}

    def _renamed(self, path: str) -> str:
        root, *rest = path.split(".")
        return ".".join([self.names.get(root, root), *rest])

    def batch(self, batch: Any, scores: Array, schema: Any) -> Any:
        """A batch with new scores, as an Arrow table."""
        columns = list(batch.columns)
        for k, new in enumerate(self.names.values()):
            place = schema.get_field_index(new)
            kind = schema.field(place).type
            values = scores if self.file.scores.single else scores[:, k]
            columns[place] = _of_type(values, kind)
        return pyarrow().Table.from_arrays(columns, schema=schema)


def _codec(name: str) -> str:
    return "NONE" if name == "UNCOMPRESSED" else name


def _of_type(values: Array, kind: Any) -> Any:
    pa = pyarrow()
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _of_type(values, kind.storage_type))
    if is_vector(kind):
        return _vectors(values, kind)
    number = kind.value_type if values.ndim == 2 else kind
    return _listed(values.astype(number.to_pandas_dtype()), kind)


def _vectors(values: Array, kind: Any) -> Any:
    """Scores (n, K) as dense vectors of Spark ML, of a struct type that has its four fields in any order."""
    pa, rows = pyarrow(), len(values)
    parts = {
        "type": lambda field: pa.array(np.ones(rows, np.int8)).cast(field.type),
        "size": lambda field: pa.nulls(rows, field.type),
        "indices": lambda field: pa.nulls(rows, field.type),
        "values": lambda field: _of_type(values, field.type),
    }
    return pa.StructArray.from_arrays([parts[field.name](field) for field in kind], fields=list(kind))


def rewrite_parquet(shard: Shard, job: RewriteJob, out: IO[bytes]) -> None:
    """Write a copy of a Parquet file with new scores; all other columns stay as they are."""
    with open_parquet(shard.source, job.columns) as file:
        others = [each for each in file.schema.names if each not in file.scores.names]
        require_free(file.name, file.scores.renamed(job.to), others)
        _rewrite(file, out, job.to, job.calibrated(file.name, file.scores.kind, file.num_rows))


def _rewrite(file: ParquetFile, out: IO[bytes], to: Kind, calibrated: Callable[[Array], Array]) -> None:
    """Write the file with its scores run through `calibrated`, by row groups; very large groups are divided."""
    pa = pyarrow()
    new = ParquetRewriter(file, to)
    schema = new.schema()
    width = file.first_row().size if file.num_rows else 1
    with told_as_damage(file.name):
        options = new.options()
    with pa.parquet.ParquetWriter(out, schema, **options) as writer:
        for group in range(file.file.num_row_groups):
            most = _rows_of_a_part(file.file.metadata.row_group(group).num_rows, width)
            held: list[Any] = []
            for batch in file.batches(min(most, rows_per_batch(width)), row_group=group):
                scores = calibrated(file.read_scores(batch))
                held.append(new.batch(batch, scores, schema))
                if sum(each.num_rows for each in held) >= most:
                    writer.write_table(pa.concat_tables(held))
                    held = []
            if held:
                writer.write_table(pa.concat_tables(held))


def _rows_of_a_part(rows: int, width: int) -> int:
    """The number of rows of the equal parts into which a row group is divided if it is too large.

    >>> _rows_of_a_part(65_536, 100), _rows_of_a_part(1_000_000, 100)
    (65536, 166667)
    """
    parts = max(1, -(-rows * width // _GROUP_VALUES))
    return max(1, -(-rows // parts))
