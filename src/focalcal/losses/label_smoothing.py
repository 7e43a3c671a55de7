"""Cross-entropy with smoothed labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

from focalcal.core.checks import (
    may_read_values,
    require,
    require_label_range,
    require_labels,
    require_logits,
    require_reduction,
)
from focalcal.core.masking import is_masked, unify_masks
from focalcal.kernels.focal_loss import Reduction, to_rows
from focalcal.losses.focal import batch_shape, require_classes_left

__all__ = ["LabelSmoothingLoss"]


@final
class LabelSmoothingLoss(nn.Module):
    r"""Cross-entropy against $s_i = (1-\alpha)\, q_i + \alpha (1-q_i)/(K-1)$.

    where $q$ is the one-hot label: the true class keeps $1-\alpha$, the others share $\alpha$. torch's own smoothing
    takes $\alpha/K$ from a uniform mixture instead, so its parameter is $\alpha K/(K-1)$ for the same targets. Where
    classes are masked (`focalcal.core.masking`), K is the number of those that are left; a label that is left alone
    keeps all.

    Source: [mukhoti2020, Sec. 5.1], with $\alpha$ = 0.05.

    >>> import torch
    >>> LabelSmoothingLoss(alpha=0.05)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.2269)
    """

    weight: Tensor | None

    def __init__(
        self,
        alpha: float = 0.05,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        require(0 <= alpha <= 0.5, "alpha", "must lie in [0, 0.5]", alpha, "The paper uses 0.05.")
        require_reduction(reduction)
        self.register_buffer("weight", weight)
        self.alpha, self.ignore_index = alpha, ignore_index
        self.reduction: Reduction = reduction

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
            """What `forward` gives."""
            ...

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch; shapes as in `torch.nn.functional.cross_entropy`."""
        require_logits(logits)
        soft = require_labels(labels, logits)
        require(not soft, "labels", "must be class numbers", labels.dtype, "Soft labels need no smoothing.")
        num_classes = logits.shape[0] if logits.dim() == 1 else logits.shape[1]
        classes = labels.reshape(-1).long()
        keep = classes != self.ignore_index
        rows = to_rows(logits)
        if logits.device.type == "cpu" and may_read_values():
            require_label_range(labels, num_classes, self.ignore_index)
            require_classes_left(rows, labels, keep)
        classes = torch.where(keep, classes, 0)
        losses, counted = self._rows(unify_masks(rows), classes, keep)
        if self.reduction == "none":
            return losses.reshape(batch_shape(logits))
        return losses.sum() / counted if self.reduction == "mean" else losses.sum()

    def _rows(self, rows: Tensor, classes: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each row of logits (n, K), and the weight that a mean divides by, as torch has it."""
        dtype = torch.promote_types(rows.dtype, torch.float32)
        rows, index = torch.where(keep.unsqueeze(1), rows.to(dtype), 0.0), classes.unsqueeze(1)
        left, log_probs = ~is_masked(rows), torch.log_softmax(rows, 1)
        of_others = torch.where(left, log_probs, 0.0).scatter(1, index, 0.0)
        of_others = of_others.sum(1) if self.weight is None else of_others @ self.weight.to(dtype)
        others = left.sum(1) - 1
        alpha = self.alpha * (others > 0).to(dtype)
        own = torch.where(left, log_probs, -math.inf).gather(1, index).squeeze(1)
        weight = keep.to(dtype) if self.weight is None else self.weight.to(dtype)[classes] * keep
        losses = (1 - alpha) * weight * own + alpha / others.clamp_min(1) * of_others * keep
        return -losses, weight.sum().clamp_min(torch.finfo(dtype).tiny)
