"""Derivatives of the focal temperature family against high precision, and the points that Newton's method ends at."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch

from focalcal.calibrators.fit_data import data_of_arrays
from focalcal.calibrators.search import Criterion, FamilyPoint
from focalcal.calibrators.search.newton import Derivatives, criterion_derivatives, minimize

CRITERIA = [Criterion("nll"), Criterion("brier"), Criterion("focal", 2.0), Criterion("focal", 0.5)]


def exact_value(row, label, gamma, log_inverse, criterion):
    """One row's criterion from the definitions, in mpmath."""
    scaled = [mpmath.exp(log_inverse) * mpmath.mpf(x) for x in row]
    top = max(scaled)
    shares = [mpmath.exp(x - top) for x in scaled]
    q = [share / sum(shares) for share in shares]
    rest = [sum(other for j, other in enumerate(q) if j != i) for i in range(len(q))]  # 1 - q

    def h(v, not_v):
        return v / (not_v**gamma - gamma * not_v ** (gamma - 1) * v * mpmath.log(v))

    values = [h(v, not_v) for v, not_v in zip(q, rest, strict=True)]
    p = [value / sum(values) for value in values]
    if criterion.name == "brier":
        return sum((value - (i == label)) ** 2 for i, value in enumerate(p))
    nll = -mpmath.log(p[label])
    return nll if criterion.gamma is None else (1 - p[label]) ** criterion.gamma * nll


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: f"{c.name}-{c.gamma}")
@pytest.mark.parametrize("point", [(0.0, 0.0), (1.5, -0.5), (-0.7, 0.4), (8.0, 0.3)])
@pytest.mark.parametrize("row", [[1.0, 0.2, -0.5], [9.0, -9.0, 2.0], [0.3, 0.3]])
def test_derivatives_equal_those_of_sixty_digits(criterion, point, row):
    logits, labels = torch.tensor([row, row], dtype=torch.float64), [0, len(row) - 1]
    got = criterion_derivatives(data_of_arrays(logits, labels, "logits", None), criterion, *point)
    with mpmath.workdps(60):

        def mean(gamma, log_inverse):
            return sum(exact_value(row, label, gamma, log_inverse, criterion) for label in labels) / 2

        def partial(*order):
            return float(mpmath.diff(mean, tuple(map(mpmath.mpf, point)), order))

        assert got.value == pytest.approx(float(mean(*map(mpmath.mpf, point))), rel=1e-12)
        np.testing.assert_allclose(got.gradient, [partial(1, 0), partial(0, 1)], rtol=1e-9, atol=1e-12)
        hessian = [[partial(2, 0), partial(1, 1)], [partial(1, 1), partial(0, 2)]]
        np.testing.assert_allclose(got.hessian, hessian, rtol=1e-8, atol=1e-11)


def test_derivatives_are_finite_where_probabilities_underflow():
    logits = torch.tensor([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0], [-1e4, 5e3, 5e3]], dtype=torch.float64)
    data = data_of_arrays(logits, [2, 1, 0], "logits", None)
    for criterion in CRITERIA:
        for gamma in (-0.9, 0.0, 20.0):
            got = criterion_derivatives(data, criterion, gamma, 2.0)
            assert math.isfinite(got.value)
            assert np.isfinite(got.gradient).all()
            assert np.isfinite(got.hessian).all()


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: f"{c.name}-{c.gamma}")
@pytest.mark.parametrize("gamma", [0.0, 1.5])
@pytest.mark.parametrize("free", [(0,), (1,)], ids=["gamma", "temperature"])
def test_derivatives_by_one_parameter_are_a_part_of_those_by_both(criterion, gamma, free):
    logits = 3 * torch.randn(200, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits[:50, 3] = -math.inf  # masked
    weight = np.linspace(0.5, 2, 200)
    data = data_of_arrays(logits, np.arange(200) % 3, "logits", weight)
    both, one = (criterion_derivatives(data, criterion, gamma, 0.3, free=some) for some in ((0, 1), free))
    kept = np.isin([0, 1], free)
    assert one.value == pytest.approx(both.value, rel=1e-12)
    np.testing.assert_allclose(one.gradient, np.where(kept, both.gradient, 0), rtol=0, atol=1e-10)
    np.testing.assert_allclose(one.hessian, np.where(np.outer(kept, kept), both.hessian, 0), rtol=0, atol=1e-10)


def quadratic(matrix, centre):
    def read(gamma, log_inverse):
        away = np.array([gamma, log_inverse]) - centre
        return Derivatives(float(away @ matrix @ away) / 2, matrix @ away, matrix)

    return read


def test_a_quadratic_is_solved_at_once_and_a_bound_is_respected():
    matrix = np.array([[2.0, 0.3], [0.3, 1.0]])
    inside = minimize(quadratic(matrix, np.array([0.5, 0.3])), FamilyPoint(0.0, 1.0), temperature_bounds=(0.01, 100))
    assert (inside.point.gamma, inside.point.temperature) == (pytest.approx(0.5), pytest.approx(math.exp(-0.3)))
    assert inside.converged
    assert not inside.at_boundary
    outside = minimize(quadratic(matrix, np.array([30.0, 0.3])), FamilyPoint(0.0, 1.0), temperature_bounds=(0.01, 100))
    assert outside.point.gamma == 20
    assert outside.at_boundary
    assert outside.converged
    # At the bound the other parameter is still optimal: its slope is 0.
    assert matrix[1] @ (np.array([20.0, -math.log(outside.point.temperature)]) - [30.0, 0.3]) == pytest.approx(
        0, abs=1e-9
    )


def test_a_fixed_parameter_stays():
    found = minimize(
        quadratic(np.eye(2), np.array([2.0, 1.0])),
        FamilyPoint(0.0, 1.0),
        gamma_bounds=(0.0, 0.0),
        temperature_bounds=(0.01, 100),
    )
    assert found.point.gamma == 0
    assert found.point.temperature == pytest.approx(math.exp(-1))
    assert not found.at_boundary


def test_a_saddle_is_left_downhill():
    """x^2 - y^2 + y^4: from beside the saddle at 0 to one of the minima at y^2 = 1/2."""

    def read(x, y):
        return Derivatives(x * x - y * y + y**4, np.array([2 * x, 4 * y**3 - 2 * y]), np.diag([2.0, 12 * y * y - 2]))

    found = minimize(read, FamilyPoint(0.5, math.exp(-0.01)), temperature_bounds=(0.01, 100))
    assert found.point.gamma == pytest.approx(0, abs=1e-9)
    assert math.log(found.point.temperature) ** 2 == pytest.approx(0.5)
    assert found.value == pytest.approx(-0.25)
