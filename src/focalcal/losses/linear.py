"""Focal loss of a linear layer's outputs that never holds all the logits at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

import torch
from torch import Tensor, nn

from focalcal.core.checks import require, require_label_range
from focalcal.core.focal import Gamma, wide_dtype
from focalcal.core.masking import MaskedLabelError
from focalcal.errors import InputError
from focalcal.kernels.focal_loss import value_and_gradient_
from focalcal.losses.focal import located
from focalcal.losses.gamma import GammaLike, ScheduledByEpoch, resolve_gamma

__all__ = ["LinearFocalLoss"]

# 64 MiB of float32 logits per chunk: smaller ones spend their time rereading the gradient of the weight.
_CHUNK_LOGITS = 1 << 24


class _LinearFocal(torch.autograd.Function):
    """Loss and gradients of `hidden @ weight.T` chunk by chunk; each chunk's logits live for one turn of the loop."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        gamma: Gamma,
        row_weight: Tensor | float,
        scale: Tensor | float,
    ) -> Tensor:
        rows, vocabulary = hidden.shape[0], weight.shape[0]
        step = max(1, _CHUNK_LOGITS // vocabulary)
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        grad_weight = torch.zeros_like(weight) if need_weight else None
        grad_bias = torch.zeros_like(bias) if need_bias and bias is not None else None
        total = torch.zeros((), dtype=wide_dtype(hidden.device), device=hidden.device)
        for start in range(0, rows, step):
            chunk = slice(start, start + step)
            logits = hidden[chunk] @ weight.T if bias is None else torch.addmm(bias, hidden[chunk], weight.T)
            weights = row_weight[chunk] if isinstance(row_weight, Tensor) else row_weight
            try:
                value, gradient = value_and_gradient_(logits, labels[chunk], gamma, weights)
            except MaskedLabelError as error:
                raise MaskedLabelError(start + error.row, error.label) from None
            del logits
            total += value
            if grad_hidden is not None:
                torch.mm(gradient, weight, out=grad_hidden[chunk])
            if grad_weight is not None:
                grad_weight.addmm_(gradient.T, hidden[chunk])
            if grad_bias is not None:
                grad_bias += gradient.sum(0)
            del gradient  # or it would live beside the next chunk's logits
        # A mean is taken at the very end: 1/N here would push float16 gradients under their smallest number.
        ctx.gradients, ctx.scale = (grad_hidden, grad_weight, grad_bias), scale
        return (total * scale).to(torch.promote_types(hidden.dtype, torch.float32))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "LinearFocalLoss has no second derivative: it keeps no logits to differentiate again. "
                "Use FocalLoss on hidden @ weight.T for create_graph=True."
            )
        if ctx.gradients is None:
            raise RuntimeError("LinearFocalLoss can go backward once per forward pass: call it again for another.")
        gradients, ctx.gradients = ctx.gradients, None  # given away, so that no second copy is ever held
        factor = grad * ctx.scale
        scaled = (None if held is None else held.mul_(factor) for held in gradients)
        return (*scaled, None, None, None, None)


@final
class LinearFocalLoss(ScheduledByEpoch, nn.Module):
    r"""Focal loss of `hidden @ weight.T + bias`, for class counts where the logits would not fit in memory.

    The logits are made chunk by chunk and their gradient is turned into those of `hidden` and `weight` at once, so N x
    V numbers are never held, at the arithmetic of the plain way. The math is that of `focal_loss`.

    Args:
        gamma: a number, the name of a policy, or a policy.
        ignore_index: labels with this value count nothing.
        reduction: mean or sum.

    >>> hidden, weight = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    >>> LinearFocalLoss(gamma=2.0)(hidden, weight, torch.tensor([0]))
    tensor(0.0018)
    """

    def __init__(
        self, gamma: GammaLike = 3.0, *, ignore_index: int = -100, reduction: Literal["mean", "sum"] = "mean"
    ) -> None:
        super().__init__()
        require(reduction in ("mean", "sum"), "reduction", "must be mean or sum", repr(reduction))
        self.gamma = resolve_gamma(gamma)
        self.ignore_index, self.reduction = ignore_index, reduction

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None) -> Tensor:
            """What `forward` gives."""
            ...

    def forward(self, hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None) -> Tensor:
        """The loss of `hidden` (..., D) through the layer `weight` (V, D), `bias` (V,), at `labels` (...)."""
        if hidden.shape[-1] != weight.shape[-1] or weight.dim() != 2:
            raise InputError(
                f"weight: must have shape (V, D) with hidden's D = {hidden.shape[-1]}; got {tuple(weight.shape)}."
            )
        if labels.shape != hidden.shape[:-1] or labels.is_floating_point():
            raise InputError(
                f"labels: must be class numbers of shape {tuple(hidden.shape[:-1])}; "
                f"got {labels.dtype} {tuple(labels.shape)}."
            )
        require(weight.shape[0] >= 2, "weight", "needs at least two classes", tuple(weight.shape))
        flat = labels.reshape(-1)
        if flat.device.type == "cpu":
            require_label_range(flat, weight.shape[0], self.ignore_index)
        require(len(flat) > 0, "hidden", "the batch is empty", tuple(hidden.shape), "Skip empty batches.")
        rows, classes = hidden.reshape(-1, hidden.shape[-1]), flat.long()
        keep = classes != self.ignore_index
        row_weight: Tensor | float = 1.0
        count: Tensor | float
        if flat.is_cpu:  # leave the ignored rows out; elsewhere counting them would wait for the device
            if not bool(keep.all()):
                rows, classes = rows[keep], classes[keep]
            count = max(len(classes), 1)
        else:
            classes = torch.where(keep, classes, 0)
            row_weight = keep.to(wide_dtype(flat.device)).unsqueeze(1)
            count = row_weight.sum().clamp_min(1)
        scale = 1 / count if self.reduction == "mean" else 1.0
        # Under autocast the products run in the lower precision, as those of a linear layer do.
        device = rows.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            low = torch.get_autocast_dtype(device)
            rows, weight = rows.to(low), weight.to(low)
            bias = None if bias is None else bias.to(low)
        try:
            result: Tensor = _LinearFocal.apply(rows, weight, bias, classes, self.gamma, row_weight, scale)
        except MaskedLabelError as error:  # its row counts those that are not ignored
            raise located(MaskedLabelError(int(keep.nonzero()[error.row]), error.label), labels.shape) from None
        return result

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"gamma={self.gamma}, reduction={self.reduction!r}"
