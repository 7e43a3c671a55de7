"""`focalcal lab collect`: what finished runs found, as one small result file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from focalcal.cli.console import JsonOption, QuietOption, print_json, progress, standard_output
from focalcal.errors import InputError


@dataclass(frozen=True)
class Collected:
    """The answer of `focalcal lab collect`: the result file, and whose runs are in it, by method."""

    file: str
    recipe: str
    runs: dict[str, int]
    minutes: float
    schema: Literal[1] = 1
    command: Literal["lab-collect"] = "lab-collect"


def lab_collect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that the runs of one recipe lie below.")],
    out: Annotated[
        Path | None, typer.Option(help="The result file; without it RECIPE.json in the folder that you are in.")
    ] = None,
    human: Annotated[
        Path | None, typer.Option(help="An .npz with `counts` (N, K): how often people gave each class to a test row.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples for the intervals.")] = 500,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure finished runs again with intervals, compare their calibrators in pairs, and keep it all in one file.

    The file has no logits in it and is small enough for version control.

    \b
    Examples:
      focalcal lab collect runs/cpu/digits
      focalcal lab collect runs/cpu/cifar10-s-resnet8 --human cifar10h.npz --out cifar10-s-resnet8.json
    """
    from reproduction.evidence.collect import Plan, collect
    from reproduction.evidence.files import file_name, write_evidence
    from reproduction.evidence.measure import Answers

    if not folder.is_dir():
        raise InputError(f"DIR: must be a folder with runs below it; got {folder}.")
    if human is not None and not human.is_file():
        raise InputError(f"--human: must be a file; got {human}.")
    plan = Plan(resamples, None if human is None else Answers.read(human))
    with progress(quiet=quiet) as advance:
        evidence = collect(folder, plan, progress=advance)
    place = out or Path(file_name(evidence.name))
    write_evidence(evidence, place)
    runs = {method: len(evidence.of(method)) for method in evidence.methods}
    minutes = sum(run.seconds for run in evidence.runs) / 60
    found = Collected(str(place), evidence.name, runs, round(minutes, 1))
    if as_json:
        print_json(asdict(found))
    elif quiet:
        print(found.file)
    else:
        said = ", ".join(f"{method} {number}" for method, number in runs.items())
        standard_output().print(f"{found.file}: {len(evidence.runs)} runs of {found.recipe} ({said}).")
