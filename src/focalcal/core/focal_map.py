r"""The focal calibration map: from focal-risk minimisers to true posteriors, and back.

$$ \Psi^\gamma_i(v) = \frac{h(v_i)}{\sum_l h(v_l)}, \qquad h(v) = \frac{v}{\varphi(v)}, \qquad
   \varphi(v) = (1-v)^\gamma - \gamma (1-v)^{\gamma-1} v \log v $$

Source: [charoenphakdee2021, Thm. 11]; the focal calibration map of [komisarenko2024, Prop. 4].

Everything runs on the log-odds of each class, in float64. Of the largest class, $1-v$ is taken as the sum of the
other probabilities: that is what it means in a distribution, and it does not cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from focalcal.core.checks import (
    Array,
    ArrayLike,
    TensorLike,
    may_read_values,
    require,
    require_distribution,
    require_finite,
    require_reduction,
    require_unit_interval,
    to_classes,
    to_tensor,
)
from focalcal.core.focal import focal_of_log_odds, wide_dtype
from focalcal.core.log_odds import all_log_odds, log_odds
from focalcal.core.root_finding import solve_increasing
from focalcal.errors import InputError

# From these log-odds on -v log v / (1-v) is 1 - (1-v)/2 to the last bit, and v log v / (1-v) would lose some.
_SURE = 18.0
# From these log-odds on r - v loses digits; w/2 - w^2/6 is right to 1e-11 there.
_SERIES = 12.0
# log of a probability that is zero: finite, so that Newton can work with it, and exp of it is exactly 0.
_LOG_ZERO = -1e4


def log_h(log_odds: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    r"""$\log h(v) = \log v - \gamma \log(1-v) - \log(1 + \gamma r)$ and its slope by the log-odds of v.

    Here $r = -v \log v / (1-v)$ lies in [0, 1], so any $\gamma > -1$ will do.

    >>> log_h(torch.zeros(1, dtype=torch.float64), torch.tensor(0.0))  # gamma 0: log v, here log(1/2)
    (tensor([-0.6931], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    v, not_v, cross_entropy, r = _terms(log_odds)
    value = gamma * F.softplus(log_odds, threshold=50.0) - cross_entropy - torch.log1p(gamma * r)
    slope = not_v + gamma * v * (1 - (torch.where(v > 0, cross_entropy, 0.0) - 1 + r) / (1 + gamma * r))
    return value, slope


def _terms(log_odds: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""$v$, $1 - v$, $-\log v$ and $r = -v \log v / (1-v)$ of log-odds."""
    cross_entropy = F.softplus(-log_odds, threshold=50.0)  # -log v
    v, not_v = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
    r = torch.where(v > 0, v * cross_entropy / not_v.clamp_min(1e-300), torch.zeros_like(v))
    r = torch.where(log_odds > _SURE, 1 - torch.exp(-log_odds) / 2, r)
    return v, not_v, cross_entropy, r


class LogHDerivatives(NamedTuple):
    """log h of some log-odds z, and its first and second derivatives by z and gamma."""

    value: Tensor
    by_z: Tensor
    by_gamma: Tensor
    zz: Tensor
    z_gamma: Tensor
    gamma_gamma: Tensor


def log_h_derivatives(log_odds: Tensor, gamma: float) -> LogHDerivatives:
    r"""$\ell = \log h$ at log-odds z with all first and second derivatives, because $r' = r - v$.

    $$ \ell_z = w + \gamma v - \gamma \frac{r - v}{D}, \quad \ell_\gamma = -\log w - \frac{r}{D}, \quad
       \ell_{z\gamma} = v - \frac{r - v}{D^2}, \quad \ell_{\gamma\gamma} = \frac{r^2}{D^2}, $$
    $$ \ell_{zz} = (\gamma - 1) v w - \gamma \frac{r - v - v w}{D} + \gamma^2 \frac{(r - v)^2}{D^2} $$

    where $v = \sigma(z)$, $w = 1 - v$, $r = -v \log v / w$ and $D = 1 + \gamma r$.

    >>> log_h_derivatives(torch.zeros(1, dtype=torch.float64), 0.0).by_z
    tensor([0.5000], dtype=torch.float64)
    """
    v, w, minus_log_v, r = _terms(log_odds)
    minus_log_w = F.softplus(log_odds, threshold=50.0)
    ahead = torch.where(log_odds > _SERIES, w / 2 - w * w / 6, r - v)  # r - v
    d = 1 + gamma * r
    value = gamma * minus_log_w - minus_log_v - torch.log1p(gamma * r)
    by_z = w + gamma * v - gamma * ahead / d
    by_gamma = minus_log_w - r / d
    zz = (gamma - 1) * v * w - gamma * (ahead - v * w) / d + (gamma * ahead / d) ** 2
    z_gamma = v - ahead / (d * d)
    return LogHDerivatives(value, by_z, by_gamma, zz, z_gamma, (r / d) ** 2)


def focal_log_probs(logits: Tensor, gamma: Tensor) -> Tensor:
    """Log of the focal map of `softmax(logits)` along the last dimension of (N, K); gamma is a number or (N, 1).

    >>> focal_log_probs(torch.tensor([[0.0, 0.0]], dtype=torch.float64), torch.tensor(3.0)).exp()
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    logits = logits.to(wide_dtype(logits.device))
    top = logits.argmax(-1, keepdim=True)
    log_v = torch.log_softmax(logits, -1)
    # Every class but the first has at most 1/2, so 1 - v does not cancel; the first goes by its log-odds.
    v = torch.exp(log_v).scatter(-1, top, 0.0)
    r = v * log_v.clamp_min(_LOG_ZERO) / (v - 1)
    log_h_of_others = log_v - gamma * torch.log1p(-v) - torch.log1p(gamma * r)
    log_h_of_top, _ = log_h(log_odds(logits, top.squeeze(-1)), gamma)
    return torch.log_softmax(log_h_of_others.scatter(-1, top, log_h_of_top), -1)


def focal_temperature_log_probs(logits: Tensor, gamma: Tensor | float, temperature: Tensor | float) -> Tensor:
    r"""Log-probabilities of the focal temperature family, $\Psi^\gamma(\mathrm{softmax}(x / T))$, in float64.

    Source: [komisarenko2024, Sec. 4.2].

    >>> focal_temperature_log_probs(torch.tensor([[2.0, 0.0]]), 1.0, 2.0).exp()
    tensor([[0.8555, 0.1445]], dtype=torch.float64)
    """
    wide = logits.to(wide_dtype(logits.device))
    return focal_log_probs(wide / temperature, torch.as_tensor(gamma, dtype=wide.dtype, device=wide.device))


@overload
def focal_map(probs: Array, gamma: float | Tensor, *, dim: int = ..., binary: bool = ...) -> Array: ...
@overload
def focal_map(probs: TensorLike, gamma: float | Tensor, *, dim: int = ..., binary: bool = ...) -> Tensor: ...


def focal_map(probs: ArrayLike, gamma: float | Tensor, *, dim: int = -1, binary: bool = False) -> Any:
    r"""The focal calibration map $\Psi^\gamma$: what the true posterior is where focal training gave `probs`.

    where `probs` are distributions along `dim`, and `gamma` > -1 is a number or one per row (the shape of `probs`
    without `dim`). With `binary=True`, or for a single number, `probs` are probabilities of the positive class, of
    any shape. One-hot rows are their own image, as [charoenphakdee2021, Sec. 5.1] defines; so are rows that are
    uniform on some classes and 0 on the others, and every row for gamma = 0.

    Source: [charoenphakdee2021, Thm. 11], [komisarenko2024, Prop. 2 and 4]. gamma in (-1, 0) keeps the same formula.

    >>> focal_map([0.6266, 0.3734], gamma=2.0)
    tensor([0.8000, 0.2000], dtype=torch.float64)
    >>> focal_map(0.6266, gamma=2.0)
    tensor(0.8000, dtype=torch.float64)
    """
    return _apply_to_rows(probs, gamma, dim, binary, focal_log_probs)


@overload
def focal_map_inverse(probs: Array, gamma: float | Tensor, *, dim: int = ..., binary: bool = ...) -> Array: ...
@overload
def focal_map_inverse(probs: TensorLike, gamma: float | Tensor, *, dim: int = ..., binary: bool = ...) -> Tensor: ...


def focal_map_inverse(probs: ArrayLike, gamma: float | Tensor, *, dim: int = -1, binary: bool = False) -> Any:
    r"""The inverse of `focal_map`: the distribution $v$ with $\Psi^\gamma(v)$ = `probs`.

    Solves $h(v_i) = e^{\mu} \eta_i$ with $\sum_i v_i = 1$ for the multiplier $\mu$, by safeguarded Newton, all rows
    at once. `gamma` is non-negative, or above -1 for two classes (where $h$ is not monotone near 1, but the normalised
    map still is). Not differentiable.

    Source: [komisarenko2024, Prop. 2 and 4], where it is tabulated.

    >>> focal_map_inverse([0.8, 0.2], gamma=2.0)
    tensor([0.6266, 0.3734], dtype=torch.float64)
    """

    def log_probs(logits: Tensor, gammas: Tensor) -> Tensor:
        return -F.softplus(-inverse_log_odds(logits, gammas), threshold=50.0)

    return _apply_to_rows(probs, gamma, dim, binary, log_probs)


@overload
def focal_minimizer(posterior: Array, gamma: float | Tensor, *, dim: int = ..., binary: bool = ...) -> Array: ...
@overload
def focal_minimizer(posterior: TensorLike, gamma: float | Tensor, *, dim: int = ..., binary: bool = ...) -> Tensor: ...


def focal_minimizer(
    posterior: Array | TensorLike, gamma: float | Tensor, *, dim: int = -1, binary: bool = False
) -> Any:
    r"""The prediction $q^*$ that minimises the expected focal loss where the true posterior is `posterior`.

    $$ q^* = \arg\min_q \; -\sum_y \eta_y (1-q_y)^\gamma \log q_y $$

    It is the inverse focal map of the posterior [charoenphakdee2021, Thm. 11], hence computed as that.

    >>> focal_minimizer(0.8, gamma=2.0)  # 80 positives of 100, [komisarenko2024, Sec. 3.1]
    tensor(0.6266, dtype=torch.float64)
    """
    return focal_map_inverse(posterior, gamma, dim=dim, binary=binary)


def proper_focal_loss(
    probs: ArrayLike, labels: ArrayLike, gamma: float, *, reduction: Literal["mean", "sum", "none"] = "mean"
) -> Tensor:
    r"""The proper part of focal loss, $L^*(q, y) = L_{focal}((\Psi^\gamma)^{-1}(q), y)$.

    where `probs` (N, K) are predictions, `labels` (N,) class numbers, and `gamma` >= 0. Its expectation is smallest at
    the true posterior. Not differentiable.

    Source: [komisarenko2024, Prop. 2 and 4].

    >>> proper_focal_loss([[0.8, 0.2]], [0], gamma=2.0)  # focal loss at 0.6266
    tensor(0.0652, dtype=torch.float64)
    """
    given, _ = to_tensor(probs, "probs")
    require(given.dim() == 2, "probs", "must have shape (N, K)", tuple(given.shape))
    require_distribution(given, "probs", -1)
    require(math.isfinite(gamma) and gamma >= 0, "gamma", "must be non-negative and finite", gamma)
    classes = to_classes(labels, given, "labels")
    require_reduction(reduction)
    gammas = torch.tensor(gamma, dtype=wide_dtype(given.device), device=given.device)
    odds = inverse_log_odds(torch.log(given.detach().to(gammas.dtype)), gammas)
    rows = focal_of_log_odds(odds.gather(1, classes.unsqueeze(1)).squeeze(1), gamma).to(given.dtype)
    return rows if reduction == "none" else rows.mean() if reduction == "mean" else rows.sum()


def inverse_log_odds(logits: Tensor, gamma: Tensor) -> Tensor:
    """The log-odds (N, K) of each class of the inverse map of `softmax(logits)`, gamma a number or (N, 1)."""
    log_posterior = torch.log_softmax(logits.to(wide_dtype(logits.device)), -1)
    gammas = gamma.to(log_posterior.dtype).expand(log_posterior.shape[0], 1)
    none = torch.isinf(log_posterior)
    one_hot = ~none & (none.sum(-1, keepdim=True) == log_posterior.shape[-1] - 1)
    if log_posterior.shape[-1] == 2:
        odds = _binary_inverse(log_posterior.clamp_min(_LOG_ZERO).diff(dim=-1), gammas)
        result = torch.cat([-odds, odds], -1)
    else:
        result = _multiclass_inverse(log_posterior.clamp_min(_LOG_ZERO), gammas)
        result = torch.where(gammas == 0, all_log_odds(log_posterior), result)
    return torch.where(one_hot, math.inf, torch.where(none, -math.inf, result))


def _binary_inverse(target: Tensor, gamma: Tensor) -> Tensor:
    """z with log h(z) - log h(-z) = target: an odd, increasing function whose slope tends to gamma + 1."""

    def residual(odds: Tensor) -> tuple[Tensor, Tensor]:
        up, slope_up = log_h(odds, gamma)
        down, slope_down = log_h(-odds, gamma)
        return up - down - target, slope_up + slope_down

    # For large z the function is (gamma+1) z - log(gamma+1); for gamma >= 0 it is at least z (komisarenko2024 Prop. 3).
    reach = (target.abs() + torch.log1p(gamma).abs() + 1) / torch.clamp(1 + gamma, max=1.0)
    return solve_increasing(residual, -reach, reach, target / (1 + gamma))


def _multiclass_inverse(log_posterior: Tensor, gamma: Tensor) -> Tensor:
    """Log-odds z_i with log h(z_i) = mu + log eta_i, where mu makes the probabilities add up to 1."""
    top = log_posterior.argmax(-1, keepdim=True)
    mask = torch.zeros_like(log_posterior).scatter(-1, top, -math.inf)  # leaves out the largest class
    num_classes = log_posterior.shape[-1]
    gamma = gamma.clamp_min(1e-12)  # at 0 h is bounded and has no inverse beyond 1; the caller handles 0
    odds = all_log_odds(log_posterior)

    def balance(mu: Tensor) -> tuple[Tensor, Tensor]:
        """log of (sum of the others / what the largest leaves), which is 0 where the sum is 1, and its slope."""
        nonlocal odds
        odds = _invert_log_h(mu + log_posterior, gamma, start=odds)
        _, slope = log_h(odds, gamma)
        log_v = -F.softplus(-odds, threshold=50.0)
        others = torch.logsumexp(log_v + mask, -1, keepdim=True)
        share = torch.exp(log_v + mask - others)  # of the other classes, among themselves
        value = others + F.softplus(odds.gather(-1, top), threshold=50.0)
        rise = (share * torch.sigmoid(-odds) / slope).sum(-1, keepdim=True)
        return value, rise + torch.sigmoid(odds.gather(-1, top)) / slope.gather(-1, top)

    # With the largest class at 1/K nothing can exceed 1/K, so the sum is at most 1: a lower bound for mu.
    even = log_posterior.new_full((1, 1), -math.log(num_classes - 1))
    log_top = log_posterior.gather(-1, top)
    lower = log_h(even, gamma)[0] - log_top
    upper = torch.maximum(log_h(odds.gather(-1, top), gamma)[0] - log_top, lower) + 1
    while bool((too_low := balance(upper)[0] < 0).any()):
        upper = torch.where(too_low, upper + 2 * (upper - lower), upper)
    mu = solve_increasing(balance, lower, upper, upper)
    return _invert_log_h(mu + log_posterior, gamma, start=odds)


def _invert_log_h(target: Tensor, gamma: Tensor, start: Tensor) -> Tensor:
    """The log-odds at which log h takes the target value; gamma > 0, where log h is increasing and onto."""

    def residual(odds: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = log_h(odds, gamma)
        return value - target, slope

    # log h(z) <= z + gamma log 2 for z <= 0, and >= gamma z - log 2 - log(1 + gamma) for z >= 0.
    lower = torch.clamp(target - gamma * math.log(2), max=0.0)
    upper = torch.clamp((target + math.log(2) + torch.log1p(gamma)) / gamma, min=0.0)
    return solve_increasing(residual, lower, upper, start)


def _apply_to_rows(
    probs: ArrayLike,
    gamma: float | Tensor,
    dim: int,
    binary: bool,
    log_map: Callable[[Tensor, Tensor], Tensor],
) -> Any:
    """Checks, layout and dtype around a map of log-probabilities (N, K) to log-probabilities (N, K)."""
    given, restore = to_tensor(probs, "probs")
    binary = binary or given.dim() == 0
    inverse = log_map is not focal_log_probs
    wide = wide_dtype(given.device)
    if binary:
        require_unit_interval(given, "probs")
        positive = given.to(wide)
        rows, dim = torch.stack([1 - positive, positive], -1), -1
    else:
        require(-given.dim() <= dim < given.dim(), "dim", f"must name a dimension of {tuple(given.shape)}", dim)
        require_distribution(given, "probs", dim)
        rows = given.to(wide).movedim(dim, -1)
    gammas = torch.as_tensor(gamma, dtype=wide, device=given.device)
    _require_gamma(gammas, rows, inverse)
    shape, flat = rows.shape, rows.reshape(-1, rows.shape[-1])
    gammas = gammas.reshape(-1, 1) if gammas.dim() else gammas
    mapped = torch.exp(log_map(torch.log(flat), gammas))
    unchanged = ((flat > 0).sum(-1, keepdim=True) == 1) | (gammas == 0)  # one-hot rows, and gamma 0
    mapped = torch.where(unchanged, flat, mapped).reshape(shape)
    result = mapped[..., 1] if binary else mapped.movedim(-1, dim)
    return restore(result.to(given.dtype))


def _require_gamma(gamma: Tensor, rows: Tensor, inverse: bool) -> None:
    require_finite(gamma, "gamma")
    if gamma.dim() and gamma.shape != rows.shape[:-1]:
        raise InputError(
            f"gamma: must be a number or have one value per row, shape {tuple(rows.shape[:-1])}; "
            f"got shape {tuple(gamma.shape)}."
        )
    if not may_read_values():
        return
    least = float(gamma.min())
    require(least > -1, "gamma", "must be greater than -1", least, "Below that the map has a pole.")
    if inverse and rows.shape[-1] > 2:
        require(
            least >= 0, "gamma", "the inverse map of three or more classes needs gamma >= 0", least,
            "For two classes any gamma > -1 will do.",
        )  # fmt: skip
