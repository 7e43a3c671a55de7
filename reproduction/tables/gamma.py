"""Tables of docs/results/gamma.md: the best training gamma, the map Psi^gamma, and the gamma that is suggested."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean

from reproduction.labels import IMAGES, MEASURES, PHASES
from reproduction.markdown import MarkdownTable, best_in_bold, by_row, table
from reproduction.recipe_numbers import RecipeNumbers, Results

_MAPS = ("psi", "ts-fl", "ts-fl+psi")


def eces(numbers: RecipeNumbers, gamma: float, phase: str = "pre") -> list[float]:
    """ECE of every seed of a gamma; of cross-entropy, Psi^gamma changes nothing and TS_FL is temperature scaling."""
    if gamma == 0:
        phase = {"psi": "pre", "ts-fl+psi": "ts-fl"}.get(phase, phase)
    return numbers.values(numbers.gammas[gamma], "ece_ew", phase)


def _changes(numbers: RecipeNumbers, methods: list[str], phase: str) -> tuple[str, int, int, int]:
    """The mean change of ECE by a map in points; how many runs are significantly better, worse, and there."""
    pairs = numbers.pairs(f"{phase} - pre", "ece_ew", methods)
    mean = f"{100 * fmean(pair[0] for pair in pairs):+.2f}"
    return mean, sum(pair[2] < 0 for pair in pairs), sum(pair[1] > 0 for pair in pairs), len(pairs)


@table("gamma.maps", *IMAGES)
def maps(numbers: RecipeNumbers) -> MarkdownTable:
    """ECE by training gamma, before and after the maps."""
    gammas = numbers.gammas
    columns = [best_in_bold([eces(numbers, gamma, phase) for gamma in gammas]) for phase in ("pre", *_MAPS)]
    changes = [_changes(numbers, [method], "psi") if gamma else None for gamma, method in gammas.items()]
    columns.append([each[0] if each else "" for each in changes])
    columns.append([f"{each[1]}, {each[2]} of {each[3]}" if each else "" for each in changes])
    headings = [
        "gamma",
        *(PHASES[phase] for phase in ("pre", *_MAPS)),
        "Psi^gamma - as trained, points",
        "better, worse",
    ]
    return MarkdownTable(headings, by_row([f"{gamma:g}" for gamma in gammas], columns), words=0)


@table("gamma.changes")
def changes_by_maps(results: Results) -> MarkdownTable:
    """What each map does to the ECE of all runs with a focal loss."""
    rows = []
    for numbers in (results[name] for name in IMAGES):
        focal = [method for gamma, method in numbers.gammas.items() if gamma > 0]
        for phase in _MAPS:
            mean, *counts = _changes(numbers, focal, phase)
            rows.append([numbers.title, PHASES[phase], mean, *map(str, counts)])
    return MarkdownTable(["experiment", "map", "mean change, points", "better", "worse", "runs"], rows, words=2)


@table("gamma.best")
def best_gammas(results: Results) -> MarkdownTable:
    """The gamma with the lowest ECE, of those that all recipes have and of all that were tried."""
    found = [results[name] for name in IMAGES]
    common = [gamma for gamma in found[0].gammas if all(gamma in each.gammas for each in found)]
    span = f"{common[0]:g} to {common[-1]:g}"
    headings = ["experiment", "epochs, steps", f"best gamma of {span}", "in each seed", "of all tried"]
    headings += [f"after Psi^gamma, of {span}", "mean change by Psi^gamma, points"]
    return MarkdownTable(headings, [_best_row(numbers, common) for numbers in found])


def _best_row(numbers: RecipeNumbers, common: list[float]) -> list[str]:
    training, gammas = numbers.evidence.recipe["training"], list(numbers.gammas)
    steps = training["epochs"] * math.ceil(numbers.sizes[0] / training["batch_size"])
    by_seed = zip(*(eces(numbers, gamma) for gamma in common), strict=True)
    seeds = [f"{common[values.index(min(values))]:g}" for values in by_seed]
    raw, mapped = (min(common, key=lambda gamma: fmean(eces(numbers, gamma, phase))) for phase in ("pre", "psi"))
    of_all = min(gammas, key=lambda gamma: fmean(eces(numbers, gamma)))
    change = fmean(
        100 * fmean(pair[0] for pair in numbers.pairs("psi - pre", "ece_ew", [numbers.gammas[gamma]]))
        for gamma in common
        if gamma > 0
    )
    tried = f"{of_all:g} of {gammas[0]:g} to {gammas[-1]:g}"
    length = f"{training['epochs']}, {steps:,}"
    return [numbers.title, length, f"{raw:g}", ", ".join(seeds), tried, f"{mapped:g}", f"{change:+.2f}"]


def suggestions(numbers: RecipeNumbers) -> dict[int, float]:
    """The gamma that each cross-entropy run suggests, by seed."""
    return {run.seed: run.extra["suggested_gamma"] for run in numbers.runs("ce")}


@table("gamma.suggested")
def suggested(results: Results) -> MarkdownTable:
    """Where the mean suggestion falls in the sweep of trained gammas, by four measures."""
    rows = []
    for numbers in (results[name] for name in IMAGES):
        mean = fmean(suggestions(numbers).values())
        nearest = min(numbers.gammas, key=lambda gamma: abs(gamma - mean))
        for measure in ("ece_ew", "ece_em", "nll", "error"):
            heading, _, digits = MEASURES[measure]
            means = {gamma: numbers.mean(method, measure) for gamma, method in numbers.gammas.items()}
            best, rank = min(means, key=means.__getitem__), 1 + sum(each < means[nearest] for each in means.values())
            between = _interpolated(means, mean)
            values = [means[best], means[nearest], means[nearest] - means[best]]
            shown = [f"{value:.{digits}f}" for value in values]
            places = [f"{mean:.2f}", f"{nearest:g}", f"{best:g}"]
            last = [f"{rank} of {len(means)}", "" if between is None else f"{between:.{digits}f}"]
            rows.append([numbers.title, heading, *places, *shown, *last])
    headings = ["experiment", "by", "suggested", "nearest gamma", "best gamma", "best", "at nearest", "above best"]
    return MarkdownTable([*headings, "rank", "at suggestion"], rows, words=2)


def _interpolated(points: dict[float, float], wanted: float) -> float | None:
    """The value at a gamma on the straight line between its neighbours; None outside.

    >>> _interpolated({0.0: 8.0, 2.0: 4.0}, 0.5), _interpolated({0.0: 8.0, 2.0: 4.0}, 3.0)
    (7.0, None)
    """
    for (left, low), (right, high) in pairwise(points.items()):
        if left <= wanted <= right:
            return low + (high - low) * (wanted - left) / (right - left)
    return None


@table("gamma.seeds")
def by_seed(results: Results) -> MarkdownTable:
    """What each cross-entropy run suggests, and what the trained gamma nearest to it gives."""
    rows = []
    for numbers in (results[name] for name in IMAGES):
        temperatures = numbers.temperatures("ce", "ts-nll")
        for place, (seed, gamma) in enumerate(suggestions(numbers).items()):
            ece = {each: eces(numbers, each)[place] for each in numbers.gammas}
            nearest, best = min(ece, key=lambda each: abs(each - gamma)), min(ece, key=ece.__getitem__)
            shown = [f"{nearest:g}", f"{ece[nearest]:.2f}", f"{best:g}", f"{ece[best]:.2f}"]
            rows.append([numbers.title, f"{seed}", f"{temperatures[place]:.2f}", f"{gamma:.2f}", *shown])
    headings = ["experiment", "seed", "T of CE by NLL", "suggested", "nearest", "its ECE, %", "best", "lowest ECE, %"]
    return MarkdownTable(headings, rows, words=2)
