"""Which method a comparison recommends, and why, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from focalcal.select.contest import Entry, noise_between
from focalcal.select.result import IDENTITY, NESTED, MethodScore

_KEEP = "Keep the logits as they are, or collect more rows."


@dataclass(frozen=True)
class Recommendation:
    """The method to take: the simplest within `noise` of the `best`, which is None where no method is better.

    `supported` is False where the nested score says that the choice is not worth making.
    """

    name: str
    best: MethodScore | None = None
    noise: float = 0.0
    supported: bool = True


def recommend(
    table: list[MethodScore], entries: Mapping[str, Entry], nested: MethodScore | None, level: float
) -> Recommendation:
    """The recommendation for methods of which the best comes first; `entries` come in order of simplicity."""
    best = table[0]
    better = {row.name: row for row in table if row.p_corrected is not None and row.p_corrected < 1 - level}
    if best.name not in better:
        return Recommendation(IDENTITY)
    if nested is not None and nested.difference is not None and nested.difference >= 0:
        return Recommendation(IDENTITY, best, supported=False)
    for name in entries:
        noise = noise_between(entries[name], entries[best.name])
        if name in better and _score(better[name]) - _score(best) <= noise:
            return Recommendation(name, best, noise)
    raise AssertionError("the best method is within noise of itself")


def _score(row: MethodScore) -> float:
    assert row.score is not None
    return row.score


def verdict_of(
    table: list[MethodScore], choice: Recommendation, nested: MethodScore | None, criterion: str, level: float
) -> str:
    """The recommendation in a sentence or two."""
    raw = next(row for row in table if row.name == IDENTITY)
    others = [row for row in table if row is not raw and row.p_corrected is not None]
    if not others:
        return f"No method gives a finite {criterion}. {_KEEP}"
    tests = len(others)
    if choice.name != IDENTITY:
        taken = next(row for row in others if row.name == choice.name)
        ends = f"{level:.0%} interval {taken.difference_low:+.4g} to {taken.difference_high:+.4g}"
        scores = f"{criterion} {taken.score:.4g} instead of {raw.score:.4g}"
        return f"Use {taken.name}: {scores} ({_figures(taken, tests)}, {ends}).{_simpler(taken, choice)}"
    best = others[0]
    if not choice.supported:
        assert nested is not None
        return (
            f"Keep the logits as they are. {best.name} looks better ({_figures(best, tests)}), but choosing a method "
            f"on these rows does not improve {criterion} on new ones ({NESTED}: {nested.difference:+.4g}). Collect "
            "more rows, or compare fewer methods."
        )
    how = "" if best.difference is not None and best.difference >= 0 else "significantly "
    return f"No method is {how}better than the raw logits (best: {best.name}, {_figures(best, tests)}). {_KEEP}"


def _figures(row: MethodScore, tests: int) -> str:
    corrected = "" if tests == 1 else f" after correction for {tests} methods"
    return f"difference {row.difference:+.4g}, p = {row.p_corrected:.2g}{corrected}"


def _simpler(taken: MethodScore, choice: Recommendation) -> str:
    """Why a method is recommended that does not have the best score."""
    best = choice.best
    if best is None or best.name == taken.name:
        return ""
    return (
        f" {best.name} has {best.score:.4g}, which is within one standard error ({choice.noise:.2g}) of it, and "
        f"{taken.name} is simpler."
    )
