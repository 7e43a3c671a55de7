"""Streams derived from another stream: calibrated, or a random share of its rows."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from focalcal.core.checks import require
from focalcal.predictions.arrays import Predictions
from focalcal.predictions.stream import Batch, Fold, Merge, Stream

if TYPE_CHECKING:
    from typing_extensions import Self

    from focalcal.calibrators import Calibrator

P = TypeVar("P")


class MappedStream(Stream):
    """A stream whose batches pass through a function, shard by shard."""

    def __init__(self, stream: Stream, change: Callable[[Iterator[Batch]], Iterator[Batch]]) -> None:
        self._stream, self._change = stream, change
        self.name, self.memory, self.is_local = stream.name, stream.memory, stream.is_local

    def reduce(self, fold: Fold[P], merge: Merge[P], *, by: str | None = None) -> P:
        """Make one pass over the changed batches."""
        change = self._change
        return self._stream.reduce(lambda batches: fold(change(batches)), merge, by=by)

    def on(self, engine: str | None) -> Self:
        """The same stream, with passes on another engine."""
        return type(self)(self._stream.on(engine), self._change)


def calibrated(stream: Stream, calibrator: Calibrator) -> Stream:
    """The stream with calibrated scores: log-probabilities, unless the calibrator leaves probabilities as they are.

    >>> from focalcal import FocalCalibration, evaluate
    >>> from focalcal.files import PredictionStream
    >>> stream = PredictionStream([([[2.0, 0.0], [0.0, 1.0]], [0, 1])])
    >>> round(evaluate(calibrated(stream, FocalCalibration(1.0))).mean_confidence, 3)
    0.914
    """
    calibrator.require_fitted()
    return MappedStream(stream, functools.partial(_calibrated, calibrator))


def _calibrated(calibrator: Calibrator, batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        start = 0
        for chunk in batch.chunks():
            rows = slice(start, start + len(chunk.labels))
            start = rows.stop
            with torch.no_grad():
                scores, kind = calibrator.calibrate_rows(chunk.scores, batch.predictions.kind)
            given = Predictions(
                scores,
                chunk.labels,
                kind=kind,
                sample_weight=chunk.weight,
                argument=batch.name,
                may_be_empty=True,
            )
            yield Batch(batch.name, given, None if batch.groups is None else batch.groups[rows], checked=True)


def share_of(stream: Stream, share: float, *, seed: int = 0, rest: bool = False) -> Stream:
    """A random share of the rows, or with `rest` all others; the same rows in every pass and on every machine.

    Which rows these are follows from the seed, the name of their shard and their place in it.
    """
    require(0 < share < 1, "share", "must lie between 0 and 1", share)
    return MappedStream(stream, functools.partial(_share, share, seed, rest))


def _share(share: float, seed: int, rest: bool, batches: Iterator[Batch]) -> Iterator[Batch]:
    generator = None
    for batch in batches:  # the batches of one shard, in order
        if generator is None:
            generator = np.random.default_rng([seed, zlib.crc32(batch.name.encode(errors="surrogateescape"))])
        drawn = generator.random(batch.predictions.num_rows) < share
        part = batch.take(~drawn if rest else drawn)
        if part.predictions.num_rows:
            yield part
