"""`focalcal lab table`: a paper's table, published beside measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from focalcal.cli.console import JsonOption, make_table, print_json, standard_output

if TYPE_CHECKING:
    from rich.text import Text

    from focalcal_lab.published_table import PublishedTable, PublishedTableRow


def lab_table(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="mukhoti2020, ghosh2022 or komisarenko2024.")],
    table: Annotated[str, typer.Argument(metavar="NUMBER", help="The number of the table in the paper.")],
    runs: Annotated[str, typer.Option("--runs", metavar="DIR", help="The folder that the runs lie below.")] = "runs",
    variant: Annotated[
        str | None, typer.Option("--variant", metavar="NAME", help="Runs of the recipes +NAME: --variant mean.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a paper's table with what was measured here, the difference, and the spread over seeds.

    What has not been run is marked. Runs of unlike recipes, epochs or data are never averaged.

    \b
    Examples:
      focalcal lab table mukhoti2020 1
      focalcal lab table ghosh2022 7 --runs /data/runs
      focalcal lab table mukhoti2020 1 --variant mean --json
    """
    from focalcal_lab.published_table import published_table

    found = published_table(paper, table, runs, variant=variant)
    if as_json:
        print_json(asdict(found))
    else:
        _print(found)


def _answer(found: PublishedTable) -> str:
    """How much has been measured, and what to do where nothing has."""
    apart = sum(row.status == "not averaged" for row in found.rows)
    runs = f"{found.runs} run{'' if found.runs == 1 else 's'}"
    answer = f"{found.measured} of {len(found.rows)} numbers measured, by {runs} below {found.folder}."
    if apart:
        answer += f" {apart} not averaged: the runs do not belong together."
    if not found.runs:
        answer += f" Begin with: focalcal lab run {found.rows[0].recipe} --method {found.rows[0].method}"
    return answer


def _print(found: PublishedTable) -> None:
    out = standard_output()
    headings = ("recipe", "method", "phase", "measure", "published", "measured", "difference", "seeds", "note")
    title = f"{found.paper}, Table {found.table}" + (f", recipes +{found.variant}" if found.variant else "")
    table = make_table(*headings, title=title)
    table.columns[0].no_wrap = True
    for column in (*table.columns[1:4], table.columns[8]):
        column.justify = "left"
    table.columns[8].no_wrap = False
    notes = list(dict.fromkeys(note for row in found.rows for note in _notes(row)))
    last = None
    for row in found.rows:
        trained = row.recipe.partition("/")[2]
        place = f"{trained} against {row.against}" if row.against else trained
        if last not in (None, place):
            table.add_section()
        name = place if place != last else ""
        mark = " ".join(f"[{notes.index(note) + 1}]" for note in _notes(row))
        table.add_row(name, row.method, row.phase, row.metric, *_numbers(row), mark)
        last = place
    out.print(table)
    for number, note in enumerate(notes, 1):
        out.print(f"[{number}] {note}")
    out.print(_answer(found))


def _notes(row: PublishedTableRow) -> list[str]:
    """What a reader of the cell should know: of the runs, and of a printed number that is in doubt."""
    doubts = [part for part in row.published_note.split("; ") if part.startswith(("check:", "ocr:"))]
    return ([row.note] if row.note else []) + [f"The printed number: {doubt}." for doubt in doubts]


def _numbers(row: PublishedTableRow) -> tuple[str | Text, ...]:
    """Published, measured, difference and seeds; temperatures in brackets, the spread after a plus-minus sign."""
    from rich.text import Text

    published = _with(row.published, row.published_std, row.published_temperature)
    if row.measured is None or row.difference is None:
        return published, Text(row.status, style="yellow" if row.status == "not averaged" else "dim"), "", ""
    return published, _with(row.measured, row.std, row.temperature), f"{row.difference:+.2f}", str(row.seeds)


def _with(value: float, std: float | None, temperature: float | None) -> str:
    spread = "" if std is None else f" ± {std:.2f}"
    return f"{value:.2f}{spread}" + ("" if temperature is None else f" ({temperature:.2f})")
