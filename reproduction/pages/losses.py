"""The losses of one recipe after another: the tables and sentences that the pages of images and of text share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import fmean, median
from typing import Any, NamedTuple

from scipy.stats import spearmanr

from reproduction.labels import (
    MEASURES,
    PHASES,
    bullets,
    capital,
    cells,
    each_run,
    listed,
    method_name,
    minutes,
    over_seeds,
    spoken,
    spread,
    table,
    title_of,
)
from reproduction.result_files import Evidence, RunEvidence

# What the table of networks as trained has.
BEFORE = ("error", "nll", "ece_ew", "ece_em", "ece_debias", "s99_fraction")
# The measures of calibration whose rankings of losses are compared with that of ECE.
_RIVALS = ("ece_em", "ece_debias", "ece_sweep_em")
# A rank correlation from here on counts as an order that is kept, or kept in part.
_KEPT, _PARTLY = 0.8, 0.4


class Family(NamedTuple):
    """Losses of which the papers say where the best temperature lies."""

    name: str
    methods: tuple[str, ...]
    low: float
    high: float


# Where T by ECE lies in mukhoti2020, sec. 5.1 (Brier and LS: near 1), and, for AdaFocal, in ghosh2022, Table 1.
FAMILIES = (
    Family("cross-entropy, MMCE", ("ce", "mmce"), 2.0, 2.8),
    Family("Brier, LS", ("brier", "ls-0.05", "ls-0.1"), 0.9, 1.1),
    Family("FLSD-53", ("flsd-53",), 0.9, 1.1),
    Family("AdaFocal", ("adafocal", "adafocal-10"), 0.96, 1.1),
)
# Which tables of the papers those of a recipe are to be compared with.
COMPARE = (
    "Of every recipe there are two tables: one of the losses as trained (compare mukhoti2020, Tables 1, 2, 4, 5, 9 and"
    " 13; ghosh2022, Tables 1, 2 and 5), and one after temperature scaling, with the temperatures T (compare"
    " mukhoti2020, Tables 1 and 5; ghosh2022, Table 1)."
)


def mean_by_method(evidence: Evidence, phase: str, measure: str) -> dict[str, float]:
    """The mean of a measure over seeds by method, for the methods that have it."""
    found = {method: over_seeds(evidence, method, phase, measure) for method in evidence.methods}
    return {method: fmean(values) for method, values in found.items() if values}


def lowest_of(found: Mapping[str, float]) -> str:
    """The name of the lowest value, the first of several."""
    return min(found, key=found.__getitem__)


def by_seed(evidence: Evidence, method: str, phase: str, measure: str) -> dict[int, float]:
    """A measure of a method by seed, in the units of tables."""
    factor = MEASURES[measure][1]
    found = {run.seed: run.phases.get(phase, {}).get(measure) for run in evidence.of(method)}
    return {seed: factor * each[0] for seed, each in found.items() if each is not None and each[0] is not None}


def lower_in(values: Mapping[int, float], others: Mapping[int, float]) -> str:
    """In how many of the common seeds values are lower than others.

    >>> lower_in({0: 1.0, 1: 2.0}, {0: 3.0, 1: 1.0, 2: 0.0})
    '1 of 2'
    """
    common = values.keys() & others.keys()
    return f"{sum(values[seed] < others[seed] for seed in common)} of {len(common)}"


def apart(value: float, other: float) -> str:
    """How far a value lies from another, in points.

    >>> apart(1.0, 3.5), apart(3.5, 1.0)
    ('2.50 points below', '2.50 points above')
    """
    return f"{abs(value - other):.2f} points {'below' if value < other else 'above'}"


def rank_correlation(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Spearman's correlation between two rankings of the methods that both have; None for less than three.

    >>> rank_correlation({"a": 1, "b": 2, "c": 3}, {"a": 5, "b": 4, "c": 3})
    -1.0
    """
    common = [name for name in first if name in second]
    pairs = [[each[name] for name in common] for each in (first, second)]
    if len(common) < 3 or any(len(set(values)) == 1 for values in pairs):
        return None
    return round(float(spearmanr(*pairs).statistic), 6)  # the same last digits on every machine


def temperatures_of(evidence: Evidence, method: str, phase: str) -> list[float]:
    """The fitted temperatures of a method's runs."""
    found = (run.fits.get(phase, {}).get("temperature") for run in evidence.of(method))
    return [each for each in found if each is not None]


def summary(there: Sequence[Evidence]) -> list[str]:
    """What a page shows, first of all: the lowest ECE of each recipe, and what temperature scaling leaves."""
    lowest = [each for each in map(_lowest_in_brief, there) if each]
    scaled = [each for each in map(_scaled_in_brief, there) if each]
    found = [f"As trained, the lowest ECE is that of {listed(lowest)}."] if lowest else []
    found += [f"After temperature scaling by NLL the losses span {listed(scaled)}."] if scaled else []
    return [" ".join(found)] if found else []


def _lowest_in_brief(evidence: Evidence) -> str:
    found = mean_by_method(evidence, "pre", "ece_ew")
    if not found:
        return ""
    best = lowest_of(found)
    plain = f"; cross-entropy {found['ce']:.2f} %" if "ce" in found and best != "ce" else ""
    return f"{spoken(best)} for {title_of(evidence)} ({found[best]:.2f} %{plain})"


def _scaled_in_brief(evidence: Evidence) -> str:
    before, after = (mean_by_method(evidence, phase, "ece_ew").values() for phase in ("pre", "ts-nll"))
    if not before or not after:
        return ""
    return f"{_span(after)} for {title_of(evidence)} (before: {_span(before)})"


def _span(values: Iterable[float]) -> str:
    values = list(values)
    return f"{min(values):.2f} to {max(values):.2f} %"


def section(evidence: Evidence) -> list[str]:
    """A recipe's tables before and after temperature scaling, and what they say."""
    return [
        f"## {title_of(evidence)}",
        setting(evidence),
        "As trained:",
        before_table(evidence),
        "After temperature scaling, fitted to the validation rows by their NLL or by their ECE:",
        after_table(evidence),
        bullets(findings(evidence)),
    ]


def setting(evidence: Evidence) -> str:
    """How the runs of a recipe were made, and what is missing."""
    train, val, test = evidence.sizes
    training = evidence.recipe["training"]
    kept = "that of the lowest validation error" if training.get("select") == "best" else "the last"
    counts = {method: len(evidence.of(method)) for method in evidence.methods}
    most = max(counts.values())
    absent = [spoken(method) for method in evidence.recipe["methods"] if method not in counts]
    fewer = [f"{spoken(method)} ({count})" for method, count in counts.items() if count < most]
    return (
        f"Recipe `{evidence.name}`: {train:,} training, {val:,} validation and {test:,} test rows;"
        f" {training['epochs']} epochs, of which {kept} is measured; {most} {'seed' if most == 1 else 'seeds'} a loss;"
        f" {minutes(evidence):.0f} minutes for all runs together, each on {evidence.threads}"
        f" {'thread' if evidence.threads == 1 else 'threads'}."
        + (f" Not run: {listed(absent)}." if absent else "")
        + (f" With fewer seeds: {listed(fewer)}." if fewer else "")
    )


def before_table(evidence: Evidence) -> str:
    """All losses before any calibrator."""
    columns = {MEASURES[name][0]: cells(evidence, evidence.methods, "pre", name) for name in BEFORE[:-1]}
    sure = [spread(over_seeds(evidence, method, "pre", BEFORE[-1]), 1) for method in evidence.methods]
    return _by_method(evidence, {**columns, MEASURES[BEFORE[-1]][0]: sure})


def after_table(evidence: Evidence) -> str:
    """All losses after temperature scaling by NLL and by ECE, with the fitted temperatures."""
    columns: dict[str, list[str]] = {}
    for phase, name in (("ts-nll", "NLL"), ("post", "ECE")):
        columns[f"ECE after T by {name}, %"] = cells(evidence, evidence.methods, phase, "ece_ew")
        columns[f"T by {name}"] = [spread(temperatures_of(evidence, each, phase)) for each in evidence.methods]
    return _by_method(evidence, columns)


def _by_method(evidence: Evidence, columns: Mapping[str, Sequence[str]]) -> str:
    """A table with a row a method, without the columns and rows in which nothing is."""
    full = {heading: column for heading, column in columns.items() if any(column)}
    rows = [(method, [column[place] for column in full.values()]) for place, method in enumerate(evidence.methods)]
    kept = [[method_name(method), *row] for method, row in rows if any(row)]
    empty = [spoken(method) for method, row in rows if not any(row)]
    notes = [f"Without a number for this table: {listed(empty)}."] if empty else []
    return "\n".join([*([table(["loss", *full], kept)] if kept else []), *notes]).rstrip("\n")


def findings(evidence: Evidence) -> list[str]:
    """What the two tables of a recipe say."""
    return [_lowest(evidence), _errors(evidence), *_after_scaling(evidence), _sure(evidence)]


def _lowest(evidence: Evidence) -> str:
    """Which loss has the lowest ECE as trained, how far below cross-entropy, and in how many seeds."""
    found = mean_by_method(evidence, "pre", "ece_ew")
    if not found:
        return ""
    best = lowest_of(found)
    seeds = {method: by_seed(evidence, method, "pre", "ece_ew") for method in found}
    first = sum(
        all(value <= seeds[other].get(seed, math.inf) for other in seeds) for seed, value in seeds[best].items()
    )
    start = f"{capital(spoken(best))} has the lowest ECE as trained, {found[best]:.2f} %"
    end = f"the lowest of all losses in {first} of {len(seeds[best])} seeds"
    if "ce" not in found or best == "ce":
        return f"{start}; it is {end}."
    below = f"{apart(found[best], found['ce'])} the {found['ce']:.2f} % of cross-entropy"
    return f"{start}, {below}; it is below it in {lower_in(seeds[best], seeds['ce'])} seeds, and {end}."


def _errors(evidence: Evidence) -> str:
    """How far the test error changes with the loss."""
    errors, eces = mean_by_method(evidence, "pre", "error"), mean_by_method(evidence, "pre", "ece_ew")
    if not errors:
        return ""
    least, most = lowest_of(errors), max(errors, key=errors.__getitem__)
    text = f"Test errors lie between {errors[least]:.2f} % ({spoken(least)}) and {errors[most]:.2f} % ({spoken(most)})"
    best = min(eces, key=eces.__getitem__, default="ce")
    if "ce" not in errors or best not in errors or best == "ce":
        return f"{text}."
    return f"{text}; that of {spoken(best)} is {apart(errors[best], errors['ce'])} that of cross-entropy."


def _after_scaling(evidence: Evidence) -> list[str]:
    """Whether the ranking of the losses survives temperature scaling."""
    before = mean_by_method(evidence, "pre", "ece_ew")
    found = []
    for phase, name in (("ts-nll", "NLL"), ("post", "ECE")):
        after = mean_by_method(evidence, phase, "ece_ew")
        correlation = rank_correlation(before, after)
        if correlation is not None:
            found.append(
                f"After temperature scaling by {name} the losses span {_span(after.values())} instead of"
                f" {_span(before.values())}, and their order {_kept(correlation)} (rank correlation"
                f" {correlation:.2f}): {_lowest_then(lowest_of(before), after)}."
            )
    return found


def _lowest_then(best: str, after: Mapping[str, float]) -> str:
    """What is lowest afterwards, and where the loss stands that was."""
    now = lowest_of(after)
    if now == best:
        return f"{spoken(best)} stays the lowest ({after[best]:.2f} %)"
    text = f"the lowest is {spoken(now)} ({after[now]:.2f} %)"
    if best not in after:
        return text
    place = sorted(after.values()).index(after[best]) + 1
    return f"{text}, and {spoken(best)} is number {place} of {len(after)} ({after[best]:.2f} %)"


def _kept(correlation: float) -> str:
    """What a rank correlation says about an order.

    >>> _kept(0.9), _kept(-0.1)
    ('is mostly kept', 'is lost')
    """
    if correlation <= -_PARTLY:
        return "is turned round"
    return "is mostly kept" if correlation >= _KEPT else "is kept in part" if correlation >= _PARTLY else "is lost"


def _sure(evidence: Evidence) -> str:
    """The share of very sure predictions of cross-entropy and FLSD-53, before and after scaling."""
    before, after = (mean_by_method(evidence, phase, "s99_fraction") for phase in ("pre", "ts-nll"))
    wanted = ("ce", "flsd-53")
    if any(method not in each for method in wanted for each in (before, after)):
        return ""
    turns = (before["ce"] - before["flsd-53"]) * (after["ce"] - after["flsd-53"]) < 0
    return (
        f"Cross-entropy gives {before['ce']:.1f} % of the test rows a confidence of 0.99 or more, FLSD-53"
        f" {before['flsd-53']:.1f} %; after scaling by NLL it is {after['ce']:.1f} and {after['flsd-53']:.1f} %. The"
        f" order {'turns' if turns else 'does not turn'} (in mukhoti2020, Table 13, it does)."
    )


def temperatures(there: Sequence[Evidence], note: str = "") -> list[str]:
    """Where the fitted temperatures lie, by family of losses; `note` is what a page adds about the papers' own."""
    rows = [row for row in (_family_row(family, there) for family in FAMILIES) if row]
    if not rows:
        return ["No run of these losses has a temperature by ECE: where they lie is left out."]
    return [
        "## Where the fitted temperatures lie",
        "T by ECE, as the papers fit it: the mean over runs (least to greatest). The papers' ranges are those of"
        " mukhoti2020, sec. 5.1, where T of Brier and LS is near 1, read here as 0.9 to 1.1, and, for AdaFocal, of"
        f" ghosh2022, Table 1.{note}",
        table(["losses", *map(title_of, there), "papers", "runs within"], rows).rstrip("\n"),
        bullets([_order_of_families("post", "ECE", there), _order_of_families("ts-nll", "NLL", there)]),
    ]


def _of_family(family: Family, evidence: Evidence, phase: str) -> list[float]:
    return [each for method in family.methods for each in temperatures_of(evidence, method, phase)]


def _family_row(family: Family, there: Sequence[Evidence]) -> list[str]:
    found = [_of_family(family, evidence, "post") for evidence in there]
    every = list(chain.from_iterable(found))
    if not every:
        return []
    within = sum(family.low <= each <= family.high for each in every)
    shown = [f"{fmean(each):.2f} ({min(each):.2f} to {max(each):.2f})" if each else "" for each in found]
    return [family.name, *shown, f"{family.low:g} to {family.high:g}", f"{within} of {len(every)}"]


def _order_of_families(phase: str, name: str, there: Sequence[Evidence]) -> str:
    fitted = {family.name: [each for one in there for each in _of_family(family, one, phase)] for family in FAMILIES}
    order = sorted(((fmean(values), family) for family, values in fitted.items() if values), reverse=True)
    shown = ", ".join(f"{family.replace(', ', ' and ')} {mean:.2f}" for mean, family in order)
    return f"T by {name}, mean over all runs of a family, from the largest: {shown}." if order else ""


def agreement(there: Sequence[Evidence]) -> list[str]:
    """Whether the measures of calibration rank the losses alike."""
    rows = [row for evidence in there for phase in ("pre", "ts-nll") if (row := _agreement_row(evidence, phase))]
    if not rows:
        return ["There are not enough losses to rank: whether the measures agree is left out."]
    names = [MEASURES[name][0].removesuffix(", %") for name in _RIVALS]
    columns = {name: [row[place] for row in rows if row[place]] for place, name in enumerate(names, start=2)}
    least = [f"{min(map(float, found)):.2f} for {name}" for name, found in columns.items() if found]
    alike = sum(row[-1] == "yes" for row in rows)
    return [
        "## Do the measures agree?",
        "Rank correlation of the losses between ECE and other measures (compare ghosh2022, App. F, Tables 5 and 6,"
        " where debiased and sweep ECE agree with the ranking by ECE):",
        table(["recipe", "phase", *names, "same loss lowest"], rows, words=2).rstrip("\n"),
        bullets(
            [
                f"The least correlation with the ranking by ECE is {listed(least)}.",
                f"All measures have the same lowest loss in {alike} of {len(rows)} rows.",
            ]
        ),
    ]


def _agreement_row(evidence: Evidence, phase: str) -> list[str]:
    own = mean_by_method(evidence, phase, "ece_ew")
    others = [mean_by_method(evidence, phase, name) for name in _RIVALS]
    found = [rank_correlation(own, other) for other in others]
    if all(each is None for each in found):
        return []
    lowest = {lowest_of(each) for each in (own, *others) if each}
    shown = ["" if each is None else f"{each:.2f}" for each in found]
    return [title_of(evidence), PHASES[phase], *shown, "yes" if len(lowest) == 1 else "no"]


def how_to_read(there: Sequence[Evidence]) -> list[str]:
    """What the numbers of tables are."""
    widths = each_run(there, _half_width)
    noise = (
        f" The 95 % bootstrap interval of an ECE as trained reaches {median(widths):.2f} points to either side in the"
        " median run: what is closer may be noise."
        if widths
        else ""
    )
    return [
        "## How to read it",
        "Tables show the mean over seeds ± the standard deviation; a seed changes the initial weights and the order of"
        " batches. ECE has 15 bins of equal width, AdaECE 15 of equal mass; NLL is in nats. Lower is better, and the"
        " lowest mean of a column is bold, except for temperatures and the share over 99 % sure, which are neither good"
        " nor bad.",
        f"Calibrators are fitted to the validation rows, and everything is measured on the test rows.{noise} A rank"
        f" correlation is Spearman's, of means over seeds: from {_KEPT} on an order counts as mostly kept, from"
        f" {_PARTLY} on as kept in part, from -{_PARTLY} down as turned round, else as lost.",
    ]


def _half_width(run: RunEvidence) -> float | None:
    low, high = run.phases.get("pre", {}).get("ece_ew", [None] * 3)[1:]
    return None if low is None or high is None else 50 * (high - low)


def draw_mean(found: Mapping[Any, Sequence[float]], ax: Any, **line: Any) -> Any:
    """A line through the means of values, and a band from the least to the greatest of each; returns the line."""
    low, high = ([each(values) for values in found.values()] for each in (min, max))
    ax.fill_between(list(found), low, high, color=line["color"], alpha=0.15, linewidth=0)
    return ax.plot(list(found), list(map(fmean, found.values())), markersize=3, linewidth=1.2, **line)[0]
