"""The ledger of the papers' claims: where each stands, and what shows it.

    python -m reproduction.ledger    # writes the data file that `focalcal claims` reads

A claim is decided by an exact check of `focalcal_lab.papers`, by a rule of `reproduction.claims` on the recorded
results, or by an entry of `claims/standings.yaml`. A claim that none of them decides, or two, is refused. The tables of
docs/claims.md are inserted by `python -m reproduction.build`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from focalcal.atomic import write_atomically
from focalcal.errors import FocalCalError
from focalcal_lab.papers import checks, claims
from reproduction.claims import RULES
from reproduction.markdown import MarkdownTable, table
from reproduction.recipe_numbers import Results, recorded_numbers
from reproduction.result_files import file_name

FILE = Path(__file__).resolve().parents[1] / "lab/src/focalcal_lab/papers/ledger.json"
"""The data file that ships with the lab."""
_CLAIMS = Path(__file__).with_name("claims")
PAPERS = ("mukhoti2020", "ghosh2022", "charoenphakdee2021", "komisarenko2024")
# In the order of the page, with what each means.
STANDINGS = {
    "holds with a correction": (
        "not true as printed, or only on a loose reading; its check shows a counterexample and proves what is true"
    ),
    "proved numerically": "a check computes it, over grids and against slow formulas",
    "measured": "looked for in networks trained here on small data, and seen, everywhere or in part",
    "does not hold here": "looked for in the same way, and not seen",
    "shown on a toy problem": "seen on data whose distribution is known",
    "set-up kept by a recipe": "says how the authors trained; a test holds the recipe to it, only they know the rest",
    "needs a GPU recipe": "cannot be decided at this scale; the named recipe would decide it",
}


@dataclass(frozen=True)
class LedgerEntry:
    """Where a claim stands and what was found.

    `verdict` belongs to claims that were looked for in results, `printed` and `true` to corrections, `check` is the
    dotted name of the function that checks the claim. `recipes` are those whose runs decided, or would decide; `runs`
    and `seeds` count the runs that were read.
    """

    id: str
    standing: str
    sentence: str
    verdict: str = ""
    printed: str = ""
    true: str = ""
    check: str = ""
    recipes: tuple[str, ...] = ()
    runs: int = 0
    seeds: int = 0
    equation: str = ""


def ledger(results: Results) -> list[LedgerEntry]:
    """An entry for every claim, in the order of `focalcal_lab.papers.claims`."""
    sources = (_exact_checks(), _measured(results), _other_standings())
    return [_entry(row["id"], sources) for row in claims()]


def _entry(claim: str, sources: tuple[Mapping[str, dict[str, Any]], ...]) -> LedgerEntry:
    found = [source[claim] for source in sources if claim in source]
    if len(found) != 1:
        raise FocalCalError(f"{claim}: must have exactly one standing; {len(found)} sources have it.")
    return LedgerEntry(claim, **found[0], equation=_yaml("equations").get(claim, ""))


def _exact_checks() -> dict[str, dict[str, Any]]:
    return {
        check.id: {
            "standing": "proved numerically" if check.holds else "holds with a correction",
            "sentence": check.checked,
            "printed": check.printed,
            "true": check.true,
            "check": f"focalcal_lab.papers.exact.{check.paper}.{check.name}",
        }
        for check in checks()
    }


def _measured(results: Results) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for claim, rule in RULES.items():
        outcome = rule.outcome(results)
        standing = "does not hold here" if outcome.verdict == "not seen" else "measured"
        found[claim] = {"standing": standing, "recipes": rule.recipes, **asdict(outcome)}
    return found


def _other_standings() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for standing, entries in _yaml("standings").items():
        for claim, entry in entries.items():
            recipes = (entry["recipe"],) if "recipe" in entry else ()
            rest = {name: value for name, value in entry.items() if name != "recipe"}
            verdict = {"verdict": "not seen"} if standing == "does not hold here" else {}
            found[claim] = {"standing": standing, "recipes": recipes, **verdict, **rest}
    return found


@cache
def _yaml(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_CLAIMS / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def file_content(results: Results) -> bytes:
    """The data file: a JSON list with one line for each claim."""
    lines = [json.dumps(asdict(entry), ensure_ascii=False) for entry in ledger(results)]
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode()


# --- the tables of docs/claims.md


@table("claims.counts")
def counts(results: Results) -> MarkdownTable:
    """How many claims have each standing."""
    count = Counter(entry.standing for entry in ledger(results))
    rows = [[f"**{standing}**", meaning, str(count[standing])] for standing, meaning in STANDINGS.items()]
    rows.append(["all", "", str(sum(count.values()))])
    return MarkdownTable(["standing", "what it means", "claims"], rows, words=2)


@table("claims.verdicts")
def verdicts(results: Results) -> MarkdownTable:
    """What the recorded results say about the claims that they can decide, by paper."""
    rows = []
    for paper in PAPERS:
        count = Counter(entry.verdict for entry in ledger(results) if entry.id.startswith(paper) and entry.runs)
        rows.append([paper, *(str(count[verdict]) for verdict in ("seen here", "seen in part", "not seen"))])
    total = ["all", *(str(sum(int(row[place]) for row in rows)) for place in (1, 2, 3))]
    return MarkdownTable(["paper", "seen here", "seen in part", "not seen"], [*rows, total])


@table("claims.corrections")
def corrections(results: Results) -> MarkdownTable:
    """What is printed and what is true; the claim's own row has the check that shows it."""
    rows = [
        [f"[`{entry.id}`](#{entry.id})", escape(entry.printed), escape(entry.true)]
        for entry in ledger(results)
        if entry.printed
    ]
    return MarkdownTable(["claim", "printed", "true"], rows, words=3)


def _claims_of(results: Results, paper: str) -> MarkdownTable:
    """The claims of a paper."""
    facts = {row["id"]: row for row in claims(paper)}
    rows = [
        [
            f'<a id="{entry.id}"></a>`{entry.id}`, {escape(facts[entry.id]["where"])}',
            escape(facts[entry.id]["claim"]),
            entry.standing + (f": {entry.verdict}" if entry.standing == "measured" else ""),
            _found(entry),
        ]
        for entry in ledger(results)
        if entry.id in facts
    ]
    return MarkdownTable(["claim", "what the paper says", "standing", "found"], rows, words=4)


for _paper in PAPERS:
    table(f"claims.{_paper}")(partial(_claims_of, paper=_paper))


def _found(entry: LedgerEntry) -> str:
    """What was found, and a link to what shows it."""
    if entry.printed:
        return f"See [corrections](#corrections). {_check(entry)}."
    if entry.check:
        return f"{escape(entry.sentence)} {_check(entry)}."
    if entry.runs:
        files = [
            f"[{file_name(name).removesuffix('.json')}](../reproduction/results/{file_name(name)})"
            for name in entry.recipes
        ]
        return f"{escape(entry.sentence)} {entry.runs} runs, up to {entry.seeds} seeds: {', '.join(files)}."
    if entry.recipes:
        return f"{escape(entry.sentence)} Recipe `{entry.recipes[0]}`."
    return f"{escape(entry.sentence)} [Toy problems](toy_problems.md)."


def _check(entry: LedgerEntry) -> str:
    if not entry.check:
        return "[`ece_bias`](../reproduction/claims/ece_bias.py)"
    module, _, name = entry.check.rpartition(".")
    return f"[`{name}`](../lab/src/{module.replace('.', '/')}.py)"


def escape(text: str) -> str:
    r"""Text as Markdown shows it unchanged, also in a table; what is in backticks stays as it is.

    >>> print(escape("gamma* = a*b, |x| < 1 and `p_y*` of L_f, _b"))
    gamma\* = a\*b, \|x\| &lt; 1 and `p_y*` of L_f, \_b
    """
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part.replace("|", r"\|") if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("*", r"\*").replace("|", r"\|")
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9{])", r"\_", text)  # inside a word it is no emphasis
    return text.replace("](", r"\]\(")


if __name__ == "__main__":
    write_atomically(FILE, file_content(recorded_numbers()))
    sys.exit(0)
