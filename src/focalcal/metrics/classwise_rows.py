"""Every class against the rest: the same measures, with one more dimension for the classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, Scheme, bin_of, bin_ranked, equal_width_edges
from focalcal.core.checks import Array, require
from focalcal.core.focal import wide_dtype
from focalcal.core.ranking import Ranking, whole_numbers
from focalcal.core.row_statistics import RowStatistics
from focalcal.core.score_kinds import probabilities
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.metrics.prediction_set import CLASSWISE, PredictionSet, RowMean, stack_bins
from focalcal.predictions.arrays import Predictions

# Columns of classes that are held at once for what needs an order, in numbers.
_HELD = 1 << 24


class ClassBinSums:
    """The sums behind bins of equal width, for each of K classes, added up batch by batch.

    At most M - 1 probabilities of a row lie above 1/M. Only those are looked up in the bins; what the first bin holds
    is left over from the sums of whole columns.

    >>> sums = ClassBinSums(num_classes=2, num_bins=2)
    >>> sums.add(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]), None)
    >>> sums.bins().count
    tensor([[1., 1.],
            [1., 1.]], dtype=torch.float64)
    """

    def __init__(self, num_classes: int, num_bins: int) -> None:
        require(num_bins >= 1, "num_bins", "must be at least 1", num_bins, "The papers use 15.")
        self.num_classes, self.edges = num_classes, equal_width_edges(num_bins)
        self.sums = torch.zeros(4, num_classes, num_bins, dtype=torch.float64)  # count, mass, confidence, correctness
        self.whole = torch.zeros(3, num_classes, dtype=torch.float64)  # the first three over all bins

    def add(self, probs: Tensor, labels: Tensor, weight: Tensor | None) -> None:
        """Take in rows (n, K) of probabilities with labels (n,) and perhaps weights (n,)."""
        num_bins = self.sums.shape[2]
        wide = wide_dtype(probs.device)
        near = None if weight is None else weight.to(probs.device, wide)
        whole = weight is None or whole_numbers(weight.numpy())
        mass = float(len(probs)) if weight is None else float(weight.sum())
        self.whole[0] += mass if whole else len(probs)
        self.whole[1] += mass
        self.whole[2] += (probs.sum(0, dtype=wide) if near is None else near @ probs.to(wide)).cpu()
        above = _places(probs, float(self.edges[1].to(probs.dtype)))
        values = probs.reshape(-1)[above]
        place = (above % self.num_classes).cpu() * num_bins + self._bin_of(values)
        share = None if near is None else near[above // self.num_classes]
        weighted = values.to(wide) if share is None else values * share
        for total, column in zip(self.sums, (share if whole else None, share, weighted), strict=False):
            _tally(total, place, None if column is None else column.cpu())
        of_label = self._bin_of(probs.gather(1, labels.unsqueeze(1)).squeeze(1))
        _tally(self.sums[3], labels.cpu() * num_bins + of_label, weight)

    def _bin_of(self, probs: Tensor) -> Tensor:
        return torch.from_numpy(bin_of(probs.cpu().numpy(), self.edges.numpy()))

    def merge(self, other: ClassBinSums) -> ClassBinSums:
        """The sums over both sets of rows."""
        merged = ClassBinSums(self.num_classes, self.sums.shape[2])
        merged.sums, merged.whole = self.sums + other.sums, self.whole + other.whole
        return merged

    def bins(self) -> Bins:
        """The bins (K, M) of everything so far."""
        return class_bins(self.sums, self.whole)


def _places(probs: Tensor, edge: float) -> Tensor:
    """Where probabilities exceed an edge, in the flat order; numpy finds that three times as fast as torch."""
    if probs.device.type != "cpu":
        return (probs > edge).view(-1).nonzero().squeeze(1)
    return torch.from_numpy(np.flatnonzero(probs.numpy() > np.asarray(edge, dtype=probs.numpy().dtype)))


def _tally(total: Tensor, place: Tensor, column: Tensor | None) -> None:
    """Add 1, or what the column holds, to the total at each place, in a time that does not grow with the total."""
    if total.numel() <= len(place):
        total.view(-1).add_(torch.bincount(place, weights=column, minlength=total.numel()))
    else:
        total.view(-1).index_add_(0, place, torch.ones(len(place)).double() if column is None else column.double())


def class_bins(sums: Tensor, whole: Tensor) -> Bins:
    """The bins behind the sums of `ClassBinSums`: the first bin has what the others leave over.

    >>> class_bins(torch.zeros(4, 1, 2), torch.tensor([[5.0], [5.0], [1.0]])).confidence
    tensor([[0.2000, 0.0000]])
    """
    sums = sums.cpu().clone()
    sums[:3, :, 0] = (whole.cpu() - sums[:3, :, 1:].sum(2)).clamp_min(0)
    return Bins.of_sums(equal_width_edges(sums.shape[2]), *sums)


class ClasswiseRows(PredictionSet):
    """Predictions as seen by each class in turn: its probability, and whether it was the label.

    >>> from focalcal.predictions.arrays import Predictions
    >>> ClasswiseRows(Predictions([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs")).bins(1, "equal_width").gap
    tensor([[ 0.3500],
            [-0.3500]], dtype=torch.float64)
    """

    target = CLASSWISE

    def __init__(self, predictions: Predictions) -> None:
        self.predictions, self.num_classes = predictions, predictions.num_classes
        self._kept: list[tuple[Tensor, Tensor, Tensor | None]] | None = None
        self._times: Array | None = None

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        """How many rows there are, without ignored ones."""
        if self._kept is not None:
            return sum(len(labels) for _, labels, _ in self._kept)
        return sum(len(chunk.labels) for chunk in self.predictions.chunks())

    def parts(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Probabilities, labels and weights of successive rows."""
        if self._kept is None:
            for chunk in self.predictions.chunks():
                weight = None if chunk.weight is None else torch.from_numpy(chunk.weight)
                yield probabilities(chunk.scores, self.predictions.kind), chunk.labels, weight
        else:
            yield from self._kept

    def resampled(self, times: Array) -> ResampledClasswiseRows:
        """Resamples of these rows; the probabilities are kept in memory for them."""
        if self._kept is None:
            self._kept = list(self.parts())
        return ResampledClasswiseRows(self, times)

    def reweighted(self, times: Array) -> ClasswiseRows:
        """The same rows, each as often as `times` says."""
        start, kept = 0, list[tuple[Tensor, Tensor, "Tensor | None"]]()
        for probs, labels, weight in self.parts():
            repeated = torch.from_numpy(times[start : start + len(labels)].astype(np.float64))
            drawn = repeated > 0
            repeated = repeated if weight is None else repeated * weight
            kept.append((probs[drawn], labels[drawn], repeated[drawn]))
            start += len(labels)
        again = ClasswiseRows(self.predictions)
        again._kept, again._times = kept, times
        return again

    def mean(self, column: RowMean) -> Any:
        """The mean over rows, which knows no classes."""
        parts = [
            (RowStatistics(chunk.scores, chunk.labels, self.predictions.kind).columns(column.needs), chunk.weight)
            for chunk in self.predictions.chunks()
        ]
        joined = {name: np.concatenate([columns[name] for columns, _ in parts]) for name in column.needs}
        weight = None if parts[0][1] is None else np.concatenate([w for _, w in parts if w is not None])
        if self._times is not None:
            weight = self._times if weight is None else weight * self._times
        return PredictedRows(joined, num_classes=self.num_classes, weight=weight).mean(column)

    def bins(self, num_bins: int, edges: Scheme | Tensor) -> Bins:
        """Bins (K, B): each class has its own."""
        if isinstance(edges, str) and edges == "equal_width":
            sums = ClassBinSums(self.num_classes, num_bins)
            for probs, labels, weight in self.parts():
                sums.add(probs, labels, weight)
            return sums.bins()
        return stack_bins([bin_ranked(ranked, num_bins=num_bins, edges=edges) for ranked in self._ranked()])

    def each(self, measure: Callable[[Ranking], Any]) -> Any:
        """The measure of each class (K,)."""
        return np.array([measure(ranked) for ranked in self._ranked()])

    def combine(self, values: Any, norm: str = "l1") -> Any:
        """The mean over classes; of squares for the norm l2, the largest for max."""
        values = np.asarray(values)
        if norm == "l2":
            return np.sqrt((values**2).mean(-1))
        return values.max(-1) if norm == "max" else values.mean(-1)

    def _ranked(self) -> Iterator[Ranking]:
        """The ranking of one class after the other, some columns at a time."""
        step = max(1, _HELD // self.predictions.num_rows)
        for start in range(0, self.num_classes, step):
            some = slice(start, start + step)
            parts = [(probs[:, some].t().cpu(), labels.cpu(), weight) for probs, labels, weight in self.parts()]
            probs = torch.cat([part for part, _, _ in parts], 1).numpy()
            labels = torch.cat([part for _, part, _ in parts]).numpy()
            weight = None if parts[0][2] is None else torch.cat([w for _, _, w in parts if w is not None]).numpy()
            for offset, column in enumerate(probs):
                yield Ranking.of_rows(column, labels == start + offset, weight)


class ResampledClasswiseRows(PredictionSet):
    """Resamples (R, N) of classwise predictions, one after the other."""

    draws = 2
    target = ClasswiseRows.target

    def __init__(self, rows: ClasswiseRows, times: Array) -> None:
        self.rows, self.times = rows, times
        self.num_rows, self.num_classes = rows.num_rows, rows.num_classes

    def _one_by_one(self) -> Iterator[ClasswiseRows]:
        return (self.rows.reweighted(times) for times in self.times)

    def mean(self, column: RowMean) -> Any:
        """The means (R,)."""
        return np.array([rows.mean(column) for rows in self._one_by_one()])

    def bins(self, num_bins: int, edges: Scheme | Tensor) -> Bins:
        """Bins (R, K, B)."""
        return stack_bins([rows.bins(num_bins, edges) for rows in self._one_by_one()])

    def each(self, measure: Callable[[Ranking], Any]) -> Any:
        """The measure of each resample and class (R, K)."""
        return np.stack([rows.each(measure) for rows in self._one_by_one()])

    def combine(self, values: Any, norm: str = "l1") -> Any:
        """As for the rows."""
        return self.rows.combine(values, norm)

    def report(self, value: Any, definition: str) -> Any:
        """The values (R,) as they are."""
        return np.asarray(value)
