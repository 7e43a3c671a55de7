r"""Temperatures: the solver that finds the best one, and the one that comes closest to the focal map.

A temperature T turns logits into `softmax(logits / T)`: below 1 it sharpens, above 1 it softens.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import Array, require
from focalcal.core.focal_map import log_h
from focalcal.core.optimum import Optimum

# Published temperatures lie between 0.7 and 5.3. The lower end keeps a model that made no mistake on a small set from
# claiming certainty; the upper one is all but uniform.
TEMPERATURE_BOUNDS = (0.01, 1000.0)
# Derivatives of the NLL that a pass takes: from a start that is a few percent off they lead to the minimum.
ORDER = 8
# What the last of them may add to the step, as a share of 1/T: those that are left out add less.
_LAST_STEP = 1e-10
_ROOT_STEPS = 50
_MAX_PASSES = 60
# komisarenko2024 (Sec. 3.3) takes logits from (-5, 5): two logits of a row are at most 10 apart.
_LOGIT_GAP = 10.0


@dataclass(frozen=True)
class TemperedSums:
    r"""Sums over rows at one inverse temperature $\beta$: mass, and the NLL with its first derivatives in $\beta$.

    `all_right` says that no row has another class above its label: then the NLL falls however large $\beta$ gets.
    """

    mass: float
    derivatives: Array  # the NLL itself first, then as many as were asked for
    all_right: bool

    @property
    def nll(self) -> float:
        """The summed NLL."""
        return float(self.derivatives[0])

    def merge(self, other: TemperedSums) -> TemperedSums:
        """The sums over both sets of rows."""
        together = self.derivatives + other.derivatives
        return TemperedSums(self.mass + other.mass, together, self.all_right and other.all_right)


def solve_temperature(
    read: Callable[[float], TemperedSums],
    *,
    start: float = 1.0,
    bounds: tuple[float, float] = TEMPERATURE_BOUNDS,
) -> Optimum[float]:
    r"""The temperature with the smallest mean NLL: steps to the minimum of a Taylor series, safeguarded by a bracket.

    `read` gives the sums over all rows at an inverse temperature. The NLL is convex in $\beta = 1/T$, so there is one
    minimum; a step that leaves the bracket goes to its end if that is a bound, else to its middle. Where the NLL is
    flat, the start is the answer.
    """
    lower, upper = -math.log(bounds[1]), -math.log(bounds[0])
    low, high = lower, upper
    u = min(max(-math.log(start), lower), upper)
    for passes in range(1, _MAX_PASSES + 1):
        inverse = _exact_in_float32(math.exp(u))
        u = u if u in (lower, upper) else min(max(math.log(inverse), lower), upper)
        sums = read(inverse)
        series = sums.derivatives / sums.mass
        slope = inverse * series[1]
        outward = (u == upper and slope < 0) or (u == lower and slope > 0)
        if slope == 0 or outward:
            return Optimum(math.exp(-u) if outward else 1 / inverse, float(series[0]), passes, True, bool(outward))
        low, high = (u, high) if slope < 0 else (low, u)
        step, unsure = (math.inf, math.inf) if sums.all_right else _least(series, inverse)  # downhill for ever
        there = inverse + step
        if unsure <= _LAST_STEP * inverse and math.exp(low) <= there <= math.exp(high):
            return Optimum(1 / there, _value(series, step), passes, True, False)
        u = _next(math.log(there) if there > 0 else -math.inf, low, high, lower, upper)
    return Optimum(math.exp(-u), float(series[0]), passes, False, False)


def _exact_in_float32(inverse_temperature: float) -> float:
    """The nearest number that logits in float32 can be multiplied by without moving the minimum by its rounding."""
    return float(np.float32(inverse_temperature))


def _least(series: Array, inverse: float) -> tuple[float, float]:
    r"""The step in $\beta$ to the minimum that the Taylor series has, and how far off that may be.

    The last term of the series stands for those that are left out. Where it matters the step is Newton's, in
    $\log \beta$.
    """
    slopes = [float(series[n]) / math.factorial(n - 1) for n in range(1, len(series))]  # of the series' derivative
    step = 0.0
    for _ in range(_ROOT_STEPS):
        slope = bend = 0.0
        for coefficient in reversed(slopes):  # Horner's rule, for the polynomial and its derivative
            slope, bend = slope * step + coefficient, bend * step + slope
        if not bend > 0:
            break
        change = -slope / bend
        step += change
        if abs(step) > inverse / 2:
            break
        if abs(change) <= 1e-15 * inverse:
            return step, abs(slopes[-1] * step ** (len(slopes) - 1) / slopes[1])
    bend = inverse * inverse * series[2] + inverse * series[1]
    return (inverse * math.expm1(min(-inverse * series[1] / bend, 50.0)) if bend > 0 else math.inf), math.inf


def _value(series: Array, step: float) -> float:
    """The NLL that the series gives after a step."""
    return float(sum(term * step**n / math.factorial(n) for n, term in enumerate(series)))


def _next(proposal: float, low: float, high: float, lower: float, upper: float) -> float:
    """A point inside the bracket, or its end where that is a bound not yet looked at."""
    if low < proposal < high:
        return proposal
    if proposal >= high:
        return high if high == upper else (low + high) / 2
    return low if low == lower else (low + high) / 2


def temperature_bounds(gamma: float) -> tuple[float, float]:
    r"""Two temperatures between which the binary focal map lies for every logit: (sharper, softer).

    $$ T_{sharp} = \frac{1}{\gamma+1}, \qquad T_{soft} = \frac{1}{\gamma + 1 - \log(\gamma+1)/2} $$

    so that $\sigma(s/T_{soft}) \le \Psi^\gamma(\sigma(s)) \le \sigma(s/T_{sharp})$ for $s \ge 0$, `gamma` >= 0.

    Source: [komisarenko2024, Prop. 3]. Differs: the printed inequalities have $s/(\gamma+1)$ for $s(\gamma+1)$.

    >>> tuple(round(bound, 4) for bound in temperature_bounds(4.0))
    (0.2, 0.2384)
    """
    require(math.isfinite(gamma) and gamma >= 0, "gamma", "must be non-negative and finite", gamma)
    return 1 / (gamma + 1), 1 / (gamma + 1 - math.log1p(gamma) / 2)


def nearest_temperature(gamma: float, num_classes: int) -> float:
    r"""The temperature whose scaling is closest to the focal map with `gamma`, for K = `num_classes`.

    $$ T^* = \arg\min_T \max_x \lVert \mathrm{softmax}(x/T) - \Psi^\gamma(\mathrm{softmax}(x)) \rVert_\infty $$

    over rows x of logits at most 10 apart. The maximum is reached on rows of two or three levels (`_worst_rows`), so
    those are searched; the tests compare with a search of all rows for K = 3 and 4.

    Source: [komisarenko2024, Sec. 3.2 and 3.3], where 1/T is 0.95 gamma + 0.85 for K = 2, 0.64 gamma + 0.91 for K = 3
    and 0.47 gamma + 0.85 for K = 4, roughly.

    >>> round(nearest_temperature(1.0, 3), 3)
    0.658
    """
    require(math.isfinite(gamma) and gamma > -1, "gamma", "must be greater than -1 and finite", gamma)
    require(num_classes >= 2, "num_classes", "must be at least 2", num_classes)
    return _nearest_temperature(float(gamma), int(num_classes))


@functools.lru_cache(maxsize=1024)
def _nearest_temperature(gamma: float, num_classes: int) -> float:
    from scipy.optimize import minimize_scalar

    if gamma == 0:
        return 1.0
    logits, counts = _worst_rows(num_classes)
    target = _level_probs(_level_focal_logits(logits, counts, gamma), counts)

    def worst_difference(log_inverse: float) -> float:
        return float((_level_probs(math.exp(log_inverse) * logits, counts) - target).abs().max())

    # 1/T is at most gamma + 1 (Prop. 3, reached for K = 2) and falls with K. For gamma < 0 it is at least gamma + 1,
    # and below -0.9 it may exceed 1: there the map is sharp around 1/2 and soft at the ends.
    low, high = (0.0, math.log1p(gamma)) if gamma > 0 else (math.log1p(gamma), 0.5)
    grid = np.linspace(low, high, 33)
    best = int(np.argmin([worst_difference(point) for point in grid]))
    bracket = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(worst_difference, bounds=bracket, method="bounded", options={"xatol": 1e-9})
    return math.exp(-float(found.x))


def _worst_rows(num_classes: int) -> tuple[Tensor, Tensor]:
    """Rows of three levels as (M, 3) logits and (M, 3) class counts: 1 on top, some below it, the rest at the bottom.

    Either the middle level slides down from the top while the bottom is 10 away, or it stays level with the top while
    the bottom slides. A level without classes is never used.
    """
    gaps = torch.linspace(0, _LOGIT_GAP, 1001, dtype=torch.float64)
    top, bottom = torch.zeros_like(gaps), torch.full_like(gaps, -_LOGIT_GAP)
    slides = [torch.stack([top, -gaps, bottom], 1), torch.stack([top, top, -gaps], 1)]
    middles = sorted({round(count) for count in np.geomspace(1, num_classes - 1, 12)})
    counts = [torch.tensor([1, middle, num_classes - 1 - middle], dtype=torch.float64) for middle in middles]
    rows = torch.cat([slide for slide in slides for _ in counts])
    return rows, torch.cat([count.expand(len(gaps), 3) for _ in slides for count in counts])


def _level_probs(logits: Tensor, counts: Tensor) -> Tensor:
    """The probability of one class of each level; 0 for a level without classes."""
    total = torch.logsumexp(logits + torch.log(counts), 1, keepdim=True)
    return torch.where(counts > 0, torch.exp(logits - total), 0.0)


def _level_focal_logits(logits: Tensor, counts: Tensor, gamma: float) -> Tensor:
    """log h of one class of each level; 1 - v of a class is the counted sum without one of its own."""
    odds = []
    for level in range(3):
        rest = counts.clone()
        rest[:, level] -= 1
        rest = rest.clamp_min(0)
        odds.append(logits[:, level] - torch.logsumexp(logits + torch.log(rest), 1))
    return log_h(torch.stack(odds, 1), torch.tensor(gamma, dtype=torch.float64))[0]
