"""Gamma policies: which gamma a sample gets, from its probability or from the progress of training."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn

from focalcal.core.checks import Kept, require, require_finite
from focalcal.core.focal import INVERSE_FOCAL_LIMIT, gamma_star, lookup
from focalcal.errors import InputError

__all__ = ["ScheduledGamma", "StepGamma"]

# mukhoti2020 (App. E) trains for 350 epochs and changes gamma after 100 and 250 of them.
_PAPER_EPOCHS = 350
_PAPER_MILESTONES = (100, 250)


@final
class StepGamma(nn.Module):
    r"""A gamma for each interval of the true class's probability: FLSD-53, FLSD-532 and their kin.

    where `gammas[k]` holds for p in $[t_{k-1}, t_k)$, the `thresholds` t being increasing, with 0 and 1 at the ends. p
    is read as it is: the choice of gamma carries no gradient.

    Source: [mukhoti2020, Sec. 5.1 and App. E].

    >>> StepGamma(thresholds=[0.2], gammas=[5.0, 3.0])(torch.tensor([0.1, 0.2, 0.9]))  # FLSD-53
    tensor([5., 3., 3.])
    """

    def __init__(self, thresholds: Sequence[float], gammas: Sequence[float]) -> None:
        super().__init__()
        self.thresholds, self.gammas = tuple(map(float, thresholds)), tuple(map(float, gammas))
        rising = all(a < b for a, b in zip((0.0, *self.thresholds), (*self.thresholds, 1.0), strict=True))
        require(rising, "thresholds", "must rise strictly between 0 and 1", self.thresholds)
        require(
            len(self.gammas) == len(self.thresholds) + 1,
            "gammas",
            "must be one more than thresholds",
            f"{len(self.gammas)} and {len(self.thresholds)}",
        )
        for gamma in self.gammas:
            check_gamma(gamma)
        edges = torch.tensor((0.0, *self.thresholds, 1.0), dtype=torch.float64)
        self._steps = edges, torch.tensor(self.gammas, dtype=torch.float64)

    @classmethod
    def lambert(cls, p0: Sequence[float] = (0.2, 0.25)) -> StepGamma:
        r"""A policy from Prop. 2 of mukhoti2020: gamma*(p0[k]) up to each p0[k], the last one from there on.

        The default is FLSD-53 before its gammas were rounded.

        >>> StepGamma.lambert([0.2, 0.25])(torch.tensor([0.1, 0.9], dtype=torch.float64))
        tensor([4.8506, 3.0702], dtype=torch.float64)
        """
        return cls(thresholds=list(p0)[:-1], gammas=[gamma_star(p) for p in p0])

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, p: Kept) -> Kept:
            """What `forward` gives."""
            ...

    def forward(self, p: Any) -> Any:
        """The gamma of each probability, in the shape of `p`, a tensor or an array."""
        if isinstance(p, np.ndarray):
            return lookup(p, *self._steps)
        gamma = torch.full_like(p, self.gammas[-1])
        for threshold, value in zip(reversed(self.thresholds), reversed(self.gammas[:-1]), strict=True):
            gamma = gamma.masked_fill_(p < threshold, value)
        return gamma

    def steps(self) -> tuple[Tensor, Tensor]:
        """The edges of p, 0 and 1 among them, and the gamma between each two; in float64 on the CPU."""
        return self._steps

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"thresholds={self.thresholds}, gammas={self.gammas}"


@final
class ScheduledGamma(nn.Module):
    r"""A gamma for each stage of training: FLSc-531 and FLSc-532.

    where `gammas[k]` holds from `milestones[k-1]` to `milestones[k]` epochs. Call `set_epoch` at the start of every
    epoch; with `total_epochs` the milestones stretch to that length of training.

    Source: [mukhoti2020, App. E]: 5 for 100 epochs, 3 for 150, then 2 or 1 for 100.

    >>> schedule = ScheduledGamma([5.0, 3.0, 1.0])
    >>> [(schedule.set_epoch(epoch), schedule.gamma)[1] for epoch in (0, 99, 100, 250)]
    [5.0, 5.0, 3.0, 1.0]
    >>> [(schedule.set_epoch(epoch, total_epochs=7), schedule.gamma)[1] for epoch in range(7)]
    [5.0, 5.0, 3.0, 3.0, 3.0, 1.0, 1.0]
    """

    def __init__(
        self,
        gammas: Sequence[float],
        milestones: Sequence[float] = _PAPER_MILESTONES,
        length: float = _PAPER_EPOCHS,
    ) -> None:
        super().__init__()
        self.gammas, self.milestones, self.length = (
            tuple(map(float, gammas)),
            tuple(milestones),
            float(length),
        )
        rising = all(a < b for a, b in zip((0, *self.milestones), (*self.milestones, length), strict=True))
        require(rising, "milestones", f"must rise strictly between 0 and length={length}", self.milestones)
        require(
            len(self.gammas) == len(self.milestones) + 1,
            "gammas",
            "must be one more than milestones",
            f"{len(self.gammas)} and {len(self.milestones)}",
        )
        for gamma in self.gammas:
            check_gamma(gamma)
        self.gamma = self.gammas[0]

    def set_epoch(self, epoch: float, total_epochs: float | None = None) -> None:
        """Choose the gamma of an epoch, counted from 0 (fractions of an epoch are welcome)."""
        require(epoch >= 0, "epoch", "must not be negative", epoch, "The first epoch is 0.")
        if total_epochs is not None:
            require(total_epochs > 0, "total_epochs", "must be positive", total_epochs)
            epoch = epoch * self.length / total_epochs
        # A hair of tolerance, so that 2 of 7 epochs is 100 of 350 whatever the division rounds to.
        self.gamma = self.gammas[sum(epoch >= milestone - 1e-9 for milestone in self.milestones)]

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, p: Tensor) -> Tensor:
            """What `forward` gives."""
            ...

    def forward(self, p: Tensor) -> Tensor:
        """The current gamma, in the shape of `p`."""
        return torch.full_like(p, self.gamma)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"gammas={self.gammas}, milestones={self.milestones}, length={self.length}, now {self.gamma}"


GammaPolicy: TypeAlias = "StepGamma | ScheduledGamma"
GammaLike: TypeAlias = "float | str | Tensor | nn.Module"


def named_policy(name: str) -> GammaPolicy:
    """The policy that a paper gives a name to.

    >>> named_policy("flsd-53")
    StepGamma(thresholds=(0.2,), gammas=(5.0, 3.0))
    """
    match name.lower():
        case "flsd-53":
            return StepGamma([0.2], [5.0, 3.0])
        case "flsd-532":
            return StepGamma([0.2, 0.5], [5.0, 3.0, 2.0])
        case "flsc-531":
            return ScheduledGamma([5.0, 3.0, 1.0])
        case "flsc-532":
            return ScheduledGamma([5.0, 3.0, 2.0])
    raise InputError(
        f"gamma: must be a number, a policy or one of flsd-53, flsd-532, flsc-531, flsc-532; got {name!r}."
    )


def resolve_gamma(gamma: GammaLike) -> float | nn.Module:
    """A number or a policy from what a loss accepts: a number, the name of a policy, or a policy.

    >>> resolve_gamma(3), resolve_gamma("flsd-53")
    (3.0, StepGamma(thresholds=(0.2,), gammas=(5.0, 3.0)))
    """
    if isinstance(gamma, str):
        return named_policy(gamma)
    if isinstance(gamma, nn.Module):
        return gamma
    require(isinstance(gamma, (int, float, Tensor)), "gamma", "must be a number, a name or a policy", repr(gamma))
    check_gamma(float(gamma))
    return float(gamma)


class ScheduledByEpoch:
    """A loss whose `gamma` may be a `ScheduledGamma`."""

    gamma: float | nn.Module | None

    def set_epoch(self, epoch: float, total_epochs: float | None = None) -> None:
        """Tell a scheduled gamma (FLSc) which epoch begins, from 0; other gammas have nothing to do."""
        if isinstance(self.gamma, ScheduledGamma):
            self.gamma.set_epoch(epoch, total_epochs)


def check_gamma(gamma: float) -> None:
    """Refuse a gamma that is no number, and warn of one that makes the gradient point the wrong way.

    >>> check_gamma(float("nan"))
    Traceback (most recent call last):
    focalcal.errors.InputError: gamma: must be finite; got nan.
    """
    require(math.isfinite(gamma), "gamma", "must be finite", gamma)
    if gamma < -INVERSE_FOCAL_LIMIT:
        warnings.warn(
            f"gamma={gamma:g}: inverse focal loss with |gamma| above {INVERSE_FOCAL_LIMIT:.2f} has a gradient of the "
            "wrong sign for p around 0.28 (ghosh2022 stays above -2).",
            stacklevel=3,
        )


def check_gamma_tensor(gamma: Tensor) -> None:
    """`check_gamma` for a gamma per class, at construction (reads the tensor)."""
    require(gamma.is_floating_point(), "gamma", "must be floating point", gamma.dtype)
    require(gamma.dim() == 1, "gamma", "as a tensor must hold one value per class, shape (K,)", tuple(gamma.shape))
    require_finite(gamma, "gamma")
    check_gamma(float(gamma.min()))
