r"""Newton's method for smooth criteria of the focal temperature family.

The family in $\theta = (\gamma, u)$, $u = \log(1/T)$: let $z_j$ be the log-odds of class j in $\mathrm{softmax}(e^u x)$
and $\ell_j = \log h(z_j)$, with the derivatives of `focalcal.core.focal_map.log_h_derivatives`. In u, with $m_{-j}$ and
$s_{-j}$ the mean and variance of x under the other classes' shares,

$$ z_u = e^u (x_j - m_{-j}), \qquad z_{uu} = z_u - e^{2u} s_{-j} $$
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from focalcal.calibrators.fit_data import FitData, LabelledLogits
from focalcal.calibrators.search.criteria import Criterion
from focalcal.calibrators.search.grid import FamilyPoint, scan_lines
from focalcal.calibrators.search.sample import sampled
from focalcal.core.checks import Array
from focalcal.core.focal import wide_dtype
from focalcal.core.focal_map import log_h_derivatives
from focalcal.core.log_odds import all_log_odds
from focalcal.core.masking import is_masked, without_masks
from focalcal.core.optimum import Optimum
from focalcal.kernels.temperature import tempered_columns

GAMMA_BOUNDS = (-0.95, 20.0)
_MAX_PASSES = 60
# Logits that are taken together: there are some thirty temporaries of their size, in float64.
_BLOCK = 1 << 16
_GRADIENT = 1e-10
_STEP = 1e-9
# Where Newton's method may start: one point near every minimum that a network's logits have shown.
_START_TEMPERATURES = (
    0.02,
    0.05,
    0.1,
    0.2,
    0.35,
    0.5,
    0.7,
    0.85,
    1.0,
    1.2,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    30.0,
    100.0,
    500.0,
)
_START_GAMMAS = (-0.75, -0.5, -0.25, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Derivatives:
    """The mean of a criterion at a point, its gradient (2,) and its Hessian (2, 2) in (gamma, log 1/T)."""

    value: float
    gradient: Array
    hessian: Array


# The parameters that a search may vary: gamma is the first, u the second.
_BOTH = (0, 1)


def criterion_derivatives(
    data: FitData, criterion: Criterion, gamma: float, log_inverse: float, free: tuple[int, ...] = _BOTH
) -> Derivatives:
    """A smooth criterion of the family at a point, with its derivatives, in one pass over the rows.

    Those by parameters that are not `free` are 0; to leave them out is faster.
    """
    columns = functools.partial(_sums, criterion=criterion, gamma=gamma, log_inverse=log_inverse, free=free)
    value, *derivatives = data.mean(columns).tolist()
    gradient, hessian = np.zeros(2), np.zeros((2, 2))
    gradient[list(free)] = derivatives[: len(free)]
    for (a, b), bend in zip(_pairs(free), derivatives[len(free) :], strict=True):
        hessian[a, b] = hessian[b, a] = bend
    return Derivatives(value, gradient, hessian)


def _pairs(free: Sequence[int]) -> list[tuple[int, int]]:
    """The pairs of parameters of which there are second derivatives: for both gamma gamma, gamma u, u u."""
    return list(itertools.combinations_with_replacement(free, 2))


def _sums(
    block: LabelledLogits, criterion: Criterion, gamma: float, log_inverse: float, free: tuple[int, ...]
) -> Array:
    """The value and derivatives of a block, summed over its rows."""
    sums = [
        [part.mean_sum(column) for column in _block_derivatives(part, criterion, gamma, log_inverse, free)]
        for part in block.split(_BLOCK)
    ]
    return np.asarray(np.sum(sums, 0))


def _block_derivatives(
    block: LabelledLogits, criterion: Criterion, gamma: float, log_inverse: float, free: tuple[int, ...]
) -> list[Tensor]:
    """Value, first and second derivatives of each row (n,)."""
    x = block.logits.to(wide_dtype(block.logits.device))
    if gamma == 0 and free == (1,):
        return _temperature_columns(x, block.labels, criterion, math.exp(log_inverse))
    values, first, second = _family_derivatives(x - x.amax(1, keepdim=True), gamma, math.exp(log_inverse), free)
    log_p = torch.log_softmax(values, 1)
    p, label, pairs = torch.exp(log_p), block.labels.unsqueeze(1), _pairs(range(len(free)))

    def mean(column: Tensor) -> Tensor:
        return (p * column).sum(1, keepdim=True)

    means = [mean(column) for column in first]
    about = [column - middle for column, middle in zip(first, means, strict=True)]  # of log p, like the next
    second = [column - mean(column) - mean(about[a] * about[b]) for column, (a, b) in zip(second, pairs, strict=True)]
    if criterion.name == "brier":
        return _brier(p, label, about, second)
    of_label = [column.gather(1, label).squeeze(1) for column in (log_p, *about, *second)]
    nll, *rest = (-column for column in of_label)
    if criterion.gamma is None:
        return [nll, *rest]
    return _focal(nll, rest[: len(free)], rest[len(free) :], criterion.gamma)


def _temperature_columns(logits: Tensor, labels: Tensor, criterion: Criterion, inverse: float) -> list[Tensor]:
    r"""Value, first and second derivative in u of each row (n,), without a focal map.

    With $n(\beta)$ the NLL at an inverse temperature, $\sum_k p_k^2 = e^{n(2\beta) - 2 n(\beta)}$, because the sum of
    $e^{2\beta x}$ is the partition function at $2\beta$; the Brier score is that minus $2 e^{-n(\beta)} - 1$.
    """
    points = (inverse, 2 * inverse) if criterion.name == "brier" else (inverse,)
    at, *twice = (_by_log(columns) for columns in tempered_columns(logits, labels, points, 2))
    if twice:
        square = _exponential([two - 2 * one for one, two in zip(at, twice[0], strict=True)])
        of_label = _exponential([-column for column in at])
        value, first, second = (one - 2 * two for one, two in zip(square, of_label, strict=True))
        return [value + 1, first, second]
    return at if criterion.gamma is None else _focal(at[0], at[1:2], at[2:], criterion.gamma)


def _by_log(columns: Tensor) -> list[Tensor]:
    """Value and derivatives in the logarithm of beta, from those in beta times powers of it."""
    value, first, second = columns
    return [value, first, second + first]


def _exponential(columns: list[Tensor]) -> list[Tensor]:
    """The exponential of a function, with its derivatives."""
    value, first, second = columns
    power = torch.exp(value)
    return [power, power * first, power * (first.square() + second)]


def _brier(p: Tensor, label: Tensor, first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
    """|p - e_y|^2 and derivatives, from those of log p."""
    error = p.scatter_add(1, label, -torch.ones_like(p[:, :1]))
    columns = [error.square().sum(1)]
    columns += [2 * (error * p * column).sum(1) for column in first]
    for column, (a, b) in zip(second, _pairs(range(len(first))), strict=True):
        columns.append(2 * (p * first[a] * first[b] * (p + error) + error * p * column).sum(1))
    return columns


def _focal(nll: Tensor, first: list[Tensor], second: list[Tensor], gamma: float) -> list[Tensor]:
    r"""$(1-p)^\gamma (-\log p)$ and derivatives, from those of the NLL $n = -\log p$.

    As a function of n it is $F = w^\gamma n$ with $w = 1 - e^{-n}$ and $w' = 1 - w$, so
    $F' = w^\gamma + \gamma n w^{\gamma-1} (1 - w)$ and
    $F'' = \gamma w^{\gamma-1} (1-w) (2 - n) + \gamma (\gamma-1) n w^{\gamma-2} (1-w)^2$.
    """
    nll = nll.clamp(min=0.0)  # rounding
    w = -torch.expm1(-nll)
    safe = w.clamp(min=1e-150)
    power, p = torch.pow(w, gamma), 1 - w
    ratio = nll / safe  # tends to 1
    slope = power * (1 + gamma * ratio * p)
    bend = gamma * power / safe * p * ((2 - nll) + (gamma - 1) * ratio * p)
    bend = torch.where(w > 1e-100, bend, torch.zeros_like(bend))  # the NLL's own derivatives vanish there, squared
    columns, pairs = [power * nll, *(slope * column for column in first)], _pairs(range(len(first)))
    columns += [slope * column + bend * first[a] * first[b] for column, (a, b) in zip(second, pairs, strict=True)]
    return columns


def _family_derivatives(
    x: Tensor, gamma: float, inverse: float, free: tuple[int, ...] = _BOTH
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """log h of all classes (n, K), its first derivatives by the free ones of gamma and u, and the second ones."""
    at = log_h_derivatives(all_log_odds(inverse * x), gamma)
    if free == (0,):
        return at.value, [at.by_gamma], [at.gamma_gamma]
    z_u, z_uu = _log_odds_derivatives(x, inverse)
    by_u, uu = at.by_z * z_u, at.zz * z_u**2 + at.by_z * z_uu
    if free == (1,):
        return at.value, [by_u], [uu]
    return at.value, [at.by_gamma, by_u], [at.gamma_gamma, at.z_gamma * z_u, uu]


def _log_odds_derivatives(x: Tensor, inverse: float) -> tuple[Tensor, Tensor]:
    """z_u and z_uu of each class: from the mean and the variance of the logits under the other classes' shares."""
    top = x.argmax(1, keepdim=True)
    scaled = inverse * x
    share = torch.exp(scaled)  # 1 at the top, where x is 0
    x = without_masks(x, is_masked(x))  # their share is 0, and any number does
    left = share.sum(1, keepdim=True) - share
    mean = ((share * x).sum(1, keepdim=True) - share * x) / left
    square = ((share * x * x).sum(1, keepdim=True) - share * x * x) / left
    variance = square - mean * mean
    # Of the largest class the others may all underflow: their shares among themselves do not.
    others = torch.softmax(scaled.scatter(1, top, -math.inf), 1).nan_to_num(0.0)  # no number if all others are masked
    mean_top = (others * x).sum(1, keepdim=True)
    variance_top = (others * (x - mean_top) ** 2).sum(1, keepdim=True)
    mean, variance = mean.scatter(1, top, mean_top), variance.scatter(1, top, variance_top)
    z_u = inverse * (x - mean)
    return z_u, z_u - inverse * inverse * variance


def minimize(
    read: Callable[[float, float], Derivatives],
    start: FamilyPoint,
    *,
    gamma_bounds: tuple[float, float] = GAMMA_BOUNDS,
    temperature_bounds: tuple[float, float],
) -> Optimum[FamilyPoint]:
    """A stationary point of a criterion from `start` (gamma, T), by Newton's method in a trust region and a box.

    `read` gives the derivatives at (gamma, log 1/T). A parameter whose bounds are equal is fixed. The criterion never
    rises from the start on.
    """
    low = np.array([gamma_bounds[0], -math.log(temperature_bounds[1])])
    high = np.array([gamma_bounds[1], -math.log(temperature_bounds[0])])
    point = np.clip([start.gamma, -math.log(start.temperature)], low, high)
    here, radius, converged, passes = read(*point), 1.0, False, 1
    while passes < _MAX_PASSES and not converged:
        free = (high > low) & ~((point <= low) & (here.gradient > 0)) & ~((point >= high) & (here.gradient < 0))
        if np.abs(np.where(free, here.gradient, 0.0)).max() <= _GRADIENT:
            converged = True
            break
        step = _newton_step(here, free, radius)
        there_point = np.clip(point + step, low, high)
        step = there_point - point
        there, passes = read(*there_point), passes + 1
        if there.value <= here.value + 1e-4 * min(float(here.gradient @ step), 0.0) + 1e-15 * abs(here.value):
            point, here = there_point, there
            radius = max(radius, 2 * float(np.abs(step).max()))
        else:
            radius = float(np.abs(step).max()) / 4
        converged = bool(np.abs(step).max() <= _STEP)
    at_boundary = bool((((point <= low) | (point >= high)) & (high > low)).any())
    found = FamilyPoint(float(point[0]), math.exp(-point[1]))
    return Optimum(found, here.value, passes, converged, at_boundary)


def _newton_step(here: Derivatives, free: Array, radius: float) -> Array:
    """Downhill along each free axis of the Hessian, as far as its bend says and at most the radius."""
    places = np.flatnonzero(free)
    bends, axes = np.linalg.eigh(here.hessian[np.ix_(places, places)])
    along = axes.T @ here.gradient[places]
    bends = np.maximum(np.abs(bends), 1e-12)
    step = np.zeros(2)
    step[places] = -(axes @ (along / bends))
    length = float(np.abs(step).max())
    return step * min(1.0, radius / length) if length > 0 else step


def search_newton(
    data: FitData,
    criterion: Criterion,
    *,
    gamma_bounds: tuple[float, float] = GAMMA_BOUNDS,
    temperature_bounds: tuple[float, float],
) -> Optimum[FamilyPoint]:
    """Minimise a smooth criterion by Newton's method; a parameter whose bounds are equal is fixed.

    The search starts on a sample of the rows, from the best of some points and from the best temperature without a
    map, and ends on all rows.
    """
    some = sampled(data)
    bounds = (gamma_bounds, temperature_bounds)
    free = tuple(place for place, (lower, upper) in enumerate(bounds) if lower < upper) or _BOTH
    minimum = functools.partial(minimize, gamma_bounds=gamma_bounds, temperature_bounds=temperature_bounds)
    temperatures = _inside(_START_TEMPERATURES, temperature_bounds)
    gammas = _inside(_START_GAMMAS, gamma_bounds)
    start = scan_lines(some, criterion, [(temperature, gammas) for temperature in temperatures])
    starts = [start.point]
    if len(gammas) > 1 and len(temperatures) > 1 and start.point.gamma != 0:
        plain = scan_lines(some, criterion, [(temperature, (0.0,)) for temperature in temperatures])
        starts.append(FamilyPoint(0.0, plain.point.temperature))
    ends = [minimum(functools.partial(criterion_derivatives, some, criterion, free=free), point) for point in starts]
    best, passes = min(ends, key=lambda each: each.value), sum(each.iterations for each in ends)
    if some is not data:
        return minimum(functools.partial(criterion_derivatives, data, criterion, free=free), best.point)
    return replace(best, iterations=passes)


def _inside(values: Sequence[float], bounds: tuple[float, float]) -> tuple[float, ...]:
    inside = tuple(value for value in values if bounds[0] <= value <= bounds[1])
    return inside or bounds[:1]
