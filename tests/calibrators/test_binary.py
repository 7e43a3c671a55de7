"""Platt scaling and beta calibration against scipy, scikit-learn and mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.calibration import _sigmoid_calibration
from sklearn.linear_model import LogisticRegression

from focalcal import metrics as m
from focalcal.calibrators import BetaCalibration, PlattScaling
from focalcal.errors import InputError
from tests.calibrators.cases import close

MAKERS = {
    "platt": PlattScaling,
    "platt as it is": lambda: PlattScaling(smooth_targets=False),
    "beta": BetaCalibration,
    "beta ab": lambda: BetaCalibration("ab"),
    "beta am": lambda: BetaCalibration("am"),
}
every_method = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def values(calibrator):
    return np.array([getattr(calibrator, name) for name in calibrator.FITTED])


def data(a=0.6, b=0.3, c=0.2, rows=300, seed=0):
    """Log-odds (N,) and labels that follow a beta map of them."""
    generator = np.random.default_rng(seed)
    odds = 2 * generator.standard_normal(rows)
    true = a * log_expit(odds) - b * log_expit(-odds) + c
    return odds, (generator.random(rows) < expit(true)).astype(int)


def cross_entropy(log_odds, target, weight=None):
    return np.average(-(target * log_expit(log_odds) + (1 - target) * log_expit(-log_odds)), weights=weight)


# ---------------------------------------------------------------------------------------------------------------- Platt


def test_platt_scaling_is_the_minimum_of_the_smoothed_cross_entropy():
    odds, labels = data()
    positive = labels.sum()
    target = np.where(labels, (positive + 1) / (positive + 2), 1 / (len(labels) - positive + 2))
    found = minimize(lambda t: cross_entropy(t[0] * odds + t[1], target), [1, 0], method="BFGS", options={"gtol": 1e-9})
    calibrator = PlattScaling().fit(odds, labels)
    assert calibrator.report_.converged
    close(values(calibrator), found.x, 1e-7)
    assert cross_entropy(calibrator.a_ * odds + calibrator.b_, target) <= found.fun + 1e-15
    close(values(calibrator), -np.array(_sigmoid_calibration(odds, labels)), 1e-5)


def test_the_slope_and_the_intercept_solve_the_equations_of_the_minimum():
    odds, labels = data(rows=40)
    calibrator = PlattScaling(smooth_targets=False).fit(odds, labels)
    with mpmath.workdps(40):
        a, b = mpmath.mpf(calibrator.a_), mpmath.mpf(calibrator.b_)
        errors = [1 / (1 + mpmath.exp(-(a * s + b))) - int(y) for s, y in zip(odds, labels, strict=True)]
        assert abs(sum(errors)) < 1e-13
        assert abs(sum(error * s for error, s in zip(errors, odds, strict=True))) < 1e-13


def test_with_the_labels_as_targets_it_is_logistic_regression():
    odds, labels = data()
    regression = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(odds[:, None], labels)
    calibrator = PlattScaling(smooth_targets=False).fit(odds, labels)
    close(values(calibrator), [regression.coef_[0, 0], regression.intercept_[0]], 1e-6)
    close(calibrator.predict_probs(odds), regression.predict_proba(odds[:, None])[:, 1], 1e-6)


def test_a_score_that_points_the_wrong_way_is_turned():
    odds, labels = data()
    right, wrong = PlattScaling().fit(odds, labels), PlattScaling().fit(-odds, labels)
    assert wrong.a_ == pytest.approx(-right.a_, abs=1e-12)
    close(wrong.predict_probs(-odds), right.predict_probs(odds), 1e-12)


def test_smoothed_targets_have_a_minimum_where_the_labels_have_none():
    odds = np.array([-3.0, -2.0, -1.0, 1.0, 2.5, 3.0])
    labels = (odds > 0).astype(int)
    smooth, sharp = PlattScaling().fit(odds, labels), PlattScaling(smooth_targets=False).fit(odds, labels)
    assert smooth.report_.converged
    assert not smooth.report_.at_boundary
    assert 0 < smooth.a_ < 3
    assert sharp.report_.at_boundary
    assert not sharp.report_.converged
    assert sharp.a_ > 10
    assert np.isfinite(values(sharp)).all()


def test_where_smoothing_costs_more_than_it_gains_the_raw_logits_are_kept():
    odds = np.array([-30.0, -20.0, 20.0, 30.0])
    calibrator = PlattScaling().fit(odds, [0, 0, 1, 1])
    assert calibrator.report_.kept_identity
    close(calibrator.predict_probs(odds), expit(odds), 1e-12)


def test_one_class_of_labels_gives_its_smoothed_target_everywhere():
    calibrator = PlattScaling().fit([-1.0, 0.5, 2.0, 1.0], [1, 1, 1, 1])
    close(calibrator.a_, 0.0, 1e-10)
    close(expit(calibrator.b_), 5 / 6, 1e-10)


# ----------------------------------------------------------------------------------------------------------------- beta


def beta_minimum(odds, labels, parameters, weight=None):
    """The constrained minimum by brute force: L-BFGS-B from many starts."""
    log_q, log_not_q = log_expit(odds), log_expit(-odds)

    def objective(theta):
        a, b, c = {
            "abm": lambda: theta,
            "ab": lambda: (theta[0], theta[1], (theta[0] - theta[1]) * np.log(2)),
            "am": lambda: (theta[0], theta[0], theta[1]),
        }[parameters]()
        return cross_entropy(a * log_q - b * log_not_q + c, labels, weight)

    bounds = {"abm": [(0, None), (0, None), (None, None)], "ab": [(0, None)] * 2, "am": [(0, None), (None, None)]}
    starts = np.random.default_rng(0).random((5, len(bounds[parameters])))
    options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 5000}
    return min(minimize(objective, s, bounds=bounds[parameters], options=options).fun for s in starts)


@pytest.mark.parametrize("parameters", ["abm", "ab", "am"])
@pytest.mark.parametrize(
    "truth",
    [
        (0.6, 0.3, 0.2),
        (-1.0, 1.5, 0.0),
        (1.5, -1.0, 0.3),
        (-0.2, 1.5, 0.0),  # a alone, or b alone, would do, but not equally well
        (1.5, -0.2, 0.0),
        (-0.5, -0.5, 0.0),
        (-2.0, -0.1, 1.0),
        (0.0, 0.0, 0.5),
    ],
)
def test_beta_calibration_is_the_minimum_with_slopes_above_zero(truth, parameters):
    odds, labels = data(*truth)
    calibrator = BetaCalibration(parameters).fit(odds, labels)
    expected = beta_minimum(odds, labels, parameters)
    found = m.nll(calibrator(odds), labels, kind="log_probs")
    assert calibrator.a_ >= 0
    assert calibrator.b_ >= 0
    assert found <= expected + 1e-13
    assert found == pytest.approx(expected, abs=1e-9)
    assert calibrator.report_.at_boundary == (min(calibrator.a_, calibrator.b_) == 0)
    assert not calibrator.report_.kept_identity


def test_every_face_of_the_constraint_is_met_by_these_data():
    seen = set()
    for truth in [(0.6, 0.3, 0.2), (-1.0, 1.5, 0.0), (1.5, -1.0, 0.3), (-0.5, -0.5, 0.0)]:
        calibrator = BetaCalibration().fit(*data(*truth))
        seen.add((calibrator.a_ > 0, calibrator.b_ > 0))
    assert seen == {(True, True), (False, True), (True, False), (False, False)}


def test_without_a_limit_in_the_way_it_is_logistic_regression_on_two_logarithms():
    odds, labels = data()
    features = np.stack([log_expit(odds), -log_expit(-odds)], 1)
    regression = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(features, labels)
    expected = [*regression.coef_[0], regression.intercept_[0]]
    close(values(BetaCalibration().fit(odds, labels)), expected, 1e-4)


def test_fewer_parameters_are_what_their_names_say():
    odds, labels = data()
    through, straight = BetaCalibration("ab").fit(odds, labels), BetaCalibration("am").fit(odds, labels)
    close(through.predict_probs([0.0]), [0.5], 1e-15)
    assert straight.a_ == straight.b_
    platt = PlattScaling(smooth_targets=False).fit(odds, labels)
    close(values(straight), [platt.a_, platt.a_, platt.b_], 1e-12)
    reports = [BetaCalibration(name).fit(odds, labels).report_.after for name in ("abm", "ab", "am")]
    assert reports[0] <= min(reports)


def test_the_map_rises_and_takes_no_harm_from_certainty():
    odds, labels = data()
    calibrator = BetaCalibration().fit(odds, labels)
    grid = np.concatenate([-np.logspace(5, -5, 200), np.logspace(-5, 5, 200)])
    log_probs = calibrator(grid)
    assert np.isfinite(log_probs).all()
    assert (np.diff(log_probs[:, 1]) >= 0).all()
    assert (np.diff(log_probs[:, 0]) <= 0).all()
    with mpmath.workdps(60):
        for s, (of_0, of_1) in zip(grid[::20], log_probs[::20], strict=True):
            log_q, log_not_q = -mpmath.log1p(mpmath.exp(-mpmath.mpf(s))), -mpmath.log1p(mpmath.exp(mpmath.mpf(s)))
            t = calibrator.a_ * log_q - calibrator.b_ * log_not_q + calibrator.c_
            assert of_1 == pytest.approx(float(-mpmath.log1p(mpmath.exp(-t))), rel=1e-12)
            assert of_0 == pytest.approx(float(-mpmath.log1p(mpmath.exp(t))), rel=1e-12)


def test_separable_labels_are_said_to_have_no_minimum():
    odds = np.array([-3.0, -2.0, -1.0, 1.0, 2.5, 3.0])
    for parameters in ("abm", "ab", "am"):
        calibrator = BetaCalibration(parameters).fit(odds, (odds > 0).astype(int))
        assert calibrator.report_.at_boundary
        assert not calibrator.report_.converged
        assert calibrator.report_.after < 1e-9
        assert np.isfinite(calibrator(1e4 * odds)).all()


# ----------------------------------------------------------------------------------------------------------------- both


@every_method
def test_rows_weights_and_batches(make):
    odds, labels = data(rows=150)
    generator = np.random.default_rng(1)
    weight = generator.integers(0, 4, len(labels))
    places = generator.permutation(np.repeat(np.arange(len(labels)), weight))
    weighted = make().fit(odds, labels, sample_weight=weight.astype(float))
    repeated = make().fit(odds[places], labels[places])
    close(values(weighted), values(repeated), 1e-10)
    batches = [(odds[i : i + 11], labels[i : i + 11], weight[i : i + 11].astype(float)) for i in range(0, 150, 11)]
    close(values(make().fit(lambda: batches)), values(weighted), 1e-10)


@every_method
def test_two_columns_and_the_score_of_the_positive_class_are_the_same(make):
    odds, labels = data()
    pairs = np.stack([0.3 - odds / 2, 0.3 + odds / 2], 1)
    one, two = make().fit(odds, labels), make().fit(pairs, labels)
    close(values(one), values(two), 1e-11)
    close(one(odds), two(pairs), 1e-11)


@every_method
def test_single_precision_is_summed_in_double(make):
    odds, labels = data()
    single = odds.astype(np.float32)
    close(values(make().fit(single, labels)), values(make().fit(single.astype(float), labels)), 1e-11)


@pytest.mark.parametrize("odds", [[0.0, 0.0, 0.0], [3.0, 3.0, 3.0], [1e4, 1e4, 1e4]])
@every_method
def test_scores_that_do_not_vary_give_the_frequency(make, odds):
    calibrator = make().fit(odds, [1, 0, 1])
    smooth = isinstance(calibrator, PlattScaling) and calibrator.smooth_targets
    expected = (2 * 3 / 4 + 1 / 3) / 3 if smooth else 2 / 3
    through_the_middle = isinstance(calibrator, BetaCalibration) and calibrator.free == "ab" and odds[0] == 0
    if not (calibrator.report_.kept_identity or through_the_middle):
        close(calibrator.predict_probs(np.array(odds)), np.full(3, expected), 1e-9)


@every_method
def test_more_than_two_classes_are_refused(make):
    logits, labels = np.random.default_rng(0).standard_normal((9, 3)), np.arange(9) % 3
    with pytest.raises(InputError, match=r"logits: this calibrator takes 2 classes; got 3.*VectorScaling"):
        make().fit(logits, labels)
    with pytest.raises(InputError, match=r"2 classes"):
        make().fit(*data())(torch.zeros(4, 3))


def test_unknown_parameters_are_refused():
    with pytest.raises(InputError, match=r"parameters: must be one of abm, ab, am; got 'abc'"):
        BetaCalibration("abc")
