"""Mergeable summaries: what the measures need of any number of rows, added up batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, Scheme, bin_predictions, bin_ranked, equal_width_edges
from focalcal.core.checks import require
from focalcal.core.confidences import Confidences
from focalcal.core.ranking import Array, Ranked
from focalcal.errors import InputError
from focalcal.metrics.rows import Column, Readable
from focalcal.metrics.scores import (
    ACCURACY,
    BRIER,
    CONFIDENCE,
    ENTROPY,
    ENTROPY_CORRECT,
    ENTROPY_WRONG,
    ERROR,
    NLL,
    SQUARED_GAP,
    sure_accuracy,
    sure_share,
    top_k,
)

SCORES = (
    NLL,
    BRIER,
    ACCURACY,
    ERROR,
    CONFIDENCE,
    ENTROPY,
    ENTROPY_CORRECT,
    ENTROPY_WRONG,
    SQUARED_GAP,
    top_k(5),
    sure_share(0.99),
    sure_accuracy(0.99),
)


class Summary(Readable):
    """Sums of `scores`, and either the confidences with correctness, or sums over bins of equal width.

    The state is `score_sums` (S, 2) with `confidences`, or with `bin_sums` (4, B) if rows are not to be `ranked`. A
    histogram takes the place of confidences beyond `most_rows`; bins of equal width are added up beside it and stay
    exact.

    >>> import focalcal.metrics as metrics
    >>> one, two = Summary(2, num_bins=1), Summary(2, num_bins=1)
    >>> one.add({"confidence": np.array([0.9]), "correct": np.array([True])})
    >>> two.add({"confidence": np.array([0.7]), "correct": np.array([False])})
    >>> round(metrics.ece(one.merge(two), num_bins=1), 4)
    0.3
    """

    def __init__(
        self,
        num_classes: int,
        *,
        num_bins: int = 15,
        scores: Sequence[Column] = (),
        ranked: bool = True,
        most_rows: int | None = None,
    ) -> None:
        require(num_bins >= 1, "num_bins", "must be at least 1", num_bins, "The papers use 15.")
        self.num_classes, self.num_bins, self.scores = num_classes, num_bins, tuple(scores)
        self.score_sums = np.zeros((len(self.scores), 2))
        self.bin_sums = np.zeros((4, num_bins))  # count, mass, confidence, correctness
        self.confidences = Confidences(most_rows) if ranked else None
        # Where every confidence stays, the ranking has the bins as well.
        self._binned = not ranked or most_rows is not None
        self._ranked: Ranked | None = None
        self._bins: dict[tuple[int, Scheme], Bins] = {}

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        """How many rows were added."""
        return int(self.bin_sums[0].sum()) if self.confidences is None else self.confidences.num_rows

    def add(self, columns: Mapping[str, Array], weight: Array | None = None) -> None:
        """Take in some rows."""
        confidence, correct = columns["confidence"], columns["correct"]
        for sums, column in zip(self.score_sums, self.scores, strict=True):
            sums += column.sums(columns, weight)
        if self.confidences is not None:
            self.confidences.add(confidence, correct, weight)
        if self._binned:
            bins = bin_predictions(confidence, correct, num_bins=self.num_bins, weight=weight)
            self.bin_sums += torch.stack(bins.sums()).numpy()
        self._ranked, self._bins = None, {}

    def merge(self, other: Summary) -> Summary:
        """The summary of both sets of rows."""
        merged = Summary(self.num_classes, num_bins=self.num_bins, scores=self.scores)
        merged.score_sums = self.score_sums + other.score_sums
        merged.bin_sums, merged._binned = self.bin_sums + other.bin_sums, self._binned
        both = self.confidences, other.confidences
        merged.confidences = None if both[0] is None or both[1] is None else both[0].merge(both[1])
        return merged

    def mean(self, column: Column) -> Any:
        """The mean of a column that was added up."""
        names = [each.name for each in self.scores]
        if column.name not in names:
            raise InputError(f"rows: {column.name} was not added up here; this summary has {', '.join(names)}.")
        above, below = self.score_sums[names.index(column.name)]
        return above / below if below else float("nan")

    def bins(self, num_bins: int, edges: Scheme | Tensor) -> Bins:
        """Bins of equal width as added up; all others from the ranking."""
        if isinstance(edges, Tensor):
            return bin_ranked(self.ranked, edges=edges)
        if (num_bins, edges) not in self._bins:
            if self._binned and edges == "equal_width" and num_bins == self.num_bins:
                bins = Bins.of_sums(equal_width_edges(num_bins), *torch.from_numpy(self.bin_sums.copy()))
            else:
                bins = bin_ranked(self.ranked, num_bins=num_bins, edges=edges)
            self._bins[num_bins, edges] = bins  # several measures read the same ones
        return self._bins[num_bins, edges]

    def each(self, measure: Callable[[Ranked], Any]) -> Any:
        """The measure of the ranked rows."""
        return measure(self.ranked)

    @property
    def ranked(self) -> Ranked:
        """All rows in order of confidence."""
        if self._ranked is None:
            kept = self.confidences
            if kept is None or not kept.num_rows:
                raise InputError("rows: must be kept for this measure; these are sums only.")
            self._ranked = kept.ranked()
        return self._ranked
