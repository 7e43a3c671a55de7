"""The numbers of a recipe's runs over seeds, in the units of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal, TypeAlias

from reproduction.labels import MEASURES, TITLES
from reproduction.result_files import Evidence, RunEvidence, recorded


class RecipeNumbers:
    """A recipe's result file, read by method, measure and phase; `read` collects the runs that were looked at."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.methods = evidence.methods
        self.read: set[tuple[str, int]] = set()
        self._runs = {method: evidence.of(method) for method in self.methods}

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.evidence.name

    @property
    def title(self) -> str:
        """The recipe's name in tables."""
        return TITLES.get(self.name, self.name)

    @property
    def sizes(self) -> list[int]:
        """The numbers of training, validation and test rows."""
        return self.evidence.sizes

    def runs(self, method: str) -> list[RunEvidence]:
        """The runs of a method by seed."""
        found = self._runs.get(method, [])
        self.read |= {(method, run.seed) for run in found}
        return found

    @property
    def all_runs(self) -> list[RunEvidence]:
        """The runs of all methods."""
        return self.evidence.runs

    def values(self, method: str, measure: str, phase: str = "pre") -> list[float]:
        """A measure of every seed that has it."""
        found = (value_of(run, measure, phase) for run in self.runs(method))
        return [value for value in found if value is not None]

    def mean(self, method: str, measure: str, phase: str = "pre") -> float:
        """A measure's mean over seeds."""
        return fmean(self.values(method, measure, phase))

    def means(self, measure: str, phase: str = "pre") -> dict[str, float]:
        """A measure's mean over seeds, by method."""
        return {method: fmean(values) for method in self.methods if (values := self.values(method, measure, phase))}

    def best(self, methods: Sequence[str], measure: str, phase: str = "pre") -> str:
        """The method with the lowest mean of a measure."""
        return min(methods, key=lambda method: self.mean(method, measure, phase))

    def temperatures(self, method: str, phase: str = "post") -> list[float]:
        """The fitted temperature of every seed."""
        return [run.fits[phase]["temperature"] for run in self.runs(method)]

    def temperature(self, method: str, phase: str = "post") -> float:
        """The fitted temperature's mean over seeds."""
        return fmean(self.temperatures(method, phase))

    def series(self, method: str, name: str) -> list[float]:
        """A series of the monitor, mean over seeds."""
        return [fmean(values) for values in zip(*(run.dynamics[name] for run in self.runs(method)), strict=True)]

    def at(self, method: str, name: str, when: Literal["start", "drop", "end"]) -> float:
        """A series at its first record, at the first one after the learning rate dropped, or at its last."""
        return self.series(method, name)[{"start": 0, "drop": self.drop, "end": -1}[when]]

    @property
    def drop(self) -> int:
        """The place of the first record after the first milestone."""
        first = self.evidence.recipe["training"]["milestones"][0]
        epochs: list[int] = self.all_runs[0].dynamics["epoch"]
        return next(place for place, epoch in enumerate(epochs) if epoch >= first)

    def bins(self, method: str, name: str, place: int = -1) -> list[float]:
        """A series by bin at a record, mean over seeds."""
        rows = [run.dynamics["bins"][name][place] for run in self.runs(method)]
        return [fmean(values) for values in zip(*rows, strict=True)]

    def pairs(self, pair: str, measure: str, methods: Sequence[str] | None = None) -> list[list[float]]:
        """The paired differences of the runs that have them: difference, ends of the interval, p-value."""
        runs = [run for method in (self.methods if methods is None else methods) for run in self.runs(method)]
        return [run.pairs[pair][measure] for run in runs if pair in run.pairs]

    @property
    def gammas(self) -> dict[float, str]:
        """The methods with a fixed gamma by it, in order; cross-entropy's is 0."""
        fixed = {float(name[3:]): name for name in self.methods if name.startswith("fl-")}
        return dict(sorted(({0.0: "ce"} | fixed).items()))


Results: TypeAlias = Mapping[str, RecipeNumbers]


def recorded_numbers() -> dict[str, RecipeNumbers]:
    """The numbers of every recorded recipe, by its name."""
    return {name: RecipeNumbers(evidence) for name, evidence in recorded().items()}


def value_of(run: RunEvidence, measure: str, phase: str = "pre") -> float | None:
    """A measure of a run in the units of tables, if it has it."""
    value = run.phases.get(phase, {}).get(measure, [None])[0]
    return None if value is None else MEASURES[measure][1] * value
