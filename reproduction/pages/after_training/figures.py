"""The page's figures: ECE after each calibrator, and lines of best temperatures."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from reproduction.labels import PHASES, All, title_of
from reproduction.pages.after_training.means import ECE_FIGURE, ece_ratios
from reproduction.pages.after_training.numbers import all_of
from reproduction.pages.after_training.temperatures import LINE_FIGURE, lines_of, most_gammas
from reproduction.result_files import Evidence

_MARKERS = "osD^vPX*"


def figures(evidence: All) -> dict[str, Any]:
    """The page's figures by file name."""
    made = {}
    if ece_ratios(evidence):
        made[ECE_FIGURE] = _ece_figure(evidence)
    if drawn := most_gammas(evidence):
        made[LINE_FIGURE] = _line_figure(drawn)
    return made


def _ece_figure(evidence: All) -> Any:
    from focalcal import drawing as look

    ratios = ece_ratios(evidence)
    tasks = all_of(evidence)
    figure = look.new_figure(look.COLUMN, 0.7 + 0.24 * len(ratios) + 0.15 * len(tasks))
    ax = figure.subplots()
    ax.set_xscale("log")
    ax.axvline(1, color=look.GREY, linewidth=0.8, linestyle="--")
    handles = []
    for place, each in enumerate(tasks):
        apart = 0.13 * (place - (len(tasks) - 1) / 2)  # dots of one row do not hide each other
        points = [(values[each.name], row + apart) for row, values in enumerate(ratios.values()) if each.name in values]
        style = {"color": look.PALETTE[place % len(look.PALETTE)], "marker": _MARKERS[place % len(_MARKERS)]}
        (handle,) = ax.plot([x for x, _ in points], [y for _, y in points], linestyle="", markersize=3.2, **style)
        handles.append(handle)
    look.rows_of_names(ax, [PHASES[phase] for phase in ratios])
    look.logarithmic(ax.xaxis)
    ax.grid(axis="x", color=look.GRID)
    look.style(ax, xlabel="ECE / ECE after TS by NLL", side="center")
    look.legend(ax, handles, list(map(title_of, tasks)), under=True, columns=1)
    return figure


def _line_figure(each: Evidence) -> Any:
    from focalcal import drawing as look

    figure = look.new_figure(look.COLUMN, 3.2)
    ax = figure.subplots()
    colours = (look.BLACK, *look.PALETTE)
    handles = []
    lines = lines_of(each)
    for place, line in enumerate(lines):
        colour, marker = colours[place % len(colours)], _MARKERS[place % len(_MARKERS)]
        slope, intercept = fmean(line.slopes), fmean(line.intercepts)
        ends = [line.points[0][0], line.points[-1][0]]
        ax.plot(ends, [intercept + slope * x for x in ends], color=colour, linewidth=0.9)
        gammas, values = zip(*line.points, strict=True)
        ax.vlines(gammas, list(map(min, values)), list(map(max, values)), color=colour, linewidth=0.5)
        (handle,) = ax.plot(gammas, list(map(fmean, values)), color=colour, marker=marker, linestyle="", markersize=3.5)
        handles.append(handle)
    ax.grid(color=look.GRID)
    look.style(ax, title=title_of(each), xlabel="gamma_ev of the focal map", ylabel="best temperature T")
    names = ["cross-entropy" if line.gamma == 0 else f"FL-{line.gamma:g}" for line in lines]
    look.legend(ax, handles, names, under=True, columns=4)
    return figure
