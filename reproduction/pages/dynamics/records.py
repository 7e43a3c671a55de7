"""The monitor's records of runs: which there are, and their series by epoch and by bin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from reproduction.result_files import Evidence, RunEvidence

# The losses that the papers plot together: gamma 0 to 3, and all.
GAMMAS = ("ce", "fl-1", "fl-2", "fl-3")
LOSSES = (*GAMMAS, "flsd-53", "adafocal")
# Series: what tables call them, what they are multiplied by, and the digits to show.
SERIES = {
    "train_nll": ("train NLL", 1, 3),
    "test_nll": ("test NLL", 1, 3),
    "test_nll_correct": ("test NLL, correct rows", 1, 3),
    "test_nll_wrong": ("test NLL, wrong rows", 1, 3),
    "test_entropy_correct": ("entropy, correct rows", 1, 3),
    "test_entropy_wrong": ("entropy, wrong rows", 1, 3),
    "test_ece": ("test ECE, %", 100, 2),
    "weight_norm": ("weight norm", 1, 2),
    "feature_norm": ("feature norm", 1, 2),
    "gradient_norm": ("gradient norm", 1, 3),
    "train_top_share": ("train rows in the top bin, %", 100, 1),
}


def monitored(evidence: Evidence, method: str) -> list[RunEvidence]:
    """The runs of a method that have records."""
    return [run for run in evidence.of(method) if run.dynamics.get("epoch")]


def present(evidence: Evidence, methods: Iterable[str]) -> list[str]:
    """The methods with records."""
    return [method for method in methods if monitored(evidence, method)]


def with_ce(evidence: Evidence, method: str) -> list[tuple[RunEvidence, RunEvidence]]:
    """The runs of a method, each with the cross-entropy run of its seed, which comes first."""
    plain = {run.seed: run for run in monitored(evidence, "ce")}
    return [(plain[run.seed], run) for run in monitored(evidence, method) if run.seed in plain]


def drops(evidence: Evidence) -> list[int]:
    """After how many epochs the learning rate falls, each time."""
    return list(evidence.recipe.get("training", {}).get("milestones", []))


def with_drop(evidence: Evidence, method: str) -> list[tuple[RunEvidence, int]]:
    """The runs of a method, each with the epoch of its first drop of the learning rate, if there is one."""
    return [(run, drop) for drop in drops(evidence)[:1] for run in monitored(evidence, method)]


def series(run: RunEvidence, name: str) -> dict[int, float]:
    """A series by the number of epochs that were trained; the monitor's first epoch is 0."""
    found = zip(run.dynamics["epoch"], run.dynamics.get(name) or [], strict=False)
    return {epoch + 1: value for epoch, value in found if value is not None}


def ends(run: RunEvidence, name: str) -> tuple[float, float] | None:
    """A series at the first and at the last record."""
    values = list(series(run, name).values())
    return (values[0], values[-1]) if values else None


def end(run: RunEvidence, name: str, place: int = -1) -> float | None:
    """A series at the last record, or at the first, `place` 0."""
    found = ends(run, name)
    return None if found is None else found[place]


def over_seeds(evidence: Evidence, method: str, name: str, place: int = -1) -> list[float]:
    """A series of every seed at the last record (or at the first, `place` 0), in the units of tables."""
    found = (end(run, name, place) for run in monitored(evidence, method))
    return [SERIES[name][1] * value for value in found if value is not None]


def by_epoch(
    evidence: Evidence, method: str, values: Callable[[RunEvidence], dict[int, float]]
) -> dict[int, list[float]]:
    """The numbers of every seed, put together by epoch."""
    found: dict[int, list[float]] = {}
    for run in monitored(evidence, method):
        for epoch, value in values(run).items():
            found.setdefault(epoch, []).append(value)
    return dict(sorted(found.items()))


def bins(run: RunEvidence, name: str) -> list[Any]:
    """A number of every bin, for each record; some records have none."""
    return (run.dynamics.get("bins") or {}).get(name) or []


def bin_at(share: float, number: int) -> int:
    """The bin at a share of all bins: 0 is the first, 1 the last."""
    return round((number - 1) * share)


def bin_series(run: RunEvidence, name: str, share: float) -> dict[int, float]:
    """A number of the bin at a share of all bins by epochs trained; those without training rows have none."""
    found = {
        epoch + 1: values[bin_at(share, len(values))]
        for epoch, values in zip(run.dynamics["epoch"], bins(run, name), strict=False)
        if values and len(values) > 1
    }
    empty = (None, 0) if name == "train_true" else (None,)
    return {done: value for done, value in found.items() if value not in empty}
