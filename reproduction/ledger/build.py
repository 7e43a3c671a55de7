"""The ledger: every claim's standing, from the checks, the result files and the tables of `others`."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from focalcal.errors import FocalCalError, InputError
from focalcal_lab.papers import Check, checks, claims
from reproduction.claims import charoenphakdee2021, ghosh2022, komisarenko2024, mukhoti2020  # noqa: F401
from reproduction.claims.tools import ELSEWHERE, NOT, TRENDS, UNTESTED, Trend
from reproduction.ledger.entry import Entry, Standing
from reproduction.ledger.others import GPU, MEASURED, SET_UPS, SIMULATED, TOYS
from reproduction.ledger.watch import Watch
from reproduction.result_files import Evidence, file_name, recorded

RESULTS = "reproduction/results/"
CHECKS, VERDICTS = "lab/tests/claims/test_checks.py", "reproduction/tests/test_ledger.py"


@cache
def ledger() -> tuple[Entry, ...]:
    """An entry for every claim, in their order.

    >>> len(ledger())
    231
    """
    return build({check.id: check for check in checks()}, recorded())


def entry(claim: str) -> Entry:
    """The entry of one claim; a name that is none is refused with the nearest ones.

    >>> entry("mukhoti2020.eq1").standing
    'proved numerically'
    """
    claims(claim)
    found = [each for each in ledger() if each.id == claim]
    if not found:
        raise InputError(
            f"claim: must be the id of one claim; got the paper {claim!r}. `focalcal claims {claim}` has its ids."
        )
    return found[0]


def build(exact: Mapping[str, Check], evidence: Mapping[str, Evidence]) -> tuple[Entry, ...]:
    """The entries by these checks and results; a claim without a source, or with two, is refused."""
    made = _Sources(exact, evidence)
    return tuple(made.entry(row) for row in claims())


def decided_by(claim: str) -> Trend | None:
    """What decides a claim from the result files."""
    return TRENDS.get(claim) or (MEASURED[claim][0] if claim in MEASURED else None)


@dataclass(frozen=True)
class _Sources:
    exact: Mapping[str, Check]
    evidence: Mapping[str, Evidence]

    def entry(self, row: dict[str, str]) -> Entry:
        """The claim's entry by the one source that has it."""
        claim = row["id"]
        sources: list[tuple[Container[str], Callable[[str], dict[str, Any]]]] = [
            (self.exact, self._exact),
            (SIMULATED, _simulated),
            (TRENDS, self._measured),
            (MEASURED, self._measured),
            (TOYS, _toy),
            (SET_UPS, _set_up),
            (GPU, _gpu),
        ]
        found = [make for source, make in sources if claim in source]
        if len(found) != 1:
            raise FocalCalError(f"{claim}: must have exactly one standing; {len(found)} sources have it.")
        facts: dict[str, Any] = {name: row[name] for name in ("id", "paper", "where", "claim", "kind", "note")}
        return Entry(**facts, **found[0](claim))

    def _exact(self, claim: str) -> dict[str, Any]:
        check = self.exact[claim]
        standing: Standing = "proved numerically" if check.holds else "holds with a correction"
        return {
            "standing": standing,
            "sentence": check.checked,
            "printed": check.printed,
            "true": check.true,
            "check": f"focalcal_lab.papers.exact.{check.paper}.{check.name}",
            "tests": (f"{CHECKS}::test_check_passes[{claim}]",),
        }

    def _measured(self, claim: str) -> dict[str, Any]:
        trend = decided_by(claim)
        assert trend is not None
        watch = Watch()
        found = trend.of(self.evidence, watch)
        if found.verdict == UNTESTED:
            raise FocalCalError(f"{claim}: its verdict needs results that are not recorded. {found.sentence}")
        standing: Standing = "does not hold here" if found.verdict == NOT else "measured"
        further = (MEASURED[claim][1],) if claim in MEASURED else ()
        return {
            "standing": standing,
            "verdict": found.verdict,
            "sentence": found.sentence,
            "tests": (f"{VERDICTS}::test_the_verdict_follows_from_the_result_files[{claim}]", *further),
            "results": tuple(RESULTS + file_name(name) for name in trend.recipes),
            "recipes": trend.recipes,
            "runs": len(watch.runs),
            "seeds": watch.seeds,
        }


def _simulated(claim: str) -> dict[str, Any]:
    printed, true, check, test = SIMULATED[claim]
    sentence = "A simulation of calibrated predictions, whose true calibration error is 0."
    return {
        "standing": "holds with a correction",
        "sentence": sentence,
        "printed": printed,
        "true": true,
        "check": check,
        "tests": (test,),
    }


def _toy(claim: str) -> dict[str, Any]:
    verdict, sentence = ELSEWHERE[claim]
    seen = verdict != NOT
    return {
        "standing": "shown on a toy problem" if seen else "does not hold here",
        "verdict": "" if seen else verdict,
        "sentence": sentence,
        "tests": TOYS[claim].tests,
    }


def _set_up(claim: str) -> dict[str, Any]:
    recipe, tests, remark = SET_UPS[claim]
    named = tuple(tests.split())
    return {"standing": "set-up kept by a recipe", "sentence": remark, "tests": named, "recipes": (recipe,)}


def _gpu(claim: str) -> dict[str, Any]:
    recipe, why = GPU[claim]
    return {"standing": "needs a GPU recipe", "sentence": why, "recipes": (recipe,)}
