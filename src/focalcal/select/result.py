"""The result of a comparison of calibrators: a row per method, and the verdict in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from focalcal.calibrators.base import Calibrator

IDENTITY = "identity"
NESTED = "select, then calibrate"
SCHEMA = 1


@dataclass(frozen=True)
class MethodScore:
    """The result of one method: its `score` on held-out rows and its `difference` to the raw logits, with intervals.

    `p_value` is that of the paired test, `p_corrected` the same after Holm's correction for the number of methods.
    `fit_seconds` is the mean time of a fit. Of `failures` fits that raised, `error` is the first message; a method that
    failed where it had to predict has no score. What is undefined is None.
    """

    name: str
    score: float | None = None
    low: float | None = None
    high: float | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    p_value: float | None = None
    p_corrected: float | None = None
    fit_seconds: float | None = None
    failures: int = 0
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values; an infinite score becomes a string, because JSON has no number for it."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def cells(self) -> list[str]:
        """The row as tables show it: name, score and difference with their intervals, p-value, seconds of a fit."""
        p_value = self.p_value if self.p_corrected is None else self.p_corrected
        return [
            self.name,
            _number(self.score),
            _ends(self.low, self.high),
            _number(self.difference, "+.4f"),
            _ends(self.difference_low, self.difference_high, "+.4f"),
            _number(p_value, ".2g"),
            _number(self.fit_seconds, ".2g"),
        ]


@dataclass(frozen=True, eq=False)
class Selection:
    """The result of a comparison: the `table`, best first, a recommendation (`verdict`), and the calibrator (`winner`).

    `best` is the method of the best score, fitted to all rows. `winner` is what the verdict says: the simplest method
    within noise of `best`, or the `Identity` where none is significantly better than the raw logits, or where `nested`
    is not. `nested` is the score of choosing a method anew without the rows that it is scored on; `chosen` counts what
    was chosen then. `left_out` says why methods of the default set were not tried.

    >>> from focalcal import select_calibrator
    >>> logits, labels = [[1.0, 0.0], [0.0, 1.0]] * 30, [0, 1, 0, 1, 0, 0] * 10
    >>> selection = select_calibrator(logits, labels, methods=["temperature"], nested=False)
    >>> selection.winner_name, selection.winner
    ('identity', Identity())
    """

    criterion: str
    definition: str
    table: list[MethodScore]
    verdict: str
    winner_name: str
    winner: Calibrator = field(repr=False)
    best: Calibrator = field(repr=False)
    nested: MethodScore | None
    chosen: dict[str, int]
    left_out: dict[str, str]
    level: float
    num_rows: int
    num_classes: int
    num_folds: int
    num_repeats: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, with a schema version; calibrators are left to their own files."""
        plain: dict[str, Any] = {"schema": SCHEMA}
        plain |= {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("winner", "best")}
        rows = {"table": [row.to_dict() for row in self.table]}
        return plain | rows | {"nested": None if self.nested is None else self.nested.to_dict()}

    def __str__(self) -> str:
        cells = [self._head(), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        aligned = [_aligned(line, widths) for line in cells]
        return "\n".join([self._title(), *aligned, *(f"  {note}" for note in self._notes()), self.verdict])

    def _repr_html_(self) -> str:
        from html import escape

        def line(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = line(self._head(), "th") + "".join(line(cells, "td") for cells in self._cells())
        notes = "".join(f"<li>{escape(note)}</li>" for note in self._notes())
        below = (f"<ul>{notes}</ul>" if notes else "") + f"<p>{escape(self.verdict)}</p>"
        return f"<table><caption>{escape(self._title())}</caption>{body}</table>{below}"

    def _title(self) -> str:
        repeated = f" {self.num_repeats} times" if self.num_repeats > 1 else ""
        size = f"{self.num_rows:,} rows, {self.num_classes:,} classes"
        return f"{self.definition}; {size}, {self.num_folds} folds{repeated}"

    def _head(self) -> list[str]:
        interval = f"{self.level:.0%} interval"
        return ["method", self.criterion, interval, f"against {IDENTITY}", interval, "p, corrected", "fit, s"]

    def _cells(self) -> list[list[str]]:
        rows = [row for row in self.table if row.score is not None]
        return [row.cells() for row in (rows if self.nested is None else [*rows, self.nested])]

    def _notes(self) -> list[str]:
        failed = [
            f"{row.name}: {_fits(row.failures)} failed: {row.error}" for row in self.table if row.error is not None
        ]
        picks = ", ".join(f"{name} ({count})" for name, count in self.chosen.items())
        picked = [f"{NESTED}: it chose {picks}."] if picks else []
        return picked + failed + [f"{name} left out: {reason}." for name, reason in self.left_out.items()]


def corrected(rows: list[MethodScore]) -> list[MethodScore]:
    """The rows with p-values after Holm's correction; see `select_calibrator`."""
    tested = sorted((row.p_value, place) for place, row in enumerate(rows) if row.p_value is not None)
    rows, largest = list(rows), 0.0
    for rank, (p_value, place) in enumerate(tested):
        largest = max(largest, (len(tested) - rank) * p_value)
        rows[place] = replace(rows[place], p_corrected=min(1.0, largest))
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _fits(number: int) -> str:
    return "1 fit" if number == 1 else f"{number} fits"


def _number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def _ends(low: float | None, high: float | None, form: str = ".4f") -> str:
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"


def _aligned(cells: list[str], widths: list[int]) -> str:
    padded = [f"{cell:>{width}s}" for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  " + "  ".join([f"{cells[0]:{widths[0]}s}", *padded])
