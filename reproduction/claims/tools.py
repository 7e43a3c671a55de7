"""What the checks of trends share: a recipe's numbers over seeds, and a verdict that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal, TypeAlias

from reproduction.labels import MEASURES, TITLES, All
from reproduction.result_files import Evidence, RunEvidence

Verdict: TypeAlias = Literal["seen here", "seen in part", "not seen", "not testable at this scale", "shown elsewhere"]
SEEN: Verdict = "seen here"
PARTLY: Verdict = "seen in part"
NOT: Verdict = "not seen"
UNTESTED: Verdict = "not testable at this scale"

# Of every claim: what decides it, the recipes that it is looked for in, and, where none is, why.
TRENDS: dict[str, Trend] = {}
UNTESTABLE: dict[str, str] = {}
ELSEWHERE: dict[str, tuple[Verdict, str]] = {}


@dataclass(frozen=True)
class Outcome:
    """The verdict on a claim and the sentence that gives its numbers."""

    verdict: Verdict
    sentence: str


Check: TypeAlias = Callable[..., Outcome]


@dataclass(frozen=True)
class Trend:
    """A claim that the result files can decide: a function of the recipes' numbers, in their order."""

    check: Check
    recipes: tuple[str, ...]

    def of(self, evidence: All, numbers: Callable[[Evidence], Numbers] | None = None) -> Outcome:
        """The outcome, or that the results it needs are not recorded; `numbers` may watch what the check reads."""
        missing = [name for name in self.recipes if name not in evidence]
        if missing:
            return Outcome("not testable at this scale", f"No results of {', '.join(missing)} are recorded.")
        return self.check(*((numbers or Numbers)(evidence[name]) for name in self.recipes))


def trend(claim: str, *recipes: str) -> Callable[[Check], Check]:
    """Ties a check to a claim of `claims.csv`."""

    def tie(check: Check) -> Check:
        assert claim not in TRENDS, claim
        TRENDS[claim] = Trend(check, recipes)
        return check

    return tie


class Numbers:
    """A recipe's results: means over seeds, in the units of tables."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    @property
    def title(self) -> str:
        """What pages call the recipe."""
        return TITLES.get(self.evidence.name, self.evidence.name)

    def has(self, *methods: str) -> bool:
        """Whether all these methods were run."""
        return set(methods) <= set(self.evidence.methods)

    def runs(self, method: str) -> list[RunEvidence]:
        """The runs of a method by seed."""
        return self.evidence.of(method)

    def each(self, method: str, measure: str, phase: str = "pre") -> list[float]:
        """A measure by seed."""
        factor = MEASURES[measure][1]
        found = (run.phases[phase][measure][0] for run in self.runs(method))
        return [factor * value for value in found if value is not None]

    def mean(self, method: str, measure: str, phase: str = "pre") -> float:
        """A measure's mean over seeds."""
        return fmean(self.each(method, measure, phase))

    def best(self, methods: Iterable[str], measure: str, phase: str = "pre") -> str:
        """The method with the lowest mean of a measure."""
        return min(methods, key=lambda method: self.mean(method, measure, phase))

    def temperature(self, method: str, phase: str = "post") -> float:
        """The fitted temperature's mean over seeds."""
        return fmean(run.fits[phase]["temperature"] for run in self.runs(method))

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
        epochs: list[int] = self.evidence.runs[0].dynamics["epoch"]
        return next(place for place, epoch in enumerate(epochs) if epoch >= first)

    def bins(self, method: str, name: str, place: int = -1) -> list[float]:
        """A series by bin at a record, mean over seeds."""
        rows = [run.dynamics["bins"][name][place] for run in self.runs(method)]
        return [fmean(values) for values in zip(*rows, strict=True)]

    def pairs(self, pair: str, measure: str, methods: Sequence[str] | None = None) -> list[list[float]]:
        """The paired differences of the runs that have them: difference, ends of the interval, p-value."""
        runs = [run for run in self.evidence.runs if methods is None or run.method in methods]
        return [run.pairs[pair][measure] for run in runs if pair in run.pairs]

    @property
    def gammas(self) -> dict[float, str]:
        """The methods with a fixed gamma by it, cross-entropy's being 0."""
        fixed = {float(name[3:]): name for name in self.evidence.methods if name.startswith("fl-")}
        return (
            dict(sorted(({0.0: "ce"} | fixed).items()))
            if "ce" in self.evidence.methods
            else dict(sorted(fixed.items()))
        )


def judged(held: Iterable[bool], sentence: str) -> Outcome:
    """Seen if it held everywhere, not seen if nowhere, else in part."""
    found = list(held)
    verdict: Verdict = SEEN if all(found) and found else PARTLY if any(found) else NOT
    return Outcome(verdict, sentence)


def chain(values: Sequence[float], digits: int = 2) -> str:
    """Numbers in their order.

    >>> chain([1.0, 2.5])
    '1.00, 2.50'
    """
    return ", ".join(f"{value:.{digits}f}" for value in values)


def falls(values: Sequence[float]) -> bool:
    """Whether each is smaller than the one before."""
    return all(after < before for before, after in pairwise(values))


def paired(
    numbers: Sequence[Numbers], pair: str, measure: str, methods: Sequence[str] | None = None
) -> list[list[float]]:
    """The paired differences of all runs of some recipes."""
    return [found for each in numbers for found in each.pairs(pair, measure, methods)]


def counted(pairs: Sequence[Sequence[float]]) -> str:
    """How many differences are below and above 0, and how many surely so.

    >>> counted([[-1.0, -2.0, -0.5, 0.01], [0.1, -1.0, 1.0, 0.9]])
    'lower in 1 of 2 runs (surely in 1), higher in 1 (surely in 0)'
    """
    lower, higher = sum(each[0] < 0 for each in pairs), sum(each[0] > 0 for each in pairs)
    surely = sum(each[2] < 0 for each in pairs), sum(each[1] > 0 for each in pairs)
    return f"lower in {lower} of {len(pairs)} runs (surely in {surely[0]}), higher in {higher} (surely in {surely[1]})"
