"""Tables of docs/results/dynamics.md: what changes during training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import correlation, fmean

from reproduction.labels import LITTLE, LITTLE_20, method_name
from reproduction.markdown import MarkdownTable, spread, table
from reproduction.recipe_numbers import RecipeNumbers
from reproduction.result_files import RunEvidence

MONITORED = (LITTLE, LITTLE_20)
# The losses that the papers plot together: gamma 0 to 3, and all.
GAMMAS = ("ce", "fl-1", "fl-2", "fl-3")
LOSSES = (*GAMMAS, "flsd-53", "adafocal")
# Series: heading, factor to the unit of tables, digits.
_SERIES = {
    "train_nll": ("train NLL", 1, 3),
    "test_nll": ("test NLL", 1, 3),
    "test_nll_correct": ("test NLL, correct rows", 1, 3),
    "test_nll_wrong": ("test NLL, wrong rows", 1, 3),
    "test_entropy_correct": ("entropy, correct rows", 1, 3),
    "test_entropy_wrong": ("entropy, wrong rows", 1, 3),
    "test_ece": ("test ECE, %", 100, 2),
}


@table("dynamics.cross_entropy", *MONITORED)
def cross_entropy(numbers: RecipeNumbers) -> MarkdownTable:
    """Series of cross-entropy before and after the first drop of the learning rate."""
    rows = []
    for name, (heading, factor, digits) in _SERIES.items():
        series = [[factor * value for value in run.dynamics[name]] for run in numbers.runs("ce")]
        columns = [[each[place] for each in series] for place in (0, numbers.drop - 1, numbers.drop, -1)]
        rising = sum(each[-1] > each[numbers.drop] for each in series)
        rows.append([heading, *(spread(column, digits) for column in columns), f"{rising} of {len(series)} runs"])
    headings = [
        "cross-entropy",
        "first record",
        "last before the drop",
        "first after it",
        "last record",
        "rises after it",
    ]
    return MarkdownTable(headings, rows)


@table("dynamics.focal", *MONITORED)
def focal(numbers: RecipeNumbers) -> MarkdownTable:
    """Cross-entropy and focal loss at the last record, and the rise since the drop."""
    rows = []
    for method in GAMMAS:
        last, rise = {}, {}
        for name in ("test_nll", "test_nll_wrong", "test_nll_correct", "test_entropy_wrong"):
            series = [run.dynamics[name] for run in numbers.runs(method)]
            last[name] = [each[-1] for each in series]
            rise[name] = [each[-1] - each[numbers.drop] for each in series]
        columns = [last["test_nll"], rise["test_nll"], last["test_nll_wrong"], rise["test_nll_wrong"]]
        columns += [last["test_nll_correct"], last["test_entropy_wrong"]]
        rows.append([method_name(method), *(spread(column, 3) for column in columns)])
    headings = ["loss", "test NLL", "its rise", "wrong rows", "their rise", "correct rows", "entropy, wrong"]
    return MarkdownTable(headings, rows)


@table("dynamics.norms", *MONITORED)
def norms(numbers: RecipeNumbers) -> MarkdownTable:
    """Norms of weights, features and gradients, and the training rows in the top bin of confidence."""
    columns = {
        "weights, first": ("weight_norm", 0, 1, 2),
        "weights, last": ("weight_norm", -1, 1, 2),
        "features, first": ("feature_norm", 0, 1, 2),
        "features, last": ("feature_norm", -1, 1, 2),
        "gradient, last": ("gradient_norm", -1, 1, 3),
        "top bin, %": ("train_top_share", -1, 100, 1),
    }
    rows = [
        [
            method_name(method),
            *(
                spread([factor * run.dynamics[name][place] for run in numbers.runs(method)], digits)
                for name, place, factor, digits in columns.values()
            ),
        ]
        for method in LOSSES
    ]
    return MarkdownTable(["loss", *columns], rows)


def _points(run: RunEvidence) -> list[tuple[int, float, float]]:
    """Bin, training confidence of the true class and validation confidence, where the bin has training rows."""
    bins = run.dynamics["bins"]
    return [
        (place, train, val)
        for record in zip(bins["train_true"], bins["val_confidence"], strict=True)
        for place, (train, val) in enumerate(zip(*record, strict=True))
        if train
    ]


def _within_bins(points: Sequence[tuple[int, float, float]]) -> list[tuple[float, float]]:
    """Both confidences without the mean of their bin: the change over epochs is left."""
    means = {
        place: [fmean(values) for values in zip(*(each[1:] for each in points if each[0] == place), strict=True)]
        for place in {point[0] for point in points}
    }
    return [(train - means[place][0], val - means[place][1]) for place, train, val in points]


@table("dynamics.confidence", *MONITORED)
def confidence(numbers: RecipeNumbers) -> MarkdownTable:
    """How training and validation confidence of the same bins go together."""
    rows = []
    for method in ("ce", "fl-3", "flsd-53", "adafocal"):
        runs = numbers.runs(method)
        found = [_points(run) for run in runs]
        overall = [correlation(*zip(*(each[1:] for each in points), strict=True)) for points in found]
        within = [correlation(*zip(*_within_bins(points), strict=True)) for points in found]
        gaps = [100 * fmean(val - train for _, train, val in points) for points in found]
        empty = sum(value == 0 for run in runs for record in run.dynamics["bins"]["train_true"] for value in record)
        rows.append([method_name(method), spread(overall), spread(within), spread(gaps, 1), str(empty)])
    return MarkdownTable(["loss", "correlation", "within bins", "validation - training, points", "empty bins"], rows)


@table("dynamics.gamma", *MONITORED)
def gamma(numbers: RecipeNumbers) -> MarkdownTable:
    """AdaFocal's gammas at the last record."""
    gammas = [run.dynamics["bins"]["gamma"][-1] for run in numbers.runs("adafocal")]
    shown = (0, 4, 7, 10, 14)
    every = [each for values in gammas for each in values]
    cells = [spread([values[place] for values in gammas]) for place in shown]
    headings = ["AdaFocal, last record", *(f"bin {place}" for place in shown), "least of all bins", "greatest"]
    return MarkdownTable(headings, [["gamma", *cells, f"{min(every):.2f}", f"{max(every):.2f}"]])


@table("dynamics.learned", *MONITORED)
def learned(numbers: RecipeNumbers) -> MarkdownTable:
    """The mean largest logit of training rows by the epoch since which they are right."""
    rows = []
    for method in ("ce", "flsd-53", "adafocal"):
        groups = [_groups(run) for run in numbers.runs(method)]
        apart = [logits[0] - logits[-1] for _, logits in groups]
        shares = [gap / logits[0] for gap, (_, logits) in zip(apart, groups, strict=True)]
        columns = [list(column) for column in zip(*(logits for _, logits in groups), strict=True)]
        rows.append([method_name(method), *map(spread, (*columns, apart, shares))])
    starts, _ = _groups(numbers.runs("ce")[0])
    spans = [f"epoch {start + 1} to {end}" for start, end in pairwise(starts)]
    return MarkdownTable(["loss", *spans, f"epoch from {starts[-1] + 1}", "spread", "spread / first"], rows)


def _groups(run: RunEvidence) -> tuple[list[int], list[float]]:
    """The first epochs of the groups of learned rows, and their mean largest logits; rows never learned have none."""
    learned = run.dynamics["learned"]
    pairs = [pair for pair in zip(learned["since"], learned["mean_max_logit"], strict=True) if None not in pair]
    return [start for start, _ in pairs], [logit for _, logit in pairs]
