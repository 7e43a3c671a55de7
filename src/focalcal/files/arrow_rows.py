"""Tables from Arrow record batches, as Parquet files, Arrow files and datasets of other libraries provide them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from focalcal.core.checks import Array
from focalcal.errors import FileFormatError, InputError, MissingExtraError
from focalcal.files.checks import look_up
from focalcal.files.column_names import ScoreColumns, find_parts
from focalcal.files.memory_limits import require_memory, require_short, rows_per_batch
from focalcal.files.named_arrays import strings_of
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.printable import shown

# The fields of a vector of Spark ML.
_VECTOR = ("type", "size", "indices", "values")


def pyarrow() -> Any:
    """Import pyarrow with its Parquet module; raises an error that names the extra if it is missing."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Parquet files need pyarrow: pip install 'focalcal[files]'.") from error
    return pyarrow


@dataclass(frozen=True)
class ArrowRows:
    """Rows of one source: its name for messages, and which columns hold the scores."""

    name: str
    scores: ScoreColumns

    def read_scores(self, batch: Any) -> Array:
        """The scores of a batch: (n, K), or (n,) if a column holds one number per row."""
        columns = [self.column(batch, name) for name in self.scores.names]
        if self.scores.single:
            return self._lists(columns[0], self.scores.names[0])
        numbers = [self._floats(each, name) for each, name in zip(columns, self.scores.names, strict=True)]
        with np.errstate(invalid="ignore"):  # NaNs are refused later
            return np.stack(numbers, 1)

    def column(self, batch: Any, name: str) -> Any:
        """A column of a batch without nulls, decoded if it is a dictionary or an extension type."""
        pa = pyarrow()
        values = batch.column(batch.schema.get_field_index(name))
        if isinstance(values.type, pa.BaseExtensionType):
            values = values.storage
        if pa.types.is_dictionary(values.type):
            with told_as_damage(self.name):  # an index may point past the dictionary
                values = values.dictionary_decode()
        if values.null_count:
            raise InputError(
                f"{self.name}: column {shown(name)} has nulls. Drop those rows, or fill them before saving."
            )
        return values

    def _lists(self, values: Any, name: str) -> Array:
        types = pyarrow().types
        if is_vector(values.type):
            return self._vectors(values, name)
        if not (
            types.is_list(values.type) or types.is_large_list(values.type) or types.is_fixed_size_list(values.type)
        ):
            return self._floats(values, name)
        flat = values.flatten()
        if flat.null_count:
            raise InputError(
                f"{self.name}: column {shown(name)} has nulls in its lists. Drop those rows before saving."
            )
        numbers = self._floats(flat, name)
        if len(values) == 0 or len(numbers) % len(values) or not self._same_length(values):
            raise InputError(
                f"{self.name}: the lists of column {shown(name)} differ in length. "
                "Give every row one score for each class."
            )
        return numbers.reshape(len(values), -1)

    def _vectors(self, values: Any, name: str) -> Array:
        """Vectors of Spark ML: dense ones have all values, sparse ones a size and the values that are not 0."""
        pc = pyarrow().compute
        part = dict(zip(_VECTOR, (values.field(each) for each in _VECTOR), strict=True))
        numbers = self._floats(part["values"].flatten(), name)
        lengths = pc.list_value_length(part["values"]).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        dense = part["type"].to_numpy(zero_copy_only=False) == 1
        sizes = np.where(dense, lengths, part["size"].fill_null(0).to_numpy(zero_copy_only=False))
        if not len(sizes) or sizes.min() != sizes.max() or sizes[0] < 0:
            raise InputError(
                f"{self.name}: the vectors of column {shown(name)} differ in length. "
                "Give every row one score for each class."
            )
        require_memory(f"{self.name}: column {shown(name)}", len(sizes) * int(sizes[0]) * 8)
        row = np.repeat(np.arange(len(sizes)), lengths)
        column = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        sparse = ~dense[row]
        places = part["indices"].filter(pyarrow().array(~dense)).flatten().to_numpy(zero_copy_only=False)
        fits = len(places) == sparse.sum() and len(row) == len(numbers)
        if not fits or (len(places) and not (places.min() >= 0 and places.max() < sizes[0])):
            raise FileFormatError(
                f"{self.name}: a sparse vector of column {shown(name)} has indices that do not belong to its values. "
                "Write it again."
            )
        column[sparse] = places
        scores = np.zeros((len(sizes), int(sizes[0])))
        scores[row, column] = numbers
        return scores

    def _same_length(self, values: Any) -> bool:
        if pyarrow().types.is_fixed_size_list(values.type):
            return True
        lengths = np.diff(values.offsets.to_numpy())
        return bool((lengths == lengths[0]).all())

    def _floats(self, values: Any, name: str) -> Array:
        if not pyarrow().types.is_floating(values.type):
            raise InputError(
                f"{self.name}: column {shown(name)} must hold floating point numbers; got {shown(values.type)}. "
                "Cast it to float32 before saving."
            )
        array: Array = values.to_numpy(zero_copy_only=False)
        return array

    def plain(self, batch: Any, key: str) -> Array:
        """A column of numbers or strings as an array."""
        types = pyarrow().types
        values = self.column(batch, key)
        if types.is_string(values.type) or types.is_large_string(values.type):
            coded = values.dictionary_encode()  # makes one Python string per distinct value
            with told_as_damage(self.name):
                names = coded.dictionary.to_pylist()
            require_short(f"{self.name}: {key}", names)
            return np.asarray(np.array(names, dtype=str)[coded.indices.to_numpy()])
        if types.is_integer(values.type) or types.is_floating(values.type):
            array: Array = values.to_numpy(zero_copy_only=False)
            return array
        raise InputError(
            f"{self.name}: column {shown(key)} must hold numbers or strings; got {shown(values.type)}. "
            "Cast it before saving."
        )


def is_vector(kind: Any) -> bool:
    """Whether a type of Arrow is that of Spark ML's vectors: a struct of type, size, indices and values."""
    return bool(pyarrow().types.is_struct(kind)) and {field.name for field in kind} == set(_VECTOR)


@contextmanager
def told_as_damage(name: str, kind: str = "Parquet") -> Iterator[None]:
    """Turn errors of pyarrow into a FileFormatError that names this file."""
    pa = pyarrow()
    try:
        yield
    except (InputError, FileFormatError):  # it names the file already
        raise
    except (pa.ArrowException, MemoryError, OSError, ValueError, IndexError) as error:
        said = shown(str(error).split("\n")[0], longest=200).rstrip(".") or "it asks for more memory than there is"
        raise FileFormatError(f"{name}: is a damaged {kind} file ({said}). Write or copy it again.") from error


def metadata_of(schema: Any) -> dict[str, str]:
    """The metadata of a schema as strings."""
    pairs = (schema.metadata or {}).items()
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in pairs}


def sliced(rows: ArrowRows, batches: Iterator[Any]) -> Iterator[Any]:
    """Record batches of any size in slices of bounded size; empty ones are left out."""
    for batch in batches:
        if batch.num_rows:
            width = rows.read_scores(batch.slice(0, 1)).size
            most = rows_per_batch(width)
            yield from (batch.slice(start, most) for start in range(0, batch.num_rows, most))


@dataclass(frozen=True)
class ColumnsToRead:
    """The columns to read besides the scores, by the part they hold; `constants` are columns with a single value."""

    keys: Mapping[str, str]
    constants: Mapping[str, str]

    @staticmethod
    def of(
        name: str, there: list[str], columns: Columns, by: str | None, constants: Mapping[str, str]
    ) -> ColumnsToRead:
        """Find the parts that are asked for in a schema with the column names `there`."""
        twice = next((each for each in constants if each in there), None)
        if twice is not None:
            folder = f"{shown(twice)}={shown(constants[twice])}"
            raise InputError(
                f"{name}: has a column {shown(twice)} and lies in a folder {folder}, so it is unclear which counts. "
                "Drop the column, rename the folder, or name the folder itself: only folders below it are columns."
            )
        return ColumnsToRead(find_parts(name, [*there, *constants], columns, by), constants)

    def stored(self) -> list[str]:
        """The columns that are stored in the file."""
        return sorted({key for key in self.keys.values() if key not in self.constants})


def tables_of(
    rows: ArrowRows, batches: Iterator[Any], wanted: ColumnsToRead, metadata: Mapping[str, str]
) -> Iterator[PredictionTable]:
    """A table for each record batch; only nulls and types are checked."""
    names = strings_of(rows.name, "class_names", metadata) or rows.scores.class_names
    for batch in batches:
        scores = rows.read_scores(batch)
        parts: dict[str, Array] = {}
        for part, key in wanted.keys.items():
            constant = wanted.constants.get(key)
            parts[part] = rows.plain(batch, key) if constant is None else np.full(len(scores), constant)
        labels = parts.get("labels")
        if labels is not None and labels.dtype.kind in "iu" and are_numbers(rows.scores.class_names):
            parts["labels"] = look_up(rows.name, labels, rows.scores.class_names or ())
        for part in parts.keys() & {"split", "groups"}:
            parts[part] = parts[part].astype(str)
        yield PredictionTable(rows.name, scores, rows.scores.kind, class_names=names, **parts)  # type: ignore[arg-type]


def are_numbers(names: tuple[str, ...] | None) -> bool:
    """Whether all class names are numbers; labels then refer to these numbers and not to positions.

    >>> are_numbers(("1", "2")), are_numbers(("cat", "dog"))
    (True, False)
    """
    return names is not None and all(each.isdecimal() for each in names)
