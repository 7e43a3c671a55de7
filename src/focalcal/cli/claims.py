"""`focalcal claims`: the papers' claims, the exact ones checked live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from focalcal.cli.console import JsonOption, QuietOption, make_table, print_json, progress, standard_output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from focalcal.papers import Check, CheckResult

Verdict = Literal["holds", "holds with a correction", "failed", "needs training", "not run"]

# How a verdict is said, and its colour. A correction is a finding, not an error.
_SAID: dict[str, tuple[str, str]] = {
    "holds": ("holds", "green"),
    "holds with a correction": ("holds with a correction", "yellow"),
    "failed": ("FAILED", "bold red"),
    "needs training": ("needs training: not run", "dim"),
    "not run": ("not run", "dim"),
}


@dataclass(frozen=True)
class ClaimRow:
    """A claim and what became of it.

    `printed` and `true` are empty if it holds as printed; `check` and `checked` belong to exact claims, `seconds` to
    those that were run, `message` to those that failed.
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


@dataclass(frozen=True)
class ClaimsResult:
    """The answer of `focalcal claims`: one row a claim, how many have each verdict, and the seconds of all checks."""

    rows: list[ClaimRow]
    hold: int
    hold_with_a_correction: int
    failed: int
    need_training: int
    not_run: int
    seconds: float
    answer: str
    schema: int = 1
    command: str = "claims"


def claims(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ID_OR_PAPER", help="Claims, or papers; all, if none is named.")
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Run nothing; list every claim and what it needs.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check the papers' exact claims on this machine: which hold, and which need a correction.

    The id of a claim shows that one in full. Claims that need trained networks are listed, never run.

    \b
    Examples:
      focalcal claims
      focalcal claims mukhoti2020
      focalcal claims komisarenko2024.prop5
      focalcal claims --list --json
    """
    from focalcal.papers import claims as read

    wanted = names or []
    chosen = read(*wanted)
    one_by_one = bool(wanted) and set(wanted) == {row["id"] for row in chosen}
    rows = _rows(chosen, run=not only_list, quiet=quiet)
    # Without --list, claims that need training are shown only if they are asked for by their ids.
    shown = [row for row in rows if only_list or row.verdict != "needs training" or row.id in wanted]
    result = _result(rows, all_shown=shown == rows)
    if as_json:
        print_json(asdict(result))
    elif quiet:
        print(result.answer)
    else:
        _print(shown, one_by_one=one_by_one, listed=only_list)
        standard_output().print(result.answer)
    if result.failed:
        raise typer.Exit(1)


def _rows(chosen: Sequence[dict[str, str]], *, run: bool, quiet: bool) -> list[ClaimRow]:
    """The claims with their verdicts, the exact ones checked if `run`."""
    from focalcal.papers import checks, run_check

    exact = {check.id: check for check in checks()}
    wanted = [claim["id"] for claim in chosen if run and claim["id"] in exact]
    results = {}
    with progress(quiet=quiet or not run) as advance:
        for done, claim_id in enumerate(wanted):
            advance(done, len(wanted), claim_id)
            results[claim_id] = run_check(claim_id)
    return [_row(claim, exact.get(claim["id"]), results.get(claim["id"])) for claim in chosen]


def _row(claim: dict[str, str], check: Check | None, result: CheckResult | None) -> ClaimRow:
    from focalcal.papers import NEEDS

    verdict: Verdict = "needs training" if check is None else "not run"
    if check and result:
        verdict = "failed" if not result.passed else "holds" if check.holds else "holds with a correction"
    return ClaimRow(
        id=claim["id"],
        paper=claim["paper"],
        where=claim["where"],
        claim=claim["claim"],
        kind=claim["kind"],
        needs=NEEDS[claim["checkable_on"]],
        note=claim["note"],
        printed=check.printed if check else "",
        true=check.true if check else "",
        check=check.name if check else "",
        checked=check.checked if check else "",
        verdict=verdict,
        seconds=result.seconds if result else None,
        message=result.message if result else "",
    )


def _result(rows: list[ClaimRow], *, all_shown: bool) -> ClaimsResult:
    """The rows, counted, with the one-line answer; it says where the claims are that are not shown."""
    count = Counter(row.verdict for row in rows)
    hold, corrected, failed = count["holds"], count["holds with a correction"], count["failed"]
    untrained, not_run = count["needs training"], count["not run"]
    seconds = sum(row.seconds or 0.0 for row in rows)
    parts = []
    if checked := hold + corrected + failed:
        verdicts = f"{hold} {'holds' if hold == 1 else 'hold'} as printed, {corrected} with a correction"
        verdicts += f", {failed} FAILED" if failed else ""
        parts.append(f"{_count(checked, 'exact claim')} checked in {_time(seconds)}: {verdicts}")
    if not_run:
        parts.append(f"{_count(not_run, 'exact claim')}, checked by running without --list")
    if untrained:
        need, are = ("needs", "is") if untrained == 1 else ("need", "are")
        parts.append(f"{untrained} {need} trained networks" + ("" if all_shown else f" and {are} listed by --list"))
    return ClaimsResult(rows, hold, corrected, failed, untrained, not_run, seconds, "; ".join(parts) + ".")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{max(seconds, 0.1):.1f} s"


def _print(rows: list[ClaimRow], *, one_by_one: bool, listed: bool) -> None:
    out = standard_output()
    if one_by_one:
        for row in rows:
            _print_in_full(out, row)
    elif listed:
        _print_list(out, rows)
    else:
        _print_verdicts(out, rows)


def _print_in_full(out: Console, row: ClaimRow) -> None:
    said, _ = _SAID[row.verdict]
    lines = {
        "claim": row.claim,
        "where": f"{row.where} of {row.paper}",
        "kind": row.kind,
        "needs": row.needs,
        "note": row.note,
        "printed": row.printed,
        "true": row.true,
        "checked": row.checked,
        "by": f"focalcal.papers.exact.{row.paper}.{row.check}" if row.check else "",
        "result": said if row.seconds is None else f"{said}, in {row.seconds:.2f} s",
        "because": row.message,
    }
    _print_lines(out, row, lines)


def _print_verdicts(out: Console, rows: list[ClaimRow]) -> None:
    from rich.text import Text

    seconds = ["" if row.seconds is None else f"{row.seconds:.2f}" for row in rows]
    cells = [(row.id, row.where, Text(*_SAID[row.verdict]), took) for row, took in zip(rows, seconds, strict=True)]
    _print_table(out, ("claim", "where", "verdict", "seconds"), rows, cells)
    for row in rows:
        if row.printed:
            _print_lines(out, row, {"printed": row.printed, "true": row.true})
    for row in rows:
        if row.message:
            _print_lines(out, row, {"FAILED": row.message})


def _print_list(out: Console, rows: list[ClaimRow]) -> None:
    cells = [(row.id, row.where, row.needs + (", and a correction" if row.printed else "")) for row in rows]
    _print_table(out, ("claim", "where", "needs"), rows, cells)


def _print_table(
    out: Console, headings: Sequence[str], rows: Sequence[ClaimRow], cells: Sequence[Sequence[str | Text]]
) -> None:
    """A table with a rule between papers; ids are never cut, as they are what one types next."""
    table = make_table(*headings)
    table.columns[0].no_wrap = True
    for column in table.columns[1:3]:
        column.justify, column.no_wrap = "left", False
    for place, line in enumerate(cells):
        if place and rows[place].paper != rows[place - 1].paper:
            table.add_section()
        table.add_row(*line)
    if cells:
        out.print(table)


def _print_lines(out: Console, row: ClaimRow, lines: dict[str, str]) -> None:
    """A heading, and under it the lines that are not empty: wrapped beside their labels, or whole on a pipe."""
    from rich.table import Table
    from rich.text import Text

    out.print(Text(row.id, style="bold"))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in lines.items():
        if text and out.is_terminal:
            grid.add_row(f"  {label}:", text)
        elif text:
            out.print(f"  {label}: {text}")
    if grid.row_count:
        out.print(grid)
