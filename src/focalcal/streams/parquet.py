"""The Parquet format, by pyarrow: scores as one column of lists, or as one column per class."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from focalcal.core.predictions import Kind
from focalcal.core.ranking import Array
from focalcal.errors import FileFormatError, InputError, MissingExtraError
from focalcal.streams.arrays import history_of, strings_of
from focalcal.streams.check import look_up
from focalcal.streams.limits import BATCH_VALUES, require_memory, rows_per_batch
from focalcal.streams.names import HISTORY, ScoreColumns, find_part, find_score_columns, listed
from focalcal.streams.source import Source
from focalcal.streams.table import Columns, Table

_BUFFER = 1 << 20
# Scores in a row group that is written, 64 MB of float32 at most; smaller groups of the file stay as they are.
_GROUP_VALUES = 16 * BATCH_VALUES


def pyarrow() -> Any:
    """pyarrow with its Parquet part, or the extra that brings it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Parquet files need pyarrow: pip install 'focalcal[files]'.") from error
    return pyarrow


@dataclass(frozen=True)
class ParquetFile:
    """An open Parquet file and which of its columns are scores."""

    name: str
    file: Any
    scores: ScoreColumns

    @property
    def schema(self) -> Any:
        """The Arrow schema."""
        return self.file.schema_arrow

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return int(self.file.metadata.num_rows)

    @property
    def metadata(self) -> dict[str, str]:
        """The strings beside the schema."""
        pairs = (self.schema.metadata or {}).items()
        return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in pairs}

    def batches(self, rows: int, *, row_group: int | None = None, columns: list[str] | None = None) -> Iterator[Any]:
        """The rows, so many at a time at most."""
        groups = None if row_group is None else [row_group]
        with told_as_damage(self.name):
            for batch in self.file.iter_batches(rows, row_groups=groups, columns=columns, use_threads=False):
                if batch.num_rows:
                    yield batch

    def first_row(self) -> Array:
        """The scores of the first row."""
        batch = next(self.batches(1, columns=list(self.scores.names)), None)
        if batch is None:
            raise InputError(f"{self.name}: has no rows. Give a file that has some.")
        return self.read_scores(batch)

    def read_scores(self, batch: Any) -> Array:
        """The scores of a batch: (n, K), or (n,) if a column holds one number per row."""
        columns = [self.column(batch, name) for name in self.scores.names]
        if self.scores.single:
            return self._lists(columns[0], self.scores.names[0])
        return np.stack([self._floats(each, name) for each, name in zip(columns, self.scores.names, strict=True)], 1)

    def column(self, batch: Any, name: str) -> Any:
        """A column of a batch without nulls; a dictionary or an extension type is taken off."""
        pa = pyarrow()
        values = batch.column(batch.schema.get_field_index(name))
        if isinstance(values.type, pa.BaseExtensionType):
            values = values.storage
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if values.null_count:
            raise InputError(f"{self.name}: column {name} has nulls. Drop those rows, or fill them before saving.")
        return values

    def _lists(self, values: Any, name: str) -> Array:
        types = pyarrow().types
        if not (
            types.is_list(values.type) or types.is_large_list(values.type) or types.is_fixed_size_list(values.type)
        ):
            return self._floats(values, name)
        flat = values.flatten()
        if flat.null_count:
            raise InputError(f"{self.name}: column {name} has nulls in its lists. Drop those rows before saving.")
        numbers = self._floats(flat, name)
        if len(values) == 0 or len(numbers) % len(values) or not self._same_length(values):
            raise InputError(
                f"{self.name}: the lists of column {name} differ in length. Give every row one score for each class."
            )
        return numbers.reshape(len(values), -1)

    def _same_length(self, values: Any) -> bool:
        if pyarrow().types.is_fixed_size_list(values.type):
            return True
        lengths = np.diff(values.offsets.to_numpy())
        return bool((lengths == lengths[0]).all())

    def _floats(self, values: Any, name: str) -> Array:
        if not pyarrow().types.is_floating(values.type):
            raise InputError(
                f"{self.name}: column {name} must hold floating point numbers; got {values.type}. "
                "Cast it to float32 before saving."
            )
        array: Array = values.to_numpy(zero_copy_only=False)
        return array


@contextmanager
def open_parquet(source: Source, columns: Columns) -> Iterator[ParquetFile]:
    """A Parquet file whose columns of scores have been found."""
    pa = pyarrow()
    with source.open() as stream:
        if stream.read(4) != b"PAR1":
            raise FileFormatError(f"{source.name}: is not a Parquet file. {source.hint()}Write it again as Parquet.")
    with told_as_damage(source.name):
        file = pa.parquet.ParquetFile(source.path, buffer_size=_BUFFER, pre_buffer=False)
    with file:
        with told_as_damage(source.name):
            names = file.schema_arrow.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FileFormatError(f"{source.name}: has two columns named {listed(twice)}. Give each its own name.")
        yield ParquetFile(source.name, file, find_score_columns(source.name, names, columns))


@contextmanager
def told_as_damage(name: str) -> Iterator[None]:
    """What pyarrow stumbles over becomes an error about this file."""
    pa = pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        said = str(error).split("\n")[0][:200].rstrip(".")
        raise FileFormatError(f"{name}: is a damaged Parquet file ({said}). Write or copy it again.") from error


def read_parquet(source: Source, columns: Columns) -> Table:
    """Everything that a Parquet file says, unchecked but for nulls and types."""
    with open_parquet(source, columns) as file:
        keys = {part: find_part(source.name, part, file.schema.names, getattr(columns, part)) for part in _PARTS}
        wanted = [*file.scores.names, *(key for key in keys.values() if key is not None)]
        blocks: dict[str, list[Array]] = {part: [] for part in ("scores", *_PARTS)}
        first = file.first_row()
        require_memory(f"{source.name}:", file.num_rows * first.nbytes)
        for batch in file.batches(rows_per_batch(first.size), columns=wanted):
            blocks["scores"].append(file.read_scores(batch))
            for part, key in keys.items():
                if key is not None:
                    blocks[part].append(_plain(file, batch, key))
    _require_one_length(source.name, blocks["scores"])
    parts = {part: np.concatenate(some) if some else None for part, some in blocks.items()}
    scores, labels, split = parts["scores"], parts["labels"], parts["split"]
    assert scores is not None
    if labels is not None and labels.dtype.kind in "iu" and _are_numbers(file.scores.class_names):
        labels = look_up(source.name, labels, file.scores.class_names or ())
    return Table(
        name=source.name,
        scores=scores,
        kind=file.scores.kind,
        labels=labels,
        weights=parts["weights"],
        split=None if split is None else split.astype(str),
        class_names=strings_of(source.name, "class_names", file.metadata) or file.scores.class_names,
        history=history_of(source.name, file.metadata),
    )


_PARTS = ("labels", "weights", "split")


def _are_numbers(names: tuple[str, ...] | None) -> bool:
    """Whether columns are numbered, though not from 0: then labels are those numbers and not places."""
    return names is not None and all(each.isdecimal() for each in names)


def _plain(file: ParquetFile, batch: Any, key: str) -> Array:
    """A column of numbers or strings as an array."""
    types = pyarrow().types
    values = file.column(batch, key)
    if types.is_string(values.type) or types.is_large_string(values.type):
        coded = values.dictionary_encode()  # as many Python strings as there are different ones
        with told_as_damage(file.name):
            names = np.array(coded.dictionary.to_pylist(), dtype=str)
        return np.asarray(names[coded.indices.to_numpy()])
    if types.is_integer(values.type) or types.is_floating(values.type):
        array: Array = values.to_numpy(zero_copy_only=False)
        return array
    raise InputError(
        f"{file.name}: column {key} must hold numbers or strings; got {values.type}. Cast it before saving."
    )


def _require_one_length(name: str, blocks: list[Array]) -> None:
    if len({each.shape[1:] for each in blocks}) > 1:
        raise InputError(f"{name}: the lists of scores differ in length. Give every row one score for each class.")


def write_parquet(table: Table, out: IO[bytes]) -> None:
    """Scores as a column of lists, class names and the record of an AdaFocal run among the metadata."""
    pa = pyarrow()
    columns = {table.kind: _listed(table.scores), "labels": table.labels, "weights": table.weights}
    there = {key: pa.array(values) for key, values in columns.items() if values is not None}
    if table.split is not None:
        there["split"] = pa.array(table.split.tolist(), pa.string()).dictionary_encode()
    metadata = {HISTORY + key: json.dumps(np.asarray(values).tolist()) for key, values in table.history.items()}
    if table.class_names is not None:
        metadata["class_names"] = json.dumps(table.class_names)
    pa.parquet.write_table(pa.table(there).replace_schema_metadata(metadata), out)


def _listed(values: Array, like: Any = None) -> Any:
    """Scores (n, K) as an Arrow array of lists, those (n,) as one of numbers; of the type `like`, if given."""
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
class Rewriting:
    """A Parquet file as it will be: the same schema but for the columns of scores, the same compression."""

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
        """How the columns are packed, as in the first row group."""
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
        """A batch with other scores, as a table."""
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
    number = kind.value_type if values.ndim == 2 else kind
    return _listed(values.astype(number.to_pandas_dtype()), kind)


def rewrite_parquet(file: ParquetFile, out: IO[bytes], to: Kind, calibrated: Callable[[Array], Array]) -> None:
    """The file with its scores run through `calibrated`, row group by row group; very large groups are divided."""
    pa = pyarrow()
    new = Rewriting(file, to)
    schema = new.schema()
    width = file.first_row().size
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
    """The rows of the equal parts into which a row group is divided; one part if it is not too large.

    >>> _rows_of_a_part(65_536, 100), _rows_of_a_part(1_000_000, 100)
    (65536, 166667)
    """
    parts = max(1, -(-rows * width // _GROUP_VALUES))
    return max(1, -(-rows // parts))
