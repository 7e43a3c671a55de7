"""`focalcal claims`: the ledger of the papers' claims, the exact ones checked live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from focalcal.cli.console import JsonOption, QuietOption, print_json, print_line, progress, standard_output
from focalcal.errors import InputError
from focalcal_lab.papers import ClaimTable

if TYPE_CHECKING:
    from focalcal_lab.papers import Check, CheckResult

Verdict = Literal["holds", "holds with a correction", "failed", "needs training", "not run"]
# Where a claim can stand, in the order in which standings are counted.
STANDINGS = (
    "holds with a correction",
    "proved numerically",
    "measured",
    "does not hold here",
    "shown on a toy problem",
    "set-up kept by a recipe",
    "needs a GPU recipe",
)


@dataclass(frozen=True)
class ClaimRow:
    """A claim and what became of it.

    `printed` and `true` are empty if it holds as printed; `check` and `checked` belong to exact claims, `seconds` to
    those that were run, `message` to those that failed. `standing` is the ledger's, `found` what it says; `seen` is the
    verdict on claims that were looked for in recorded runs of `recipes`, `runs` and `seeds` how many were read.
    `tables` are filled by `show` only.
    """

    id: str
    paper: str
    where: str
    claim: str
    kind: str
    needs: str
    note: str
    printed: str
    true: str
    check: str
    checked: str
    verdict: Verdict
    seconds: float | None
    message: str
    standing: str = ""
    found: str = ""
    seen: str = ""
    equation: str = ""
    recipes: list[str] = field(default_factory=list)
    runs: int = 0
    seeds: int = 0
    tables: list[ClaimTable] = field(default_factory=list)


@dataclass(frozen=True)
class ClaimsResult:
    """The answer of `focalcal claims`: one row per claim, how many have each verdict, and the seconds of all checks.

    `standings` counts the rows by their standing in the ledger.
    """

    rows: list[ClaimRow]
    hold: int
    hold_with_a_correction: int
    failed: int
    need_training: int
    not_run: int
    seconds: float
    answer: str
    standings: dict[str, int] = field(default_factory=dict)
    schema: int = 1
    command: str = "claims"


def claims(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[show] ID_OR_PAPER", help="Claims, or papers; all, if none is named. `show ID` explains a claim."
        ),
    ] = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="Run nothing; list every claim and where it stands.")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The papers' claims and where each stands; the exact ones are checked on this machine.

    The id of a claim shows that one in full, `show ID` explains it with its equation and its numbers. Claims about
    trained networks are answered from recorded results, never run.

    \b
    Examples:
      focalcal claims
      focalcal claims mukhoti2020
      focalcal claims show komisarenko2024.prop5
      focalcal claims --list --json
    """
    from focalcal_lab.papers import claims as read

    wanted = names or []
    explained = wanted[:1] == ["show"]
    wanted = _explained(wanted[1:]) if explained else wanted
    chosen = read(*wanted)
    rows = _rows(chosen, run=not only_list, quiet=quiet, tables=explained)
    # Without --list, claims that need training are shown only if they are asked for by their ids.
    shown = [row for row in rows if only_list or row.verdict != "needs training" or row.id in wanted]
    result = _result(rows, all_shown=shown == rows)
    if as_json:
        print_json(asdict(result))
    elif quiet:
        print_line(result.answer)
    else:
        from focalcal_lab.cli.claims_print import print_rows

        one_by_one = bool(wanted) and set(wanted) == {row["id"] for row in chosen}
        print_rows(shown, result.standings, one_by_one=one_by_one, explained=explained, listed=only_list)
        standard_output().print(result.answer)
    if result.failed:
        raise typer.Exit(1)


def _explained(wanted: list[str]) -> list[str]:
    """The claims to explain, by their ids; a paper or an unknown name is refused."""
    from focalcal_lab.papers import claims as read

    if not wanted:
        raise InputError(
            "claim: `focalcal claims show` needs the id of a claim. `focalcal claims --list` has all of them."
        )
    for name in wanted:
        if name not in {row["id"] for row in read(name)}:
            raise InputError(
                f"claim: must be the id of one claim; got the paper {name!r}. `focalcal claims {name}` has its ids."
            )
    return wanted


def _rows(chosen: Sequence[dict[str, str]], *, run: bool, quiet: bool, tables: bool) -> list[ClaimRow]:
    """The claims with their verdicts, the exact ones checked if `run`."""
    from focalcal_lab.papers import checks, ledger, run_check

    exact, entries = {check.id: check for check in checks()}, ledger()
    wanted = [claim["id"] for claim in chosen if run and claim["id"] in exact]
    results = {}
    with progress(quiet=quiet or not run) as advance:
        for done, claim_id in enumerate(wanted):
            advance(done, len(wanted), claim_id)
            results[claim_id] = run_check(claim_id)
    return [
        _row(claim, entries[claim["id"]], exact.get(claim["id"]), results.get(claim["id"]), tables=tables)
        for claim in chosen
    ]


def _row(
    claim: dict[str, str], entry: dict[str, Any], check: Check | None, result: CheckResult | None, *, tables: bool
) -> ClaimRow:
    from focalcal_lab.papers import NEEDS
    from focalcal_lab.papers.illustrations import claim_tables

    verdict: Verdict = "needs training" if check is None else "not run"
    if check and result:
        verdict = "failed" if not result.passed else "holds" if check.holds else "holds with a correction"
    facts: dict[str, Any] = {name: claim[name] for name in ("id", "paper", "where", "claim", "kind", "note")}
    facts |= {name: entry[name] for name in ("printed", "true", "standing", "equation", "recipes", "runs", "seeds")}
    return ClaimRow(
        **facts,
        needs=NEEDS[claim["checkable_on"]],
        check=check.name if check else "",
        checked=check.checked if check else "",
        verdict=verdict,
        seconds=result.seconds if result else None,
        message=result.message if result else "",
        found=entry["sentence"],
        seen=entry["verdict"],
        tables=claim_tables(claim["id"]) if tables else [],
    )


def _result(rows: list[ClaimRow], *, all_shown: bool) -> ClaimsResult:
    """The rows, counted, with the one-line answer; it says where the claims are that are not shown."""
    count, standings = Counter(row.verdict for row in rows), Counter(row.standing for row in rows)
    result = ClaimsResult(
        rows=rows,
        hold=count["holds"],
        hold_with_a_correction=count["holds with a correction"],
        failed=count["failed"],
        need_training=count["needs training"],
        not_run=count["not run"],
        seconds=sum(row.seconds or 0.0 for row in rows),
        answer="",
        standings={standing: standings[standing] for standing in STANDINGS if standings[standing]},
    )
    return replace(result, answer=_answer(result, all_shown=all_shown))


def _answer(result: ClaimsResult, *, all_shown: bool) -> str:
    parts = []
    if checked := result.hold + result.hold_with_a_correction + result.failed:
        hold = f"{result.hold} {'holds' if result.hold == 1 else 'hold'} as printed"
        verdicts = f"{hold}, {result.hold_with_a_correction} with a correction"
        verdicts += f", {result.failed} FAILED" if result.failed else ""
        parts.append(f"{_count(checked, 'exact claim')} checked in {_time(result.seconds)}: {verdicts}")
    if result.not_run:
        parts.append(f"{_count(result.not_run, 'exact claim')}, checked by running without --list")
    if result.need_training:
        others = Counter(row.standing for row in result.rows if row.verdict == "needs training")
        said = ", ".join(f"{others[standing]} {standing}" for standing in result.standings if others[standing])
        of_other = "claim" if len(result.rows) == result.need_training == 1 else "other"
        hint = "" if all_shown else "; --list has them"
        parts.append(f"{_count(result.need_training, of_other)} ({said}{hint})")
    return "; ".join(parts) + "."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{max(seconds, 0.1):.1f} s"
