"""The published numbers of the papers' tables, each with the recipe, method, phase and measure that reproduce it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from focalcal.errors import InputError
from focalcal_lab.catalog import catalog
from focalcal_lab.papers import published_results
from focalcal_lab.recipe import Recipe

__all__ = ["PublishedNumber", "measured_by", "numbers_of", "published_numbers", "published_tables"]

# Measures that the papers do not print in percent.
_PRINTED_AS_THEY_ARE = ("log_loss", "bleu")


@dataclass(frozen=True)
class PublishedNumber:
    """A number of a paper's table, as it is printed, and where a run has it.

    A run's `value` times `scale` is in the unit of the table: percent nearly everywhere, NLL times 100. `dataset` and
    `model` are the table's; `against` is the set out of distribution, which is the `dataset` of ghosh2022 Table 8.
    `temperature` and `gamma_ev` are the optimum where the table prints it, `std` the spread over the paper's own runs.

    >>> number = published_numbers("ghosh2022", "7")[0]
    >>> number.paper, number.dataset, number.metric, number.scale
    ('ghosh2022', 'cifar10', 'ece_ew', 100.0)
    """

    paper: str
    table: str
    dataset: str
    model: str
    recipe: str
    method: str
    phase: str
    metric: str
    against: str
    value: float
    scale: float
    std: float | None
    temperature: float | None
    gamma_ev: float | None
    note: str


def published_numbers(paper: str | None = None, table: str | None = None) -> list[PublishedNumber]:
    """Every published number, or those of a paper or of one of its tables, in the order of the tables.

    >>> number = published_numbers("ghosh2022", "7")[1]
    >>> number.recipe, number.method, number.metric, number.value
    ('ghosh2022/cifar10-resnet50', 'adafocal-5bins', 'ece_ew', 0.76)
    """
    tables = published_tables()
    if paper is not None and paper not in tables:
        raise InputError(f"paper: must be one with a table of results: {', '.join(tables)}; got {paper!r}.")
    if paper is not None and table is not None and table not in tables[paper]:
        raise InputError(f"table: must be one of {', '.join(tables[paper])} of {paper}; got {table!r}.")
    return [each for each in _all() if paper in (None, each.paper) and table in (None, each.table)]


def published_tables() -> dict[str, list[str]]:
    """The numbers of each paper's tables of results.

    >>> published_tables()["komisarenko2024"]
    ['1']
    """
    tables: dict[str, list[str]] = {}
    for each in _all():
        numbers = tables.setdefault(each.paper, [])
        if each.table not in numbers:
            numbers.append(each.table)
    return {paper: sorted(numbers, key=int) for paper, numbers in tables.items()}


def numbers_of(recipe: Recipe) -> list[PublishedNumber]:
    """What is published of a recipe; of a variant, what is published of the recipe that it varies.

    >>> len(numbers_of(catalog()["mukhoti2020/wmt14-en-de-transformer"]))
    12
    """
    name = recipe.name.partition("+")[0] if recipe.published else recipe.name
    return [each for each in _all() if each.recipe == name]


def measured_by(recipe: Recipe) -> set[tuple[str, str, str]]:
    """Every (phase, metric, against) that a run of the recipe measures.

    >>> ("post", "bleu", "") in measured_by(catalog()["mukhoti2020/wmt14-en-de-transformer"])
    True
    """
    from focalcal_lab.measurement import MEASURES, UNSCALED

    plan = recipe.measurement
    after = {wish.phase for wish in plan.calibrators}
    if recipe.task == "translation":
        return {(phase, metric, "") for phase in {"pre", *after} for metric in ("ece_ew", "nll", "bleu")}
    found = {("pre", metric, "") for metric in MEASURES}
    scaled = [metric for metric in MEASURES if metric not in UNSCALED]
    for wish in plan.calibrators:
        found |= {(wish.phase, metric, "") for metric in wish.metrics or scaled}
    phases = {"pre", "post"} if "post" in after else {"pre"}
    sets = [each.name for each in plan.out_of_distribution]
    return found | {(phase, metric, name) for name in sets for phase in phases for metric in ("auroc", "fpr95")}


@cache
def _all() -> tuple[PublishedNumber, ...]:
    named = _named(catalog().values())
    return tuple(_join(row, named) for row in published_results())


def _named(recipes: Iterable[Recipe]) -> dict[tuple[str, str, str], str]:
    """The recipes by paper, dataset and model, but their variants."""
    return {
        (recipe.paper or "", recipe.published["dataset"], recipe.published["model"]): recipe.name
        for recipe in recipes
        if recipe.published and "+" not in recipe.name
    }


def _join(row: dict[str, str], named: dict[tuple[str, str, str], str]) -> PublishedNumber:
    """A line of `published_results.csv` in the words of the recipes."""
    foreign = row["note"].startswith("out-of-distribution set")
    trained_on = "cifar10" if foreign else row["dataset"]
    method, _, fts = row["method"].partition("+")
    if bins := re.search(r"AdaFocal trained with (\d+) bins", row["note"]):
        method = "adafocal" if bins.group(1) == "15" else f"adafocal-{bins.group(1)}bins"
    metric = row["metric"] + ("_30" if "30 evaluation bins" in row["note"] else "")
    return PublishedNumber(
        paper=row["paper"],
        table=row["table"],
        dataset=row["dataset"],
        model=row["model"],
        recipe=named[row["paper"], trained_on, row["model"]],
        method=method,
        # What no calibrator changes is measured before it.
        phase="pre" if not row["phase"] else fts or row["phase"],
        metric=metric,
        against=row["dataset"] if foreign else "",
        value=float(row["value"]),
        scale=1.0 if metric in _PRINTED_AS_THEY_ARE else 100.0,
        std=_number(row["std"]),
        temperature=_number(row["temperature"]),
        gamma_ev=_number(row["gamma_ev"]),
        note=row["note"],
    )


def _number(text: str) -> float | None:
    return float(text) if text else None
