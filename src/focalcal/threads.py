"""How many threads torch uses, for the calling thread alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch use so many threads for what the calling thread asks of it.

    `torch.set_num_threads` is for the whole process: two threads that change the number and put it back at different
    times leave it wrong. OpenMP keeps a number for each thread, and only that is changed here.

    >>> import torch
    >>> with torch_threads(1):
    ...     torch.get_num_threads()
    1
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(number, user_api="openmp"):
        yield
