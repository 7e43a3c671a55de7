r"""Predictions in order of confidence: what equal-mass bins, sweeps, KS, AUROC, risk-coverage and kernel sums read.

Rows of equal confidence form one group, and nothing here looks inside it. Where a cut falls into a group, the group's
correct rows are shared in proportion, as if its rows came in random order and the mean were taken. So no result depends
on the order of the rows, whole-number weights mean repeated rows, and a histogram of fine cells is a ranking as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

# Groups that are scanned together, so that temporaries do not grow with the number of rows.
BLOCK = 1 << 18
# Accuracies that differ by less are equal: shares of a group are rounded.
_ROUNDING = 1e-12


def pack(confidence: Array, correct: Array) -> Array:
    """Confidence and correctness of each row in one unsigned integer that sorts by confidence.

    The sign bit of a confidence is never set, so there is room for one bit at the other end: 4 bytes a row for
    float32, 8 for float64, and nothing is lost.

    >>> pack(np.array([1.0, 0.5], dtype=np.float32), np.array([True, False]))
    array([2130706433, 2113929216], dtype=uint32)
    """
    unsigned = np.uint64 if confidence.dtype == np.float64 else np.uint32
    bits = np.abs(confidence).view(unsigned)  # abs: -0.0 has a sign bit
    return np.asarray((bits << unsigned(1)) | correct.astype(unsigned))


def unpack(keys: Array) -> tuple[Array, Array]:
    """The confidence and the correctness (0 or 1) that `pack` put together.

    >>> unpack(pack(np.array([0.25, 1.0]), np.array([True, False])))
    (array([0.25, 1.  ]), array([1, 0], dtype=uint64))
    """
    one = keys.dtype.type(1)
    return (keys >> one).view(np.float64 if keys.dtype == np.uint64 else np.float32), keys & one


@dataclass(frozen=True)
class Ranked:
    """Groups of equal confidence, in increasing order.

    `value` is the confidence of each group, `count` its rows, `mass` their weight and `right` the weight of the correct
    ones among them. Without weights `mass` is `count`.
    """

    value: Array
    count: Array
    mass: Array
    right: Array

    @staticmethod
    def of_keys(keys: Array) -> Ranked:
        """The ranking of packed rows, in any order.

        >>> Ranked.of_keys(pack(np.array([0.9, 0.5, 0.9]), np.array([True, False, False]))).count
        array([1, 2], dtype=uint32)
        """
        value, correct = unpack(np.sort(keys))
        starts = _group_starts(value)
        if len(starts) == len(value):  # no two are equal
            count = np.ones(len(value), dtype=np.uint32)
            return Ranked(value, count, count, correct.astype(np.uint32))
        count = np.diff(starts, append=len(value)).astype(np.uint32)
        right = np.add.reduceat(correct, starts, dtype=np.uint32)
        return Ranked(value[starts], count, count, right)

    @staticmethod
    def of_rows(confidence: Array, correct: Array, weight: Array | None = None) -> Ranked:
        """The ranking of rows (N,), weighted or not.

        >>> Ranked.of_rows(np.array([0.9, 0.5]), np.array([1, 0]), np.array([2.0, 1.0])).mass
        array([1., 2.])
        """
        keys = pack(confidence, correct)
        if weight is None:
            return Ranked.of_keys(keys)
        order = np.lexsort((weight, keys))  # weights too: sums then do not depend on the order of the rows
        value, correct = unpack(keys[order])
        starts, weight = _group_starts(value), weight[order]
        count = np.diff(starts, append=len(value)).astype(np.uint32)
        mass, right = (np.add.reduceat(column, starts) for column in (weight, weight * correct))
        return Ranked(value[starts], count, mass, right)

    @property
    def total(self) -> float:
        """The mass of all groups."""
        return float(self.mass.sum(dtype=np.float64))

    @property
    def counts_rows(self) -> bool:
        """Whether all weights are whole numbers, which mean repeated rows."""
        return not np.issubdtype(self.mass.dtype, np.floating) or bool((np.mod(self.mass, 1) == 0).all())

    def blocks(self) -> Iterator[tuple[Array, Array, Array]]:
        """Value, mass and right of successive groups, in float64."""
        for start in range(0, len(self.value), BLOCK):
            part = slice(start, start + BLOCK)
            value, mass, right = (c[part].astype(np.float64) for c in (self.value, self.mass, self.right))
            yield value, mass, right

    def before(self, positions: Array) -> Array:
        """Sums (4, P) of count, mass, confidence and correctness over the groups before each of P positions."""
        starts = np.union1d([0], np.minimum(positions, len(self.value) - 1))
        columns = (self.count, self.mass, self.value * self.mass, self.right)
        pieces = np.stack([np.add.reduceat(column, starts, dtype=np.float64) for column in columns])
        sums = np.concatenate([np.zeros((4, 1)), np.cumsum(pieces, 1)], 1)
        return np.asarray(sums[:, np.searchsorted(starts, positions)])

    def below_values(self, edges: Array) -> Array:
        """Sums (4, E) over all rows whose confidence is at most each edge, compared in the confidences' precision."""
        return self.before(np.searchsorted(self.value, edges.astype(self.value.dtype), side="right"))

    def below_masses(self, cuts: Array) -> tuple[Array, Array]:
        """Sums (4, C) over the least confident rows that make up each mass, and the confidence there (C,)."""
        reached = np.cumsum(self.mass, dtype=np.float64)
        group = np.minimum(np.searchsorted(reached, cuts - _ROUNDING * reached[-1]), len(self.value) - 1)
        sums = self.before(group)
        inside = (cuts - sums[1]) / self.mass[group]  # the share of the group that the cut asks for
        of_group = np.stack(
            [self.count[group], self.mass[group], self.value[group] * self.mass[group], self.right[group]]
        )
        next_value = self.value[np.minimum(group + 1, len(self.value) - 1)]
        edge = np.where(inside < 1 - _ROUNDING, self.value[group], (self.value[group].astype(float) + next_value) / 2)
        sums = sums + inside * of_group
        sums[0], sums[1] = np.round(sums[0], 9), cuts  # whole again where rows are not shared
        return sums, edge

    def mass_cuts(self, num_bins: int, *, larger_first: bool = False) -> Array:
        r"""The masses (M + 1,) at which bins of equal mass end: $\lceil k W / M \rceil$ for whole-number weights.

        So the row of rank i from 0 is in bin $\lfloor M i / W \rfloor$. With `larger_first` the first W mod M bins have
        one row more than the others. Other weights are cut at $k W / M$ exactly.
        """
        total, k = self.total, np.arange(num_bins + 1, dtype=np.float64)
        if not self.counts_rows:
            return k * total / num_bins
        if larger_first:
            return k * (total // num_bins) + np.minimum(k, total % num_bins)
        return np.ceil(k * total / num_bins - _ROUNDING * total)

    def sweep(self, *, equal_mass: bool) -> int:
        """The largest number of bins, counted up from 2, before bin accuracies stop being non-decreasing.

        Bins that hold wrong rows only, or correct ones only, are in order anyway: the check looks at those in between.
        Source: [roelofs2022, Alg. 1].
        """
        rows = int(self.count.sum())
        mixed_from, mixed_to = _first(self.right > 0), len(self.value) - _first((self.right < self.mass)[::-1])
        if mixed_from >= mixed_to:
            return rows  # sorted perfectly: in order with any bins
        mass = np.concatenate([[0.0], np.cumsum(self.mass, dtype=np.float64)])
        right = np.concatenate([[0.0], np.cumsum(self.right, dtype=np.float64)])
        for num_bins in range(2, rows + 1):
            if equal_mass:
                cuts = self.mass_cuts(num_bins)
                first, last = np.searchsorted(cuts, [mass[mixed_from], mass[mixed_to]])
                held = cuts[max(first - 1, 0) : last + 1]
                hit = np.interp(held, mass, right)
            else:
                low, high = self.value[mixed_from], self.value[mixed_to - 1]
                edges = (
                    np.arange(max(0, int(low * num_bins) - 1), min(num_bins, int(high * num_bins) + 2) + 1) / num_bins
                )
                at = np.searchsorted(self.value, edges.astype(self.value.dtype), side="right")
                at[0] = 0 if edges[0] == 0 else at[0]  # 0 belongs to the first bin
                held, hit = mass[at], right[at]
            size = np.diff(held)
            accuracy = np.diff(hit)[size > 0] / size[size > 0]
            if bool((np.diff(accuracy) < -_ROUNDING).any()):
                return num_bins - 1
        return rows


def dense_rank(values: Array) -> Array:
    """The place of each value among the distinct ones, from 0: any numbers made fit for a ranking.

    >>> dense_rank(np.array([-1.0, 3.0, -1.0]))
    array([0., 1., 0.])
    """
    return np.unique(values, return_inverse=True)[1].astype(np.float64)


def _group_starts(value: Array) -> Array:
    """Where runs of equal values begin."""
    return np.concatenate([[0], np.flatnonzero(value[1:] != value[:-1]) + 1])


def _first(condition: Array) -> int:
    """The first place where the condition holds, or the length."""
    return int(np.argmax(condition)) if condition.any() else len(condition)
