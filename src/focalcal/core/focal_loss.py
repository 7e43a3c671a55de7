r"""Focal loss of rows of logits, at the cost of cross-entropy.

Let $o$ be the softmax over the classes other than the true one, $y$. Then the log-odds of the true class are
$z = x_y - \mathrm{logsumexp}_{j \ne y} x_j$, and with the slope $c = g(p, \gamma)(1-p)$ of `core.focal` the gradient is

$$ \partial \ell / \partial x = g\,(\mathrm{softmax}(x) - \mathrm{onehot}(y)) = c\,(o - \mathrm{onehot}(y)). $$

So one softmax serves value and gradient, and $1-p$ never comes from a subtraction: it is exact at p = 1 - 1e-300.
Where all other classes are masked (`core.masking`), both are 0.
Only the (N, K) part runs in the logits' precision; everything per row runs in float64, on the CPU in numpy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import may_read_values
from focalcal.core.focal import (
    SURE_ODDS,
    Gamma,
    focal_of_log_odds,
    focal_value_and_slope,
    from_log_odds,
    wide_dtype,
)
from focalcal.core.masking import mask_limit, require_labels_left, unify_masks

# Up to this many logits on the CPU the time goes into calls, not into arithmetic: float64 throughout, few calls.
_SMALL = 1 << 16
# Larger float32 inputs on the CPU are taken in blocks of rows of this many logits, whose temporaries stay in cache and
# are reused by the allocator: a fresh 262 MB temporary costs 65 ms of page faults here, more than its softmax.
_BLOCK = 1 << 19
_WHOLE = 1 << 22
# Below this, a float32 probability is about to underflow and its row is done again in float64.
_TINY = 1e-37
# What is divided by is at least this: the odds of a float64 row are 0 where they underflow or nothing else is left.
_TINIEST = 1e-307
_MASKED = mask_limit(torch.float32)  # that of bfloat16 and float64, too; ONNX clips at numbers of float32 only
_LARGEST = {dtype: torch.finfo(dtype).max for dtype in (torch.float32, torch.float64)}


def top_confidence(logits: Tensor) -> tuple[Tensor, Tensor]:
    r"""The predicted class of each row (N, K) and its probability in float64, as $1 / (1 + \sum_j e^{x_j - x_{top}})$.

    The sum is over the other classes, so a sure row keeps its digits. On the CPU by numpy, in half of torch's time.

    >>> top_confidence(torch.tensor([[1.0, 3.0, 3.0], [40.0, 0.0, 1.0]]))
    (tensor([1, 0]), tensor([0.4683, 1.0000], dtype=torch.float64))
    """
    rows = logits.detach()
    rows = rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
    if not rows.is_cpu:
        top = rows.argmax(1, keepdim=True)
        others = torch.exp(rows - rows.gather(1, top)).scatter_(1, top, 0.0)
        return top.squeeze(1), 1 / (1 + others.sum(1).to(wide_dtype(rows.device)))
    values = rows.numpy()
    place, predicted = np.arange(len(values)), values.argmax(1)
    shares = values - values[place, predicted][:, None]
    np.exp(shares, out=shares)
    shares[place, predicted] = 0
    rest = torch.from_numpy(shares).sum(1).double()  # of the two libraries torch sums faster
    return torch.from_numpy(predicted), 1 / (1 + rest)


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """The log-odds (N, 1) of the labelled class, in float64; differentiable, and exact however sure the row is.

    >>> log_odds(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))  # 2 - log 2
    tensor([[1.3069]], dtype=torch.float64)
    """
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    index = labels.unsqueeze(1)
    others = logits.scatter(1, index, float("-inf"))
    best = others.detach().amax(1, keepdim=True).clamp_min(_MASKED)
    wide = wide_dtype(logits.device)
    rest = torch.exp(others - best).sum(1, keepdim=True).to(wide)  # at least 1, or 0 where no other class is left
    true = logits.gather(1, index).to(wide)
    alone = (rest == 0) & (true > float("-inf"))
    odds = (true - best.to(wide)) - torch.log(torch.where(rest == 0, 1.0, rest))
    return torch.where(alone, SURE_ODDS, odds)


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
# label; then per row: their sum, and -log p, p and 1 - p of the label. On the CPU the latter four are numpy arrays
# (N,), because a call of numpy costs a third of a call of torch; elsewhere they are tensors (N, 1).
_RowTerms: TypeAlias = tuple[Tensor, Any, Any, Any, Any]


def _exact_rows(logits: Tensor, labels: Tensor) -> _RowTerms:
    """Any device, any dtype, any logits, masked ones among them."""
    wide, index = wide_dtype(logits.device), labels.unsqueeze(1)
    true = logits.gather(1, index).to(wide)
    shares = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True).scatter_(1, index, float("-inf"))
    best = shares.amax(1, keepdim=True).clamp_min_(_MASKED)
    total = shares.sub_(best).exp_().sum(1, keepdim=True).to(wide)  # at least 1, or 0 where no other class is left
    odds = torch.where(true <= mask_limit(logits.dtype), -math.inf, (true - best.to(wide)) - torch.log(total))
    terms: list[Any] = [total.clamp_min_(1.0), *from_log_odds(odds)]
    if logits.device.type == "cpu":
        terms = [term.squeeze(1).numpy() for term in terms]
    return shares, terms[0], terms[1], terms[2], terms[3]


def _block(logits: Tensor, index: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Float32 probabilities with 0 at the label, the label's, and the sum of the others."""
    shares = torch.softmax(logits.float(), 1, out=out)
    p = shares.gather(1, index)
    return shares.scatter_(1, index, 0.0), p, shares.sum(1, keepdim=True)


def _blocked_rows(logits: Tensor, labels: Tensor) -> _RowTerms:
    """Many float32 logits on the CPU, in one pass through memory.

    1 - p is the sum of the other classes' float32 probabilities: a row's loss is then right to
    (1 + gamma) |log(1-p)| half-ulps of float32, which is 2e-6 for losses down to 1e-14.
    """
    (rows, num_classes), index = logits.shape, labels.unsqueeze(1)
    if logits.numel() <= _WHOLE:
        shares, *held = _block(logits, index)
    else:
        shares, step = torch.empty(logits.shape, dtype=torch.float32), max(1, _BLOCK // num_classes)
        blocks = [slice(start, start + step) for start in range(0, rows, step)]
        parts = [_block(logits[block], index[block], out=shares[block])[1:] for block in blocks]
        held = [torch.cat(column) for column in zip(*parts, strict=True)]
    p, total = (column.squeeze(1).numpy().astype(np.float64) for column in held)
    # Odds, because softmax's own float32 sum is off by 1e-5 for 50,000 classes and cancels in them.
    against = total / np.maximum(p, _TINIEST)
    cross_entropy = np.log1p(against)
    if not p.min() >= _TINY:
        lost = torch.from_numpy(~(p >= _TINY))
        total = np.nan_to_num(total)
        shares.nan_to_num_(0.0)  # softmax of a row without any class
        exact = from_log_odds(log_odds(logits[lost].double(), labels[lost]))[0]
        cross_entropy[lost.numpy()] = exact.squeeze(1).numpy()
    p = 1 / (against + 1)
    return shares, np.maximum(total, _TINY), cross_entropy, p, against * p


def _rows(logits: Tensor, labels: Tensor) -> _RowTerms:
    if logits.device.type != "cpu" or logits.dtype == torch.float64:
        return _exact_rows(logits, labels)
    if logits.numel() > _SMALL:
        return _blocked_rows(logits, labels)
    return _exact_rows(logits.double(), labels)


def _value_and_slope(terms: Sequence[Any], gamma: Gamma) -> tuple[Any, Any, Any]:
    """`focal_value_and_slope` of the rows, and the gammas that were used."""
    cross_entropy, p, not_p = terms
    on_cpu = isinstance(p, np.ndarray)
    used: Any = gamma
    if callable(gamma):
        used = gamma(p if not on_cpu or getattr(gamma, "takes_arrays", False) else torch.from_numpy(p))
    if on_cpu and isinstance(used, Tensor):
        used = used.numpy().reshape(-1)
    value, slope = focal_value_and_slope(cross_entropy, p, not_p, used, getattr(gamma, "non_negative", False))
    return value, slope, used


def _without_ignored(value: Any, slope: Any, row_weight: Tensor | float) -> tuple[Any, Any]:
    """Value and slope with 0 in rows of weight 0, whose label may be masked: 0 times infinity is no number."""
    if not isinstance(row_weight, Tensor):
        return value, slope
    if isinstance(value, Tensor):
        return torch.where(row_weight == 0, 0.0, value), torch.where(row_weight == 0, 0.0, slope)
    ignored = row_weight.squeeze(1).numpy() == 0
    return np.where(ignored, 0.0, value), np.where(ignored, 0.0, slope)


def _gradient_(shares: Tensor, total: Any, slope: Any, labels: Tensor) -> Tensor:
    """slope * (o - onehot), in the memory of `shares`."""
    if isinstance(slope, Tensor):
        share = (slope / total).to(shares.dtype)
        return shares.mul_(share).scatter_(1, labels.unsqueeze(1), slope.neg().to(shares.dtype))
    dtype = np.float32 if shares.dtype == torch.float32 else np.float64
    share, at_label = (torch.from_numpy(row.astype(dtype)[:, None]) for row in (slope / total, -slope))
    return shares.mul_(share).scatter_(1, labels.unsqueeze(1), at_label)


class _FocalRows(torch.autograd.Function):
    """Sum of weighted row losses (or the rows themselves) with the closed-form gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, gamma: Gamma, row_weight: Tensor | float, summed: bool
    ) -> Tensor:
        if logits.is_cpu:
            counted = row_weight.squeeze(1) != 0 if isinstance(row_weight, Tensor) else None
            require_labels_left(logits, labels, counted)
        shares, total, *terms = _rows(logits.detach(), labels)
        with np.errstate(invalid="ignore"):  # of rows that are ignored
            value, slope, used = _value_and_slope(terms, gamma)
        value, slope = _without_ignored(value, slope, row_weight)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, labels)
            ctx.shares, ctx.total, ctx.slope = shares, total, slope
            ctx.gamma, ctx.row_weight, ctx.summed = used, row_weight, summed
        return _finish(value, row_weight, summed, logits.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
            return _differentiable_gradient(ctx, logits, labels, grad), None, None, None, None
        shares, ctx.shares = ctx.shares, None  # used up in place; a second backward pass makes it anew
        if shares is None:
            shares = _rows(logits.detach(), labels)[0]
        weight = ctx.row_weight
        if isinstance(ctx.slope, Tensor):
            slope = ctx.slope * (grad if ctx.summed else grad.unsqueeze(1)) * weight
        else:
            weight = weight.squeeze(1).numpy() if isinstance(weight, Tensor) else weight
            slope = ctx.slope * ((grad.item() if ctx.summed else grad.double().numpy()) * weight)
        return _gradient_(shares, ctx.total, slope, labels), None, None, None, None


class _SmallFocalRows(torch.autograd.Function):
    """`_FocalRows` for a batch so small that calls cost more than arithmetic: float64 in numpy, the gradient at once.

    Works with the odds against the label, exp(x_j - x_y), as long as those do not overflow and no label is masked.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, gamma: Gamma, row_weight: Tensor | float, summed: bool
    ) -> Tensor:
        classes = labels.numpy()
        if classes.min() < 0:  # numpy would count from the end
            raise IndexError("negative label")
        true = _row_numbers(classes.shape[0]), classes
        odds = logits.detach().numpy().astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            at_label = odds[true]
            if at_label.min() <= _MASKED:
                raise OverflowError
            odds -= at_label[:, None]
            np.exp(odds, out=odds)
            odds[true] = 0
            against = odds.sum(1)
            p = 1 / (against + 1)
            value, slope, used = _value_and_slope((np.log1p(against), p, against * p), gamma)
            weight = row_weight.squeeze(1).numpy() if isinstance(row_weight, Tensor) else row_weight
            value = value * weight
            total = float(value.sum())
        if not math.isfinite(total):
            raise OverflowError
        if ctx.needs_input_grad[0]:
            slope = slope * weight
            gradient = np.empty(odds.shape, dtype=np.float32 if logits.dtype == torch.float32 else np.float64)
            share = slope / np.maximum(against, _TINIEST)
            np.multiply(odds, share[:, None], out=gradient, casting="same_kind")
            gradient[true] = -slope
            ctx.save_for_backward(logits, labels)
            ctx.gradient, ctx.gamma, ctx.row_weight, ctx.summed = torch.from_numpy(gradient), used, row_weight, summed
        if summed:
            return torch.scalar_tensor(total, dtype=logits.dtype)
        return torch.from_numpy(value).to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
            return _differentiable_gradient(ctx, logits, labels, grad), None, None, None, None
        return ctx.gradient * (grad if ctx.summed else grad.unsqueeze(1)), None, None, None, None


@functools.lru_cache(maxsize=64)
def _row_numbers(rows: int) -> Any:
    return np.arange(rows)


def _differentiable_gradient(ctx: Any, logits: Tensor, labels: Tensor, grad: Tensor) -> Tensor:
    gamma = torch.from_numpy(ctx.gamma).unsqueeze(1) if isinstance(ctx.gamma, np.ndarray) else ctx.gamma
    value = focal_of_log_odds(_counted_log_odds(logits, labels, ctx.row_weight), gamma)
    value = _finish(value, ctx.row_weight, ctx.summed, logits.dtype)
    return torch.autograd.grad(value, logits, grad, create_graph=True)[0]


def _counted_log_odds(logits: Tensor, labels: Tensor, row_weight: Tensor | float) -> Tensor:
    """`log_odds`, with 0 in rows of weight 0, whose label may be masked."""
    odds = log_odds(unify_masks(logits), labels)
    return torch.where(row_weight == 0, 0.0, odds) if isinstance(row_weight, Tensor) else odds


def _finish(value: Any, row_weight: Tensor | float, summed: bool, dtype: torch.dtype) -> Tensor:
    """The weighted rows, summed or not, as a loss of logits of that dtype.

    A finite loss stays finite: at most the largest number of the dtype. Infinity is that of a masked label.
    Weights come before the sum, so that a mean of huge losses stays finite.
    """
    dtype = torch.promote_types(dtype, torch.float32)
    if isinstance(value, Tensor):
        rows = value * row_weight
        loss = rows.sum() if summed else rows.squeeze(1)
        return torch.where(torch.isinf(loss), loss, loss.clamp(max=_LARGEST[dtype])).to(dtype)
    value = value * (row_weight.squeeze(1).numpy() if isinstance(row_weight, Tensor) else row_weight)
    if summed:
        return torch.scalar_tensor(min(float(value.sum()), _LARGEST[dtype]), dtype=dtype)
    return torch.from_numpy(value).to(dtype).clamp_(max=_LARGEST[dtype])


def focal_rows(
    logits: Tensor, labels: Tensor, gamma: Gamma, *, row_weight: Tensor | float = 1.0, summed: bool = True
) -> Tensor:
    """Focal loss of `logits` (N, K) at `labels` (N,): the sum of `row_weight` times each row's loss, or each row's.

    `gamma` and `row_weight` are numbers or (N, 1); a callable gamma is given p, one per row. float16 and bfloat16
    logits are computed in float32 and give a float32 loss. A label that is masked raises a MaskedLabelError on the CPU,
    unless its row has the weight 0; in traced code and on accelerators its loss is infinite.

    >>> focal_rows(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), gamma=1.0)  # log(2) / 2
    tensor(0.3466)
    """
    if not may_read_values():  # being traced: leave differentiation to torch
        odds = _counted_log_odds(logits, labels, row_weight)
        gamma = gamma(torch.sigmoid(odds.detach())) if callable(gamma) else gamma
        return _finish(focal_of_log_odds(odds, gamma), row_weight, summed, logits.dtype)
    if logits.is_cpu and logits.numel() <= _SMALL and logits.dtype in _LARGEST:
        try:
            small: Tensor = _SmallFocalRows.apply(logits, labels, gamma, row_weight, summed)
            return small
        except OverflowError:
            pass
    result: Tensor = _FocalRows.apply(logits, labels, gamma, row_weight, summed)
    return result


def rows_value_and_gradient(
    logits: Tensor, labels: Tensor, gamma: Gamma, row_weight: Tensor | float
) -> tuple[Tensor, Tensor]:
    """The weighted sum of the rows' losses and its gradient, for callers that fuse the layer below.

    `row_weight` is a number, or (N, 1) on an accelerator.

    >>> value, gradient = rows_value_and_gradient(torch.zeros(1, 2), torch.tensor([0]), 0.0, 1.0)
    >>> gradient
    tensor([[-0.5000,  0.5000]])
    """
    if logits.is_cpu:
        require_labels_left(logits, labels)
    shares, total, *terms = _rows(logits, labels)
    value, slope, _ = _value_and_slope(terms, gamma)
    value, slope = _without_ignored(value, slope, row_weight)
    loss = _finish(value, row_weight, True, wide_dtype(logits.device))
    return loss, _gradient_(shares, total, slope * row_weight, labels).to(logits.dtype)
