"""AdaFocal: a gamma per validation bin that grows where the model is too sure and falls where it is not sure enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from focalcal.core.binning import Bins
from focalcal.core.checks import require
from focalcal.losses.focal import LossOptions
from focalcal.losses.gamma import check_gamma
from focalcal.losses.validation_bins import WARN_AFTER, ValidationBinsLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["AdaFocalLoss"]


def next_gamma(gamma: Tensor, gap: Tensor, *, lam: float, switch_at: float, bounds: tuple[float, float]) -> Tensor:
    r"""One step of AdaFocal for each bin.

    $$ \gamma_b \leftarrow \gamma_b\, e^{\pm\lambda (C_b - A_b)} \qquad (+ \text{ if } \gamma_b \ge 0) $$

    then clipped to `bounds` and, where $|\gamma_b|$ has fallen below `switch_at` ($S_{th}$), set to $S_{th}$ of the
    other sign: from focal to inverse focal loss or back. `gap` is $C_b - A_b$, `lam` is $\lambda$.

    Source: [ghosh2022, Eq. 4 and Algorithm 1, lines 16-23].

    >>> gamma = torch.tensor([1.0, 0.21, -0.21, -1.0])
    >>> next_gamma(gamma, torch.tensor([0.1, -0.1, 0.1, 0.1]), lam=1.0, switch_at=0.2, bounds=(-2.0, 20.0))
    tensor([ 1.1052, -0.2000,  0.2000, -0.9048])
    """
    sign = (gamma >= 0).to(gamma) * 2 - 1
    stepped = (gamma * torch.exp(sign * lam * gap)).clamp(*bounds)
    return torch.where(stepped.abs() < switch_at, -sign * switch_at, stepped)


@final
class AdaFocalLoss(ValidationBinsLoss):
    r"""AdaFocal: focal loss whose gammas follow the calibration of validation bins.

    $$ \mathcal{L} = -(1-p)^{\gamma_b} \log p \text{ if } \gamma_b \ge 0, \text{ else } -(1+p)^{|\gamma_b|} \log p $$

    where $b$ is the validation bin in which $p$, the probability of the true class, lies. Call `update` once per epoch
    (or every n batches) with validation logits and labels; the step is `next_gamma`.

    Args:
        num_bins: equal-mass validation bins.
        lam: $\lambda$, how fast gamma reacts.
        gamma_init: where all gammas start.
        gamma_max: their upper bound.
        gamma_min: their lower bound.
        switch_at: $S_{th}$, the size of gamma below which focal and inverse focal loss are exchanged.
        warn_after: training steps (calls with gradients enabled) after which a loss that was never updated warns, once.
            It does not know how long an epoch is: `len(train_loader)` tells it, None keeps it quiet, and 500 is a
            little more than an epoch of CIFAR-10 in batches of 128.
        options: weight, ignore_index, label_smoothing, reduction, validate, as in `focal_loss`.

    Source: [ghosh2022, Eq. 5 and Algorithm 1]. Differs: a p exactly on an edge belongs to the bin above it, as in the
    released code; the least confident validation row counts, as it does not in the
    released code, and a bin of zero width (tied confidences) learns from the rows at its value.

    >>> loss = AdaFocalLoss(num_bins=2)
    >>> loss.update(torch.tensor([[2.0, 0.0], [0.5, 0.0], [0.0, 3.0], [0.0, 0.1]]), torch.tensor([0, 1, 0, 1]))
    >>> loss.gamma
    tensor([1.0095, 2.5924], dtype=torch.float64)
    """

    gamma: Tensor
    settings = (*ValidationBinsLoss.settings, "gamma_init", "gamma_max", "gamma_min", "switch_at")

    def __init__(
        self,
        num_bins: int = 15,
        lam: float = 1.0,
        gamma_init: float = 1.0,
        gamma_max: float = 20.0,
        gamma_min: float = -2.0,
        switch_at: float = 0.2,
        *,
        warn_after: int | None = WARN_AFTER,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(num_bins, lam, warn_after, **options)
        require(
            gamma_min < 0 < gamma_max,
            "gamma_min, gamma_max",
            "must lie on both sides of 0",
            (gamma_min, gamma_max),
        )
        require(gamma_min <= gamma_init <= gamma_max, "gamma_init", "must lie between the bounds", gamma_init)
        limit = min(gamma_max, -gamma_min)
        require(0 < switch_at <= limit, "switch_at", f"must lie in (0, {limit}], inside the bounds", switch_at)
        check_gamma(gamma_min)
        self.gamma_init, self.gamma_max, self.gamma_min, self.switch_at = (
            gamma_init,
            gamma_max,
            gamma_min,
            switch_at,
        )
        self.register_buffer("gamma", torch.full((num_bins,), float(gamma_init), dtype=torch.float64))

    def gamma_at(self, p: Any) -> Any:
        """The gamma of a training sample whose true class has probability `p`, for a tensor or an array of them."""
        return self.at(p, self.gamma)

    def steps(self) -> tuple[Tensor, Tensor]:
        """The edges of the bins and the gamma of each."""
        return self.edges, self.gamma

    def _learn(self, bins: Bins) -> Tensor:
        gamma = next_gamma(
            self.gamma.cpu(),
            bins.gap,
            lam=self.lam,
            switch_at=self.switch_at,
            bounds=(self.gamma_min, self.gamma_max),
        )
        self.gamma.copy_(gamma)
        return gamma

    def extra_repr(self) -> str:
        """What `print` shows."""
        return (
            f"num_bins={self.num_bins}, lam={self.lam}, gamma={self.gamma_min}..{self.gamma_max}, "
            f"switch_at={self.switch_at}, updates={len(self._history)}"
        )
