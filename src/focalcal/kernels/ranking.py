"""Rows in order of confidence: a radix sort of packed rows and the groups of equal ones, in one call."""

from __future__ import annotations

import numpy as np
import torch

from focalcal.core.checks import Array
from focalcal.core.mmce import pairs_in_order
from focalcal.core.ranking import Ranking, is_fractional, pack
from focalcal.core.smooth_ece import smooth_calibration_error
from focalcal.kernels.compiled import compiled_kernels, threads_for


def ranked_rows(confidence: Array, correct: Array, weight: Array | None = None) -> Ranking:
    """The ranking of rows (N,), weighted or not, as `focalcal.core.ranking.Ranking.of_rows` defines it.

    >>> ranked_rows(np.array([0.9, 0.5, 0.9]), np.array([True, False, False])).count
    array([1, 2], dtype=uint32)
    """
    if weight is not None or is_fractional(correct):
        return Ranking.of_rows(confidence, correct, weight)
    return ranked_keys(pack(confidence, correct))


def ranked_keys(keys: Array) -> Ranking:
    """The ranking of packed rows, in any order; sorts them in place.

    >>> from focalcal.core.ranking import pack
    >>> ranked_keys(pack(np.array([0.9, 0.5]), np.array([True, False]))).value
    array([0.5, 0.9])
    """
    kernels, rows = compiled_kernels(), len(keys)
    if kernels is None or not keys.flags.c_contiguous:
        return Ranking.of_keys(keys)
    bits = 8 * keys.dtype.itemsize
    scratch = np.empty_like(keys)  # and then the memory of the values: fresh pages cost more than the sort
    found = kernels.sort_keys(keys.ctypes.data, bits // 8, scratch.ctypes.data, rows, threads_for(4 * rows))
    value = scratch[:found].view(np.float64 if bits == 64 else np.float32)
    if found == rows:
        right = np.empty(rows, dtype=np.uint8)
        getattr(kernels, f"unpack_keys{bits}")(keys.ctypes.data, rows, value.ctypes.data, right.ctypes.data)
        return Ranking.of_different(value, right)
    columns = value, np.empty(found, dtype=np.uint32), np.empty(found, dtype=np.uint32)
    getattr(kernels, f"group_keys{bits}")(keys.ctypes.data, rows, *(each.ctypes.data for each in columns))
    return Ranking.of_groups(*columns)


def _layout(column: Array) -> tuple[int, int, str]:
    """Address, distance and type of the numbers of a column."""
    return column.ctypes.data, column.strides[0], column.dtype.char


def _layouts(ranked: Ranking) -> tuple[tuple[int, int, str], ...] | None:
    """Where the columns of a ranking lie, unless one has a type that the compiled kernels do not read."""
    columns = ranked.value, ranked.mass, ranked.right
    return tuple(map(_layout, columns)) if all(column.dtype.char in "fdBI" for column in columns) else None


def residual_pair_sum(ranked: Ranking, right_share: float, wrong_share: float, width: float) -> float:
    r"""The kernel sum of MMCE: $\sum_{ij} a_i a_j \exp(-|r_i - r_j| / w)$ over all groups of a ranking.

    where $r$ is the confidence of a group and $a$ is `right_share` times $1 - r$ for each of its correct rows, minus
    `wrong_share` times $r$ for each of the others.

    >>> round(residual_pair_sum(ranked_rows(np.array([0.9, 0.9]), np.array([1, 1])), 0.5, 0.5, 0.4), 4)
    0.01
    """
    kernels, layouts = compiled_kernels(), _layouts(ranked)
    if kernels is not None and layouts is not None:
        return float(kernels.pair_sum(*layouts, len(ranked.value), right_share, wrong_share, width))
    squared, before = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for value, mass, right in ranked.blocks("value", "mass", "right"):
        share = right * (1 - value) * right_share - (mass - right) * value * wrong_share
        pairs, before = pairs_in_order(torch.from_numpy(value), torch.from_numpy(share), width, before=before)
        squared = squared + pairs
    return float(squared)


def largest_drift(ranked: Ranking) -> float:
    """The largest distance between the running sums of confidence and of correctness, over the total mass.

    >>> largest_drift(ranked_rows(np.array([0.5, 0.9]), np.array([True, False])))
    0.25
    """
    kernels, layouts = compiled_kernels(), _layouts(ranked)
    if kernels is None or layouts is None:
        return ranked.largest_drift()
    return float(kernels.largest_drift(*layouts, len(ranked.value))) / ranked.total


def area_under_roc(ranked: Ranking) -> float:
    """The probability that a correct row lies above a wrong one, a tie counting one half; NaN without one of the two.

    >>> area_under_roc(ranked_rows(np.array([0.2, 0.5, 0.5]), np.array([False, False, True])))
    0.75
    """
    kernels, layouts = compiled_kernels(), _layouts(ranked)
    right, wrong = ranked.total_right, ranked.total - ranked.total_right
    if not (right > 0 and wrong > 0):
        return float("nan")
    if kernels is None or layouts is None:
        return ranked.right_above_wrong() / (right * wrong)
    return float(kernels.right_above_wrong(*layouts[1:], len(ranked.value))) / (right * wrong)


def risk_area(ranked: Ranking) -> float:
    """The mean, over all rows in falling order of confidence, of the error rate up to there; equal ones share theirs.

    >>> risk_area(ranked_rows(np.array([0.9, 0.8]), np.array([True, False])))
    0.25
    """
    kernels, layouts = compiled_kernels(), _layouts(ranked)
    if kernels is None or layouts is None:
        return ranked.risk_area()
    return float(kernels.risk_area(*layouts[1:], len(ranked.value), ranked.counts_rows)) / ranked.total


def smooth_error(ranked: Ranking, sigma: float | None = None) -> float:
    """The smooth calibration error of a ranking, as `core.smooth_ece` defines it.

    >>> round(smooth_error(ranked_rows(np.array([0.2, 0.7]), np.array([0, 1]))), 4)
    0.199
    """
    kernels, layouts = compiled_kernels(), _layouts(ranked)

    def moments(cells: int, count: int) -> Array:
        assert kernels is not None
        assert layouts is not None
        sums = np.zeros((count, cells))
        kernels.cell_moments(*layouts, len(ranked.value), ranked.total, cells, count, sums.ctypes.data)
        return sums

    by_kernel = None if kernels is None or layouts is None else moments
    return smooth_calibration_error(ranked.value, ranked.residuals, sigma, by_kernel)[0]
