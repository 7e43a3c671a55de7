"""Every class against the rest: the same measures, with one more dimension for the classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, Scheme, bin_ranked
from focalcal.core.checks import Array
from focalcal.core.ranking import Ranking
from focalcal.core.score_kinds import probabilities
from focalcal.kernels.class_bins import ClassBinSums
from focalcal.kernels.ranking import ranked_rows
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.metrics.prediction_set import CLASSWISE, PredictionSet, RowMean, stack_bins
from focalcal.predictions.arrays import Predictions

# Columns of classes that are held at once for what needs an order, in numbers.
_HELD = 1 << 24


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
        parts = [(chunk.columns(column.needs), chunk.weight) for chunk in self.predictions.chunks()]
        joined = {name: np.concatenate([columns[name] for columns, _ in parts]) for name in column.needs}
        weight = None if parts[0][1] is None else np.concatenate([w for _, w in parts if w is not None])
        if self._times is not None:
            weight = self._times if weight is None else weight * self._times
        return PredictedRows(joined, num_classes=self.num_classes, weight=weight).mean(column)

    def bins(self, num_bins: int, edges: Scheme | Tensor) -> Bins:
        """Bins (K, B): each class has its own."""
        if isinstance(edges, str) and edges == "equal_width":
            return self._class_sums(num_bins).bins()
        return stack_bins([bin_ranked(ranked, num_bins=num_bins, edges=edges) for ranked in self._ranked()])

    def _class_sums(self, num_bins: int) -> ClassBinSums:
        sums = ClassBinSums(self.num_classes, num_bins)
        if self._kept is None:
            for chunk in self.predictions.chunks():
                chunk.columns((), class_sums=sums)
        for probs, labels, weight in self._kept or []:
            sums.add(probs, labels, None if weight is None else weight.numpy())
        return sums

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
                yield ranked_rows(column, labels == start + offset, weight)


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
