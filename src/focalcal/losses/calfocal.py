"""CalFocal: gamma straight from the calibration error of a validation bin, without memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, equal_width_edges
from focalcal.losses.focal import LossOptions
from focalcal.losses.validation_bins import WARN_AFTER, ValidationBinsLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["CalFocalLoss"]


@final
class CalFocalLoss(ValidationBinsLoss):
    r"""CalFocal, the stepping stone to AdaFocal.

    $$ \gamma_n = e^{\lambda (p_n - A_b)} \quad \text{(per sample, Eq. 2)}, \qquad
       \gamma_b = e^{\lambda (C_b - A_b)} \quad \text{(per bin, Eq. 3)} $$

    where $b$ is the validation bin in which $p_n$, the probability of the true class, lies, $A_b$ its accuracy and
    $C_b$ its mean confidence. Before the first `update` every bin counts as calibrated: accuracy and confidence are its
    centre, so that gamma is 1 (Eq. 3) or near it (Eq. 2). Gamma carries no gradient.

    Args:
        lam: $\lambda$.
        per_sample: Eq. 2 instead of Eq. 3.
        num_bins: equal-mass validation bins.
        warn_after: as in `AdaFocalLoss`: training steps after which a loss that was never updated warns, once.
        options: weight, ignore_index, label_smoothing, reduction, validate, as in `focal_loss`.

    Source: [ghosh2022, Eq. 2 and 3].

    >>> loss = CalFocalLoss(lam=2.0, num_bins=1)
    >>> loss.update(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0]))  # accuracy 0.5
    >>> loss.gamma_at(torch.tensor([0.3], dtype=torch.float64))  # exp(2 (0.917 - 0.5))
    tensor([2.3011], dtype=torch.float64)
    """

    confidence: Tensor
    accuracy: Tensor
    settings = (*ValidationBinsLoss.settings, "per_sample")

    def __init__(
        self,
        lam: float = 10.0,
        per_sample: bool = False,
        *,
        num_bins: int = 15,
        warn_after: int | None = WARN_AFTER,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(num_bins, lam, warn_after, **options)
        self.per_sample = per_sample
        edges = equal_width_edges(num_bins)
        self.register_buffer("confidence", (edges[1:] + edges[:-1]) / 2)
        self.register_buffer("accuracy", (edges[1:] + edges[:-1]) / 2)

    def gamma_at(self, p: Any) -> Any:
        """The gamma of a training sample whose true class has probability `p`, for a tensor or an array of them."""
        confidence = p if self.per_sample else self.at(p, self.confidence)
        exp = torch.exp if isinstance(p, Tensor) else np.exp
        return exp(self.lam * (confidence - self.at(p, self.accuracy)))

    def steps(self) -> tuple[Tensor, Tensor] | None:
        """The edges of the bins and the gamma of each, or None if every sample has its own."""
        if self.per_sample:
            return None
        return self.edges, torch.exp(self.lam * (self.confidence - self.accuracy))

    def _learn(self, bins: Bins) -> Tensor:
        self.confidence.copy_(bins.confidence)
        self.accuracy.copy_(bins.accuracy)
        return torch.exp(self.lam * bins.gap)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"lam={self.lam}, per_sample={self.per_sample}, num_bins={self.num_bins}"
