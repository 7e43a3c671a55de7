"""Tasks and their runs, and measures of these: values, means and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from reproduction.labels import IMAGES, MEASURES, NETWORKS, PHASES, TEXT, All
from reproduction.result_files import Evidence, RunEvidence


def trained(evidence: All) -> list[Evidence]:
    """Tasks that were trained here."""
    return _there(evidence, (*IMAGES, *TEXT))


def published(evidence: All) -> list[Evidence]:
    """The published networks, if there are results of them."""
    return _there(evidence, (NETWORKS,))


def all_of(evidence: All) -> list[Evidence]:
    """Tasks that were trained here, then the published networks."""
    return [*trained(evidence), *published(evidence)]


def _there(evidence: All, names: Iterable[str]) -> list[Evidence]:
    return [evidence[name] for name in names if name in evidence and evidence[name].runs]


def runs_of(found: Iterable[Evidence]) -> list[RunEvidence]:
    """All runs of some tasks."""
    return [run for each in found for run in each.runs]


def value_of(run: RunEvidence, phase: str, measure: str) -> float | None:
    """A measure of a phase of a run, in the units of tables."""
    value = (run.phases.get(phase, {}).get(measure) or [None])[0]
    return None if value is None else MEASURES[measure][1] * value


def mean_of(runs: Iterable[RunEvidence], phase: str, measure: str) -> float | None:
    """The mean of a measure over the runs that have it."""
    values = [value for run in runs if (value := value_of(run, phase, measure)) is not None]
    return fmean(values) if values else None


def common_phases(runs: Sequence[RunEvidence]) -> list[str]:
    """The phases that every run has."""
    return [phase for phase in PHASES if runs and all(phase in run.phases for run in runs)]


def partial_phases(runs: Sequence[RunEvidence]) -> list[str]:
    """The phases that only some runs have."""
    common = common_phases(runs)
    return [phase for phase in PHASES if any(phase in run.phases for run in runs) and phase not in common]


def ranks_of(values: Sequence[float]) -> list[float]:
    """The place of each value among all, 1 for the lowest; equal ones share theirs.

    >>> ranks_of([3.0, 1.0, 3.0])
    [2.5, 1.0, 2.5]
    """
    return [1 + sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values]


def mean_ranks(runs: Iterable[RunEvidence], phases: Sequence[str], measure: str) -> dict[str, float]:
    """The mean rank of each phase over the runs that have the measure of all of them."""
    rows = [[value_of(run, phase, measure) for phase in phases] for run in runs]
    ranks = [ranks_of([value for value in row if value is not None]) for row in rows if None not in row]
    return {phase: fmean(each[place] for each in ranks) for place, phase in enumerate(phases)} if ranks else {}
