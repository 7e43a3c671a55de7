"""A table or a plot, as text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A title, and below it a table or a plot; `words` columns of the table are words, the others numbers."""

    title: str
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    plot: str = ""
    words: int = 1
