"""The convex solver: exact minima, endless descents and linear stretches, with the Hessian written down or applied."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focalcal.core.convex import HessianProduct, PointDerivatives, minimize_convex


def logistic(rows=60, columns=4, seed=0, scale=1.0, labels=None):
    """A logistic regression on standardised features (n, m), read with the Hessian written down."""
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    y = (torch.rand(rows, generator=generator) < 0.5).double() if labels is None else labels(z)

    def read(theta):
        t = z @ theta
        p = torch.sigmoid(t)
        value = -(y * torch.nn.functional.logsigmoid(t) + (1 - y) * torch.nn.functional.logsigmoid(-t)).mean()
        hessian = z.T @ (z * (p * (1 - p) / rows).unsqueeze(1))
        return PointDerivatives(float(value), z.T @ (p - y) / rows, hessian)

    return read


def applied(read, blocks):
    """The same function with a Hessian that is applied, guided by its diagonal blocks."""

    def read_applied(theta):
        local = read(theta)
        count = len(theta) // blocks
        squares = local.hessian.view(blocks, count, blocks, count)
        own = torch.stack([squares[:, k, :, k] for k in range(count)])
        return PointDerivatives(local.value, local.gradient, HessianProduct(local.hessian.mv, own))

    return read_applied


def start(columns=4):
    return torch.zeros(columns, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_vanishes_at_the_minimum(seed):
    read = logistic(seed=seed)
    found = minimize_convex(read, start())
    assert found.converged
    assert not found.at_boundary
    assert float(read(found.point).gradient.abs().max()) < 1e-14
    assert found.value == pytest.approx(read(found.point).value, abs=1e-15)
    assert found.iterations <= 8


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_applying_the_hessian_gives_the_same_minimum(blocks):
    read = logistic()
    found, expected = minimize_convex(applied(read, blocks), start()), minimize_convex(read, start())
    assert found.converged
    torch.testing.assert_close(found.point, expected.point, rtol=0, atol=1e-9)
    assert found.value == pytest.approx(expected.value, abs=1e-14)


@pytest.mark.parametrize("form", [lambda read: read, lambda read: applied(read, 2)])
def test_a_descent_without_end_is_ended_and_said_so(form):
    read = form(logistic(labels=lambda z: (z[:, 0] > 0).double()))
    found = minimize_convex(read, start())
    assert found.at_boundary
    assert not found.converged
    assert found.value < 1e-7
    assert found.value == pytest.approx(read(found.point).value, rel=1e-9)
    assert bool(torch.isfinite(found.point).all())


def test_it_finds_its_way_back_from_where_the_function_does_not_bend():
    read = logistic()
    far = torch.full((4,), 2000.0, dtype=torch.float64)  # all probabilities are 0 or 1 to the last digit
    found, expected = minimize_convex(read, far), minimize_convex(read, start())
    assert read(far).value > 100
    assert found.converged
    torch.testing.assert_close(found.point, expected.point, rtol=0, atol=1e-9)


def test_directions_that_do_not_matter_stay_where_they_are():
    read = logistic(columns=2)

    def flat(theta):  # only the difference of the last two counts
        turn = torch.tensor([[1.0, 0, 0], [0, 1.0, -1.0]], dtype=torch.float64)
        local = read(turn @ theta)
        return PointDerivatives(local.value, turn.T @ local.gradient, turn.T @ local.hessian @ turn)

    found = minimize_convex(flat, start(3))
    assert found.converged
    assert abs(float(found.point[1] + found.point[2])) < 1e-3
    assert found.value == pytest.approx(minimize_convex(read, start(2)).value, abs=1e-15)


def test_a_quadratic_takes_one_step():
    bend = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    target = torch.tensor([3.0, -4.0], dtype=torch.float64)

    def read(x):
        away = x - target
        return PointDerivatives(float(away @ bend @ away) / 2, bend @ away, bend)

    found = minimize_convex(read, start(2))
    assert found.iterations <= 3
    torch.testing.assert_close(found.point, target, rtol=0, atol=1e-12)


def test_at_a_minimum_nothing_is_left_to_do():
    read = logistic()
    found = minimize_convex(read, minimize_convex(read, start()).point)
    assert found.iterations == 1
    assert found.converged


def test_the_value_never_rises():
    values = []
    read = logistic(scale=30.0, seed=3)

    def noted(theta):
        local = read(theta)
        values.append(local.value)
        return local

    found = minimize_convex(noted, start())
    assert found.value <= min(values) + 1e-15
    assert found.value <= values[0]


def test_what_is_not_a_number_is_given_back_as_not_converged():
    def read(x):
        return PointDerivatives(float("nan"), x + np.nan, torch.full((2, 2), np.nan, dtype=torch.float64))

    found = minimize_convex(read, start(2))
    assert not found.converged
    assert torch.equal(found.point, start(2))
