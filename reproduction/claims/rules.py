"""Rules that decide a claim from the recorded results.

A rule looks at the numbers of some recipes and says, for every experiment or part that could show the claim, whether it
held there. The claim is "seen here" if it held everywhere, "not seen" if nowhere, and "seen in part" otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from reproduction.labels import LITTLE, LITTLE_20, MORE, NEWS, SST
from reproduction.recipe_numbers import RecipeNumbers, Results

Verdict: TypeAlias = Literal["seen here", "seen in part", "not seen"]
# Whether a claim held, once or for each of its parts, and the numbers that say so.
Finding: TypeAlias = "tuple[bool | Sequence[bool], str]"

# Groups of recipes: those whose networks overfit, all images, those with all losses, and all that were trained.
OVERFIT, IMAGES, FOUR = (LITTLE, LITTLE_20), (LITTLE, LITTLE_20, MORE), (LITTLE, LITTLE_20, NEWS, SST)
FIVE = (*IMAGES, NEWS, SST)


@dataclass(frozen=True)
class ClaimOutcome:
    """The verdict on a claim, the sentence that gives its numbers, and how many runs and seeds were read."""

    verdict: Verdict
    sentence: str
    runs: int
    seeds: int


@dataclass(frozen=True)
class ClaimRule:
    """What decides a claim: a function of the numbers of some recipes, in their order."""

    decide: Callable[..., Finding]
    recipes: tuple[str, ...]

    def outcome(self, results: Results) -> ClaimOutcome:
        """Apply the rule to recorded results."""
        numbers = [RecipeNumbers(results[name].evidence) for name in self.recipes]
        held, sentence = self.decide(*numbers)
        read = [(each.name, method) for each in numbers for method, _ in each.read]
        return ClaimOutcome(verdict_of(held), sentence, len(read), max(read.count(each) for each in set(read)))


RULES: dict[str, ClaimRule] = {}
"""The rules of all claims that the result files decide, by the ids of the claims."""


def verdict_of(held: bool | Sequence[bool]) -> Verdict:
    """What follows from where a claim held.

    >>> verdict_of([True, True]), verdict_of([True, False]), verdict_of(False)
    ('seen here', 'seen in part', 'not seen')
    """
    parts = [held] if isinstance(held, bool) else list(held)
    return "seen here" if all(parts) else "seen in part" if any(parts) else "not seen"


def rule(claim: str, *recipes: str) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """Register the rule of a claim: a function of the numbers of all its recipes."""

    def register(decide: Callable[..., Finding]) -> Callable[..., Finding]:
        assert claim not in RULES, claim
        RULES[claim] = ClaimRule(decide, recipes)
        return decide

    return register


def by_recipe(
    claim: str, about: str, *recipes: str, note: str = ""
) -> Callable[[Callable[[RecipeNumbers], Finding]], Callable[[RecipeNumbers], Finding]]:
    """Register the rule of a claim that each recipe decides by itself; `about` says what the numbers are."""

    def register(decide: Callable[[RecipeNumbers], Finding]) -> Callable[[RecipeNumbers], Finding]:
        def together(*numbers: RecipeNumbers) -> Finding:
            found = [(each.title, *decide(each)) for each in numbers]
            held = [part for _, each, _ in found for part in ([each] if isinstance(each, bool) else each)]
            return held, f"{about}: {'; '.join(f'{title}: {text}' for title, _, text in found)}.{note and ' ' + note}"

        rule(claim, *recipes)(together)
        return decide

    return register


def chain(values: Iterable[float], digits: int = 2) -> str:
    """Numbers in their order.

    >>> chain([1.0, 2.5])
    '1.00, 2.50'
    """
    return ", ".join(f"{value:.{digits}f}" for value in values)


def falls(values: Sequence[float]) -> bool:
    """Whether each value is smaller than the one before."""
    return all(after < before for before, after in pairwise(values))


def paired(
    numbers: Sequence[RecipeNumbers], pair: str, measure: str, methods: Sequence[str] | None = None
) -> list[list[float]]:
    """The paired differences of all runs of some recipes."""
    return [found for each in numbers for found in each.pairs(pair, measure, methods)]


def counted(pairs: Sequence[Sequence[float]]) -> str:
    """How many differences are below and above 0, and how many significantly so.

    >>> counted([[-1.0, -2.0, -0.5, 0.01], [0.1, -1.0, 1.0, 0.9]])
    'lower in 1 of 2 runs (significantly in 1), higher in 1 (significantly in 0)'
    """
    lower, higher = sum(each[0] < 0 for each in pairs), sum(each[0] > 0 for each in pairs)
    below, above = sum(each[2] < 0 for each in pairs), sum(each[1] > 0 for each in pairs)
    fewer = f"lower in {lower} of {len(pairs)} runs (significantly in {below})"
    return f"{fewer}, higher in {higher} (significantly in {above})"
