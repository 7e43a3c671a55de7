"""A file to read, local or remote, and errors that begin with its name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from focalcal.errors import InputError
from focalcal.files.messages import is_text


@dataclass(frozen=True)
class SourceFile:
    """A file and its name for messages; a remote file also has a file system."""

    name: str
    path: Path
    filesystem: Any = None

    @classmethod
    def of(cls, path: str | Path) -> SourceFile:
        """A local file, named by its path."""
        return cls(str(path), Path(path))

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process may work in another folder: it gets the whole path, and the name as it was given."""
        path = self.path if self.filesystem is not None else self.path.absolute()
        return SourceFile, (self.name, path, self.filesystem)

    @property
    def size(self) -> int:
        """The size in bytes."""
        with readable_file(self.name):
            if self.filesystem is not None:
                return int(self.filesystem.get_file_info(self.path.as_posix()).size)
            return os.stat(self.path).st_size

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file for reading bytes."""
        with readable_file(self.name):
            file = open(self.path, "rb") if self.filesystem is None else self.for_arrow()  # noqa: SIM115
        with file:
            yield file

    def for_arrow(self) -> Any:
        """What pyarrow can open: the path of a local file, or an open remote file."""
        if self.filesystem is not None:
            return self.filesystem.open_input_file(self.path.as_posix())
        if is_text(str(self.path)):
            return self.path
        import pyarrow

        return pyarrow.OSFile(os.fsencode(self.path))  # as a path pyarrow takes nothing but UTF-8


@contextmanager
def readable_file(name: str) -> Iterator[None]:
    """Turn errors of the file system into an InputError that names this file."""
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error)
        raise InputError(f"{name}: cannot be read: {said}. Check the path and its permissions.") from error
