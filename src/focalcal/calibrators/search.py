"""Searches in the focal temperature family: full grids, the line of two optima, and Newton's method.

`TemperatureScaling` searches T with gamma = 0, `FocalCalibration` gamma with T = 1, `FocalTemperatureScaling` both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from focalcal.calibrators.criteria import Criterion
from focalcal.calibrators.data import FitData, sampled
from focalcal.calibrators.newton import GAMMA_BOUNDS, criterion_derivatives, minimize
from focalcal.calibrators.nll import fit_nll_temperature
from focalcal.calibrators.scan import Found, scan_grid, scan_lines
from focalcal.core.checks import require

Grid: TypeAlias = "Literal['mukhoti2020', 'komisarenko2024'] | Sequence[float]"

GRIDS = {
    "mukhoti2020": tuple(i / 10 for i in range(1, 101)),  # Sec. 5.1: 0.1 to 10 in steps of 0.1
    "komisarenko2024": tuple(i / 100 for i in range(1, 501)),  # Sec. 5.1: 0.01 to 5 in steps of 0.01
}
# komisarenko2024, Sec. 5.1
GAMMAS = (-0.5, -0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0)

# Where Newton's method may start: one point near every minimum that a network's logits have shown.
_START_TEMPERATURES = (
    0.02,
    0.05,
    0.1,
    0.2,
    0.35,
    0.5,
    0.7,
    0.85,
    1.0,
    1.2,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    30.0,
    100.0,
    500.0,
)
_START_GAMMAS = (-0.75, -0.5, -0.25, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
# Points to each side of the best one, and how often the neighbourhood is narrowed.
_AROUND, _ROUNDS = 10, 3


@dataclass(frozen=True)
class Best:
    """The best point of a search, with the words of a report."""

    gamma: float
    temperature: float
    value: float
    iterations: int
    converged: bool
    at_boundary: bool


def plain_search(data: FitData, criterion: Criterion, bounds: tuple[float, float]) -> Best:
    """The best temperature without a focal map: exact for a smooth criterion, else on the grid of mukhoti2020."""
    if criterion.name == "nll":
        solved, _ = fit_nll_temperature(data, bounds)
        return Best(0.0, solved.temperature, solved.nll, solved.passes, solved.converged, solved.at_boundary)
    if criterion.smooth:
        return search_continuous(data, criterion, gamma_bounds=(0.0, 0.0), temperature_bounds=bounds)
    return search_grid(data, criterion, [0.0], GRIDS["mukhoti2020"])


def temperatures_of(grid: Grid) -> tuple[float, ...]:
    """The temperatures of a named or given grid, checked.

    >>> temperatures_of("mukhoti2020")[:3]
    (0.1, 0.2, 0.3)
    """
    if isinstance(grid, str):
        require(grid in GRIDS, "grid", f"must be temperatures or one of {', '.join(GRIDS)}", repr(grid))
        return GRIDS[grid]
    values = tuple(float(value) for value in grid)
    require(len(values) >= 1, "grid", "must have at least one temperature", "none")
    wrong = [value for value in values if not (math.isfinite(value) and value > 0)]
    require(not wrong, "grid", "temperatures must be positive and finite", wrong[:1])
    return values


def gammas_of(gammas: Sequence[float]) -> tuple[float, ...]:
    """The gammas of a grid, checked, with 0 among them: so no search does worse than temperature scaling.

    >>> gammas_of([1.0, -0.5])
    (-0.5, 0.0, 1.0)
    """
    values = tuple(float(value) for value in gammas)
    require(len(values) >= 1, "gammas", "must have at least one gamma", "none")
    wrong = [value for value in values if not (math.isfinite(value) and value > -1)]
    require(not wrong, "gammas", "must be greater than -1 and finite", wrong[:1])
    return tuple(sorted({*values, 0.0}))


def search_grid(
    data: FitData, criterion: Criterion, gammas: Sequence[float], temperatures: Sequence[float], *, refine: bool = False
) -> Best:
    """The best point of a grid; with `refine`, of ever finer temperatures around it as well."""
    found = scan_grid(data, criterion, gammas, temperatures)
    points = found.points
    best = found
    if refine and len(temperatures) > 1:
        best, points = _refined(data, criterion, found, sorted(set(temperatures)))
    return Best(best.gamma, best.temperature, best.value, points, True, found.at_boundary)


def _refined(data: FitData, criterion: Criterion, found: Found, temperatures: list[float]) -> tuple[Found, int]:
    """The best temperature between the neighbours of the best one, at its gamma: a thousandth of a step is resolved."""
    place, points = temperatures.index(found.temperature), found.points
    low, high = temperatures[max(place - 1, 0)], temperatures[min(place + 1, len(temperatures) - 1)]
    for _ in range(_ROUNDS):
        fine = np.linspace(low, high, 2 * _AROUND + 1)
        closer = scan_grid(data, criterion, [found.gamma], [*fine.tolist(), found.temperature])
        points += closer.points
        found = closer if closer.value < found.value else found
        step = (high - low) / (2 * _AROUND)
        low, high = max(found.temperature - step, fine[0]), min(found.temperature + step, fine[-1])
    return found, points


def search_line(data: FitData, criterion: Criterion, gammas: Sequence[float], temperatures: Sequence[float]) -> Best:
    r"""The best of 3m points: the best temperatures of gamma 0 and 1 fix a line, and m points along it are tried.

    $$ T(\gamma) = T_0 + (T_1 - T_0)\,\gamma $$

    Source: [komisarenko2024, Sec. 5.2], which proposes it and leaves it untested.
    """
    at_zero, at_one = (scan_grid(data, criterion, [gamma], temperatures) for gamma in (0.0, 1.0))
    slope = at_one.temperature - at_zero.temperature
    along = np.linspace(min(gammas), max(gammas), len(temperatures))
    line = [(at_zero.temperature + slope * gamma, (float(gamma),)) for gamma in along]
    line = [point for point in line if min(temperatures) <= point[0] <= max(temperatures)]
    found = [at_zero, at_one, *([scan_lines(data, criterion, line)] if line else [])]
    best = min(found, key=lambda each: each.value)  # the first of equals: gamma 0
    at_end = best.gamma in (along[0], along[-1]) or best.at_boundary
    return Best(best.gamma, best.temperature, best.value, sum(each.points for each in found), True, at_end)


def search_continuous(
    data: FitData,
    criterion: Criterion,
    *,
    gamma_bounds: tuple[float, float] = GAMMA_BOUNDS,
    temperature_bounds: tuple[float, float],
) -> Best:
    """The least of a smooth criterion by Newton's method; a parameter whose bounds are equal is fixed.

    On a sample of the rows, from the best of some points and from the best temperature without a map; then on all.
    """
    some = sampled(data)
    minimum = functools.partial(minimize, gamma_bounds=gamma_bounds, temperature_bounds=temperature_bounds)
    temperatures = _inside(_START_TEMPERATURES, temperature_bounds)
    gammas = _inside(_START_GAMMAS, gamma_bounds)
    start = scan_lines(some, criterion, [(temperature, gammas) for temperature in temperatures])
    starts = [(start.gamma, start.temperature)]
    if len(gammas) > 1 and len(temperatures) > 1 and start.gamma != 0:
        plain = scan_lines(some, criterion, [(temperature, (0.0,)) for temperature in temperatures])
        starts.append((0.0, plain.temperature))
    ends = [minimum(functools.partial(criterion_derivatives, some, criterion), point) for point in starts]
    best, passes = min(ends, key=lambda each: each.value), sum(each.passes for each in ends)
    if some is not data:
        best = minimum(functools.partial(criterion_derivatives, data, criterion), (best.gamma, best.temperature))
        passes = best.passes
    return Best(best.gamma, best.temperature, best.value, passes, best.converged, best.at_boundary)


def _inside(values: Sequence[float], bounds: tuple[float, float]) -> tuple[float, ...]:
    inside = tuple(value for value in values if bounds[0] <= value <= bounds[1])
    return inside or bounds[:1]
