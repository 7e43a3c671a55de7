"""Cross-entropy with smoothed labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from torch import Tensor, nn
from torch.nn import functional as F

from focalcal.core.checks import (
    may_read_values,
    require,
    require_label_range,
    require_labels,
    require_logits,
    require_reduction,
)
from focalcal.losses.focal import Reduction

__all__ = ["LabelSmoothingLoss"]


@final
class LabelSmoothingLoss(nn.Module):
    r"""Cross-entropy against $s_i = (1-\alpha)\, q_i + \alpha (1-q_i)/(K-1)$.

    where $q$ is the one-hot label: the true class keeps $1-\alpha$, the others share $\alpha$. torch's own smoothing
    takes $\alpha/K$ from a uniform mixture instead, so its parameter is $\alpha K/(K-1)$ for the same targets.

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
        if logits.device.type == "cpu" and may_read_values():
            require_label_range(labels, num_classes, self.ignore_index)
        return F.cross_entropy(
            logits,
            labels.long(),
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.alpha * num_classes / (num_classes - 1),
        )
