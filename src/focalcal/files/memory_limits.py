"""What is refused before anything is allocated: more than the machine has, and archives that grow without measure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from focalcal.errors import InputError
from focalcal.predictions.arrays import CHUNK_VALUES

# Values that are rewritten together: 4 MB of float32.
BATCH_VALUES = 1 << 20
# Members of an archive that are both larger than this and compressed harder than this are taken for bombs. Scores are
# nearly noise: real ones shrink two or three times.
BOMB_BYTES = 1 << 30
BOMB_RATIO = 200
# No byte that deflate has packed gives more than this many.
DEFLATE_RATIO = 1032
# Every entry of an array of strings takes as much space as the longest one: a long name would be repeated row by row.
LONGEST_NAME = 1000


@lru_cache(maxsize=1)
def machine_memory() -> int:
    """The memory that this process may have at most, in bytes: the machine's, or what its container allows."""
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
    """Refuse to read what the machine cannot hold; `what` begins the message."""
    if num_bytes > machine_memory():
        raise InputError(
            f"{what} would take {readable(num_bytes)} of memory, and there are {readable(machine_memory())}. "
            "Read fewer rows, or check the file: its header may be wrong."
        )


def require_no_bomb(what: str, packed: int, unpacked: int) -> None:
    """Refuse what would grow as no real scores do; `what` begins the message."""
    if unpacked > BOMB_BYTES and unpacked > BOMB_RATIO * packed:
        raise InputError(
            f"{what} would grow from {readable(packed)} to {readable(unpacked)}, as no real scores do. "
            "If they are real, save them uncompressed."
        )


def require_short(what: str, names: Iterable[str]) -> None:
    """Refuse names that no class and no split has, so that rows with such names cannot grow without measure."""
    longest = max(map(len, names), default=0)
    if longest > LONGEST_NAME:
        raise InputError(
            f"{what} has an entry of {longest:,} characters; {LONGEST_NAME:,} are the most. Use shorter names."
        )


def readable(num_bytes: int) -> str:
    """A number of bytes as a person says it.

    >>> readable(12), readable(3 << 20), readable(5 << 40)
    ('12 bytes', '3.0 MiB', '5.0 TiB')
    """
    if num_bytes >= 1 << 70:  # a header may say numbers that no float can hold
        return "more than 1,024 EiB"
    size, units = float(num_bytes), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{num_bytes} bytes" if units[0] == "bytes" else f"{size:,.1f} {units[0]}"


def rows_per_batch(values_per_row: int) -> int:
    """How many rows are read together: as many as go into whole chunks.

    >>> rows_per_batch(1000)
    1048
    """
    width = max(1, values_per_row)
    return max(1, BATCH_VALUES // CHUNK_VALUES * (CHUNK_VALUES // width))
