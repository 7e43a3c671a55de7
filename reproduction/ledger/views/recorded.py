"""Views of claims about trained networks: the numbers a verdict rests on, toy problems, settings, published tables."""

from __future__ import annotations

import re
from functools import cache
from statistics import fmean

from focalcal.errors import MissingExtraError
from focalcal_lab.papers import published_results
from reproduction.labels import method_name
from reproduction.ledger.braille import bars
from reproduction.ledger.build import decided_by
from reproduction.ledger.entry import Entry
from reproduction.ledger.views.view import View
from reproduction.ledger.watch import Reading, Watch
from reproduction.result_files import Evidence, recorded


def readings(entry: Entry) -> list[View]:
    """What the claim's check read in the result files: one table a recipe, by method and seed."""
    trend = decided_by(entry.id)
    assert trend is not None
    watch = Watch()
    trend.of(_evidence(), watch)
    found = list(watch.readings.values())
    views = [_table(recipe, [each for each in found if each.recipe == recipe]) for recipe in entry.recipes]
    return [view for view in views if view.rows] or [_runs(watch)]


@cache
def _evidence() -> dict[str, Evidence]:
    return recorded()


def _table(recipe: str, found: list[Reading]) -> View:
    seeds = sorted({seed for each in found for seed in each.values})
    curves = any(each.curve for each in found)
    heads = ("method", "number", "mean", *(f"seed {seed}" for seed in seeds), *(["over training"] if curves else []))
    rows = tuple(
        (
            method_name(each.method),
            each.what,
            f"{fmean(each.values.values()):.{each.digits}f}",
            *(f"{each.values[seed]:.{each.digits}f}" if seed in each.values else "" for seed in seeds),
            *([bars(each.curve) if each.curve else ""] if curves else []),
        )
        for each in found
        if each.values
    )
    return View(recipe, heads, rows, words=2)


def _runs(watch: Watch) -> View:
    """The runs that were read, where a check reads them by itself."""
    pairs = sorted({(recipe, method) for recipe, method, _ in watch.runs})
    rows = tuple(
        (
            recipe,
            method_name(method),
            ", ".join(str(seed) for r, m, seed in sorted(watch.runs) if (r, m) == (recipe, method)),
        )
        for recipe, method in pairs
    )
    return View("Runs that were read", ("recipe", "method", "seeds"), rows, words=2)


def linear() -> list[View]:
    """The linear problem, solved now."""
    from focalcal_lab.problems import linear_problem
    from reproduction.toy_problems import linear_table

    return [
        _of_markdown(
            "Four clusters, a linear model; in brackets the limit of endless data", linear_table(linear_problem())
        )
    ]


def one_dimensional() -> list[View]:
    """The limits of the one-dimensional problem, by integrals."""
    from focalcal_lab.data.synthetic import one_dimensional as made
    from focalcal_lab.problems import one_dimensional_limits

    mixture = made(train_size=1, val_size=1, test_size=1).facts["mixture"]
    rows = tuple(
        (
            f"FL-{each.gamma:g}" if each.gamma else "CE",
            {"raw": "as trained", "temperature": "TS by NLL", "focal-map": "Ψ"}[each.step],
            "" if each.temperature is None else f"{each.temperature:.3f}",
            f"{100 * each.error:.2f} %",
            f"{each.kl:.4f}",
            f"{100 * each.ece:.2f} %",
        )
        for each in one_dimensional_limits(mixture, [0.0, 1.0, 5.0])
    )
    heads = ("loss", "outputs", "T", "error", "KL to the posterior", "ECE")
    return [View("Three classes on a line: what training tends to", heads, rows, words=2)]


def _of_markdown(title: str, text: str) -> View:
    lines = [tuple(cell.strip() for cell in line.strip().strip("|").split("|")) for line in text.strip().splitlines()]
    return View(title, lines[0], tuple(lines[2:]))


def settings(entry: Entry) -> list[View]:
    """The settings of the claim's recipe; nothing where PyYAML is missing, which reads recipes."""
    from focalcal_lab.catalog import find_recipe

    try:
        recipe = find_recipe(entry.recipes[0])
    except MissingExtraError:
        return []
    training, optimizer = recipe.training, recipe.training.optimizer
    rows = (
        ("data", " ".join([recipe.data.name, *(f"{k}={v}" for k, v in recipe.data.options.items())])),
        ("network", recipe.model.name),
        ("methods", ", ".join(recipe.methods)),
        ("epochs", f"{training.epochs}, batches of {training.batch_size}, {training.select} epoch measured"),
        ("optimiser", f"{optimizer.name}, learning rate {optimizer.lr:g}, weight decay {optimizer.weight_decay:g}"),
        (
            "learning rate",
            f"times {training.lr_factor:g} after {training.milestones} epochs" if training.milestones else "constant",
        ),
        ("run it by", f"focalcal lab run {recipe.name}"),
    )
    return [View(f"Recipe {recipe.name}", ("what", "setting"), rows, words=2)]


def published(entry: Entry) -> list[View]:
    """The rows of the paper's table that the claim is about, at most twelve."""
    match = re.search(r"Tables? (\d+)", entry.where)
    if not match:
        return []
    rows = [row for row in published_results() if (row["paper"], row["table"]) == (entry.paper, match.group(1))]
    columns = list(dict.fromkeys((row["method"], row["phase"], row["metric"]) for row in rows))[:5]
    places = list(dict.fromkeys((row["dataset"], row["model"]) for row in rows))[:12]
    values = {(row["dataset"], row["model"], row["method"], row["phase"], row["metric"]): row["value"] for row in rows}
    heads = ("data", "network", *(" ".join(part for part in each if part) for each in columns))
    table = tuple((*place, *(values.get((*place, *each), "") for each in columns)) for place in places)
    title = f"Printed in Table {match.group(1)} (the first {len(columns)} columns)"
    return [View(title, heads, table, words=2)] if table else []
