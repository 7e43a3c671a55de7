"""Means and ranks after each calibrator."""

from __future__ import annotations

from collections.abc import Sequence

from reproduction.labels import MEASURES, NETWORKS, PHASES, All, capital, listed, table, title_of
from reproduction.pages.after_training.formats import NAMES, lowest_in_bold
from reproduction.pages.after_training.numbers import (
    all_of,
    common_phases,
    mean_of,
    mean_ranks,
    partial_phases,
    runs_of,
    trained,
    value_of,
)
from reproduction.pages.losses import lowest_of
from reproduction.result_files import Evidence, RunEvidence

ECE_FIGURE = "after_training_ece"
_SHOWN = ("ece_ew", "ece_em", "ece_debias", "ece_sweep_em", "nll")


def ranks_sentence(runs: Sequence[RunEvidence]) -> str:
    """The calibrators with the lowest mean ranks."""
    phases = common_phases(runs)
    best: dict[str, list[str]] = {}
    for measure in ("ece_ew", "ece_em", "nll"):
        if ranks := mean_ranks(runs, phases, measure):
            best.setdefault(lowest_of(ranks), []).append(f"{NAMES[measure]} ({min(ranks.values()):.1f})")
    if not best:
        return ""
    parts = [f"by {listed(measures)} has {PHASES[phase]}" for phase, measures in best.items()]
    return f"Of {len(phases)} ways that every run has, the lowest mean rank {listed(parts)}.\n"


def means_section(evidence: All) -> str:
    """Ranks over all runs, then the means of each task."""
    text = "## After each calibrator\n" + _ranks_table(runs_of(trained(evidence)))
    if ece_ratios(evidence):
        alt = "ECE after each calibrator, divided by that after TS by NLL, one dot a task"
        text += f"\n![{alt}](images/{ECE_FIGURE}.svg)\n\n"
        text += (
            "Mean ECE over losses and seeds, divided by that of the same runs after TS by NLL; left of 1 is lower.\n"
        )
    return text + "".join(_means_table(each) for each in all_of(evidence))


def ece_ratios(evidence: All) -> dict[str, dict[str, float]]:
    """By phase and task, mean ECE divided by that of the same runs after TS by NLL."""
    found: dict[str, dict[str, float]] = {}
    for phase in PHASES:
        for each in all_of(evidence):
            runs = [run for run in each.runs if value_of(run, phase, "ece_ew") and value_of(run, "ts-nll", "ece_ew")]
            mean, base = mean_of(runs, phase, "ece_ew"), mean_of(runs, "ts-nll", "ece_ew")
            if mean and base and phase != "ts-nll":
                found.setdefault(phase, {})[each.name] = mean / base
    return found


def _ranks_table(runs: Sequence[RunEvidence]) -> str:
    phases = common_phases(runs)
    ranks = {measure: found for measure in _SHOWN if (found := mean_ranks(runs, phases, measure))}
    if not ranks:
        return ""
    columns = [lowest_in_bold(list(each.values()), 1) for each in ranks.values()]
    lead = f"\nMean rank over all {len(runs)} runs among the ways that every run has; 1 is best.\n\n"
    return lead + table(["calibrator", *(f"by {NAMES[measure]}" for measure in ranks)], _rows(phases, columns))


def _means_table(each: Evidence) -> str:
    phases = common_phases(each.runs)
    ranks = mean_ranks(each.runs, phases, "ece_ew")
    columns = [_means_column(each.runs, phases, measure) for measure in _SHOWN]
    columns.append(lowest_in_bold([ranks.get(phase) for phase in phases], 1))
    what = "networks" if each.name == NETWORKS else f"runs of {len(each.methods)} losses"
    counted = f"{len(each.runs)} {what}; {each.sizes[1]:,} validation rows"
    head = f"\n### {capital(title_of(each))}\n\nMeans over {counted}.\n\n"
    headings = ["calibrator", *(MEASURES[measure][0] for measure in _SHOWN), "rank by ECE"]
    return head + table(headings, _rows(phases, columns))


def _means_column(runs: Sequence[RunEvidence], phases: Sequence[str], measure: str) -> list[str]:
    return lowest_in_bold([mean_of(runs, phase, measure) for phase in phases], MEASURES[measure][2])


def _rows(phases: Sequence[str], columns: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return list(zip([PHASES[phase] for phase in phases], *columns, strict=True))


def some_runs_section(evidence: All) -> str:
    """Calibrators that cannot be ranked with the others."""
    found = trained(evidence)
    phases = partial_phases(runs_of(found))
    columns = [*(phase for phase in ("pre", "ts-nll") if phase not in phases), *phases]
    having = [(each, [run for run in each.runs if all(phase in run.phases for phase in columns)]) for each in found]
    rows = [[title_of(each), f"{len(runs)}", *_means_column(runs, columns, "ece_ew")] for each, runs in having if runs]
    if not phases or not rows:
        return ""
    lead = "Mean ECE in percent over the runs that have all of these; most need a fixed training gamma.\n"
    shown = table(["task", "runs", *(PHASES[phase] for phase in columns)], rows)
    return f"## Calibrators that only some runs have\n\n{lead}\n{shown}"
