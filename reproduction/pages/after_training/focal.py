"""Focal temperature scaling against temperature scaling, by loss and by number of validation rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import correlation, fmean

from reproduction.labels import METHODS, SST, All, listed, method_name, table, title_of
from reproduction.pages.after_training.differences import LEVEL, compare, permutation_test, relative, relatives
from reproduction.pages.after_training.formats import (
    NAMES,
    count,
    lower_pairs,
    mean_change,
    p_equals,
    sure_cell,
)
from reproduction.pages.after_training.numbers import all_of, ranks_of, trained
from reproduction.result_files import Evidence

# Both are fitted by AdaECE, and compared by that.
_FROM_TS = ("fts", "ts-ada", "ece_em")
_BY_NLL = ("fts-nll", "ts-nll", "nll")


def focal_count(found: Sequence[Evidence]) -> str:
    """How often FTS is better than TS."""
    changes = relatives(found, *_FROM_TS)
    if not changes:
        return ""
    return (
        f"FTS has a lower test AdaECE than TS, both fitted by AdaECE, in {lower_pairs(changes)} of loss"
        " and task (komisarenko2024, Table 1: 18 of 18).\n"
    )


def focal_section(evidence: All) -> str:
    """FTS against TS after every loss."""
    found = trained(evidence)
    changes = relatives(found, *_FROM_TS)
    if not changes:
        return ""
    text = f"## FTS against TS, loss by loss\n\n{focal_count(found)}"
    text += f"On average AdaECE changes by {fmean(changes):+.1f} % (Table 1: -24.5 %).\n"
    text += _beside(found, "ece_ew") + _beside(found, "nll")
    text += 'The paper: "log-loss being approximately the same".\n'
    if by_nll := relatives(found, *_BY_NLL):
        text += (
            f"Fitted by NLL, FTS changes the NLL of TS by {fmean(by_nll):+.2f} % on average and lowers it in"
            f" {lower_pairs(by_nll)}; the paper speaks of about 1 %.\n"
        )
    text += _two_classes_sentence(found)
    lead = "\nChange of test AdaECE from TS to FTS, both fitted by AdaECE, in percent; bold where FTS is lower.\n\n"
    return text + lead + _by_loss(found)


def _beside(found: Sequence[Evidence], measure: str) -> str:
    compared = compare(found, "fts", "ts-ada", measure)
    if compared is None:
        return ""
    return (
        f"{NAMES[measure]} changes by {mean_change(compared)} and is lower in"
        f" {count(compared.lower, compared.lower + compared.higher, 'pair')}; significantly better in"
        f" {compared.surely_better} and worse in {compared.surely_worse} of {compared.runs} runs.\n"
    )


def _two_classes_sentence(found: Sequence[Evidence]) -> str:
    """With two classes the map is nearly a temperature, so that FTS should add nothing."""
    two = [each for each in found if each.name == SST]
    of_two = relatives(two, *_FROM_TS)
    of_more = relatives((each for each in found if each.name != SST), *_FROM_TS)
    if not of_two or not of_more:
        return ""
    return (
        f"With two classes ({title_of(two[0])}), where the focal map is nearly a temperature (Sec. 6), AdaECE changes"
        f" by {fmean(of_two):+.1f} %, elsewhere by {fmean(of_more):+.1f} %.\n"
    )


def _by_loss(found: Sequence[Evidence]) -> str:
    """A table of changes in percent, a row for each loss and a column for each task."""
    rows = []
    for method in _methods(found):
        values = [relative(each, method, *_FROM_TS) for each in found]
        cells = ["" if one is None else f"**{one:+.1f}**" if one < 0 else f"{one:+.1f}" for one in values]
        rows.append([method_name(method), *cells])
    return table(["loss", *map(title_of, found)], rows)


def _methods(found: Iterable[Evidence]) -> list[str]:
    there = dict.fromkeys(method for each in found for method in each.methods)
    order = list(METHODS)
    return sorted(there, key=lambda method: order.index(method) if method in order else len(order))


def rows_section(evidence: All) -> str:
    """How many rows the larger search needs."""
    rows, points = [], []
    for each in sorted(all_of(evidence), key=lambda each: each.sizes[1]):
        compared = [compare([each], "fts", "ts-ada", measure) for measure in ("ece_em", "ece_ew", "nll")]
        if (first := compared[0]) is None:
            continue
        points.append((each.sizes[1], first.mean))
        by_nll = relatives([each], *_BY_NLL)
        last = f"{fmean(by_nll):+.2f}" if by_nll else ""
        rows.append([title_of(each), f"{each.sizes[1]:,}", *map(sure_cell, compared), last])
    if not rows:
        return ""
    headings = ["task", "validation rows", "AdaECE, points", "ECE, points", "NLL, nats", "both by NLL: NLL, %"]
    lead = (
        "\nFTS minus TS, both by AdaECE; in brackets the runs in which FTS is significantly worse / better.\n"
        "In the last column both are fitted by NLL instead.\n"
    )
    return f"## Validation rows\n\n{_rows_sentence(points)}{lead}\n{table(headings, rows)}"


def _rows_sentence(points: Sequence[tuple[int, float]]) -> str:
    """How the gain of the larger search goes with the number of rows, if there are enough sizes to say."""
    sizes = sorted({size for size, _ in points})
    text = "A search over two numbers can overfit where rows are few. From TS to FTS, AdaECE changes by "
    means = [fmean(value for size, value in points if size == wanted) for wanted in sizes]
    text += listed([f"{mean:+.2f} points with {size:,} rows" for size, mean in zip(sizes, means, strict=True)]) + ".\n"
    if len(sizes) < 3 or len(set(means)) < 2:
        return text + "There are too few numbers of rows to speak of a trend.\n"
    ranks = [ranks_of(list(each)) for each in zip(*points, strict=True)]
    found, p_value = correlation(*ranks), permutation_test(*ranks)
    trend = "no clear trend" if p_value >= LEVEL else "lower with more rows" if found < 0 else "higher with more rows"
    return (
        f"{text}The rank correlation of rows and change over {len(points)} tasks is {found:+.2f}"
        f" (p {p_equals(p_value)}): {trend}.\nThe tasks differ in more than this number.\n"
    )
