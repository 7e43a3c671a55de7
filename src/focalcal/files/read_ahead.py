"""Reading ahead: the next pieces are fetched in the background while the last one is worked on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch

T = TypeVar("T")

# Pieces that wait: more would only take memory.
_WAITING = 3
_PATIENCE = 0.1
# 32 MB less a little: larger blocks are always given back.
_SETTLING = (8 << 20) - 1024


@contextmanager
def steady_memory() -> Iterator[None]:
    """A core for the reader, and freed memory that stays at hand while batches are worked on.

    glibc gives freed blocks back to the system, and every temporary of the next batch costs page faults anew, until it
    has once seen a block of 32 MB freed. torch's threads would wait for the one that shares its core with the reader.
    """
    torch.empty(_SETTLING)
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads - 1))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def read_ahead(open_it: Callable[[], Iterator[T]]) -> Iterator[Iterator[T]]:
    """What an iterator gives, made in a thread of its own, which ends when the context does.

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
        except BaseException as error:  # whatever it is, it belongs to who reads
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
