from __future__ import annotations

import torch
from torch.testing import assert_close

from focalcal.core.root_finding import solve_increasing


def test_many_roots_are_found_at_once_from_bad_starts():
    targets = torch.linspace(-20, 20, 41, dtype=torch.float64)
    wide = torch.full_like(targets, 1e4)

    def steep(x):  # Newton alone overshoots: the slope is tiny far from 0
        return torch.atan(x) * 100 + x - targets, 100 / (1 + x**2) + 1

    roots = solve_increasing(steep, -wide, wide, wide)
    assert_close(steep(roots)[0], torch.zeros_like(roots), rtol=0, atol=1e-11)


def test_a_root_on_the_edge_of_the_bracket_is_returned():
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert solve_increasing(lambda x: (x - 1, torch.ones_like(x)), zero, one, zero).item() == 1


def test_a_root_that_is_found_is_not_looked_for_again():
    """All roots take as many steps as the slowest one alone."""
    targets, calls = torch.linspace(1, 7, 40, dtype=torch.float64), []

    def steps(targets):
        def function(x):
            calls.append(len(x))
            return x + torch.exp(x) + torch.sin(3 * x) / 4 - targets, 1 + torch.exp(x) + 0.75 * torch.cos(3 * x)

        calls.clear()
        bound = torch.full_like(targets, 3.0)
        solve_increasing(function, -bound, bound, 0 * bound)
        return len(calls)

    assert steps(targets) == max(steps(target.view(1)) for target in targets)
