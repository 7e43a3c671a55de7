r"""Focal loss of rows of logits, with its gradient in closed form.

Let $o$ be the softmax over the classes other than the true one, $y$. Then the log-odds of the true class are
$z = x_y - \mathrm{logsumexp}_{j \ne y} x_j$, and with the slope $c = g(p, \gamma)(1-p)$ of `core.focal` the gradient is

$$ \partial \ell / \partial x = g\,(\mathrm{softmax}(x) - \mathrm{onehot}(y)) = c\,(o - \mathrm{onehot}(y)). $$

So one exponential per logit serves value and gradient, and $1-p$ never comes from a subtraction: it is exact at
p = 1 - 1e-300. Where all other classes are masked (`core.masking`), both are 0. The (N, K) part runs in the logits'
precision, float32 for half precision; everything per row runs in float64.

The definition in torch serves accelerators, traced code and second derivatives; on the CPU the compiled kernel of
`cpp/focal_loss.h` reads the logits once and writes the gradient once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from focalcal.core.checks import may_read_values, require_label_range
from focalcal.core.focal import (
    Gamma,
    focal_of_log_odds,
    focal_value_and_slope,
    from_log_odds,
    lookup,
    wide_dtype,
)
from focalcal.core.log_odds import finite_or_nan, log_odds
from focalcal.core.masking import MaskedLabelError, mask_limit, require_labels_left, unify_masks
from focalcal.errors import InputError
from focalcal.kernels.compiled import TYPES, kernels_for, threads_for

Reduction: TypeAlias = Literal["mean", "sum", "none"]

_LARGEST = {dtype: torch.finfo(dtype).max for dtype in (torch.float32, torch.float64)}
_MASK_LIMITS = {dtype: mask_limit(dtype) for dtype in TYPES}
# From this many adjacent classes on the kernel takes the classes of a row together, and below it sixteen rows.
_MANY_CLASSES = 32
# Up to this many classes it takes sixteen rows together whatever their layout: 128 KB of float32 for each thread.
_MOST_CLASSES = 2048


def focal_rows(
    logits: Tensor,
    labels: Tensor,
    gamma: Gamma,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Focal loss of `logits` (N, K) or (N, K, d1, ...) at class numbers `labels`: their mean, sum, or each.

    `gamma` is a number, a tensor with one value per label, or a callable that is given p, one per row. `weight` (K,) is
    in float64; as in torch, a mean divides by the sum of weights, and labels equal to `ignore_index` count nothing.
    float16 and bfloat16 logits are computed in float32 and give a float32 loss. A label that is masked raises a
    MaskedLabelError on the CPU, unless its row has the weight 0; in traced code and on accelerators its loss is
    infinite.

    >>> focal_rows(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), gamma=1.0)  # log(2) / 2
    tensor(0.3466)
    """
    if kernels_for(logits) is None or not _is_plain(logits, labels):
        return _defined(logits, labels, gamma, weight, ignore_index, reduction)
    try:
        if torch.is_grad_enabled() and logits.requires_grad:
            loss: Tensor = _CompiledLoss.apply(logits, labels, gamma, weight, ignore_index, reduction)
            return loss
        return _compiled(logits, labels, gamma, weight, ignore_index, reduction)[0]
    except IndexError:
        require_label_range(labels, logits.shape[1], ignore_index)
        raise


def value_and_gradient_(
    logits: Tensor, labels: Tensor, gamma: Gamma, row_weight: Tensor | float
) -> tuple[Tensor | float, Tensor]:
    """The weighted sum of the rows' losses and its gradient, for callers that fuse the layer below.

    The gradient may take the memory of `logits`. `row_weight` is 1, or (N, 1) on an accelerator.

    >>> value, gradient = value_and_gradient_(torch.zeros(1, 2), torch.tensor([0]), 0.0, 1.0)
    >>> gradient
    tensor([[-0.5000,  0.5000]])
    """
    if isinstance(row_weight, Tensor) or kernels_for(logits) is None or not _is_plain(logits, labels):
        shares, total, terms = _row_terms(logits, labels, row_weight)
        value, slope, _ = _value_and_slope(terms, gamma, row_weight)
        loss = _finish(value, row_weight, True, wide_dtype(logits.device))
        return loss, _gradient_(shares, total, slope * row_weight, labels).to(logits.dtype)
    rows, classes = _kernel_rows(logits.detach()), _kernel_labels(labels)
    used = _kernel_gamma(gamma, rows, classes, _NO_LABEL)
    return _call(rows, classes, used, _NO_LABEL, row_weight, gradient=rows), _in_shape_of(logits, rows)


def to_rows(values: Tensor) -> Tensor:
    """(N, K) of anything with classes in dimension 1, or of a single row."""
    if values.dim() == 2:
        return values
    return values.unsqueeze(0) if values.dim() == 1 else values.movedim(1, -1).reshape(-1, values.shape[1])


# The definition in torch.


def _defined(
    logits: Tensor, labels: Tensor, gamma: Gamma, weight: Tensor | None, ignore_index: int, reduction: Reduction
) -> Tensor:
    rows, classes = to_rows(logits), labels.reshape(-1).long()
    if may_read_values() and logits.is_cpu:
        require_label_range(labels, rows.shape[1], ignore_index)
    keep = classes != ignore_index
    classes = torch.where(keep, classes, 0)
    row_weight = _row_weight(classes, weight, keep, reduction)
    if may_read_values():
        losses: Tensor = _DefinedLoss.apply(rows, classes, gamma, row_weight, reduction != "none")
    else:  # being traced: leave differentiation to torch
        losses = _differentiable(rows, classes, gamma, row_weight, reduction != "none")
    return losses.reshape(labels.shape) if reduction == "none" else losses


def _row_weight(classes: Tensor, weight: Tensor | None, keep: Tensor, reduction: Reduction) -> Tensor:
    """What each row's loss is multiplied by, (N, 1)."""
    wide = wide_dtype(classes.device)
    rows = keep.to(wide) if weight is None else weight[classes] * keep
    if reduction == "mean":
        rows = rows / rows.sum().clamp_min(torch.finfo(wide).tiny)  # all ignored: 0 / tiny = 0
    return rows.unsqueeze(1)


def _differentiable(logits: Tensor, labels: Tensor, gamma: Gamma, row_weight: Tensor, summed: bool) -> Tensor:
    """The loss as autograd can differentiate it, to any order."""
    odds = torch.where(row_weight == 0, 0.0, log_odds(unify_masks(logits), labels))  # an ignored label may be masked
    gamma = _gamma_at(gamma, torch.sigmoid(odds.detach()))
    return _finish(focal_of_log_odds(odds, gamma), row_weight, summed, logits.dtype)


def _finish(value: Tensor, row_weight: Tensor | float, summed: bool, dtype: torch.dtype) -> Tensor:
    """The weighted rows, summed or not, as a loss of logits of that dtype.

    A finite loss stays finite: at most the largest number of the dtype. Infinity is that of a masked label.
    Weights come before the sum, so that a mean of huge losses stays finite.
    """
    dtype = torch.promote_types(dtype, torch.float32)
    rows = value * row_weight
    loss = rows.sum() if summed else rows.squeeze(1)
    return torch.where(torch.isinf(loss), loss, loss.clamp(max=_LARGEST[dtype])).to(dtype)


_Terms: TypeAlias = tuple[Tensor, Tensor, Tensor]  # -log p, p and 1 - p of the label, (N, 1) each


def _row_terms(logits: Tensor, labels: Tensor, row_weight: Tensor | float) -> tuple[Tensor, Tensor, _Terms]:
    """Values (N, K) in fresh memory, proportional to the other classes' probabilities, their sums, and the terms."""
    if logits.is_cpu and may_read_values():
        require_labels_left(logits, labels, (row_weight != 0).squeeze(1) if isinstance(row_weight, Tensor) else None)
    wide, index = wide_dtype(logits.device), labels.unsqueeze(1)
    true = finite_or_nan(logits.gather(1, index).to(wide))
    shares = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True).scatter_(1, index, float("-inf"))
    best = shares.amax(1, keepdim=True).clamp_min_(_MASK_LIMITS[torch.float32])
    total = shares.sub_(best).exp_().sum(1, keepdim=True).to(wide)  # at least 1, or 0 where no other class is left
    odds = torch.where(true <= mask_limit(logits.dtype), -math.inf, (true - best.to(wide)) - torch.log(total))
    return shares, total.clamp_min_(1.0), from_log_odds(odds)


def _value_and_slope(terms: _Terms, gamma: Gamma, row_weight: Tensor | float) -> tuple[Tensor, Tensor, float | Tensor]:
    """`focal_value_and_slope` of the rows, 0 in rows of weight 0, and the gammas that were used."""
    used = _gamma_at(gamma, terms[1])
    value, slope = focal_value_and_slope(*terms, used)
    if isinstance(row_weight, Tensor):  # a label that is ignored may be masked: 0 times infinity is no number
        value, slope = (torch.where(row_weight == 0, 0.0, column) for column in (value, slope))
    return value, slope, used


def _gamma_at(gamma: Gamma, p: Tensor) -> float | Tensor:
    """The gamma of rows with these p (N, 1): one number, or one for each row."""
    used = gamma(p) if callable(gamma) else gamma
    if not isinstance(used, Tensor) or used.numel() == 1:
        return used
    _require_gamma_for_each(used, len(p))
    return used.reshape(p.shape)


def _require_gamma_for_each(gamma: Tensor, rows: int) -> None:
    if gamma.numel() != rows:
        raise InputError(f"gamma: must have one value per row, {rows}; got {gamma.numel()}.")


def _gradient_(shares: Tensor, total: Tensor, slope: Tensor, labels: Tensor) -> Tensor:
    """slope * (o - onehot), in the memory of `shares`."""
    share, at_label = (column.to(shares.dtype) for column in (slope / total, -slope))
    return shares.mul_(share).scatter_(1, labels.unsqueeze(1), at_label)


class _DefinedLoss(torch.autograd.Function):
    """The definition with the closed-form gradient, which keeps one (N, K) tensor instead of autograd's five."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, gamma: Gamma, row_weight: Tensor, summed: bool) -> Tensor:
        shares, total, terms = _row_terms(logits.detach(), labels, row_weight)
        value, slope, ctx.gamma = _value_and_slope(terms, gamma, row_weight)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, labels)
            ctx.shares, ctx.total, ctx.slope, ctx.row_weight, ctx.summed = shares, total, slope, row_weight, summed
        return _finish(value, row_weight, summed, logits.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
            value = _differentiable(logits, labels, ctx.gamma, ctx.row_weight, ctx.summed)
            return torch.autograd.grad(value, logits, grad, create_graph=True)[0], None, None, None, None
        shares, ctx.shares = ctx.shares, None  # used up in place; a second backward pass makes it anew
        if shares is None:
            shares = _row_terms(logits.detach(), labels, ctx.row_weight)[0]
        slope = ctx.slope * ctx.row_weight * (grad if ctx.summed else grad.unsqueeze(1))
        return _gradient_(shares, ctx.total, slope, labels), None, None, None, None


# The way to the compiled kernel.

_NO_LABEL = -(1 << 63)  # an ignore_index that no label has


class _GammaSteps(NamedTuple):
    """A gamma for each of B bins of p, in float64 on the CPU; of the B + 1 edges the outer two are not read."""

    edges: Tensor
    values: Tensor

    def __call__(self, p: Tensor) -> Tensor:
        found: Tensor = lookup(p, self.edges, self.values)
        return found


_KernelGamma: TypeAlias = "float | Tensor | _GammaSteps"


def _is_plain(logits: Tensor, labels: Tensor) -> bool:
    """Whether memory can be read through addresses: no subclass of tensors, no negative view, labels on the CPU."""
    return type(logits) in _PLAIN and type(labels) in _PLAIN and labels.is_cpu and not logits.is_neg()


_PLAIN = (Tensor, torch.nn.Parameter)


def _kernel_rows(logits: Tensor) -> Tensor:
    """The logits as (N, K) or (N, K, d) in a layout that the kernel reads; a copy only where there is no other way."""
    classes, step = logits.shape[1], logits.stride(1)
    if logits.dim() == 2:
        return logits if step == 1 or classes <= _MOST_CLASSES else logits.contiguous()
    return to_rows(logits).contiguous() if step == 1 or classes > _MOST_CLASSES else logits.flatten(2)


def _in_shape_of(logits: Tensor, rows: Tensor) -> Tensor:
    """What was computed for `_kernel_rows(logits)`, in the shape of the logits."""
    shape = logits.shape
    if len(shape) == rows.dim() == 2:
        return rows
    return rows.view(shape) if rows.dim() == 3 else rows.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)


def _kernel_labels(labels: Tensor) -> Tensor:
    plain = labels.dim() == 1 and labels.dtype is torch.int64 and labels.is_contiguous()
    return labels if plain else labels.reshape(-1).long().contiguous()


def _kernel_gamma(gamma: Gamma, rows: Tensor, labels: Tensor, ignore_index: int) -> _KernelGamma:
    """The gamma in a form that the kernel knows; a callable that is no step function is given p."""
    if isinstance(gamma, float):
        return gamma
    steps: Callable[[], tuple[Tensor, Tensor] | None] | None = getattr(gamma, "steps", None)
    if steps is not None and (table := steps()) is not None:
        edges, values = table
        if edges.dtype is values.dtype is torch.float64 and edges.is_cpu and values.is_cpu:
            return _GammaSteps(edges.contiguous(), values.contiguous())
    if callable(gamma):
        p = torch.empty(labels.shape, dtype=torch.float64)
        _call(rows, labels, 0.0, ignore_index, p=p)
        gamma = gamma(p)
    if not isinstance(gamma, Tensor) or gamma.numel() == 1:
        return float(gamma)
    _require_gamma_for_each(gamma, labels.numel())
    return gamma.detach().to("cpu", torch.float64).reshape(-1).contiguous()


def _steps(values: Tensor) -> tuple[int, ...]:
    """How far apart in memory values (N, K) or (N, K, d) are along N, K and d; rows (N, K) are taken as (1, K, N)."""
    step = values.stride()
    return step if len(step) == 3 else (0, step[1], step[0])


def _call(
    rows: Tensor,
    labels: Tensor,
    gamma: _KernelGamma,
    ignore_index: int,
    scale: float = 1.0,
    mean: bool = False,
    weight: Tensor | None = None,
    row_weight: Tensor | None = None,
    gradient: Tensor | None = None,
    values: Tensor | None = None,
    p: Tensor | None = None,
) -> float:
    """Call the kernel with addresses; the weighted sum or mean of the rows."""
    shape, step, dtype = rows.shape, _steps(rows), rows.dtype
    inner, classes = (shape[0] if len(shape) == 2 else shape[2]), shape[1]
    outer = 1 if len(shape) == 2 else shape[0]
    number, row_gamma, edges, num_edges, gammas = 0.0, 0, 0, 0, 0
    if isinstance(gamma, float):
        number = gamma
    elif isinstance(gamma, Tensor):
        row_gamma = gamma.data_ptr()
    else:  # the inner edges only
        edges, num_edges, gammas = gamma.edges.data_ptr() + 8, len(gamma.values) - 1, gamma.values.data_ptr()
    kernels = kernels_for(rows)
    assert kernels is not None
    total, masked = kernels.focal_loss(
        rows.data_ptr(),
        TYPES[dtype],
        outer,
        classes,
        inner,
        *step,
        len(shape) == 2 and step[1] == 1 and classes >= _MANY_CLASSES,
        *((0, 0, 0, 0) if gradient is None else (gradient.data_ptr(), *_steps(gradient))),
        labels.data_ptr(),
        ignore_index,
        scale,
        mean,
        0 if weight is None else weight.data_ptr(),
        0 if row_weight is None else row_weight.data_ptr(),
        number,
        row_gamma,
        edges,
        num_edges,
        gammas,
        _MASK_LIMITS[dtype],
        0 if values is None else values.data_ptr(),
        0 if p is None else p.data_ptr(),
        threads_for(outer * classes * inner),
    )
    if masked >= 0:
        raise MaskedLabelError(masked, int(labels[masked]))
    result: float = total
    return result


def _compiled(
    logits: Tensor,
    labels: Tensor,
    gamma: Gamma,
    weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    with_gradient: bool = False,
) -> tuple[Tensor, Tensor | None, _KernelGamma]:
    """The loss, its gradient in the shape of `_kernel_rows` if it is wanted now, and the gamma that was used."""
    rows, classes = _kernel_rows(logits), _kernel_labels(labels)
    used = _kernel_gamma(gamma, rows, classes, ignore_index)
    dtype = torch.float64 if logits.dtype is torch.float64 else torch.float32
    if reduction == "none":
        values = torch.empty(labels.shape, dtype=dtype)
        _call(rows, classes, used, ignore_index, weight=weight, values=values)
        return values, None, used
    gradient = torch.empty_like(rows) if with_gradient else None
    total = _call(rows, classes, used, ignore_index, 1.0, reduction == "mean", weight, None, gradient)
    return torch.scalar_tensor(min(total, _LARGEST[dtype]), dtype=dtype), gradient, used


class _CompiledLoss(torch.autograd.Function):
    """Autograd's view of the kernel: the gradient of a sum or mean is computed together with its value."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        gamma: Gamma,
        weight: Tensor | None,
        ignore_index: int,
        reduction: Reduction,
    ) -> Tensor:
        # The gradient of a mean is too small for float16 before a gradient scaler has multiplied it: not at once.
        at_once = logits.dtype in _LARGEST and reduction != "none"
        loss, gradient, used = _compiled(logits, labels, gamma, weight, ignore_index, reduction, at_once)
        ctx.gradient = None if gradient is None else _in_shape_of(logits, gradient)
        ctx.options = used if isinstance(used, float) else None, ignore_index, reduction
        held = () if isinstance(used, float) else (used,) if isinstance(used, Tensor) else used
        ctx.save_for_backward(logits, labels, weight, *held)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None  # given away; a second backward pass makes it anew
        if torch.is_grad_enabled():  # create_graph=True: a gradient that can be differentiated again
            result = _differentiable_gradient(ctx, grad)
        elif gradient is None:
            result = _late_gradient(ctx, grad)
        else:
            factor = grad.item()
            result = gradient if factor == 1.0 else gradient.mul_(factor)
        return result, None, None, None, None, None


def _saved(ctx: Any) -> tuple[Tensor, Tensor, Tensor | None, _KernelGamma, int, Reduction]:
    logits, labels, weight, *held = ctx.saved_tensors
    gamma, ignore_index, reduction = ctx.options
    gamma = gamma if not held else held[0] if len(held) == 1 else _GammaSteps(*held)
    return logits, labels, weight, gamma, ignore_index, reduction


def _late_gradient(ctx: Any, grad: Tensor) -> Tensor:
    """The gradient in a pass of its own: of rows that are not summed, in half precision, or for the second time."""
    logits, labels, weight, gamma, ignore_index, reduction = _saved(ctx)
    rows, classes = _kernel_rows(logits.detach()), _kernel_labels(labels)
    gradient = torch.empty_like(rows)
    if reduction == "none":
        row_weight = grad.detach().double().reshape(-1).contiguous()
        _call(rows, classes, gamma, ignore_index, weight=weight, row_weight=row_weight, gradient=gradient)
    else:
        _call(rows, classes, gamma, ignore_index, grad.item(), reduction == "mean", weight, None, gradient)
    return _in_shape_of(logits, gradient)


def _differentiable_gradient(ctx: Any, grad: Tensor) -> Tensor:
    logits, labels, weight, gamma, ignore_index, reduction = _saved(ctx)
    classes = labels.reshape(-1).long()
    keep = classes != ignore_index
    classes = torch.where(keep, classes, 0)
    row_weight = _row_weight(classes, weight, keep, reduction)
    rule: Gamma = gamma  # type: ignore[assignment]  # mypy takes a NamedTuple for no callable
    value = _differentiable(to_rows(logits), classes, rule, row_weight, reduction != "none")
    return torch.autograd.grad(value, logits, grad.reshape(value.shape), create_graph=True)[0]
