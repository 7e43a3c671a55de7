from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

import focalcal.core.focal_loss as rows_module
from focalcal.core.focal_loss import all_log_odds, focal_rows, log_odds, rows_value_and_gradient
from tests import oracles

GAMMAS = [-2.0, -0.7, 0.0, 0.4, 1.0, 3.0, 20.0]
SCALES = [1.0, 30.0, 1e4]


def random_rows(dtype, scale, num=40, classes=5):
    generator = torch.Generator().manual_seed(int(scale))
    logits = torch.randn(num, classes, generator=generator, dtype=torch.float64) * scale
    return logits.to(dtype), torch.randint(0, classes, (num,), generator=generator)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_every_row_agrees_with_mpmath(dtype, tolerance, scale, gamma):
    logits, labels = random_rows(dtype, scale)
    values = focal_rows(logits, labels, gamma, summed=False)
    assert torch.isfinite(values).all()
    least = 1e-300 if dtype is torch.float64 else torch.finfo(dtype).tiny
    for row, label, value in zip(logits.tolist(), labels.tolist(), values.tolist(), strict=True):
        assert oracles.relative_error(value, oracles.loss(row, label, gamma), least) <= tolerance


@pytest.mark.parametrize("rest", [1e-1, 1e-5, 1e-12, 2.0**-53, 1e-30, 1e-200])
@pytest.mark.parametrize("gamma", [-2.0, 0.0, 0.5, 1.0])
def test_losses_near_certainty_keep_all_their_digits(rest, gamma):
    """1 - p would cancel; the loss of p = 1 - 1e-200 is still right."""
    logits = torch.tensor([[0.0, rest]], dtype=torch.float64)
    logits[0, 1].log_()
    value = focal_rows(logits, torch.tensor([0]), gamma, summed=False).item()
    assert oracles.relative_error(value, oracles.loss(logits[0].tolist(), 0, gamma), 1e-300) <= 1e-12


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 3e-6)])
def test_gradient_agrees_with_mpmath(dtype, tolerance, gamma):
    logits, labels = random_rows(dtype, 5.0, num=15)
    logits.requires_grad_()
    focal_rows(logits, labels, gamma).backward()
    for row, label, got in zip(logits.tolist(), labels.tolist(), logits.grad.tolist(), strict=True):
        for value, exact in zip(got, oracles.gradient(row, label, gamma), strict=True):
            assert oracles.relative_error(value, exact, 1e-30) <= tolerance


@pytest.mark.parametrize("size", [6e35, 1e30, 1e4])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_loss_and_gradient_are_finite_for_every_finite_input(size, gamma):
    logits = torch.tensor([[size, -size, 0.0], [-size, size, 0.0], [0.0, 0.0, size]], requires_grad=True)
    loss = focal_rows(logits, torch.tensor([0, 0, 1]), gamma, row_weight=1 / 3)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("shape", [(70, 1000), (9, 50_000), (5, 1_000_000)])
def test_the_blocked_way_equals_the_exact_one(shape, monkeypatch):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(shape, generator=generator) * 5
    labels = torch.randint(0, shape[1], shape[:1], generator=generator)
    logits[0, labels[0]] = 20  # a sure row
    logits[1, labels[1]] = -200  # float32 underflow: this row must be done again
    results = []
    for small in (1 << 16, 1 << 40):
        monkeypatch.setattr(rows_module, "_SMALL", small)
        x = logits.clone().requires_grad_()
        values = focal_rows(x, labels, 3.0, summed=False)
        values.sum().backward()
        results.append((values.detach(), x.grad))
    assert_close(results[0][0], results[1][0], rtol=3e-6, atol=0)
    assert_close(results[0][1], results[1][1], rtol=2e-5, atol=1e-10)
    assert results[1][0][1] > 200


def test_adding_a_constant_to_a_row_changes_nothing():
    logits, labels = random_rows(torch.float64, 3.0)
    assert_close(focal_rows(logits + 1000, labels, 2.0), focal_rows(logits, labels, 2.0), rtol=1e-12, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 2.0, -1.0])
def test_first_and_second_derivatives_pass_gradcheck(gamma):
    logits, labels = random_rows(torch.float64, 2.0, num=4)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: focal_rows(x, labels, gamma, summed=False), logits)
    assert torch.autograd.gradgradcheck(lambda x: focal_rows(x, labels, gamma), logits)


def test_a_second_backward_pass_through_a_retained_graph_gives_the_same_gradient():
    logits, labels = random_rows(torch.float32, 2.0)
    logits.requires_grad_()
    loss = focal_rows(logits, labels, 3.0)
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (second,) = torch.autograd.grad(loss, logits)
    assert torch.equal(first, second)


def test_the_input_is_never_modified():
    logits, labels = random_rows(torch.float64, 2.0)
    before = logits.clone()
    logits.requires_grad_()
    focal_rows(logits, labels, 3.0).backward()
    assert torch.equal(logits.detach(), before)


def test_log_odds_of_all_classes_are_those_of_each_class():
    logits, _ = random_rows(torch.float64, 8.0)
    every = all_log_odds(logits)
    for k in range(logits.shape[1]):
        assert_close(every[:, k : k + 1], log_odds(logits, torch.full((len(logits),), k)), rtol=1e-13, atol=1e-13)
    assert_close(torch.sigmoid(every), torch.softmax(logits, 1), rtol=1e-13, atol=0)


def test_value_and_gradient_for_fused_layers_are_those_of_autograd():
    logits, labels = random_rows(torch.float32, 2.0)
    value, gradient = rows_value_and_gradient(logits, labels, 0.0, 1 / len(labels))
    x = logits.clone().requires_grad_()
    F.cross_entropy(x, labels).backward()
    assert_close(value.float(), F.cross_entropy(logits, labels))
    assert_close(gradient, x.grad)
