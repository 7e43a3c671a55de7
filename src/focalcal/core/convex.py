r"""Minimise a smooth convex function whose every value costs a pass over the data, by a damped Newton method.

The step solves $(H + \mu I)\, d = -g$. The damping $\mu$ grows where the quadratic promised too much and all but
vanishes where it held, so that the last steps double the digits. Parameters are expected in coordinates in which the
function bends about equally, and at most about 1; where there are too many for a Hessian to be written down, conjugate
gradients apply it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from focalcal.core.optimum import Optimum

# Of the largest entry of a gradient; the coordinates make it a mean of numbers around 1.
_GRADIENT = 1e-12
# The same where each digit costs many passes: of the value it leaves about the square.
_GRADIENT_BY_PASSES = 1e-9
_MAX_STEPS = 100
# Conjugate gradients: passes for one step, and by how much they reduce what is left of the equation.
_MAX_CONJUGATE = 200
_COARSEST, _FINEST = 0.1, 1e-3
# Keeps directions without any bend (a constant added to all logits) at their place and changes no other.
_LEAST_DAMPING = 1e-12
_FIRST_DAMPING = 1e-3
# A value is a sum over rows, right to about this; smaller gains are judged by the gradient.
_ROUNDING = 1e-13
# At a minimum the next step is small, like the gradient; where the function falls as exp(-t) for ever, it is about 1.
_LONG_STEP = 0.05


@dataclass(frozen=True)
class HessianProduct:
    """A Hessian that is too large to be written down: the function that applies it, and an approximation of it.

    The approximation is blocks (B, a, a) on its diagonal, for parameters (a, k): one block for each k, or one for all.
    """

    apply: Callable[[Tensor], Tensor]
    blocks: Tensor

    def rough_inverse(self, damping: float) -> Callable[[Tensor], Tensor]:
        """The function that divides by the blocks."""
        blocks = self.blocks
        size, least = blocks.shape[1], float(blocks.diagonal(dim1=1, dim2=2).max()) * 1e-12
        factor = torch.linalg.cholesky(blocks + max(damping, least) * torch.eye(size, dtype=blocks.dtype))

        def divide(values: Tensor) -> Tensor:
            columns = values.view(size, -1)
            if len(blocks) == 1:
                return torch.cholesky_solve(columns, factor[0]).flatten()
            return torch.cholesky_solve(columns.T.unsqueeze(2), factor).squeeze(2).T.flatten()

        return divide


@dataclass(frozen=True)
class PointDerivatives:
    """The value of a function at a point, its gradient (m,) and its Hessian (m, m)."""

    value: float
    gradient: Tensor
    hessian: Tensor | HessianProduct


def minimize_convex(read: Callable[[Tensor], PointDerivatives], start: Tensor) -> Optimum[Tensor]:
    """The minimum of a convex function that `read` gives with its derivatives; the value never rises on the way.

    `at_boundary` says that the function goes on falling, ever more slowly, to infinity.

    >>> def read(x):  # exp(x) - 2 x
    ...     return PointDerivatives(float(x.exp() - 2 * x), x.exp() - 2, x.exp()[None])
    >>> minimize_convex(read, torch.zeros(1, dtype=torch.float64)).point
    tensor([0.6931], dtype=torch.float64)
    """
    point, here, damping = start, read(start), _LEAST_DAMPING
    if not math.isfinite(here.value):  # the data must have changed since they were checked
        return Optimum(point, here.value, 0, False, False)
    enough = _GRADIENT if isinstance(here.hessian, Tensor) else _GRADIENT_BY_PASSES
    for steps in range(1, _MAX_STEPS + 1):
        step, damping = _step(here, damping)
        largest = float(here.gradient.abs().max())
        if largest <= enough:
            return _ended(point, here, steps, step)
        # The step satisfies H d = -g - mu d, so the quadratic falls by (|g d| + mu d d) / 2.
        promised = float(damping * step.dot(step) - here.gradient.dot(step)) / 2
        there = read(point + step)
        if promised > _ROUNDING * max(1.0, abs(here.value)):
            kept = (here.value - there.value) / promised
        elif float(there.gradient.abs().max()) < largest:
            kept = 1.0
        else:
            return _ended(point, here, steps, step)
        if kept > 1e-4:
            point, here = point + step, there
        if not kept > 0.25:
            damping = max(4 * damping, _FIRST_DAMPING)
        elif kept > 0.9:
            damping = max(damping / 10, _LEAST_DAMPING)
    return Optimum(point, here.value, steps, False, float(step.abs().max()) > _LONG_STEP)


def _ended(point: Tensor, here: PointDerivatives, steps: int, step: Tensor) -> Optimum[Tensor]:
    endless = float(step.abs().max()) > _LONG_STEP
    # Of a minimum the step, which is known, gives the last digits.
    return Optimum(point if endless else point + step, here.value, steps, not endless, endless)


def _step(here: PointDerivatives, damping: float) -> tuple[Tensor, float]:
    """The damped Newton step, and the damping that it took to make the Hessian positive definite."""
    if isinstance(here.hessian, HessianProduct):
        return _conjugate(here.hessian, here.gradient, damping), damping
    diagonal = torch.eye(len(here.gradient), dtype=here.gradient.dtype)
    while True:
        factor, failed = torch.linalg.cholesky_ex(here.hessian + damping * diagonal)
        if not int(failed):
            return -torch.cholesky_solve(here.gradient.unsqueeze(1), factor).squeeze(1), damping
        damping *= 10


def _conjugate(hessian: HessianProduct, gradient: Tensor, damping: float) -> Tensor:
    """The same step by conjugate gradients: coarse far from the minimum, fine near it, so that few passes are lost."""
    divide = hessian.rough_inverse(damping)
    step, rest = torch.zeros_like(gradient), -gradient
    direction = divided = divide(rest)
    square = float(rest.dot(divided))
    target = square * min(max(square**0.25, _FINEST), _COARSEST) ** 2
    for _ in range(_MAX_CONJUGATE):
        if square <= target:
            break
        bent = hessian.apply(direction) + damping * direction
        length = square / float(direction.dot(bent))
        step, rest = step + length * direction, rest - length * bent
        divided, before = divide(rest), square
        square = float(rest.dot(divided))
        direction = divided + square / before * direction
    return step
