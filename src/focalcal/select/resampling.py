"""Intervals and tests of several methods on the same rows: the resamples are drawn once and serve all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from focalcal.core.binning import Bins, Scheme
from focalcal.core.checks import Array
from focalcal.core.ranking import Ranking
from focalcal.metrics.intervals import Interval, bootstrap_each, usual_method
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.metrics.prediction_set import Measured, PredictionSet, RowMean, ratio
from focalcal.metrics.table import Measure

_NUM_BINS = 15


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The predictions of a method for rows that its fits have not seen, once per round, and their score."""

    rounds: tuple[Any, ...]
    score: Measured

    @staticmethod
    def of(rounds: Sequence[PredictionSet], measure: Measure) -> HeldOut:
        """The predictions with their score, the mean over rounds."""
        values = [measured(measure, rows) for rows in rounds]
        return HeldOut(tuple(rounds), Measured(fmean(values), values[0].definition))


def measured(measure: Measure, rows: Any) -> Any:
    """The measure of rows or resamples; bins of equal mass hold a row each, also when one row is left out."""
    at_most = measure.num_bins == "at most rows"
    return measure(rows, **({"num_bins": min(_NUM_BINS, max(1, rows.num_rows - 1))} if at_most else {}))


@dataclass(frozen=True)
class Certainty:
    """The interval of a method's score, that of its difference to another method, and the p-value of that.

    `differences` are those of the resamples (R,).
    """

    score: Interval
    difference: Interval
    p_value: float
    differences: Array


def certainties(
    methods: Mapping[str, HeldOut],
    measure: Measure,
    *,
    against: str,
    num_resamples: int,
    level: float,
    seed: int,
) -> dict[str, Certainty]:
    """What `bootstrap` says of each method and what `compare` says of its difference to one of them.

    The rows are drawn twice in all, once for the scores and once for the differences, instead of three times per
    method, and what was measured of a resample is used again.
    """
    panel = Panel(methods, measure)
    intervals = partial(bootstrap_each, num_resamples=num_resamples, level=level, seed=seed)
    scores = intervals({name: partial(_score, name) for name in methods}, panel, method=usual_method(measure))
    # Noise raises both values and cancels in the difference: BCa serves every measure.
    differences = intervals({name: partial(_difference, name, against) for name in methods}, panel, method="bca")
    drawn = panel.replicates()
    found = {}
    for name in methods:
        against_it = drawn[name] - drawn[against]
        found[name] = Certainty(scores[name], differences[name], _p_value(against_it), against_it)
    return found


def _score(name: str, rows: Any) -> Any:
    return rows.value(name)


def _difference(name: str, against: str, rows: Any) -> Any:
    return rows.value(name) - rows.value(against)


def _p_value(differences: Array) -> float:
    """Twice the share of resamples on the other side of 0, as `compare` defines it."""
    beyond = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (beyond + 1) / (len(differences) + 1))


class Panel(PredictedRows):
    """Predictions of the same rows by several methods; a resample draws the same rows of all methods and rounds.

    What was measured of resamples is remembered, because scores and differences draw the same ones.
    """

    def __init__(self, methods: Mapping[str, HeldOut], measure: Measure) -> None:
        self.methods, self.measure = methods, measure
        different = {id(held): held for held in methods.values()}  # one method may be there under two names
        self.place = {name: list(different).index(id(held)) for name, held in methods.items()}
        self.rounds = list(zip(*(held.rounds for held in different.values()), strict=True))
        first = self.rounds[0][0]
        self.num_rows, self.num_classes, self.target = first.num_rows, first.num_classes, first.target
        self._terms: dict[tuple[int, str], tuple[Array, Array]] = {}
        self._known: dict[tuple[int, int, bytes], Array] = {}

    def in_order(self) -> Panel:
        """The rows as they are, because each method and round has another order of confidence."""
        return self

    def resampled(self, times: Array) -> Any:
        """Resamples of all methods and rounds."""
        return _ResampledPanel(self, times)

    def value(self, name: str) -> Measured:
        """The score of a method."""
        return self.methods[name].score

    def values(self, times: Array, draws: int) -> Array:
        """The measure (R, M) of every resample and method, the mean over rounds."""
        key = draws, len(times), times[0].tobytes()  # one resample tells a block of them from all others
        if key not in self._known:
            wide = times.astype(np.float64, copy=False)
            self._known[key] = np.mean([self._of_round(place, wide, draws) for place in range(len(self.rounds))], 0)
        return self._known[key]

    def _of_round(self, place: int, times: Array, draws: int) -> Array:
        if self.measure.reads == ("means",):
            return np.asarray(measured(self.measure, _MethodMeans(self, place, times)))
        columns = []
        for rows in self.rounds[place]:
            resampled = rows.resampled(times)
            resampled.draws = draws
            columns.append(measured(self.measure, resampled))
        return np.stack(columns, 1)

    def terms_of_methods(self, column: RowMean, place: int) -> tuple[Array, Array]:
        """Numerators and denominators (N, M) of the rows of all methods in a round."""
        key = place, column.name
        if key not in self._terms:
            above, below = zip(*(rows.terms(column) for rows in self.rounds[place]), strict=True)
            shared = column.denominator is None  # then it is the weight, whatever the method
            self._terms[key] = np.stack(above, 1), np.stack(below[:1] if shared else below, 1)
        return self._terms[key]

    def replicates(self) -> dict[str, Array]:
        """The measures (R,) of the resamples that were drawn, by method."""
        values = np.concatenate([values for (draws, *_), values in self._known.items() if draws > 1])
        return {name: values[:, place] for name, place in self.place.items()}


class _ResampledPanel:
    """Resamples of a panel, which give the values of one method at a time."""

    def __init__(self, panel: Panel, times: Array) -> None:
        self.panel, self.times, self.draws = panel, times, 2

    def value(self, name: str) -> Array:
        """The measures (R,) of a method."""
        return np.asarray(self.panel.values(self.times, self.draws)[:, self.panel.place[name]])


class _MethodMeans(PredictionSet):
    """Resamples of one round of all methods, for measures that are means: one matrix product serves all methods."""

    def __init__(self, panel: Panel, place: int, times: Array) -> None:
        self.panel, self.place, self.times = panel, place, times
        self.num_rows, self.num_classes, self.target = panel.num_rows, panel.num_classes, panel.target

    def mean(self, column: RowMean) -> Any:
        """The means (R, M)."""
        above, below = self.panel.terms_of_methods(column, self.place)
        return ratio(self.times @ above, self.times @ below)

    def report(self, value: Any, definition: str) -> Any:
        """The values as they are."""
        return np.asarray(value)

    def bins(self, num_bins: int, edges: Scheme | Tensor) -> Bins:
        """Never asked for by a mean."""
        raise NotImplementedError

    def each(self, measure: Callable[[Ranking], Any]) -> Any:
        """Never asked for by a mean."""
        raise NotImplementedError
