"""Writing files atomically: they are complete or not there at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

# Errors that only writing can meet: a full disk, a full share of it, a file that is too large.
DISK_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a file next to its destination and move it there once it is complete; a failure leaves the old file.

    >>> import pathlib, tempfile
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "numbers.json"
    >>> write_atomically(place, b"[1, 2]")
    >>> place.read_bytes()
    b'[1, 2]'
    """
    with atomic_file(path) as file:
        file.write(content)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file for writing that is moved to its destination if the block succeeds, and removed otherwise.

    The error of a full disk names the destination.

    >>> import pathlib, tempfile
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "rows.csv"
    >>> with atomic_file(place) as file:
    ...     written = file.write(b"label\\n"), file.write(b"1\\n")
    >>> place.read_bytes()
    b'label\\n1\\n'
    """
    place = Path(path)
    if place.exists() and not place.is_file():  # a device would be replaced by a file, not written to
        raise OSError(errno.EINVAL, "it is not a file", str(place))
    # The name is chosen before the file exists, so that an interrupt at any moment can remove it.
    beside = place.with_name(f".{place.name[:50]}.{secrets.token_hex(8)}")
    try:
        with names_full_disk(place):
            with open(beside, "x+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def names_full_disk(path: str | Path) -> Iterator[None]:
    """Give the error of a full disk the name of the file that is written here, which the system leaves out."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in DISK_FULL:
            error.filename = str(path)
        raise
