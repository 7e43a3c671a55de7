"""Which numbers of the result files a verdict rests on: what its check reads is written down, seed by seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reproduction.claims.tools import Numbers
from reproduction.labels import MEASURES, PHASES
from reproduction.result_files import Evidence, RunEvidence


@dataclass(frozen=True)
class Reading:
    """A number that a check read: of which recipe and method, what it is, and its value by seed."""

    recipe: str
    method: str
    what: str
    values: dict[int, float]
    digits: int = 2
    curve: tuple[float, ...] = ()


class Watch:
    """Makes `Numbers` that write down what is read: `readings`, and the runs that were touched."""

    def __init__(self) -> None:
        self.readings: dict[tuple[str, str, str], Reading] = {}
        self.runs: set[tuple[str, str, int]] = set()

    def __call__(self, evidence: Evidence) -> Numbers:
        """The numbers of a recipe, watched."""
        return _Watched(evidence, self)

    def note(self, reading: Reading) -> None:
        """Write a reading down, once."""
        self.readings.setdefault((reading.recipe, reading.method, reading.what), reading)

    def touch(self, recipe: str, runs: Sequence[RunEvidence]) -> None:
        """Count runs that were read."""
        self.runs |= {(recipe, run.method, run.seed) for run in runs}

    @property
    def seeds(self) -> int:
        """The most seeds that a method of a recipe was run with."""
        methods = [(recipe, method) for recipe, method, _ in self.runs]
        return max((methods.count(each) for each in set(methods)), default=0)


class _Watched(Numbers):
    def __init__(self, evidence: Evidence, watch: Watch) -> None:
        super().__init__(evidence)
        self.watch = watch

    def runs(self, method: str) -> list[RunEvidence]:
        found = super().runs(method)
        self.watch.touch(self.evidence.name, found)
        return found

    def each(self, method: str, measure: str, phase: str = "pre") -> list[float]:
        values = super().each(method, measure, phase)
        heading, _, digits = MEASURES[measure]
        there = [run.seed for run in self.runs(method) if run.phases[phase][measure][0] is not None]
        self._note(method, f"{heading} {PHASES[phase]}", dict(zip(there, values, strict=True)), digits)
        return values

    def temperature(self, method: str, phase: str = "post") -> float:
        values = {run.seed: run.fits[phase]["temperature"] for run in self.runs(method)}
        self._note(method, f"T, {PHASES[phase].removeprefix('TS ')}", values)
        return super().temperature(method, phase)

    def series(self, method: str, name: str) -> list[float]:
        mean = super().series(method, name)
        last = {run.seed: float(run.dynamics[name][-1]) for run in self.runs(method)}
        what = re.sub(r"\b(nll|ece)\b", lambda match: match[0].upper(), name.replace("_", " "))
        self._note(method, f"{what} at the end", last, 3, tuple(mean))
        return mean

    def pairs(self, pair: str, measure: str, methods: Sequence[str] | None = None) -> list[list[float]]:
        heading, factor, digits = MEASURES[measure]
        after, before = pair.split(" - ")
        what = f"{heading}: {PHASES[after]} less {PHASES[before]}"
        for method in self.evidence.methods if methods is None else methods:
            runs = [run for run in self.runs(method) if pair in run.pairs]
            if runs:
                values = {run.seed: factor * run.pairs[pair][measure][0] for run in runs}
                self._note(method, what, values, digits)
        return super().pairs(pair, measure, methods)

    def _note(
        self, method: str, what: str, values: dict[int, float], digits: int = 2, curve: tuple[float, ...] = ()
    ) -> None:
        self.watch.note(Reading(self.evidence.name, method, what, values, digits, curve))
