r"""Searches on grids of the focal temperature family: a criterion at every point (gamma, T).

Temperature scaling is the column gamma = 0, focal calibration the row T = 1. A scan runs in float32
(`focalcal.kernels.focal_grid`); whatever comes close to the best is computed again in float64.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from torch import Tensor

from focalcal.calibrators.fit_data import FitData, LabelledLogits, row_weights
from focalcal.calibrators.search.criteria import BINNED, Criterion
from focalcal.calibrators.search.sample import RowSample
from focalcal.core.checks import Array, require
from focalcal.core.focal_map import focal_temperature_log_probs
from focalcal.core.optimum import Optimum
from focalcal.kernels.binned_gaps import binned_gaps
from focalcal.kernels.focal_grid import SCAN_ERROR, GridRows, Lines, prepare_rows
from focalcal.predictions.confidence_summary import ConfidenceSummary

Grid: TypeAlias = "Literal['mukhoti2020', 'komisarenko2024'] | Sequence[float]"

GRIDS = {
    "mukhoti2020": tuple(i / 10 for i in range(1, 101)),  # Sec. 5.1: 0.1 to 10 in steps of 0.1
    "komisarenko2024": tuple(i / 100 for i in range(1, 501)),  # Sec. 5.1: 0.01 to 5 in steps of 0.01
}
# komisarenko2024, Sec. 5.1
GAMMAS = (-0.5, -0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0)

# Points to each side of the best one, and how often the neighbourhood is narrowed.
_AROUND, _ROUNDS = 10, 3
# Values of the logits up to which prepared rows are kept; beyond, they are prepared anew for each pass.
_KEPT = 1 << 24
# Confidences that are kept at a time: so many stay in the cache, and so many are worth a pass.
_CONFIDENCES, _CONFIDENCES_OF_A_PASS = 1 << 20, 1 << 24
# What the histogram of a point's confidences takes of a stream's memory.
_BYTES_HISTOGRAM = 3 << 19
# How far the criterion of a sample may be from that of all rows, in 1 / sqrt(rows): twice what a worst case has.
_STANDARD_ERRORS = 2.0
# Of points that cannot be told apart from the best, so many are computed exactly, those nearest to T = 1 first.
_EXACT = 48
_EXACT_STREAMED = 2  # each costs a pass


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
    ordered = tuple(sorted(set(gammas)))
    found = scan_lines(data, criterion, [(temperature, ordered) for temperature in sorted(set(temperatures))])
    at_boundary = at_end(found.point.temperature, temperatures) or at_end(found.point.gamma, gammas)
    return replace(found, at_boundary=at_boundary)


def at_end(value: float, values: Sequence[float]) -> bool:
    """Whether a value is one of the two ends of several.

    >>> at_end(0.5, [0.1, 0.3, 0.5]), at_end(0.5, [0.5])
    (True, False)
    """
    return min(values) < max(values) and value in (min(values), max(values))


def scan_lines(data: FitData, criterion: Criterion, lines: Lines) -> Optimum[FamilyPoint]:
    """The best of points given as temperatures with some gammas each."""
    points = _points(lines)
    return best_of(data, criterion, points, values_at(data, criterion, lines))


def _points(lines: Lines) -> list[FamilyPoint]:
    return [FamilyPoint(gamma, temperature) for temperature, gammas in lines for gamma in gammas]


def values_at(data: FitData, criterion: Criterion, lines: Lines) -> Array:
    """The criterion at all points, right to `SCAN_ERROR`; infinity where it cannot be the least."""
    return (_smooth_values if criterion.smooth else _gap_values)(data, criterion, lines)


def best_of(data: FitData, criterion: Criterion, points: Sequence[FamilyPoint], values: Array) -> Optimum[FamilyPoint]:
    """The best of some points by their approximate values: those that come close are measured in float64."""
    limit = values.min() + 2 * SCAN_ERROR * max(1.0, abs(float(values.min())))
    close = sorted((_distance(points[i]), points[i]) for i in np.flatnonzero(values <= limit).tolist())
    if len(close) > _EXACT:  # a plateau, or a crowd: the best of the approximate values are still among them
        best = np.argsort(values, kind="stable")[: _EXACT // 2]
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


def prepare(block: LabelledLogits) -> GridRows:
    """The rows of a block, prepared for points of the family."""
    return prepare_rows(block.logits, block.labels)


def _smooth_values(data: FitData, criterion: Criterion, lines: Lines) -> Array:
    """Means over rows, in one pass."""
    sums: Array = data.total(functools.partial(_smooth_sums, criterion, lines))
    return sums / data.mass


def _smooth_sums(criterion: Criterion, lines: Lines, block: LabelledLogits) -> Array:
    name: Any = criterion.name
    return prepare(block).sums(lines, name, criterion.gamma or 0.0, block.weight)


def _gap_values(data: FitData, criterion: Criterion, lines: Lines) -> Array:
    """Values of a criterion of confidence and correctness."""
    if not data.in_memory:
        sample = data.reduce(RowSample.of, RowSample.merge)  # a stream may turn out to be small
        if not data.in_memory:
            return _streamed_values(data, sample, criterion, lines)
    return _gap_values_in_memory(data, criterion, lines)


def _gap_values_in_memory(data: FitData, criterion: Criterion, lines: Lines, slack: float = 4 * SCAN_ERROR) -> Array:
    rows = _RowsInMemory(data)
    if criterion.name not in BINNED or rows.weight is not None:
        return _nearest_first(rows, criterion, lines, slack)
    equal_mass = criterion.name == "ada_ece"
    num_bins = min(criterion.num_bins, len(rows.correct)) if equal_mass else criterion.num_bins
    gaps = functools.partial(binned_gaps, correct=rows.correct, num_bins=num_bins, equal_mass=equal_mass)
    return np.concatenate([gaps(confidence) for confidence in rows.confidences(lines)])


def _nearest_first(rows: _RowsInMemory, criterion: Criterion, lines: Lines, slack: float) -> Array:
    """Values of a criterion that is slow to compute, of no more points than needed.

    An ECE, of whatever kind, is at least the distance of mean confidence and accuracy. So the points are visited in
    the order of that distance, until it exceeds the least value so far by more than the slack.
    """
    surplus = np.concatenate([each @ rows.share for each in rows.confidences(lines)]) - rows.accuracy
    points, values = _points(lines), np.full(len(surplus), math.inf)
    known: dict[bytes, float] = {}  # of confidences met before: where rows are tied, points often agree
    for i in np.argsort(np.abs(surplus), kind="stable"):
        if abs(surplus[i]) > values.min() + slack:
            break
        confidence = next(rows.confidences([(points[i].temperature, (points[i].gamma,))]))[0]
        key = hashlib.blake2b(np.ascontiguousarray(confidence).data, digest_size=16).digest()
        if key not in known:
            known[key] = criterion.of_confidences(confidence, rows.correct, rows.weight)
        values[i] = known[key]
    return values


def _streamed_values(data: FitData, sample: RowSample, criterion: Criterion, lines: Lines) -> Array:
    """Values for more rows than can be kept: a sample says which points matter, and passes measure those.

    As many points a pass as there is room for, each with its own confidences or their histogram.
    """
    some = sample.data()
    slack = _STANDARD_ERRORS / math.sqrt(some.num_rows)
    values = _gap_values_in_memory(some, criterion, lines, slack)
    wanted, points = np.flatnonzero(values <= values.min() + slack), _points(lines)
    values = np.full(len(values), math.inf)
    assert data.most_rows is not None
    together = max(1, data.memory // _BYTES_HISTOGRAM)
    for start in range(0, len(wanted), together):
        now = wanted[start : start + together]
        by_temperature = itertools.groupby((points[i] for i in now), key=lambda point: point.temperature)
        chosen = [(temperature, tuple(point.gamma for point in group)) for temperature, group in by_temperature]
        fold = functools.partial(_kept_confidences, chosen, data.most_rows // len(now))
        found: list[ConfidenceSummary] = data.reduce(fold, _merged_confidences)
        values[now] = [criterion.of_ranking(kept.ranked()) for kept in found]
    return values


def _kept_confidences(lines: Lines, most_rows: int, blocks: Iterator[LabelledLogits]) -> list[ConfidenceSummary]:
    """The confidences of all rows at some points."""
    kept = [ConfidenceSummary(most_rows) for _ in _points(lines)]
    for block in blocks:
        rows = prepare(block)
        correct, confidence = rows.correct.cpu().numpy(), rows.confidences(lines).cpu().numpy()
        weight = None if block.weight is None else block.weight.cpu().numpy()
        for summary, column in zip(kept, confidence, strict=True):
            summary.add(column, correct, weight)
    return kept


def _merged_confidences(one: list[ConfidenceSummary], other: list[ConfidenceSummary]) -> list[ConfidenceSummary]:
    return [a.merge(b) for a, b in zip(one, other, strict=True)]


class _RowsInMemory:
    """Rows in memory, prepared once if they are few, otherwise again for each pass.

    `correct`, `weight` (None where all are 1) and `share`, the weight over that of all rows, have a place per row.
    """

    def __init__(self, data: FitData) -> None:
        self._data = data
        few = data.count() * data.num_classes <= _KEPT
        kept = data.reduce(functools.partial(_prepared, keep=few), operator.add)
        self._kept = [rows for rows, _, _ in kept if rows is not None]
        self.correct, weight = (np.concatenate([part[i] for part in kept]) for i in (1, 2))
        self.weight = None if (weight == 1).all() else weight
        self.share = (weight / data.mass).astype(np.float32)
        self.accuracy = float(self.share @ self.correct)

    def confidences(self, lines: Lines) -> Iterator[Array]:
        """The confidences (P, n) of all rows, of some lines after the other."""
        most = _CONFIDENCES if self._kept else _CONFIDENCES_OF_A_PASS
        start, points = 0, 0
        for end, (_, gammas) in enumerate(lines):
            if end > start and (points + len(gammas)) * len(self.correct) > most:
                yield self._confidences(lines[start:end])
                start, points = end, 0
            points += len(gammas)
        yield self._confidences(lines[start:])

    def _confidences(self, lines: Lines) -> Array:
        if not self._kept:
            return self._data.columns(lambda block: (prepare(block).confidences(lines).cpu().numpy(),))[0]
        parts = [rows.confidences(lines).cpu().numpy() for rows in self._kept]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _prepared(blocks: Iterator[LabelledLogits], keep: bool) -> list[tuple[GridRows | None, Array, Array]]:
    """Blocks with the correctness and the weight of their rows."""
    parts = ((prepare(block), row_weights(block).cpu().numpy()) for block in blocks)
    return [(rows if keep else None, rows.correct.cpu().numpy(), weight) for rows, weight in parts]
