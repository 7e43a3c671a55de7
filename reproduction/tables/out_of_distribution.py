"""Tables of docs/results/out_of_distribution.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any

from reproduction.labels import IMAGES, method_name
from reproduction.markdown import MarkdownTable, best_in_bold, by_row, spread, table
from reproduction.recipe_numbers import RecipeNumbers, Results

SETS = {"cifar100": "CIFAR-100", "mnist": "MNIST", "cifar10-noise": "noise"}


def detection(numbers: RecipeNumbers, method: str, name: str, phase: str = "pre", metric: str = "auroc") -> list[float]:
    """A measure of detection of a set by entropy, in percent, of every seed."""
    return [100 * run.foreign[name][phase][metric] for run in numbers.runs(method)]


@table("ood.sets")
def sets(results: Results) -> MarkdownTable:
    """AUROC of all runs against each set, and how far temperature scaling moves it."""
    rows = []
    for name, shown in SETS.items():
        before, after = (
            [
                value
                for each in IMAGES
                for m in results[each].methods
                for value in detection(results[each], m, name, phase)
            ]
            for phase in ("pre", "post")
        )
        moved = [abs(one - other) for one, other in zip(before, after, strict=True)]
        ends = [f"{value:.1f}" for value in (fmean(before), min(before), max(before))]
        below = f"{sum(value < 50 for value in before)} of {len(before)}"
        rows.append([shown, *ends, below, f"{fmean(moved):.2f}", f"{max(moved):.2f}"])
    headings = ["set", "mean AUROC, %", "lowest", "highest", "runs below 50 %", "mean change by TS", "largest"]
    return MarkdownTable(headings, rows)


@table("ood.best")
def best(results: Results) -> MarkdownTable:
    """The losses with the highest and the lowest AUROC before scaling."""
    rows = []
    for numbers in (results[each] for each in IMAGES):
        for name, shown in SETS.items():
            values = {method: detection(numbers, method, name) for method in numbers.methods}
            first, second, *_, last = sorted(values, key=lambda method: -fmean(values[method]))
            cells = [f"{method_name(method)}, {spread(values[method], 1)}" for method in (first, second, last)]
            rows.append([numbers.title, shown, *cells])
    return MarkdownTable(["trained on", "set", "highest AUROC, %", "second", "lowest"], rows, words=2)


def _by_loss(numbers: RecipeNumbers, metric: str, best: Callable[..., Any]) -> MarkdownTable:
    """A measure of detection by entropy for every loss and set, before and after temperature scaling."""
    columns = [
        best_in_bold([detection(numbers, each, name, phase, metric) for each in numbers.methods], 1, best=best)
        for name in SETS
        for phase in ("pre", "post")
    ]
    headings = ["loss", *(f"{shown}{suffix}" for shown in SETS.values() for suffix in ("", ", TS"))]
    return MarkdownTable(headings, by_row([*map(method_name, numbers.methods)], columns))


table("ood.auroc", *IMAGES)(partial(_by_loss, metric="auroc", best=max))
table("ood.fpr95", *IMAGES)(partial(_by_loss, metric="fpr95", best=min))


@table("ood.adafocal")
def adafocal(results: Results) -> MarkdownTable:
    """AdaFocal against two focal losses of the same recipe, set and seed."""
    values = {
        method: [v for each in IMAGES for name in SETS for v in detection(results[each], method, name)]
        for method in ("adafocal", "fl-3", "flsd-53")
    }
    own = values.pop("adafocal")
    rows = []
    for method, others in values.items():
        higher = sum(a > b for a, b in zip(own, others, strict=True))
        rows.append([method_name(method), f"{higher} of {len(own)}", f"{fmean(own):.1f}", f"{fmean(others):.1f}"])
    return MarkdownTable(["against", "AdaFocal is higher", "AdaFocal, mean AUROC, %", "other, mean AUROC, %"], rows)
