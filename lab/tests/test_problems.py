"""The two toy problems: what the papers' figures say, and what training tends to, against slow integrals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit

import focalcal as fc
from focalcal.errors import InputError
from focalcal_lab.data.synthetic import four_clusters, one_dimensional
from focalcal_lab.problems import (
    LinearProblem,
    OneDimensionalProblem,
    linear_limit,
    linear_problem,
    linear_risk,
    one_dimensional_limits,
    one_dimensional_problem,
    sure_mistakes,
)
from lab.tests.toy_networks import toy, trained

SLOW_GAMMAS = [pytest.param(gamma, marks=pytest.mark.slow) for gamma in (0.0, 3.0)]


@pytest.fixture(scope="module")
def linear() -> LinearProblem:
    return linear_problem()


@pytest.fixture(scope="module")
def line() -> OneDimensionalProblem:
    """Small networks on few rows: for what does not need good ones."""
    return one_dimensional_problem(epochs=1, train_size=5000, val_size=2000, test_size=5000)


def mixture_of(**options):
    return four_clusters(train_size=1, val_size=1, test_size=1, **options).facts["mixture"]


def slow_focal(margin: np.ndarray, gamma: float) -> np.ndarray:
    return -(expit(-margin) ** gamma) * np.log(expit(margin))


def plane(mixture, side: float = 9.0, points: int = 901) -> tuple[np.ndarray, np.ndarray]:
    """Points of a grid over the plane and the mass of each with each label."""
    axis = np.linspace(-side, side, points)
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return places, mixture.log_joint(places).exp().numpy() * (axis[1] - axis[0]) ** 2


# Linear problem (mukhoti2020, App. B)


@pytest.mark.parametrize("gamma", [1.0, *SLOW_GAMMAS])
def test_linear_risk_is_the_integral_over_the_plane(gamma):
    mixture = mixture_of(flip=0.15, distribution_seed=3)
    places, masses = plane(mixture)
    assert masses.sum() == pytest.approx(1, abs=1e-6)
    for weights in ([0.8, 0.3], [-0.2, 1.0]):
        logits = places @ weights
        slow = (masses[:, 1] * slow_focal(logits, gamma) + masses[:, 0] * slow_focal(-logits, gamma)).sum()
        assert linear_risk(torch.tensor(weights).double(), mixture, gamma).item() == pytest.approx(slow, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_limit_is_the_minimum_over_the_plane_and_its_numbers_are_integrals(gamma):
    mixture = mixture_of(flip=0.1, distribution_seed=3)
    places, masses = plane(mixture, points=301)

    def risk(weights: np.ndarray) -> float:
        logits = places @ weights
        return float((masses[:, 1] * slow_focal(logits, gamma) + masses[:, 0] * slow_focal(-logits, gamma)).sum())

    slow = minimize(risk, [0.5, 0.5], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12}).x
    limit = linear_limit(mixture, gamma)
    assert limit.weights == pytest.approx(slow, abs=1e-4)
    places, masses = plane(mixture)
    logits = places @ np.array(limit.weights)
    wrong = np.where(logits > 0, masses[:, 0], masses[:, 1])
    assert limit.weight_norm == pytest.approx(np.hypot(*limit.weights))
    assert limit.logit_norm == pytest.approx(np.sqrt(masses.sum(1) @ logits**2), abs=1e-4)
    assert limit.error == pytest.approx(wrong.sum(), abs=1e-3)
    sure = expit(np.abs(logits)) >= 0.9
    assert limit.sure_mistakes == pytest.approx(wrong[sure].sum() / wrong.sum(), abs=5e-3)


def test_fig7_norms_of_cross_entropy_are_above_those_of_focal_loss_at_every_epoch_and_grow(linear):
    cross_entropy, focal = linear.runs
    for norms in ("weight_norms", "logit_norms"):
        high, low = np.array(getattr(cross_entropy, norms)), np.array(getattr(focal, norms))
        assert len(high) == linear.epochs + 1
        assert (high[1:] > low[1:]).all()
        assert (np.diff(high[:200]) > 0).all()
        assert 1.7 < high[-1] / low[-1] < 1.9


def test_fig7_growth_ends_at_the_weights_of_least_risk(linear):
    for run in linear.runs:
        assert run.weight_norms[-1] - run.weight_norms[-51] < 1e-3
        # The weights of 4,000 rows are within some hundredths of those of endlessly many.
        assert run.weights == pytest.approx(run.limit.weights, abs=0.06)


@pytest.mark.slow
def test_with_more_rows_training_comes_nearer_to_its_limit():
    problem = linear_problem(seed=5, epochs=120, learning_rate=0.4, train_size=100_000, test_size=10)
    for run in problem.runs:
        assert run.weights == pytest.approx(run.limit.weights, abs=0.012)


def test_fig8_both_losses_have_the_same_decision_regions(linear):
    assert linear.angle() < 1
    cross_entropy, focal = linear.runs
    assert cross_entropy.error == pytest.approx(focal.error, abs=0.003)


def test_fig8_mistakes_of_cross_entropy_are_surer(linear):
    cross_entropy, focal = linear.runs
    assert cross_entropy.median_mistake > focal.median_mistake + 0.1
    assert cross_entropy.sure_mistakes > 0.3
    assert focal.sure_mistakes < 0.05
    assert len(cross_entropy.mistakes) == round(cross_entropy.error * 1000)
    assert min(cross_entropy.mistakes) >= 0.5


def test_fig8_almost_always_over_90_percent_does_not_hold_with_a_tenth_of_labels_flipped():
    shares = [linear_limit(mixture_of(distribution_seed=seed), 0.0).sure_mistakes for seed in range(12)]
    assert min(shares) > 0.25
    assert max(shares) < 0.5


def test_fig8_almost_always_over_90_percent_holds_with_fewer_flips_and_tighter_clusters():
    mixture = mixture_of(flip=0.05, scale=0.5)
    assert linear_limit(mixture, 0.0).sure_mistakes > 0.9
    assert linear_limit(mixture, 1.0).sure_mistakes < 0.05


def test_weights_trained_on_clean_labels_are_sure_of_flipped_ones_with_either_loss():
    for gamma in (0.0, 1.0):
        limit = linear_limit(mixture_of(flip=0.0), gamma)
        assert limit.sure_mistakes < 0.3
        assert sure_mistakes(torch.tensor(limit.weights).double(), mixture_of(flip=0.1)) > 0.9


def test_the_seed_decides_and_wrong_arguments_are_refused():
    assert linear_problem(1, epochs=3).runs == linear_problem(1, epochs=3).runs
    assert linear_problem(1, epochs=3).runs != linear_problem(2, epochs=3).runs
    for options in ({"epochs": 0}, {"gammas": ()}, {"learning_rate": 0.0}):
        with pytest.raises(InputError, match=next(iter(options))):
            linear_problem(**options)
    with pytest.raises(InputError, match="two classes"):
        linear_limit(one_dimensional(train_size=1, val_size=1, test_size=1).facts["mixture"], 0.0)


# One-dimensional problem (charoenphakdee2021, Sec. 5.2)


def slow_estimate(probs: np.ndarray, posterior: np.ndarray, density: np.ndarray) -> tuple[float, float]:
    """KL divergence and ECE by sums over a fine grid."""
    kl = density @ (posterior * np.log(posterior / probs)).sum(1)
    rows = np.arange(len(probs))
    confidence, accuracy = probs.max(1), posterior[rows, probs.argmax(1)]
    bins = np.ceil(confidence * 15)
    gaps = density * (confidence - accuracy)
    return float(kl), float(sum(abs(gaps[bins == b].sum()) for b in range(1, 16)))


@pytest.mark.parametrize("gamma", [1.0, pytest.param(5.0, marks=pytest.mark.slow)])
def test_limits_are_integrals_over_the_line(gamma):
    mixture = one_dimensional(train_size=1, val_size=1, test_size=1).facts["mixture"]
    points = torch.linspace(-8, 8, 6401, dtype=torch.float64)[:, None]
    posterior = mixture.posterior(points).numpy()
    density = mixture.log_joint(points).exp().sum(1).numpy()
    density /= density.sum()
    raw, temperature, mapped = one_dimensional_limits(mixture, [gamma])
    some = slice(1600, 4801, 320)  # from -4 to 4 in steps of 0.8, where every 24th point of the grid lies
    slow = np.exp([slow_minimizer(eta, gamma) for eta in posterior[some]])
    np.testing.assert_allclose(raw.probs[::24], slow, atol=1e-6)
    assert mapped.kl < 1e-9
    assert mapped.ece < 1e-9
    for one in (raw, temperature):
        log_probs = focal_outputs(posterior, gamma)
        log_probs = log_probs / (one.temperature or 1.0)
        probs = np.exp(log_probs - np.logaddexp.reduce(log_probs, axis=1, keepdims=True))
        kl, ece = slow_estimate(probs, posterior, density)
        assert one.kl == pytest.approx(kl, abs=2e-5)
        assert one.ece == pytest.approx(ece, abs=1e-3)


def focal_outputs(posterior: np.ndarray, gamma: float) -> np.ndarray:
    return np.log(fc.focal_minimizer(torch.tensor(posterior), gamma).numpy())


def slow_minimizer(eta: np.ndarray, gamma: float) -> np.ndarray:
    """The log-probabilities of least focal risk, by a search that knows nothing of the focal map."""

    def risk(logits: np.ndarray) -> float:
        log_probs = logits - np.logaddexp.reduce(logits)
        return float(-(eta * (1 - np.exp(log_probs)) ** gamma * log_probs).sum())

    options = {"xatol": 1e-10, "fatol": 1e-16, "maxiter": 20_000, "maxfev": 20_000}
    logits = minimize(risk, np.log(eta), method="Nelder-Mead", options=options).x
    return logits - np.logaddexp.reduce(logits)


@pytest.mark.slow
def test_classes_that_meet_in_pairs_hide_what_temperature_scaling_lacks():
    apart = one_dimensional(train_size=1, val_size=1, test_size=1, means=(-3, 0, 3), scales=(1, 1, 1))
    near = one_dimensional(train_size=1, val_size=1, test_size=1)
    far_kl, near_kl = (one_dimensional_limits(each.facts["mixture"], [1.0])[1].kl for each in (apart, near))
    assert far_kl < 1e-3 < 5e-3 < near_kl


def test_a_small_run_has_an_estimate_for_each_gamma_and_step(line):
    steps = [(one.gamma, one.step) for one in line.measured]
    focal = [(gamma, step) for gamma in (1.0, 5.0) for step in ("raw", "temperature", "focal-map")]
    assert steps == [(0.0, "raw"), *focal]
    assert steps == [(one.gamma, one.step) for one in line.limits]
    assert line.posterior.shape == line.measured[0].probs.shape
    # Neither map changes what is predicted.
    for gamma in (1.0, 5.0):
        assert len({line.of(gamma, step).error for step in ("raw", "temperature", "focal-map")}) == 1
    torch.testing.assert_close(line.joint / line.joint.sum(1, keepdim=True), line.posterior)


@pytest.mark.slow
def test_the_same_seed_trains_the_same_network(line):
    again = one_dimensional_problem(gammas=[5.0], epochs=1, train_size=5000, val_size=2000, test_size=5000)
    assert torch.equal(again.of(5.0, "raw").probs, line.of(5.0, "raw").probs)


@pytest.mark.slow
@toy
def test_fig3_only_psi_recovers_the_posterior():
    whole_line = trained()
    plain = whole_line.of(0.0, "raw")
    assert plain.kl < 5e-4
    assert plain.ece < 0.006
    for gamma in (1.0, 5.0):
        raw, temperature, mapped = (whole_line.of(gamma, step) for step in ("raw", "temperature", "focal-map"))
        assert mapped.kl < 5e-4
        assert mapped.ece < 0.007
        assert temperature.kl > 5e-3
        assert temperature.ece > 0.02
        assert raw.kl > 2 * temperature.kl
        assert raw.ece > 2 * temperature.ece
        assert raw.error == pytest.approx(plain.error, abs=0.001)
        # Underconfident: what is said of the likeliest class is below its true probability, on the whole grid.
        assert (raw.probs.amax(1) < whole_line.posterior.amax(1) + 0.01).all()
        for step in ("raw", "temperature", "focal-map"):
            measured, limit = whole_line.of(gamma, step), whole_line.limit_of(gamma, step)
            assert measured.kl == pytest.approx(limit.kl, abs=0.003)
            assert measured.ece == pytest.approx(limit.ece, abs=0.006)
    assert whole_line.of(5.0, "raw").kl > 2 * whole_line.of(1.0, "raw").kl


# What people see
