"""Tries cases of a target until a time or a number is reached, and keeps those that fail."""

from __future__ import annotations

import re
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, settings

from tests.fuzz import corpus
from tests.fuzz.corpus import Kept
from tests.fuzz.guard import Guard
from tests.fuzz.target import Case, Target

# Hypothesis draws so many cases at a time. It ends such a round at the first failure; the next one goes on.
ROUND = 100
_SHOWN = 4000
# Seconds, at most, for making one case smaller.
_MINIMISING = 60.0


@dataclass
class Run:
    """What a run has tried and found: how often each outcome, and the file and the message of each failure."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[Path, str] = field(default_factory=dict)

    def require_good(self, target: Target) -> None:
        """Nothing was found, and the cases were such that something could have been."""
        shown = "\n\n".join(f"{path}: {why}" for path, why in self.failures.items())
        assert not self.failures, f"{len(self.failures)} of {self.outcomes.total()} cases:\n\n{shown}"
        missing = target.outcomes - self.outcomes.keys()
        assert not missing, f"No case of {target.name} was {' or '.join(missing)}; there were {dict(self.outcomes)}."


def run(
    target: Target,
    *,
    seed: int,
    cases: int | None = None,
    seconds: float | None = None,
    folder: Path = corpus.FOLDER,
) -> Run:
    """Try so many cases, or for so long. What fails is made smaller and written into `folder`."""
    done, guard, end = Run(), Guard(), time.monotonic() + (seconds or float("inf"))
    check = checker(target, guard)
    places: set[str] = set()
    number = 0
    try:
        while (cases is None or done.outcomes.total() < cases) and time.monotonic() < end:
            left = ROUND if cases is None else min(ROUND, cases - done.outcomes.total())
            found = _round(target, check, 1_000_000 * seed + number, left, done.outcomes)
            number += 1
            if found is None:
                continue
            case, error = found
            done.outcomes["failed"] += 1
            if _place(error) not in places:  # the same error again and again says nothing new
                places.add(_place(error))
                case = minimised(target, check, case, error)
                why = "".join(traceback.format_exception(error))[-_SHOWN:]
                kept = Kept(f"Found with seed {seed}: {_line(error)}", None, case)
                done.failures[corpus.write_case(target.name, corpus.name_of(case), kept, folder)] = why
    finally:
        guard.stop()
    return done


def checker(target: Target, guard: Guard) -> Callable[[Case], str]:
    """How to check a case of a target: here, or in the process of a guard."""
    return (lambda case: guard.check(target.name, case)) if target.guarded else target.check


def _round(
    target: Target, check: Callable[[Case], str], seed: int, count: int, outcomes: Counter[str]
) -> tuple[Case, Exception] | None:
    """A number of cases; the smallest one that fails, and how."""
    last: list[Case] = []
    phases = (Phase.generate,) if target.guarded else (Phase.generate, Phase.shrink)

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @hypothesis.given(target.cases)
    def attempt(case: Case) -> None:
        last[:] = [case]
        outcomes[check(case)] += 1

    before = outcomes.total()
    try:
        attempt()
    except Exception as error:
        return last[0], error
    assert outcomes.total() > before, f"{target.name}: no case could be drawn."
    return None


def minimised(target: Target, check: Callable[[Case], str], case: Case, error: Exception) -> Case:
    """A smaller case that fails at the same place."""
    if target.smaller is None:
        return case
    end, shrinking = time.monotonic() + _MINIMISING, True
    while shrinking:
        shrinking = False
        for less in target.smaller(case):
            if time.monotonic() > end:
                return case
            if _place(_error_of(check, less)) == _place(error):
                case, shrinking = less, True
                break
    return case


def _error_of(check: Callable[[Case], str], case: Case) -> Exception | None:
    try:
        check(case)
    except Exception as error:
        return error
    return None


def _place(error: Exception | None) -> str:
    """Where an error comes from: the last line of code that it names, and its kind."""
    said = "" if error is None else "".join(traceback.format_exception(error))
    lines = [line for line in said.splitlines() if 'File "' in line]
    return f"{lines[-1]} {re.sub('[0-9.e+-]+', '', _line(error))[:60]}" if error and lines else ""


def _line(error: Exception) -> str:
    """The last line of what an error says."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1].strip()[:300]
