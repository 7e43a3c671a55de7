"""Where the rows of a fit come from: arrays in memory, or a stream, wherever that is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from focalcal.calibrators.data.audit import Audit, audited, merged
from focalcal.calibrators.data.block import Block
from focalcal.calibrators.data.fit import FEWEST_ROWS, FitData, P
from focalcal.core.checks import ArrayLike, require
from focalcal.core.score_kinds import Kind
from focalcal.predictions.arrays import Predictions
from focalcal.predictions.stream import Batch, Stream


def data_of_arrays(logits: ArrayLike, labels: ArrayLike, kind: Kind, sample_weight: ArrayLike | None) -> FitData:
    """Rows in memory.

    >>> data_of_arrays([[1.0, 0.0], [0.0, 1.0]], [0, 1], "logits", None).total(lambda block: float(block.logits.sum()))
    2.0
    """
    return _Arrays(Predictions(logits, labels, kind=kind, sample_weight=sample_weight, argument="logits"))


def data_of_stream(stream: Stream) -> FitData:
    """Rows that are read anew in every pass, unless they are few."""
    return _Streamed(stream)


class _Checked(FitData):
    """Rows of which every pass must read the same."""

    def _accept(self, found: tuple[P, Audit] | None, name: str) -> P:
        """The result of a pass, unless it has read too little, or something else than the first one."""
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


class _Arrays(_Checked):
    """Rows in memory; what they are is checked when they are first read."""

    def __init__(self, predictions: Predictions) -> None:
        self._predictions = predictions

    def reduce(self, fold: Callable[[Iterator[Block]], P], merge: Callable[[P, P], P]) -> P:
        """One pass."""
        batch = Batch("logits", self._predictions, checked=self.passes > 0)
        return self._accept(audited(iter([batch]), fold), "logits")


class _Streamed(_Checked):
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
            keeping, both = functools.partial(_keeping, fold, room), functools.partial(_both, merge)
            value: P
            value, copies = self._pass(keeping, both)
            self._kept, self.in_memory = copies.blocks or [], copies.blocks is not None
            self.most_rows = None if self.in_memory else self.most_rows
            return value
        return self._pass(fold, merge)

    def _pass(self, fold: Callable[[Iterator[Block]], P], merge: Callable[[P, P], P]) -> P:
        self.stream_passes += 1
        found: tuple[P, Audit] | None = self._stream.reduce(
            functools.partial(audited, fold=fold, watched=True), functools.partial(merged, merge=merge)
        )
        return self._accept(found, self._stream.name)


class _Copies:
    """Copies of blocks, unless they take more than the room."""

    def __init__(self, room: int) -> None:
        self.blocks: list[Block] | None = []
        self._room = room

    def add(self, block: Block) -> None:
        if self.blocks is None:
            return
        self._room -= block.logits.nbytes
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


def _keeping(fold: Callable[[Iterator[Block]], P], room: int, blocks: Iterator[Block]) -> tuple[P, _Copies]:
    """The fold of some blocks, and copies of them."""
    copies = _Copies(room)

    def taken() -> Iterator[Block]:
        for block in blocks:
            if copies.blocks is not None:
                copies.add(block.copy())
            yield block

    return fold(taken()), copies


def _both(merge: Callable[[P, P], P], one: tuple[P, _Copies], other: tuple[P, _Copies]) -> tuple[P, _Copies]:
    return merge(one[0], other[0]), one[1].merge(other[1])
