"""Standard output and standard error of every command: results on the one, progress and warnings on the other.

Nothing here imports rich before there is something to print, so that `focalcal --help` answers at once.
"""

from __future__ import annotations

import gc
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
            print(f"focalcal: warning: {line}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", InputWarning)
        warnings.showwarning = say
        yield


def standard_output() -> Console:
    """Where results go: coloured on a terminal (unless NO_COLOR is set), plain text on a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_ON_A_PIPE
    return Console(width=width, highlight=False, emoji=False, markup=False, soft_wrap=not sys.stdout.isatty())


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
    """One JSON document on standard output; numbers that JSON does not have become null."""
    print(json.dumps(plain(result), indent=2, allow_nan=False, ensure_ascii=False))


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
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)
