"""Focal loss of one score per answer: binary and multi-label problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

from focalcal.core.checks import may_read_values, require, require_reduction
from focalcal.core.focal import Gamma, focal_elementwise, wide_dtype
from focalcal.core.masking import is_masked, require_values, unify_masks
from focalcal.errors import InputError
from focalcal.kernels.focal_loss import Reduction
from focalcal.losses.gamma import GammaLike, ScheduledByEpoch, resolve_gamma

__all__ = ["BinaryFocalLoss", "sigmoid_focal_loss"]


def sigmoid_focal_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: Gamma = 2.0,
    alpha: float | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    validate: bool = False,
) -> Tensor:
    r"""Focal loss of a sigmoid: $-q (1-p)^\gamma \log p - (1-q)\, p^\gamma \log(1-p)$.

    where $p$ is the sigmoid of `logits` (any shape) and $q$ are the `labels`, 0 or 1 or in between, of the same shape.
    `gamma` is a number, a tensor that broadcasts, or a function of the probability of the true answer; negative means
    inverse focal loss. `alpha` weighs positives by alpha and negatives by 1 - alpha; `weight` multiplies each loss. A
    masked logit (`focalcal.core.masking`), such as -inf, says that the answer cannot be positive: its loss is 0, and a
    label above 0 is an error, or an infinite loss in compiled code and on accelerators.

    Source: [lin2017, Eq. 4 and 5]. Differs: `reduction` is the mean unless told otherwise.

    >>> sigmoid_focal_loss(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]), gamma=2.0)
    tensor(0.0122)
    """
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise InputError(f"logits: must be a floating-point tensor; got {getattr(logits, 'dtype', type(logits))}.")
    if not isinstance(labels, Tensor) or labels.shape != logits.shape:
        raise InputError(f"labels: must have the logits' shape {tuple(logits.shape)}; got {tuple(labels.shape)}.")
    require(logits.numel() > 0, "logits", "the batch is empty", tuple(logits.shape), "Skip empty batches.")
    require(alpha is None or 0 <= alpha <= 1, "alpha", "must lie in [0, 1]", alpha)
    require_reduction(reduction)
    if validate or (labels.device.type == "cpu" and may_read_values()):
        inside = bool(((labels >= 0) & (labels <= 1)).all())
        require(inside, "labels", "must lie in [0, 1]", f"{labels.min().item()}..{labels.max().item()}")
    if validate:
        require_values(logits, "logits")
    wide = wide_dtype(logits.device)
    odds, targets = unify_masks(logits).to(wide), labels.to(wide)
    _require_possible(odds, targets)
    gamma = gamma.detach().to(odds) if isinstance(gamma, Tensor) else gamma
    positive, negative = (1.0, 1.0) if alpha is None else (alpha, 1 - alpha)
    if labels.is_floating_point():
        # What has no share of the target counts nothing, also where it is impossible: 0 times infinity is no number.
        up = focal_elementwise(torch.where(targets > 0, odds, 0.0), gamma)
        down = focal_elementwise(torch.where(targets < 1, -odds, 0.0), gamma)
        losses = positive * targets * up + negative * (1 - targets) * down
    else:
        sign = 2 * targets - 1
        losses = focal_elementwise(sign * odds, gamma)
        if alpha is not None:
            losses = losses * (positive * targets + negative * (1 - targets))
    if weight is not None:
        losses = losses * weight
    losses = losses.mean() if reduction == "mean" else losses.sum() if reduction == "sum" else losses
    return losses.to(torch.promote_types(logits.dtype, torch.float32))


def _require_possible(odds: Tensor, targets: Tensor) -> None:
    """Refuse a positive label whose logit is masked; on the CPU only, where looking at them costs little."""
    if not (odds.is_cpu and may_read_values()):
        return
    wrong = is_masked(odds) & (targets > 0)
    if bool(wrong.any()):
        place = tuple(wrong.nonzero()[0].tolist())
        raise InputError(
            f"labels: must be 0 where the logit is masked; got {targets[place].item():g} at index {place}. "
            "Unmask the logit, or drop the answer."
        )


@final
class BinaryFocalLoss(ScheduledByEpoch, nn.Module):
    """`sigmoid_focal_loss` as a module, for binary and multi-label problems: swap it for `nn.BCEWithLogitsLoss`.

    `gamma` is a number, the name of a policy, or a policy; `weight` broadcasts against the losses.

    >>> BinaryFocalLoss(gamma=2.0)(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.0122)
    """

    weight: Tensor | None

    def __init__(
        self,
        gamma: GammaLike = 2.0,
        *,
        alpha: float | None = None,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__()
        self.gamma = resolve_gamma(gamma)
        require(alpha is None or 0 <= alpha <= 1, "alpha", "must lie in [0, 1]", alpha)
        require_reduction(reduction)
        self.register_buffer("weight", weight)
        self.alpha, self.validate = alpha, validate
        self.reduction: Reduction = reduction

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
            """What `forward` gives."""
            ...

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch of any shape."""
        return sigmoid_focal_loss(
            logits,
            labels,
            gamma=self.gamma,  # type: ignore[arg-type]  # never None here
            alpha=self.alpha,
            weight=self.weight,
            reduction=self.reduction,
            validate=self.validate,
        )
