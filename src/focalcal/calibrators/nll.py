"""The temperature with the smallest NLL, in three or four passes over the rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch

from focalcal.calibrators.data import Block, FitData
from focalcal.core.temperature import SolvedTemperature, TemperedSums, solve_temperature, tempered_sums

# Values in the sample that finds the start: a few thousand rows are right to a percent, and a percent is what Newton
# squares in one pass.
_SAMPLED = 1 << 19


class _Sample:
    """Every so-many-th row of a stream of unknown length: thinned out by half whenever it grows too large."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.stride, self.values = 1, 0

    def add(self, block: Block) -> None:
        self._keep(block, self.stride)
        while self.values > _SAMPLED and sum(len(kept.labels) for kept in self.blocks) > 2:
            thick, self.blocks, self.values = self.blocks, [], 0
            for kept in thick:
                self._keep(kept, 2)
            self.stride *= 2

    def _keep(self, block: Block, stride: int) -> None:
        part = slice(None, None, stride)
        # Clones, because a view would keep all rows of a stream in memory.
        weight = None if block.weight is None else block.weight[part].clone()
        kept = Block(block.logits[part].clone(), block.labels[part].clone(), weight)
        self.blocks.append(kept)
        self.values += kept.logits.numel()

    def together(self) -> Block:
        """The sample as one block: many small ones would cost more in calls than in arithmetic."""
        weights = [torch.ones(len(b.labels)) if b.weight is None else b.weight for b in self.blocks]
        return Block(
            torch.cat([block.logits for block in self.blocks]),
            torch.cat([block.labels for block in self.blocks]),
            None if all(block.weight is None for block in self.blocks) else torch.cat(weights),
        )


def fit_nll_temperature(data: FitData, bounds: tuple[float, float]) -> tuple[SolvedTemperature, float]:
    """The temperature with the smallest mean NLL, and the mean NLL at temperature 1.

    The first pass is at temperature 1, for the report, and takes a sample of rows along. Newton's method on the sample
    finds the start, and two or three more passes the rest: each squares the error.
    """
    sample = _Sample()

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
        rows = sample.together()
        start = solve_temperature(lambda inverse: _sums(rows, inverse), bounds=bounds).temperature
    return solve_temperature(read, start=start, bounds=bounds), before


def _sums(block: Block, inverse_temperature: float) -> TemperedSums:
    return tempered_sums(block.logits, block.labels, block.weight, inverse_temperature)


def _merged(sums: Iterable[TemperedSums]) -> TemperedSums:
    return functools.reduce(TemperedSums.merge, sums)
