"""Brier loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

from focalcal.core.checks import (
    may_read_values,
    require_label_range,
    require_labels,
    require_logits,
    require_reduction,
)
from focalcal.core.masking import is_masked, unify_masks
from focalcal.kernels.focal_loss import Reduction, to_rows
from focalcal.losses.focal import batch_shape, require_classes_left, require_targets_left

__all__ = ["BrierLoss", "brier_loss"]


def brier_loss(logits: Tensor, labels: Tensor, *, ignore_index: int = -100, reduction: Reduction = "mean") -> Tensor:
    r"""The squared distance between the softmax and the target.

    $$ \mathrm{Brier} = \sum_k (p_k - q_k)^2 $$

    where $p$ is the softmax of `logits` (N, K) or (N, K, d1, ...) and $q$ the one-hot `labels` (N, ...), or soft
    targets of the logits' shape. Classes may be masked: `focalcal.core.masking` has the rules.

    Source: [brier1950]; a baseline of [mukhoti2020, Sec. 5.1].

    >>> brier_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    tensor(0.5000)
    """
    require_logits(logits)
    require_reduction(reduction)
    classes_at = 0 if logits.dim() == 1 else 1
    logits = unify_masks(logits)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if require_labels(labels, logits):
        probs = torch.softmax(wide, classes_at)
        require_targets_left(to_rows(labels), is_masked(to_rows(logits)), batch_shape(logits))
        squares = ((probs - labels) ** 2).sum(classes_at)
        keep = torch.ones_like(squares)
    else:
        if logits.device.type == "cpu" and may_read_values():
            require_label_range(labels, logits.shape[classes_at], ignore_index)
            require_classes_left(to_rows(logits), labels, labels.reshape(-1) != ignore_index)
        counted = labels != ignore_index
        # Of an ignored row every class may be masked, and softmax has no value there.
        probs = torch.softmax(torch.where(counted.unsqueeze(classes_at), wide, 0.0), classes_at)
        keep = counted.to(probs.dtype)
        classes = torch.where(labels == ignore_index, 0, labels).long().unsqueeze(classes_at)
        # 1 - p of the true class as the sum of the others: exact however sure the row is
        others = probs.scatter(classes_at, classes, 0.0)
        squares = ((others**2).sum(classes_at) + others.sum(classes_at) ** 2) * keep
    if reduction == "mean":
        return squares.sum() / keep.sum().clamp_min(1)
    return squares.sum() if reduction == "sum" else squares


@final
class BrierLoss(nn.Module):
    """`brier_loss` as a module.

    >>> BrierLoss()(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    tensor(0.5000)
    """

    def __init__(self, *, ignore_index: int = -100, reduction: Reduction = "mean") -> None:
        super().__init__()
        require_reduction(reduction)
        self.ignore_index = ignore_index
        self.reduction: Reduction = reduction

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
            """What `forward` gives."""
            ...

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch."""
        return brier_loss(logits, labels, ignore_index=self.ignore_index, reduction=self.reduction)
