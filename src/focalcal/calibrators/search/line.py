"""The line search of the focal temperature family: 3m points instead of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from focalcal.calibrators.fit_data import FitData
from focalcal.calibrators.search.criteria import BINNED, Criterion
from focalcal.calibrators.search.grid import FamilyPoint, at_end, best_of, scan_lines, values_at
from focalcal.core.checks import Array
from focalcal.core.optimum import Optimum


def search_line(
    data: FitData, criterion: Criterion, gammas: Sequence[float], temperatures: Sequence[float]
) -> Optimum[FamilyPoint]:
    r"""The best of 3m points: the best temperatures of gamma 0 and 1 fix a line, and m points along it are tried.

    $$ T(\gamma) = T_0 + (T_1 - T_0)\,\gamma $$

    Source: [komisarenko2024, Sec. 5.2], which proposes it and leaves it untested.
    """
    at_zero, at_one = _best_of_each(data, criterion, (0.0, 1.0), sorted(set(temperatures)))
    start = at_zero.point.temperature
    slope = at_one.point.temperature - start
    along = np.linspace(min(gammas), max(gammas), len(temperatures))
    line = [(start + slope * gamma, (float(gamma),)) for gamma in along]
    line = [point for point in line if min(temperatures) <= point[0] <= max(temperatures)]
    found = [at_zero, at_one, *([scan_lines(data, criterion, line)] if line else [])]
    best = min(found, key=lambda each: each.value)  # the first of equals: gamma 0
    at_boundary = best.point.gamma in (along[0], along[-1]) or best.at_boundary
    return replace(best, iterations=sum(each.iterations for each in found), at_boundary=at_boundary)


def _best_of_each(
    data: FitData, criterion: Criterion, gammas: tuple[float, ...], temperatures: Sequence[float]
) -> list[Optimum[FamilyPoint]]:
    """The best temperature of each gamma."""
    found = []
    for gamma, values in zip(gammas, _values_of_each(data, criterion, gammas, temperatures), strict=True):
        best = best_of(data, criterion, [FamilyPoint(gamma, temperature) for temperature in temperatures], values)
        found.append(replace(best, at_boundary=at_end(best.point.temperature, temperatures)))
    return found


def _values_of_each(
    data: FitData, criterion: Criterion, gammas: tuple[float, ...], temperatures: Sequence[float]
) -> list[Array]:
    """The criterion of each gamma at all temperatures: in one scan, unless it may leave out all points of a gamma."""
    if criterion.smooth or (data.in_memory and criterion.name in BINNED):
        values = values_at(data, criterion, [(temperature, gammas) for temperature in temperatures])
        if np.isfinite(values).all():
            return list(values.reshape(-1, len(gammas)).T)
    return [values_at(data, criterion, [(temperature, (gamma,)) for temperature in temperatures]) for gamma in gammas]
