"""Ensemble temperature scaling: exact weights, against scipy, brute force and mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from focalcal import metrics as m
from focalcal.calibrators import EnsembleTemperatureScaling, TemperatureScaling
from focalcal.calibrators.ensemble import _CORNERS, _error_products, _least_quadratic, _nll_of_mixture
from focalcal.calibrators.fit_data import data_of_arrays
from tests.calibrators.cases import close, draw, softmax

BOUNDS = [(0, 1), (0, 1), (0, 0.999)]
both = pytest.mark.parametrize("criterion", ["brier", "nll"])


def mixture(logits, temperature, weights):
    logits = np.asarray(logits)
    uniform = np.full_like(logits, 1 / logits.shape[1])
    return weights[0] * softmax(logits / temperature) + weights[1] * softmax(logits) + weights[2] * uniform


def measure(criterion, probs, labels):
    return float(getattr(m, criterion)(probs / probs.sum(1, keepdims=True), labels, kind="probs"))


def read_once(logits, labels, weight=None):
    data = data_of_arrays(logits, labels, "logits", weight)
    assert data.count()  # the total weight is known from here on
    return data


def brute_force(criterion, logits, labels, temperature):
    """The least value over the simplex, by SLSQP from several starts."""
    simplex = {"type": "eq", "fun": lambda w: w.sum() - 1}

    def objective(weights):
        return measure(criterion, mixture(logits, temperature, np.abs(weights)), labels)

    starts = np.vstack([np.eye(3) * 0.7 + 0.1, [1 / 3] * 3])
    options = {"ftol": 1e-15, "maxiter": 300}
    found = [minimize(objective, s, bounds=BOUNDS, constraints=simplex, options=options) for s in starts]
    return min(result.fun for result in found)


# Over- and underconfident models with good and useless predictions among theirs: every kind of weights is best for one.
def noisy(factor, share, seed, classes=3, rows=300):
    logits, labels = (array.copy() for array in draw(rows, classes, seed, factor))
    generator = np.random.default_rng(seed)
    lost = generator.random(rows) < share
    labels[lost] = generator.integers(0, classes, lost.sum())
    return logits, labels


DATA = [
    noisy(factor, share, seed) for seed, (factor, share) in enumerate([(2, 0), (4, 0.3), (0.5, 0), (1, 0.5), (6, 0.1)])
]


@pytest.mark.parametrize("data", DATA)
@both
def test_temperature_first_then_the_best_weights_for_it(criterion, data):
    logits, labels = data
    calibrator = EnsembleTemperatureScaling(criterion).fit(logits, labels)
    scaling = TemperatureScaling(criterion).fit(logits, labels)
    assert calibrator.temperature_ == scaling.temperature_
    weights = calibrator.weights_.numpy()
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-15)
    found = measure(criterion, mixture(logits, calibrator.temperature_, weights), labels)
    expected = brute_force(criterion, logits, labels, calibrator.temperature_)
    assert found <= expected + 1e-12
    assert found == pytest.approx(expected, abs=1e-7)
    assert calibrator.report_.after == pytest.approx(found, abs=1e-13)
    assert calibrator.report_.after <= scaling.report_.after + 1e-14
    assert calibrator.report_.converged


@both
def test_the_data_have_best_weights_of_several_kinds(criterion):
    kinds = {tuple(EnsembleTemperatureScaling(criterion).fit(*data).weights_ > 0) for data in DATA}
    assert len({tuple(bool(part) for part in kind) for kind in kinds}) >= 2


@pytest.mark.parametrize("data", DATA)
@both
def test_at_the_minimum_no_direction_that_is_allowed_leads_down(criterion, data):
    logits, labels = data
    calibrator = EnsembleTemperatureScaling(criterion).fit(logits, labels)
    weights, fit_data = calibrator.weights_.numpy(), read_once(logits, labels)
    if criterion == "brier":
        gradient = 2 * _error_products(fit_data, calibrator.temperature_) @ weights
    else:
        gradient = _nll_of_mixture(fit_data, calibrator.temperature_, weights)[1]
    assert (_CORNERS @ gradient - weights @ gradient).min() >= -1e-10


def test_the_derivatives_of_the_nll_are_finite_differences():
    logits, labels = DATA[1]
    data, point = read_once(logits, labels, np.linspace(0, 2, len(labels))), np.array([0.5, 0.2, 0.3])
    _, gradient, hessian = _nll_of_mixture(data, 2.0, point)
    for place, move in enumerate(1e-5 * np.eye(3)):
        ahead, behind = _nll_of_mixture(data, 2.0, point + move), _nll_of_mixture(data, 2.0, point - move)
        assert (ahead[0] - behind[0]) / 2e-5 == pytest.approx(gradient[place], abs=1e-8)
        close((ahead[1] - behind[1]) / 2e-5, hessian[place], 1e-7)


def test_the_quadratic_is_least_among_all_allowed_weights():
    generator = np.random.default_rng(0)
    grid = generator.dirichlet(np.ones(4), 20_000) @ _CORNERS
    kinds = set()
    for _ in range(60):
        root = generator.standard_normal((3, generator.integers(1, 4)))
        hessian, linear = root @ root.T, 2 * generator.standard_normal(3)
        found = _least_quadratic(linear, hessian)
        assert found.min() >= 0
        assert found[2] <= 0.999
        assert found.sum() == pytest.approx(1, abs=1e-14)
        values = grid @ linear + np.einsum("ni,ij,nj->n", grid, hessian, grid) / 2
        assert linear @ found + found @ hessian @ found / 2 <= values.min() + 1e-12
        kinds.add((*(bool(part > 0) for part in found), bool(found[2] >= 0.999)))
    assert len(kinds) >= 6  # inside, on edges and in corners


# ------------------------------------------------------------------------------------------------------- what comes out


@both
def test_the_predicted_class_stays_even_where_the_model_knows_nothing(criterion):
    generator = np.random.default_rng(0)
    logits = generator.standard_normal((400, 5))
    labels = generator.integers(0, 5, 400)
    calibrator = EnsembleTemperatureScaling(criterion, bounds=(0.5, 2.0)).fit(logits, labels)
    assert calibrator.weights_[2] <= 0.999
    for dtype in (np.float32, np.float64):
        for scale in (0.1, 1.0, 30.0):
            given = (scale * logits).astype(dtype)
            assert (calibrator(given).argmax(1) == given.argmax(1)).all()


def test_a_uniform_prediction_is_as_far_as_the_limit():
    logits = np.tile([[3.0, 0.0]], (4, 1))
    calibrator = EnsembleTemperatureScaling("nll", bounds=(0.9, 1.1)).fit(logits, [0, 1, 0, 1])
    assert float(calibrator.weights_[2]) == pytest.approx(0.999, abs=1e-15)
    assert calibrator.report_.at_boundary
    assert calibrator.predict_probs(logits)[0, 0] > 0.5


@both
def test_rows_of_equal_logits_have_weights_and_no_temperature(criterion):
    calibrator = EnsembleTemperatureScaling(criterion).fit(np.zeros((4, 3)), [0, 1, 2, 2])
    assert calibrator.temperature_ == 1.0
    close(calibrator.predict_probs(np.zeros((1, 3))), np.full((1, 3), 1 / 3), 1e-15)


def test_no_probability_exceeds_one_however_the_weights_round():
    calibrator = EnsembleTemperatureScaling().fit(*DATA[0])
    for first in np.random.default_rng(0).random(200):
        calibrator._set(weights_=torch.tensor([first, 1 - first, 0.0], dtype=torch.float64))
        assert (calibrator(np.array([[1e4, 0.0, 0.0]])) <= 0).all()


def test_log_probabilities_are_right_where_the_mixture_underflows():
    calibrator = EnsembleTemperatureScaling("nll").fit(*DATA[0])
    logits = np.array([[0.0, -500.0, -3000.0], [1e4, 0.0, 9999.0], [1e-3, 0.0, -1e-3]])
    for weights in (
        [0.7, 0.3, 0.0],
        [1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0],
        [0.5, 0.0, 0.5],
        [0.2, 0.3, 0.5],
        [0.6, 0.3, 0.1],
    ):
        calibrator._set(weights_=torch.tensor(weights, dtype=torch.float64))
        log_probs = calibrator(logits)
        assert (log_probs <= 0).all()
        for row, found in zip(logits, log_probs, strict=True):
            with mpmath.workdps(50):
                parts = []
                for temperature in (mpmath.mpf(calibrator.temperature_), mpmath.mpf(1)):
                    shares = [mpmath.exp(mpmath.mpf(x) / temperature) for x in row]
                    parts.append([share / sum(shares) for share in shares])
                exact = [
                    mpmath.log(weights[0] * first + weights[1] * second + mpmath.mpf(weights[2]) / 3)
                    for first, second in zip(*parts, strict=True)
                ]
            np.testing.assert_allclose(found, [float(value) for value in exact], rtol=1e-12, atol=1e-15)


# ------------------------------------------------------------------------------------------------------------- the rows


@both
def test_weights_batches_and_order(criterion):
    logits, labels = DATA[1]
    generator = np.random.default_rng(1)
    weight = generator.integers(0, 4, len(labels))
    places = generator.permutation(np.repeat(np.arange(len(labels)), weight))
    weighted = EnsembleTemperatureScaling(criterion).fit(logits, labels, sample_weight=weight.astype(float))
    repeated = EnsembleTemperatureScaling(criterion).fit(logits[places], labels[places])
    assert weighted.temperature_ == pytest.approx(repeated.temperature_, abs=1e-10)
    close(weighted.weights_, repeated.weights_, 1e-9)
    for size in (17, 50):
        batches = [(logits[i : i + size], labels[i : i + size]) for i in range(0, len(labels), size)]
        streamed = EnsembleTemperatureScaling(criterion).fit(lambda batches=batches: batches)
        whole = EnsembleTemperatureScaling(criterion).fit(logits, labels)
        assert streamed.temperature_ == pytest.approx(whole.temperature_, abs=1e-10)
        close(streamed.weights_, whole.weights_, 1e-9)


@pytest.mark.parametrize("wrong", [1, 30, 1000])
def test_certain_mistakes_get_the_uniform_share_that_their_frequency_asks_for(wrong):
    """Right rows have p = 1 - 2/3 w, wrong ones w/3: the NLL is least where 2/3 w is the share of mistakes."""
    logits, labels = np.tile([1e4, 0.0, 0.0], (2000, 1)), np.repeat([0, 1], [2000 - wrong, wrong])
    calibrator = EnsembleTemperatureScaling("nll", bounds=(0.9, 1.1)).fit(logits, labels)
    assert calibrator.report_.converged
    assert float(calibrator.weights_[2]) == pytest.approx(1.5 * wrong / 2000, rel=1e-9)
    close(calibrator.predict_probs(logits[:1])[0, 0], 1 - wrong / 2000, 1e-12)


def test_a_certain_mistake_that_hardly_counts_is_no_harm():
    logits, labels = np.tile([1e4, 0.0, 0.0], (20, 1)), np.repeat([0, 1], [19, 1])
    weight = np.repeat([1.0, 1e-12], [19, 1])
    calibrator = EnsembleTemperatureScaling("nll", bounds=(0.9, 1.1)).fit(logits, labels, sample_weight=weight)
    assert 0 <= float(calibrator.weights_[2]) < 1e-9
    assert calibrator.report_.after < 1e-8


@both
def test_separable_rows_and_certain_mistakes_are_finite(criterion):
    logits = draw(60, 3)[0]
    for scale in (1.0, 1e4):
        for labels in (logits.argmax(1), logits.argmin(1), np.zeros(60, dtype=int)):
            report = EnsembleTemperatureScaling(criterion).fit(scale * logits, labels).report_
            assert np.isfinite(report.after)
            assert report.after <= report.before
    assert EnsembleTemperatureScaling(criterion).fit(logits, logits.argmax(1)).report_.at_boundary
