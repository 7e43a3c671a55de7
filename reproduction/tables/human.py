"""Tables of docs/results/human.md: predictions against the answers of people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from reproduction.labels import IMAGES, NETWORKS, PHASES, method_name
from reproduction.markdown import MarkdownTable, best_in_bold, table
from reproduction.recipe_numbers import RecipeNumbers, Results
from reproduction.result_files import RunEvidence

_PHASES = ("pre", "ts-nll", "fts", "ets", "spline", "psi")


def distance(run: RunEvidence, phase: str, measure: str = "kl") -> float | None:
    """How far a phase of a run is from people's answers: `kl` in nats, `ece` in percent."""
    value = run.human.get(phase, {}).get(measure)
    return None if value is None else value * (100 if measure == "ece" else 1)


def distances(numbers: RecipeNumbers, method: str, phase: str, measure: str = "kl") -> list[float]:
    """`distance` of every seed."""
    found = (distance(run, phase, measure) for run in numbers.runs(method))
    return [value for value in found if value is not None]


def _falls(runs: Sequence[RunEvidence], phase: str, measure: str) -> list[tuple[float, float]]:
    """A measure as trained and after a calibrator, of every run that has both."""
    found = ((distance(run, "pre", measure), distance(run, phase, measure)) for run in runs)
    return [(before, after) for before, after in found if before is not None and after is not None]


def _by_calibrator(runs: Sequence[RunEvidence]) -> MarkdownTable:
    there = [phase for phase in _PHASES if any(phase in run.human for run in runs)]
    closest = {
        measure: [min(run.human.keys() & set(there), key=lambda p: _closeness(run, p, measure)) for run in runs]
        for measure in ("kl", "ece")
    }
    rows = []
    for phase in there:
        kl, ece = (_falls(runs, phase, measure) for measure in ("kl", "ece"))
        fallen = [str(sum(after < before for before, after in pairs)) for pairs in (kl, ece)]
        change = f"{fmean(after - before for before, after in kl):+.3f}"
        lowest = [str(closest[measure].count(phase)) for measure in ("kl", "ece")]
        cells = (
            [fallen[0], change, lowest[0], fallen[1], lowest[1]]
            if phase != "pre"
            else ["", "", lowest[0], "", lowest[1]]
        )
        rows.append([PHASES[phase], str(len(kl)), *cells])
    headings = ["calibrator", "runs", "KL falls", "mean change, nats", "lowest KL", "ECE falls", "lowest ECE"]
    return MarkdownTable(headings, rows)


def _closeness(run: RunEvidence, phase: str, measure: str) -> tuple[float, int]:
    """Of equal distances the earlier phase counts as the closest."""
    value = distance(run, phase, measure)
    return float("inf") if value is None else value, _PHASES.index(phase)


@table("human.trained")
def trained(results: Results) -> MarkdownTable:
    """Which calibrator comes closest, over all networks that were trained here."""
    return _by_calibrator([run for name in IMAGES for run in results[name].all_runs])


@table("human.published", NETWORKS)
def published(numbers: RecipeNumbers) -> MarkdownTable:
    """Which calibrator comes closest, over the published networks."""
    return _by_calibrator(numbers.all_runs)


@table("human.labels")
def labels(results: Results) -> MarkdownTable:
    """Whether a calibrator that lowers the NLL of labels also comes closer to people's answers."""
    runs = [run for name in (*IMAGES, NETWORKS) for run in results[name].all_runs]
    rows = []
    for phase in _PHASES[1:]:
        having = [run for run in runs if phase in run.human]
        lower = [run for run in having if run.phases[phase]["nll"][0] < run.phases["pre"]["nll"][0]]  # type: ignore[operator]
        both = sum(after < before for run in lower for before, after in _falls([run], phase, "kl"))
        rows.append([PHASES[phase], str(len(having)), str(len(lower)), str(both)])
    return MarkdownTable(["calibrator", "runs", "NLL of labels falls", "of those, KL to people falls"], rows)


def _by_loss(numbers: RecipeNumbers, measure: str, digits: int) -> MarkdownTable:
    """The distance from people's answers by loss and calibrator."""
    phases = [phase for phase in _PHASES if any(phase in run.human for run in numbers.all_runs)]
    rows = [
        [method_name(method), *best_in_bold([distances(numbers, method, each, measure) for each in phases], digits)]
        for method in numbers.methods
    ]
    first = "network" if numbers.name == NETWORKS else "loss"
    return MarkdownTable([first, *(PHASES[phase] for phase in phases)], rows)


table("human.kl", *IMAGES, NETWORKS)(partial(_by_loss, measure="kl", digits=3))
table("human.ece", *IMAGES, NETWORKS)(partial(_by_loss, measure="ece", digits=2))
