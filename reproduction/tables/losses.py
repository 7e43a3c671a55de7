"""Tables of docs/results/losses.md: every loss as trained and after temperature scaling."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import fmean

from scipy.stats import spearmanr

from reproduction.labels import IMAGES, MEASURES, PHASES, TEXT, TRAINED, measure_name, method_name
from reproduction.markdown import MarkdownTable, best_in_bold, by_row, spread, table
from reproduction.recipe_numbers import RecipeNumbers, Results

# The losses whose temperatures the papers report, and where T by ECE lies there: mukhoti2020, Sec. 5.1 (Brier and LS:
# near 1), and for AdaFocal ghosh2022, Table 1.
_FAMILIES = {
    "cross-entropy, MMCE": (("ce", "mmce"), 2.0, 2.8),
    "Brier, LS": (("brier", "ls-0.05", "ls-0.1"), 0.9, 1.1),
    "FLSD-53": (("flsd-53",), 0.9, 1.1),
    "AdaFocal": (("adafocal", "adafocal-10"), 0.96, 1.1),
}
# The losses that ghosh2022, Figs. 16 and 17, follow along the epochs.
FOLLOWED = ("ce", "flsd-53", "adafocal", "adafocal-10")


@table("losses.trained", *TRAINED)
def as_trained(numbers: RecipeNumbers) -> MarkdownTable:
    """All losses before any calibrator."""
    names = ("error", "nll", "ece_ew", "ece_em", "ece_debias")
    columns = [
        best_in_bold([numbers.values(each, name) for each in numbers.methods], MEASURES[name][2]) for name in names
    ]
    columns.append([spread(numbers.values(each, "s99_fraction"), 1) for each in numbers.methods])
    headings = ["loss", *(MEASURES[name][0] for name in (*names, "s99_fraction"))]
    return MarkdownTable(headings, by_row([*map(method_name, numbers.methods)], columns))


@table("losses.scaled", *TRAINED)
def scaled(numbers: RecipeNumbers) -> MarkdownTable:
    """All losses after temperature scaling by NLL and by ECE, with the fitted temperatures."""
    headings, columns = ["loss"], []
    for phase, name in (("ts-nll", "NLL"), ("post", "ECE")):
        headings += [f"ECE after T by {name}, %", f"T by {name}"]
        columns.append(best_in_bold([numbers.values(each, "ece_ew", phase) for each in numbers.methods]))
        columns.append([spread(numbers.temperatures(each, phase)) for each in numbers.methods])
    return MarkdownTable(headings, by_row([*map(method_name, numbers.methods)], columns))


def _temperatures(results: Results, recipes: tuple[str, ...]) -> MarkdownTable:
    """Where T by ECE lies, by family of losses."""
    found, rows = [results[name] for name in recipes], []
    for family, (methods, low, high) in _FAMILIES.items():
        fitted = [[t for each in methods if each in one.methods for t in one.temperatures(each)] for one in found]
        every = [t for column in fitted for t in column]
        shown = [f"{fmean(ts):.2f} ({min(ts):.2f} to {max(ts):.2f})" if ts else "" for ts in fitted]
        within = sum(low <= t <= high for t in every)
        rows.append([family, *shown, f"{low:g} to {high:g}", f"{within} of {len(every)}"])
    return MarkdownTable(["losses", *(one.title for one in found), "papers", "runs within"], rows)


table("losses.temperatures.images")(partial(_temperatures, recipes=IMAGES))
table("losses.temperatures.text")(partial(_temperatures, recipes=TEXT))


@table("losses.agreement")
def agreement(results: Results) -> MarkdownTable:
    """Whether other measures of calibration rank the losses as ECE does."""
    rivals = ("ece_em", "ece_debias", "ece_sweep_em")
    rows = []
    for name in TRAINED:
        for phase in ("pre", "ts-nll"):
            own, *others = (results[name].means(measure, phase) for measure in ("ece_ew", *rivals))
            lowest = {min(means, key=means.__getitem__) for means in (own, *others)}
            correlations = [f"{rank_correlation(own, other):.2f}" for other in others]
            rows.append([results[name].title, PHASES[phase], *correlations, "yes" if len(lowest) == 1 else "no"])
    return MarkdownTable(["experiment", "phase", *map(measure_name, rivals), "same loss lowest"], rows, words=2)


def rank_correlation(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Spearman's correlation between two rankings, to the digits that are the same on every machine.

    >>> rank_correlation({"a": 1, "b": 2, "c": 3}, {"a": 5, "b": 4, "c": 3})
    -1.0
    """
    return round(float(spearmanr(list(first.values()), [second[name] for name in first]).statistic), 6)


@table("losses.order")
def order(results: Results) -> MarkdownTable:
    """What temperature scaling leaves of the differences between losses."""
    rows = []
    for name in TRAINED:
        before, by_nll, by_ece = (results[name].means("ece_ew", phase) for phase in ("pre", "ts-nll", "post"))
        spans = [f"{min(each.values()):.2f} to {max(each.values()):.2f}" for each in (before, by_nll, by_ece)]
        correlations = [f"{rank_correlation(before, after):.2f}" for after in (by_nll, by_ece)]
        rows.append([results[name].title, *spans, *correlations])
    headings = ["experiment", "ECE as trained, %", "after TS by NLL, %", "after TS by ECE, %"]
    return MarkdownTable([*headings, "rank correlation, TS by NLL", "rank correlation, TS by ECE"], rows)


@table("losses.updates")
def updates(results: Results) -> MarkdownTable:
    """AdaFocal with one and with many updates per epoch, at the end and along the epochs."""
    rows = []
    for numbers in (results[name] for name in TEXT):
        for method in FOLLOWED:
            curves = [[100 * value for value in run.dynamics["test_ece"]] for run in numbers.runs(method)]
            columns = (
                numbers.values(method, "ece_ew"),
                [c[-1] for c in curves],
                [*map(fmean, curves)],
                [*map(max, curves)],
            )
            rows.append([numbers.title, method_name(method), *map(spread, columns)])
    headings = ["experiment", "loss", "network kept", "last epoch", "mean over epochs", "worst epoch"]
    return MarkdownTable(headings, rows, words=2)
