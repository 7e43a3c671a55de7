"""The papers' tables with every published number beside the one measured by your runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from focalcal.errors import InputError
from focalcal_lab.catalog import catalog
from focalcal_lab.published_numbers import PublishedNumber, published_numbers
from focalcal_lab.run_results import FinishedRun, MeasuredNumber, RunResult, read_result

__all__ = ["PAPER_SPLITS", "PublishedTable", "PublishedTableRow", "published_table", "read_runs"]

PAPER_SPLITS = {
    "cifar10": (45_000, 5_000, 10_000),
    "cifar100": (45_000, 5_000, 10_000),
    "tiny-imagenet": (90_000, 10_000, 10_000),
    "imagenet": (1_281_167, 25_000, 25_000),
    "20newsgroups": (15_098, 900, 3_999),
    "20newsgroups-bert": (15_098, 900, 3_999),
    "sst-binary": (6_920, 872, 1_821),
}
"""Training, validation and test rows in the papers, by a recipe's data [mukhoti2020, App. D; ghosh2022, App. D]."""
Status = Literal["measured", "not run", "not averaged"]


@dataclass(frozen=True)
class PublishedTableRow:
    """A cell of a published table, in the table's unit.

    `measured` is the mean over the seeds, `std` their spread (with one in the denominator less; none for one seed),
    `difference` measured minus published. `status` is "not averaged" where the runs do not belong together, and `note`
    says why. `temperature` is the mean of the fitted ones; what is `published_...` is the paper's own.

    >>> row = published_table("komisarenko2024", "1", "/nowhere").rows[0]
    >>> row.status, row.measured, row.seeds
    ('not run', None, 0)
    """

    dataset: str
    model: str
    method: str
    phase: str
    metric: str
    against: str
    recipe: str
    published: float
    published_std: float | None
    published_temperature: float | None
    measured: float | None
    std: float | None
    seeds: int
    difference: float | None
    temperature: float | None
    status: Status
    note: str
    published_note: str


@dataclass(frozen=True)
class PublishedTable:
    """A published table with what was measured: the answer of `focalcal lab table`.

    `runs` is the number of finished runs below the folder that it uses, `measured` that of the cells they fill.

    >>> table = published_table("komisarenko2024", "1", "/nowhere")
    >>> table.paper, len(table.rows), table.measured
    ('komisarenko2024', 108, 0)
    """

    paper: str
    table: str
    variant: str | None
    folder: str
    rows: list[PublishedTableRow]
    runs: int
    measured: int
    schema: Literal[1] = 1
    command: Literal["lab-table"] = "lab-table"


def published_table(
    paper: str, table: str, runs_folder: str | Path = "runs", *, variant: str | None = None
) -> PublishedTable:
    """A paper's table beside the finished runs below a folder; with `variant`, those of the recipes `name+variant`.

    >>> found = published_table("komisarenko2024", "1", "/nowhere")
    >>> len(found.rows), {row.status for row in found.rows}
    (108, {'not run'})
    """
    numbers = published_numbers(paper, table)
    names = {number.recipe: number.recipe + (f"+{variant}" if variant else "") for number in numbers}
    if variant and not any(name in catalog() for name in names.values()):
        raise InputError(f"variant: must be one of a recipe of {paper} Table {table}; got {variant!r}.")
    runs: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in read_runs(runs_folder):
        if run.result.recipe in names.values():
            runs.setdefault((run.result.recipe, run.result.method), []).append(run)
    rows = [_row(number, names[number.recipe], runs) for number in numbers]
    used = {(names[number.recipe], number.method) for number in numbers}
    count = sum(len(runs.get(key, ())) for key in used)
    measured = sum(row.status == "measured" for row in rows)
    return PublishedTable(paper, table, variant, str(runs_folder), rows, count, measured)


def read_runs(folder: str | Path) -> list[FinishedRun]:
    """Every finished run below a folder, by its path; one that is not finished has no `results.json` yet.

    >>> read_runs("/nowhere")
    []
    """
    return [FinishedRun(str(path.parent), read_result(path)) for path in sorted(Path(folder).rglob("results.json"))]


def _row(number: PublishedNumber, recipe: str, runs: dict[tuple[str, str], list[FinishedRun]]) -> PublishedTableRow:
    chosen = runs.get((recipe, number.method), [])
    apart = _why_apart(chosen)
    values = [] if apart else _values(number, chosen)
    numbers = [each.value * number.scale for each in values]
    temperatures = [each.temperature for each in values if each.temperature is not None]
    mean = fmean(numbers) if numbers else None
    return PublishedTableRow(
        dataset=number.dataset,
        model=number.model,
        method=number.method,
        phase=number.phase,
        metric=number.metric,
        against=number.against,
        recipe=recipe,
        published=number.value,
        published_std=number.std,
        published_temperature=number.temperature,
        measured=mean,
        std=stdev(numbers) if len(numbers) > 1 else None,
        seeds=len(numbers),
        difference=None if mean is None else mean - number.value,
        temperature=fmean(temperatures) if temperatures else None,
        status="not averaged" if apart else "measured" if numbers else "not run",
        note=apart or _note(number, recipe, chosen, values),
        published_note=number.note,
    )


def _values(number: PublishedNumber, runs: Sequence[FinishedRun]) -> list[MeasuredNumber]:
    """The measured numbers of the cell, one per seed."""
    by_seed = {
        run.result.seed: row
        for run in runs
        for row in run.result.rows
        if (row.phase, row.metric, row.against) == (number.phase, number.metric, number.against)
        and math.isfinite(row.value)
    }
    return [by_seed[seed] for seed in sorted(by_seed)]


def _why_apart(runs: Sequence[FinishedRun]) -> str:
    """Why runs of one cell must not be averaged: unlike recipes, lengths or data, or one seed with two answers."""
    for words, kind_of in _KINDS.items():
        kinds: dict[str, list[str]] = {}
        for run in runs:
            kinds.setdefault(kind_of(run.result), []).append(run.folder)
        if len(kinds) > 1:
            said = "; ".join(f"{kind}: {', '.join(paths)}" for kind, paths in kinds.items())
            return f"The runs differ in {words} ({said})."
    seeds: dict[int, FinishedRun] = {}
    for run in runs:
        first = seeds.setdefault(run.result.seed, run)
        if first.result.rows != run.result.rows:
            return f"Seed {run.result.seed} was run twice with different results ({first.folder}, {run.folder})."
    return ""


# In what the runs of a cell must agree.
_KINDS: dict[str, Callable[[RunResult], str]] = {
    "the recipe": lambda result: result.digest,
    "epochs": lambda result: str(result.epochs),
    "the size of the splits": lambda result: f"{result.num_train}/{result.num_val}/{result.num_test}",
}


def _note(number: PublishedNumber, recipe: str, runs: Sequence[FinishedRun], values: Sequence[MeasuredNumber]) -> str:
    """What a reader of the cell should know: another recipe or other data than the paper's, or no such number."""
    if not runs:
        return ""
    first = runs[0].result
    known = catalog().get(recipe)
    said = []
    if known is not None and first.digest != (shipped := known.digest(first.method)):
        said.append(f"The recipe of these runs was changed (digest {first.digest}, as it ships {shipped}).")
    if known is not None and first.epochs != known.training.epochs:
        said.append(f"Trained for {first.epochs} of {known.training.epochs} epochs.")
    sizes = (first.num_train, first.num_val, first.num_test)
    if known is not None and sizes != (printed := PAPER_SPLITS.get(known.data.name, sizes)):
        mine, theirs = ("/".join(f"{size:,}" for size in each) for each in (sizes, printed))
        said.append(f"Splits of {mine} rows, not the paper's {theirs}.")
    if not values:
        said.append(f"The runs did not measure {number.metric} in phase {number.phase}.")
    return " ".join(said)
