"""Where the bytes of a file are, and errors that begin with its name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from focalcal.errors import InputError


@dataclass(frozen=True)
class SourceFile:
    """A file and the name that messages have for it; one that is elsewhere has the file system of its address."""

    name: str
    path: Path
    filesystem: Any = None

    @classmethod
    def of(cls, path: str | Path) -> SourceFile:
        """A file of which messages speak by its path."""
        return cls(str(path), Path(path))

    @property
    def size(self) -> int:
        """How many bytes it has."""
        with readable_file(self.name):
            if self.filesystem is not None:
                return int(self.filesystem.get_file_info(self.path.as_posix()).size)
            return os.stat(self.path).st_size

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Its bytes from the beginning."""
        with readable_file(self.name):
            file = open(self.path, "rb") if self.filesystem is None else self.for_arrow()  # noqa: SIM115
        with file:
            yield file

    def for_arrow(self) -> Any:
        """What pyarrow opens: a path, or the open file if it is elsewhere."""
        return self.path if self.filesystem is None else self.filesystem.open_input_file(self.path.as_posix())

    def hint(self) -> str:
        """A sentence about what the file looks like by its first bytes, if that is one of the known formats."""
        with self.open() as file:
            found = format_by_bytes(file.read(16))
        return "" if found is None else f"It looks like {found}. "


@contextmanager
def readable_file(name: str) -> Iterator[None]:
    """What the file system refuses becomes an error about this file."""
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error)
        raise InputError(f"{name}: cannot be read: {said}. Check the path and its permissions.") from error


def format_by_bytes(begin: bytes) -> str | None:
    """The format that a file's first bytes belong to; None for text and for what is not known.

    >>> format_by_bytes(b"PAR1...."), format_by_bytes(b"label,prob_0")
    ('parquet', None)
    """
    if begin[:4] == b"PAR1":
        return "parquet"
    if begin[:2] == b"PK":
        return "npz"
    if begin[:6] == b"\x93NUMPY":
        return "npy"
    # The end of the length of its header, and the header.
    return "safetensors" if begin[7:9] == b"\0{" else None
