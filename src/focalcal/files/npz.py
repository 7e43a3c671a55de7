"""The .npz format: members are checked before anything is unpacked, and unpacked only in memory."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, BinaryIO, TypeVar, cast

import numpy as np

from focalcal.errors import FileFormatError, InputError
from focalcal.files.memory_limits import DEFLATE_RATIO, require_no_bomb
from focalcal.files.named_arrays import ArrayFile, StoredArray, array_tables, arrays_of, read_arrays
from focalcal.files.npy import chunks_of, npy_bytes, rewritten_npy, stored_npy
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.source_file import SourceFile
from focalcal.files.table import NPZ, SNIFFED
from focalcal.printable import shown

if TYPE_CHECKING:
    from focalcal.files.rewriting import RewriteJob
    from focalcal.files.shard import Shard

T = TypeVar("T")
_ENCRYPTED = 0x1


class NpzArchive:
    """An open .npz: its members, and the arrays among them."""

    def __init__(self, name: str, zipped: zipfile.ZipFile, size: int) -> None:
        self.name, self.zipped = name, zipped
        self.members = {_checked(name, member, size): member for member in zipped.infolist()}
        # numpy reads a member `logits` as an array of that name, too.
        names = Counter(member.filename.removesuffix(".npy") for member in zipped.infolist())
        twice, count = names.most_common(1)[0] if names else ("", 0)
        if count > 1:
            raise FileFormatError(
                f"{name}: has two members {shown(twice)}.npy, so it is unclear which counts. Save it again."
            )

    def file(self) -> ArrayFile:
        """The arrays; each header is read when its array is asked for."""
        return ArrayFile(self.name, _Arrays(self))

    def array(self, key: str) -> StoredArray:
        """The array under a key."""
        member = self.members[f"{key}.npy"]
        return stored_npy(self.name, key, partial(self.open, member), member.file_size)

    @contextmanager
    def open(self, member: zipfile.ZipInfo) -> Iterator[BinaryIO]:
        """Open the unpacked bytes of a member; the checksum is verified at their end."""
        what = f"{self.name}: {shown(member.filename)}"
        with _opened(what, lambda: self.zipped.open(member)) as stream:
            try:
                yield cast(BinaryIO, stream)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise _damaged(what, error) from error

    def chunks(self, member: zipfile.ZipInfo) -> Iterator[bytes]:
        """The unpacked bytes of a member, a bounded number at a time."""
        with self.open(member) as stream:
            yield from chunks_of(stream)


class _Arrays(Mapping[str, StoredArray]):
    """Arrays by key. Headers are read on access, so that a broken array does no harm unless it is needed."""

    def __init__(self, archive: NpzArchive) -> None:
        self._archive = archive
        self._keys = [each.removesuffix(".npy") for each in archive.members if each.endswith(".npy")]

    def __getitem__(self, key: str) -> StoredArray:
        return self._archive.array(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


@contextmanager
def open_npz(source: SourceFile) -> Iterator[NpzArchive]:
    """Open an .npz and check its members."""
    with source.open() as file:
        if not NPZ.sniff(file.read(SNIFFED)):
            raise FileFormatError(f"{source.name}: is not an .npz archive. Save it with np.savez.")
        with _opened(f"{source.name}:", lambda: zipfile.ZipFile(file)) as zipped:
            yield NpzArchive(source.name, zipped, source.size)


def _opened(what: str, open_it: Callable[[], T]) -> T:
    try:
        return open_it()
    except Exception as error:  # wrong offsets and flags can raise anything
        raise _damaged(what, error) from error


def _damaged(what: str, error: Exception) -> FileFormatError:
    said = shown(error, longest=200) or "it ends too early"
    return FileFormatError(f"{what} is damaged or cut ({said}). Write or copy it again.")


def _checked(name: str, member: zipfile.ZipInfo, size: int) -> str:
    """Check that a member is safe to unpack in memory and return its name."""
    said = member.filename
    what = f"{name}: {shown(said)}"
    # `orig_filename` is the name in the archive; zipfile cuts `filename` at a null byte.
    if any(sign in member.orig_filename for sign in ("/", "\\", "\0", "..")) or not said:
        raise FileFormatError(
            f"{name}: has a member named {shown(member.orig_filename)!r}, which could lead outside of the archive. "
            "Save the arrays under plain names."
        )
    if member.flag_bits & _ENCRYPTED:
        raise InputError(f"{what} is encrypted. Save it without a password.")
    require_no_bomb(what, member.compress_size, member.file_size)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{what} is packed in a way that numpy does not read. Save it with np.savez.")
    stored = member.compress_type == zipfile.ZIP_STORED
    most = member.compress_size if stored else member.compress_size * DEFLATE_RATIO
    if member.compress_size > size or member.file_size > most or (stored and member.file_size < most):
        raise FileFormatError(f"{what} declares more bytes than the file has. Write or copy it again.")
    return said


def write_members(file: IO[bytes], members: Iterable[tuple[zipfile.ZipInfo, Iterable[bytes]]]) -> None:
    """Write a new archive; the content of each member is streamed."""
    with zipfile.ZipFile(file, "w", allowZip64=True) as zipped:
        for info, chunks in members:
            with zipped.open(info, "w", force_zip64=True) as stream:
                for chunk in chunks:
                    stream.write(chunk)


def new_member(key: str, compress_type: int) -> zipfile.ZipInfo:
    """A member for an array, with the same date as numpy's, so that equal arrays give equal bytes."""
    info = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = compress_type
    return info


def copied_member(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """A copy of a member's description, for a new archive."""
    new = zipfile.ZipInfo(info.filename, info.date_time)
    new.compress_type, new.external_attr, new.comment = info.compress_type, info.external_attr, info.comment
    return new


def npz_tables(shard: Shard, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
    """The rows of an .npz in tables of bounded size."""
    with open_npz(shard.source) as archive:
        yield from array_tables(archive.file(), columns, by)


def read_npz(shard: Shard, columns: Columns) -> PredictionTable:
    """All rows of an .npz."""
    with open_npz(shard.source) as archive:
        return read_arrays(archive.file(), columns)


def write_npz(table: PredictionTable, file: IO[bytes]) -> None:
    """Write a table as an .npz, uncompressed."""
    arrays = arrays_of(table)
    if table.class_names is not None:
        arrays["class_names"] = np.array(table.class_names, dtype=str)
    # Scores are nearly noise: compressing them takes long and gains little.
    members = ((new_member(key, zipfile.ZIP_STORED), [npy_bytes(values)]) for key, values in arrays.items())
    write_members(file, members)


def rewrite_npz(shard: Shard, job: RewriteJob, out: IO[bytes]) -> None:
    """Write a copy of an .npz with new scores; all other members stay as they are."""
    with open_npz(shard.source) as archive:
        key, chunks = rewritten_npy(archive.file(), job.columns, job)
        write_members(out, _members(archive, f"{key}.npy", job.to, chunks))


def _members(
    archive: NpzArchive, scores: str, new_key: str, chunks: Iterable[bytes]
) -> Iterator[tuple[zipfile.ZipInfo, Iterable[bytes]]]:
    for name, info in archive.members.items():
        if name == scores:
            yield new_member(new_key, info.compress_type), chunks
        else:
            yield copied_member(info), archive.chunks(info)
