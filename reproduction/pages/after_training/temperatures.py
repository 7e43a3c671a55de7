"""The best temperature for each gamma_ev of the focal map, and lines through these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import correlation, fmean, linear_regression, median

from focalcal.calibrators.search import GRIDS
from reproduction.labels import All, gamma_of, listed, spread, table, title_of
from reproduction.pages.after_training.formats import count
from reproduction.pages.after_training.numbers import trained
from reproduction.result_files import Evidence, RunEvidence

LINE_FIGURE = "after_training_line"


@dataclass(frozen=True)
class Line:
    """The best temperatures of runs with one training gamma, and a line for each seed.

    `points` has gamma_ev and the temperatures of all seeds; `at_zero` those of gamma_ev 0, which is no map.
    """

    gamma: float
    points: list[tuple[float, list[float]]]
    at_zero: list[float]
    slopes: list[float]
    intercepts: list[float]
    r_squared: list[float]


def lines_of(each: Evidence) -> list[Line]:
    """The lines of a task by training gamma."""
    gammas = {method: gamma for method in each.methods if (gamma := gamma_of(method)) is not None}
    found = (_line(gammas[method], each.of(method)) for method in sorted(gammas, key=gammas.__getitem__))
    return [line for line in found if line is not None]


def _line(gamma: float, runs: Sequence[RunEvidence]) -> Line | None:
    series = [points for run in runs if len(points := run.extra.get("best_temperatures") or []) > 1]
    if not series:
        return None
    fits = [linear_regression(*zip(*points, strict=True)) for points in series]
    by_gamma: dict[float, list[float]] = {}
    for gamma_ev, temperature in (point for points in series for point in points):
        by_gamma.setdefault(gamma_ev, []).append(temperature)
    varied = [points for points in series if len({value for _, value in points}) > 1]  # R^2 needs some variation
    r_squared = [correlation(*zip(*points, strict=True)) ** 2 for points in varied]
    slopes, intercepts = [fit.slope for fit in fits], [fit.intercept for fit in fits]
    return Line(gamma, sorted(by_gamma.items()), by_gamma.get(0.0, []), slopes, intercepts, r_squared)


def most_gammas(evidence: All) -> Evidence | None:
    """The task with the most training gammas."""
    found = [each for each in trained(evidence) if lines_of(each)]
    return max(found, key=lambda each: len(lines_of(each)), default=None)


def temperatures_section(evidence: All) -> str:
    """Whether the best temperature is linear in gamma_ev."""
    drawn = most_gammas(evidence)
    if drawn is None:
        return ""
    lines = {title_of(each): found for each in trained(evidence) if (found := lines_of(each))}
    rows = [[title, *_line_cells(line)] for title, found in lines.items() for line in found]
    shown = table(["task", "training gamma", "T at 0", "slope", "intercept", "R²"], rows)
    alt = f"Best temperature against gamma_ev for each training gamma, {title_of(drawn)}"
    return (
        "## Best temperature and gamma (komisarenko2024, Fig. 8)\n\n"
        f"{_linear_sentence([line for found in lines.values() for line in found])}{_falling_sentence(lines)}\n"
        "T at 0 is the best temperature without a map. Lines of T against gamma_ev are fitted to each seed.\n\n"
        f"{shown}\n![{alt}](images/{LINE_FIGURE}.svg)\n\n"
        "Means over seeds with their range, and the mean of the lines fitted to each seed.\n"
    )


def _line_cells(line: Line) -> list[str]:
    numbers = [spread(each) for each in (line.at_zero, line.slopes, line.intercepts)]
    return [f"{line.gamma:g}", *numbers, spread(line.r_squared, 3)]


def _linear_sentence(lines: Sequence[Line]) -> str:
    found = [value for line in lines for value in line.r_squared]
    if not found:
        return ""
    above = sum(value > 0.95 for value in found)
    text = (
        "For each gamma_ev the temperature T with the lowest validation AdaECE was searched.\n"
        "The paper finds it close to linear in gamma_ev; here R² of a line is above 0.95 in"
        f" {count(above, len(found), 'run')}, {median(found):.3f} in the median and {min(found):.3f} at least.\n"
    )
    best = [value for line in lines for _, values in line.points for value in values]
    ends = min(GRIDS["mukhoti2020"]), max(GRIDS["mukhoti2020"])
    if cut := sum(value <= ends[0] or value >= ends[1] for value in best):
        text += f"{count(cut, len(best), 'temperature')} are at an end of the search, {ends[0]:g} or {ends[1]:g}.\n"
    return text


def _falling_sentence(lines: Mapping[str, Sequence[Line]]) -> str:
    """Whether the best temperature without a map falls as the training gamma grows [komisarenko2024, Table 1]."""
    parts = []
    for title, found in lines.items():
        values = [fmean(line.at_zero) for line in found if line.at_zero]
        steps = [later < earlier for earlier, later in pairwise(values)]
        if steps:
            parts.append(f"{sum(steps)} of {len(steps)} ({title})")
    if not parts:
        return ""
    return f"From one training gamma to the next, T at gamma_ev = 0 falls in {listed(parts)}; Table 1: it falls.\n"
