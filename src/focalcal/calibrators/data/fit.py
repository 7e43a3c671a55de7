"""What a fit may ask of its rows: one call a pass."""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from focalcal.calibrators.data.block import Block
from focalcal.core.checks import Array
from focalcal.errors import InputError

P = TypeVar("P")

FEWEST_ROWS = 2


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
        kept = self.reduce(functools.partial(_Kept.of, of_block, self.most_rows), _Kept.merge)
        return tuple(np.concatenate(column, axis=-1) for column in zip(*kept.parts, strict=True))

    def count(self) -> int:
        """The number of rows; reads them if nobody has done so yet."""
        return self.num_rows or int(self.total(lambda block: len(block.labels)))


def _total(of_block: Callable[[Block], Any], blocks: Iterator[Block]) -> Any:
    return functools.reduce(operator.add, map(of_block, blocks))


class _Kept:
    """Columns of rows, block by block; refused where they are more than may be kept."""

    def __init__(self, most_rows: int | None) -> None:
        self.parts: list[tuple[Array, ...]] = []
        self._most_rows, self._rows = most_rows, 0

    @staticmethod
    def of(of_block: Callable[[Block], tuple[Array, ...]], most_rows: int | None, blocks: Iterator[Block]) -> _Kept:
        kept = _Kept(most_rows)
        for block in blocks:
            kept._add(of_block(block))
        return kept

    def merge(self, other: _Kept) -> _Kept:
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
