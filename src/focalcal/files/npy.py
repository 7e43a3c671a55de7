"""The .npy format: headers are trusted only if the file has as many bytes as they declare; pickles are never read."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.lib import format as npy_format

from focalcal.core.checks import Array
from focalcal.core.score_kinds import KINDS, Kind
from focalcal.errors import FileFormatError, InputError
from focalcal.files.named_arrays import (
    ArrayFile,
    StoredArray,
    array_tables,
    read_arrays,
    require_possible,
    rewritten_scores,
)
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.source_file import SourceFile
from focalcal.files.table import NPY
from focalcal.machine import readable
from focalcal.printable import shown

# numpy itself writes headers of about a hundred bytes; longer ones have structured dtypes, which no score has.
_LONGEST_HEADER = 1 << 14
_CHUNK = 1 << 20

if TYPE_CHECKING:
    from focalcal.files.rewriting import RewriteJob
    from focalcal.files.shard import Shard

Open = Callable[[], AbstractContextManager[BinaryIO]]


def stored_npy(name: str, key: str, open_bytes: Open, num_bytes: int) -> StoredArray:
    """Read the header of an .npy of `num_bytes`; the values are read later."""
    what = f"{name}: {shown(key)}" if key else f"{name}:"
    with open_bytes() as stream:
        dtype, shape, fortran, start = _header(what, stream)
    declared = math.prod(shape) * dtype.itemsize
    if declared != num_bytes - start:
        raise FileFormatError(
            f"{what} declares shape {shown(shape)} of {dtype}, {readable(declared)}, but "
            f"{readable(num_bytes - start)} are there: the file was cut or altered. Write it again."
        )
    require_possible(what, dtype, shape)

    @contextmanager
    def at_values() -> Iterator[BinaryIO]:
        with open_bytes() as stream:
            stream.read(start)
            yield stream

    return StoredArray(what, dtype, shape, at_values, fortran)


def _header(what: str, stream: BinaryIO) -> tuple[np.dtype, tuple[int, ...], bool, int]:
    begin = stream.read(8)
    if not NPY.sniff(begin) or len(begin) < 8:
        raise FileFormatError(f"{what} is not in npy format: its first bytes are {begin!r}. Save it with np.save.")
    version = (begin[6], begin[7])
    if version not in ((1, 0), (2, 0)):
        raise FileFormatError(f"{what} has npy version {version}; arrays of numbers have 1.0 or 2.0. Use np.save.")
    length = stream.read(2 if version == (1, 0) else 4)
    size = int.from_bytes(length, "little")
    if size > _LONGEST_HEADER:
        raise FileFormatError(f"{what} declares an npy header of {readable(size)}. Save it with np.save.")
    text = stream.read(size)
    parse = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, fortran, dtype = parse(io.BytesIO(length + text), max_header_size=_LONGEST_HEADER)
    except Exception as error:  # the parser may raise anything on a broken header
        raise FileFormatError(f"{what} has an npy header that cannot be read. Save it with np.save.") from error
    if dtype.hasobject:
        raise InputError(
            f"{what} is an array of Python objects, stored as a pickle. focalcal never reads pickles, because they can "
            "run any code. Save numbers, or strings with .astype(str)."
        )
    if dtype.fields is not None or dtype.subdtype is not None or not dtype.itemsize or any(each < 0 for each in shape):
        raise InputError(
            f"{what} must be a plain array of numbers or strings; got {shown(dtype)} of shape {shown(shape)}."
        )
    return dtype, tuple(int(each) for each in shape), fortran, len(begin) + len(length) + len(text)


def npy_header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The header of an .npy in C order."""
    stream = io.BytesIO()
    described = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def npy_bytes(values: Array) -> bytes:
    """An array as the bytes of an .npy."""
    values = np.ascontiguousarray(values)
    return npy_header(values.dtype, values.shape) + values.tobytes()


def open_npy(source: SourceFile) -> StoredArray:
    """Open the array of an .npy file."""
    return stored_npy(source.name, "", source.open, source.size)


def npy_files(sources: tuple[SourceFile, ...], columns: Columns) -> ArrayFile:
    """Open an .npy of scores, with labels from the next .npy or from one that the caller names."""
    scores = sources[0]
    arrays: dict[str, StoredArray] = {npy_kind(scores, columns): open_npy(scores)}
    if len(sources) > 1:
        arrays["labels"] = open_npy(sources[1])
    for part in ("labels", "weights", "split", "class_names"):
        named = getattr(columns, part)
        if named is not None:
            arrays[part] = open_npy(_beside(scores, named))
    return ArrayFile(scores.name, arrays)


def npy_folder(sources: tuple[SourceFile, ...]) -> ArrayFile:
    """Open a directory whose .npy files are named like the keys of an .npz."""
    folder = sources[0].path.parent
    return ArrayFile(str(folder), {source.path.stem: open_npy(source) for source in sources})


def npy_kind(source: SourceFile, columns: Columns) -> Kind:
    """The kind of scores in an .npy, as stated by the caller or implied by its name (`val_logits.npy`)."""
    if columns.kind is not None:
        return columns.kind
    name = source.path.stem.lower()
    found = [kind for kind in KINDS if kind in name.replace("log_probs", "" if kind == "probs" else "log_probs")]
    if len(found) != 1:
        raise InputError(
            f"{source.name}: may hold logits, log_probs or probs, and its name does not say which. Say it with --kind."
        )
    return found[0]  # type: ignore[return-value]


def _beside(scores: SourceFile, named: str) -> SourceFile:
    if not named.endswith(".npy"):
        raise InputError(f"{scores.name}: an .npy has no key {named}; name the .npy that holds it.")
    path = Path(named)
    return SourceFile.of(path if path.exists() else scores.path.parent / named)


def npy_tables(shard: Shard, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
    """The rows of scores in an .npy and of the parts beside it, in tables of bounded size."""
    return array_tables(*_opened(shard, columns), by)


def read_npy(shard: Shard, columns: Columns) -> PredictionTable:
    """All rows of scores in an .npy and of the parts beside it."""
    return read_arrays(*_opened(shard, columns))


def write_npy(table: PredictionTable, file: IO[bytes]) -> None:
    """Write the scores of a table, and nothing else."""
    file.write(npy_bytes(table.scores))


def rewrite_npy(shard: Shard, job: RewriteJob, out: IO[bytes]) -> None:
    """Write an .npy of new scores."""
    _, chunks = rewritten_npy(*_opened(shard, job.columns), job)
    out.writelines(chunks)


def rewrite_npy_folder(
    shard: Shard, job: RewriteJob, open_output: Callable[[str], AbstractContextManager[IO[bytes]]]
) -> None:
    """Write a copy of a directory of named .npy with new scores; `open_output` opens a file in it by name."""
    file, columns = _opened(shard, job.columns)
    key, chunks = rewritten_npy(file, columns, job)
    for source in shard.sources:
        is_scores = source.path.stem == key
        with open_output(f"{job.to}.npy" if is_scores else source.path.name) as out:
            if is_scores:
                out.writelines(chunks)
            else:
                with source.open() as stream:
                    out.writelines(chunks_of(stream))


def rewritten_npy(file: ArrayFile, columns: Columns, job: RewriteJob) -> tuple[str, Iterable[bytes]]:
    """The key of the scores, and the new ones as an .npy."""
    key, stored, dtype, batches = rewritten_scores(file, columns, job)
    return key, chain([npy_header(dtype, stored.shape)], (batch.tobytes() for batch in batches))


def chunks_of(stream: IO[bytes]) -> Iterator[bytes]:
    """The rest of a stream, a bounded number of bytes at a time."""
    while chunk := stream.read(_CHUNK):
        yield chunk


def _opened(shard: Shard, columns: Columns) -> tuple[ArrayFile, Columns]:
    """The arrays of a shard, and the names to look for: those of a single .npy are given by its place."""
    if shard.is_folder:
        return npy_folder(shard.sources), columns
    return npy_files(shard.sources, columns), Columns(kind=columns.kind)
