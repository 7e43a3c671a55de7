"""Predictions in memory, row by row, and bootstrap resamples of them, measured many at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, Scheme, bin_of, bin_ranked
from focalcal.core.checks import Array, is_number, require, require_whole
from focalcal.core.ranking import Ranking, dense_rank, whole_numbers
from focalcal.errors import InputError
from focalcal.kernels.bins import bin_predictions
from focalcal.kernels.ranking import ranked_rows
from focalcal.metrics.prediction_set import PredictionSet, RowMean, ratio, stack_bins


class PredictedRows(PredictionSet):
    """Predictions in memory: a few columns (N,), with or without weights.

    >>> rows = PredictedRows({"confidence": np.array([0.9, 0.6]), "correct": np.array([True, False])}, num_classes=2)
    >>> rows.bins(1, "equal_width").gap
    tensor([0.2500], dtype=torch.float64)
    """

    def __init__(
        self, columns: dict[str, Array], *, num_classes: int, weight: Array | None = None, target: str = "top label"
    ) -> None:
        self.columns, self.weight, self.num_classes, self.target = columns, weight, num_classes, target
        self.num_rows = len(next(iter(columns.values())))
        self._ranked: Ranking | None = None
        self._fixed: dict[int, tuple[Tensor, list[Any], Tensor]] = {}

    @property
    def num_counted(self) -> int:
        """The number of rows, as often as whole-number weights repeat them."""
        repeats = self.weight is not None and whole_numbers(self.weight)
        return int(self.weight.sum()) if self.weight is not None and repeats else self.num_rows

    def column(self, name: str) -> Array:
        """A column by its name."""
        if name not in self.columns:
            raise InputError(
                f"rows: this measure needs the column {name!r}; these rows have {', '.join(self.columns)}. "
                "Read them from scores and labels with focalcal.metrics.read."
            )
        return self.columns[name]

    def terms(self, column: RowMean) -> tuple[Array, Array]:
        """Numerator and denominator of each row, weighted."""
        above, below = column.terms({name: self.column(name) for name in column.needs})
        return (above, below) if self.weight is None else (above * self.weight, below * self.weight)

    def mean(self, column: RowMean) -> Any:
        """The weighted mean; NaN if no row counts."""
        return ratio(*column.sums({name: self.column(name) for name in column.needs}, self.weight))

    def bins(self, num_bins: int, edges: Scheme | Tensor) -> Bins:
        """The bins of confidence; sorted rows are used again."""
        if isinstance(edges, Tensor) or edges == "equal_width":
            columns = self.column("confidence"), self.column("correct")
            return bin_predictions(*columns, num_bins=num_bins, edges=edges, weight=self.weight)
        return bin_ranked(self.ranked, num_bins=num_bins, edges=edges)

    @property
    def ranked(self) -> Ranking:
        """The rows in order of confidence."""
        if self._ranked is None:
            self._ranked = ranked_rows(self.column("confidence"), self.column("correct"), self.weight)
        return self._ranked

    def each(self, measure: Callable[[Ranking], Any]) -> Any:
        """The measure of these rows."""
        return measure(self.ranked)

    def by_entropy(self) -> PredictedRows:
        """The rows ranked by falling entropy instead of rising confidence."""
        # Equal rows may differ in the last bits of a logarithm, by their place in a batch: they are tied all the same.
        entropy = ((self.column("entropy").view(np.int64) + 128) & ~255).view(np.float64)
        columns = {"confidence": dense_rank(-entropy), "correct": self.column("correct")}
        return PredictedRows(columns, num_classes=self.num_classes, weight=self.weight)

    def in_order(self) -> PredictedRows:
        """The same rows in order of confidence, in which resampling them is faster."""
        order = np.argsort(self.column("confidence"), kind="stable")
        columns = {name: column[order] for name, column in self.columns.items()}
        weight = None if self.weight is None else self.weight[order]
        return PredictedRows(columns, num_classes=self.num_classes, weight=weight, target=self.target)

    def fixed_bins(self, num_bins: int) -> tuple[Tensor, list[Any], Tensor]:
        """For bins of equal width: what each row adds to their sums (N, 4), the rows of each bin, and the edges."""
        if num_bins not in self._fixed:
            self._fixed[num_bins] = _fixed_bins(self, num_bins)
        return self._fixed[num_bins]

    def resampled(self, times: Array) -> ResampledRows:
        """Resamples of these rows: `times` (R, N) says how often each contains each row."""
        return ResampledRows(self, times)


class ResampledRows(PredictionSet):
    """Many resamples of the same rows at once: `times` (R, N) says how often each contains each row.

    Means and bins of fixed edges come from one matrix product for all resamples; what needs an order comes from the
    order of the original rows, which a resample inherits. So nothing is sorted and no softmax is taken again.

    >>> rows = PredictedRows({"confidence": np.array([0.9, 0.6]), "correct": np.array([True, False])}, num_classes=2)
    >>> ResampledRows(rows, np.array([[2, 0], [0, 2]])).bins(1, "equal_width").gap
    tensor([[-0.1000],
            [ 0.6000]], dtype=torch.float64)
    """

    draws = 2

    def __init__(self, rows: PredictedRows, times: Array) -> None:
        self.rows, self.times = rows, times.astype(np.float64, copy=False)
        self.num_rows, self.num_classes, self.target = rows.num_rows, rows.num_classes, rows.target

    def mean(self, column: RowMean) -> Any:
        """The means (R,)."""
        above, below = self.rows.terms(column)
        with np.errstate(invalid="ignore"):  # an infinite NLL of a row that was not drawn
            return ratio(self.times @ above, self.times @ below)

    def bins(self, num_bins: int, edges: Scheme | Tensor) -> Bins:
        """Bins whose leading dimension runs over the resamples."""
        if isinstance(edges, str) and edges == "equal_mass":
            return self._equal_mass_bins(num_bins)
        if isinstance(edges, Tensor) or edges != "equal_width":
            return stack_bins([_bins_of_resample(one, num_bins, edges) for one in self._one_by_one()])
        adds, members, cut = self.rows.fixed_bins(num_bins)
        times = torch.from_numpy(self.times)
        sums = torch.stack([times[:, member] @ adds[member] for member in members])  # (B, R, 4)
        return Bins.of_sums(cut, *sums.permute(2, 1, 0).contiguous())

    def _equal_mass_bins(self, num_bins: int) -> Bins:
        """As `bin_ranked` would make them; rows that were not drawn stay in the ranking, where they have no mass."""
        order = _Order(self.rows)
        below = np.zeros((4, len(self.times), num_bins + 1))
        for resample, times in enumerate(self.times):
            ranked = order.ranked(times)
            below[:, resample, 1:] = ranked.below_masses(ranked.mass_cuts(num_bins)[1:])[0]
        inside = torch.from_numpy(np.diff(below, axis=2))
        return Bins.of_sums(self.rows.bins(num_bins, "equal_mass").edges, *inside)

    def each(self, measure: Callable[[Ranking], Any]) -> Any:
        """The measure of every resample (R,)."""
        return np.array([measure(ranked) for ranked in self._one_by_one()])

    def by_entropy(self) -> ResampledRows:
        """The same resamples, ranked by falling entropy."""
        return ResampledRows(self.rows.by_entropy(), self.times)

    def report(self, value: Any, definition: str) -> Any:
        """The values (R,) as they are."""
        return np.asarray(value)

    def _one_by_one(self) -> Iterator[Ranking]:
        order = _Order(self.rows)
        return (order.ranked(times).drawn() for times in self.times)


def _bins_of_resample(ranked: Ranking, num_bins: int, edges: Scheme | Tensor) -> Bins:
    """The bins of one resample, which may have fewer rows than there are bins of equal mass."""
    fewer = isinstance(edges, str) and edges == "array_split"
    return bin_ranked(ranked, num_bins=min(num_bins, int(ranked.count.sum())) if fewer else num_bins, edges=edges)


class _Order:
    """Rows sorted once, for all their resamples."""

    def __init__(self, rows: PredictedRows) -> None:
        confidence, correct = rows.column("confidence"), rows.column("correct").astype(np.float64)
        self.order: Array | None = None  # None where the rows are in order already
        if (confidence[1:] < confidence[:-1]).any():
            self.order = np.argsort(confidence, kind="stable")
        value, self.correct = self._sorted(confidence), self._sorted(correct)
        starts = np.concatenate([[0], np.flatnonzero(value[1:] != value[:-1]) + 1])
        self.value = value[starts]
        self.starts = starts if len(starts) < len(value) else None  # None where no two are equal
        self.weight = None if rows.weight is None else self._sorted(rows.weight)
        self.whole = self.weight is None or whole_numbers(self.weight)

    def _sorted(self, column: Array) -> Array:
        return column if self.order is None else column[self.order]

    def _grouped(self, column: Array) -> Array:
        return column if self.starts is None else np.add.reduceat(column, self.starts)

    def ranked(self, times: Array) -> Ranking:
        """The ranking of one resample, with groups of no mass for the rows that it does not contain."""
        times = self._sorted(times)
        weighted = times if self.weight is None else times * self.weight
        mass, right = self._grouped(weighted), self._grouped(weighted * self.correct)
        return Ranking(self.value, mass if self.whole else self._grouped(times), mass, right)


def require_resampling(num_resamples: int, level: float) -> None:
    """Refuse too few resamples and levels that are no probabilities."""
    require_whole(num_resamples, "num_resamples", 100, "1,000 is usual.")
    require(is_number(level) and 0 < level < 1, "level", "must lie between 0 and 1", repr(level))


def _fixed_bins(rows: PredictedRows, num_bins: int) -> tuple[Tensor, list[Any], Tensor]:
    confidence = rows.column("confidence")
    cut = rows.bins(num_bins, "equal_width").edges
    weight = np.ones(rows.num_rows) if rows.weight is None else rows.weight
    count = weight if whole_numbers(weight) else np.ones(rows.num_rows)
    adds = torch.from_numpy(np.stack([count, weight, weight * confidence, weight * rows.column("correct")], 1))
    place = bin_of(confidence, cut.numpy())
    if (place[1:] >= place[:-1]).all():  # rows in order: bins are slices, and no column is copied
        ends = np.searchsorted(place, np.arange(num_bins + 1))
        return adds, [slice(*pair) for pair in itertools.pairwise(ends)], cut
    order = np.argsort(place, kind="stable")
    return adds, np.split(order, np.searchsorted(place[order], np.arange(1, num_bins))), cut
