r"""Focal loss of rows of logits, at the cost of cross-entropy.

Let $o$ be the softmax over the classes other than the true one, $y$. Then the log-odds of the true class are
$z = x_y - \mathrm{logsumexp}_{j \ne y} x_j$, and with the slope $c = g(p, \gamma)(1-p)$ of `core.focal` the gradient is

$$ \partial \ell / \partial x = g\,(\mathrm{softmax}(x) - \mathrm{onehot}(y)) = c\,(o - \mathrm{onehot}(y)). $$

So one softmax serves value and gradient, and $1-p$ never comes from a subtraction: it is exact at p = 1 - 1e-300.
Only the (N, K) part runs in the logits' precision; everything per row runs in float64.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor

from focalcal.core.focal import (
    Gamma,
    focal_of_log_odds,
    focal_value_and_slope,
    from_log_odds,
    plain_autograd,
    wide_dtype,
)

# Up to this many logits on the CPU the time goes into calling torch, not into arithmetic: float64 throughout, few calls.
_SMALL = 1 << 16
# Larger float32 inputs on the CPU are taken in blocks of rows of this many logits, whose temporaries stay in cache and
# are reused by the allocator: a fresh 262 MB temporary costs 65 ms of page faults here, more than its softmax.
_BLOCK = 1 << 19
_WHOLE = 1 << 22
# Below this, a float32 probability is about to underflow and its row is done again in float64.
_TINY = 1e-37
# Keeps the odds of a float64 row above 0 without being seen.
_TINIEST = 1e-307


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """The log-odds (N, 1) of the labelled class, in float64; differentiable, and exact however sure the row is.

    >>> log_odds(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))  # 2 - log 2
    tensor([[1.3069]], dtype=torch.float64)
    """
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    index = labels.unsqueeze(1)
    others = logits.scatter(1, index, float("-inf"))
    best = others.detach().amax(1, keepdim=True)
    wide = wide_dtype(logits.device)
    rest = torch.exp(others - best).sum(1, keepdim=True)  # at least 1
    return (logits.gather(1, index).to(wide) - best.to(wide)) - torch.log(rest.to(wide))


def all_log_odds(logits: Tensor) -> Tensor:
    """The log-odds (N, K) of every class, in float64; differentiable.

    >>> all_log_odds(torch.tensor([[2.0, 0.0]]))
    tensor([[ 2., -2.]], dtype=torch.float64)
    """
    logits = logits.to(wide_dtype(logits.device))
    top = logits.argmax(1, keepdim=True)
    log_probs = torch.log_softmax(logits, 1)
    # Every class but the first is at most 1/2, so 1 - p does not cancel; the first is taken from the others.
    log_not_p = torch.log1p(-torch.exp(log_probs).scatter(1, top, 0.0))
    return (log_probs - log_not_p).scatter(1, top, log_odds(logits, top.squeeze(1)))


# Of a batch of rows: values (N, K) proportional to the other classes' probabilities, fresh memory, with anything at the
# label; then (N, 1) each: their sum, -log p, p and 1 - p of the label.
_Rows: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _exact_rows(logits: Tensor, index: Tensor) -> _Rows:
    """Any device, any dtype, any finite logits."""
    wide = wide_dtype(logits.device)
    true = logits.gather(1, index).to(wide)
    shares = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True).scatter_(1, index, float("-inf"))
    best = shares.amax(1, keepdim=True)
    total = shares.sub_(best).exp_().sum(1, keepdim=True).to(wide)
    return shares, total, *from_log_odds((true - best.to(wide)) - torch.log(total))


def _small_rows(logits: Tensor, index: Tensor) -> _Rows:
    """A small batch on the CPU in few calls: the odds against the label, unless they overflow (then -log p is inf)."""
    shares = logits.to(torch.float64, copy=True)
    shares.sub_(shares.gather(1, index)).exp_().scatter_(1, index, _TINIEST)
    against = shares.sum(1, keepdim=True)
    p = (against + 1).reciprocal_()
    return shares, against, torch.log1p(against), p, against * p


def _blocked_rows(logits: Tensor, index: Tensor) -> _Rows:
    """Many float32 logits on the CPU, in one pass through memory.

    1 - p is the sum of the other classes' float32 probabilities: a row's loss is then right to
    (1 + gamma) |log(1-p)| half-ulps of float32, which is 2e-6 for losses down to 1e-14.
    """
    rows, num_classes = logits.shape
    step = rows if logits.numel() <= _WHOLE else max(1, _BLOCK // num_classes)
    shares = torch.empty(logits.shape, dtype=torch.float32)
    p, not_p = torch.empty((rows, 1)), torch.empty((rows, 1))
    for start in range(0, rows, step):
        block = slice(start, start + step)
        share = torch.softmax(logits[block].float(), 1, out=shares[block])
        torch.gather(share, 1, index[block], out=p[block])
        share.scatter_(1, index[block], 0.0)
        torch.sum(share, 1, keepdim=True, out=not_p[block])
    lost = p.squeeze(1) < _TINY
    # Odds, because softmax's own float32 sum is off by 1e-5 for 50,000 classes and cancels in them.
    total = not_p.clamp_min_(_TINY).double()
    against = total / p.double().clamp_min_(_TINIEST)
    cross_entropy, p = torch.log1p(against), (against + 1).reciprocal_()
    if lost.any():
        cross_entropy[lost] = from_log_odds(log_odds(logits[lost].double(), index[lost].squeeze(1)))[0]
    return shares, total, cross_entropy, p, against * p


def _value_and_slope(
    logits: Tensor, index: Tensor, gamma: Gamma, row_weight: Tensor | float
) -> tuple[Tensor, Tensor, Tensor, Tensor, float | Tensor]:
    """Each row's weighted loss (N, 1); the other classes' shares (N, K) and their sum; the slope; the gammas used."""
    if logits.device.type == "cpu" and logits.numel() <= _SMALL:
        shares, total, *terms = _small_rows(logits, index)
        value, slope, used = focal_value_and_slope(*terms, gamma)
        value = value * row_weight
        if math.isfinite(value.sum().item()):
            return value, shares, total, slope, used
    blocked = logits.device.type == "cpu" and logits.numel() > _SMALL and logits.dtype != torch.float64
    shares, total, *terms = _blocked_rows(logits, index) if blocked else _exact_rows(logits, index)
    value, slope, used = focal_value_and_slope(*terms, gamma)
    return value * row_weight, shares, total, slope, used


def _gradient_(shares: Tensor, total: Tensor, slope: Tensor, index: Tensor) -> Tensor:
    """slope * (o - onehot), in the memory of `shares`."""
    return shares.mul_((slope / total).to(shares.dtype)).scatter_(1, index, slope.neg().to(shares.dtype))


class _FocalRows(torch.autograd.Function):
    """Sum of weighted row losses (or the rows themselves) with the closed-form gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, gamma: Gamma, row_weight: Tensor | float, summed: bool
    ) -> Tensor:
        value, shares, total, slope, used = _value_and_slope(logits, labels.unsqueeze(1), gamma, row_weight)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, labels)
            ctx.shares, ctx.total, ctx.slope = shares, total, slope
            ctx.gamma, ctx.row_weight, ctx.summed = used, row_weight, summed
        return _finish(value, summed, logits.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
            value = focal_of_log_odds(log_odds(logits, labels), ctx.gamma) * ctx.row_weight
            value = _finish(value, ctx.summed, logits.dtype)
            return torch.autograd.grad(value, logits, grad, create_graph=True)[0], None, None, None, None
        index = labels.unsqueeze(1)
        shares, ctx.shares = ctx.shares, None  # used up in place; a second backward pass makes it anew
        if shares is None:
            _, shares, ctx.total, ctx.slope, _ = _value_and_slope(logits, index, ctx.gamma, 1.0)
        slope = ctx.slope * ((grad if ctx.summed else grad.unsqueeze(1)) * ctx.row_weight)
        return _gradient_(shares, ctx.total, slope, index), None, None, None, None


def _finish(value: Tensor, summed: bool, dtype: torch.dtype) -> Tensor:
    """The weighted rows (N, 1) as the caller wants them; weights come before the sum, so that a mean cannot overflow."""
    dtype = torch.promote_types(dtype, torch.float32)
    value = value.sum() if summed else value.squeeze(1)
    return value if value.dtype == dtype else value.to(dtype).clamp(max=torch.finfo(dtype).max)


def focal_rows(
    logits: Tensor, labels: Tensor, gamma: Gamma, *, row_weight: Tensor | float = 1.0, summed: bool = True
) -> Tensor:
    """Focal loss of `logits` (N, K) at `labels` (N,): the sum of `row_weight` times each row's loss, or each row's.

    `gamma` and `row_weight` are numbers or (N, 1); a callable gamma is given p (N, 1). float16 and bfloat16 logits
    are computed in float32 and give a float32 loss.

    >>> focal_rows(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), gamma=1.0)  # log(2) / 2
    tensor(0.3466)
    """
    if plain_autograd():
        odds = log_odds(logits, labels)
        gamma = gamma(torch.sigmoid(odds.detach())) if callable(gamma) else gamma
        return _finish(focal_of_log_odds(odds, gamma) * row_weight, summed, logits.dtype)
    result: Tensor = _FocalRows.apply(logits, labels, gamma, row_weight, summed)
    return result


def rows_value_and_gradient(
    logits: Tensor, labels: Tensor, gamma: Gamma, row_weight: Tensor | float
) -> tuple[Tensor, Tensor]:
    """The weighted sum of the rows' losses and its gradient, for callers that fuse the layer below.

    >>> value, gradient = rows_value_and_gradient(torch.zeros(1, 2), torch.tensor([0]), 0.0, 1.0)
    >>> gradient
    tensor([[-0.5000,  0.5000]])
    """
    index = labels.unsqueeze(1)
    value, shares, total, slope, _ = _value_and_slope(logits, index, gamma, row_weight)
    return value.sum(), _gradient_(shares, total, slope * row_weight, index).to(logits.dtype)
