"""Limits that are checked before memory is allocated: the machine's memory, decompression bombs, long names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from focalcal.errors import InputError
from focalcal.predictions.arrays import CHUNK_VALUES

# Values that are read or rewritten together: 4 MB of float32.
BATCH_VALUES = 1 << 20
# Members of an archive that are both larger and more strongly compressed than this are treated as decompression bombs.
# Real scores are nearly noise and shrink two or three times.
BOMB_BYTES = 1 << 30
BOMB_RATIO = 200
# Deflate cannot compress more strongly than this.
DEFLATE_RATIO = 1032
# Every entry of an array of strings takes as much space as the longest one, so one long name would cost that much per
# row.
LONGEST_NAME = 1000


@lru_cache(maxsize=1)
def machine_memory() -> int:
    """The memory that this process can use, in bytes: the machine's, or the limit of its container."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        total = sys.maxsize
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            said = Path(place).read_text().strip()
        except OSError:
            continue
        if said.isdecimal():
            total = min(total, int(said))
    return total


def require_memory(what: str, num_bytes: int) -> None:
    """Raise an error if the machine cannot hold this many bytes; `what` begins the message."""
    if num_bytes > machine_memory():
        raise InputError(
            f"{what} would take {readable(num_bytes)} of memory, and there are {readable(machine_memory())}. "
            "Read fewer rows, or check the file: its header may be wrong."
        )


def require_no_bomb(what: str, packed: int, unpacked: int) -> None:
    """Raise an error if data would unpack to far more bytes than real scores do; `what` begins the message."""
    if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * packed:
        raise InputError(
            f"{what} would grow from {readable(packed)} to {readable(unpacked)}, as no real scores do. "
            "If they are real, save them uncompressed."
        )


def require_short(what: str, names: Iterable[str]) -> None:
    """Raise an error if a name of a class or split is implausibly long."""
    longest = max(map(len, names), default=0)
    if longest > LONGEST_NAME:
        raise InputError(
            f"{what} has an entry of {longest:,} characters; {LONGEST_NAME:,} are the most. Use shorter names."
        )


def readable(num_bytes: int) -> str:
    """Format a number of bytes for people.

    >>> readable(12), readable(3 << 20), readable(5 << 40)
    ('12 bytes', '3.0 MiB', '5.0 TiB')
    """
    if num_bytes >= 1 << 70:  # headers may contain numbers beyond the range of float
        return "more than 1,024 EiB"
    size, units = float(num_bytes), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{num_bytes} bytes" if units[0] == "bytes" else f"{size:,.1f} {units[0]}"


def rows_per_batch(values_per_row: int) -> int:
    """The number of rows to read together, a multiple of the chunk size.

    >>> rows_per_batch(1000)
    1048
    """
    width = max(1, values_per_row)
    return max(1, BATCH_VALUES // CHUNK_VALUES * (CHUNK_VALUES // width))
