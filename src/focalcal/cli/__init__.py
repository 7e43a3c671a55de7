"""The `focalcal` command: one file per command, no mathematics, and nothing heavy imported before it is needed.

Exit codes: 0 done, 1 failed, 2 bad usage or bad input; 130 after Ctrl-C, as shells expect.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from focalcal import __version__
from focalcal.cli import apply, calibrate, compare, demo, evaluate, report
from focalcal.cli.console import accept_all_text, print_line
from focalcal.cli.plugins import CommandGroup
from focalcal.errors import FileFormatError, FocalCalError, InputError

app = typer.Typer(
    name="focalcal",
    cls=CommandGroup,
    help="Classifiers that say how sure they are, truthfully.",
    epilog="Every command has --help with examples, and --json. The way in: focalcal evaluate FILE.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("evaluate")(evaluate.evaluate)
app.command("calibrate")(calibrate.calibrate)
app.command("apply")(apply.apply)
app.command("compare")(compare.compare)
app.command("report")(report.report)


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
    """The console script: what goes wrong becomes one line on standard error."""
    accept_all_text()
    try:
        app()
    except (InputError, FileFormatError) as error:
        _leave(str(error), 2)
    except FocalCalError as error:
        _leave(str(error), 1)
    except MemoryError:
        _leave("There is not enough memory for this. Read fewer rows at once, or a smaller file.", 1)
    except OSError as error:
        _leave(f"{error.filename or 'file system'}: {error.strerror or error}.", 1)
    except Exception as error:
        if os.environ.get("FOCALCAL_TRACEBACK"):
            raise
        said = f"{type(error).__name__}: {error}"
        _leave(f"This should not have happened: {said}. Set FOCALCAL_TRACEBACK=1 to see where, and report it.", 1)


def _leave(message: str, code: int) -> None:
    line = " ".join(message.split())  # one line, whatever an argument held
    print_line(f"focalcal: {line}", error=True)
    sys.exit(code)
