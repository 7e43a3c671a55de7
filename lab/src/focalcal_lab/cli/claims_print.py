"""How `focalcal claims` prints: counts, verdicts, lists, and one claim in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from focalcal.cli.console import make_table, standard_output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from focalcal_lab.cli.claims import ClaimRow
    from focalcal_lab.papers import ClaimTable

# How a verdict is said, and its colour. A correction is a finding, not an error.
_SAID: dict[str, tuple[str, str]] = {
    "holds": ("holds", "green"),
    "holds with a correction": ("holds with a correction", "yellow"),
    "failed": ("FAILED", "bold red"),
    "not run": ("not run", "dim"),
}
_COLOURS = {
    "holds with a correction": "yellow",
    "proved numerically": "green",
    "measured": "cyan",
    "does not hold here": "magenta",
    "shown on a toy problem": "cyan",
}
_MOST_ROWS = 24  # of a table; --json has all
_NEVER_WRAPPED = 16  # characters


def print_rows(
    rows: Sequence[ClaimRow], standings: Mapping[str, int], *, one_by_one: bool, explained: bool, listed: bool
) -> None:
    """Print claims: one by one in full, or as a table below the counts."""
    out = standard_output()
    if one_by_one and not listed:
        for row in rows:
            _print_in_full(out, row, explained=explained)
        return
    _print_counts(out, standings)
    if listed:
        _print_list(out, rows)
    else:
        _print_verdicts(out, rows)


def _said(row: ClaimRow) -> tuple[str, str]:
    """The verdict of a check that was run, else where the claim stands."""
    if row.verdict in _SAID and row.verdict != "not run":
        return _SAID[row.verdict]
    seen = f": {row.seen}" if row.standing == "measured" else ""
    return row.standing + seen, _COLOURS.get(row.standing, "dim")


def _print_counts(out: Console, standings: Mapping[str, int]) -> None:
    from rich.text import Text

    table = make_table("standing", "claims")
    for standing, count in standings.items():
        table.add_row(Text(standing, style=_COLOURS.get(standing, "dim")), str(count))
    out.print(table)


def _print_in_full(out: Console, row: ClaimRow, *, explained: bool) -> None:
    said, _ = _said(row)
    lines = {
        "claim": row.claim,
        "where": f"{row.where} of {row.paper}",
        "kind": row.kind,
        "equation": row.equation if explained else "",
        "note": row.note,
        "printed": row.printed,
        "true": row.true,
        "checked" if row.check else "found": row.found,
        "by": f"focalcal_lab.papers.exact.{row.paper}.{row.check}" if row.check else "",
        "runs": f"{row.runs}, up to {row.seeds} seeds, of {', '.join(row.recipes)}" if row.runs else "",
        "recipe": f"focalcal lab run {row.recipes[0]}" if row.recipes and not row.runs else "",
        "result": said if row.seconds is None else f"{said}, in {row.seconds:.2f} s",
        "because": row.message,
    }
    _print_lines(out, row, lines)
    for table in row.tables:
        out.print()
        _print_claim_table(out, table)
    if row.tables:
        out.print()


def _print_claim_table(out: Console, shown: ClaimTable) -> None:
    from rich.text import Text

    out.print(Text(shown.title, style="bold"))
    table = make_table(*shown.headings)
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in shown.rows]
        column.justify = "left" if any(_is_words(cell) for cell in cells) else "right"
        column.no_wrap = max(map(len, cells), default=0) <= _NEVER_WRAPPED
    for row in shown.rows[:_MOST_ROWS]:
        table.add_row(*map(Text, row))
    out.print(table)
    if len(shown.rows) > _MOST_ROWS:
        out.print(f"... and {len(shown.rows) - _MOST_ROWS} more rows, which --json has.")


def _is_words(cell: str) -> bool:
    return len(cell) > 20 or bool(cell and (cell[0].isalpha() or cell[0] in "▁▂▃▄▅▆▇█"))


def _print_verdicts(out: Console, rows: Sequence[ClaimRow]) -> None:
    from rich.text import Text

    seconds = ["" if row.seconds is None else f"{row.seconds:.2f}" for row in rows]
    cells = [(row.id, row.where, Text(*_said(row)), took) for row, took in zip(rows, seconds, strict=True)]
    _print_table(out, ("claim", "where", "verdict", "seconds"), rows, cells)
    for row in rows:
        if row.printed:
            _print_lines(out, row, {"printed": row.printed, "true": row.true})
    for row in rows:
        if row.message:
            _print_lines(out, row, {"FAILED": row.message})


def _print_list(out: Console, rows: Sequence[ClaimRow]) -> None:
    from rich.text import Text

    cells = [(row.id, row.where, Text(*_said(row))) for row in rows]
    _print_table(out, ("claim", "where", "standing"), rows, cells)


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


def _print_lines(out: Console, row: ClaimRow, lines: Mapping[str, str]) -> None:
    """A heading, and under it the lines that are not empty: wrapped beside their labels, or whole on a pipe."""
    from rich.table import Table
    from rich.text import Text

    out.print(Text(row.id, style="bold"))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in lines.items():
        if text and out.is_terminal:
            grid.add_row(f"  {label}:", Text(text))
        elif text:
            indented = text.replace("\n", "\n" + " " * (len(label) + 4))
            out.print(f"  {label}: {indented}")
    if grid.row_count:
        out.print(grid)
