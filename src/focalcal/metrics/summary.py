"""What the measures need of any number of rows: updated batch by batch, merged, and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, Scheme, bin_ranked, equal_width_edges
from focalcal.core.checks import Array, require
from focalcal.core.ranking import Ranking
from focalcal.core.score_kinds import Kind
from focalcal.errors import InputError
from focalcal.kernels.bins import bin_predictions
from focalcal.kernels.class_bins import ClassBinSums
from focalcal.metrics.classwise_rows import ClasswiseRows
from focalcal.metrics.prediction_set import COLUMNS, PredictionSet, RowMean
from focalcal.predictions.arrays import Chunk
from focalcal.predictions.confidence_summary import ConfidenceSummary


class Summary(PredictionSet):
    """Sums, bins and confidences of any number of rows. The same class serves one tensor, a stream, ranks and workers.

    Args:
        num_classes: K.
        kind: what the scores of `update` are.
        num_bins: bins of equal width.
        means: the means over rows that can be asked for later; their sums are `mean_sums` (M, 2).
        ranked: whether confidences are kept, in `confidences`. Without them there are only `bin_sums` (4, B), the sums
            over bins of equal width.
        most_rows: beyond it, a histogram takes the place of the confidences; bins of equal width stay exact.
        classwise: whether the bins of every class are added up, in `classes`.
        target_class: the class whose confidence is meant, None for the predicted one.

    >>> import focalcal.metrics as metrics
    >>> one, two = Summary(2, num_bins=1), Summary(2, num_bins=1)
    >>> one.update(Chunk(torch.tensor([[9.0, 0.0]]), torch.tensor([0]), None))
    >>> two.update(Chunk(torch.tensor([[0.0, 2.0]]), torch.tensor([0]), None))
    >>> round(metrics.ece(one.merge(two), num_bins=1), 4)
    0.4403
    """

    def __init__(
        self,
        num_classes: int,
        kind: Kind = "logits",
        *,
        num_bins: int = 15,
        means: Sequence[RowMean] = (),
        ranked: bool = True,
        most_rows: int | None = None,
        classwise: bool = False,
        target_class: int | None = None,
    ) -> None:
        require(num_bins >= 1, "num_bins", "must be at least 1", num_bins, "The papers use 15.")
        self.num_classes, self.kind, self.num_bins, self.target_class = num_classes, kind, num_bins, target_class
        self.means = tuple(means)
        self.mean_sums = np.zeros((len(self.means), 2))
        self.bin_sums = np.zeros((4, num_bins))  # count, mass, confidence, correctness
        self.confidences = ConfidenceSummary(most_rows) if ranked else None
        self.classes = ClassBinSums(num_classes, num_bins) if classwise else None
        self.label_counts = np.zeros(num_classes)
        # Where every confidence stays, the ranking has the bins as well.
        self._binned = not ranked or most_rows is not None
        self._ranked: Ranking | None = None
        self._bins: dict[tuple[int, Scheme], Bins] = {}

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        """How many rows were added."""
        return int(self.bin_sums[0].sum()) if self.confidences is None else self.confidences.num_rows

    @property
    def num_counted(self) -> int:
        """The number of rows, as often as whole-number weights repeat them."""
        return self.num_rows if self.confidences is None else self.confidences.num_counted

    def update(self, chunk: Chunk) -> None:
        """Take in some rows of scores."""
        needed = {"confidence", "correct", *(name for mean in self.means for name in mean.needs)}
        columns = chunk.columns([name for name in COLUMNS if name in needed], self.target_class, self.classes)
        self.add(columns, chunk.weight)
        self.label_counts += torch.bincount(chunk.labels, minlength=self.num_classes).cpu().numpy()

    def add(self, columns: Mapping[str, Array], weight: Array | None = None) -> None:
        """Take in rows whose columns are known."""
        confidence, correct = columns["confidence"], columns["correct"]
        for sums, mean in zip(self.mean_sums, self.means, strict=True):
            sums += mean.sums(columns, weight)
        if self.confidences is not None:
            self.confidences.add(confidence, correct, weight)
        if self._binned:
            bins = bin_predictions(confidence, correct, num_bins=self.num_bins, weight=weight)
            self.bin_sums += torch.stack(bins.sums()).numpy()
        self._ranked, self._bins = None, {}

    def merge(self, other: Summary) -> Summary:
        """The summary of both sets of rows."""
        merged = Summary(self.num_classes, self.kind, num_bins=self.num_bins, means=self.means)
        merged.target_class, merged._binned = self.target_class, self._binned
        merged.mean_sums, merged.bin_sums = self.mean_sums + other.mean_sums, self.bin_sums + other.bin_sums
        merged.label_counts = self.label_counts + other.label_counts
        both = self.confidences, other.confidences
        merged.confidences = None if both[0] is None or both[1] is None else both[0].merge(both[1])
        if self.classes is not None and other.classes is not None:
            merged.classes = self.classes.merge(other.classes)
        return merged

    def mean(self, column: RowMean) -> Any:
        """The mean of a column that was added up."""
        names = [each.name for each in self.means]
        if column.name not in names:
            raise InputError(f"rows: {column.name} was not added up here; this summary has {', '.join(names)}.")
        above, below = self.mean_sums[names.index(column.name)]
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

    def each(self, measure: Callable[[Ranking], Any]) -> Any:
        """The measure of the ranked rows."""
        return measure(self.ranked)

    @property
    def ranked(self) -> Ranking:
        """All rows in order of confidence."""
        if self._ranked is None:
            kept = self.confidences
            if kept is None or not kept.num_rows:
                raise InputError("rows: must be kept for this measure; these are sums only.")
            self._ranked = kept.ranked()
        return self._ranked

    @property
    def classwise(self) -> ClasswiseSummary | None:
        """The same rows as seen by each class in turn, if that was added up."""
        return None if self.classes is None else ClasswiseSummary(self.classes.bins())


class ClasswiseSummary(ClasswiseRows):
    """The bins of every class, which were added up.

    >>> sums = ClassBinSums(num_classes=2, num_bins=1)
    >>> sums.add(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]), None)
    >>> ClasswiseSummary(sums.bins()).bins(1, "equal_width").accuracy
    tensor([[1.],
            [0.]], dtype=torch.float64)
    """

    def __init__(self, bins: Bins) -> None:
        self._bins = bins

    def bins(self, num_bins: int, edges: Scheme | Tensor) -> Bins:
        """The bins (K, B) as added up."""
        return self._bins
