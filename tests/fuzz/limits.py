"""Calls that must end well: soon, in little memory, with a result or with a refusal in a sentence."""

from __future__ import annotations

import resource
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from focalcal.errors import FileFormatError, InputError

T = TypeVar("T")

# What reading a file of some kilobytes may add to the memory of the process.
MOST_BYTES = 64 << 20
# Of the processor, for one file; how busy the machine is changes that little.
MOST_SECONDS = 2.0
_LONGEST_MESSAGE = 1500
# Of the process: memory that is freed goes back to the system at once, so that the next file's is seen.
ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "OMP_NUM_THREADS": "1",
}


class Refused(str):
    """What the user reads when an input is refused."""


def watched(call: Callable[[], T], begins_with: str, *, may_ask_for_memory: bool = False) -> T | Refused:
    """What a call returns, or `Refused` if it refuses its input in order. Raises AssertionError for everything else.

    In order is an InputError or FileFormatError whose message begins with the given words. With `may_ask_for_memory`
    only the memory that is in use is counted, not what is asked for.
    """
    limit = None if may_ask_for_memory else MOST_BYTES
    _forget_peak()
    before, started = _resident(), time.process_time()
    refusal: Exception | None = None
    try:
        with _at_most(limit):
            found = call()
    except (InputError, FileFormatError) as error:
        refusal = error
    except BaseException:
        raise AssertionError(traceback.format_exc()) from None
    seconds, grown = time.process_time() - started, _peak() - before
    assert seconds <= MOST_SECONDS, f"it took {seconds:.1f} s of the processor. {refusal or ''}"
    assert grown <= MOST_BYTES, f"it took {grown >> 20} MiB more than there were. {refusal or ''}"
    if refusal is None:
        return found
    _require_in_order(refusal, begins_with, limit)
    return Refused(refusal)


def _require_in_order(error: Exception, begins_with: str, limit: int | None) -> None:
    """A refusal is about the file, on a line, and not because memory had run out."""
    cause: BaseException | None = error
    while limit is not None and cause is not None:
        asked = f"it asked for more than {limit >> 20} MiB. {''.join(traceback.format_exception(error))}"
        assert not isinstance(cause, MemoryError), asked
        cause = cause.__cause__
    said = str(error)
    rules = {
        "begins with the file": said.startswith(begins_with),
        "ends with a full stop": said.endswith("."),
        "is one line of text": not any(map(_steers, said)),
        "is short": len(said) < _LONGEST_MESSAGE,
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    assert not broken, f"it is not so that the message {', '.join(broken)}: {said[:3000]!r}"


def _steers(sign: str) -> bool:
    """Whether a terminal may obey a character, or cannot be sent it."""
    turns = unicodedata.bidirectional(sign) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    return turns or unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp")


@contextmanager
def _at_most(num_bytes: int | None) -> Iterator[None]:
    """Let the process ask for so many bytes more than it has, and no more."""
    usual = resource.getrlimit(resource.RLIMIT_AS)
    if num_bytes is not None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + num_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, usual)


def _forget_peak() -> None:
    """Count the peak of memory anew from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _peak() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10
