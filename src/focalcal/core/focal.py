r"""The focal core: one function of a sample's log-odds, and its closed-form slope.

Every loss of the papers is $-b^{|\gamma|} \log p$ with a $\gamma$ per sample, where $p$ is the probability of the
true class and the base $b$ is $1-p$ for focal loss ($\gamma \ge 0$) and $1+p$ for inverse focal loss ($\gamma < 0$).
All of it follows from the log-odds $z = \log p - \log(1-p)$, from which neither $p$ nor $1-p$ cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from focalcal.core.checks import (
    Array,
    ArrayLike,
    TensorLike,
    may_read_values,
    require,
    require_finite,
    require_unit_interval,
    to_tensor,
)

# A gamma for every sample: one number, a tensor that broadcasts, or a rule that reads p. A rule that is constant
# between edges of p may say so by a method `steps`, which gives the edges and values as `lookup` takes them.
Gamma: TypeAlias = "float | Tensor | Callable[[Tensor], Tensor]"

# softplus(x) = x to the last bit of float64 from here on: exp(-50) = 2e-22.
_SOFTPLUS_IS_LINEAR = 50.0

# From these log-odds on 1 - p is 0 in every precision, and finite numbers do for infinity: 0 times it is 0.
SURE_ODDS = 1e4

# Inverse focal loss: 1 + a p log p / (1+p) stays positive for every p only while a < 1 / W(1/e), because
# -p log p / (1+p) is largest, W(1/e) = 0.27846, at p = W(1/e).
INVERSE_FOCAL_LIMIT = 3.591121476668622


def lookup(p: Any, edges: Tensor, values: Tensor) -> Any:
    """The value of the bin [lower, upper) in which each p lies, for a tensor or a numpy array of p.

    Beyond the outer edges, that of the outer bins.

    >>> lookup(torch.tensor([0.1, 0.5, 0.9]), torch.tensor([0.0, 0.5, 1.0]), torch.tensor([1.0, 2.0]))
    tensor([1., 2., 2.])
    """
    if isinstance(p, np.ndarray):
        return values.numpy()[edges.numpy()[1:-1].searchsorted(p, side="right")]
    return values[torch.bucketize(p, edges[1:-1], right=True)]


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype for per-sample quantities: float64, which costs nothing beside N x K logits (not on Apple GPUs)."""
    return torch.float32 if device.type == "mps" else torch.float64


@overload
def gradient_ratio(p: Array, gamma: float | Tensor) -> Array: ...
@overload
def gradient_ratio(p: TensorLike, gamma: float | Tensor) -> Tensor: ...


def gradient_ratio(p: ArrayLike, gamma: float | Tensor) -> Any:
    r"""How much focal loss scales the gradient of cross-entropy.

    $$ g(p, \gamma) = (1-p)^{\gamma} - \gamma\, p\, (1-p)^{\gamma-1} \log p \qquad (\gamma \ge 0) $$
    $$ g(p, \gamma) = (1+p)^{|\gamma|} + |\gamma|\, p\, (1+p)^{|\gamma|-1} \log p \qquad (\gamma < 0) $$

    where `p` is the probability of the true class, in [0, 1], and a negative `gamma` means inverse focal loss.

    Source: [mukhoti2020, Prop. 1]; written phi in [charoenphakdee2021, Eq. 10]; the second line is the derivative of
    [ghosh2022, Eq. 1].

    >>> gradient_ratio([0.0, 0.25, 1.0], gamma=3.0)
    tensor([1.0000, 1.0067, 0.0000], dtype=torch.float64)
    """
    given, restore = to_tensor(p, "p")
    require_unit_interval(given, "p")
    p = given.to(wide_dtype(given.device))
    gamma = torch.as_tensor(gamma, dtype=p.dtype, device=p.device)
    require_finite(gamma, "gamma")
    not_p = 1 - p
    p_log_p = torch.where(p < 0.5, torch.xlogy(p, p), p * torch.log1p(-not_p))
    base = torch.where(gamma < 0, 1 + p, not_p)
    slope = torch.where(base > 0, p_log_p / base, -torch.ones_like(base))  # p log p / (1-p) -> -1 as p -> 1
    return restore((base ** gamma.abs() * (1 - gamma * slope)).to(given.dtype))


def focal_of_log_odds(log_odds: Tensor, gamma: float | Tensor) -> Tensor:
    r"""The loss of a sample whose true class has the given log-odds $z$; differentiable to any order by autograd.

    $$ \ell(z) = b^{|\gamma|}\, \mathrm{softplus}(-z), \qquad
       b = \sigma(-z) \text{ if } \gamma \ge 0, \text{ else } 1 + \sigma(z) $$

    Source: [mukhoti2020, Sec. 4], [ghosh2022, Eq. 5].

    >>> focal_of_log_odds(torch.tensor([0.0], dtype=torch.float64), gamma=2.0)  # p = 1/2: log(2) / 4
    tensor([0.1733], dtype=torch.float64)
    """
    log_odds = log_odds.clamp(max=SURE_ODDS)
    cross_entropy = F.softplus(-log_odds, threshold=_SOFTPLUS_IS_LINEAR)
    log_not_p = -F.softplus(log_odds, threshold=_SOFTPLUS_IS_LINEAR)
    if not isinstance(gamma, Tensor):
        log_base = log_not_p if gamma >= 0 else torch.log1p(torch.sigmoid(log_odds))
        return torch.exp(abs(gamma) * log_base) * cross_entropy
    log_base = torch.where(gamma < 0, torch.log1p(torch.sigmoid(log_odds)), log_not_p)
    return torch.exp(gamma.abs() * log_base) * cross_entropy


def focal_value_and_slope(
    cross_entropy: Tensor, p: Tensor, not_p: Tensor, gamma: float | Tensor
) -> tuple[Tensor, Tensor]:
    r"""The loss and its slope $-\ell'(z) = g(p, \gamma)\,(1-p)$ in the log-odds.

    $$ g\,(1-p) = b^{|\gamma|} (1-p) (1 + \gamma p c / b) $$

    with $c = -\log p$ (`cross_entropy`) and the base $b$ of the loss.

    Source: [mukhoti2020, Prop. 1].

    >>> half = torch.tensor([0.5])
    >>> focal_value_and_slope(-half.log(), half, half, gamma=0.0)[1]  # cross-entropy: 1 - p
    tensor([0.5000])
    """
    if not isinstance(gamma, Tensor) and gamma >= 0:
        factor = not_p**gamma
        return factor * cross_entropy, factor * (not_p + gamma * p * cross_entropy)
    base = torch.where(gamma < 0, 1 + p, not_p) if isinstance(gamma, Tensor) else 1 + p
    factor = base ** (gamma.abs() if isinstance(gamma, Tensor) else -gamma)
    # Where 1 - p is 0 so is -log p, and 0 / 0 must not be taken.
    return factor * cross_entropy, factor * not_p * (1 + gamma * p * cross_entropy / (base + (base == 0)))


def from_log_odds(log_odds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """-log p, p and 1 - p of a class with the given log-odds, each to its last digit.

    >>> from_log_odds(torch.tensor([0.0]))
    (tensor([0.6931]), tensor([0.5000]), tensor([0.5000]))
    """
    cross_entropy = F.softplus(-log_odds, threshold=_SOFTPLUS_IS_LINEAR)
    return cross_entropy, torch.sigmoid(log_odds), torch.sigmoid(-log_odds)


class _FocalOfLogOdds(torch.autograd.Function):
    """`focal_of_log_odds` with the closed-form slope as its backward pass."""

    @staticmethod
    def forward(ctx: Any, log_odds: Tensor, gamma: Gamma) -> Tensor:
        terms = from_log_odds(log_odds)
        ctx.gamma = gamma(terms[1]) if callable(gamma) else gamma
        value, slope = focal_value_and_slope(*terms, ctx.gamma)
        ctx.save_for_backward(log_odds, slope)
        result: Tensor = value
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        log_odds, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
            value = focal_of_log_odds(log_odds, ctx.gamma)
            return torch.autograd.grad(value, log_odds, grad, create_graph=True)[0], None
        return -slope * grad, None


def focal_elementwise(log_odds: Tensor, gamma: Gamma) -> Tensor:
    r"""`focal_of_log_odds` with its closed-form gradient, for any gamma (a number, a tensor, or a rule of p).

    >>> z = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    >>> focal_elementwise(z, 0.0).backward()
    >>> z.grad  # cross-entropy: p - 1
    tensor([-0.5000], dtype=torch.float64)
    """
    if not may_read_values():  # being traced: leave differentiation to torch
        gamma = gamma(torch.sigmoid(log_odds.detach())) if callable(gamma) else gamma
        return focal_of_log_odds(log_odds, gamma)
    result: Tensor = _FocalOfLogOdds.apply(log_odds, gamma)
    return result


def gamma_star(p0: float) -> float:
    r"""The gamma at which focal and cross-entropy gradients are equal at $p_0$: $g(p_0, \gamma^*) = 1$.

    $$ \gamma^* = \frac{a}{b} + \frac{1}{\log a} W_{-1}\!\left(-\frac{a^{1-a/b}}{b} \log a\right),
       \qquad a = 1 - p_0,\quad b = p_0 \log p_0 $$

    where `p0` lies in (0, 0.5). For gamma at or above it, no sample with $p \ge p_0$ has a larger gradient than with
    cross-entropy. For $p_0 \ge 1/2$ the formula gives 0: every positive gamma already does that, so it is refused.

    Source: [mukhoti2020, Prop. 2]. Differs: domain (0, 0.5) instead of (0, 1).

    >>> round(gamma_star(0.25), 4), round(gamma_star(0.2), 4)
    (3.0702, 4.8506)
    """
    from scipy.special import lambertw  # here, so that `import focalcal` brings in torch and numpy only

    require(0 < p0 < 0.5, "p0", "must lie strictly between 0 and 0.5", p0, "From 0.5 on, any gamma > 0 will do.")
    a, b = 1 - p0, p0 * math.log(p0)
    log_a = math.log1p(-p0)
    # W is evaluated at -exp(t) with t = (1 - a/b) log a + log(log a / b). It is -1/e at p0 = 1/2, where W has a
    # branch point, and underflows for p0 below about 1e-3, so the root of the defining equation finishes the work.
    argument = -math.exp((1 - a / b) * log_a + math.log(log_a / b))
    start = float((a / b + lambertw(argument, k=-1) / log_a).real) if argument < -1e-300 else math.inf
    return _polish_gamma_star(p0, start)


def _polish_gamma_star(p0: float, start: float) -> float:
    """The positive root of log g(p0, gamma) = gamma log(1-p0) + log(1 + gamma r), which is concave in gamma."""
    from scipy.optimize import brentq

    log_a, r = math.log1p(-p0), -p0 * math.log(p0) / (1 - p0)

    def log_ratio(gamma: float) -> float:
        return gamma * log_a + math.log1p(gamma * r)

    peak = max(-1 / log_a - 1 / r, 0.0)  # where log g is largest; the root lies to its right
    width = abs(start - peak) if math.isfinite(start) and start > peak else max(peak, 1e-12)
    while log_ratio(peak + 2 * width) > 0:
        width *= 2
    # Near p0 = 1/2 the root meets the trivial one at 0 and log g between them drowns in rounding.
    if log_ratio(peak) <= 0:
        return 2 * peak
    return float(brentq(log_ratio, peak, peak + 2 * width, xtol=1e-300, rtol=8.9e-16))


def confidence_thresholds(gamma: float) -> tuple[float, float]:
    r"""Where the focal risk minimiser $q^*$ is surely over- or under-confident: $(\tau_{oc}, \tau_{uc})$.

    $\tau_{oc} = \arg\max_p g(p, \gamma)$ and $g(\tau_{uc}, \gamma) = 1$, $\tau_{uc} > 0$. If $\max q^* \le \tau_{oc}$
    the minimiser is over-confident, if $\max q^* \ge \tau_{uc}$ it is under-confident, and
    $0 < \tau_{oc} < \tau_{uc} < 1/2$ (unless it is uniform on some classes and 0 on the others).

    Source: [charoenphakdee2021, Thm. 8]; tau_uc is the p0 of [mukhoti2020, Sec. 4].

    >>> tuple(round(tau, 4) for tau in confidence_thresholds(3.0))
    (0.0855, 0.2526)
    """
    from scipy.optimize import brentq

    require(math.isfinite(gamma) and gamma > 0, "gamma", "must be positive and finite", gamma)
    # dg/dp has the sign of 2(1-p)/log p + 1 - gamma p [mukhoti2020, Eq. 10]; multiplied by -log p it stays finite.
    tau_oc = brentq(lambda p: -2 * (1 - p) - (1 - gamma * p) * math.log(p), 1e-300, 0.5, xtol=1e-300, rtol=8.9e-16)
    # log g divided by gamma, so that gamma -> 0 keeps its sign
    tau_uc = brentq(
        lambda p: math.log1p(-p) + math.log1p(-gamma * p * math.log(p) / (1 - p)) / gamma,
        tau_oc,
        0.5,
        xtol=1e-300,
        rtol=8.9e-16,
    )
    return float(tau_oc), float(tau_uc)
