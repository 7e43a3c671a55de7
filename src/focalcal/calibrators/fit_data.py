"""The rows that a calibrator is fitted to: logits and labels from arrays or a stream, read as often as needed.

Every fit that is a sum over rows is written against `FitData.reduce` or `FitData.total`, one call per pass, and so
serves arrays, streams and clusters alike.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import Array, ArrayLike, require
from focalcal.core.focal import wide_dtype
from focalcal.core.score_kinds import GivenKind, Kind, logits_of, positive
from focalcal.errors import InputError
from focalcal.kernels.compiled import kernels_for, with_adjacent_classes
from focalcal.predictions.arrays import Chunk, Predictions
from focalcal.predictions.stream import Batch, Batches, BatchesFactory, Stream

P = TypeVar("P")

FEWEST_ROWS = 2
# Rows that show whether logits may be probabilities: those are between 0 and 1 in every row.
_ROWS_TO_LOOK_AT = 8
# A preview has every eighth row at most, unless it would have too few to be worth much.
_LEAST_STRIDE, _ROWS_OF_A_PREVIEW = 8, 256
# To look at so few values takes no time: they are searched in the same way wherever they come from.
_FEW_VALUES = 1 << 16

Progress: TypeAlias = "Callable[[int, int, str], object]"  # of (done, total, what)
Fold: TypeAlias = "Callable[[Iterator[LabelledLogits]], P]"  # what a pass makes of the blocks of a part of the data


def fit_data(
    logits: ArrayLike | Stream | BatchesFactory,
    labels: ArrayLike | None,
    *,
    kind: GivenKind,
    sample_weight: ArrayLike | None,
    ignore_index: int | None,
    class_axis: int,
    class_names: Sequence[str] | None,
    engine: str | None,
) -> FitData:
    """The arguments of `Calibrator.fit` as data: arrays, a stream, or a function that opens batches anew."""
    reading: dict[str, Any] = {"ignore_index": ignore_index, "class_axis": class_axis, "class_names": class_names}
    if isinstance(logits, Stream) or callable(logits):
        own = labels is None and sample_weight is None
        require(own, "labels", "must be left out with a stream, which brings its own", "labels or weights")
        if isinstance(logits, Stream):
            usual = reading == {"ignore_index": None, "class_axis": 1, "class_names": None}
            fix = "Open the stream with them."
            require(usual, "ignore_index, class_axis, class_names", "belong to the stream", "one of them", fix)
        stream = logits if isinstance(logits, Stream) else Batches(logits, kind, **reading)
        return _StreamData(stream.on(engine))
    require(engine is None, "engine", "is for streams; arrays are read where they are", repr(engine))
    fix = "Batches of logits and labels are passed as a function that opens them anew."
    require(labels is not None, "labels", "must be given with logits", "none", fix)
    assert labels is not None
    return data_of_arrays(logits, labels, kind, sample_weight, **reading)


def data_of_arrays(
    logits: ArrayLike, labels: ArrayLike, kind: GivenKind, sample_weight: ArrayLike | None, **reading: Any
) -> FitData:
    """Arrays in memory as data of a fit.

    >>> data_of_arrays([[1.0, 0.0], [0.0, 1.0]], [0, 1], "logits", None).total(lambda block: float(block.logits.sum()))
    2.0
    """
    return _ArrayData(Predictions(logits, labels, kind=kind, sample_weight=sample_weight, argument="logits", **reading))


@dataclass(frozen=True)
class LabelledLogits:
    """Some rows of a fit: logits (n, K) in float32 or float64, labels (n,) and weights (n,) in float64, or None.

    The logit of a masked class is -inf; that of a label never is. `probs` (n, K) are the probabilities of which the
    logits are the logarithms, if these are what was given: their confidences are tied, or on the edge of a bin, where
    those of the logits may be off by rounding.
    """

    logits: Tensor
    labels: Tensor
    weight: Tensor | None
    probs: Tensor | None = None

    @staticmethod
    def of(chunk: Chunk, kind: Kind) -> LabelledLogits:
        """The rows of a chunk of scores of any kind."""
        weight = None
        if chunk.weight is not None:
            weight = torch.from_numpy(chunk.weight).to(chunk.scores.device, wide_dtype(chunk.scores.device))
        probs = positive(chunk.scores) if kind == "probs" else None
        return LabelledLogits(logits_of(chunk.scores, kind), chunk.labels, weight, probs)

    def copy(self) -> LabelledLogits:
        """A copy of the rows: the memory of a batch may be used again for the next one."""
        return self._each(Tensor.clone)

    def part(self, rows: slice) -> LabelledLogits:
        """Some of the rows."""
        return self._each(lambda column: column[rows])

    def _each(self, change: Callable[[Tensor], Tensor]) -> LabelledLogits:
        weight, probs = (None if column is None else change(column) for column in (self.weight, self.probs))
        return LabelledLogits(change(self.logits), change(self.labels), weight, probs)

    def split(self, values: int) -> Iterator[LabelledLogits]:
        """The rows in blocks of about `values` logits each."""
        rows = max(1, values // self.logits.shape[1])
        for start in range(0, len(self.labels), rows):
            yield self.part(slice(start, start + rows))

    def mean_sum(self, column: Tensor) -> float:
        """The weighted sum of a column (n,) of the rows."""
        column = column.to(wide_dtype(column.device))
        return float(column.sum() if self.weight is None else (column * self.weight).sum())


def row_weights(block: LabelledLogits) -> Tensor:
    """The weights (n,) of the rows, 1 where there are none."""
    wide = wide_dtype(block.logits.device)
    return block.weight if block.weight is not None else torch.ones_like(block.labels, dtype=wide)


class FitData(ABC):
    """Rows to fit on. `num_rows`, `mass` (the total weight) and `num_classes` are known after the first pass."""

    num_rows = 0
    mass = 0.0
    num_classes = 0
    class_names: tuple[str, ...] | None = None  # if labels were names, or scores a data frame
    passes = 0  # how often all rows were read
    stream_passes = 0  # how often a stream was opened for that
    progress: Progress | None = None  # what is told how far a long fit has come
    in_memory = True
    memory = 0  # what may grow with the rows of a stream, in bytes
    most_rows: int | None = None  # how many confidences may be kept; any number if None

    @abstractmethod
    def reduce(self, fold: Fold[P], merge: Callable[[P, P], P]) -> P:
        """Make one pass: apply `fold` to the blocks of each part of the data, and merge the results in order.

        On a cluster `fold` runs elsewhere, so it must not change anything here.
        """

    def reduce_checked_after(self, fold: Fold[P], merge: Callable[[P, P], P], is_finite: Callable[[P], bool]) -> P:
        """`reduce` for a fold whose result shows whether all values were fine: no pass is spent on checks before.

        The blocks may then be of any size and precision, with masks as they were given. `is_finite` says of a result
        that no NaN, no infinite logit and no masked label went into it; if it says no, checks find out which.
        """
        return self.reduce(fold, merge)

    def preview(self, values: int) -> LabelledLogits | None:
        """About so many values in evenly spread rows, unchecked and uncopied; None if that would take a pass."""
        return None

    def total(self, of_block: Callable[[LabelledLogits], Any]) -> Any:
        """The sum over all blocks of a number or an array of each, in one pass."""
        return self.reduce(functools.partial(_total, of_block), operator.add)

    def mean(self, of_block: Callable[[LabelledLogits], Any]) -> Any:
        """`total`, divided by the mass."""
        total = self.total(of_block)
        return total / self.mass

    def columns(self, of_block: Callable[[LabelledLogits], tuple[Array, ...]]) -> tuple[Array, ...]:
        """Columns of all rows, in one pass: the columns that `of_block` returns for each block, concatenated.

        Raises an InputError if a stream has more rows than memory allows.
        """
        kept = self.reduce(functools.partial(_KeptColumns.of, of_block, self.most_rows), _KeptColumns.merge)
        return tuple(np.concatenate(column, axis=-1) for column in zip(*kept.parts, strict=True))

    def count(self) -> int:
        """The number of rows; reads them if that has not been done yet."""
        return self.num_rows or int(self.total(lambda block: len(block.labels)))


def _total(of_block: Callable[[LabelledLogits], Any], blocks: Iterator[LabelledLogits]) -> Any:
    return functools.reduce(operator.add, map(of_block, blocks))


class _KeptColumns:
    """Columns of rows, block by block; raises if there are more rows than may be kept."""

    def __init__(self, most_rows: int | None) -> None:
        self.parts: list[tuple[Array, ...]] = []
        self._most_rows, self._rows = most_rows, 0

    @staticmethod
    def of(
        of_block: Callable[[LabelledLogits], tuple[Array, ...]], most_rows: int | None, blocks: Iterator[LabelledLogits]
    ) -> _KeptColumns:
        kept = _KeptColumns(most_rows)
        for block in blocks:
            kept._add(of_block(block))
        return kept

    def merge(self, other: _KeptColumns) -> _KeptColumns:
        for part in other.parts:
            self._add(part)
        return self

    def _add(self, part: tuple[Array, ...]) -> None:
        self.parts.append(part)
        self._rows += part[0].shape[-1]
        if self._most_rows is not None and self._rows > self._most_rows:
            raise InputError(
                f"stream: this calibrator keeps a number of every row, and there are more than {self._most_rows:,}. "
                "Open the stream with more memory, or take a calibrator that is fitted by sums, such as "
                "TemperatureScaling."
            )


# ---------------------------------------------------------------------- where the rows come from


@dataclass(frozen=True)
class PassRecord:
    """What a pass has read, so that a later pass that reads something else is noticed."""

    num_classes: int
    num_rows: int
    mass: float
    sums: tuple[float, ...]

    @staticmethod
    def of(block: LabelledLogits, watched: bool) -> PassRecord:
        """The record of a block: its size and, if it is watched, sums that do not cancel."""
        rows, num_classes = block.logits.shape
        mass = float(rows if block.weight is None else block.weight.sum())
        if not watched:
            return PassRecord(num_classes, rows, mass, ())
        at_label = block.logits.gather(1, block.labels.unsqueeze(1))
        behind = (at_label - block.logits.amax(1, keepdim=True)).sum(dtype=wide_dtype(block.logits.device))
        return PassRecord(num_classes, rows, mass, (float(behind), float(block.labels.sum())))

    def __add__(self, other: PassRecord) -> PassRecord:
        rule = f"all batches must have the same number of classes, {self.num_classes} so far"
        require(other.num_classes == self.num_classes, "logits", rule, other.num_classes)
        sums = tuple(one + two for one, two in zip(self.sums, other.sums, strict=True))
        return PassRecord(self.num_classes, self.num_rows + other.num_rows, self.mass + other.mass, sums)

    def require_same(self, later: PassRecord | None, name: str) -> None:
        """Raise an InputError if a later pass has read something else."""
        fix = "Pass a function that opens the data anew, not an iterator that can be read once."
        rows = 0 if later is None else later.num_rows
        require(rows == self.num_rows, name, f"gave {self.num_rows} rows before", rows, fix)
        assert later is not None
        pairs = zip((self.mass, *self.sums), (later.mass, *later.sums), strict=True)
        same = all(math.isclose(before, now, rel_tol=1e-9) for before, now in pairs)
        require(same, name, "must give the same data each time", "other values than before")


def _blocks(chunks: Iterator[Chunk], kind: Kind) -> Iterator[LabelledLogits]:
    return (LabelledLogits.of(chunk, kind) for chunk in chunks)


def _recorded_batches(batches: Iterator[Batch], fold: Fold[P]) -> tuple[P, PassRecord] | None:
    blocks = (
        block for batch in batches for block in _blocks(batch.chunks(masked_labels=False), batch.predictions.kind)
    )
    return _recorded(blocks, fold, watched=True)


def _recorded(blocks: Iterator[LabelledLogits], fold: Fold[P], watched: bool = False) -> tuple[P, PassRecord] | None:
    """The fold of some blocks and the record of what was read; None if there is no row."""
    read: PassRecord | None = None

    def recorded() -> Iterator[LabelledLogits]:
        nonlocal read
        for block in blocks:
            record = PassRecord.of(block, watched)
            read = record if read is None else read + record
            yield block

    opened = recorded()
    first = next(opened, None)
    if first is None:
        return None
    value = fold(itertools.chain([first], opened))
    assert read is not None
    return value, read


def _merged(
    one: tuple[P, PassRecord] | None, other: tuple[P, PassRecord] | None, merge: Callable[[P, P], P]
) -> tuple[P, PassRecord] | None:
    """The results of two parts of the data, of which either may have no row."""
    if one is None or other is None:
        return other if one is None else one
    return merge(one[0], other[0]), one[1] + other[1]


class _RecordedData(FitData):
    """Rows of which every pass must read the same."""

    def _accept(self, found: tuple[P, PassRecord] | None, name: str) -> P:
        """The result of a pass; raises if it has read too little, or something else than the first one."""
        audit = None if found is None else found[1]
        if not self.passes:
            rows = 0 if audit is None else audit.num_rows
            require(rows >= FEWEST_ROWS, "logits", f"a fit needs at least {FEWEST_ROWS} rows", rows)
            assert audit is not None
            self._audit = audit
            self.num_rows, self.mass, self.num_classes = audit.num_rows, audit.mass, audit.num_classes
        self._audit.require_same(audit, name)
        assert found is not None
        self.passes += 1
        return found[0]


class _ArrayData(_RecordedData):
    """Rows in memory, whose values are checked in the first pass."""

    def __init__(self, predictions: Predictions) -> None:
        self._predictions = predictions
        self.class_names = predictions.class_names
        self._whole = _as_given(predictions)

    def reduce(self, fold: Fold[P], merge: Callable[[P, P], P]) -> P:
        """One pass."""
        chunks = self._predictions.chunks(check=self.passes == 0, masked_labels=False)
        return self._accept(_recorded(_blocks(chunks, self._predictions.kind), fold), "logits")

    def reduce_checked_after(self, fold: Fold[P], merge: Callable[[P, P], P], is_finite: Callable[[P], bool]) -> P:
        """One pass, over all rows as they are if a kernel can read them."""
        if self._whole is not None:
            value = fold(iter([self._whole]))
            if is_finite(value):
                return self._accept((value, PassRecord.of(self._whole, watched=False)), "logits")
        return self.reduce(fold, merge)

    def preview(self, values: int) -> LabelledLogits | None:
        """Some rows as they are, if a kernel can read them."""
        if self._whole is None:
            return None
        rows, given = len(self._whole.labels), self._whole.logits.numel()
        if given < _FEW_VALUES:
            return None
        stride = max(1, min(max(_LEAST_STRIDE, given // values), rows // _ROWS_OF_A_PREVIEW))
        return self._whole.part(slice(None, None, stride))


def _as_given(predictions: Predictions) -> LabelledLogits | None:
    """All rows as they were given, if these are plain logits (N, K) that the compiled kernels can read; unchecked."""
    scores, labels, weight = predictions._scores, predictions._labels, predictions._weight
    plain = predictions.kind == "logits" and scores.ndim == 2 and labels is not None and len(scores) >= FEWEST_ROWS
    plain = plain and predictions.ignore_index is None
    if not plain or (weight is not None and not weight.all()):  # rows without a weight are left out
        return None
    if isinstance(scores, np.ndarray):
        if not (scores.flags.c_contiguous and scores.flags.writeable):  # torch cannot share it
            return None
        scores = torch.from_numpy(scores)
    scores = scores.detach()
    if kernels_for(scores) is None or with_adjacent_classes(scores) is not scores:
        return None
    few = scores[:_ROWS_TO_LOOK_AT]
    if bool(((few >= 0) & (few <= 1)).all()):  # maybe probabilities: the checks will warn
        return None
    assert labels is not None
    return LabelledLogits(scores, labels, None if weight is None else torch.from_numpy(weight.reshape(-1)))


class _StreamData(_RecordedData):
    """The rows of a stream, kept by the first pass if they are few; otherwise later passes check for changes."""

    in_memory = False

    def __init__(self, stream: Stream) -> None:
        self._stream, self.memory, self.most_rows = stream, stream.memory, stream.most_rows
        self._kept: list[LabelledLogits] = []

    def reduce(self, fold: Fold[P], merge: Callable[[P, P], P]) -> P:
        """One pass."""
        if self.in_memory:
            return fold(iter(self._kept))
        if not self.passes and self._stream.is_local:
            room = self.memory // 2  # the other half is for what is made of them
            keeping, both = functools.partial(_keeping, fold, room), functools.partial(_both, merge)
            value: P
            value, copies = self._pass(keeping, both)
            self._kept, self.in_memory = copies.blocks or [], copies.blocks is not None
            self.most_rows = None if self.in_memory else self.most_rows
            return value
        return self._pass(fold, merge)

    def _pass(self, fold: Fold[P], merge: Callable[[P, P], P]) -> P:
        self.stream_passes += 1
        found: tuple[P, PassRecord] | None = self._stream.reduce(
            functools.partial(_recorded_batches, fold=fold), functools.partial(_merged, merge=merge)
        )
        return self._accept(found, self._stream.name)


class _Copies:
    """Copies of blocks, given up once they exceed the available memory."""

    def __init__(self, room: int) -> None:
        self.blocks: list[LabelledLogits] | None = []
        self._room = room

    def add(self, block: LabelledLogits) -> None:
        if self.blocks is None:
            return
        self._room -= block.logits.nbytes + (0 if block.probs is None else block.probs.nbytes)
        if self._room < 0:
            self.blocks = None
        else:
            self.blocks.append(block)

    def merge(self, other: _Copies) -> _Copies:
        if other.blocks is None:
            self.blocks = None
        for block in other.blocks or []:
            self.add(block)
        return self


def _keeping(fold: Fold[P], room: int, blocks: Iterator[LabelledLogits]) -> tuple[P, _Copies]:
    """The fold of some blocks, and copies of them."""
    copies = _Copies(room)

    def taken() -> Iterator[LabelledLogits]:
        for block in blocks:
            if copies.blocks is not None:
                copies.add(block.copy())
            yield block

    return fold(taken()), copies


def _both(merge: Callable[[P, P], P], one: tuple[P, _Copies], other: tuple[P, _Copies]) -> tuple[P, _Copies]:
    return merge(one[0], other[0]), one[1].merge(other[1])
