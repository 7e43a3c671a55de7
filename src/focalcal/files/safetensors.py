"""The .safetensors format: the length of the header, a JSON header with the place of each tensor, and the bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np

from focalcal.errors import FileFormatError
from focalcal.files.messages import is_text
from focalcal.files.named_arrays import (
    ArrayFile,
    StoredArray,
    array_tables,
    arrays_of,
    read_arrays,
    require_possible,
    rewritten_scores,
)
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.source_file import SourceFile
from focalcal.printable import shown

if TYPE_CHECKING:
    from focalcal.files.rewriting import RewriteJob
    from focalcal.files.shard import Shard

DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
TAGS = {np.dtype(code).newbyteorder("="): tag for tag, code in DTYPES.items() if tag != "BF16"}
METADATA = "__metadata__"
# The limit of the safetensors library itself.
_LONGEST_HEADER = 100_000_000


def open_tensors(source: SourceFile) -> tuple[ArrayFile, dict[str, Any]]:
    """Open a file whose header agrees with its size; returns the tensors and their entries in the header."""
    with source.open() as file:
        header, start = _header(source, file)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(each, str) for each in metadata.values()):
        raise _broken(source, "its metadata are not strings")
    _require_no_gaps(source, header, start)
    arrays = {key: _stored(source, key, said, start) for key, said in header.items()}
    return ArrayFile(source.name, arrays, metadata), header


def tensors_header(tensors: Mapping[str, tuple[str, tuple[int, ...], int]], metadata: Mapping[str, str]) -> bytes:
    """The header of a file of tensors, given by their dtypes, shapes and numbers of bytes, in this order."""
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for key, (tag, shape, num_bytes) in tensors.items():
        header[key] = {"dtype": tag, "shape": list(shape), "data_offsets": [end, end + num_bytes]}
        end += num_bytes
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the format requires values to begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text


def tag_of(dtype: np.dtype) -> str:
    """The name of a dtype in safetensors.

    >>> tag_of(np.dtype(np.float32))
    'F32'
    """
    return TAGS[dtype.newbyteorder("=")]


def _header(source: SourceFile, file: BinaryIO) -> tuple[dict[str, Any], int]:
    begin = file.read(8)
    length = int.from_bytes(begin, "little")
    if len(begin) < 8 or length > min(_LONGEST_HEADER, source.size - 8):
        raise FileFormatError(f"{source.name}: is not a complete safetensors file. Write or copy it again.")
    try:
        header = json.loads(file.read(length).decode(), object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise _broken(source, f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise _broken(source, "its header is not a JSON object")
    if not all(map(is_text, header)):
        raise _broken(source, "a name in its header is not text")
    return header, 8 + length


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a name is there twice")
    return dict(pairs)


def _stored(source: SourceFile, key: str, said: Any, start: int) -> StoredArray:
    begin, end = said["data_offsets"]
    values, what = partial(_at, source, start + begin), f"{source.name}: {shown(key)}"
    if said["dtype"] not in DTYPES:  # such as 8-bit floats, which cannot be scores but may be other tensors
        return StoredArray(what, np.dtype("V1"), (end - begin,), values)
    dtype, shape = np.dtype(DTYPES[said["dtype"]]), tuple(said["shape"])
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise _broken(source, f"{shown(key)} declares shape {shown(shape)} in {end - begin:,} bytes")
    require_possible(what, dtype, shape)
    return StoredArray(what, dtype, shape, values, bfloat16=said["dtype"] == "BF16")


@contextmanager
def _at(source: SourceFile, start: int) -> Iterator[BinaryIO]:
    with source.open() as file:
        file.seek(start)
        yield file


def _require_no_gaps(source: SourceFile, header: dict[str, Any], start: int) -> None:
    """Raise an error unless the tensors follow one another and fill the file."""
    end = 0
    try:
        for key in sorted(header, key=lambda each: tuple(header[each]["data_offsets"])):
            said = header[key]
            begin, after = said["data_offsets"]
            sizes = [begin, after, *said["shape"]]
            if not isinstance(said["dtype"], str) or not all(type(each) is int and each >= 0 for each in sizes):
                raise ValueError
            if begin != end or after < begin:
                raise _broken(source, f"{shown(key)} does not begin where the tensor before it ends")
            end = after
    except (TypeError, KeyError, ValueError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise _broken(source, "its header does not say dtype, shape and place of each tensor") from error
    if start + end != source.size:
        said = shown(f"{end:,}")
        raise _broken(source, f"its header speaks of {said} bytes, and {source.size - start:,} are there")


def _broken(source: SourceFile, what: str) -> FileFormatError:
    return FileFormatError(f"{source.name}: is a damaged safetensors file: {what}. Write or copy it again.")


def tensors_tables(shard: Shard, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
    """The rows of a .safetensors file in tables of bounded size."""
    return array_tables(open_tensors(shard.source)[0], columns, by)


def read_tensors(shard: Shard, columns: Columns) -> PredictionTable:
    """All rows of a .safetensors file."""
    return read_arrays(open_tensors(shard.source)[0], columns)


def write_tensors(table: PredictionTable, file: IO[bytes]) -> None:
    """Write a table as a .safetensors file, with strings among the metadata."""
    arrays, metadata = arrays_of(table), {}
    if table.class_names is not None:
        metadata["class_names"] = json.dumps(table.class_names)
    if table.split is not None:
        names, arrays["split"] = np.unique(table.split, return_inverse=True)
        metadata["split_names"] = json.dumps(names.tolist())
    arrays = {key: np.ascontiguousarray(values, values.dtype.newbyteorder("<")) for key, values in arrays.items()}
    said = {key: (tag_of(values.dtype), values.shape, values.nbytes) for key, values in arrays.items()}
    file.write(tensors_header(said, metadata))
    for values in arrays.values():
        file.write(values.tobytes())


def rewrite_tensors(shard: Shard, job: RewriteJob, out: IO[bytes]) -> None:
    """Write a copy of a .safetensors file with new scores; all other tensors stay as they are."""
    file, header = open_tensors(shard.source)
    key, stored, dtype, batches = rewritten_scores(file, job.columns, job)
    said = {each: (what["dtype"], what["shape"], file.arrays[each].num_bytes) for each, what in header.items()}
    said[key] = (tag_of(dtype), stored.shape, math.prod(stored.shape) * dtype.itemsize)
    new = {job.to if each == key else each: what for each, what in said.items()}
    out.write(tensors_header(new, file.metadata))
    for each, array in file.arrays.items():
        out.writelines((batch.tobytes() for batch in batches) if each == key else array.chunks())
