"""One calibrator against another: paired differences, changes in percent, and tests of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import comb
from statistics import correlation, fmean

from reproduction.labels import MEASURES
from reproduction.measure import PAIRED
from reproduction.pages.after_training.numbers import value_of
from reproduction.result_files import Evidence, RunEvidence

# Below this p-value a test tells two calibrators apart, or a trend from none.
LEVEL = 0.05


def sign_test(fewer: int, trials: int) -> float:
    """The exact two-sided p-value of so few signs of one kind in so many trials, if both are as likely.

    >>> sign_test(0, 5), sign_test(2, 4), sign_test(0, 0)
    (0.0625, 1.0, 1.0)
    """
    fewer = min(fewer, trials - fewer)
    return min(1.0, float(2 * sum(comb(trials, k) for k in range(fewer + 1)) / 2**trials))


def permutation_test(ones: Sequence[float], others: Sequence[float]) -> float:
    """The share of all orders of a few ranks with a correlation at least as strong.

    >>> round(permutation_test([1, 2, 3, 4], [4, 3, 2, 1]), 3)  # 2 of 24 orders
    0.083
    """
    found = abs(correlation(ones, others))
    strong = [abs(correlation(ones, order)) >= found - 1e-9 for order in permutations(others)]
    return sum(strong) / len(strong)


@dataclass(frozen=True)
class Compared:
    """One calibrator against another by one measure, over runs and over pairs of loss and task.

    `lower` and `higher` count pairs of loss and task by the sign of their mean over seeds.
    """

    measure: str
    differences: list[float]
    surely_better: int
    surely_worse: int
    lower: int
    higher: int

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.differences)

    @property
    def mean(self) -> float:
        """The mean difference of runs."""
        return fmean(self.differences)

    @property
    def better(self) -> int:
        """The number of runs in which the first calibrator is better."""
        return sum(each < 0 for each in self.differences)

    @property
    def p_value(self) -> float:
        """That of the sign test over pairs of loss and task."""
        return sign_test(self.lower, self.lower + self.higher)

    @property
    def verdict(self) -> str:
        """What the sign test says."""
        if self.p_value >= LEVEL:
            return "not told apart from"
        return "better than" if self.lower > self.higher else "worse than"


def compare(found: Iterable[Evidence], after: str, before: str, measure: str) -> Compared | None:
    """One calibrator against another by one measure; None where no run has both."""
    groups = []
    for each in found:
        for method in each.methods:
            values = [_paired(run, f"{after} - {before}", measure) for run in each.of(method)]
            groups.append([value for value in values if value is not None])
    rows = [row for group in groups for row in group]
    means = [fmean(row[0] for row in group) for group in groups if group]
    if not rows:
        return None
    return Compared(
        measure=measure,
        differences=[row[0] for row in rows],
        surely_better=sum(row[2] < 0 for row in rows),
        surely_worse=sum(row[1] > 0 for row in rows),
        lower=sum(mean < 0 for mean in means),
        higher=sum(mean > 0 for mean in means),
    )


def _paired(run: RunEvidence, key: str, measure: str) -> tuple[float, float, float] | None:
    """The difference of a run and the ends of its interval, in the units of tables."""
    found: Sequence[float | None] = run.pairs.get(key, {}).get(measure, [])[:3]
    numbers = [MEASURES[measure][1] * each for each in found if each is not None]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def outside(runs: Iterable[RunEvidence]) -> tuple[int, int]:
    """How many paired differences of calibration errors lie outside their own interval, and of how many."""
    measures = [measure for measure in PAIRED if measure.startswith("ece")]
    rows = [_paired(run, key, measure) for run in runs for key in run.pairs for measure in measures]
    there = [row for row in rows if row is not None]
    return sum(not low <= value <= high for value, low, high in there), len(there)


def relative(each: Evidence, method: str, after: str, before: str, measure: str) -> float | None:
    """By how many percent the mean over seeds is higher after one calibrator than after another."""
    both = [(value_of(run, after, measure), value_of(run, before, measure)) for run in each.of(method)]
    there = [(one, other) for one, other in both if one is not None and other is not None]
    base = sum(other for _, other in there)
    return 100 * (sum(one for one, _ in there) / base - 1) if base else None


def relatives(found: Iterable[Evidence], after: str, before: str, measure: str) -> list[float]:
    """`relative` of every pair of loss and task."""
    values = (relative(each, method, after, before, measure) for each in found for method in each.methods)
    return [value for value in values if value is not None]
