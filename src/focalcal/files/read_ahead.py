"""Reading ahead: a background thread fetches the next batches while the current one is processed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch

from focalcal.threads import torch_threads

T = TypeVar("T")

# Pieces in the queue; more would only take memory.
_WAITING = 3
_PATIENCE = 0.1
# Just below 32 MB: larger blocks are always given back to the system.
_SETTLING = (8 << 20) - 1024


@contextmanager
def steady_memory() -> Iterator[None]:
    """Leave one core to the reader, and make glibc keep freed memory while batches are processed.

    glibc gives freed blocks back to the system, so that the temporaries of every batch cost page faults, until a block
    of 32 MB has been freed once. torch's threads would wait for the one that shares its core with the reader.
    """
    torch.empty(_SETTLING)
    with torch_threads(max(1, torch.get_num_threads() - 1)):
        yield


@contextmanager
def read_ahead(open_it: Callable[[], Iterator[T]]) -> Iterator[Iterator[T]]:
    """Run an iterator in a thread of its own, which ends with the context.

    An error of the iterator is raised where its next piece was expected.

    >>> with read_ahead(lambda: iter([1, 2, 3])) as pieces:
    ...     list(pieces)
    [1, 2, 3]
    """
    waiting: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(_WAITING)
    ended = threading.Event()

    def put(what: str, piece: T | BaseException | None) -> bool:
        while not ended.is_set():
            with suppress(queue.Full):
                waiting.put((what, piece), timeout=_PATIENCE)
                return True
        return False

    def work() -> None:
        try:
            opened = open_it()
            for piece in opened:
                if not put("piece", piece):
                    return
            put("end", None)
        except BaseException as error:  # passed on to the consumer
            put("error", error)

    def pieces() -> Iterator[T]:
        while True:
            what, piece = waiting.get()
            if what == "end":
                return
            if what == "error":
                assert isinstance(piece, BaseException)
                raise piece
            yield piece  # type: ignore[misc]

    thread = threading.Thread(target=work, name="focalcal-read-ahead", daemon=True)
    thread.start()
    try:
        yield pieces()
    finally:
        ended.set()
        thread.join()
