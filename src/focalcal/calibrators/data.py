"""What calibrators are fitted on: logits and labels, read by blocks of rows as often as a fit asks for them.

Every fit that is a sum over rows is written against `FitData` and so serves an array and a stream alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.core.focal import wide_dtype
from focalcal.core.inputs import ArrayLike, require
from focalcal.core.predictions import Kind, Predictions
from focalcal.core.ranking import Array

# A function that opens the data anew: each batch is (logits, labels) or (logits, labels, sample_weight).
BatchesFactory: TypeAlias = Callable[[], Iterable[tuple[Any, ...]]]

_FEWEST_ROWS = 2
# Values in a sample that finds a start: a few thousand rows are right to a percent, and a percent is what Newton's
# method squares in one pass.
_SAMPLED = 1 << 19


@dataclass(frozen=True)
class Block:
    """Some rows: logits (n, K) in float32 or float64, labels (n,) and weights (n,) in float64, or None."""

    logits: Tensor
    labels: Tensor
    weight: Tensor | None

    def split(self, values: int) -> Iterator[Block]:
        """The rows in smaller blocks of about so many logits."""
        rows = max(1, values // self.logits.shape[1])
        for start in range(0, len(self.labels), rows):
            part = slice(start, start + rows)
            yield Block(self.logits[part], self.labels[part], None if self.weight is None else self.weight[part])

    def mean_sum(self, column: Tensor) -> float:
        """The weighted sum of a column (n,) of the rows."""
        column = column.to(wide_dtype(column.device))
        return float(column.sum() if self.weight is None else (column * self.weight).sum())


class FitData:
    """Rows to fit on; what they are is checked when they are first read.

    `num_rows` and `mass` (the total weight) are known after the first pass.
    """

    def __init__(self, parts: Callable[[], Iterable[Predictions]], *, streamed: bool = False) -> None:
        self._parts, self._checked, self._streamed = parts, False, streamed
        self._sums: list[float] = []
        self.num_rows, self.mass, self.num_classes = 0, 0.0, 0

    @staticmethod
    def of_arrays(logits: ArrayLike, labels: ArrayLike, kind: Kind, sample_weight: ArrayLike | None) -> FitData:
        """One set of arrays."""
        predictions = Predictions(logits, labels, kind=kind, sample_weight=sample_weight, argument="logits")
        return FitData(lambda: [predictions])

    @staticmethod
    def of_stream(batches: BatchesFactory, kind: Kind) -> FitData:
        """Batches that a function opens anew for each pass."""
        require(callable(batches), "batches_factory", "must be a function that opens the data anew", type(batches))

        def parts() -> Iterator[Predictions]:
            opened = batches()
            rule = "must give an iterable of batches when it is called"
            require(isinstance(opened, Iterable), "batches_factory", rule, type(opened).__name__)
            for batch in opened:
                rule = "must give tuples (logits, labels) or (logits, labels, sample_weight)"
                fine = isinstance(batch, (tuple, list)) and len(batch) in (2, 3)
                require(fine, "batches_factory", rule, type(batch).__name__)
                weight = batch[2] if len(batch) == 3 else None
                # Of one batch all weights may be 0; of all batches they may not.
                yield Predictions(
                    batch[0], batch[1], kind=kind, sample_weight=weight, argument="logits", may_be_empty=True
                )

        return FitData(parts, streamed=True)

    def blocks(self) -> Iterator[Block]:
        """The rows in order. The first pass checks every value, later ones that the data is still the same."""
        check, rows, mass, sums = not self._checked, 0, 0.0, [0.0, 0.0, 0.0]
        for predictions in self._parts():
            self._require_classes(predictions.num_classes)
            for chunk in predictions.chunks(check=check):
                weight = None
                if chunk.weight is not None:
                    wide = wide_dtype(chunk.scores.device)
                    weight = torch.from_numpy(chunk.weight).to(chunk.scores.device, wide)
                rows += len(chunk.scores)
                mass += len(chunk.scores) if chunk.weight is None else float(chunk.weight.sum())
                block = Block(logits_of(chunk.scores, predictions.kind), chunk.labels, weight)
                if self._streamed:
                    sums = [sum_ + part for sum_, part in zip(sums, _sums(block), strict=True)]
                yield block
        if check:
            require(rows >= _FEWEST_ROWS, "logits", f"a fit needs at least {_FEWEST_ROWS} rows", rows)
            self._checked, self.num_rows, self.mass, self._sums = True, rows, mass, sums
        fix = "Pass a function that opens the data anew, not an iterator that can be read once."
        require(rows == self.num_rows, "batches_factory", f"gave {self.num_rows} rows before", rows, fix)
        same = all(
            math.isclose(a, b, rel_tol=1e-9) for a, b in zip([mass, *sums], [self.mass, *self._sums], strict=True)
        )
        require(same, "batches_factory", "must give the same data each time", "other values than before")

    def count(self) -> int:
        """The number of rows; reads them if nobody has done so yet."""
        if not self.num_rows:
            for _ in self.blocks():
                pass
        return self.num_rows

    def _require_classes(self, num_classes: int) -> None:
        self.num_classes = self.num_classes or num_classes
        rule = f"all batches must have the same number of classes, {self.num_classes} so far"
        require(num_classes == self.num_classes, "logits", rule, num_classes)


class Sample:
    """Every so-many-th row of a stream of unknown length: thinned out by half whenever it grows too large."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.stride, self.values = 1, 0

    def add(self, block: Block) -> None:
        """Take some rows of a block along."""
        self._keep(block, self.stride)
        while self.values > _SAMPLED and sum(len(kept.labels) for kept in self.blocks) > _FEWEST_ROWS:
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

    def data(self) -> FitData:
        """The sample as one block: many small ones would cost more in calls than in arithmetic."""
        wide = wide_dtype(self.blocks[0].logits.device)
        weights = [torch.ones_like(b.labels, dtype=wide) if b.weight is None else b.weight for b in self.blocks]
        together = Block(
            torch.cat([block.logits for block in self.blocks]),
            torch.cat([block.labels for block in self.blocks]),
            None if all(block.weight is None for block in self.blocks) else torch.cat(weights),
        )
        return _OneBlock(together)


class _OneBlock(FitData):
    """A block that was read and checked before."""

    def __init__(self, block: Block) -> None:
        self._block, (self.num_rows, self.num_classes) = block, block.logits.shape
        self.mass = float(self.num_rows if block.weight is None else block.weight.sum())

    def blocks(self) -> Iterator[Block]:
        """The one block."""
        return iter([self._block])


def sampled(data: FitData) -> FitData:
    """Some of the rows, evenly spread; all of them if they are few."""
    sample = Sample()
    for block in data.blocks():
        sample.add(block)
    return sample.data() if sample.stride > 1 else data


def joined_weights(weights: Sequence[Tensor | None], columns: Sequence[Tensor]) -> Array | None:
    """The weights of blocks together, 1 for those that have none; None if that is all of them.

    >>> joined_weights([None, torch.tensor([2.0])], [torch.zeros(2), torch.zeros(1)])
    array([1., 1., 2.])
    """
    if all(weight is None for weight in weights):
        return None
    pairs = zip(weights, columns, strict=True)
    return np.concatenate([np.ones(len(rows)) if weight is None else weight.cpu().numpy() for weight, rows in pairs])


def _sums(block: Block) -> list[float]:
    """Enough to notice that a block is not the one that was there before: sums that do not cancel."""
    wide = block.logits.to(wide_dtype(block.logits.device))
    at_label = wide.gather(1, block.labels.unsqueeze(1))
    return [float(wide.square().sum()), float((at_label - wide.amax(1, keepdim=True)).sum()), float(block.labels.sum())]


def logits_of(scores: Tensor, kind: Kind) -> Tensor:
    """Scores of any kind as finite logits: a probability of 0 becomes the smallest normal number of its precision.

    >>> logits_of(torch.tensor([[0.5, 0.5]]), "probs")
    tensor([[-0.6931, -0.6931]])
    """
    tiny = torch.finfo(scores.dtype).tiny
    if kind == "probs":
        return torch.log(scores.clamp(min=tiny))
    return scores.clamp(min=math.log(tiny)) if kind == "log_probs" else scores
