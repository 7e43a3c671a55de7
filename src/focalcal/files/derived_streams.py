"""Streams derived from another stream: calibrated, or a random share of its rows."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from focalcal.core.checks import require
from focalcal.core.score_kinds import logits_of
from focalcal.predictions.arrays import Predictions
from focalcal.predictions.stream import Batch, Mapped, Stream

if TYPE_CHECKING:
    from focalcal.calibrators import Calibrator


def calibrated(stream: Stream, calibrator: Calibrator) -> Stream:
    """The stream with a calibrator's log-probabilities in place of its scores.

    >>> from focalcal import FocalCalibration, evaluate
    >>> from focalcal.files import PredictionStream
    >>> stream = PredictionStream([([[2.0, 0.0], [0.0, 1.0]], [0, 1])])
    >>> round(evaluate(calibrated(stream, FocalCalibration(1.0))).mean_confidence, 3)
    0.914
    """
    calibrator.require_fitted()
    return Mapped(stream, functools.partial(_calibrated, calibrator))


def _calibrated(calibrator: Calibrator, batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        start = 0
        for chunk in batch.chunks():
            rows = slice(start, start + len(chunk.labels))
            start = rows.stop
            with torch.no_grad():
                log_probs = calibrator(logits_of(chunk.scores, batch.predictions.kind))
            given = Predictions(
                log_probs,
                chunk.labels,
                kind="log_probs",
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
    return Mapped(stream, functools.partial(_share, share, seed, rest))


def _share(share: float, seed: int, rest: bool, batches: Iterator[Batch]) -> Iterator[Batch]:
    generator = None
    for batch in batches:  # the batches of one shard, in order
        if generator is None:
            generator = np.random.default_rng([seed, zlib.crc32(batch.name.encode())])
        drawn = generator.random(batch.predictions.num_rows) < share
        part = batch.take(~drawn if rest else drawn)
        if part.predictions.num_rows:
            yield part
