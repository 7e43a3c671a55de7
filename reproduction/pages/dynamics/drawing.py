"""Figures of a recipe: lines over epochs in panels below each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, TypeAlias

from focalcal.drawing import (
    BLUE,
    COLUMN,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    legend,
    new_figure,
    percent,
    style,
)
from reproduction.labels import TITLES, method_name
from reproduction.pages.dynamics.records import by_epoch, drops, series
from reproduction.result_files import Evidence, RunEvidence

# Colour, line and marker.
Look: TypeAlias = "tuple[str, Any, str]"
# Those of each loss in all figures.
LOOKS: dict[str, Look] = {
    "ce": (VERMILION, "-", "o"),
    "fl-1": (SKY, "--", "s"),
    "fl-2": (BLUE, "-.", "^"),
    "fl-3": (PURPLE, ":", "D"),
    "flsd-53": (GREEN, (0, (6, 1.5)), "v"),
    "adafocal": (ORANGE, (0, (3, 1, 1, 1, 1, 1)), "P"),
}


@dataclass(frozen=True)
class Line:
    """A line of a panel: a number of a loss's runs by epochs trained, its name and its look."""

    method: str
    values: Callable[[RunEvidence], dict[int, float]]
    name: str
    look: Look

    def over_seeds(self, evidence: Evidence) -> dict[int, list[float]]:
        """The number of every seed by epochs trained."""
        return by_epoch(evidence, self.method, self.values)


@dataclass(frozen=True)
class Drawing:
    """A figure of a recipe: panels from top to bottom by the labels of their vertical axes, and its words."""

    stem: str
    panels: dict[str, list[Line]]
    alt: str
    caption: str
    columns: int = 2

    def of(self, evidence: Evidence) -> str:
        """Its file name for a recipe."""
        return f"dynamics_{self.stem}_{evidence.name.rpartition('/')[2]}"

    def has(self, evidence: Evidence) -> bool:
        """Whether there is something to draw."""
        return any(line.over_seeds(evidence) for lines in self.panels.values() for line in lines)


def line_of(method: str, name: str, words: str, look: Look) -> Line:
    """A series of a loss."""
    return Line(method, partial(series, name=name), words, look)


def by_loss(methods: Iterable[str], name: str) -> list[Line]:
    """A series of several losses."""
    return [line_of(method, name, method_name(method), LOOKS[method]) for method in methods]


def draw(drawing: Drawing, evidence: Evidence) -> Any:
    """Means over seeds, with a band from the lowest to the highest seed."""
    figure = new_figure(COLUMN, 0.75 + 1.1 * len(drawing.panels) + 0.15 * _legend_rows(drawing))
    axes = figure.subplots(len(drawing.panels), sharex=True, squeeze=False)[:, 0]
    handles: dict[str, Any] = {}
    for ax, (label, lines) in zip(axes, drawing.panels.items(), strict=True):
        for name, handle in draw_panel(ax, label, lines, evidence).items():
            handles.setdefault(name, handle)
        title, xlabel = TITLES[evidence.name] if ax is axes[0] else "", "epochs trained" if ax is axes[-1] else ""
        style(ax, title=title, xlabel=xlabel, ylabel=label)
    figure.align_ylabels(axes)
    legend(axes[-1], list(handles.values()), list(handles), under=True, columns=drawing.columns)
    return figure


def draw_panel(ax: Any, label: str, lines: Iterable[Line], evidence: Evidence) -> dict[str, Any]:
    """The lines of a panel and its marks, by the label that its vertical axis will have; handles by name."""
    found = [(line, values) for line in lines if (values := line.over_seeds(evidence))]
    handles = {line.name: _draw_line(ax, values, line.look) for line, values in found}
    for drop in drops(evidence):
        ax.axvline(drop, color=GREY, linewidth=0.7, linestyle=(0, (1, 1.5)), zorder=0)
    if label.startswith(("ECE", "confidence", "gap")):
        percent(ax.yaxis, 4)
    if label.startswith("gap"):
        ax.axhline(0, color=GREY, linewidth=0.7, zorder=0)
    return handles


def _legend_rows(drawing: Drawing) -> int:
    names = {line.name for lines in drawing.panels.values() for line in lines}
    return -(-len(names) // drawing.columns)


def _draw_line(ax: Any, found: dict[int, list[float]], look: Look) -> Any:
    colour, line, marker = look
    low, high = ([end(values) for values in found.values()] for end in (min, max))
    ax.fill_between(list(found), low, high, color=colour, alpha=0.15, linewidth=0)
    means = [fmean(values) for values in found.values()]
    (handle,) = ax.plot(list(found), means, color=colour, linestyle=line, linewidth=1.1, marker=marker, markersize=2.6)
    return handle
