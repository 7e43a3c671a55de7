"""Standard output and standard error of every command: results on the one, progress and warnings on the other.

Nothing here imports rich before there is something to print, so that `focalcal --help` answers at once.
"""

from __future__ import annotations

import codecs
import gc
import io
import json
import math
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from focalcal.errors import InputWarning
from focalcal.printable import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Moves the bar: `advance(done, total, what)`.
Advance: TypeAlias = "Callable[[int, int, str], None]"

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the one-line answer only, and no progress.")]

# Wide enough for every table; on a terminal its own width counts.
_WIDTH_ON_A_PIPE = 160


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without garbage collection, then or later: looking through torch's objects is a fifth of its import."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


@contextmanager
def plain_warnings() -> Iterator[None]:
    """The library's warnings become lines on standard error, once each; those of other packages are not for users."""
    said: set[str] = set()

    def say(message: Warning | str, *_: object, **__: object) -> None:
        line = " ".join(str(message).split())
        if line not in said:
            said.add(line)
            print_line(f"focalcal: warning: {line}", error=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", InputWarning)
        warnings.showwarning = say
        yield


def accept_all_text() -> None:
    """Let standard output escape what its encoding lacks, as standard error does, instead of failing half-way."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_line(text: str, *, error: bool = False) -> None:
    """Print a line on standard output or standard error; what would steer a terminal is escaped."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


def standard_output() -> Console:
    """Where results go: coloured on a terminal (unless NO_COLOR is set), plain text on a pipe."""
    from focalcal.cli.safe_console import SafeConsole

    width = None if sys.stdout.isatty() else _WIDTH_ON_A_PIPE
    return SafeConsole(width=width, highlight=False, emoji=False, markup=False, soft_wrap=not sys.stdout.isatty())


def program() -> list[str]:
    """What to type for this command: its name where the shell finds it, else what was typed."""
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return [sys.executable, "-m", "focalcal"]
    return ["focalcal" if shutil.which("focalcal") == str(script.absolute()) else str(script)]


def make_table(*headings: str, title: str | None = None) -> Table:
    """A table: its first column to the left, all others to the right; plain rules on a pipe."""
    from rich import box
    from rich.table import Table

    style = box.ROUNDED if sys.stdout.isatty() else box.ASCII2
    table = Table(title=title, title_justify="left", title_style="bold", box=style)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=bool(place))
    return table


def print_json(result: dict[str, Any]) -> None:
    """One JSON document on standard output, always valid UTF-8; numbers that JSON does not have become null."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    only_ascii = codecs.lookup(encoding).name != "utf-8"
    print(printable_json(json.dumps(plain(result), indent=2, allow_nan=False, ensure_ascii=only_ascii)))


def plain(value: Any) -> Any:
    """The value with NaN and infinities replaced by None, all the way down.

    >>> plain({"nll": float("inf"), "bins": [0.5, float("nan")]})
    {'nll': None, 'bins': [0.5, None]}
    """
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Advance]:
    """A function `advance(done, total, what)` that moves a bar on standard error; it does nothing on a pipe.

    >>> with progress() as advance:
    ...     advance(1, 2, "fitting temperature")
    """
    if quiet or not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, emoji=False), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=printable(what))
