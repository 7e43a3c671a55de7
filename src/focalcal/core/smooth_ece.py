r"""Smooth calibration error: the residuals smoothed by a Gaussian that is reflected at 0 and 1.

$$ \mathrm{smECE}_\sigma = \int_0^1 \Big| \sum_i r_i\, K_\sigma(t, f_i) \Big|\, dt $$

The reflected Gaussian is the heat kernel of the unit interval with insulated ends, so it has a short cosine series:

$$ K_\sigma(t, f) = 1 + 2 \sum_{k \ge 1} e^{-(\pi k \sigma)^2 / 2} \cos(\pi k t) \cos(\pi k f) $$

The bandwidth stands in the damping alone. The sums $a_k = \sum_i r_i \cos(\pi k f_i)$ are taken over the rows once, and
each bandwidth then costs a few short Fourier transforms. No mesh is laid over the samples and no reflection is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from focalcal.core.root_finding import solve_increasing

Array = NDArray[np.float64]


class Slices(Protocol):
    """An array, or what makes a slice of one when it is asked for it."""

    def __getitem__(self, rows: slice, /) -> Array: ...


# Gives the moments (count, cells) of rows for a number of cells and a count.
MomentsOf = Callable[[int, int], Array]

# exp(-(pi k sigma)^2 / 2) is below 1e-17 from k sigma = 2.82 on.
_MODES_TIMES_SIGMA = 2.82
_MAX_MODES = 2**16
SMALLEST_SIGMA = _MODES_TIMES_SIGMA / _MAX_MODES
# Enough for sigma = 0.0028. A calibrated model solves to about 0.005 with 100,000 rows; fewer rows, or a worse model,
# to more. Beyond that the rows are read once more.
_FIRST_MODES = 1024
# With 8 cells per mode an offset from the centre turns the phase by pi/16 at most, and (pi/16)^10 / 10! is 2e-14.
_CELLS_PER_MODE = 8
MOMENTS = 10
# Rows worked on at a time: their temporaries stay in the cache, and do not grow with the number of rows.
_BLOCK_ROWS = 2**16
# Cells of the grid in t; see _quintic for the error.
_CELLS_PER_SIGMA = 24
_NEWTON_STEPS = 4
_ROUNDING = 1e-15


def smooth_calibration_error(
    values: NDArray[np.floating[Any]],
    residuals: Slices,
    sigma: float | None = None,
    moments: MomentsOf | None = None,
) -> tuple[float, float]:
    r"""Smooth calibration error and the bandwidth it was taken at.

    $$ \mathrm{smECE} = \sigma^* \quad\text{where}\quad \mathrm{smECE}_{\sigma^*} = \sigma^* $$

    where `values` (N,) are the predictions $f$ in [0, 1], sorted increasingly, and `residuals` (N,) are $r$, each row's
    weight times $(f - y)$ over the total weight. $\mathrm{smECE}_\sigma$ falls in $\sigma$, so $\sigma^*$ is unique;
    with `sigma` the bandwidth is given instead. Right to 1e-12 for bandwidths from 0.002 on. Bandwidths are resolved
    down to `SMALLEST_SIGMA` (4e-5): where a smaller one is given or would solve the equation, this one is used.
    `moments` is another way to compute `cell_moments` of these rows.

    Source: [blasiok2023]. Differs: the integral is exact, where the authors' code sums over a mesh and searches
    the bandwidth on a grid.

    >>> error, sigma = smooth_calibration_error(np.array([0.2, 0.7]), np.array([0.1, -0.15]))
    >>> round(error, 4), error == sigma  # the residuals, 0.25 together, blur into each other a little
    (0.199, True)
    """
    together = _sum_of_one_sign(residuals, len(values))
    if together is not None:  # a Gaussian keeps the sum, so that the error is this one at every bandwidth
        smallest = SMALLEST_SIGMA if together else 0.0
        return together, max(together if sigma is None else sigma, smallest)
    if sigma is not None:
        sigma = max(sigma, SMALLEST_SIGMA)
        return _error_and_slope(cosine_sums(values, residuals, _modes(sigma), moments), sigma)[0], sigma
    # The error falls in sigma: one below the solution gives an error above it, and one above gives an error below.
    sums = cosine_sums(values, residuals, _FIRST_MODES, moments)
    if not sums.any():
        return 0.0, 0.0
    lower = _MODES_TIMES_SIGMA / _FIRST_MODES
    upper = _error_and_slope(sums, lower)[0]
    if upper < lower:
        lower, upper = max(upper, SMALLEST_SIGMA), lower
        sums = cosine_sums(values, residuals, _modes(lower), moments)
        error = _error_and_slope(sums, lower)[0]
        if error <= lower:
            return error, lower
    solution = _solve(sums, lower, upper)
    return solution, solution


def _sum_of_one_sign(residuals: Slices, count: int) -> float | None:
    """The absolute sum of residuals of which none has the other sign, as where all predictions are tied; else None."""
    total, lowest, highest = 0.0, 0.0, 0.0
    for start in range(0, count, _BLOCK_ROWS):
        block = residuals[slice(start, min(start + _BLOCK_ROWS, count))]
        lowest, highest = min(lowest, float(block.min())), max(highest, float(block.max()))
        if lowest < 0 < highest:
            return None
        total += float(block.sum())
    return abs(total)


def cosine_sums(
    values: NDArray[np.floating[Any]], residuals: Slices, modes: int, moments: MomentsOf | None = None
) -> Array:
    r"""$a_k = \sum_i r_i \cos(\pi k f_i)$ for k = 0 to `modes`, right to 1e-13 of $\sum_i |r_i|$.

    where `values` (N,) are $f$ in [0, 1], sorted increasingly, and `residuals` (N,) are $r$. Around the centre $c$ of a
    cell, $e^{-i \pi k f} = e^{-i \pi k c} \sum_m (-i \pi k)^m (f - c)^m / m!$, so each power needs the moments of the
    cells and one Fourier transform of them.

    >>> cosine_sums(np.array([0.0, 0.5, 1.0]), np.array([1.0, 2.0, 1.0]), 2).round(12) + 0.0
    array([4., 0., 0.])
    """
    cells = _CELLS_PER_MODE * 2 ** math.ceil(math.log2(max(modes, 1)))
    held = moments(cells, MOMENTS) if moments else cell_moments(values, residuals, cells, MOMENTS)
    # Half a cell is the unit of the offsets. Horner's rule: 1 + z (1 + z/2 (1 + z/3 ...)).
    turn = -0.5j * np.pi / cells * np.arange(modes + 1)
    total = np.zeros(modes + 1, dtype=np.complex128)
    for m in reversed(range(MOMENTS)):
        total = total * turn / (m + 1) + np.fft.rfft(held[m], 2 * cells)[: modes + 1]
    # The transform measures from the left end of the first cell; its centre is half a cell further.
    sums: Array = (total * np.exp(turn)).real
    return sums


def cell_moments(values: NDArray[np.floating[Any]], residuals: Slices, cells: int, count: int) -> Array:
    """Sums (count, cells) of r u^m in each cell of [0, 1], where u in [-1, 1] is the offset from the cell's centre.

    >>> cell_moments(np.array([0.25, 0.75]), np.array([0.1, -0.2]), cells=2, count=1)
    array([[ 0.1, -0.2]])
    """
    moments = np.zeros((count, cells))
    for start in range(0, len(values), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        scaled = values[rows].astype(np.float64) * cells
        cell = np.minimum(np.floor(scaled), cells - 1)  # the last cell is closed at 1
        first, last = int(cell[0]), int(cell[-1])
        begin = np.append(0, np.searchsorted(cell, np.arange(first + 1, last + 1)))
        # reduceat gives an empty cell its neighbour's row instead of 0, so it must not see one.
        filled = np.diff(begin, append=len(cell)) > 0
        begin, where = begin[filled], first + np.flatnonzero(filled)
        offset, term = 2 * (scaled - cell) - 1, residuals[rows].astype(np.float64)
        for m in range(count):
            moments[m, where] += np.add.reduceat(term, begin)
            term *= offset
    return moments


def _modes(sigma: float) -> int:
    return min(math.ceil(_MODES_TIMES_SIGMA / sigma), _MAX_MODES)


def _solve(sums: Array, lower: float, upper: float) -> float:
    """The bandwidth between the bounds that equals its error."""

    def excess(sigma: Tensor) -> tuple[Tensor, Tensor]:
        error, slope = _error_and_slope(sums, float(sigma))
        return sigma - error, 1 - torch.as_tensor(slope, dtype=torch.float64)

    # The error at any bandwidth is at least the absolute mean residual, and often near it: a start from below, whence
    # Newton's method rises to the solution.
    start = max(abs(float(sums[0])), math.sqrt(lower * upper))
    # The bounds are errors, right to 1e-12; where no residual changes its sign, one of them is the solution.
    low, high, first = torch.tensor([lower * (1 - 1e-9), upper * (1 + 1e-9), start], dtype=torch.float64)
    return float(solve_increasing(excess, low, high, first))


def _error_and_slope(sums: Array, sigma: float) -> tuple[float, float]:
    r"""smECE at a bandwidth, and its derivative in the bandwidth.

    Let R be the smoothed residuals and S their integral from 0. S turns where R changes its sign, so the integral of
    |R| is twice S at each root of R, with the sign that R has before it, plus S at 1 with the last sign of R. By the
    heat equation, $\partial R / \partial \sigma = \sigma R''$, the derivative is $-2 \sigma \sum |R'|$ over the roots.
    """
    cells = 2 ** math.ceil(math.log2(max(_CELLS_PER_SIGMA / sigma, _CELLS_PER_SIGMA)))
    integral, density, tilt = _on_grid(sums[: _modes(sigma) + 1], sigma, cells)
    sign, sure = _signs(density)
    at_root, sign_before, steepness = _turns(integral, density, tilt, sign, sure)
    error = float(sign[-1] * integral[-1] + 2 * sign_before @ at_root)
    return error, -2 * sigma * cells**2 * float(steepness.sum())


def _on_grid(sums: Array, sigma: float, cells: int) -> tuple[Array, Array, Array]:
    """S, R and R' at the ends of the cells; R and R' as derivatives by the coordinate that is 0 to 1 in a cell."""
    wave = np.pi / cells * np.arange(len(sums))
    damped = 2 * sums * np.exp(-0.5 * (cells * sigma * wave) ** 2)
    by_wave = np.divide(damped, wave, out=np.zeros_like(damped), where=wave > 0)
    # irfft divides by its length, 2 cells, and a cell is 1 / cells wide: that leaves the factor 2 above for R, and S
    # and R' have a wave less or more.
    integral, density, tilt = np.fft.irfft([-1j * by_wave, damped, 1j * wave * damped], 2 * cells)[:, : cells + 1]
    return integral + sums[0] / cells * np.arange(cells + 1), density, tilt


def _signs(density: Array) -> tuple[Array, NDArray[np.bool_]]:
    """The sign of R at each grid point, and where it is sure; elsewhere the last sure sign is kept.

    Far from all samples R is below its rounding, and the turns of that noise would add up over thousands of cells.
    """
    size = np.abs(density)
    sure = size > _ROUNDING * size.max()
    last_sure = np.maximum.accumulate(np.where(sure, np.arange(len(density)), 0))
    return np.where(density[last_sure] < 0, -1.0, 1.0), sure


def _turns(
    integral: Array, density: Array, tilt: Array, sign: Array, sure: NDArray[np.bool_]
) -> tuple[Array, Array, Array]:
    """At each root of R: S, the sign of R before it, and |R'|.

    There is a root in a cell where R changes its sign, and there are two where R keeps its sign at the ends but dips
    through zero between them.
    """
    change = sign[:-1] != sign[1:]
    single = np.flatnonzero(change)
    falls_then_rises = (sign[:-1] * tilt[:-1] < 0) & (sign[1:] * tilt[1:] > 0)
    dip = np.flatnonzero(falls_then_rises & ~change & sure[:-1] & sure[1:])
    _, slope, bend = _quintic(integral, density, tilt, dip)
    bottom = _newton(bend, np.zeros(len(dip)), np.ones(len(dip)))
    through = sign[dip] * _at(bottom, slope) < 0
    dip, bottom = dip[through], bottom[through]

    cell = np.concatenate([single, dip, dip])
    value, slope, bend = _quintic(integral, density, tilt, cell)
    lower = np.concatenate([np.zeros(len(single) + len(dip)), bottom])
    upper = np.concatenate([np.ones(len(single)), bottom, np.ones(len(dip))])
    root = _newton(slope, lower, upper)
    sign_before = np.concatenate([sign[single], sign[dip], -sign[dip]])
    return _at(root, value), sign_before, np.abs(_at(root, bend))


def _quintic(integral: Array, density: Array, tilt: Array, cell: NDArray[np.intp]) -> tuple[Array, Array, Array]:
    """Coefficients, by rising power, of the quintic with S, R and R' at both ends of each cell, and its derivatives.

    Its error is h^6 / 46080 times the fifth derivative of R: with 24 cells per sigma, 1e-13 sigma times the size of R.
    """
    start, first, half_second = integral[cell], density[cell], tilt[cell] / 2
    a = integral[cell + 1] - start - first - half_second
    b = density[cell + 1] - first - 2 * half_second
    c = tilt[cell + 1] / 2 - half_second
    value = np.stack([start, first, half_second, 10 * a - 4 * b + c, 7 * b - 15 * a - 2 * c, 6 * a - 3 * b + c])
    slope = _derivative(value)
    return value, slope, _derivative(slope)


def _newton(coefficients: Array, lower: Array, upper: Array) -> Array:
    """A root of each polynomial between bounds where its signs differ.

    From the middle of a cell, where the polynomial is almost a straight line, each step doubles the digits. Where it is
    not, two roots are about to merge, and so little lies between them that their place does not matter.
    """
    slopes = _derivative(coefficients)
    x = (lower + upper) / 2
    for _ in range(_NEWTON_STEPS):
        slope = _at(x, slopes)
        step = _at(x, coefficients) / np.where(slope == 0, 1.0, slope)
        x = np.clip(x - step, lower, upper)
    return x


def _at(x: Array, coefficients: Array) -> Array:
    """Polynomials at a point each, by Horner's rule; numpy's own costs more than these few points."""
    result: Array = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        result = result * x + coefficient
    return result


def _derivative(coefficients: Array) -> Array:
    derivative: Array = coefficients[1:] * np.arange(1.0, len(coefficients))[:, None]
    return derivative
