"""Two calibrators at a time, and the criterion of one calibrator: ECE or NLL."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from reproduction.labels import PHASES, All, table, title_of
from reproduction.measure import COMPARED
from reproduction.pages.after_training.differences import compare, relatives
from reproduction.pages.after_training.formats import NAMES, change, lower_pairs, p_cell, unit
from reproduction.pages.after_training.numbers import all_of, published, trained
from reproduction.result_files import Evidence

_TESTED = ("nll", "ece_ew", "ece_em", "ece_debias")
# Calibrator chosen by an error, the same by NLL, the measure that should gain, and who says so.
_CRITERIA = (
    ("post", "ts-nll", "ece_ew", "mukhoti2020, Sec. 5.1: the grid by ECE gives stronger baselines"),
    ("ts-ada", "ts-nll", "ece_em", "the same with bins of equal mass"),
    ("fts", "fts-nll", "ece_em", "komisarenko2024, Sec. 5.2: about -20 %"),
    ("fts", "fts-nll", "nll", "komisarenko2024, Sec. 5.2: choosing by log-loss improves log-loss by around 1 %"),
)


def comparisons_section(evidence: All) -> str:
    """Paired differences of all calibrators that are compared."""
    tables = [text for measure in _TESTED if (text := _comparison_table(trained(evidence), measure))]
    networks = _networks_comparison(evidence)
    if not tables and not networks:
        return ""
    lead = (
        "The first calibrator minus the second on the same test rows of the same run; negative is better.\n"
        "A difference is significant where its 95 % bootstrap interval does not hold 0.\n"
        "The sign test is exact, over the means of pairs of loss and task.\n"
    )
    return f"## Two calibrators at a time\n\n{lead}" + "".join(tables) + networks


def _comparison_table(found: Sequence[Evidence], measure: str) -> str:
    rows = []
    for after, before in COMPARED:
        if compared := compare(found, after, before, measure):
            counts = (compared.runs, compared.better, compared.surely_better, compared.surely_worse)
            numbers = [change(compared.mean, measure), *map(str, counts), p_cell(compared.p_value)]
            rows.append([f"{PHASES[after]} vs {PHASES[before]}", *numbers])
    if not rows:
        return ""
    headings = ["calibrators", f"mean, {unit(measure)}", "runs", "better", "sign. better", "sign. worse", "sign test p"]
    return f"\n### By {NAMES[measure]}\n\n" + table(headings, rows)


def _networks_comparison(evidence: All) -> str:
    rows = []
    for after, before in COMPARED:
        compared = [compare(published(evidence), after, before, measure) for measure in _TESTED]
        cells = [f"{change(one.mean, one.measure)} ({one.better} of {one.runs})" if one else "" for one in compared]
        if any(cells):
            rows.append([f"{PHASES[after]} vs {PHASES[before]}", *cells])
    if not rows:
        return ""
    lead = "\n### Published networks\n\nThe mean difference, and in how many networks it is better.\n\n"
    return lead + table(["calibrators", *(NAMES[measure] for measure in _TESTED)], rows)


def criterion_section(evidence: All) -> str:
    """What choosing by a calibration error brings."""
    rows = []
    for each in all_of(evidence):
        changes = [relatives([each], *wanted[:3]) for wanted in _CRITERIA]
        if any(changes):
            rows.append([title_of(each), f"{each.sizes[1]:,}", *map(_share_cell, changes)])
    if not rows:
        return ""
    text = "## By ECE or by NLL\n\n"
    for after, before, measure, source in _CRITERIA:
        if found := relatives(trained(evidence), after, before, measure):
            text += (
                f"{_full(after)} instead of {_full(before)} changes test {NAMES[measure]} by {fmean(found):+.1f} % on"
                f" average and lowers it in {lower_pairs(found)} of loss and task ({source}).\n"
            )
    lead = "\nChange against the same calibrator by NLL, in percent; in brackets the losses with a lower mean.\n\n"
    headings = [f"{_full(after)}: {NAMES[measure]}" for after, _, measure, _ in _CRITERIA]
    return text + lead + table(["task", "validation rows", *headings], rows)


def _full(phase: str) -> str:
    """What sentences call a phase, with its criterion."""
    return "FTS by AdaECE" if phase == "fts" else PHASES[phase]


def _share_cell(changes: Sequence[float]) -> str:
    """The mean of some changes, and how many are below 0.

    >>> _share_cell([-2.0, 1.0])
    '-0.5 (1 of 2)'
    """
    return f"{fmean(changes):+.1f} ({sum(each < 0 for each in changes)} of {len(changes)})" if changes else ""
