"""The temperature with the smallest NLL, in two passes over the rows, or three."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from focalcal.calibrators.data import Block, FitData, Sample
from focalcal.core.temperature import SolvedTemperature, TemperedSums, solve_temperature, tempered_sums


def fit_nll_temperature(data: FitData, bounds: tuple[float, float]) -> tuple[SolvedTemperature, float]:
    """The temperature with the smallest mean NLL, and the mean NLL at temperature 1.

    The first pass is at temperature 1, for the report, and takes a sample of rows along. The sample finds a start that
    is about a percent off, and the Taylor series of the next pass leads from there to the minimum.
    """
    identity, sample = data.reduce(_first, _merged)
    before = identity.nll / identity.mass
    if identity.derivatives[1] == 0:  # flat
        return SolvedTemperature(min(max(1.0, bounds[0]), bounds[1]), before, 1, True, False), before
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
        ).temperature
    return solve_temperature(read, start=start, bounds=bounds), before


def _first(blocks: Iterator[Block]) -> tuple[TemperedSums, Sample]:
    """The sums at temperature 1, and some of the rows."""
    sample = Sample()

    def taken() -> Iterator[Block]:
        for block in blocks:
            sample.add(block)
            yield block

    return _sums(taken(), 1.0), sample


def _merged(one: tuple[TemperedSums, Sample], other: tuple[TemperedSums, Sample]) -> tuple[TemperedSums, Sample]:
    return one[0].merge(other[0]), one[1].merge(other[1])


def _sums(blocks: Iterator[Block], inverse_temperature: float) -> TemperedSums:
    parts = (tempered_sums(block.logits, block.labels, block.weight, inverse_temperature) for block in blocks)
    return functools.reduce(TemperedSums.merge, parts)
