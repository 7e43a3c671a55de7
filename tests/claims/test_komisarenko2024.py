"""Improving Calibration by Relating Focal Loss, Temperature Scaling, and Properness (komisarenko2024)."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize, minimize_scalar

import focalcal as fc
from focalcal.core.binning import bin_predictions
from focalcal.papers import published_results
from tests.claims.claim_tools import (
    CLASS_COUNTS,
    GAMMAS,
    calibration_error,
    claim,
    distributions,
    expected_loss,
    logit_rows,
    loss_at,
    minimise_risk,
    one_above_equals,
    psi,
    sigmoid,
    simplex_grid,
    softmax,
)

# The ground truth of fig. 4.
TRUTH = np.array([0.55, 0.3, 0.15])
GAMMA_EV = (-0.5, -0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0)


def printed_binary_map(q, gamma):
    """p(q) of Prop. 2."""
    return 1 / (1 + ((1 - q) / q) ** gamma * ((1 - q) - gamma * q * np.log(q)) / (q - gamma * (1 - q) * np.log(1 - q)))


def printed_map(q, gamma):
    """p(q) of Prop. 4, eq. 1."""
    f = 1 / ((1 - q) ** gamma * (gamma * np.log(q) / (1 - q) - 1 / q))
    return f / f.sum(-1, keepdims=True)


def focal_logit(s, gamma):
    """The logit of FC(s), without rounding 1 - FC(s) away."""
    rows = fc.focal_map(np.stack([sigmoid(-s), sigmoid(s)], -1), gamma)
    return np.log(rows[..., 1]) - np.log(rows[..., 0])


def proper_risk(predictions, posterior, gamma):
    """The conditional risk of the proper part L* at predictions (N, K)."""
    count, num_classes = predictions.shape
    labels = np.repeat(np.arange(num_classes), count)
    losses = fc.proper_focal_loss(np.tile(predictions, (num_classes, 1)), labels, gamma, reduction="none")
    return posterior @ losses.numpy().reshape(num_classes, count)


def worst_difference(temperature, gamma, rows):
    """How far temperature scaling and the focal map are apart, at most, over rows of logits."""
    return np.abs(softmax(rows / temperature) - fc.focal_map(softmax(rows), gamma)).max()


def line(gammas, num_classes):
    """Slope and intercept of the least-squares line through 1/T of the nearest temperatures."""
    return np.polyfit(gammas, [1 / fc.nearest_temperature(gamma, num_classes) for gamma in gammas], 1)


def nearest_by_search(gamma, rows, around):
    """The temperature that minimises the worst difference over all given rows, and that difference."""
    target = fc.focal_map(softmax(rows), gamma)
    found = minimize_scalar(
        lambda inverse: np.abs(softmax(inverse * rows) - target).max(),
        bounds=(0.9 / around, 1.1 / around),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return 1 / found.x, found.fun


@claim("komisarenko2024.prop1")
@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_prop1_focal_loss_is_convex_in_the_prediction(num_classes):
    one, other = distributions(num_classes, 150, seed=1), distributions(num_classes, 150, seed=2)
    target = distributions(num_classes, 150, seed=3)
    for gamma in (0.0, *GAMMAS):
        for share in (0.1, 0.5, 0.9):
            between = expected_loss(share * one + (1 - share) * other, target, gamma)
            ends = share * expected_loss(one, target, gamma) + (1 - share) * expected_loss(other, target, gamma)
            assert (between <= ends * (1 + 1e-9)).all()
        assert (np.diff(loss_at(np.linspace(0.001, 0.999, 999), gamma), 2) > -1e-15).all()


@claim("komisarenko2024.prop1.quadratic")
def test_app_a1_second_derivative_is_a_quadratic_in_gamma_with_non_negative_coefficients():
    p = torch.linspace(0.002, 0.998, 499, dtype=torch.float64, requires_grad=True)
    log_p = torch.log(p)
    for gamma in (0.0, *GAMMAS):
        squared = -log_p * (1 - p) ** (gamma - 2)
        linear = (1 - p) ** (gamma - 2) * (2 - 2 * p + p * log_p) / p
        constant = (1 - p) ** gamma / p**2
        assert all((coefficient >= 0).all() for coefficient in (squared, linear, constant))
        logits = torch.stack([log_p, torch.log1p(-p)], 1)
        loss = fc.focal_loss(logits, torch.zeros(499, dtype=torch.long), gamma=gamma, reduction="sum")
        (slope,) = torch.autograd.grad(loss, p, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), p, retain_graph=True)
        expected = (gamma**2 * squared + gamma * linear + constant).detach()
        torch.testing.assert_close(curvature, expected, rtol=1e-8, atol=1e-12)
    # The linear coefficient is non-negative because 2 - 2p + p log p falls to 0 at p = 1.
    bracket = (2 - 2 * p + p * log_p).detach()
    assert (torch.diff(bracket) < 0).all()
    assert bracket[-1] < 0.01


@claim("komisarenko2024.ex062", holds=False)
def test_sec31_minimiser_for_80_positives_of_100_and_gamma_2_is_0_6266():
    minimiser = minimise_risk(np.array([0.8, 0.2]), 2.0)[0]
    assert minimiser == pytest.approx(0.62661, abs=1e-5)
    assert float(fc.focal_minimizer(0.8, 2.0)) == pytest.approx(minimiser, abs=1e-7)
    # Printed: about 0.62; rounded it is 0.63. 0.62 is the minimiser for a posterior of 0.788.
    assert abs(minimiser - 0.62) < 0.01
    assert float(fc.focal_map(0.62, 2.0)) == pytest.approx(0.78764, abs=1e-5)
    assert minimise_risk(np.array([0.78764, 0.21236]), 2.0)[0] == pytest.approx(0.62, abs=1e-5)


@claim("komisarenko2024.ex062.range")
def test_sec31_varying_gamma_gives_any_value_between_one_half_and_0_8():
    values = {0.5: 0.735, 1.0: 0.686, 3.0: 0.594, 10.0: 0.533, 50.0: 0.507}
    for gamma, value in values.items():
        assert minimise_risk(np.array([0.8, 0.2]), gamma)[0] == pytest.approx(value, abs=6e-4)
    gammas = np.geomspace(1e-4, 1e4, 200)
    minimisers = fc.focal_minimizer(np.full(200, 0.8), torch.tensor(gammas), binary=True)
    assert (np.diff(minimisers) < 0).all()
    assert (minimisers[0], minimisers[-1]) == pytest.approx((0.8, 0.5), abs=1e-4)
    for wanted in (0.501, 0.55, 0.62, 0.7, 0.799):
        gamma = brentq(lambda g, wanted=wanted: float(fc.focal_minimizer(0.8, g)) - wanted, 1e-4, 1e4)
        assert minimise_risk(np.array([0.8, 0.2]), gamma)[0] == pytest.approx(wanted, abs=1e-5)


@claim("komisarenko2024.prop2")
@pytest.mark.parametrize("gamma", GAMMAS)
def test_prop2_binary_focal_loss_is_a_proper_loss_after_a_bijection(gamma):
    q = np.linspace(0, 1, 1001)
    mapped = fc.focal_map(q, gamma, binary=True)
    assert mapped[1:-1] == pytest.approx(printed_binary_map(q[1:-1], gamma), rel=1e-9)
    assert (mapped[0], mapped[500], mapped[-1]) == (0, 0.5, 1)
    s = np.linspace(-15, 15, 601)
    assert (np.diff(focal_logit(s, gamma)) > 0).all()
    assert fc.focal_map_inverse(mapped, gamma, binary=True)[300:701] == pytest.approx(q[300:701], abs=1e-9)
    for truth in (0.1, 0.37, 0.8):
        posterior = np.array([truth, 1 - truth])
        found = minimize_scalar(
            lambda x, posterior=posterior: proper_risk(np.array([[x, 1 - x]]), posterior, gamma)[0],
            bounds=(1e-6, 1 - 1e-6),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert found.x == pytest.approx(truth, abs=1e-5)


@claim("komisarenko2024.prop2.gradients")
@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_sec32_decomposition_leaves_loss_value_and_gradients_unchanged(num_classes):
    logits = torch.tensor(np.log(distributions(num_classes, 20)).clip(-8, 8))
    labels = torch.arange(20) % num_classes
    for gamma in (0.5, 1.0, 3.0):

        def composed(x, gamma=gamma):
            calibrated = fc.focal_map(torch.softmax(x, 1), gamma)
            return fc.proper_focal_loss(calibrated, labels, gamma, reduction="none")

        x = logits.clone().requires_grad_()
        loss = fc.focal_loss(x, labels, gamma=gamma, reduction="none")
        torch.testing.assert_close(composed(logits), loss.detach(), rtol=1e-7, atol=1e-12)
        loss.sum().backward()
        for column in range(num_classes):
            step = torch.zeros_like(logits)
            step[:, column] = 1e-4
            slope = (composed(logits + step) - composed(logits - step)) / 2e-4
            torch.testing.assert_close(slope, x.grad[:, column], rtol=1e-5, atol=1e-7)


@claim("komisarenko2024.prop2.negative", holds=False)
def test_sec32_negative_gamma_gives_an_inverse_sigmoid_map_down_to_minus_0_885():
    q = np.linspace(0, 1, 1001)
    edge = 2 - 2 / math.log(2)  # where the slope at 1/2 is 1
    assert edge == pytest.approx(-0.8854, abs=1e-4)
    for gamma in (-0.99, -0.9, 0.99 * edge, -0.5, -0.1):
        mapped = fc.focal_map(q, gamma, binary=True)
        assert mapped[1:-1] == pytest.approx(printed_binary_map(q[1:-1], gamma), rel=1e-8)
        assert (np.diff(mapped) > 0).all()
        assert (mapped[0], mapped[500], mapped[-1]) == (0, 0.5, 1)
        towards_half = (np.abs(mapped - 0.5) < np.abs(q - 0.5))[1:-1]
        # Below the edge the map still sharpens around 1/2 and softens only near the ends.
        assert np.delete(towards_half, 499).all() == (gamma > edge)
        assert towards_half[[0, -1]].all()
    # From -1 on it is no bijection of [0, 1]: at -1.5 it turns around, at -4 it leaves the interval.
    assert (np.diff(printed_binary_map(q[1:-1], -1.5)) < 0).any()
    outside = printed_binary_map(q[1:-1], -4.0)
    assert outside.min() < 0
    with pytest.raises(fc.InputError, match="greater than -1"):
        fc.focal_map(q, -1.0, binary=True)


@claim("komisarenko2024.prop2.proper-part")
def test_fig1_proper_part_is_below_the_focal_loss_up_to_one_half_and_above_it_after():
    q = np.linspace(0.005, 0.995, 199)
    rows = np.stack([1 - q, q], 1)
    for gamma in GAMMAS:
        proper = fc.proper_focal_loss(rows, np.ones(199, dtype=int), gamma, reduction="none").numpy()
        focal = loss_at(q, gamma)
        lower, higher = q < 0.5 - 1e-9, q > 0.5 + 1e-9
        assert (proper[lower] < focal[lower]).all()
        assert (proper[higher] > focal[higher]).all()
        assert proper[99] == pytest.approx(focal[99])


@claim("komisarenko2024.prop3", holds=False)
@pytest.mark.parametrize("gamma", [*GAMMAS, 100.0])
def test_prop3_binary_focal_map_lies_between_two_temperatures_when_logits_are_multiplied(gamma):
    s = np.concatenate([np.geomspace(1e-3, 1, 100), np.linspace(1, 6 if gamma > 50 else 20, 200)])
    # As printed, s / (gamma+1 - log(gamma+1)/2), the upper bound fails at every s > 0 and every gamma.
    assert (focal_logit(s, gamma) > s / (gamma + 1 - math.log(gamma + 1) / 2)).all()
    # With products instead of quotients, and the two bounds exchanged, it holds for both signs.
    sharp, soft = fc.temperature_bounds(gamma)
    assert (1 / sharp, 1 / soft) == pytest.approx((gamma + 1, gamma + 1 - math.log(gamma + 1) / 2))
    slack = 1e-12 * (1 + gamma) * s
    assert (s / soft <= focal_logit(s, gamma) + slack).all()
    assert (focal_logit(s, gamma) <= s / sharp + slack).all()
    assert focal_logit(-s, gamma) == pytest.approx(-focal_logit(s, gamma), rel=1e-9)


def inverse_temperature_at_0(gamma):
    """The slope of the logit of FC at s = 0, where 1/T starts."""
    return gamma + 1 - gamma * (2 * math.log(2) - 1) / (1 + gamma * math.log(2))


@claim("komisarenko2024.prop3.tight", holds=False)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_fig3_soft_bound_can_be_tightened_and_the_sharp_one_cannot(gamma):
    s = np.geomspace(0.01, 30, 300)
    inverse = focal_logit(s, gamma) / s
    sharp, soft = fc.temperature_bounds(gamma)
    assert inverse[0] == pytest.approx(inverse_temperature_at_0(gamma), rel=1e-4)
    assert inverse.min() > 1 / soft + 0.04 * gamma
    if gamma <= 5:
        assert (np.diff(inverse) > -1e-12).all()
    else:  # from gamma 5.64 on it first falls a little
        assert {7.0: 7.7e-4, 20.0: 2.226e-2}[gamma] == pytest.approx(inverse[0] - inverse.min(), rel=0.02)
        assert (np.diff(inverse[inverse.argmin() :]) > 0).all()
    # 1/T goes up to gamma + 1 as s grows, like gamma + 1 - log(gamma+1)/s.
    assert inverse[-1] == pytest.approx(1 / sharp - math.log1p(gamma) / 30, rel=1e-9)


@claim("komisarenko2024.bounds.gamma4")
def test_sec32_bounds_for_gamma_4_are_0_2_and_0_238():
    assert tuple(round(bound, 3) for bound in fc.temperature_bounds(4.0)) == (0.2, 0.238)
    s = np.linspace(0.01, 20, 2000)
    assert (focal_logit(s, 4.0) < s / 0.2).all()
    assert (focal_logit(s, 4.0) > s / 0.238).all()


@claim("komisarenko2024.bounds.gamma4-numeric", holds=False)
def test_sec32_numeric_bounds_for_gamma_4_are_0_203_and_0_218():
    s = np.linspace(0.001, 20, 20_000)
    temperature = s / focal_logit(s, 4.0)
    assert (temperature.min(), temperature.max()) == pytest.approx((0.20327, 0.21784), abs=1e-5)
    # Printed: 0.206, which the map crosses at s = 11.05. The nearest thousandth that bounds it is 0.203.
    assert s[temperature < 0.206][0] == pytest.approx(11.047, abs=1e-3)
    with mpmath.workdps(50):
        q = 1 / (1 + mpmath.exp(-15))
        odds = ((1 - q) / q) ** 4 * ((1 - q) - 4 * q * mpmath.log(q)) / (q - 4 * (1 - q) * mpmath.log(1 - q))
        assert float(-15 / mpmath.log(odds)) == pytest.approx(0.20439, abs=1e-5)
    # 0.218 is right, and 0.217 would be too sharp.
    assert (temperature > 0.217).any()


@claim("komisarenko2024.fit2", holds=False)
def test_fig2_binary_nearest_temperature_follows_a_line_that_depends_on_the_range():
    up_to_7 = line(np.arange(0, 7.1, 0.25), 2)
    assert up_to_7 == pytest.approx([0.948, 0.834], abs=1e-3)
    assert up_to_7 == pytest.approx([0.95, 0.85], abs=0.02)  # as printed, without a range
    assert line(np.arange(0, 5.1, 0.25), 2) == pytest.approx([0.926, 0.877], abs=1e-3)
    assert line(np.arange(0, 10.1, 0.25), 2) == pytest.approx([0.966, 0.786], abs=1e-3)
    rows = logit_rows(2, 0.01)
    for gamma in (0.5, 1.0, 3.0, 7.0):
        ours = fc.nearest_temperature(gamma, 2)
        assert ours == pytest.approx(nearest_by_search(gamma, rows, ours)[0], rel=1e-3)


@claim("komisarenko2024.fit2.error", holds=False)
def test_sec32_largest_binary_difference_is_0_0012():
    rows = logit_rows(2, 0.005)
    gammas = (0.1, 0.2, 0.25, 0.45, 0.75, 0.8, 1.0, 2.0, 5.0, 9.0)
    errors = {gamma: worst_difference(fc.nearest_temperature(gamma, 2), gamma, rows) for gamma in gammas}
    assert max(errors, key=errors.get) == 0.45
    assert errors[0.45] == pytest.approx(1.208e-3, abs=2e-6)
    # Printed: below 1e-3. So it is outside 0.22 < gamma < 0.78 ...
    assert [gamma for gamma in gammas if errors[gamma] >= 1e-3] == [0.25, 0.45, 0.75]
    # ... and the line 0.95 gamma + 0.85 is worse than the best temperature by far.
    on_line = {gamma: worst_difference(1 / (0.95 * gamma + 0.85), gamma, rows) for gamma in (0.1, 0.5, 1.0, 3.0)}
    assert on_line == pytest.approx({0.1: 0.0273, 0.5: 0.0066, 1.0: 0.0031, 3.0: 0.0047}, abs=1e-4)


@claim("komisarenko2024.fig2.temperatures", holds=False)
def test_fig2_nearest_temperatures_of_gamma_0_5_and_3_are_0_731_and_0_276():
    assert fc.nearest_temperature(0.5, 2) == pytest.approx(0.7312, abs=1e-4)
    assert fc.nearest_temperature(3.0, 2) == pytest.approx(0.2759, abs=1e-4)
    # Printed: 0.76 and 0.36, which is what the line 0.95 gamma + 0.85 gives for gamma 0.5 and 2.
    assert [1 / (0.95 * gamma + 0.85) for gamma in (0.5, 2)] == pytest.approx([0.755, 0.364], abs=1e-3)
    assert fc.nearest_temperature(2.0, 2) == pytest.approx(0.3731, abs=1e-4)
    # For gamma 3 it lies outside the bounds of Prop. 3, and 87 times as far from the map as the nearest one.
    assert fc.temperature_bounds(3.0)[1] == pytest.approx(0.3024, abs=1e-4)
    rows = logit_rows(2, 0.01)
    assert worst_difference(0.36, 3.0, rows) > 80 * worst_difference(0.2759, 3.0, rows)


@claim("komisarenko2024.prop4")
@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_prop4_multiclass_focal_loss_is_a_proper_loss_after_a_bijection(num_classes):
    rows = distributions(num_classes, 30)
    rows = rows[rows.max(1) < 1 - 1e-6]
    for gamma in GAMMAS:
        mapped = fc.focal_map(rows, gamma)
        np.testing.assert_allclose(mapped, printed_map(rows, gamma), rtol=0, atol=1e-8)
        np.testing.assert_allclose(fc.focal_map_inverse(mapped, gamma), rows, rtol=0, atol=1e-6)
        np.testing.assert_allclose(fc.focal_map(fc.focal_map_inverse(rows, gamma), gamma), rows, rtol=0, atol=1e-9)
    # Proper: of any predictions, the truth has the least risk.
    if num_classes <= 10:
        for gamma in (0.5, 3.0):
            truth = distributions(num_classes, 1, seed=4)
            at_truth = proper_risk(truth, truth[0], gamma)
            near = truth * np.exp(0.01 * np.random.default_rng(0).normal(size=(50, num_classes)))
            near /= near.sum(1, keepdims=True)
            assert (proper_risk(rows, truth[0], gamma) > at_truth).all()
            assert (proper_risk(near, truth[0], gamma) > at_truth).all()


@claim("komisarenko2024.prop4.same-map")
@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_sec33_focal_calibration_map_is_the_recovery_map_of_charoenphakdee2021(num_classes):
    rows = distributions(num_classes, 50, seed=5)
    rows = rows[rows.max(1) < 0.999]
    for gamma in GAMMAS:
        np.testing.assert_allclose(printed_map(rows, gamma), psi(rows, gamma), rtol=1e-9)
        np.testing.assert_allclose(fc.focal_map(rows, gamma), psi(rows, gamma), rtol=1e-9)


def triangularity(values, points):
    """How triangular the region of the 12 % lowest values is: |E z^3| after whitening, 0 for any ellipse."""
    plane = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    region = points[values < np.percentile(values, 12)] @ plane.T
    region = region - region.mean(0)
    white = region @ np.linalg.cholesky(np.linalg.inv(np.cov(region.T)))
    return abs(((white @ np.array([1, 1j])) ** 3).mean())


@claim("komisarenko2024.fig4")
def test_fig4_risk_of_the_proper_part_is_lowest_at_the_truth_and_its_isolines_become_triangles():
    points = simplex_grid(60)
    shapes = []
    for gamma in (1.0, 3.0):
        values = proper_risk(points, TRUTH, gamma)
        assert points[values.argmin()] == pytest.approx(TRUTH)
        shapes.append(triangularity(values, points))
        found = minimize(
            lambda x, gamma=gamma: proper_risk(softmax(np.append(x, 0.0))[None], TRUTH, gamma)[0],
            [0.0, 0.0],
            method="Nelder-Mead",
            options={"xatol": 1e-5, "fatol": 1e-12},
        )
        assert softmax(np.append(found.x, 0.0)) == pytest.approx(TRUTH, abs=1e-4)
    brier = triangularity(((points[:, None] - np.eye(3)) ** 2).sum(2) @ TRUTH, points)
    cross_entropy = triangularity(-np.log(points) @ TRUTH, points)
    assert brier < 0.1 < cross_entropy < shapes[0] < shapes[1]


@claim("komisarenko2024.prop5", holds=False)
def test_prop5_focal_map_raises_the_largest_probability_only_if_it_is_large_or_classes_are_few():
    # As printed it fails from four classes on, where the others are many or level with the largest.
    assert fc.focal_map(one_above_equals(0.2, 1000), 1.0)[0, 0] == pytest.approx(0.18296, abs=1e-5)
    assert fc.focal_map(one_above_equals(0.12, 10), 1.0)[0, 0] == pytest.approx(0.11955, abs=1e-5)
    assert fc.focal_map([0.319, 0.319, 0.319, 0.043], 0.1).max() < 0.319 - 5e-5
    # The posterior of that prediction, found by minimising the risk, really is lower.
    posterior = psi(one_above_equals(0.2, 1000)[0], 1.0)
    assert minimise_risk(posterior, 1.0)[0] == pytest.approx(0.2, abs=1e-6)
    # It holds for two and three classes, and whenever the largest entry reaches tau_uc (so always above 1/2).
    two, three = (
        softmax(logit_rows(2, 0.01, gap=30)),
        np.concatenate([simplex_grid(150), softmax(logit_rows(3, 0.2))]),
    )
    for gamma in (*GAMMAS, 100.0):
        for rows in (two, three):
            assert (fc.focal_map(rows, gamma).max(1) >= rows.max(1) - 1e-15).all()
        threshold = fc.confidence_thresholds(gamma)[1]
        for num_classes in (4, 10, 100, 1000):
            rows = np.concatenate([distributions(num_classes, 200), one_above_equals([threshold, 0.6], num_classes)])
            rows = rows[rows.max(1) >= threshold]
            assert (fc.focal_map(rows, gamma).max(1) >= rows.max(1) - 1e-15).all()


@claim("komisarenko2024.prop5.lemma", holds=False)
@pytest.mark.parametrize(("gamma", "inflection"), [(0.5, 0.0974), (1.0, 0.0805), (3.0, 0.0492), (5.0, 0.0361)])
def test_app_a5_reciprocal_slope_is_convex_near_0_and_concave_after_it(gamma, inflection):
    q = np.linspace(0, 0.99, 9901)[1:]
    reciprocal = -q / fc.gradient_ratio(q, gamma)  # 1 / L'(q), L' being -g/q
    with mpmath.workdps(30):
        slope = mpmath.diff(lambda x: -((1 - x) ** gamma) * mpmath.log(x), 0.3)
        assert reciprocal[2999] == pytest.approx(float(1 / slope), rel=1e-10)
    bend = np.diff(reciprocal, 2)
    assert (bend[q[1:-1] < inflection - 1e-3] > 0).all()
    assert (bend[q[1:-1] > inflection + 1e-3] < 0).all()
    # So the inequality the proof needs, f(lambda x) >= lambda f(x), fails up to tau_oc.
    top = fc.confidence_thresholds(gamma)[0]
    f = -np.array([0.5 * top, top]) / fc.gradient_ratio(np.array([0.5 * top, top]), gamma)
    assert f[0] < 0.5 * f[1]


@claim("komisarenko2024.sharpening", holds=False)
def test_fig5_three_class_map_raises_the_top_and_lowers_the_least_but_may_raise_the_second():
    # "All others fall" is not so where two classes are nearly level.
    assert fc.focal_map([0.46, 0.45, 0.09], 1.0).tolist() == pytest.approx([0.4715, 0.4551, 0.0735], abs=1e-4)
    assert fc.focal_map([0.46, 0.45, 0.09], 3.0).tolist() == pytest.approx([0.4988, 0.4657, 0.0355], abs=1e-4)
    points = simplex_grid(150)
    before = points
    for gamma in GAMMAS:
        mapped = fc.focal_map(points, gamma)
        assert (mapped.max(1) >= before.max(1) - 1e-15).all()
        assert (mapped.min(1) <= before.min(1) + 1e-15).all()
        before = mapped


@claim("komisarenko2024.fig5.temperatures", holds=False)
def test_fig5_three_class_nearest_temperatures_of_gamma_1_and_3_are_0_658_and_0_356():
    ours = {gamma: fc.nearest_temperature(gamma, 3) for gamma in (0.5, 1.0, 2.0, 3.0)}
    assert ours == pytest.approx({0.5: 0.8056, 1.0: 0.6578, 2.0: 0.4646, 3.0: 0.3563}, abs=1e-4)
    # Printed: 0.81 and 0.46, which belong to gamma 0.5 and 2.
    rows = logit_rows(3, 0.1)
    assert worst_difference(0.81, 1.0, rows) > 2 * worst_difference(ours[1.0], 1.0, rows)
    assert worst_difference(0.46, 3.0, rows) > 1.8 * worst_difference(ours[3.0], 3.0, rows)
    assert worst_difference(0.81, 0.5, rows) < 1.1 * worst_difference(ours[0.5], 0.5, rows)
    assert worst_difference(0.46, 2.0, rows) < 1.1 * worst_difference(ours[2.0], 2.0, rows)


@claim("komisarenko2024.fit3", holds=False)
def test_fig6_three_class_nearest_temperature_follows_a_line():
    up_to_10 = line(np.arange(0, 10.1, 0.25), 3)
    assert up_to_10 == pytest.approx([0.648, 0.881], abs=1e-3)
    assert up_to_10 == pytest.approx([0.64, 0.91], abs=0.03)  # as printed
    assert line(np.arange(0, 7.1, 0.25), 3) == pytest.approx([0.642, 0.897], abs=1e-3)
    rows = logit_rows(3, 0.05)
    for gamma in (0.5, 1.0, 3.0):
        ours = fc.nearest_temperature(gamma, 3)
        found, least = nearest_by_search(gamma, rows, ours)
        assert ours == pytest.approx(found, rel=1e-3)
        assert worst_difference(ours, gamma, rows) == pytest.approx(least, rel=3e-3)


@claim("komisarenko2024.fit3.error")
def test_fig6_largest_three_class_difference_grows_to_8_percent_at_gamma_9():
    rows = logit_rows(3, 0.05)
    gammas = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 9.0)
    errors = [worst_difference(fc.nearest_temperature(gamma, 3), gamma, rows) for gamma in gammas]
    assert errors[0] == 0
    assert (np.diff(errors) > 0).all()
    assert errors[-1] == pytest.approx(0.0771, abs=2e-4)
    assert round(errors[-1], 2) == 0.08


@claim("komisarenko2024.fit3.below-one")
def test_sec33_nearest_temperature_is_below_1_and_falls_with_gamma():
    for num_classes in (2, 3, 4):
        temperatures = [fc.nearest_temperature(gamma, num_classes) for gamma in (0.01, *GAMMAS[1:])]
        assert temperatures[0] < 1
        assert (np.diff(temperatures) < 0).all()
    # Independently of any search for the best one: T = 1 is worse than T = 0.99 already for gamma 0.05.
    rows = logit_rows(3, 0.2)
    assert worst_difference(0.99, 0.05, rows) < worst_difference(1.0, 0.05, rows)


@claim("komisarenko2024.fig7", holds=False)
@pytest.mark.parametrize(
    ("gamma", "temperature", "worst", "place"),
    [(0.5, 0.8, 0.0220, (0.445, 0.4425, 0.1125)), (2.0, 0.46, 0.0500, (0.4175, 0.415, 0.1675))],
)
def test_fig7_difference_is_largest_between_two_corners_and_vanishes_in_them(gamma, temperature, worst, place):
    points = simplex_grid(400)
    difference = np.abs(fc.focal_map(points, gamma) - softmax(np.log(points) / temperature)).max(1)
    assert difference.max() == pytest.approx(worst, abs=1e-4)
    # Printed: near the corners. It is where two classes tie and the third has 0.11 to 0.17.
    assert np.sort(points[difference.argmax()])[::-1] == pytest.approx(place, abs=1e-9)
    top = points.max(1)
    mean = [difference[(top >= low) & (top < low + 0.1)].mean() for low in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)]
    assert (np.diff(mean) < 0).all()
    assert difference[top > 0.98].max() < 0.3 * worst
    assert difference[(top < 0.34) & (points.min(1) > 0.33)].max() < 0.05 * worst


@claim("komisarenko2024.fit4", holds=False)
def test_sec33_four_class_nearest_temperature_follows_0_49_gamma_plus_0_96():
    up_to_10 = line(np.arange(0, 10.1, 0.25), 4)
    assert up_to_10 == pytest.approx([0.490, 0.955], abs=1e-3)
    assert up_to_10 == pytest.approx([0.47, 0.85], abs=0.11)  # as printed
    rows = logit_rows(4, 0.2)
    for gamma in (0.5, 1.0, 3.0):
        ours = fc.nearest_temperature(gamma, 4)
        found, least = nearest_by_search(gamma, rows, ours)
        assert ours == pytest.approx(found, rel=3e-3)
        assert worst_difference(ours, gamma, rows) == pytest.approx(least, rel=0.01)
        # The printed line is no better a choice for any of them.
        assert worst_difference(1 / (0.47 * gamma + 0.85), gamma, rows) > 1.15 * least
    # Printed: a difference of up to 8 %. That is passed at gamma 3; at gamma 9 it is 12.5 %.
    errors = [worst_difference(fc.nearest_temperature(gamma, 4), gamma, rows) for gamma in (2.0, 3.0, 5.0, 9.0)]
    assert errors == pytest.approx([0.0724, 0.0891, 0.1081, 0.1252], abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("num_classes", "step"), [(3, 0.01), (4, 0.05)])
def test_nearest_temperature_agrees_with_a_fine_search_of_all_rows(num_classes, step):
    rows = logit_rows(num_classes, step)
    for gamma in (1.0, 5.0):
        ours = fc.nearest_temperature(gamma, num_classes)
        found, least = nearest_by_search(gamma, rows, ours)
        assert ours == pytest.approx(found, rel=1e-3)
        assert worst_difference(ours, gamma, rows) == pytest.approx(least, rel=3e-3)


def focal_temperature_scaling(logits, gamma, temperature):
    """Sec. 4.2: softmax(s/T), then the focal map."""
    return fc.focal_map(softmax(logits / temperature), gamma)


@claim("komisarenko2024.fts.def")
@pytest.mark.parametrize(("gamma", "temperature"), [(-0.5, 1.4), (0.5, 0.8), (2.0, 1.7)])
def test_sec42_focal_temperature_scaling_is_a_temperature_followed_by_the_focal_map(gamma, temperature):
    logits = 3 * np.random.default_rng(0).normal(size=(300, 4))
    truth = psi(softmax(logits / temperature), gamma)
    assert focal_temperature_scaling(logits, gamma, temperature) == pytest.approx(truth, abs=1e-9)
    # Chosen together on validation data, the pair is found again, whatever loss trained the model.
    found = minimize(
        lambda x: -(truth * np.log(focal_temperature_scaling(logits, x[0], math.exp(x[1])))).sum(),
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-5, "fatol": 1e-10},
    ).x
    assert (found[0], math.exp(found[1])) == pytest.approx((gamma, temperature), abs=1e-3)
    # The order matters, and gamma 0 is plain temperature scaling.
    swapped = softmax(np.log(fc.focal_map(softmax(logits), gamma)) / temperature)
    assert np.abs(swapped - truth).max() > 5e-3
    plain = focal_temperature_scaling(logits, 0.0, temperature)
    assert plain == pytest.approx(softmax(logits / temperature), abs=1e-15)


@claim("komisarenko2024.fts.grid")
def test_sec51_focal_temperature_grid_finds_a_planted_pair_but_not_plain_temperature_scaling():
    temperatures = np.arange(1, 501) / 100
    assert (temperatures[0], temperatures[-1], len(GAMMA_EV) * len(temperatures)) == (0.01, 5.0, 4500)
    assert 0 not in GAMMA_EV
    logits = 3 * np.random.default_rng(0).normal(size=(150, 4))
    logits = np.sort(logits, 1)[:, ::-1]  # class 0 is predicted

    def errors(gamma, right):
        """The ECE of 15 equal-mass bins at every temperature; rows are right with their true probability."""
        confidence = focal_temperature_scaling(np.tile(logits, (500, 1, 1)), gamma, temperatures[:, None, None])[..., 0]
        return [
            calibration_error(bin_predictions(torch.tensor(row), torch.tensor(right), edges="equal_mass"))
            for row in confidence
        ]

    planted = focal_temperature_scaling(logits, 0.75, 1.5)[:, 0]
    table = np.array([errors(gamma, planted) for gamma in GAMMA_EV])
    gamma_at, temperature_at = np.unravel_index(table.argmin(), table.shape)
    assert (GAMMA_EV[gamma_at], temperatures[temperature_at]) == (0.75, 1.5)
    assert table.min() < 1e-12
    # Plain temperature scaling does not reach it, and the grid does not reach plain temperature scaling.
    assert min(errors(0.0, planted)) > 1e-3
    plain = softmax(logits / 1.5)[:, 0]
    assert min(errors(0.0, plain)) < 1e-12
    assert min(min(errors(gamma, plain)) for gamma in (-0.25, 0.05, 0.25)) > 1e-5


@claim("komisarenko2024.table1.accuracy")
@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_table1_focal_temperature_scaling_keeps_the_predicted_class(num_classes):
    logits = 4 * np.random.default_rng(num_classes).normal(size=(200, num_classes))
    # Prop. 12 of charoenphakdee2021 is for gamma >= 0; the paper also uses -0.5 and -0.25.
    for gamma in (-0.99, *GAMMA_EV):
        for temperature in (0.3, 1.0, 5.0):
            mapped = focal_temperature_scaling(logits, gamma, temperature)
            assert (mapped.argmax(1) == logits.argmax(1)).all()
    accuracy = {
        (row["dataset"], row["method"]): row["value"]
        for row in published_results()
        if row["paper"] == "komisarenko2024" and row["metric"] == "accuracy"
    }
    pairs = [(method, dataset) for dataset, method in accuracy if not method.endswith("+fts")]
    assert len(pairs) == 18
    assert all(accuracy[dataset, method] == accuracy[dataset, f"{method}+fts"] for method, dataset in pairs)


@claim("komisarenko2024.binary-vs-multiclass")
def test_sec6_focal_map_and_temperature_nearly_coincide_for_two_classes_only():
    gammas = (0.05, 0.25, 0.45, 1.0, 3.0, 7.0)
    errors = np.array(
        [
            [worst_difference(fc.nearest_temperature(gamma, k), gamma, logit_rows(k, step)) for gamma in gammas]
            for k, step in ((2, 0.01), (3, 0.1), (4, 0.2))
        ]
    )
    assert errors[0].max() < 1.21e-3
    assert (errors[1] > 3 * errors[0]).all()
    assert (errors[2] > errors[1]).all()
    assert errors[1, 3:] == pytest.approx([0.035, 0.057, 0.073], abs=2e-3)
    # Composed with a temperature of 1.7, two classes still need only one temperature, three do not.
    for num_classes, missed in ((2, (0, 1.21e-3)), (3, (0.03, 1))):
        rows = logit_rows(num_classes, 0.1)
        composed = focal_temperature_scaling(rows, 1.0, 1.7)
        best = minimize_scalar(
            lambda t, rows=rows, composed=composed: np.abs(softmax(rows / t) - composed).max(),
            bounds=(0.5, 2),
            method="bounded",
        )
        assert missed[0] < best.fun < missed[1]
