"""`focalcal demo`: train, calibrate and report in under a minute."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focalcal.cli.console import (
    JsonOption,
    QuietOption,
    make_table,
    print_json,
    print_line,
    program,
    progress,
    standard_output,
)

if TYPE_CHECKING:
    from rich.table import Table

    from focalcal.demo import DemoResult
    from focalcal.metrics.intervals import Estimate

# What the table takes with every interval beside its value.
_WIDE = 110


def demo(
    out: Annotated[Path, typer.Option(help="The folder for logits, calibrators and the report.")] = Path(
        "focalcal-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise, the split and the networks.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 500 training images.")] = 60,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train a small network on noisy digits with four losses, calibrate each, and show how truthful they are.

    Takes about half a minute. Writes the logits, the calibrators and a report for the browser.
    """
    from focalcal.demo import run_demo

    with progress(quiet=quiet) as advance:
        found = run_demo(out, seed=seed, epochs=epochs, progress=advance)
    if as_json:
        print_json(asdict(found))
    elif quiet:
        print_line(str(found.report or found.folder))
    else:
        _print(found, _next_commands(found))


def _next_commands(found: DemoResult) -> list[str]:
    """Three commands that work as printed, wherever the console script lies."""
    logits, fitted = f"{found.folder}/cross-entropy.npz", f"{found.folder}/cross-entropy.temperature.json"
    own = f"{found.folder}/my-calibrator.json"
    return [
        shlex.join([*program(), "evaluate", logits, "--calibrator", fitted]),
        shlex.join([*program(), "compare", logits, "--split", "val"]),
        shlex.join([*program(), "calibrate", logits, "--method", "focal-temperature", "--out", own]),
    ]


def _print(found: DemoResult, following: list[str]) -> None:
    console = standard_output()
    console.print(_table(found, narrow=console.width < _WIDE))
    first, truest = found.rows[0], min(found.rows, key=lambda row: row.ece.value or 0)
    console.print(
        f"Trained with {first.loss}, the network is {found.verdicts[first.loss]}.\n"
        "The best temperature is what the logits would still have to be divided by: 1 for a truthful network, above 1 "
        f"for one that is too sure. Most truthful here: {truest.loss}, {truest.calibrator}.\n"
        "An interval says where the true value lies; chance only adds to a measured ECE, which may lie above its own.\n"
    )
    if found.report is None:
        console.print("For the report, install plotly: pip install 'focalcal[report]'.\n")
    else:
        console.print(f"Open {found.report} in a browser: diagrams, and sliders for the temperature and gamma.\n")
    console.print("Next, try:")
    for line in following:
        console.print(f"  {line}", soft_wrap=True)


def _table(found: DemoResult, *, narrow: bool) -> Table:
    """One row per network and calibrator; on a narrow terminal intervals stand under their values."""
    table = make_table(
        "loss, accuracy",
        "ECE, %",
        "AdaECE, %",
        "NLL",
        "best temp." if narrow else "best temperature",
        title="Noisy digits: 500 training images, 897 test images, 95 % intervals",
    )
    if narrow:
        from rich import box

        table.box, table.pad_edge, table.collapse_padding = box.HORIZONTALS, False, True
    between = "\n" if narrow else " "
    for loss, versions in itertools.groupby(found.rows, key=lambda row: row.loss):
        for place, row in enumerate(versions):
            if place == 0:
                table.add_row(f"{loss}, {100 * (row.accuracy.value or 0):.1f} %", style="bold")
            measured = ((row.ece, 100, 1), (row.ada_ece, 100, 1), (row.nll, 1, 3), (row.temperature, 1, 2))
            table.add_row(f"  {row.calibrator}", *(between.join(_cell(*each)) for each in measured))
        table.add_section()
    return table


def _cell(number: Estimate, factor: float, digits: int) -> tuple[str, str]:
    """A value and its interval: `15.9` and `[13.4, 18.2]`."""
    value, low, high = (f"{factor * (end or 0):.{digits}f}" for end in (number.value, number.low, number.high))
    return value, f"[{low}, {high}]"
