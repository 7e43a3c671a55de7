"""The four papers as tables, every checkable claim and every published number, and the claims' checks.

`claims.csv` and `published_results.csv` are our own readings. `ledger.json` says where each claim stands; it is made
from the recorded results. The checks of the claims that need arithmetic only are in `focalcal_lab.papers.exact`, which
is imported when first asked for.

>>> from focalcal_lab import papers
>>> [(row["where"], row["claim"]) for row in papers.claims("mukhoti2020.eq2")]
[('sec. 2, eq. 2', 'MCE = max_i |A_i - C_i| over the same bins.')]
"""

from __future__ import annotations

import csv
import difflib
import io
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from focalcal.errors import FocalCalError, InputError

__all__ = [
    "NEEDS",
    "Check",
    "CheckResult",
    "ClaimTable",
    "checks",
    "claims",
    "ledger",
    "published_results",
    "run_check",
]

NEEDS = {
    "cpu-exact": "arithmetic only",
    "cpu-small-data": "a toy problem, a small network or saved logits",
    "gpu-full": "the paper's own training runs",
}
"""What it takes to check a claim, by its `checkable_on`."""


@dataclass(frozen=True)
class Check:
    """A claim that arithmetic alone can check, and the function that does.

    `printed` and `true` are empty if the claim holds as printed; `name` is the function's, `checked` its description.

    >>> check = checks()[0]
    >>> check.id, check.where, check.holds
    ('mukhoti2020.eq1', 'sec. 2, eq. 1', True)
    """

    id: str
    paper: str
    where: str
    claim: str
    holds: bool
    printed: str
    true: str
    name: str
    checked: str


@dataclass(frozen=True)
class CheckResult:
    """What became of one check; the message is empty if it passed.

    >>> result = run_check("mukhoti2020.g.p0-gamma1")
    >>> result.passed, result.message
    (True, '')
    """

    id: str
    passed: bool
    seconds: float
    message: str


@dataclass(frozen=True)
class ClaimTable:
    """A table that explains a claim, as text.

    >>> ClaimTable("Where both losses agree", ["p", "gamma"], [["0.2", "5"]]).rows
    [['0.2', '5']]
    """

    title: str
    headings: list[str]
    rows: list[list[str]]


def claims(*names: str) -> list[dict[str, str]]:
    """Every claim, or those of the named ids or papers: id, paper, where, claim, kind, checkable_on, note.

    >>> len(claims())
    231
    >>> claims("mukhoti2020.eq2")[0]["claim"]
    'MCE = max_i |A_i - C_i| over the same bins.'
    """
    rows = _read("claims.csv")
    known = {row["id"] for row in rows} | {row["paper"] for row in rows}
    for name in names:
        if name not in known:
            raise InputError(f"claim: must be the id of a claim or of a paper; got {name!r}. {_nearest(name, known)}")
    return [row for row in rows if not names or row["id"] in names or row["paper"] in names]


def published_results() -> list[dict[str, str]]:
    """Every number of the papers' result tables: paper, table, dataset, model, method, phase, metric, value, ...

    >>> len(published_results())
    1976
    """
    return _read("published_results.csv")


def ledger() -> dict[str, dict[str, Any]]:
    """Where every claim stands, by its id: standing, sentence, and what else there is to say of it.

    That is: verdict, recipes, runs and seeds of claims about trained networks, printed and true of corrections, the
    check of an exact claim, and the equation.

    >>> ledger()["mukhoti2020.eq1"]["standing"]
    'proved numerically'
    """
    return {entry["id"]: entry for entry in json.loads(_text("ledger.json"))}


def checks() -> list[Check]:
    """Every check, in the order of the claims; nothing is run.

    >>> found = checks()
    >>> len(found), sum(not check.holds for check in found)
    (105, 25)
    """
    from focalcal_lab.papers.exact import TIED

    return [
        Check(
            id=row["id"],
            paper=row["paper"],
            where=row["where"],
            claim=row["claim"],
            holds=not tied.printed,
            printed=tied.printed,
            true=tied.true,
            name=tied.function.__name__,
            checked=tied.function.__doc__ or "",
        )
        for row in claims()
        if (tied := TIED.get(row["id"]))
    ]


def run_check(id: str) -> CheckResult:
    """Check one claim now, in one thread; what its check raises becomes the message of the result.

    >>> run_check("mukhoti2020.g.p0-gamma1").passed
    True
    """
    if not __debug__:
        raise FocalCalError("The checks are assert statements, which python -O (PYTHONOPTIMIZE) leaves out.")
    from focalcal_lab.papers.exact import TIED, run

    if id not in TIED:
        claims(id)  # a name that is none at all is refused with the nearest ones
        raise InputError(f"id: must be a claim that needs {NEEDS['cpu-exact']}; got {id!r}. checks() has all of them.")
    seconds, message = run(TIED[id].function)
    return CheckResult(id, passed=not message, seconds=seconds, message=message)


def _read(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_text(name))))


def _text(name: str) -> str:
    return (resources.files(__name__) / name).read_text(encoding="utf-8")


def _nearest(name: str, known: set[str]) -> str:
    """The names that the caller may have meant: those that contain it, else those spelled most alike."""
    wanted = name.lower()
    alike = sorted(each for each in known if wanted and wanted in each.lower())[:5]
    alike = alike or difflib.get_close_matches(wanted, sorted(known), n=5, cutoff=0.5)
    return f"Nearest: {', '.join(alike)}." if alike else "`focalcal claims --list` shows all of them."
