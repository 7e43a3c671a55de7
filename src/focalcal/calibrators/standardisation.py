"""Means and covariances of the inputs of a linear calibrator, and coordinates in which its fit is well conditioned."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

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
        """Add rows of relative rounding `epsilon`, summed about the mean of their block, so that nothing cancels."""
        more = Moments(self.full)
        more.mass, more.epsilon = float(weight.sum()), epsilon
        if not more.mass:
            return
        mean = (weight @ x) / more.mass
        about = x - mean
        scatter = about.T @ (about * weight.unsqueeze(1)) if self.full else weight @ about.square()
        more.mean, more._scatter = (part.to("cpu", torch.float64) for part in (mean, scatter))
        self.__dict__.update((self.merge(more) if self.mass else more).__dict__)

    def merge(self, other: Moments) -> Moments:
        """The moments of the rows of both."""
        if not (self.mass and other.mass):
            return self if self.mass else other
        merged = Moments(self.full)
        merged.mass, merged.epsilon = self.mass + other.mass, max(self.epsilon, other.epsilon)
        apart, share = other.mean - self.mean, other.mass / merged.mass
        product = torch.outer(apart, apart) if self.full else apart.square()
        merged._scatter = self._scatter + other._scatter + product * (self.mass * share)
        merged.mean = self.mean + apart * share
        return merged

    def part(self, columns: Sequence[int], *, centred: bool = True) -> Moments:
        """The moments of some columns; about 0 instead of the mean unless `centred`."""
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


def merged_moments(one: tuple[Moments, float], other: tuple[Moments, float]) -> tuple[Moments, float]:
    """The moments of the rows of both, and the sum of the numbers beside them."""
    return one[0].merge(other[0]), one[1] + other[1]
