"""The `focalcal` command: one file a subcommand, no math, and nothing heavy imported before it is needed.

Exit codes: 0 done, 1 failed, 2 bad usage or bad input.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from focalcal import __version__
from focalcal.cli import demo
from focalcal.errors import FocalCalError, InputError

app = typer.Typer(
    name="focalcal",
    help="Classifiers that say how sure they are, truthfully.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"focalcal {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave."),
    ] = False,
) -> None:
    """Classifiers that say how sure they are, truthfully."""


def main() -> None:
    """The console script: our own errors become one line on standard error."""
    try:
        app()
    except InputError as error:
        print(f"focalcal: {error}", file=sys.stderr)
        sys.exit(2)
    except FocalCalError as error:
        print(f"focalcal: {error}", file=sys.stderr)
        sys.exit(1)
