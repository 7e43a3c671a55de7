"""Synthetic sets: their posteriors against Bayes' rule done slowly, their samples against their posteriors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from focalcal import noisy_digits
from focalcal.errors import InputError
from focalcal_lab.data import load_data
from focalcal_lab.data.synthetic import CORNERS, ClassMixture, four_clusters, gaussian_mixture, one_dimensional

KNOWN = {
    "one-dimensional": {"train_size": 30, "val_size": 20, "test_size": 200_000},
    "four-clusters": {"train_size": 30, "val_size": 20, "test_size": 200_000},
    "gaussian-mixture": {"train_size": 30, "val_size": 20, "test_size": 200_000, "num_classes": 4, "features": 3},
}


def bayes(densities: list[np.ndarray]) -> np.ndarray:
    joint = np.stack(densities, axis=1)
    return joint / joint.sum(1, keepdims=True)


def test_digits_are_those_of_the_demo():
    data = load_data("digits", seed=3)
    for mine, theirs in zip((data.train, data.val, data.test), noisy_digits.load(3), strict=True):
        assert torch.equal(mine.inputs, theirs.images)
        assert torch.equal(mine.labels, theirs.labels)
    assert data.facts == {"channels": 1, "size": 8, "features": 64}


def test_one_dimensional_posterior_is_bayes_rule_with_normal_densities():
    means, scales, priors = (-2.0, 0.5, 1.0), (0.5, 2.0, 1.0), (0.2, 0.5, 0.3)
    data = one_dimensional(train_size=1, val_size=1, test_size=1, means=means, scales=scales, priors=priors)
    points = np.linspace(-4, 4, 33)
    slow = bayes([p * norm.pdf(points, m, s) for m, s, p in zip(means, scales, priors, strict=True)])
    found = data.facts["posterior"](torch.tensor(points)[:, None])
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, slow, rtol=1e-12)


def test_four_clusters_posterior_is_bayes_rule_with_flipped_labels():
    data = four_clusters(train_size=1, val_size=1, test_size=1, flip=0.2, scale=1.5, distribution_seed=5)
    mixing = data.facts["mixture"].factors.numpy()
    points = np.random.default_rng(0).uniform(-5, 5, size=(50, 2))
    clusters = [
        multivariate_normal.pdf(points, mean, matrix @ matrix.T) for mean, matrix in zip(CORNERS, mixing, strict=True)
    ]
    left, right = clusters[0] + clusters[1], clusters[2] + clusters[3]
    slow = bayes([0.8 * left + 0.2 * right, 0.2 * left + 0.8 * right])
    np.testing.assert_allclose(data.facts["posterior"](points), slow, rtol=1e-6)


def test_gaussian_mixture_posterior_is_bayes_rule():
    priors = (0.1, 0.2, 0.7)
    options = {"num_classes": 3, "features": 4, "separation": 1.3, "priors": priors}
    data = gaussian_mixture(train_size=1, val_size=1, test_size=1, **options)
    means = data.facts["mixture"].means.numpy()
    points = np.random.default_rng(0).normal(size=(40, 4))
    slow = bayes([p * multivariate_normal.pdf(points, m, np.eye(4)) for p, m in zip(priors, means, strict=True)])
    np.testing.assert_allclose(data.facts["posterior"](points), slow, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), 1.3)


def test_joint_densities_integrate_to_the_priors():
    mixture = one_dimensional(train_size=1, val_size=1, test_size=1).facts["mixture"]
    points = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    masses = torch.trapezoid(mixture.log_joint(points[:, None]).exp(), points, dim=0)
    np.testing.assert_allclose(masses, [0.3, 0.4, 0.3], atol=1e-9)


@pytest.mark.parametrize("name", KNOWN)
def test_labels_are_as_frequent_as_the_posterior_says(name):
    """In every bin of a class's posterior its labels must be that frequent, within 4.5 standard deviations."""
    data = load_data(name, seed=1, **KNOWN[name])
    posterior, labels = data.facts["posterior"](data.test.inputs), data.test.labels
    for k in range(data.num_classes):
        eta, hits = posterior[:, k], (labels == k).double()
        bins = (eta * 10).long().clamp(max=9)
        for b in bins.unique():
            inside = bins == b
            spread = (eta * (1 - eta))[inside].sum().sqrt()
            assert abs(float((hits - eta)[inside].sum())) <= 4.5 * float(spread) + 1


@pytest.mark.parametrize("name", KNOWN)
def test_inputs_have_the_moments_of_the_mixture(name):
    data = load_data(name, seed=2, **KNOWN[name])
    mixture: ClassMixture = data.facts["mixture"]
    inputs = data.test.inputs.double()
    mean = mixture.weights @ mixture.means
    second = torch.einsum("c,cij,ckj->ik", mixture.weights, mixture.factors, mixture.factors)
    second += torch.einsum("c,ci,cj->ij", mixture.weights, mixture.means, mixture.means)
    torch.testing.assert_close(inputs.mean(0), mean, atol=0.03, rtol=0)
    torch.testing.assert_close(inputs.T @ inputs / len(inputs), second, atol=0.08, rtol=0)


@pytest.mark.parametrize("name", KNOWN)
def test_sizes_and_facts_are_those_asked_for_and_the_seed_decides(name):
    options = {**KNOWN[name], "test_size": 40}
    data, again, other = (load_data(name, seed=seed, **options) for seed in (7, 7, 8))
    assert [len(split) for split in (data.train, data.val, data.test)] == [30, 20, 40]
    assert data.facts["features"] == data.train.inputs.shape[1]
    assert data.train.inputs.dtype == torch.float32
    assert data.train.labels.dtype == torch.int64
    assert torch.equal(data.test.inputs, again.test.inputs)
    assert not torch.equal(data.test.inputs, other.test.inputs)
    assert torch.equal(data.facts["mixture"].means, other.facts["mixture"].means)
    assert torch.equal(data.facts["mixture"].factors, other.facts["mixture"].factors)


def test_four_clusters_have_the_papers_sizes_and_flip_a_tenth_of_the_labels():
    data = load_data("four-clusters")
    assert len(data.train) == 4000
    assert len(data.test) == 1000
    clean = data.facts["posterior"](data.train.inputs).argmax(1)
    assert 0.085 < (clean != data.train.labels).double().mean() < 0.12
    mixture = data.facts["mixture"]
    corners = mixture.means
    assert torch.cdist(corners, corners).unique().tolist() == pytest.approx([0, 4, 4 * 2**0.5])
    assert (corners[mixture.classes == 0][:, 0] < 0).all()
    assert (corners[mixture.classes == 1][:, 0] > 0).all()


def test_distribution_seed_draws_new_matrices():
    one, two = (four_clusters(train_size=1, distribution_seed=seed).facts["mixture"].factors for seed in (0, 1))
    assert not torch.equal(one, two)
    assert one.abs().max() <= 1


def test_the_posterior_far_away_is_still_a_distribution():
    posterior = four_clusters(train_size=1).facts["posterior"](torch.tensor([[1e4, 3.0], [-1e4, 1e4]]))
    torch.testing.assert_close(posterior.sum(1), torch.ones(2, dtype=torch.float64))
    clean = gaussian_mixture(train_size=1).facts["posterior"](torch.full((1, 10), 1e3))
    assert clean.isfinite().all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("four-clusters", {"flip": 1.5}, "flip: must lie in"),
        ("four-clusters", {"scale": 0.0}, "scale: must be greater than 0"),
        ("four-clusters", {"train_size": 0}, "train_size: must be at least 1"),
        ("one-dimensional", {"priors": (0.5, 0.5)}, "means: must be as many as"),
        ("one-dimensional", {"priors": (0.5, 0.5, 0.5)}, "priors: each row must sum to 1"),
        ("one-dimensional", {"scales": (1.0, -1.0, 1.0)}, "scales: must be greater than 0"),
        ("gaussian-mixture", {"num_classes": 1}, "num_classes: must be at least 2"),
        ("gaussian-mixture", {"features": 0}, "features: must be at least 1"),
        ("gaussian-mixture", {"separation": float("nan")}, "separation: must be"),
        ("gaussian-mixture", {"priors": (0.5, 0.5)}, "priors: must be 10"),
    ],
)
def test_wrong_options_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        load_data(name, **options)


def test_inputs_of_another_width_are_refused():
    with pytest.raises(InputError, match=r"inputs: must have shape \(N, 2\)"):
        four_clusters(train_size=1).facts["posterior"](torch.zeros(3, 1))
