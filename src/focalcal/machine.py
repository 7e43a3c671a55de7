"""The memory of the machine, for checks before something large is allocated."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path


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
