"""The best temperature without a focal map; that of the NLL takes two passes over the rows, or three."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from focalcal.calibrators.fit_data import FitData, LabelledLogits
from focalcal.calibrators.search.criteria import Criterion
from focalcal.calibrators.search.grid import GRIDS, FamilyPoint, search_grid
from focalcal.calibrators.search.newton import search_newton
from focalcal.calibrators.search.sample import RowSample
from focalcal.core.optimum import Optimum
from focalcal.core.temperature import TemperedSums, solve_temperature, tempered_sums


def search_temperature(data: FitData, criterion: Criterion, bounds: tuple[float, float]) -> Optimum[FamilyPoint]:
    """The best temperature without a focal map: exact for a smooth criterion, else on the grid of mukhoti2020."""
    if criterion.name == "nll":
        solved = fit_nll_temperature(data, bounds)
        point = FamilyPoint(0.0, solved.point)
        return Optimum(point, solved.value, solved.iterations, solved.converged, solved.at_boundary)
    if criterion.smooth:
        return search_newton(data, criterion, gamma_bounds=(0.0, 0.0), temperature_bounds=bounds)
    return search_grid(data, criterion, [0.0], GRIDS["mukhoti2020"])


def fit_nll_temperature(data: FitData, bounds: tuple[float, float]) -> Optimum[float]:
    """The temperature with the smallest mean NLL, with the mean NLL at temperature 1 as `before`.

    The first pass is at temperature 1, for the report, and takes a sample of rows along. The sample finds a start that
    is about a percent off, and the Taylor series of the next pass leads from there to the minimum.
    """
    identity, sample = data.reduce(_first, _merged)
    before = identity.nll / identity.mass
    if identity.derivatives[1] == 0:  # flat
        return Optimum(min(max(1.0, bounds[0]), bounds[1]), before, 1, before=before)
    known = {1.0: identity}

    def read(inverse_temperature: float) -> TemperedSums:
        if inverse_temperature not in known:
            sums = functools.partial(_sums, inverse_temperature=inverse_temperature)
            known[inverse_temperature] = data.reduce(sums, TemperedSums.merge)
        return known[inverse_temperature]

    start = 1.0
    if sample.stride > 1:
        some = sample.data()
        start = solve_temperature(
            lambda inverse: some.reduce(functools.partial(_sums, inverse_temperature=inverse), TemperedSums.merge),
            bounds=bounds,
        ).point
    return replace(solve_temperature(read, start=start, bounds=bounds), before=before)


def _first(blocks: Iterator[LabelledLogits]) -> tuple[TemperedSums, RowSample]:
    """The sums at temperature 1, and some of the rows."""
    sample = RowSample()

    def taken() -> Iterator[LabelledLogits]:
        for block in blocks:
            sample.add(block)
            yield block

    return _sums(taken(), 1.0), sample


def _merged(
    one: tuple[TemperedSums, RowSample], other: tuple[TemperedSums, RowSample]
) -> tuple[TemperedSums, RowSample]:
    return one[0].merge(other[0]), one[1].merge(other[1])


def _sums(blocks: Iterator[LabelledLogits], inverse_temperature: float) -> TemperedSums:
    parts = (tempered_sums(block.logits, block.labels, block.weight, inverse_temperature) for block in blocks)
    return functools.reduce(TemperedSums.merge, parts)
