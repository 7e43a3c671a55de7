"""The process of a command: signals unwind it, and what goes wrong becomes one line on standard error."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from focalcal.atomic import DISK_FULL
from focalcal.cli.console import accept_all_text, print_line
from focalcal.errors import FileFormatError, FocalCalError, InputError


def run() -> None:
    """Run the command that was typed and leave with its exit code."""
    arrived: list[int] = []
    try:
        with _unwound_by_signals(arrived):
            _run_application()
    except Exception as error:
        if arrived:  # compiled code makes other errors of an interrupt
            sys.exit(128 + arrived[-1])
        _answer(error)


def _run_application() -> None:
    from focalcal.cli import app

    accept_all_text()
    try:
        app()
    finally:
        sys.stdout.flush()  # here, where an error can still be answered


@contextmanager
def _unwound_by_signals(arrived: list[int]) -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that temporary files are removed; a second one ends at once.

    Signals that arrive are noted. One that the caller has chosen to ignore stays ignored.
    """
    usual: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    mine = [each for each in usual if signal.getsignal(each) is usual[each]]
    if threading.current_thread() is not threading.main_thread():
        mine = []  # no other thread may set handlers

    def unwind(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        signal.signal(number, usual[signal.Signals(number)])
        if number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        sys.exit(128 + number)

    try:
        for each in mine:
            signal.signal(each, unwind)
        yield
    finally:
        for each in mine:
            signal.signal(each, usual[each])


def _answer(error: Exception) -> None:
    """Say what went wrong in one line, and leave with the exit code for it."""
    if isinstance(error, (InputError, FileFormatError)):
        _leave(str(error), 2)
    if isinstance(error, FocalCalError):
        _leave(str(error), 1)
    if isinstance(error, MemoryError):
        _leave("There is not enough memory for this. Read fewer rows at once, or a smaller file.", 1)
    if isinstance(error, OSError):
        _answer_system(error)
    if os.environ.get("FOCALCAL_TRACEBACK"):
        raise error
    said = f"{type(error).__name__}: {error}"
    _leave(f"This should not have happened: {said}. Set FOCALCAL_TRACEBACK=1 to see where, and report it.", 1)


def _answer_system(error: OSError) -> None:
    """Name the file; a reader that has closed the pipe wants no message."""
    where = error.filename
    if where is None and error.errno in {*DISK_FULL, errno.EPIPE}:  # all files that are written have a name
        where = "standard output"
        _discard_output()
    if error.errno == errno.EPIPE:
        sys.exit(1)
    _leave(f"{where or 'file system'}: {error.strerror or error}.", 1)


def _discard_output() -> None:
    """Send what is left of standard output nowhere, or Python would fail to write it again when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _leave(message: str, code: int) -> None:
    line = " ".join(message.split())  # one line, whatever an argument held
    print_line(f"focalcal: {line}", error=True)
    sys.exit(code)
