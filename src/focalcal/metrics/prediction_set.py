"""The interface through which measures read predictions.

- `mean(row_mean)`: the weighted mean of something that each row has (NLL, Brier score, accuracy, ...);
- `bins(num_bins, edges)`: the `Bins` of confidence (the ECE family);
- `each(measure)`: a function of the predictions in order of confidence (KS, AUROC, AURC, smooth ECE, MMCE).

A measure that uses nothing else works unchanged on rows in memory (`PredictedRows`), on a thousand bootstrap resamples
of them at once (`ResampledRows`), on one class after the other (`ClasswiseRows`) and on a `Summary` that merges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, Scheme
from focalcal.core.checks import Array
from focalcal.core.ranking import Ranking
from focalcal.errors import InputError

__all__ = ["Measured", "RowMean"]

# How results name the target "classwise".
CLASSWISE = "mean over classes"
COLUMNS = ("confidence", "correct", "nll", "brier", "entropy", "rank")


class Measured(float):
    """A measured number that knows what it is: a float with a `definition`.

    >>> value = Measured(0.05, "ECE, top label, 15 equal-width bins, l1")
    >>> value, value.definition
    (0.05, 'ECE, top label, 15 equal-width bins, l1')
    """

    definition: str

    def __new__(cls, value: float, definition: str) -> Measured:  # noqa: D102
        measured = super().__new__(cls, value)
        measured.definition = definition
        return measured

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        return float(self), self.definition


@dataclass(frozen=True)
class RowMean:
    """A mean over rows: the sum of `numerator` over the sum of `denominator`, or over the number of rows.

    Both are functions of the columns that `needs` names: of confidence, correct, nll, brier, entropy and rank.

    >>> from focalcal import metrics
    >>> squared = metrics.RowMean("squared_confidence", ("confidence",), lambda rows: rows["confidence"] ** 2)
    >>> float(metrics.read([[0.5, 0.5], [1.0, 0.0]], [0, 0], kind="probs").mean(squared))
    0.625
    """

    name: str
    needs: tuple[str, ...]
    numerator: Callable[[Mapping[str, Array]], Array]
    denominator: Callable[[Mapping[str, Array]], Array] | None = None

    def sums(self, columns: Mapping[str, Array], weight: Array | None = None) -> tuple[float, float]:
        """The sums of numerator and denominator over all rows."""
        above = _total(self.numerator(columns), weight)
        if self.denominator is not None:
            return above, _total(self.denominator(columns), weight)
        return above, float(len(columns[self.needs[0]]) if weight is None else weight.sum())

    def terms(self, columns: Mapping[str, Array]) -> tuple[Array, Array]:
        """Numerator and denominator of every row, in float64."""
        above = np.asarray(self.numerator(columns), dtype=np.float64)
        below = (
            np.ones_like(above) if self.denominator is None else np.asarray(self.denominator(columns), dtype=np.float64)
        )
        return above, below


class PredictionSet(ABC):
    """A set of predictions as the measures read it."""

    num_rows: int
    num_classes: int
    target: str = "top label"
    # How often the rows were drawn: once from the truth, and once more when they are a resample of such rows. An
    # estimate that takes its own sampling bias off has to know.
    draws: int = 1

    @property
    def num_counted(self) -> int:
        """The number of rows, as often as whole-number weights repeat them."""
        return self.num_rows

    def most_bins(self, num_bins: int) -> int:
        """So many bins of equal mass, or fewer: each of them holds a row."""
        return min(num_bins, self.num_counted)

    @abstractmethod
    def mean(self, column: RowMean) -> Any:
        """The mean of a column."""

    @abstractmethod
    def bins(self, num_bins: int, edges: Scheme | Tensor) -> Bins:
        """The bins of confidence."""

    @abstractmethod
    def each(self, measure: Callable[[Ranking], Any]) -> Any:
        """A measure of the ranked predictions."""

    def by_entropy(self) -> PredictionSet:
        """The same predictions ranked by falling entropy, where rows know theirs."""
        raise InputError("by: these predictions were not kept with their entropies; rank them by confidence.")

    def combine(self, values: Any, norm: str = "l1") -> Any:
        """One value from what `bins` or `each` led to; over classes the mean, in the given norm."""
        return values

    def report(self, value: Any, definition: str) -> Any:
        """The value with its definition; resamples give a plain array."""
        return Measured(float(value), definition)


def stack_bins(bins: list[Bins]) -> Bins:
    """Bins with one more leading dimension; a sweep's number of bins varies, so shorter ones get empty bins."""
    most = max(len(one.edges) - 1 for one in bins)

    def padded(name: str, one: Bins) -> Tensor:
        column: Tensor = getattr(one, name)
        return torch.nn.functional.pad(column, (0, most - column.shape[-1]))

    fields = ("count", "confidence", "accuracy", "mass")
    stacked = {name: torch.stack([padded(name, one) for one in bins]) for name in fields}
    widest = next(one for one in bins if len(one.edges) - 1 == most)
    return Bins(edges=widest.edges, **stacked)


def _total(values: Array, weight: Array | None) -> float:
    if weight is not None:
        return float((values * weight).sum())  # unlike a product of BLAS, the same wherever in memory they lie
    return float(np.count_nonzero(values) if values.dtype == np.bool_ else values.sum(dtype=np.float64))


def ratio(above: Any, below: Any) -> Any:
    """The quotient, NaN for 0 / 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.divide(above, below)
