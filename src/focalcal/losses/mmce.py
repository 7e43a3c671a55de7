"""MMCE: a kernel measure of calibration error as a regulariser beside any loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from focalcal.core.checks import require, require_labels, require_logits
from focalcal.core.log_odds import log_odds
from focalcal.core.mmce import MMCE_WIDTH, mmce_squared
from focalcal.losses.focal import FocalLoss

__all__ = ["MMCELoss"]


@final
class MMCELoss(nn.Module):
    r"""A base loss plus $\lambda$ times the maximum mean calibration error of the batch.

    $$ \mathcal{L} = \mathrm{base} + \lambda \sqrt{\textstyle\sum_{ij} a_i a_j\, e^{-|r_i - r_j|/w}} $$

    where $r$ is the largest probability of a row, $a_i = (c_i - r_i)/n$ its residual, and in the weighted form n is the
    number of correct or of wrong rows (see `focalcal.core.mmce.mmce_squared`). Costs O(n log n) per batch.

    Args:
        lam: $\lambda$.
        weighted: the weighted form, which mukhoti2020 uses.
        base: the loss to regularise; cross-entropy if none is given.
        width: of the Laplacian kernel.
        ignore_index: labels with this value count nothing. Classes may be masked, as in `focal_loss`.
        batch_scale: multiply the MMCE term by the batch size, as the released code does beside a summed base loss.
        as_released: divide the weighted form by the number of pairs twice, as mukhoti2020's released code does. Its
            $\lambda$ of 2 and 8 belong to this form: by the definition they are so strong that small networks do not
            learn.

    Source: [kumar2018]; a baseline of [mukhoti2020, Sec. 5.1], whose released code drops the root of the form without
    weights, and divides the weighted form by the number of pairs twice.

    >>> MMCELoss(lam=2.0, weighted=False)(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 1]))
    tensor(0.2487)
    """

    def __init__(
        self,
        lam: float = 2.0,
        weighted: bool = True,
        *,
        base: nn.Module | None = None,
        width: float = MMCE_WIDTH,
        ignore_index: int = -100,
        batch_scale: bool = False,
        as_released: bool = False,
    ) -> None:
        super().__init__()
        require(lam >= 0, "lam", "must not be negative", lam)
        require(weighted or not as_released, "as_released", "is a form of the weighted term", as_released)
        require(width > 0, "width", "must be positive", width, "The paper uses 0.4.")
        reduction = "sum" if batch_scale else "mean"
        self.base = FocalLoss(0.0, ignore_index=ignore_index, reduction=reduction) if base is None else base  # type: ignore[arg-type]
        self.lam, self.weighted, self.width = lam, weighted, width
        self.ignore_index, self.batch_scale, self.as_released = ignore_index, batch_scale, as_released

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
            """What `forward` gives."""
            ...

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch."""
        require_logits(logits)
        soft = require_labels(labels, logits)
        require(
            not soft,
            "labels",
            "must be class numbers",
            labels.dtype,
            "MMCE needs to know which rows are right.",
        )
        base: Tensor = self.base(logits, labels)
        return base + self.lam * self.mmce(logits, labels).to(base.dtype)

    def mmce(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The MMCE term alone, without lambda."""
        rows = logits.unsqueeze(0) if logits.dim() == 1 else logits.movedim(1, -1).reshape(-1, logits.shape[1])
        labels = labels.reshape(-1)
        keep = labels != self.ignore_index
        rows, labels = rows[keep], labels[keep]
        if not len(rows):
            return rows.sum()
        predicted = rows.argmax(1)
        odds = log_odds(rows, predicted).squeeze(1)
        # exp(-softplus) instead of sigmoid, whose gradient p (1-p) cancels where the row is sure
        confidence, doubt = torch.exp(-softplus(-odds)), torch.exp(-softplus(odds))
        correct = predicted == labels
        squared = mmce_squared(
            confidence, correct, doubt=doubt, weighted=self.weighted, pairs_twice=self.as_released, width=self.width
        )
        root = torch.sqrt(squared.clamp_min(1e-300))  # the root of 0 has no slope
        return root * len(rows) if self.batch_scale else root

    def extra_repr(self) -> str:
        """What `print` shows."""
        form = ", as_released=True" if self.as_released else ""
        return f"lam={self.lam}, weighted={self.weighted}, width={self.width}{form}"
