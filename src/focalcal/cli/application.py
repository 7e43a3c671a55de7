"""The commands of `focalcal` as one application of Typer."""

from __future__ import annotations

from typing import Annotated

import typer

from focalcal import __version__
from focalcal.cli import apply, calibrate, compare, demo, evaluate, report
from focalcal.cli.plugins import CommandGroup

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
        from focalcal.kernels.choice import kernels_in_use

        typer.echo(f"focalcal {__version__}, kernels: {kernels_in_use()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and which kernels are in use."
        ),
    ] = False,
) -> None:
    """Classifiers that say how sure they are, truthfully."""
