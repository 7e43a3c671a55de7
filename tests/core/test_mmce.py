from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from focalcal.core.mmce import laplacian_pair_sum, mmce_squared


def all_pairs(values, coefficients, width=0.4):
    """The definition, O(n^2)."""
    kernel = torch.exp(-(values[:, None] - values[None, :]).abs() / width)
    return coefficients @ kernel @ coefficients


def sample(num=200, ties=False):
    generator = torch.Generator().manual_seed(num)
    values = torch.rand(num, generator=generator, dtype=torch.float64)
    if ties:
        values = (values * 10).round() / 10
    return values, torch.randn(num, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("num", [1, 2, 200])
@pytest.mark.parametrize("ties", [False, True])
def test_sorted_sum_equals_the_sum_over_all_pairs(num, ties):
    values, coefficients = sample(num, ties)
    assert_close(laplacian_pair_sum(values, coefficients), all_pairs(values, coefficients), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_gradients_equal_those_of_the_sum_over_all_pairs(ties):
    values, coefficients = (x.requires_grad_() for x in sample(ties=ties))
    fast = torch.autograd.grad(laplacian_pair_sum(values, coefficients), (values, coefficients))
    slow = torch.autograd.grad(all_pairs(values, coefficients), (values, coefficients))
    assert_close(fast, slow, rtol=1e-10, atol=1e-10)


def test_weighted_form_divides_correct_and_wrong_rows_by_their_own_numbers():
    confidence, _ = sample(50)
    correct = torch.arange(50) % 3 > 0
    m, n = int(correct.sum()), int((~correct).sum())
    kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / 0.4)
    right, wrong = (1 - confidence) * correct, confidence * ~correct
    expected = right @ kernel @ right / m**2 + wrong @ kernel @ wrong / n**2 - 2 * (right @ kernel @ wrong) / (m * n)
    assert_close(mmce_squared(confidence, correct, weighted=True), expected, rtol=1e-12, atol=0)


def test_a_million_rows_take_no_million_squared():
    values, coefficients = sample(1_000_000)
    assert torch.isfinite(laplacian_pair_sum(values, coefficients))
