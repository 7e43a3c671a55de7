"""The papers' trends and tables, looked for in the recorded results: one function a claim, in the file of its paper.

What a function finds is a verdict and a sentence with the numbers. Claims that these experiments cannot decide say why.
"""

from __future__ import annotations

from dataclasses import dataclass

from focalcal_lab.papers import claims
from reproduction.claims import charoenphakdee2021, ghosh2022, komisarenko2024, mukhoti2020
from reproduction.claims.tools import ELSEWHERE, TRENDS, UNTESTABLE, Outcome, Verdict
from reproduction.labels import All

__all__ = ["Finding", "charoenphakdee2021", "findings", "ghosh2022", "komisarenko2024", "mukhoti2020"]

KINDS = ("empirical-trend", "table")


@dataclass(frozen=True)
class Finding:
    """A claim, the verdict on it, and the sentence that says why; `recipes` are those whose results decided."""

    id: str
    where: str
    claim: str
    verdict: Verdict
    sentence: str
    recipes: tuple[str, ...] = ()


def findings(evidence: All) -> list[Finding]:
    """What the results say about every trend and table of the papers that arithmetic alone cannot decide."""
    rows = [row for row in claims() if row["kind"] in KINDS and row["checkable_on"] != "cpu-exact"]
    return [_finding(row, evidence) for row in rows]


def _finding(row: dict[str, str], evidence: All) -> Finding:
    name = row["id"]
    if name in TRENDS:
        found, recipes = TRENDS[name].of(evidence), TRENDS[name].recipes
    elif name in ELSEWHERE:
        found, recipes = Outcome(*ELSEWHERE[name]), ()
    else:
        found, recipes = Outcome("not testable at this scale", UNTESTABLE[name]), ()
    return Finding(name, row["where"], row["claim"], found.verdict, found.sentence, recipes)
