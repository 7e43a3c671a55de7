"""Focal temperature scaling searched along a line, against the full grid."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from focalcal.calibrators.search import GAMMAS, gammas_of
from reproduction.labels import PHASES, All, each_run, table, title_of
from reproduction.pages.after_training.differences import compare
from reproduction.pages.after_training.formats import NAMES, count, mean_change, p_equals, sure_cell
from reproduction.pages.after_training.numbers import all_of, trained
from reproduction.result_files import Evidence

_SEARCHES = ("fts", "fts-line")


def line_verdict(found: Sequence[Evidence], measure: str, *, short: bool = False) -> str:
    """Whether the line is as good as the grid by one measure."""
    line = compare(found, "fts-line", "fts", measure)
    if line is None:
        return ""
    text = (
        f"By test {NAMES[measure]}, FTS along a line is {line.verdict} FTS on the full grid: {mean_change(line)}"
        f" on average, sign test p {p_equals(line.p_value)}"
    )
    rest = (
        f" (lower in {line.lower} and higher in {line.higher} pairs of loss and task); significantly worse in"
        f" {line.surely_worse} and better in {line.surely_better} of {line.runs} runs"
    )
    return f"{text}.\n" if short else f"{text}{rest}.\n"


def line_search_section(evidence: All) -> str:
    """What the shorter search costs, and what both found."""
    measures = ("ece_em", "ece_ew", "nll")
    rows = []
    for each in all_of(evidence):
        compared = [compare([each], "fts-line", "fts", measure) for measure in measures]
        if any(compared):
            runs = max(one.runs for one in compared if one)
            rows.append([title_of(each), f"{runs}", *map(sure_cell, compared)])
    if not rows:
        return ""
    lead = (
        "komisarenko2024 (Sec. 5.2) proposes to search m temperatures at two gammas and m points along the line"
        f" through the two best: 3m points instead of {len(gammas_of(GAMMAS))}m here. It leaves open what that costs.\n"
    )
    verdict = "".join(line_verdict(trained(evidence), measure) for measure in measures)
    shown = table(["task", "runs", "AdaECE, points", "ECE, points", "NLL, nats"], rows)
    return (
        f"## Is a line as good as the full grid?\n\n{lead}{verdict}\n"
        "Line minus grid; in brackets the runs in which it is significantly worse / better.\n\n"
        f"{shown}{_fitted_table(evidence)}"
    )


def _fitted_table(evidence: All) -> str:
    rows = []
    for each in all_of(evidence):
        columns = [_fits([each], phase, name) for phase in _SEARCHES for name in ("gamma", "temperature")]
        if any(columns):
            rows.append([title_of(each), *map(_range, columns)])
    if not rows:
        return ""
    headings = ["task", "gamma, grid", "T, grid", "gamma, line", "T, line"]
    lead = "\nWhat the two searches found: median over runs, least and greatest in brackets.\n"
    return f"{lead}{_ends_sentence(evidence)}\n" + table(headings, rows)


def _fits(found: Sequence[Evidence], phase: str, name: str) -> list[float]:
    return each_run(found, lambda run: run.fits.get(phase, {}).get(name))


def _range(values: Sequence[float]) -> str:
    """The median of some numbers, and where they lie.

    >>> _range([3.0, 1.0, 2.5])
    '2.50 (1.00 to 3.00)'
    """
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else ""


def _ends_sentence(evidence: All) -> str:
    """How often the gammas are at an end, where a wider search might have found another, or 0, which is TS."""
    text = ""
    for phase in _SEARCHES:
        if values := _fits(all_of(evidence), phase, "gamma"):
            at_end = sum(value <= min(GAMMAS) or value >= max(GAMMAS) for value in values)
            text += (
                f"{PHASES[phase]}: gamma is at an end of its range ({min(GAMMAS):g} or {max(GAMMAS):g}) in {at_end}"
                f" and 0, which is TS, in {count(values.count(0), len(values), 'run')}.\n"
            )
    return text
