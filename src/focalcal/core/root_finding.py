"""Root finding: Newton's method inside a shrinking bracket, for many unknowns at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Bisection alone halves a bracket of 1e4 to its last bit in 66 steps.
_MAX_ITERATIONS = 100
_NEWTON_STEP = 1e-9
_LAST_BIT = 4e-16


def solve_increasing(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    lower: Tensor,
    upper: Tensor,
    start: Tensor,
) -> Tensor:
    """The root of each of many increasing functions, by Newton's method kept inside a shrinking bracket.

    `function` gives values and slopes at a tensor of points, one unknown per entry. A step that leaves its bracket is
    replaced by bisection, so the answer is found however wild the slope; near the root Newton doubles the digits.

    >>> cube = lambda x: (x**3 - 2, 3 * x**2)
    >>> zero, two = torch.zeros(1, dtype=torch.float64), torch.full((1,), 2.0, dtype=torch.float64)
    >>> solve_increasing(cube, zero, two, two)
    tensor([1.2599], dtype=torch.float64)
    """
    x = start.clamp(lower, upper)
    step, done = torch.full_like(x, torch.inf), torch.zeros_like(x, dtype=torch.bool)
    for _ in range(_MAX_ITERATIONS):
        value, slope = function(x)
        lower = torch.where(value < 0, x, lower)
        upper = torch.where(value > 0, x, upper)
        newton = x - value / slope
        # Newton may be trusted while it stays inside and its steps shrink; otherwise it could wander for ever.
        trusted = (newton >= lower) & (newton <= upper) & ((newton - x).abs() <= 0.9 * step)
        proposal = torch.where(trusted, newton, (lower + upper) / 2)
        step = (proposal - x).abs()
        # A Newton step this small leaves an error of its square; a bisection must go down to the last bit.
        small = torch.where(trusted, _NEWTON_STEP, _LAST_BIT) * x.abs().clamp_min(1.0)
        done |= value == 0
        x = torch.where(done, x, proposal)
        done |= step <= small
        if bool(done.all()):
            break
    return x
