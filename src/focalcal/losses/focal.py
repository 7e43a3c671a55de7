"""Focal loss, a drop-in for cross-entropy."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypedDict, final

import torch
from torch import Tensor, nn

from focalcal.core.checks import (
    is_plain_batch,
    may_read_values,
    require,
    require_finite,
    require_label_range,
    require_labels,
    require_logits,
    require_reduction,
    require_weight,
)
from focalcal.core.focal import Gamma, focal_elementwise, wide_dtype
from focalcal.core.log_odds import all_log_odds
from focalcal.core.masking import MaskedLabelError, is_masked, require_labels_left, require_scores, unify_masks
from focalcal.errors import InputError
from focalcal.kernels.focal_loss import Reduction, focal_rows, to_rows
from focalcal.losses.gamma import (
    GammaLike,
    ScheduledByEpoch,
    ScheduledGamma,
    check_gamma,
    check_gamma_tensor,
    resolve_gamma,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["FocalLoss", "focal_loss"]


def focal_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: Gamma,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    validate: bool = False,
) -> Tensor:
    r"""Focal loss; inverse focal loss where gamma is negative.

    $$ \mathrm{FL} = -(1 - p_y)^{\gamma} \log p_y, \qquad \mathrm{inverse\ FL} = -(1 + p_y)^{|\gamma|} \log p_y $$

    and for soft targets $q$: $-\sum_y q_y (1 - p_y)^\gamma \log p_y$. $p$ is always the plain softmax of `logits`, and
    gamma 0 is cross-entropy. The gradient by the logits is $g(p_y, \gamma)(p - \mathrm{onehot}(y))$, in closed form.

    Args:
        logits: (N, K), (N, K, d1, ...) or (K,). float16 and bfloat16 are computed in float32. Classes may be masked,
            by -inf or the dtype's lowest number: `focalcal.core.masking` has the rules.
        labels: class numbers (N, ...), or soft targets of the logits' shape.
        gamma: a number, a tensor of the labels' shape (without the class dimension, or with it for soft targets), or a
            function of the true class's probability, such as a policy of `focalcal.losses.gamma`. It gets no gradient.
        weight: (K,) weights of the classes; as in torch, the mean over class numbers divides by the sum of weights.
        ignore_index: labels with this value count nothing (class numbers only).
        label_smoothing: mixes the targets with the uniform distribution, as torch does; of the classes that are not
            masked.
        reduction: mean, sum or none.
        validate: also check values on accelerators, where that waits for the device. Labels on the CPU are
            always checked.

    Source: [lin2017, Eq. 4], [mukhoti2020, Sec. 4 and App. A], [ghosh2022, Eq. 1]. Differs from torch's cross-entropy
    (at gamma 0) in the digits that torch loses near p = 1, and where every label is ignored: the mean is 0, not NaN.

    >>> focal_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), gamma=2.0)
    tensor(0.0018)
    """
    soft = False
    if not is_plain_batch(logits, labels):
        require_logits(logits)
        soft = require_labels(labels, logits)
    require_reduction(reduction)
    if validate:
        require_scores(logits, "logits", min(logits.dim() - 1, 1))
    num_classes = logits.shape[0] if logits.dim() == 1 else logits.shape[1]
    if isinstance(gamma, Tensor):
        gamma = _gamma_rows(gamma, logits, per_class=soft or label_smoothing > 0)
    elif not callable(gamma):
        check_gamma(gamma)
    if weight is not None:
        weight = _class_weight(weight, num_classes, logits)
    if soft or label_smoothing:
        return _soft(logits, labels, gamma, weight, ignore_index, label_smoothing, reduction, validate)
    if validate:
        require_label_range(labels, num_classes, ignore_index)
    if logits.dim() == 1:
        logits, labels = logits.unsqueeze(0), labels.unsqueeze(0)
        reduction = "sum" if reduction == "none" else reduction
    try:
        return focal_rows(logits, labels, gamma, weight=weight, ignore_index=ignore_index, reduction=reduction)
    except MaskedLabelError as error:
        raise located(error, labels.shape) from None


def located(error: MaskedLabelError, shape: torch.Size) -> MaskedLabelError:
    """The error with the place of its row in labels of this shape."""
    place = torch.unravel_index(torch.tensor(error.row), shape) if shape else ()
    return error.at(tuple(int(index) for index in place))


def require_classes_left(rows: Tensor, labels: Tensor, keep: Tensor) -> None:
    """Refuse class numbers of any shape that are masked in their row (n, K), unless they are ignored: not in `keep`."""
    try:
        require_labels_left(rows, torch.where(keep, labels.reshape(-1), 0), keep)
    except MaskedLabelError as error:
        raise located(error, labels.shape) from None


def batch_shape(logits: Tensor) -> torch.Size:
    """The logits' shape without the classes."""
    return logits.shape[:1] + logits.shape[2:] if logits.dim() > 1 else logits.shape[:0]


def _gamma_rows(gamma: Tensor, logits: Tensor, per_class: bool) -> Tensor:
    """A gamma tensor as rows (N, 1), or (N, K) where every class has a target."""
    gamma = gamma.detach().to(logits.device, wide_dtype(logits.device))
    if gamma.dim() == 0:
        return gamma
    if gamma.shape == batch_shape(logits):
        return gamma.reshape(-1, 1)
    if per_class and gamma.shape == logits.shape:
        return to_rows(gamma)
    raise InputError(
        f"gamma: as a tensor must have one value per sample, shape {tuple(batch_shape(logits))}; got "
        f"{tuple(gamma.shape)}. For one value per class give FocalLoss a (K,) tensor, or pass gamma[labels]."
    )


def _class_weight(weight: Tensor, num_classes: int, logits: Tensor) -> Tensor:
    require(weight.shape == (num_classes,), "weight", f"must have shape ({num_classes},)", tuple(weight.shape))
    if weight.device.type == "cpu":
        require_weight(weight)
    return weight.detach().to(logits.device, wide_dtype(logits.device))


def _soft(
    logits: Tensor,
    labels: Tensor,
    gamma: Gamma,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: Reduction,
    validate: bool,
) -> Tensor:
    r"""$-\sum_y q_y (1 - p_y)^\gamma \log p_y$ for soft targets, and for class numbers with label smoothing."""
    if not 0 <= label_smoothing <= 1:
        raise InputError(f"label_smoothing: must lie in [0, 1]; got {label_smoothing}.")
    rows, wide = unify_masks(to_rows(logits)), wide_dtype(logits.device)
    masked = is_masked(rows)
    count: Tensor | float = rows.shape[0]  # what a mean divides by
    if labels.is_floating_point():
        if validate:
            require_finite(labels, "labels")
        targets = to_rows(labels).to(wide)
        scale: Tensor | float = 1.0
    else:
        classes = labels.reshape(-1).long()
        if validate or (logits.device.type == "cpu" and may_read_values()):
            require_label_range(labels, rows.shape[1], ignore_index)
        keep = classes != ignore_index
        classes = torch.where(keep, classes, 0)
        targets = torch.zeros(rows.shape, dtype=wide, device=rows.device).scatter(1, classes.unsqueeze(1), 1.0)
        scale = keep.to(wide).unsqueeze(1)
        counted = scale.squeeze(1) if weight is None else weight[classes] * keep
        count = counted.sum().clamp_min(torch.finfo(wide).tiny)
    targets = ((1 - label_smoothing) * targets + label_smoothing * uniform_over(~masked)) * scale
    require_targets_left(targets, masked, batch_shape(logits))
    if weight is not None:
        targets = targets * weight
    if reduction == "mean":
        targets = targets / count
    # What has no target counts nothing, also where it is impossible: 0 times infinity is no number.
    odds = torch.where(targets == 0, 0.0, all_log_odds(rows))
    losses = (targets * focal_elementwise(odds, gamma)).sum(1)
    losses = losses.reshape(batch_shape(logits)) if reduction == "none" else losses.sum()
    return losses.to(torch.promote_types(logits.dtype, torch.float32))


def uniform_over(allowed: Tensor) -> Tensor:
    """The uniform distribution over the allowed classes of each row (n, K), in float64.

    >>> uniform_over(torch.tensor([[True, False, True]]))
    tensor([[0.5000, 0.0000, 0.5000]], dtype=torch.float64)
    """
    wide = wide_dtype(allowed.device)
    return allowed / allowed.sum(1, keepdim=True).clamp_min(1).to(wide)


def require_targets_left(targets: Tensor, masked: Tensor, shape: torch.Size) -> None:
    """Refuse targets (n, K) that give a masked class a share; on the CPU only, where looking at them costs little."""
    if not (targets.is_cpu and may_read_values()):
        return
    wrong = masked & (targets != 0)
    if bool(wrong.any()):
        row, label = wrong.nonzero()[0].tolist()
        raise located(MaskedLabelError(row, label), shape)


class LossOptions(TypedDict, total=False):
    """The options of `focal_loss` that a module keeps."""

    weight: Tensor | None
    ignore_index: int
    label_smoothing: float
    reduction: Reduction
    validate: bool


class SoftmaxFocalLoss(nn.Module):
    """What the modules of `focal_loss` share: its options. Its subclasses differ in how they choose gamma."""

    weight: Tensor | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the options by name in a signature that takes them as `**options`, for help and tab completion."""
        super().__init_subclass__(**kwargs)
        made = cls.__dict__.get("__init__")
        if made is None:
            return
        signature = inspect.signature(made)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        if len(own) < len(signature.parameters):
            shared = inspect.signature(SoftmaxFocalLoss.__init__).parameters
            left = [each for name, each in shared.items() if name not in signature.parameters]
            options = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in left]
            made.__signature__ = signature.replace(parameters=own + options)

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__()
        require(0 <= label_smoothing <= 1, "label_smoothing", "must lie in [0, 1]", label_smoothing)
        require_reduction(reduction)
        require_weight(weight)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing, self.validate = ignore_index, label_smoothing, validate
        self.reduction: Reduction = reduction

    def _loss(self, logits: Tensor, labels: Tensor, gamma: Gamma) -> Tensor:
        return focal_loss(
            logits,
            labels,
            gamma=gamma,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
            validate=self.validate,
        )


@final
class FocalLoss(ScheduledByEpoch, SoftmaxFocalLoss):
    r"""Focal loss as a module: swap it for `nn.CrossEntropyLoss`. The math is that of `focal_loss`.

    Args:
        gamma: a number; `"flsd-53"`, `"flsd-532"` (by the sample's probability), `"flsc-531"`, `"flsc-532"` (by epoch,
            see `set_epoch`); a policy such as `StepGamma`; or a (K,) tensor with one gamma per class.
        options: weight, ignore_index, label_smoothing, reduction, validate, as in `focal_loss`.

    >>> loss = FocalLoss(gamma="flsd-53")
    >>> loss(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0]))
    tensor(1.1956)
    """

    class_gamma: Tensor | None

    def __init__(self, gamma: GammaLike = 3.0, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        if isinstance(gamma, Tensor) and gamma.dim() > 0:
            check_gamma_tensor(gamma)
            self.register_buffer("class_gamma", gamma)
            self.gamma = None
        else:
            self.register_buffer("class_gamma", None)
            self.gamma = resolve_gamma(gamma)

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, logits: Tensor, labels: Tensor, gamma: float | Tensor | None = None) -> Tensor:
            """What `forward` gives."""
            ...

    def forward(self, logits: Tensor, labels: Tensor, gamma: float | Tensor | None = None) -> Tensor:
        """The loss of a batch; a `gamma` given here holds for this call."""
        return self._loss(logits, labels, self._gamma_of(logits, labels) if gamma is None else gamma)

    def _gamma_of(self, logits: Tensor, labels: Tensor) -> Gamma:
        if isinstance(self.gamma, ScheduledGamma):
            return self.gamma.gamma
        if self.gamma is not None:
            return self.gamma
        require_logits(logits)
        assert self.class_gamma is not None
        num_classes = logits.shape[0] if logits.dim() == 1 else logits.shape[1]
        require(
            len(self.class_gamma) == num_classes,
            "gamma",
            f"must have shape ({num_classes},)",
            len(self.class_gamma),
        )
        if require_labels(labels, logits) or self.label_smoothing:
            return self.class_gamma.reshape(-1, *[1] * (logits.dim() - 2)).expand(logits.shape)
        return self.class_gamma[labels.long().clamp(0, num_classes - 1)]

    def extra_repr(self) -> str:
        """What `print` shows."""
        gamma = "per class" if self.gamma is None else self.gamma
        shown = "" if isinstance(gamma, nn.Module) else f"gamma={gamma}, "
        return f"{shown}reduction={self.reduction!r}"
