from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.testing import assert_close

import focalcal as fc
from focalcal.core.focal import (
    INVERSE_FOCAL_LIMIT,
    focal_elementwise,
    focal_of_log_odds,
    focal_value_and_slope,
    from_log_odds,
)
from tests import oracles

PROBABILITIES = st.one_of(st.floats(1e-30, 1 - 2**-53), st.floats(2**-53, 1e-3).map(lambda rest: 1 - rest))
GAMMAS = st.floats(-2, 20)


@given(p=PROBABILITIES, gamma=GAMMAS)
def test_gradient_ratio_agrees_with_mpmath_in_float64(p, gamma):
    exact = oracles.gradient_ratio(p, gamma)
    assert oracles.relative_error(float(fc.gradient_ratio(p, gamma)), exact, 2.3e-308) <= 1e-12


@given(p=PROBABILITIES.map(np.float32).filter(lambda p: 0 < p < 1), gamma=GAMMAS)
def test_gradient_ratio_agrees_with_mpmath_in_float32(p, gamma):
    value = fc.gradient_ratio(torch.tensor(p), gamma)
    assert value.dtype == torch.float32
    assert oracles.relative_error(value.item(), oracles.gradient_ratio(float(p), gamma), 1.2e-38) <= 2e-6


@pytest.mark.parametrize("gamma", [0.3, 1.0, 3.0, 20.0])
def test_gradient_ratio_takes_its_limits_at_both_ends(gamma):
    assert_close(fc.gradient_ratio([0.0, 1.0], gamma), torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert_close(fc.gradient_ratio([0.0, 1.0], -gamma), torch.tensor([1.0, 2.0**gamma], dtype=torch.float64))


def test_gradient_ratio_of_gamma_zero_is_exactly_one_everywhere():
    assert (fc.gradient_ratio(torch.linspace(0, 1, 101, dtype=torch.float64), 0.0) == 1).all()


@pytest.mark.parametrize("gamma", [-1.5, 0.0, 0.5, 3.0])
def test_gradient_ratio_can_be_differentiated(gamma):
    p = torch.linspace(0.05, 0.95, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: fc.gradient_ratio(x, gamma), p)


def test_gradient_ratio_gives_back_the_kind_of_array_it_was_given():
    array = fc.gradient_ratio(np.array([0.25], dtype=np.float32), 3.0)
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float32
    assert fc.gradient_ratio(torch.tensor([0.25]), torch.tensor([3.0])).dtype == torch.float32


def test_inverse_focal_gradient_turns_its_sign_just_above_the_limit():
    p = torch.linspace(0.2, 0.4, 2001, dtype=torch.float64)
    assert (fc.gradient_ratio(p, -(INVERSE_FOCAL_LIMIT - 1e-3)) > 0).all()
    assert (fc.gradient_ratio(p, -(INVERSE_FOCAL_LIMIT + 1e-3)) < 0).any()
    assert pytest.approx(1 / float(mp.lambertw(mp.exp(-1))), rel=1e-14) == INVERSE_FOCAL_LIMIT


@given(z=st.floats(-700, 700), gamma=GAMMAS)
def test_value_and_slope_are_the_loss_and_its_derivative_in_the_log_odds(z, gamma):
    value, slope = focal_value_and_slope(*from_log_odds(torch.tensor([z], dtype=torch.float64)), gamma)
    plain = focal_of_log_odds(torch.tensor([z], dtype=torch.float64, requires_grad=True), gamma)
    with mp.workdps(400):
        p, rest = 1 / (1 + mp.exp(-mp.mpf(z))), 1 / (1 + mp.exp(mp.mpf(z)))
        base = rest if gamma >= 0 else 1 + p
        exact = -(base ** abs(mp.mpf(gamma))) * mp.log(p)
        exact_slope = base ** abs(mp.mpf(gamma)) * (1 - gamma * p * mp.log(p) / base) * rest
    for got, want in ((value, exact), (plain, exact), (slope, exact_slope)):
        assert oracles.relative_error(got.item(), want, 1e-300) <= 1e-12


def test_a_gamma_tensor_of_both_signs_agrees_with_each_number_alone():
    z = torch.linspace(-30, 30, 61, dtype=torch.float64)
    gamma = torch.where(torch.arange(61) % 2 == 0, 3.0, -1.5).double()
    value, slope = focal_value_and_slope(*from_log_odds(z), gamma)
    for number in (3.0, -1.5):
        alone_value, alone_slope = focal_value_and_slope(*from_log_odds(z), number)
        assert_close(value[gamma == number], alone_value[gamma == number], rtol=1e-14, atol=0)
        assert_close(slope[gamma == number], alone_slope[gamma == number], rtol=1e-14, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, -1.5, torch.tensor([2.0, -1.0, 0.3], dtype=torch.float64)])
def test_elementwise_loss_has_right_first_and_second_derivatives(gamma):
    z = torch.tensor([-2.0, 0.1, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: focal_elementwise(x, gamma), z)
    assert torch.autograd.gradgradcheck(lambda x: focal_elementwise(x, gamma), z)


@given(p0=st.one_of(st.floats(1e-12, 0.499999), st.floats(0.499, 0.4999999)))
def test_gamma_star_solves_its_defining_equation(p0):
    gamma = fc.gamma_star(p0)
    with mp.workdps(60):
        p = mp.mpf(p0)
        r = -p * mp.log(p) / (1 - p)
        bracket = (mp.mpf(gamma) * 0.99, mp.mpf(gamma) * 1.01)  # a root elsewhere fails here
        exact = mp.findroot(lambda g: mp.log(1 - p) + mp.log(1 + g * r) / g, bracket, solver="illinois")
    # Towards 1/2 the root meets the trivial one at 0, and the digits of p0 itself no longer fix it.
    assert gamma == pytest.approx(float(exact), rel=1e-12 / (1 - 2 * p0))


@pytest.mark.parametrize("p0", [0.0, 0.5, 0.7, 1.0, -0.1, math.nan])
def test_gamma_star_refuses_what_lies_outside_its_domain(p0):
    with pytest.raises(fc.InputError, match=r"p0: must lie strictly between 0 and 0.5"):
        fc.gamma_star(p0)


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [
        (0.5, (0.1613, 0.4215)),
        (1, (math.exp(-2), math.exp(-1))),
        (2, (0.1041, 0.2976)),
        (5, (0.0639, 0.1968)),
    ],
)
def test_confidence_thresholds_take_the_known_values(gamma, expected):
    assert fc.confidence_thresholds(gamma) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.inf, math.nan])
def test_confidence_thresholds_refuse_a_gamma_that_is_not_positive(gamma):
    with pytest.raises(fc.InputError, match="gamma: must be positive and finite"):
        fc.confidence_thresholds(gamma)


@pytest.mark.parametrize(
    ("p", "match"),
    [
        ([0.5, math.nan], "p: every value must be finite"),
        ([1.5], r"p: must lie in \[0, 1\]"),
        ("x", "p: must be a tensor"),
    ],
)
def test_gradient_ratio_refuses_what_is_no_probability(p, match):
    with pytest.raises(fc.InputError, match=match):
        fc.gradient_ratio(p, 1.0)
