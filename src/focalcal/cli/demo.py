"""`focalcal demo`: the papers' point in under a minute."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focalcal.lab.noisy_digits import Outcome


def demo(
    seed: Annotated[int, typer.Option(help="Seed of the noise, the split and the networks.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 500 training images.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Train a small network on noisy digits with four losses, and compare how truthful each is."""
    outcomes = _run(seed, epochs)
    if as_json:
        typer.echo(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        _print(outcomes)


def _run(seed: int, epochs: int) -> list[Outcome]:
    from rich.console import Console
    from rich.progress import Progress

    from focalcal.lab import noisy_digits as lab

    train_split, val_split, test_split = lab.load(seed)
    outcomes = []
    # On a pipe the bar would be noise: there only results are printed.
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        for name, make_loss in lab.LOSSES.items():
            task = progress.add_task(f"training with {name}", total=epochs)
            for network in lab.train(make_loss(), train_split, val_split, seed=seed, epochs=epochs):  # noqa: B007
                progress.advance(task)
            outcomes.append(lab.score(name, network, val_split, test_split))
            progress.remove_task(task)
    return outcomes


def _print(outcomes: list[Outcome]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Noisy digits: 500 training images, 897 test images", title_justify="left")
    table.add_column("loss")
    for heading in ("accuracy", "ECE", "NLL", "best temperature"):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        table.add_row(
            outcome.loss,
            f"{outcome.accuracy:.1%}",
            f"{outcome.ece:.1%}",
            f"{outcome.nll:.3f}",
            f"{outcome.temperature:.2f}",
        )
    console = Console()
    console.print(table)
    worst, best = (pick(outcomes, key=lambda outcome: outcome.temperature) for pick in (max, min))
    console.print(
        "ECE is how far confidence and accuracy lie apart. The best temperature is 1 for a truthful network and above "
        f"1 for one that is too sure: {worst.loss} is too sure by a factor of {worst.temperature:.1f}, "
        f"{best.loss} by {best.temperature:.1f}.",
        highlight=False,
    )
