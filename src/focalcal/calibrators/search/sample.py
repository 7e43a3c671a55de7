"""A sample of the rows, evenly spread, on which a search finds its start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from focalcal.calibrators.fit_data import FEWEST_ROWS, FitData, LabelledLogits, P
from focalcal.core.focal import wide_dtype

# Values in a sample that finds a start: five thousand rows are right to a percent or two, which one pass makes 1e-9.
SAMPLED = 1 << 19


class RowSample:
    """Every so-many-th row of a stream of unknown length: thinned out by half whenever it grows too large."""

    def __init__(self) -> None:
        self.blocks: list[LabelledLogits] = []
        self.stride, self._rows = 1, 0

    @staticmethod
    def of(blocks: Iterator[LabelledLogits]) -> RowSample:
        """A sample of some blocks."""
        sample = RowSample()
        for block in blocks:
            sample.add(block)
        return sample

    def add(self, block: LabelledLogits) -> None:
        """Add some rows of a block."""
        self.blocks += _every([block], self.stride, self._rows)
        self._rows += len(block.labels)
        self._thin_out()

    def merge(self, other: RowSample) -> RowSample:
        """A sample of the rows of both."""
        merged = RowSample()
        merged.stride, merged._rows = max(self.stride, other.stride), self._rows + other._rows
        for part in (self, other):
            merged.blocks += _every(part.blocks, merged.stride // part.stride)
        merged._thin_out()
        return merged

    def _thin_out(self) -> None:
        while (
            sum(block.logits.numel() for block in self.blocks) > SAMPLED
            and sum(len(block.labels) for block in self.blocks) > FEWEST_ROWS
        ):
            self.blocks, self.stride = _every(self.blocks, 2), 2 * self.stride

    def block(self) -> LabelledLogits:
        """The sample as one block: many small ones would cost more in calls than in arithmetic."""
        wide = wide_dtype(self.blocks[0].logits.device)
        weights = [torch.ones_like(b.labels, dtype=wide) if b.weight is None else b.weight for b in self.blocks]
        return LabelledLogits(
            torch.cat([block.logits for block in self.blocks]),
            torch.cat([block.labels for block in self.blocks]),
            None if all(block.weight is None for block in self.blocks) else torch.cat(weights),
        )

    def data(self) -> FitData:
        """The sample as data of a fit."""
        return _OneBlock(self.block())


def _every(blocks: list[LabelledLogits], stride: int, before: int = 0) -> list[LabelledLogits]:
    """Every so-many-th row of blocks that are one after the other, if so many rows came before them."""
    kept = []
    for block in blocks:
        some = block.part(slice(-before % stride, None, stride))
        before += len(block.labels)
        if len(some.labels):
            kept.append(some.copy())  # a view would keep all rows of a stream in memory
    return kept


class _OneBlock(FitData):
    """One block of rows that were read and checked before."""

    def __init__(self, block: LabelledLogits) -> None:
        self._block, (self.num_rows, self.num_classes) = block, block.logits.shape
        self.mass = float(self.num_rows if block.weight is None else block.weight.sum())

    def reduce(self, fold: Callable[[Iterator[LabelledLogits]], P], merge: Callable[[P, P], P]) -> P:
        """The fold of the one block."""
        self.passes += 1
        return fold(iter([self._block]))


def sampled(data: FitData) -> FitData:
    """Some of the rows, evenly spread, in one pass; all of them if they are few."""
    sample = data.reduce(RowSample.of, RowSample.merge)
    return sample.data() if sample.stride > 1 else data
