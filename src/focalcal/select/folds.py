"""The rows of a comparison of calibrators, and the folds that they are dealt out to."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.core.checks import Array, ArrayLike
from focalcal.core.score_kinds import GivenKind, logits_of, positive
from focalcal.errors import InputWarning
from focalcal.predictions.arrays import Predictions


@dataclass(frozen=True)
class FoldedRows:
    """Rows (n, K) of logits, -inf at masked classes, with labels, weights and the sample that each belongs to."""

    logits: Tensor
    labels: Tensor
    weight: Array | None
    sample: Array | None
    probs: Tensor | None = None  # of which the logits are the logarithms, if these are what was given
    class_names: tuple[str, ...] | None = None

    @staticmethod
    def read(
        logits: ArrayLike, labels: ArrayLike, kind: GivenKind, sample_weight: ArrayLike | None = None, **reading: Any
    ) -> FoldedRows:
        """The caller's rows, checked; rows of weight 0 and ignored ones are left out. `Predictions` has the options."""
        given = Predictions(logits, labels, kind=kind, sample_weight=sample_weight, argument="logits", **reading)
        kind = given.kind
        chunks = list(given.chunks(masked_labels=False))
        rows = torch.cat([logits_of(chunk.scores, kind) for chunk in chunks])
        probs = torch.cat([positive(chunk.scores) for chunk in chunks]) if kind == "probs" else None
        weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
        sample = None
        shape = given.place
        if len(shape) > 1:  # positions of the same image know of one another
            sample = np.repeat(np.arange(shape[0]), int(np.prod(shape[1:])))[given.counted()]
            sample = np.unique(sample, return_inverse=True)[1]
        weight = np.concatenate(weights) if weights else None
        numbers = torch.cat([chunk.labels for chunk in chunks])
        return FoldedRows(rows, numbers, weight, sample, probs, given.class_names)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.logits.shape[1]

    @property
    def num_samples(self) -> int:
        """The number of samples, each of one position or more."""
        return len(self.labels) if self.sample is None else int(self.sample.max()) + 1

    def folds(self, num_folds: int, generator: np.random.Generator) -> Array:
        """The fold of each row: every class is dealt out in turn, so that folds differ by one row at most."""
        n = self.num_samples
        classes = self.labels.cpu().numpy() if self.sample is None else np.zeros(n)
        fold = np.empty(n, dtype=np.int64)
        fold[np.lexsort((generator.random(n), classes))] = np.arange(n) % num_folds
        return fold if self.sample is None else fold[self.sample]

    def part(self, rows: Array) -> FoldedRows:
        """Some of the rows, by their places."""
        index = torch.from_numpy(rows).to(self.logits.device)
        weight = None if self.weight is None else self.weight[rows]
        probs = None if self.probs is None else self.probs[index]
        return FoldedRows(self.logits[index], self.labels[index], weight, None, probs, self.class_names)

    def fit(self, calibrator: Calibrator) -> Calibrator:
        """The calibrator, fitted to these rows."""
        with warnings.catch_warnings():
            # That logits look like probabilities was said when they were read.
            warnings.simplefilter("ignore", InputWarning)
            fitted = calibrator.fit(self.logits, self.labels, sample_weight=self.weight)
            fitted.class_names = self.class_names
            return fitted
