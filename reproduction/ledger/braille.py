"""Curves in a terminal: lines of Braille dots, eight to a character."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# The bit of the dot in column 0 or 1 and row 0 to 3 of a Braille character.
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BARS = "▁▂▃▄▅▆▇█"


def plot(
    curves: Mapping[str, Callable[[Any], Any]],
    x: tuple[float, float],
    y: tuple[float, float],
    *,
    title: str = "",
    width: int = 60,
    height: int = 12,
) -> str:
    """Functions of an array drawn over an interval; the first character of a curve's name marks it.

    >>> print(plot({"a: a line": lambda x: x}, (0, 1), (0, 1), width=8, height=2))
           1 ┤    a⠤a⠉
           0 ┤⣀a⠒⠉
             └────────
              0      1
             a: a line
    """
    cells: dict[tuple[int, int], int] = {}
    marks: dict[tuple[int, int], str] = {}
    for place, (name, curve) in enumerate(curves.items()):
        rows = [_row(float(value), y, height) for value in curve(np.linspace(*x, 2 * width))]
        for dot, row in enumerate(rows):
            before = rows[dot - 1] if dot and rows[dot - 1] is not None else row
            if row is not None and before is not None:
                for each in _between(before, row):
                    cell = dot // 2, each // 4
                    cells[cell] = cells.get(cell, 0) | _BITS[dot % 2][each % 4]
        _mark(marks, rows, name[0], (place + 0.5) / len(curves), width)
    return _drawn(cells, marks, x, y, width, height, title, list(curves))


def bars(values: tuple[float, ...], width: int = 16) -> str:
    """A series as a row of bars, the lowest and the highest value at the ends of their height.

    >>> bars((0.0, 1.0, 2.0, 7.0))
    '▁▂▃█'
    """
    if len(values) > width:
        values = tuple(values[round(place * (len(values) - 1) / (width - 1))] for place in range(width))
    low, high = min(values), max(values)
    spread = high - low or 1.0
    return "".join(_BARS[round(7 * (value - low) / spread)] for value in values)


def _row(value: float, y: tuple[float, float], height: int) -> int | None:
    """The row of dots of a value, from the top; None where it is outside."""
    share = (value - y[0]) / (y[1] - y[0])
    if not math.isfinite(share) or not -1e-9 <= share <= 1 + 1e-9:
        return None
    return round((1 - share) * (4 * height - 1))


def _between(before: int, row: int) -> range:
    """The rows from the one before to this one, so that steep lines have no gaps."""
    if before == row:
        return range(row, row + 1)
    return range(before + 1, row + 1) if row > before else range(row, before)


def _mark(marks: dict[tuple[int, int], str], rows: list[int | None], sign: str, offset: float, width: int) -> None:
    """Write a curve's sign onto it in three places; those of other curves are elsewhere."""
    for third in range(3):
        column = int(width * (third + offset) / 3)
        row = rows[2 * column]
        if row is not None:
            marks.setdefault((column, row // 4), sign)


def _drawn(
    cells: Mapping[tuple[int, int], int],
    marks: Mapping[tuple[int, int], str],
    x: tuple[float, float],
    y: tuple[float, float],
    width: int,
    height: int,
    title: str,
    names: list[str],
) -> str:
    lines = [" " * 9 + title] if title else []
    labels = {0: y[1], height - 1: y[0]} | ({height // 2: (y[0] + y[1]) / 2} if height > 6 else {})
    for row in range(height):
        label = f"{labels[row]:g}" if row in labels else ""
        signs = (marks.get((column, row)) or chr(0x2800 + cells.get((column, row), 0)) for column in range(width))
        lines.append(f"{label:>8} {'┤' if label else '│'}{''.join(signs)}".replace("\u2800", " ").rstrip())
    right = f"{x[1]:g}"
    lines += [" " * 9 + "└" + "─" * width, " " * 10 + f"{x[0]:g}".ljust(width - len(right)) + right]
    return "\n".join([*lines, " " * 9 + "   ".join(names)])
