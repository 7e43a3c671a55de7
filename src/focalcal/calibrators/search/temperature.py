"""The best temperature without a focal map; that of the NLL takes one pass over the rows, or two."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from torch import Tensor

from focalcal.calibrators.fit_data import FitData, LabelledLogits
from focalcal.calibrators.search.criteria import Criterion
from focalcal.calibrators.search.grid import GRIDS, FamilyPoint, search_grid
from focalcal.calibrators.search.newton import search_newton
from focalcal.calibrators.search.sample import SAMPLED, RowSample
from focalcal.core.focal import wide_dtype
from focalcal.core.masking import unify_masks
from focalcal.core.optimum import Optimum
from focalcal.core.temperature import ORDER, TemperedSums, solve_temperature
from focalcal.kernels.temperature import tempered_sums

SumsAt: TypeAlias = "dict[float, TemperedSums]"  # by inverse temperature

# A sample is first solved on so many rows, then on ever more of them, each so many times as many as before.
_FEW_ROWS, _FINER = 64, 8
# From this many rows on sums in float32 leave eight digits of the temperature or more.
_MANY_ROWS = 1 << 12


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

    A sample of rows finds a start that is a few percent off. One pass over all rows then takes the NLL at temperature
    1, for the report, and a Taylor series at the start that leads to the minimum; where that is not yet certain to all
    digits, one more pass follows. Of a stream, the sample takes a pass of its own, which is also that at temperature 1.
    """
    some = data.preview(SAMPLED)
    known: SumsAt = {}
    if some is None:
        known, sample = data.reduce(_first, _both)
        some = sample.block()
        start = _sampled_start(some, bounds) if sample.stride > 1 else 1.0
    else:
        start = _sampled_start(some, bounds)

    def read(inverse_temperature: float) -> TemperedSums:
        if inverse_temperature not in known:
            orders = {inverse_temperature: ORDER} if known else {1.0: 1, inverse_temperature: ORDER}
            fold = functools.partial(_sums, orders=orders)
            found: SumsAt = data.reduce_checked_after(fold, _merged, _is_finite)
            known.update(found)
        return known[inverse_temperature]

    solved = solve_temperature(read, start=start, bounds=bounds)
    identity = known[1.0]
    before = identity.nll / identity.mass
    if identity.derivatives[1] == 0:  # flat, or there already
        return Optimum(min(max(1.0, bounds[0]), bounds[1]), before, 1, before=before)
    return replace(solved, before=before)


def _sampled_start(some: LabelledLogits, bounds: tuple[float, float]) -> float:
    """The best temperature of a sample, found from few rows to ever more; not checked, so that it may mean nothing."""
    temperature, stride = 1.0, 1
    while len(some.labels) // (stride * _FINER) >= _FEW_ROWS:
        stride *= _FINER
    while stride:
        part = some.part(slice(None, None, stride))

        def read(inverse_temperature: float, part: LabelledLogits = part) -> TemperedSums:
            orders = {inverse_temperature: ORDER}
            return tempered_sums(part.logits, part.labels, part.weight, orders)[inverse_temperature]

        with np.errstate(all="ignore"):  # rows that the pass over all of them is going to refuse
            temperature = solve_temperature(read, start=temperature, bounds=bounds).point
        stride //= _FINER
    return temperature if math.isfinite(temperature) else 1.0


def _first(blocks: Iterator[LabelledLogits]) -> tuple[SumsAt, RowSample]:
    """The sums at temperature 1, and some of the rows."""
    sample = RowSample()

    def taken() -> Iterator[LabelledLogits]:
        for block in blocks:
            sample.add(block)
            yield block

    return _sums(taken(), {1.0: ORDER}), sample


def _both(one: tuple[SumsAt, RowSample], other: tuple[SumsAt, RowSample]) -> tuple[SumsAt, RowSample]:
    return _merged(one[0], other[0]), one[1].merge(other[1])


def _sums(blocks: Iterator[LabelledLogits], orders: dict[float, int]) -> SumsAt:
    return functools.reduce(
        _merged, (tempered_sums(_wide_if_few(block.logits), block.labels, block.weight, orders) for block in blocks)
    )


def _wide_if_few(logits: Tensor) -> Tensor:
    """Few rows in float64: what float32 rounds off averages out over many rows only."""
    if len(logits) >= _MANY_ROWS or wide_dtype(logits.device) == logits.dtype:
        return logits
    return unify_masks(logits).to(wide_dtype(logits.device))


def _merged(one: SumsAt, other: SumsAt) -> SumsAt:
    return {inverse: sums.merge(other[inverse]) for inverse, sums in one.items()}


def _is_finite(sums: SumsAt) -> bool:
    return all(np.isfinite(each.derivatives).all() for each in sums.values())
