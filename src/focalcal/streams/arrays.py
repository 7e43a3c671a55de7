"""Named arrays as they lie in a file: in an .npz, in a .safetensors, or each in an .npy of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from focalcal.core.predictions import Kind
from focalcal.core.ranking import Array
from focalcal.errors import FileFormatError, InputError
from focalcal.streams.limits import require_memory, rows_per_batch
from focalcal.streams.names import HISTORY, find_part, find_score_key
from focalcal.streams.table import Columns, Table

_CHUNK = 1 << 20


@dataclass(frozen=True)
class StoredArray:
    """An array in a file: what its header says, and how to get at its bytes. `name` begins messages.

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
        """The size of its values."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.shape[1:]

    @property
    def value_dtype(self) -> np.dtype:
        """The dtype that its values have in memory."""
        return np.dtype(np.float32) if self.bfloat16 else self.dtype.newbyteorder("=")

    def read(self) -> Array:
        """The whole array."""
        require_memory(self.name, self.num_bytes)
        with self.open() as stream:
            values = self._take(stream, math.prod(self.shape))
        return np.ascontiguousarray(values.reshape(self.shape, order="F" if self.fortran else "C"))

    def batches(self) -> Iterator[Array]:
        """The array by rows, a bounded number at a time; a Fortran-ordered one has no rows and is read whole."""
        rows = rows_per_batch(math.prod(self.row_shape))
        if self.fortran and len(self.shape) > 1:
            values = self.read()
            yield from (values[start : start + rows] for start in range(0, len(values), rows))
            return
        with self.open() as stream:
            for start in range(0, self.shape[0], rows):
                shape = (min(rows, self.shape[0] - start), *self.row_shape)
                yield self._take(stream, math.prod(shape)).reshape(shape)

    def chunks(self) -> Iterator[bytes]:
        """The bytes of its values as they are."""
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
        return values.astype(self.value_dtype, copy=False)

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


@dataclass(frozen=True)
class ArrayFile:
    """Arrays by their keys, and the strings that safetensors keeps beside them."""

    name: str
    arrays: Mapping[str, StoredArray]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def scores(self, columns: Columns) -> tuple[str, StoredArray, Kind]:
        """The key of the scores, the scores, and what they are."""
        key, kind = find_score_key(self.name, list(self.arrays), columns)
        stored = self.arrays[key]
        if stored.value_dtype.kind != "f" or stored.dtype.itemsize > 8:
            raise InputError(
                f"{self.name}: {key} must be floating point; got {stored.dtype}. Save it with .astype(np.float32)."
            )
        if len(stored.shape) not in (1, 2):
            raise InputError(
                f"{self.name}: {key} must have shape (rows, classes), or (rows,) for a positive class; "
                f"got {stored.shape}. Bring it to that shape with .reshape."
            )
        return key, stored, kind


def read_arrays(file: ArrayFile, columns: Columns) -> Table:
    """Everything that a file of named arrays says, unchecked but for the dtype and shape of its scores."""
    _, stored, kind = file.scores(columns)
    keys = {part: find_part(file.name, part, list(file.arrays), getattr(columns, part)) for part in _PARTS}
    wanted = [stored, *(file.arrays[key] for key in keys.values() if key is not None)]
    require_memory(f"{file.name}:", sum(each.num_bytes for each in wanted))
    parts = {part: None if key is None else file.arrays[key].read() for part, key in keys.items()}
    history = {key.removeprefix(HISTORY): file.arrays[key].read() for key in file.arrays if key.startswith(HISTORY)}
    history = {**history_of(file.name, file.metadata), **history}
    split = parts["split"]
    if split is not None and "split_names" in file.metadata:
        split = _named(file.name, split, strings_of(file.name, "split_names", file.metadata) or ())
    names = _strings(file.name, "class_names", parts["class_names"])
    return Table(
        name=file.name,
        scores=stored.read(),
        kind=kind,
        labels=parts["labels"],
        weights=parts["weights"],
        split=_strings(file.name, "split", split),
        class_names=strings_of(file.name, "class_names", file.metadata) if names is None else tuple(names.tolist()),
        history=history,
    )


_PARTS = ("labels", "weights", "split", "class_names")


def _strings(name: str, part: str, values: Array | None) -> Array | None:
    """Strings from an array of strings, of UTF-8 bytes or of whole numbers."""
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
    if codes.dtype.kind not in "iu" or (codes.size and not (codes.min() >= 0 and codes.max() < len(names))):
        raise InputError(
            f"{name}: split must hold numbers from 0 to {len(names) - 1}, one for each of split_names; "
            f"got {codes.dtype} up to {codes.max(initial=0)}. Add the missing name to split_names."
        )
    return np.array(names, dtype=str)[codes]


def strings_of(name: str, key: str, metadata: Mapping[str, str]) -> tuple[str, ...] | None:
    """A list of strings among metadata, written as JSON.

    >>> strings_of("preds.parquet", "class_names", {"class_names": '["cat", "dog"]'})
    ('cat', 'dog')
    """
    if key not in metadata:
        return None
    values = _json(name, key, metadata[key])
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise InputError(f'{name}: {key} among the metadata must be a JSON list of strings, such as ["cat", "dog"].')
    return tuple(values)


def history_of(name: str, metadata: Mapping[str, str]) -> dict[str, Array]:
    """The record of an AdaFocal run among metadata, each field a JSON list of lists."""
    history = {}
    for key in metadata:
        if key.startswith(HISTORY):
            try:
                history[key.removeprefix(HISTORY)] = np.array(_json(name, key, metadata[key]), dtype=np.float64)
            except (TypeError, ValueError) as error:
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
