"""Smooth calibration error against its definition: images of every sample, and quadrature between the sign changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from focalcal.core import smooth_ece as smooth
from focalcal.core.smooth_ece import SMALLEST_SIGMA, cosine_sums, smooth_calibration_error

# A Gaussian is below 3e-18 of its peak from 9 sigma on.
REACH = 9.0


def smoothed(values, residuals, sigma):
    """The sum of r K(t, f) as a function of sorted t, every reflection written out."""
    shifts = 2 * np.arange(-math.ceil(REACH * sigma) - 1, math.ceil(REACH * sigma) + 2)
    images = np.concatenate([shift + side * values for shift in shifts for side in (1, -1)])
    order = np.argsort(images)
    images, weights = images[order], np.tile(residuals, 2 * len(shifts))[order]

    def at(t):
        t = np.atleast_1d(t)
        result = np.empty(len(t))
        for part in np.array_split(np.arange(len(t)), math.ceil(len(t) / 200)):
            near = slice(*np.searchsorted(images, [t[part[0]] - REACH * sigma, t[part[-1]] + REACH * sigma]))
            z = (t[part, None] - images[near]) / sigma
            result[part] = np.exp(-z * z / 2) @ weights[near]
        return result / (sigma * math.sqrt(2 * math.pi))

    return at


def definition(values, residuals, sigma):
    at = smoothed(values, residuals, sigma)
    grid = np.linspace(0, 1, math.ceil(30 / sigma) + 8)
    changes = np.flatnonzero(at(grid)[:-1] * at(grid)[1:] < 0)
    roots = [brentq(lambda t: at(t)[0], grid[i], grid[i + 1], xtol=1e-15) for i in changes]
    ends = np.union1d(np.linspace(0, 1, math.ceil(2 / sigma) + 2), roots)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    middle, half = (ends[1:] + ends[:-1]) / 2, np.diff(ends) / 2
    r = at((middle[:, None] + half[:, None] * nodes).ravel()).reshape(-1, 16)
    return float(np.abs(r) @ weights @ half)


def binary(rows, seed, a=2.0, b=1.0):
    rng = np.random.default_rng(seed)
    values = np.sort(rng.beta(a, b, rows))
    return values, (values - (rng.random(rows) < values**1.5)) / rows


def constant(value, rows=5):
    return np.full(rows, value), np.full(rows, (value - 0.3) / rows)


def tied(seed=3):
    values, residuals = binary(300, seed)
    return np.round(values * 10) / 10, residuals


def alternating(rows=60):
    return np.linspace(0.0, 1.0, rows), np.where(np.arange(rows) % 2, 1.0, -0.9) / rows


KINDS = {
    "few rows": binary(7, 0),
    "many rows": binary(1000, 1),
    "calibrated at the ends": binary(400, 2, 0.2, 0.2),
    "ties": tied(),
    "all at one": constant(1.0),
    "all at zero": constant(0.0),
    "one row": constant(0.37, 1),
    "both ends": (np.array([0.0, 0.0, 1.0]), np.array([0.2, -0.3, 0.25])),
    "many sign changes": alternating(),
}


@pytest.mark.parametrize("sigma", [0.003, 0.01, 0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_given_bandwidth_equals_quadrature_of_the_definition(kind, sigma):
    error, used = smooth_calibration_error(*KINDS[kind], sigma)
    assert used == sigma
    assert error == pytest.approx(definition(*KINDS[kind], sigma), rel=0, abs=2e-12)


@pytest.mark.parametrize("sigma", [0.002, 0.003])
def test_small_bandwidth_with_many_rows_equals_quadrature_of_the_definition(sigma):
    values, residuals = binary(20_000, 4)
    error, _ = smooth_calibration_error(values, residuals, sigma)
    assert error == pytest.approx(definition(values, residuals, sigma), rel=0, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_solved_bandwidth_equals_its_error(kind):
    error, sigma = smooth_calibration_error(*KINDS[kind])
    assert error == sigma
    assert smooth_calibration_error(*KINDS[kind], sigma)[0] == pytest.approx(sigma, rel=0, abs=1e-13)
    assert definition(*KINDS[kind], sigma) == pytest.approx(sigma, rel=0, abs=2e-12)


def test_bandwidths_below_the_first_modes_are_solved_too():
    rows = np.arange(4000)
    values, residuals = (rows + 0.5) / 4000, np.where(rows % 8 < 4, 1.0, -1.0) / 4000
    error, sigma = smooth_calibration_error(values, residuals)
    assert sigma < 2.8 / smooth._FIRST_MODES
    assert error == sigma
    assert definition(values, residuals, sigma) == pytest.approx(sigma, rel=0, abs=1e-12)


def test_a_dip_through_zero_between_two_grid_points_is_seen():
    sigma, middle = 0.1, 0.5 + 1 / 700
    values = np.array([middle - 0.25, middle, middle + 0.25])

    def lowest(depth):
        return smoothed(values, np.array([0.3, -depth, 0.3]), sigma)(np.array([middle]))[0]

    # At the depth where the smoothed residuals just touch zero, and a little below: the roots are 0.0016 apart.
    touching = brentq(lowest, 0.0, 0.3, xtol=1e-16)
    residuals = np.array([0.3, -touching * (1 + 5e-5), 0.3])
    error, _ = smooth_calibration_error(values, residuals, sigma)
    at = smoothed(values, residuals, sigma)
    fine = np.linspace(middle - 0.01, middle + 0.01, 2001)
    below = -np.minimum(at(fine), 0).sum() * 1e-5
    assert 1e-9 < below < 1e-7  # or the test would see nothing
    assert error == pytest.approx(residuals.sum() + 2 * below, rel=0, abs=1e-3 * below)


def test_cosine_sums_equal_the_direct_sums():
    values, residuals = KINDS["many rows"]
    values = np.concatenate([[0.0, 0.0], values, [1.0]])
    residuals = np.concatenate([[0.1, -0.3], residuals, [0.2]])
    for modes in (1, 3, 100, 5000):
        direct = np.cos(np.pi * np.arange(modes + 1)[:, None] * values) @ residuals
        np.testing.assert_allclose(cosine_sums(values, residuals, modes), direct, rtol=0, atol=1e-12)


def test_slope_equals_a_difference_quotient():
    sums = cosine_sums(*KINDS["many rows"], 1024)
    for sigma in (0.01, 0.05, 0.2):
        step = 1e-5 * sigma
        above, below = (smooth._error_and_slope(sums, sigma + side * step)[0] for side in (1, -1))
        slope = smooth._error_and_slope(sums, sigma)[1]
        assert slope == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-9)


def test_equal_values_may_be_merged_into_one_row():
    values, residuals = KINDS["ties"]
    merged, index = np.unique(values, return_inverse=True)
    expected = smooth_calibration_error(values, residuals)
    assert smooth_calibration_error(merged, np.bincount(index, residuals)) == pytest.approx(expected, rel=1e-12)


def test_rows_may_be_split_into_parts():
    values, residuals = KINDS["many rows"]
    parts = np.stack([0.3 * residuals, -0.5 * residuals, 1.2 * residuals], axis=1).ravel()
    expected = smooth_calibration_error(values, residuals)
    assert smooth_calibration_error(np.repeat(values, 3), parts) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_blocks_of_rows_give_the_same(rows, monkeypatch):
    expected = [smooth_calibration_error(*case) for case in KINDS.values()]
    monkeypatch.setattr(smooth, "_BLOCK_ROWS", rows)
    for case, whole in zip(KINDS.values(), expected, strict=True):
        assert smooth_calibration_error(*case) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_error_falls_with_the_bandwidth_from_the_total_to_the_absolute_mean_residual(kind):
    values, residuals = KINDS[kind]
    errors = [smooth_calibration_error(values, residuals, sigma)[0] for sigma in np.geomspace(1e-3, 10, 30)]
    assert np.all(np.diff(errors) <= 1e-12)
    assert errors[0] <= np.abs(residuals).sum() + 1e-12
    assert errors[-1] == pytest.approx(abs(residuals.sum()), rel=0, abs=1e-14)


def test_residuals_of_one_sign_give_their_mean_at_any_bandwidth():
    values, residuals = binary(100, 5)
    residuals = np.abs(residuals)
    for sigma in (None, 1e-4, 0.01, 1.0):
        assert smooth_calibration_error(values, residuals, sigma)[0] == pytest.approx(residuals.sum(), rel=1e-12)


def test_zero_residuals_give_zero():
    values = np.linspace(0, 1, 5)
    assert smooth_calibration_error(values, np.zeros(5)) == (0.0, 0.0)
    assert smooth_calibration_error(values, np.zeros(5), 0.1) == (0.0, 0.1)
    assert smooth_calibration_error(values[:0], np.zeros(0)) == (0.0, 0.0)


def test_bandwidths_are_resolved_down_to_the_smallest():
    values, residuals = np.array([0.4, 0.4 + 1e-9]), np.array([0.5, -0.5])
    error, sigma = smooth_calibration_error(values, residuals)
    assert sigma == SMALLEST_SIGMA
    assert error == pytest.approx(1e-9 / (sigma * math.sqrt(2 * math.pi)), rel=1e-6)
    assert smooth_calibration_error(values, residuals, 1e-9) == (error, sigma)


def test_float32_values_count_as_the_numbers_they_are():
    values, residuals = KINDS["many rows"]
    values = values.astype(np.float32)
    assert smooth_calibration_error(values, residuals) == smooth_calibration_error(values.astype(float), residuals)


def test_residuals_of_one_sign_have_their_sum_as_error_at_every_bandwidth():
    values, residuals = np.array([0.1, 0.1 + 1e-9, 0.8]), np.array([0.01, 0.0, 0.02])
    for sigma in (None, 1e-3, 0.1):
        for sign in (1, -1):
            error, used = smooth_calibration_error(values, sign * residuals, sigma)
            assert error == pytest.approx(0.03, rel=1e-15)
            assert used == pytest.approx(sigma or 0.03)
    assert smooth_calibration_error(values, 0 * residuals) == (0.0, 0.0)
    tiny, used = smooth_calibration_error(values, 1e-6 * residuals)
    assert tiny == pytest.approx(3e-8, rel=1e-15)
    assert used == SMALLEST_SIGMA
