"""Means and covariances of what a linear calibrator reads, and the coordinates in which its fit is well conditioned."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from focalcal.calibrators.data import Block
from focalcal.core.focal import wide_dtype

# What varies by less than so many roundings is constant.
_ROUNDINGS = 16.0


class Moments:
    """Mean (K,) and covariances (K, K), or only variances (K,), of weighted rows (n, K) that come in blocks.

    >>> moments = Moments()
    >>> moments.add(torch.tensor([[1.0], [3.0]], dtype=torch.float64), torch.ones(2, dtype=torch.float64), 1e-7)
    >>> moments.mean, moments.covariance
    (tensor([2.], dtype=torch.float64), tensor([[1.]], dtype=torch.float64))
    """

    def __init__(self, full: bool = True) -> None:
        self.full, self.mass, self.epsilon = full, 0.0, 0.0
        self.mean = self._scatter = torch.zeros((), dtype=torch.float64)

    def add(self, x: Tensor, weight: Tensor, epsilon: float) -> None:
        """More rows of relative rounding `epsilon`; summed about the mean of their block, so that nothing cancels."""
        mass = float(weight.sum())
        mean = (weight @ x) / mass
        about = x - mean
        scatter = about.T @ (about * weight.unsqueeze(1)) if self.full else weight @ about.square()
        mean, scatter = (part.to("cpu", torch.float64) for part in (mean, scatter))
        apart, share = mean - self.mean, mass / (self.mass + mass)
        product = torch.outer(apart, apart) if self.full else apart.square()
        self._scatter = self._scatter + scatter + product * (self.mass * share)
        self.mean = self.mean + apart * share
        self.mass, self.epsilon = self.mass + mass, max(self.epsilon, epsilon)

    def part(self, columns: Sequence[int], *, centred: bool = True) -> Moments:
        """Those of some columns; about 0 instead of the mean unless `centred`."""
        chosen, part = list(columns), Moments()
        part.mass, part.epsilon = self.mass, self.epsilon
        part.mean, part._scatter = self.mean[chosen], self._scatter[chosen][:, chosen]
        if not centred:
            part._scatter = part._scatter + self.mass * torch.outer(part.mean, part.mean)
            part.mean = torch.zeros_like(part.mean)
        return part

    @property
    def covariance(self) -> Tensor:
        """Covariances, or variances."""
        return self._scatter / self.mass

    @property
    def scale(self) -> Tensor:
        """1 / standard deviation of each column, 0 for those that are constant up to their rounding."""
        variance = self.covariance.diagonal() if self.full else self.covariance
        return torch.where(variance.sqrt() > self._rounding(variance), variance.rsqrt(), 0.0)

    def directions(self, bend: float = 0.0) -> Tensor:
        """Directions (K, r) along which the rows have variance 1 and no correlation; constant ones are left out.

        They are shorter where that makes their variance plus `bend` times their squared length 1.
        """
        covariance, scale = self.covariance, self.scale
        variance, axes = torch.linalg.eigh(scale.unsqueeze(1) * covariance * scale)
        rounding = float((self._rounding(covariance.diagonal()) * scale).max()) if len(scale) else 0.0
        # The correlations themselves are right to about K roundings of float64.
        least = max(rounding**2, _ROUNDINGS * len(scale) * torch.finfo(torch.float64).eps)
        directions, variance = (scale.unsqueeze(1) * axes)[:, variance > least], variance[variance > least]
        return torch.div(directions, (variance + bend * directions.square().sum(0)).sqrt())

    def _rounding(self, variance: Tensor) -> Tensor:
        return torch.hypot(self.mean, variance.sqrt()).mul(_ROUNDINGS * self.epsilon)


def row_weights(block: Block) -> Tensor:
    """The weights (n,) of the rows, 1 where there are none."""
    wide = wide_dtype(block.logits.device)
    return block.weight if block.weight is not None else torch.ones_like(block.labels, dtype=wide)
