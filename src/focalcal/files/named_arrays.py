"""Named arrays in files, the common ground of the .npz, .npy and .safetensors formats."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from focalcal.core.checks import Array
from focalcal.core.score_kinds import Kind
from focalcal.errors import FileFormatError, InputError
from focalcal.files.checks import check_classes
from focalcal.files.column_names import HISTORY, find_part, find_parts, find_score_key, require_free
from focalcal.files.memory_limits import require_memory, require_short, rows_per_batch
from focalcal.files.messages import is_text
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.printable import shown

if TYPE_CHECKING:
    from focalcal.files.rewriting import RewriteJob

_CHUNK = 1 << 20
# The limit of numpy 1; that of numpy 2 is 64.
_MOST_DIMENSIONS = 32


@dataclass(frozen=True)
class StoredArray:
    """An array in a file: what its header declares, and how to open its bytes. `name` begins messages.

    bfloat16, which numpy lacks, is stored as the upper halves of float32 numbers.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    open: Callable[[], AbstractContextManager[BinaryIO]]
    fortran: bool = False
    bfloat16: bool = False

    @property
    def num_bytes(self) -> int:
        """The size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.shape[1:]

    @property
    def value_dtype(self) -> np.dtype:
        """The dtype of the values in memory."""
        if self.dtype.kind == "f" and self.dtype.itemsize > 8:
            return np.dtype(np.float64)
        return np.dtype(np.float32) if self.bfloat16 else self.dtype.newbyteorder("=")

    def read(self) -> Array:
        """Read the whole array."""
        require_memory(self.name, self.num_bytes)
        with self.open() as stream:
            values = self._take(stream, math.prod(self.shape))
        return np.ascontiguousarray(values.reshape(self.shape, order="F" if self.fortran else "C"))

    def batches(self, rows: int | None = None) -> Iterator[Array]:
        """Read the rows, a bounded number at a time; an array in Fortran order is read whole."""
        rows = rows or rows_per_batch(math.prod(self.row_shape))
        if self.fortran and len(self.shape) > 1:
            values = self.read()
            yield from (values[start : start + rows] for start in range(0, len(values), rows))
            return
        with self.open() as stream:
            for start in range(0, self.shape[0], rows):
                shape = (min(rows, self.shape[0] - start), *self.row_shape)
                yield self._take(stream, math.prod(shape)).reshape(shape)

    def chunks(self) -> Iterator[bytes]:
        """Read the raw bytes of the values in chunks."""
        left = self.num_bytes
        with self.open() as stream:
            while left and (chunk := stream.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk

    def _take(self, stream: BinaryIO, count: int) -> Array:
        values = np.empty(count, self.dtype)
        if values.nbytes:
            self._fill(values.view(np.uint8).data, stream)
        if self.bfloat16:
            return (values.astype(np.uint32) << 16).view(np.float32)
        values = values.astype(self.value_dtype, copy=False)
        if values.dtype.kind == "U":
            _require_text(self.name, values)
        return values

    def _fill(self, place: memoryview, stream: BinaryIO) -> None:
        done = 0
        while done < len(place):
            chunk = stream.read(min(_CHUNK, len(place) - done))
            if not chunk:
                raise FileFormatError(
                    f"{self.name} ends after {done:,} of {len(place):,} bytes, so the file was cut. Write it again."
                )
            place[done : done + len(chunk)] = chunk
            done += len(chunk)


def require_possible(what: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Raise an error if no array can have this shape, even if it has no values because one size is 0."""
    if len(shape) > _MOST_DIMENSIONS or math.prod(filter(None, shape)) * dtype.itemsize > sys.maxsize:
        raise FileFormatError(f"{what} declares shape {shown(shape)}, which no array has. Write it again.")


def _require_text(name: str, values: Array) -> None:
    """Raise an error if a string contains invalid code points, which numpy stores but Python cannot encode."""
    signs = values.view(np.uint32)
    if ((signs > sys.maxunicode) | ((signs >= 0xD800) & (signs <= 0xDFFF))).any():
        raise FileFormatError(f"{name} holds characters that do not exist. Write it again from str.")


@dataclass(frozen=True)
class ArrayFile:
    """The arrays of a file by key, and its metadata (only safetensors has some)."""

    name: str
    arrays: Mapping[str, StoredArray]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def scores(self, columns: Columns) -> tuple[str, StoredArray, Kind]:
        """The key of the scores, the scores, and their kind."""
        key, kind = find_score_key(self.name, list(self.arrays), columns)
        stored = self.arrays[key]
        if stored.value_dtype.kind != "f":
            raise InputError(
                f"{self.name}: {key} must be floating point; got {stored.dtype}. Save it with .astype(np.float32)."
            )
        if len(stored.shape) not in (1, 2):
            raise InputError(
                f"{self.name}: {key} must have shape (rows, classes), or (rows,) for a positive class; "
                f"got {stored.shape}. Bring it to that shape with .reshape."
            )
        return key, stored, kind


def read_arrays(file: ArrayFile, columns: Columns) -> PredictionTable:
    """Read a whole file of named arrays; only the dtype and shape of the scores are checked."""
    _, stored, kind = file.scores(columns)
    keys = {part: find_part(file.name, part, list(file.arrays), getattr(columns, part)) for part in _PARTS}
    wanted = [stored, *(file.arrays[key] for key in keys.values() if key is not None)]
    require_memory(f"{file.name}:", sum(each.num_bytes for each in wanted))
    del keys["class_names"]  # read by _class_names
    parts = {part: None if key is None else file.arrays[key].read() for part, key in keys.items()}
    history = {key.removeprefix(HISTORY): file.arrays[key].read() for key in file.arrays if key.startswith(HISTORY)}
    history = {**history_of(file.name, file.metadata), **history}
    return PredictionTable(
        name=file.name,
        scores=stored.read(),
        kind=kind,
        labels=parts["labels"],
        weights=parts["weights"],
        split=_named_strings(file, "split", parts["split"]),
        class_names=_class_names(file, columns),
        history=history,
    )


_PARTS = ("labels", "weights", "split", "class_names")


def array_tables(file: ArrayFile, columns: Columns, by: str | None = None) -> Iterator[PredictionTable]:
    """The rows of a file of named arrays in tables of bounded size; only dtypes and shapes are checked."""
    _, stored, kind = file.scores(columns)
    keys = find_parts(file.name, list(file.arrays), columns, by)
    read = {part: file.arrays[key] for part, key in keys.items()}
    for part, array in read.items():
        if array.shape != stored.shape[:1]:
            raise InputError(
                f"{file.name}: {part} must have one entry for each of the {stored.shape[0]:,} rows of scores; got "
                f"shape {array.shape}. Save both from the same rows."
            )
    names = _class_names(file, columns)
    rows = rows_per_batch(math.prod(stored.row_shape))
    for scores, *parts in zip(stored.batches(rows), *(each.batches(rows) for each in read.values()), strict=True):
        found: dict[str, Array | None] = dict(zip(read, parts, strict=True))
        for part in ("split", "groups"):
            found[part] = _named_strings(file, part, found.get(part))
        yield PredictionTable(file.name, scores, kind, class_names=names, **found)  # type: ignore[arg-type]


def arrays_of(table: PredictionTable) -> dict[str, Array]:
    """The arrays of a table under their usual names; class names are stored differently in each format."""
    parts = {table.kind: table.scores, "labels": table.labels, "weights": table.weights, "split": table.split}
    arrays = {key: values for key, values in parts.items() if values is not None}
    return {**arrays, **{HISTORY + key: np.asarray(values) for key, values in table.history.items()}}


def rewritten_scores(
    file: ArrayFile, columns: Columns, job: RewriteJob
) -> tuple[str, StoredArray, np.dtype, Iterator[Array]]:
    """The scores of a file of arrays, and the new ones, batch by batch, in the same precision."""
    key, stored, kind = file.scores(columns)
    check_classes(file.name, stored.shape)
    require_free(file.name, [job.to], [each for each in file.arrays if each != key])
    dtype = stored.value_dtype if stored.bfloat16 else stored.dtype
    calibrated = job.calibrated(file.name, kind, stored.shape[0])
    return key, stored, dtype, (calibrated(batch).astype(dtype) for batch in stored.batches())


def _class_names(file: ArrayFile, columns: Columns) -> tuple[str, ...] | None:
    key = find_part(file.name, "class_names", list(file.arrays), columns.class_names)
    names = _strings(file.name, "class_names", None if key is None else file.arrays[key].read())
    return strings_of(file.name, "class_names", file.metadata) if names is None else tuple(names.tolist())


def _named_strings(file: ArrayFile, part: str, values: Array | None) -> Array | None:
    """A column of strings; safetensors stores it as numbers, with `{part}_names` in the metadata."""
    if values is not None and values.ndim == 1 and f"{part}_names" in file.metadata:
        values = _named(file.name, values, strings_of(file.name, f"{part}_names", file.metadata) or ())
    return _strings(file.name, part, values)


def _strings(name: str, part: str, values: Array | None) -> Array | None:
    """Convert an array of strings, UTF-8 bytes or integers to strings."""
    if values is None:
        return None
    if values.ndim != 1 or values.dtype.kind not in "USiu":
        raise InputError(
            f"{name}: {part} must be a list of strings; got {values.dtype} of shape {values.shape}. "
            "Save it with np.array(list_of_strings)."
        )
    try:
        return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values.astype(str)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: {part} is not UTF-8 text ({error.reason}). Save it as str, not bytes.") from error


def _named(name: str, codes: Array, names: tuple[str, ...]) -> Array:
    are_whole = codes.dtype.kind in "iu"
    if not are_whole or (codes.size and not (codes.min() >= 0 and codes.max() < len(names))):
        came = f"{codes.min()} to {codes.max()}" if are_whole else codes.dtype
        raise InputError(
            f"{name}: split must hold numbers from 0 to {len(names) - 1}, one for each of split_names; "
            f"got {came}. Add the missing name to split_names."
        )
    require_short(f"{name}: split_names", names)
    return np.array(names, dtype=str)[codes]


def strings_of(name: str, key: str, metadata: Mapping[str, str]) -> tuple[str, ...] | None:
    """A list of strings in the metadata, stored as JSON.

    >>> strings_of("preds.parquet", "class_names", {"class_names": '["cat", "dog"]'})
    ('cat', 'dog')
    """
    if key not in metadata:
        return None
    values = _json(name, key, metadata[key])
    if not isinstance(values, list) or not all(isinstance(each, str) and is_text(each) for each in values):
        raise InputError(f'{name}: {key} among the metadata must be a JSON list of strings, such as ["cat", "dog"].')
    return tuple(values)


def history_of(name: str, metadata: Mapping[str, str]) -> dict[str, Array]:
    """The record of an AdaFocal run in the metadata, each field a JSON list of lists."""
    history = {}
    for key in metadata:
        if key.startswith(HISTORY):
            try:
                history[key.removeprefix(HISTORY)] = np.array(_json(name, key, metadata[key]), dtype=np.float64)
            except (TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"{name}: {key} among the metadata must be a JSON list of lists of numbers."
                ) from error
    return history


def _json(name: str, key: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name}: {key} among the metadata is not JSON ({error}). Write it with json.dumps."
        ) from error
