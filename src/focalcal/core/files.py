"""Files that are complete or not there at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a file beside its place and move it there when it is complete; a failure leaves what was there before.

    >>> import pathlib, tempfile
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "numbers.json"
    >>> write_atomically(place, b"[1, 2]")
    >>> place.read_bytes()
    b'[1, 2]'
    """
    place = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp's files are for their owner only
        os.replace(name, place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
