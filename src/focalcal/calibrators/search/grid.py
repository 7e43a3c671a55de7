r"""Searches on grids of the focal temperature family: a criterion at every point (gamma, T).

Temperature scaling is the column gamma = 0, focal calibration the row T = 1. A scan runs in float32
(`focalcal.calibrators.search.fast_family`); whatever comes close to the best is computed again in float64.

An ECE, of whatever kind, is at least the distance of mean confidence and accuracy. Where that alone exceeds the best
value so far, nothing needs to be sorted. For gamma = 0 the mean confidence falls with T, so that whole stretches of
temperatures are left out.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.calibrators.fit_data import FitData, LabelledLogits
from focalcal.calibrators.search.criteria import Criterion
from focalcal.calibrators.search.fast_family import (
    SCAN_ERROR,
    FamilySums,
    PreparedRows,
    Scratch,
    block_confidences,
    correct_and_weight,
    family_sums,
    prepare,
)
from focalcal.calibrators.search.sample import RowSample
from focalcal.core.checks import Array, require
from focalcal.core.confidence_summary import ConfidenceSummary
from focalcal.core.focal_map import focal_temperature_log_probs
from focalcal.core.optimum import Optimum

Grid: TypeAlias = "Literal['mukhoti2020', 'komisarenko2024'] | Sequence[float]"

GRIDS = {
    "mukhoti2020": tuple(i / 10 for i in range(1, 101)),  # Sec. 5.1: 0.1 to 10 in steps of 0.1
    "komisarenko2024": tuple(i / 100 for i in range(1, 501)),  # Sec. 5.1: 0.01 to 5 in steps of 0.01
}
# komisarenko2024, Sec. 5.1
GAMMAS = (-0.5, -0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0)

# Points to each side of the best one, and how often the neighbourhood is narrowed.
_AROUND, _ROUNDS = 10, 3
# Values of the logits up to which prepared rows are kept; beyond, they are prepared anew for each temperature.
_KEPT = 1 << 24
# What the histogram of a point's confidences takes of a stream's memory.
_BYTES_HISTOGRAM = 3 << 19
# How far the criterion of a sample may be from that of all rows, in 1 / sqrt(rows): twice what a worst case has.
_STANDARD_ERRORS = 2.0
# Every so-many-th temperature is looked at first, for a value to beat.
_STRIDE = 16
# Of points that cannot be told apart from the best, so many are computed exactly, those nearest to T = 1 first.
_EXACT = 48
_EXACT_STREAMED = 2  # each costs a pass
# Gammas that are worked on together.
_TOGETHER = 16

Lines: TypeAlias = Sequence[tuple[float, tuple[float, ...]]]  # temperatures with some gammas each


class FamilyPoint(NamedTuple):
    """A member of the focal temperature family."""

    gamma: float
    temperature: float


def temperatures_of(grid: Grid) -> tuple[float, ...]:
    """The temperatures of a named or given grid, checked.

    >>> temperatures_of("mukhoti2020")[:3]
    (0.1, 0.2, 0.3)
    """
    if isinstance(grid, str):
        require(grid in GRIDS, "grid", f"must be temperatures or one of {', '.join(GRIDS)}", repr(grid))
        return GRIDS[grid]
    values = tuple(float(value) for value in grid)
    require(len(values) >= 1, "grid", "must have at least one temperature", "none")
    wrong = [value for value in values if not (math.isfinite(value) and value > 0)]
    require(not wrong, "grid", "temperatures must be positive and finite", wrong[:1])
    return values


def gammas_of(gammas: Sequence[float]) -> tuple[float, ...]:
    """The gammas of a grid, checked, with 0 among them: so no search does worse than temperature scaling.

    >>> gammas_of([1.0, -0.5])
    (-0.5, 0.0, 1.0)
    """
    values = tuple(float(value) for value in gammas)
    require(len(values) >= 1, "gammas", "must have at least one gamma", "none")
    wrong = [value for value in values if not (math.isfinite(value) and value > -1)]
    require(not wrong, "gammas", "must be greater than -1 and finite", wrong[:1])
    return tuple(sorted({*values, 0.0}))


def search_grid(
    data: FitData, criterion: Criterion, gammas: Sequence[float], temperatures: Sequence[float], *, refine: bool = False
) -> Optimum[FamilyPoint]:
    """The best point of a grid; with `refine`, of ever finer temperatures around it as well."""
    found = scan_grid(data, criterion, gammas, temperatures)
    if refine and len(temperatures) > 1:
        return _refined(data, criterion, found, sorted(set(temperatures)))
    return found


def _refined(
    data: FitData, criterion: Criterion, found: Optimum[FamilyPoint], temperatures: list[float]
) -> Optimum[FamilyPoint]:
    """The best temperature between the neighbours of the best one, at its gamma: a thousandth of a step is resolved."""
    place, points, at_boundary = temperatures.index(found.point.temperature), found.iterations, found.at_boundary
    low, high = temperatures[max(place - 1, 0)], temperatures[min(place + 1, len(temperatures) - 1)]
    for _ in range(_ROUNDS):
        fine = np.linspace(low, high, 2 * _AROUND + 1)
        closer = scan_grid(data, criterion, [found.point.gamma], [*fine.tolist(), found.point.temperature])
        points += closer.iterations
        found = closer if closer.value < found.value else found
        step = (high - low) / (2 * _AROUND)
        low, high = max(found.point.temperature - step, fine[0]), min(found.point.temperature + step, fine[-1])
    return replace(found, iterations=points, at_boundary=at_boundary)


def scan_grid(
    data: FitData, criterion: Criterion, gammas: Sequence[float], temperatures: Sequence[float]
) -> Optimum[FamilyPoint]:
    """The best point of a full grid; ties go to the point nearest to T = 1."""
    ordered, some = sorted(set(gammas)), range(0, len(set(gammas)), _TOGETHER)
    lines = [(t, tuple(ordered[first : first + _TOGETHER])) for t in sorted(set(temperatures)) for first in some]
    found = scan_lines(data, criterion, lines)
    at_end = _at_end(found.point.temperature, temperatures) or _at_end(found.point.gamma, gammas)
    return replace(found, at_boundary=at_end)


def _at_end(value: float, values: Sequence[float]) -> bool:
    return min(values) < max(values) and value in (min(values), max(values))


def scan_lines(data: FitData, criterion: Criterion, lines: Lines) -> Optimum[FamilyPoint]:
    """The best of points given as temperatures with some gammas each."""
    values = _smooth_values(data, criterion, lines) if criterion.smooth else _gap_values(data, criterion, lines)
    points = [FamilyPoint(gamma, temperature) for temperature, gammas in lines for gamma in gammas]
    flat = np.concatenate(values)
    limit = flat.min() + 2 * SCAN_ERROR * max(1.0, abs(float(flat.min())))
    close = sorted((_distance(point), point) for point, value in zip(points, flat, strict=True) if value <= limit)
    if len(close) > _EXACT:  # a plateau, or a crowd: the best of the approximate values are still among them
        best = np.argsort(flat, kind="stable")[: _EXACT // 2]
        close = sorted({*close[: _EXACT // 2], *((_distance(points[i]), points[i]) for i in best)})
    close = close if data.in_memory else close[:_EXACT_STREAMED]
    exact = [(criterion.of(data, focal_temperature_map(*point)), distance, point) for distance, point in close]
    least = min(value for value, _, _ in exact)
    # Equal up to the rounding of sums in another order.
    value, _, point = min(
        (entry for entry in exact if entry[0] <= least + 1e-12 * max(1.0, abs(least))), key=lambda entry: entry[1]
    )
    return Optimum(point, value, len(points))


def _distance(point: FamilyPoint) -> tuple[float, float]:
    """How far a point is from the identity: in log T first, then in gamma."""
    gamma, temperature = point
    return round(abs(math.log(temperature)), 12), abs(gamma)


def focal_temperature_map(gamma: float, temperature: float) -> Any:
    """The map of logits (n, K) to log-probabilities, in float64 unless gamma is 0 and the logits are in float32."""

    def apply(logits: Tensor) -> Tensor:
        if gamma == 0:
            return logits / temperature
        return focal_temperature_log_probs(logits, gamma, temperature)

    return apply


# ---------------------------------------------------------------------- criteria at all points


def _smooth_values(data: FitData, criterion: Criterion, lines: Lines) -> list[Array]:
    """Means over rows, in one pass: all temperatures go over a block while it is in the cache."""
    sums = data.reduce(functools.partial(_smooth_sums, criterion, lines), _added)
    return [total / data.mass for total in sums]


def _smooth_sums(criterion: Criterion, lines: Lines, blocks: Iterator[LabelledLogits]) -> list[Array]:
    sums, scratch = [np.zeros(len(gammas)) for _, gammas in lines], Scratch()
    for block in blocks:
        rows = prepare(block)
        for place, (temperature, gammas) in enumerate(lines):
            family = family_sums(rows, temperature, gammas, scratch, label=True, squared=criterion.name == "brier")
            column = _column(family, criterion)
            weighted = column.sum(1, dtype=torch.float64) if rows.weight is None else column.double() @ rows.weight
            sums[place] += weighted.cpu().numpy()
    return sums


def _added(one: list[Array], other: list[Array]) -> list[Array]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _column(family: FamilySums, criterion: Criterion) -> Tensor:
    assert family.log_label is not None
    if family.squares is not None:
        p = torch.exp(family.log_label) / family.total
        return family.squares / family.total.to(family.squares.dtype).square() - 2 * p + 1
    nll = (torch.log(family.total) - family.log_label).clamp_(min=0.0)
    return nll if criterion.gamma is None else torch.pow(-torch.expm1(-nll), criterion.gamma) * nll


def _gap_values(data: FitData, criterion: Criterion, lines: Lines) -> list[Array]:
    """Values of a criterion of confidence and correctness; infinity where it cannot be the least."""
    if not data.in_memory:
        sample = data.reduce(RowSample.of, RowSample.merge)  # a stream may turn out to be small
        if not data.in_memory:
            return _streamed_values(data, sample, criterion, lines)
    return _seen(data, criterion, lines)


def _seen(data: FitData, criterion: Criterion, lines: Lines, slack: float = 4 * SCAN_ERROR) -> list[Array]:
    """The values of all points that are not further than `slack` from the best one by their mean confidence."""
    seen = _VisitedPoints(data, criterion, lines, slack)
    by_temperature = all(earlier[0] < later[0] for earlier, later in itertools.pairwise(lines))
    if by_temperature and all(gammas == (0.0,) for _, gammas in lines):
        seen.halve(0, len(lines) - 1)
    else:  # some temperatures first, for a value to beat
        for place in (*range(0, len(lines), _STRIDE), *range(len(lines))):
            seen.visit(place)
    return seen.values


def _streamed_values(data: FitData, sample: RowSample, criterion: Criterion, lines: Lines) -> list[Array]:
    """Values for more rows than can be kept: a sample says which points matter, and passes measure those.

    As many points a pass as there is room for, each with its own confidences or their histogram.
    """
    some = sample.data()
    slack = _STANDARD_ERRORS / math.sqrt(some.num_rows)
    values = _seen(some, criterion, lines, slack)
    limit = min(float(each.min()) for each in values) + slack
    wanted = [(place, g) for place, each in enumerate(values) for g in np.flatnonzero(each <= limit).tolist()]
    values = [np.full(len(gammas), math.inf) for _, gammas in lines]
    assert data.most_rows is not None
    together = max(1, data.memory // _BYTES_HISTOGRAM)
    for start in range(0, len(wanted), together):
        points = wanted[start : start + together]
        fold = functools.partial(_point_confidences, lines, points, data.most_rows // len(points))
        found: list[ConfidenceSummary] = data.reduce(fold, _merged_confidences)
        for (place, g), kept in zip(points, found, strict=True):
            values[place][g] = criterion.of_ranking(kept.ranked())
    return values


def _point_confidences(
    lines: Lines, points: Sequence[tuple[int, int]], most_rows: int, blocks: Iterator[LabelledLogits]
) -> list[ConfidenceSummary]:
    """The confidences of all rows at some points: places of a line, and of its gammas."""
    kept, scratch = [ConfidenceSummary(most_rows) for _ in points], Scratch()
    by_line = itertools.groupby(range(len(points)), key=lambda i: points[i][0])
    chosen = [(place, list(group)) for place, group in by_line]
    for block in blocks:
        rows = prepare(block)
        correct, weight = correct_and_weight(rows)
        for place, some in chosen:
            temperature, gammas = lines[place]
            wanted = tuple(gammas[points[i][1]] for i in some)
            confidence = block_confidences(temperature, wanted, rows, scratch)
            for i, column in zip(some, confidence, strict=True):
                kept[i].add(np.ascontiguousarray(column), correct, None if rows.weight is None else weight)
    return kept


def _merged_confidences(one: list[ConfidenceSummary], other: list[ConfidenceSummary]) -> list[ConfidenceSummary]:
    return [a.merge(b) for a, b in zip(one, other, strict=True)]


class _VisitedPoints:
    """The values of a criterion at the temperatures visited so far."""

    def __init__(self, data: FitData, criterion: Criterion, lines: Lines, slack: float) -> None:
        self._criterion, self._lines, self._rows, self._slack = criterion, lines, _PreparedData(data), slack
        self._correct, self._weight = self._rows.correct_and_weight()
        self._share = np.full(len(self._correct), 1 / data.mass, dtype=np.float32)
        if self._weight is not None:
            self._share *= self._weight.astype(np.float32)
        self._accuracy = float(self._share @ self._correct)
        self.values = [np.full(len(gammas), math.inf) for _, gammas in lines]
        self._best = math.inf
        self._known: dict[bytes, float] = {}  # of confidences met before: where they are tied, points often agree
        self._surplus: dict[int, Array] = {}

    def visit(self, place: int) -> Array:
        """Mean confidence minus accuracy of each gamma at a temperature; the criterion where that is small enough."""
        if place not in self._surplus:
            confidence = self._rows.confidences(*self._lines[place])
            surplus = confidence @ self._share - self._accuracy
            for g in np.argsort(np.abs(surplus)):
                if abs(surplus[g]) > self._best + self._slack:
                    break
                self.values[place][g] = self._value(confidence[g])
                self._best = min(self._best, self.values[place][g])
            self._surplus[place] = surplus
        return self._surplus[place]

    def _value(self, confidence: Array) -> float:
        """The criterion of the confidences of all rows."""
        key = hashlib.blake2b(np.ascontiguousarray(confidence).data, digest_size=16).digest()
        if key not in self._known:
            self._known[key] = self._criterion.of_confidences(confidence, self._correct, self._weight)
        return self._known[key]

    def halve(self, first: int, last: int) -> None:
        """Visit the temperatures between two places that may matter, given that the confidence falls with T."""
        high, low = float(self.visit(first)[0]), float(self.visit(last)[0])
        if last - first < 2 or max(low, -high) > self._best + self._slack:
            return
        # The half in which confidence and accuracy meet comes first: it has the values to beat.
        middle = (first + last) // 2
        halves = [(first, middle), (middle, last)]
        for half in halves if float(self.visit(middle)[0]) < 0 else reversed(halves):
            self.halve(*half)


class _PreparedData:
    """Rows in memory, prepared once if they are few, otherwise again for each temperature."""

    def __init__(self, data: FitData) -> None:
        self._data, self._scratch = data, Scratch()
        few = data.count() * data.num_classes <= _KEPT
        self._kept = data.reduce(lambda blocks: list(map(prepare, blocks)), operator.add) if few else []

    def _columns(self, of_rows: Callable[[PreparedRows], tuple[Array, ...]]) -> tuple[Array, ...]:
        if not self._kept:
            return self._data.columns(lambda block: of_rows(prepare(block)))
        return tuple(np.concatenate(column, axis=-1) for column in zip(*map(of_rows, self._kept), strict=True))

    def correct_and_weight(self) -> tuple[Array, Array | None]:
        """Whether each row's largest class is its label, and the weights, if there are any."""
        correct, weight = self._columns(correct_and_weight)
        return correct, None if (weight == 1).all() else weight

    def confidences(self, temperature: float, gammas: tuple[float, ...]) -> Array:
        """The confidence of each row (G, N)."""
        return self._columns(lambda rows: (block_confidences(temperature, gammas, rows, self._scratch),))[0]
