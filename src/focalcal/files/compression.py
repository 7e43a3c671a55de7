"""Text compressed by gzip or zstd: opened as it is, recognised by its first bytes, and written by its suffix."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from focalcal.errors import FileFormatError, MissingExtraError
from focalcal.files.source_file import SourceFile
from focalcal.files.table import COMPRESSED
from focalcal.printable import shown

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# Bytes that are compressed together.
_BLOCK = 1 << 20


@contextmanager
def open_unpacked(source: SourceFile) -> Iterator[IO[bytes]]:
    """Open a file for reading its bytes, decompressed if they are compressed; it cannot be rewound."""
    with source.open() as file:
        begin = file.read(len(_ZSTD))
        file.seek(0)
        if begin.startswith(_GZIP):
            with _told_as_damage(source.name, "gzip"), gzip.GzipFile(fileobj=file) as unpacked:
                yield unpacked  # type: ignore[misc]
        elif begin == _ZSTD:
            stream = _pyarrow().CompressedInputStream(file, "zstd")
            with _told_as_damage(source.name, "zstd"), io.BufferedReader(stream, _BLOCK) as buffered:
                yield buffered
        else:
            yield file


@contextmanager
def _told_as_damage(name: str, kind: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, OSError) as error:
        said = shown(str(error).split("\n")[0], longest=200).rstrip(".")
        raise FileFormatError(f"{name}: is a damaged {kind} file ({said}). Write or copy it again.") from error


@contextmanager
def packed(out: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """A file that compresses what is written to it, if its name ends in .gz or .zst; `out` is not closed."""
    ending = next((each for each in COMPRESSED if name.lower().endswith(each)), None)
    if ending is None:
        yield out
    elif ending == ".gz":
        with gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=0) as file:
            yield file  # type: ignore[misc]
    else:
        with io.BufferedWriter(_ZstdFrames(out), _BLOCK) as buffered:
            yield buffered


class _ZstdFrames(io.RawIOBase):
    """Writes every block as a zstd frame of its own; frames that follow one another are one file."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._codec = out, _pyarrow().Codec("zstd")

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, block: Any) -> int:
        """Compress and write a block."""
        if len(block):
            self._out.write(self._codec.compress(bytes(block), asbytes=True))
        return len(block)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("Files compressed by zstd need pyarrow: pip install 'focalcal[files]'.") from error
    return pyarrow
