"""Markdown tables that are made from result files, and the register of them by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from reproduction.labels import short_name
from reproduction.recipe_numbers import Results


@dataclass(frozen=True)
class MarkdownTable:
    """A table whose first `words` columns are words and whose other columns are numbers.

    >>> table = MarkdownTable(["loss", "ECE, %"], [["FL-1", "**3.2** ± 0.1"]])
    >>> print(table)
    | loss | ECE, % |
    |---|---:|
    | FL-1 | **3.2** ± 0.1 |
    >>> table.cell("FL-1", "ECE")
    '**3.2** ± 0.1'
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1

    def __str__(self) -> str:
        rule = "|".join("---" if place < self.words else "---:" for place in range(len(self.headings)))
        lines = [f"| {' | '.join(row)} |" for row in (self.headings, *self.rows)]
        return "\n".join([lines[0], f"|{rule}|", *lines[1:]])

    def cell(self, row: str, column: str) -> str:
        """The cell in the row of some name (its words joined by " / ", or the first) and in the column of a heading."""
        rows = [each for each in self.rows if row in (each[0], " / ".join(each[: self.words]))]
        columns = [place for place, each in enumerate(self.headings) if each.removesuffix(", %") == column]
        if len(rows) != 1 or len(columns) != 1:
            raise KeyError(f"{len(rows)} rows are named {row!r} and {len(columns)} columns {column!r}")
        return rows[0][columns[0]]


TABLES: dict[str, Callable[[Results], MarkdownTable]] = {}
"""The makers of all tables, by the names under which pages insert them."""


def table(name: str, *recipes: str) -> Callable[[Callable[..., MarkdownTable]], Callable[..., MarkdownTable]]:
    """Register the maker of a table; with recipes, one table for each, made from its numbers alone."""

    def register(make: Callable[..., MarkdownTable]) -> Callable[..., MarkdownTable]:
        made = {f"{name}.{short_name(recipe)}": _of(make, recipe) for recipe in recipes} or {name: make}
        assert not made.keys() & TABLES.keys(), made.keys()
        TABLES.update(made)
        return make

    return register


def _of(make: Callable[..., MarkdownTable], recipe: str) -> Callable[[Results], MarkdownTable]:
    return lambda results: make(results[recipe])


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean over seeds and their standard deviation.

    >>> spread([1.0, 2.0, 3.0]), spread([1.25], 1), spread([])
    ('2.00 ± 1.00', '1.2', '')
    """
    if not values:
        return ""
    mean = f"{fmean(values):.{digits}f}"
    return f"{mean} ± {stdev(values):.{digits}f}" if len(values) > 1 else mean


def best_in_bold(cells: Sequence[Sequence[float]], digits: int = 2, *, best: Any = min) -> list[str]:
    """`spread` of every cell, the best mean in bold.

    >>> best_in_bold([[2.0, 4.0], [1.0], []], 1)
    ['3.0 ± 1.4', '**1.0**', '']
    """
    means = [round(fmean(values), digits) if values else None for values in cells]
    target = best((mean for mean in means if mean is not None), default=None)
    shown = [spread(values, digits).partition(" ") for values in cells]
    return [
        f"**{first}**{gap}{rest}" if mean is not None and mean == target else f"{first}{gap}{rest}"
        for (first, gap, rest), mean in zip(shown, means, strict=True)
    ]


def by_row(names: Sequence[str], columns: Sequence[Sequence[str]]) -> list[list[str]]:
    """Columns of cells as rows that begin with a name."""
    return [[name, *cells] for name, *cells in zip(names, *columns, strict=True)]
