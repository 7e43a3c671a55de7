"""What calibrators are fitted on: logits and labels, read by blocks of rows as often as a fit asks for them.

Every fit that is a sum over rows is written against `FitData.reduce` or `FitData.total`, one call a pass, and so serves
arrays, streams and clusters alike.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from focalcal.core.focal import wide_dtype
from focalcal.core.inputs import ArrayLike, require
from focalcal.core.predictions import Chunk, Kind, Predictions, logits_of
from focalcal.core.ranking import Array
from focalcal.core.stream import Batch, Stream
from focalcal.errors import InputError

P = TypeVar("P")

_FEWEST_ROWS = 2
# Values in a sample that finds a start: five thousand rows are right to a percent or two, which one pass makes 1e-9.
_SAMPLED = 1 << 19


@dataclass(frozen=True)
class Block:
    """Some rows: logits (n, K) in float32 or float64, labels (n,) and weights (n,) in float64, or None."""

    logits: Tensor
    labels: Tensor
    weight: Tensor | None

    def copy(self) -> Block:
        """The same rows in memory of their own: a batch may be overwritten by the next one."""
        return Block(self.logits.clone(), self.labels.clone(), None if self.weight is None else self.weight.clone())

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


class FitData(ABC):
    """Rows to fit on. `num_rows`, `mass` (the total weight) and `num_classes` are known after the first pass."""

    num_rows = 0
    mass = 0.0
    num_classes = 0
    passes = 0  # how often all rows were read
    stream_passes = 0  # how often a stream was opened for that
    in_memory = True
    memory = 0  # what may grow with the rows of a stream, in bytes
    most_rows: int | None = None  # how many confidences may be kept; any number if None

    @staticmethod
    def of_arrays(logits: ArrayLike, labels: ArrayLike, kind: Kind, sample_weight: ArrayLike | None) -> FitData:
        """One set of arrays."""
        return _Arrays(Predictions(logits, labels, kind=kind, sample_weight=sample_weight, argument="logits"))

    @staticmethod
    def of_stream(stream: Stream) -> FitData:
        """Rows that are read anew in every pass, wherever they are."""
        return _Streamed(stream)

    @abstractmethod
    def reduce(self, fold: Callable[[Iterator[Block]], P], merge: Callable[[P, P], P]) -> P:
        """One pass: `fold` of the blocks of each part of the data, merged in order.

        On a cluster `fold` runs elsewhere, so it must not change anything here.
        """

    def total(self, of_block: Callable[[Block], Any]) -> Any:
        """The sum over all blocks of a number or an array of each, in one pass."""
        return self.reduce(functools.partial(_total, of_block), operator.add)

    def mean(self, of_block: Callable[[Block], Any]) -> Any:
        """`total`, divided by the mass."""
        total = self.total(of_block)
        return total / self.mass

    def columns(self, of_block: Callable[[Block], tuple[Array, ...]]) -> tuple[Array, ...]:
        """Columns of all rows, in one pass: what `of_block` makes of each block, strung together.

        Refused where a stream has more rows than there is room for.
        """
        parts = self.reduce(
            functools.partial(_parts, of_block, self.most_rows), functools.partial(_joined, self.most_rows)
        )
        return tuple(np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))

    def count(self) -> int:
        """The number of rows; reads them if nobody has done so yet."""
        return self.num_rows or int(self.total(lambda block: len(block.labels)))

    def _accept(self, found: tuple[P, _Audit] | None, name: str) -> P:
        """The result of a pass, unless it has read too little, or something else than the first one."""
        audit = None if found is None else found[1]
        if not self.passes:
            rows = 0 if audit is None else audit.num_rows
            require(rows >= _FEWEST_ROWS, "logits", f"a fit needs at least {_FEWEST_ROWS} rows", rows)
            assert audit is not None
            self._audit = audit
            self.num_rows, self.mass, self.num_classes = audit.num_rows, audit.mass, audit.num_classes
        self._audit.require_same(audit, name)
        assert found is not None
        self.passes += 1
        return found[0]


def _parts(
    of_block: Callable[[Block], tuple[Array, ...]], most_rows: int | None, blocks: Iterator[Block]
) -> list[tuple[Array, ...]]:
    parts: list[tuple[Array, ...]] = []
    for block in blocks:
        parts = _joined(most_rows, parts, [of_block(block)])
    return parts


def _joined(
    most_rows: int | None, one: list[tuple[Array, ...]], other: list[tuple[Array, ...]]
) -> list[tuple[Array, ...]]:
    """Both, unless these are more rows than may be kept."""
    rows = sum(part[0].shape[-1] for part in one) + sum(part[0].shape[-1] for part in other)
    if most_rows is not None and rows > most_rows:
        raise InputError(
            f"stream: this calibrator keeps a number of every row, and there are more than {most_rows:,}. Open the "
            "stream with more memory, or take a calibrator that is fitted by sums, such as TemperatureScaling."
        )
    return one + other


def _total(of_block: Callable[[Block], Any], blocks: Iterator[Block]) -> Any:
    return functools.reduce(operator.add, map(of_block, blocks))


class _Arrays(FitData):
    """Rows in memory; what they are is checked when they are first read."""

    def __init__(self, predictions: Predictions) -> None:
        self._predictions = predictions

    def reduce(self, fold: Callable[[Iterator[Block]], P], merge: Callable[[P, P], P]) -> P:
        """One pass."""
        batch = Batch("logits", self._predictions, checked=self.passes > 0)
        return self._accept(_audited(iter([batch]), fold), "logits")


class _Streamed(FitData):
    """The rows of a stream. The first pass keeps them if they are few; else later ones notice when they are others."""

    in_memory = False

    def __init__(self, stream: Stream) -> None:
        self._stream, self.memory, self.most_rows = stream, stream.memory, stream.most_rows
        self._kept: list[Block] = []

    def reduce(self, fold: Callable[[Iterator[Block]], P], merge: Callable[[P, P], P]) -> P:
        """One pass."""
        if self.in_memory:
            return fold(iter(self._kept))
        if not self.passes and self._stream.is_local:
            room = self.memory // 2  # the other half is for what is made of them
            keeping, both = functools.partial(_keeping, fold, room), functools.partial(_both, merge, room)
            found: tuple[P, list[Block] | None] = self._pass(keeping, both)
            self._kept, self.in_memory = found[1] or [], found[1] is not None
            self.most_rows = None if self.in_memory else self.most_rows
            return found[0]
        return self._pass(fold, merge)

    def _pass(self, fold: Callable[[Iterator[Block]], P], merge: Callable[[P, P], P]) -> P:
        self.stream_passes += 1
        found: tuple[P, _Audit] | None = self._stream.reduce(
            functools.partial(_audited, fold=fold, watched=True), functools.partial(_merged, merge=merge)
        )
        return self._accept(found, self._stream.name)


def _keeping(
    fold: Callable[[Iterator[Block]], P], memory: int, blocks: Iterator[Block]
) -> tuple[P, list[Block] | None]:
    """The fold of some blocks, and copies of them unless they take more than the memory."""
    kept: list[Block] | None = []

    def taken() -> Iterator[Block]:
        nonlocal kept
        for block in blocks:
            kept = _within(memory, kept, [block.copy()])
            yield block

    value = fold(taken())
    return value, kept


def _both(
    merge: Callable[[P, P], P], memory: int, one: tuple[P, list[Block] | None], other: tuple[P, list[Block] | None]
) -> tuple[P, list[Block] | None]:
    return merge(one[0], other[0]), _within(memory, one[1], other[1])


def _within(memory: int, one: list[Block] | None, other: list[Block] | None) -> list[Block] | None:
    """All blocks together, or None if that is too much."""
    if one is None or other is None or sum(block.logits.nbytes for block in (*one, *other)) > memory:
        return None
    return one + other


@dataclass(frozen=True)
class _Audit:
    """What a pass has read: enough to notice that another one has read something else."""

    num_classes: int
    num_rows: int
    mass: float
    sums: tuple[float, ...]

    def __add__(self, other: _Audit) -> _Audit:
        rule = f"all batches must have the same number of classes, {self.num_classes} so far"
        require(other.num_classes == self.num_classes, "logits", rule, other.num_classes)
        sums = tuple(one + two for one, two in zip(self.sums, other.sums, strict=True))
        return _Audit(self.num_classes, self.num_rows + other.num_rows, self.mass + other.mass, sums)

    def require_same(self, later: _Audit | None, name: str) -> None:
        """Refuse a pass that has read something else."""
        fix = "Pass a function that opens the data anew, not an iterator that can be read once."
        rows = 0 if later is None else later.num_rows
        require(rows == self.num_rows, name, f"gave {self.num_rows} rows before", rows, fix)
        assert later is not None
        pairs = zip((self.mass, *self.sums), (later.mass, *later.sums), strict=True)
        same = all(math.isclose(before, now, rel_tol=1e-9) for before, now in pairs)
        require(same, name, "must give the same data each time", "other values than before")


def _audited(
    batches: Iterator[Batch], fold: Callable[[Iterator[Block]], P], watched: bool = False
) -> tuple[P, _Audit] | None:
    """The fold of the blocks of some batches and what was read; None if there is no row."""
    read: _Audit | None = None

    def blocks() -> Iterator[Block]:
        nonlocal read
        for batch in batches:
            for chunk in batch.chunks():
                block = _block(chunk, batch.predictions.kind)
                audit = _audit(block, watched)
                read = audit if read is None else read + audit
                yield block

    opened = blocks()
    first = next(opened, None)
    if first is None:
        return None
    value = fold(itertools.chain([first], opened))
    assert read is not None
    return value, read


def _merged(
    one: tuple[P, _Audit] | None, other: tuple[P, _Audit] | None, merge: Callable[[P, P], P]
) -> tuple[P, _Audit] | None:
    if one is None or other is None:
        return other if one is None else one
    return merge(one[0], other[0]), one[1] + other[1]


def _block(chunk: Chunk, kind: Kind) -> Block:
    weight = None
    if chunk.weight is not None:
        weight = torch.from_numpy(chunk.weight).to(chunk.scores.device, wide_dtype(chunk.scores.device))
    return Block(logits_of(chunk.scores, kind), chunk.labels, weight)


def _audit(block: Block, watched: bool) -> _Audit:
    """The size of a block; if it is watched, also sums that do not cancel."""
    rows, num_classes = block.logits.shape
    mass = float(rows if block.weight is None else block.weight.sum())
    if not watched:
        return _Audit(num_classes, rows, mass, ())
    at_label = block.logits.gather(1, block.labels.unsqueeze(1))
    behind = (at_label - block.logits.amax(1, keepdim=True)).sum(dtype=wide_dtype(block.logits.device))
    return _Audit(num_classes, rows, mass, (float(behind), float(block.labels.sum())))


class Sample:
    """Every so-many-th row of a stream of unknown length: thinned out by half whenever it grows too large."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.stride, self._rows = 1, 0

    @staticmethod
    def of(blocks: Iterator[Block]) -> Sample:
        """A sample of some blocks."""
        sample = Sample()
        for block in blocks:
            sample.add(block)
        return sample

    def add(self, block: Block) -> None:
        """Take some rows of a block along."""
        self.blocks += _every([block], self.stride, self._rows)
        self._rows += len(block.labels)
        self._thin_out()

    def merge(self, other: Sample) -> Sample:
        """A sample of the rows of both."""
        merged = Sample()
        merged.stride, merged._rows = max(self.stride, other.stride), self._rows + other._rows
        for part in (self, other):
            merged.blocks += _every(part.blocks, merged.stride // part.stride)
        merged._thin_out()
        return merged

    def _thin_out(self) -> None:
        while (
            sum(block.logits.numel() for block in self.blocks) > _SAMPLED
            and sum(len(block.labels) for block in self.blocks) > _FEWEST_ROWS
        ):
            self.blocks, self.stride = _every(self.blocks, 2), 2 * self.stride

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


def _every(blocks: list[Block], stride: int, before: int = 0) -> list[Block]:
    """Every so-many-th row of blocks that are one after the other, if so many rows came before them."""
    kept = []
    for block in blocks:
        part = slice(-before % stride, None, stride)
        some = Block(block.logits[part], block.labels[part], None if block.weight is None else block.weight[part])
        before += len(block.labels)
        if len(some.labels):
            kept.append(some.copy())  # a view would keep all rows of a stream in memory
    return kept


class _OneBlock(FitData):
    """A block that was read and checked before."""

    def __init__(self, block: Block) -> None:
        self._block, (self.num_rows, self.num_classes) = block, block.logits.shape
        self.mass = float(self.num_rows if block.weight is None else block.weight.sum())

    def reduce(self, fold: Callable[[Iterator[Block]], P], merge: Callable[[P, P], P]) -> P:
        """The fold of the one block."""
        self.passes += 1
        return fold(iter([self._block]))


def sampled(data: FitData) -> FitData:
    """Some of the rows, evenly spread, in one pass; all of them if they are few."""
    sample = data.reduce(Sample.of, Sample.merge)
    return sample.data() if sample.stride > 1 else data
