"""The temperature with the smallest NLL, in three or four passes over the rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from focalcal.calibrators.data import Block, FitData, Sample
from focalcal.core.temperature import SolvedTemperature, TemperedSums, solve_temperature, tempered_sums


def fit_nll_temperature(data: FitData, bounds: tuple[float, float]) -> tuple[SolvedTemperature, float]:
    """The temperature with the smallest mean NLL, and the mean NLL at temperature 1.

    The first pass is at temperature 1, for the report, and takes a sample of rows along. Newton's method on the sample
    finds the start, and two or three more passes the rest: each squares the error.
    """
    sample = Sample()

    def first(block: Block) -> TemperedSums:
        sample.add(block)
        return _sums(block, 1.0)

    identity = _merged(first(block) for block in data.blocks())
    before = identity.nll / identity.mass
    if identity.first == 0:  # flat
        return SolvedTemperature(min(max(1.0, bounds[0]), bounds[1]), before, 1, True, False), before
    known = {1.0: identity}

    def read(inverse_temperature: float) -> TemperedSums:
        if inverse_temperature not in known:
            known[inverse_temperature] = _merged(_sums(block, inverse_temperature) for block in data.blocks())
        return known[inverse_temperature]

    start = 1.0
    if sample.stride > 1:
        (rows,) = sample.data().blocks()
        start = solve_temperature(lambda inverse: _sums(rows, inverse), bounds=bounds).temperature
    return solve_temperature(read, start=start, bounds=bounds), before


def _sums(block: Block, inverse_temperature: float) -> TemperedSums:
    return tempered_sums(block.logits, block.labels, block.weight, inverse_temperature)


def _merged(sums: Iterable[TemperedSums]) -> TemperedSums:
    return functools.reduce(TemperedSums.merge, sums)
