r"""Predictions in order of confidence: what equal-mass bins, sweeps, KS, AUROC, risk-coverage and kernel sums read.

Rows of equal confidence form one group, and nothing here looks inside it. Where a cut falls into a group, the group's
correct rows are shared in proportion, as if its rows came in random order and the mean were taken. So no result depends
on the order of the rows, whole-number weights mean repeated rows, and a histogram of fine cells is a ranking as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from focalcal.core.checks import Array

# Groups that are scanned together, so that temporaries do not grow with the number of rows.
BLOCK = 1 << 16
# Groups between two running sums that are kept.
_MILESTONE = 64
# Accuracies that differ by less are equal: shares of a group are rounded.
_ROUNDING = 1e-12


def pack(confidence: Array, correct: Array) -> Array:
    """Confidence and correctness of each row in one unsigned integer that sorts by confidence.

    The sign bit of a confidence is never set, so there is room for one bit at the other end: 4 bytes per row for
    float32, 8 for float64, and nothing is lost.

    >>> pack(np.array([1.0, 0.5], dtype=np.float32), np.array([True, False]))
    array([2130706433, 2113929216], dtype=uint32)
    """
    unsigned = np.uint64 if confidence.dtype == np.float64 else np.uint32
    return np.asarray((confidence.view(unsigned) << unsigned(1)) | correct.astype(unsigned))


def unpack(keys: Array) -> tuple[Array, Array]:
    """The confidence and the correctness (0 or 1) that `pack` put together.

    >>> unpack(pack(np.array([0.25, 1.0]), np.array([True, False])))
    (array([0.25, 1.  ]), array([1, 0], dtype=uint64))
    """
    one = keys.dtype.type(1)
    return (keys >> one).view(np.float64 if keys.dtype == np.uint64 else np.float32), keys & one


def sort_keys(keys: Array) -> None:
    """Sort packed rows in place.

    >>> keys = pack(np.array([0.9, 0.1, 0.5]), np.array([1, 1, 0]))
    >>> sort_keys(keys)
    >>> unpack(keys)[0]
    array([0.1, 0.5, 0.9])
    """
    keys.sort()


@dataclass(frozen=True)
class Ranking:
    """Groups of equal confidence, in increasing order.

    `value` is the confidence of each group, `count` its rows, `mass` their weight and `right` the weight of the correct
    ones among them. Without weights `mass` is `count`, and also with weights that are whole numbers.
    """

    value: Array
    count: Array
    mass: Array
    right: Array

    @staticmethod
    def of_keys(keys: Array) -> Ranking:
        """The ranking of packed rows, in any order; sorts them in place.

        >>> Ranking.of_keys(pack(np.array([0.9, 0.5, 0.9]), np.array([True, False, False]))).count
        array([1, 2], dtype=uint32)
        """
        sort_keys(keys)
        values, correct = unpack(keys)
        starts = _group_starts(values)
        if len(starts) == len(values):
            return Ranking.of_different(values, correct.astype(np.uint8))
        count = np.diff(starts, append=len(values)).astype(np.uint32)
        return Ranking.of_groups(values[starts], count, np.add.reduceat(correct, starts, dtype=np.uint32))

    @staticmethod
    def of_groups(value: Array, count: Array, right: Array) -> Ranking:
        """The ranking of groups whose rows have no weights.

        >>> Ranking.of_groups(np.array([0.5, 0.9]), np.array([1, 2]), np.array([0, 1])).total
        3.0
        """
        return Ranking(value, count, count, right)

    @staticmethod
    def of_different(value: Array, right: Array) -> Ranking:
        """The ranking of rows without weights, no two of which have the same confidence.

        >>> Ranking.of_different(np.array([0.5, 0.9]), np.array([0, 1])).total_right
        1.0
        """
        count = np.broadcast_to(np.uint32(1), value.shape)  # no memory
        return Ranking(value, count, count, right)

    @staticmethod
    def of_rows(confidence: Array, correct: Array, weight: Array | None = None) -> Ranking:
        """The ranking of rows (N,), weighted or not; correctness may be a probability, where that is known.

        >>> Ranking.of_rows(np.array([0.9, 0.5]), np.array([1, 0]), np.array([2.0, 1.0])).mass
        array([1., 2.])
        """
        if weight is None and not is_fractional(correct):
            return Ranking.of_keys(pack(confidence, correct))
        weight = np.ones(len(confidence)) if weight is None else weight
        order = np.lexsort((correct, weight, confidence))  # sums then do not depend on the order of the rows
        value, weight = confidence[order], weight[order]
        starts = _group_starts(value)
        mass, right = (np.add.reduceat(column, starts) for column in (weight, weight * correct[order]))
        count = mass if whole_numbers(weight) else np.diff(starts, append=len(value)).astype(np.uint32)
        return Ranking(value[starts], count, mass, right)

    def drawn(self) -> Ranking:
        """Without the groups that have no mass.

        >>> Ranking(np.array([0.5, 0.9]), np.array([0, 2]), np.array([0, 2]), np.array([0, 1])).drawn().value
        array([0.9])
        """
        held = self.mass > 0
        if held.all():
            return self
        mass = self.mass[held]
        return Ranking(self.value[held], mass if self.count is self.mass else self.count[held], mass, self.right[held])

    @cached_property
    def reached(self) -> Array:
        """The mass up to and including each group."""
        if self.mass.strides == (0,) and self.mass[0] == 1:
            return np.arange(1, len(self.mass) + 1, dtype=_running(self.mass))
        return np.cumsum(self.mass, dtype=_running(self.mass))

    @cached_property
    def reached_right(self) -> Array:
        """The mass of correct rows up to and including each group."""
        return np.cumsum(self.right, dtype=_running(self.right))

    @property
    def total(self) -> float:
        """The mass of all groups."""
        return float(self.reached[-1])

    @property
    def total_right(self) -> float:
        """The mass of all correct rows."""
        return float(self.reached_right[-1])

    @cached_property
    def counts_rows(self) -> bool:
        """Whether the mass is a number of rows."""
        return self.mass is self.count or np.array_equal(self.mass, self.count)

    def blocks(self, *names: str) -> Iterator[tuple[Array, ...]]:
        """The named columns of successive groups, in float64."""
        columns = [getattr(self, name) for name in names]
        for start in range(0, len(self.value), BLOCK):
            yield tuple(column[start : start + BLOCK].astype(np.float64) for column in columns)

    @property
    def residuals(self) -> Residuals:
        """Confidence minus correctness of each group over the total mass, in slices."""
        return Residuals(self)

    def largest_drift(self) -> float:
        """The largest distance between the running sums of confidence and of correctness, over the total mass.

        >>> Ranking.of_rows(np.array([0.5, 0.9]), np.array([1, 0])).largest_drift()
        0.25
        """
        largest, reached = 0.0, 0.0
        for value, mass, right in self.blocks("value", "mass", "right"):
            drift = reached + np.cumsum(value * mass - right)
            largest, reached = max(largest, float(np.abs(drift).max())), float(drift[-1])
        return largest / self.total

    def right_above_wrong(self) -> float:
        """Over all groups, the correct mass times the wrong mass below it, of which the group's own counts half.

        >>> Ranking.of_rows(np.array([0.2, 0.5, 0.5]), np.array([0, 0, 1])).right_above_wrong()
        1.5
        """
        above = 0.0
        for mass, right, reached, reached_right in self.blocks("mass", "right", "reached", "reached_right"):
            above += float((right * (reached - reached_right - (mass - right) / 2)).sum())
        return above

    def risk_area(self) -> float:
        r"""The area under the risk-coverage curve.

        From the surest group down: with E errors among the first m rows, a group of n rows with error rate e adds
        $\sum_{k=m+1}^{m+n} (E + e (k - m)) / k = (E - e m)(H_{m+n} - H_m) + e n$.

        >>> Ranking.of_rows(np.array([0.9, 0.8]), np.array([1, 0])).risk_area()
        0.25
        """
        area, errors = 0.0, self.total - self.total_right
        for mass, right, reached, reached_right in self.blocks("mass", "right", "reached", "reached_right"):
            wrong, surer = mass - right, self.total - reached
            missed = errors - (reached - reached_right)  # errors among the surer ones
            step = _harmonic_step(surer, mass, self.counts_rows)
            area += float(((missed - wrong / mass * surer) * step + wrong).sum())
        return area / self.total

    def before(self, positions: Array) -> Array:
        """Sums (4, P) of count, mass, confidence and correctness over the groups before each of P positions."""
        mass, right = (np.where(positions > 0, sums[positions - 1], 0.0) for sums in (self.reached, self.reached_right))
        count = mass if self.counts_rows else self._before(self.count, positions)
        return np.stack([count, mass, self._confidence_before(positions), right])

    @cached_property
    def _milestones(self) -> Array:
        """The sum of mass times confidence before every so-many-th group: all running sums would take much memory."""
        starts = np.arange(0, len(self.value), _MILESTONE)
        column = self.value if self.count.strides == (0,) else self.value * self.mass
        return np.concatenate([[0.0], np.cumsum(np.add.reduceat(column, starts, dtype=np.float64))])

    def _confidence_before(self, positions: Array) -> Array:
        """Sums (P,) of mass times confidence over the groups before each position."""
        passed, left = np.divmod(positions, _MILESTONE)
        place = passed[:, None] * _MILESTONE + np.arange(_MILESTONE)
        inside = np.arange(_MILESTONE) < left[:, None]
        place = np.where(inside, place, 0)
        terms = self.value[place].astype(np.float64) * self.mass[place]
        return np.asarray(self._milestones[passed] + np.where(inside, terms, 0.0).sum(1))

    def _before(self, column: Array, positions: Array) -> Array:
        """Sums (P,) of a column over the groups before each position."""
        starts = np.union1d([0], np.minimum(positions, len(self.value) - 1))
        sums = np.concatenate([[0.0], np.cumsum(np.add.reduceat(column, starts, dtype=np.float64))])
        return np.asarray(sums[np.searchsorted(starts, positions)])

    def below_values(self, edges: Array) -> Array:
        """Sums (4, E) over all rows whose confidence is at most each edge, compared in the confidences' precision."""
        return self.before(np.searchsorted(self.value, edges.astype(self.value.dtype), side="right"))

    def below_masses(self, cuts: Array) -> tuple[Array, Array]:
        """Sums (4, C) over the least confident rows that make up each mass, and the confidence there (C,)."""
        group = self._group_at(cuts)
        sums, size = self.before(group), self.mass[group]
        inside = (cuts - sums[1]) / size  # the share of the group that the cut asks for
        sums += inside * np.stack([self.count[group], size, self.value[group] * size, self.right[group]])
        sums[0], sums[1] = np.round(sums[0], 9), cuts  # whole again where rows are not shared
        return sums, self._value_at(group, inside)

    def values_at(self, cuts: Array) -> Array:
        """The confidence (C,) at which each mass is reached, as `below_masses` gives it, without the sums."""
        group = self._group_at(cuts)
        before = np.where(group > 0, self.reached[group - 1], 0.0)
        return self._value_at(group, (cuts - before) / self.mass[group])

    def _value_at(self, group: Array, inside: Array) -> Array:
        """The confidence of the group, or halfway to the next one where a cut takes all of it."""
        value, above = (self.value[np.minimum(group + step, len(self.value) - 1)].astype(np.float64) for step in (0, 1))
        return np.asarray(np.where(inside < 1 - _ROUNDING, value, (value + above) / 2))

    def _group_at(self, cuts: Array) -> Array:
        """The group in which each mass is reached."""
        wanted = cuts.astype(self.reached.dtype) if self.counts_rows else cuts - _ROUNDING * self.total
        return np.minimum(np.searchsorted(self.reached, wanted), len(self.value) - 1)

    def mass_cuts(self, num_bins: int, *, larger_first: bool = False) -> Array:
        r"""The masses (M + 1,) at which bins of equal mass end: $\lceil k W / M \rceil$ for whole-number weights.

        So the row of rank i from 0 is in bin $\lfloor M i / W \rfloor$. With `larger_first` the first W mod M bins have
        one row more than the others. Other weights are cut at $k W / M$ exactly.
        """
        k = np.arange(num_bins + 1)
        if self.counts_rows and larger_first:
            smaller, more = divmod(int(self.total), num_bins)
            return (k * smaller + np.minimum(k, more)).astype(np.float64)
        return self._mass_cut(k, num_bins)

    def all_mass_cuts(self, fewest: int, most: int) -> tuple[Array, Array]:
        """`mass_cuts` of each number of bins from `fewest` to `most`, one after the other, and the place of each.

        >>> Ranking.of_rows(np.array([0.5, 0.9]), np.array([1, 0])).all_mass_cuts(1, 2)
        (array([0., 2., 0., 1., 2.]), array([0, 0, 1, 1, 1]))
        """
        sizes = np.arange(fewest, most + 1)
        place = np.repeat(np.arange(len(sizes)), sizes + 1)
        starts = np.cumsum(sizes + 1) - (sizes + 1)
        return self._mass_cut(np.arange(len(place)) - starts[place], sizes[place]), place

    def _mass_cut(self, k: Array, num_bins: Array | int) -> Array:
        if not self.counts_rows:
            return np.asarray(k * self.total / num_bins)
        return np.asarray(-(-k * int(self.total) // num_bins), dtype=np.float64)  # in integers: exact

    def sweep(self, *, equal_mass: bool) -> int:
        """The largest number of bins, counted up from 2, before bin accuracies stop being non-decreasing.

        Bins that hold wrong rows only, or correct ones only, are in order anyway: only those in between are looked at,
        for many numbers of bins together. Source: [roelofs2022, Alg. 1].
        """
        rows = int(self.count.sum())
        mixed = np.array([_first(self.right > 0), len(self.value) - 1 - _first((self.right < self.mass)[::-1])])
        if mixed[0] > mixed[1]:
            return rows  # sorted perfectly: in order with any bins
        zone = self.reached[mixed] / self.total if equal_mass else self.value[mixed].astype(np.float64)
        zone[0] -= self.mass[mixed[0]] / self.total if equal_mass else 0.0
        start, together = 2, 16
        while start <= rows:
            sizes = np.arange(start, min(start + together, rows + 1))[:, None]
            first, last = (
                np.floor(end * sizes).astype(np.int64) + step for end, step in zip(zone, (-1, 2), strict=True)
            )
            k = np.clip(first + np.arange((last - first).max() + 1), 0, sizes)
            in_order = _in_order(*(self._cut_by_mass(k, sizes) if equal_mass else self._cut_by_value(k, sizes)))
            if not in_order.all():
                return int(sizes[np.argmin(in_order), 0]) - 1
            start, together = start + len(sizes), min(2 * together, max(1, BLOCK // k.shape[1]))
        return rows

    def _cut_by_mass(self, k: Array, num_bins: Array) -> tuple[Array, Array]:
        """Mass and mass of correct rows in the first k of so many bins of equal mass."""
        cuts = self._mass_cut(k, num_bins)
        group = self._group_at(cuts)
        missing = (self.reached[group] - cuts) / self.mass[group]
        return cuts, self.reached_right[group] - missing * self.right[group]

    def _cut_by_value(self, k: Array, num_bins: Array) -> tuple[Array, Array]:
        """Mass and mass of correct rows in the first k of so many bins of equal width."""
        place = np.searchsorted(self.value, (k / num_bins).astype(self.value.dtype), side="right")
        counted = (k > 0) & (place > 0)  # a confidence of 0 belongs to the first bin
        mass, right = (np.where(counted, sums[place - 1], 0.0) for sums in (self.reached, self.reached_right))
        return mass, right


class Residuals:
    """The residuals of a ranking, computed slice by slice because all of them would take 8 bytes per row."""

    def __init__(self, ranked: Ranking) -> None:
        self.ranked = ranked

    def __getitem__(self, groups: slice) -> Array:
        value, mass, right = (getattr(self.ranked, name)[groups] for name in ("value", "mass", "right"))
        return np.asarray((value * mass.astype(np.float64) - right) / self.ranked.total)


def _harmonic_step(before: Array, mass: Array, counts_rows: bool) -> Array:
    """The sum of 1/k over k = before + 1 .. before + mass; its limit, the logarithm, for weights that are no counts."""
    if counts_rows:
        step = 1 / (before + 1)
        several = mass > 1
        if several.any():
            from scipy.special import digamma

            low = before[several] + 1
            step[several] = digamma(low + mass[several]) - digamma(low)
        return np.asarray(step)
    with np.errstate(divide="ignore"):
        step = np.log1p(mass / before)
    return np.where(before > 0, step, 0.0)  # nothing lies before the first group


def _in_order(mass: Array, right: Array) -> Array:
    """Whether the accuracies between successive cuts (n, C) never fall, empty bins aside."""
    size = np.diff(mass, axis=1)
    accuracy = np.divide(np.diff(right, axis=1), size, out=np.zeros_like(size), where=size > 0)
    last_held = np.maximum.accumulate(np.where(size > 0, np.arange(size.shape[1]), 0), axis=1)
    return np.asarray((np.diff(np.take_along_axis(accuracy, last_held, 1), axis=1) >= -_ROUNDING).all(1))


def is_fractional(correct: Array) -> bool:
    """Whether correctness is a probability rather than a fact.

    >>> is_fractional(np.array([True, False])), is_fractional(np.array([1.0, 0.3]))
    (False, True)
    """
    return correct.dtype.kind == "f" and not bool(((correct == 0) | (correct == 1)).all())


def whole_numbers(weight: Array) -> bool:
    """Whether weights can be taken for numbers of repeated rows.

    >>> whole_numbers(np.array([1.0, 2.0])), whole_numbers(np.array([1.0, 0.5]))
    (True, False)
    """
    return bool((np.mod(weight, 1) == 0).all())


def _running(column: Array) -> Any:
    """The type of a running sum: 4 bytes per row for counts."""
    if np.issubdtype(column.dtype, np.floating):
        return np.float64
    return np.uint32 if int(column.sum()) < 2**32 else np.uint64


def dense_rank(values: Array) -> Array:
    """The place of each value among the distinct ones, as a share of their number: any numbers made fit for a ranking.

    >>> dense_rank(np.array([-1.0, 3.0, -1.0]))
    array([0. , 0.5, 0. ])
    """
    distinct, place = np.unique(values, return_inverse=True)
    return np.asarray(place / len(distinct))


def _group_starts(value: Array) -> Array:
    """Where runs of equal values begin."""
    return np.concatenate([[0], np.flatnonzero(value[1:] != value[:-1]) + 1])


def _first(condition: Array) -> int:
    """The first place where the condition holds, or the length."""
    return int(np.argmax(condition)) if condition.any() else len(condition)
