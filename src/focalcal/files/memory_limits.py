"""Limits that are checked before memory is allocated: the machine's memory, decompression bombs, long names."""

from __future__ import annotations

from collections.abc import Iterable

from focalcal.errors import InputError
from focalcal.machine import machine_memory, readable
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


def rows_per_batch(values_per_row: int) -> int:
    """The number of rows to read together, a multiple of the chunk size.

    >>> rows_per_batch(1000)
    1048
    """
    width = max(1, values_per_row)
    return max(1, BATCH_VALUES // CHUNK_VALUES * (CHUNK_VALUES // width))
