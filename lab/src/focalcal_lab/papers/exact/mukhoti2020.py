"""Calibrating Deep Neural Networks using Focal Loss (mukhoti2020), claim by claim."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

import focalcal as fc
from focalcal.core.binning import bin_predictions
from focalcal_lab.papers import published_results
from focalcal_lab.papers.exact.tools import (
    CLASS_COUNTS,
    GAMMAS,
    Array,
    calibration_error,
    check,
    close,
    distributions,
    entropy,
    exact_g,
    expected_loss,
    gradient,
    loss_at,
    minimise_risk,
    refused,
    softmax,
)


def predictions(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Overconfident ten-class predictions: confidences (N,) and whether they were right (N,)."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(count, 10))
    probs = softmax(logits)
    labels = np.array([rng.choice(10, p=row) for row in softmax(logits / 2)])
    return probs.max(1), (probs.argmax(1) == labels).astype(float)


def gap_of_equal_width_bin(confidence: Array, correct: Array, i: int, num_bins: int) -> tuple[float, int]:
    """|A_i - C_i| and |B_i| of the bin ((i-1)/M, i/M], by a plain loop; 0 for an empty bin."""
    inside = [(c, a) for c, a in zip(confidence, correct, strict=True) if (i - 1) / num_bins < c <= i / num_bins]
    if not inside:
        return 0.0, 0
    return abs(sum(a for _, a in inside) - sum(c for c, _ in inside)) / len(inside), len(inside)


def with_edges(confidence: Array, correct: Array, num_bins: int) -> tuple[Array, Array]:
    """The same predictions, and one exactly on every edge, right on every other one."""
    edges = np.arange(1, num_bins + 1) / num_bins
    return np.concatenate([confidence, edges]), np.concatenate([correct, np.arange(num_bins) % 2])


@check("mukhoti2020.eq1")
def eq1_ece_is_the_weighted_sum_of_gaps_over_equal_width_bins() -> None:
    """ECE of 1, 10, 15 and 25 bins against a plain loop, with predictions exactly on the edges."""
    for num_bins in (1, 10, 15, 25):
        confidence, correct = with_edges(*predictions(500), num_bins)
        gaps = [gap_of_equal_width_bin(confidence, correct, i + 1, num_bins) for i in range(num_bins)]
        expected = sum(gap * size for gap, size in gaps) / len(confidence)
        bins = bin_predictions(torch.tensor(confidence), torch.tensor(correct), num_bins=num_bins)
        close(calibration_error(bins), expected, abs=1e-14)
        assert bins.count.tolist() == [size for _, size in gaps]
        assert expected > 0.1
        assert len(bin_predictions(torch.tensor(confidence), torch.tensor(correct)).count) == 15


@check("mukhoti2020.eq2")
def eq2_mce_is_the_largest_gap_of_the_same_bins() -> None:
    """MCE against the largest gap of a plain loop; empty bins have no gap."""
    confidence, correct = with_edges(*predictions(500), 15)
    gaps = [gap_of_equal_width_bin(confidence, correct, i + 1, 15)[0] for i in range(15)]
    bins = bin_predictions(torch.tensor(confidence), torch.tensor(correct))
    close(float(bins.gap.abs().max()), max(gaps), abs=1e-14)
    # Empty bins have no gap: a single prediction of 0.97 that is right leaves 14 of them.
    lone = bin_predictions(torch.tensor([0.97], dtype=torch.float64), torch.tensor([1]))
    close(float(lone.gap.abs().max()), 0.03)


@check(
    "mukhoti2020.eq3",
    printed="AdaECE uses bins with equal counts, for all pairs of bins.",
    true=(
        "Possible only if the number of bins divides N. Otherwise counts differ by one: 607 rows in 15 bins "
        "are 40 or 41 each."
    ),
)
def eq3_adaece_is_the_weighted_sum_of_gaps_over_bins_of_equal_count() -> None:
    """AdaECE against chunks of the sorted confidences, and the counts where 15 does not divide N."""
    confidence, correct = predictions(600)
    bins = bin_predictions(torch.tensor(confidence), torch.tensor(correct), edges="equal_mass")
    order = np.argsort(confidence)
    chunks = [(confidence[part].mean(), correct[part].mean()) for part in np.split(order, 15)]
    assert bins.count.tolist() == [40] * 15
    close(calibration_error(bins), np.mean([abs(c - a) for c, a in chunks]), abs=1e-14)
    # 607 rows cannot fill 15 equal bins: 40 or 41 each is the nearest that exists.
    confidence, correct = predictions(607)
    bins = bin_predictions(torch.tensor(confidence), torch.tensor(correct), edges="equal_mass")
    assert sorted(set(bins.count.tolist())) == [40, 41]
    assert bins.count.sum() == 607


@check("mukhoti2020.sec3.weights-infinite")
def sec3_cross_entropy_reaches_its_minimum_only_as_the_weights_grow_without_bound() -> None:
    """A bound by the weight norm keeps the loss above 0; longer separating weights always lower it."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    separating = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    labels = (features @ separating.T).argmax(1)
    longest = features.norm(dim=1).max()

    def least_possible(weights: Tensor) -> Tensor:
        # |x_y - x_j| <= |w_y - w_j| |features| <= sqrt(2) |W| |features| for every wrong class j
        return torch.log1p(2 * torch.exp(-math.sqrt(2) * weights.norm() * longest))

    for scale in (0.1, 1.0, 10.0):
        weights = scale * torch.randn(3, 6, generator=generator, dtype=torch.float64)
        loss = fc.focal_loss(features @ weights.T, labels, gamma=0.0)
        assert loss >= least_possible(weights) > 0
    losses = [fc.focal_loss(features @ (c * separating).T, labels, gamma=0.0) for c in (1.0, 10.0, 100.0, 1e4)]
    assert all(after < before for before, after in pairwise(losses))
    assert 0 < losses[-1] < 1e-40


@check("mukhoti2020.ce-above-kl")
def sec4_cross_entropy_is_the_divergence_plus_the_entropy_of_the_target() -> None:
    """Cross-entropy is KL(q||p) + H[q] on random pairs of 2 to 1000 classes."""
    for num_classes in CLASS_COUNTS:
        target, predicted = distributions(num_classes, 50, seed=1), distributions(num_classes, 50, seed=2)
        divergence = (target * np.log(target / predicted)).sum(1)
        cross_entropy = expected_loss(predicted, target, 0.0)
        close(cross_entropy, divergence + entropy(target), rel=1e-10)
        assert (cross_entropy > divergence).all()


def targets_and_predictions(num_classes: int) -> tuple[Array, Array]:
    """Random pairs, pairs with a one-hot target (the worst case), and for two classes a dense grid."""
    predicted = distributions(num_classes, 300, seed=3)
    one_hot = np.eye(num_classes)[np.arange(300) % num_classes]
    targets = np.concatenate([distributions(num_classes, 300, seed=4), one_hot])
    predicted = np.concatenate([predicted, predicted])
    if num_classes == 2:
        grid = np.linspace(1e-4, 1 - 1e-4, 2000)
        predicted = np.concatenate([predicted, np.stack([grid, 1 - grid], 1)])
        targets = np.concatenate([targets, np.tile([[1.0, 0.0]], (2000, 1))])
    return targets, predicted


# Both sides are linear in q, so it is enough that for one-hot q: c ((1-p)^gamma - 1) + gamma H[p] >= 0, where
# c = -log p. With d = -log(1-p), (1-p)^gamma >= 1 - gamma d, and H[p] >= p c + (1-p) d. What is left is
# p/d + (1-p)/c >= 1, true because d <= p/(1-p) and c <= (1-p)/p. So the bound needs no Bernoulli inequality
# and holds for 0 < gamma < 1 too.
@check("mukhoti2020.eq4")
def eq4_focal_loss_is_at_least_the_divergence_minus_gamma_times_the_entropy() -> None:
    """L_f >= KL(q||p) - gamma H[p] on random pairs, one-hot targets and a dense binary grid, gamma 0.001 to 20."""
    for num_classes in CLASS_COUNTS:
        target, predicted = targets_and_predictions(num_classes)
        divergence = -entropy(target) - (target * np.log(predicted)).sum(1)
        for gamma in (*GAMMAS, 0.2, 0.8):
            bound = divergence - gamma * entropy(predicted)
            assert (expected_loss(predicted, target, gamma) >= bound - 1e-12).all()


@check("mukhoti2020.appA.stronger")
def app_a_focal_loss_is_at_least_the_cross_entropy_minus_gamma_times_the_entropy() -> None:
    """L_f >= L_c - gamma H[p] on the same pairs, below gamma = 1 too, where the printed proof has a gap."""
    for num_classes in CLASS_COUNTS:
        target, predicted = targets_and_predictions(num_classes)
        cross_entropy = -(target * np.log(predicted)).sum(1)
        for gamma in (*GAMMAS, 0.2, 0.8):
            loss = expected_loss(predicted, target, gamma)
            assert (loss >= cross_entropy - gamma * entropy(predicted) - 1e-12).all()
            # The divergence term alone is beaten by more, unless the target is one-hot and has no entropy.
            assert (loss >= cross_entropy - entropy(target) - gamma * entropy(predicted) - 1e-12).all()
        # The step of the printed proof, (1-p)^gamma >= 1 - gamma p, fails for gamma = 0.5 at p = 0.5.
        assert 0.5**0.5 < 1 - 0.5 * 0.5


@check("mukhoti2020.fn1.improper")
def footnote1_focal_loss_is_not_proper_but_one_hot_targets_are_their_own_minimiser() -> None:
    """Direct minimisation misses the target (0.7, 0.2, 0.1); for a one-hot target the loss falls to 0 at p_y = 1."""
    for gamma in (0.5, 1.0, 3.0, 5.0):
        posterior = np.array([0.7, 0.2, 0.1])
        found = minimise_risk(posterior, gamma)
        close(found, fc.focal_minimizer(posterior, gamma), abs=1e-6)
        assert found[0] < 0.7 - 0.02
        # For a one-hot target the loss falls strictly with p_y, down to 0 at p_y = 1.
        falling = loss_at(np.linspace(1e-6, 1 - 1e-6, 10_000), gamma)
        assert (np.diff(falling) < 0).all()
        assert loss_at(1 - 1e-15, gamma) < 1e-20
        assert fc.focal_minimizer([0.0, 1.0, 0.0], gamma).tolist() == [0, 1, 0]


@check("mukhoti2020.fig6")
def fig6_binary_minimiser_lies_between_one_half_and_q_and_nearer_to_one_half_for_larger_gamma() -> None:
    """A scalar search finds the binary minimiser; it moves towards 1/2, and its entropy up, as gamma grows."""
    for q in (0.001, 0.1, 0.3, 0.45, 0.55, 0.8, 0.99):
        minimisers = []
        for gamma in GAMMAS:
            found = minimize_scalar(
                lambda x, q=q, gamma=gamma: (
                    -((1 - x) ** gamma) * q * math.log(x) - x**gamma * (1 - q) * math.log(1 - x)
                ),
                bounds=(1e-9, 1 - 1e-9),
                method="bounded",
                options={"xatol": 1e-12},
            ).x
            close(found, float(fc.focal_minimizer(q, gamma)), abs=1e-7)
            minimisers.append(float(fc.focal_minimizer(q, gamma)))
        from_half = np.abs(np.array([q, *minimisers]) - 0.5)
        assert (np.diff(from_half) < 0).all()
        assert all((minimiser - 0.5) * (q - 0.5) > 0 for minimiser in minimisers)
        both = np.array([[p, 1 - p] for p in minimisers])
        assert (entropy(both) > entropy(np.array([q, 1 - q]))).all()


def gradients(
    loss_function: Callable[[Tensor, Tensor], Tensor], features: Tensor, labels: Tensor, layers: list[Tensor]
) -> tuple[Tensor, ...]:
    """The gradients of a two-layer network's parameters, first layer first."""
    hidden, last = (layer.detach().clone().requires_grad_() for layer in layers)
    logits = torch.tanh(features @ hidden.T) @ last.T
    return logits.detach(), *torch.autograd.grad(loss_function(logits, labels), (hidden, last))


@check("mukhoti2020.prop1")
def prop1_focal_gradient_is_g_times_the_cross_entropy_gradient() -> None:
    """Gradients of both layers of small networks are g times those of cross-entropy, g in high precision."""
    for gamma in GAMMAS:
        generator = torch.Generator().manual_seed(0)
        for num_classes in (2, 3, 10, 1000):
            layers = [torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (5, num_classes)]
            features = torch.randn(1, 5, generator=generator, dtype=torch.float64)
            label = torch.tensor([1])
            logits, *plain = gradients(torch.nn.functional.cross_entropy, features, label, layers)
            _, *focal = gradients(partial(fc.focal_loss, gamma=gamma), features, label, layers)
            p = float(torch.softmax(logits, 1)[0, 1])
            g = float(exact_g(p, gamma))
            close(float(fc.gradient_ratio(p, gamma)), g, rel=1e-12)
            for ours, reference in zip(focal, plain, strict=True):
                torch.testing.assert_close(ours, g * reference, rtol=1e-9, atol=1e-14)


@check("mukhoti2020.prop1.norm")
def prop1_focal_gradient_of_a_sample_is_shorter_wherever_g_is_at_most_1() -> None:
    """Norms of logit gradients for 999 probabilities; and a batch for which the claim cannot be carried over."""
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    labels = torch.zeros(len(p), dtype=torch.long)

    def norms(gamma: float) -> Any:
        logits = torch.stack([torch.log(p), torch.log1p(-p)], 1).requires_grad_()
        return gradient(fc.focal_loss(logits, labels, gamma=gamma, reduction="sum"), logits).norm(dim=1)

    for gamma in GAMMAS:
        g = fc.gradient_ratio(p, gamma)
        shorter = norms(gamma) <= norms(0.0) * (1 + 1e-12)
        assert shorter[(g >= 0) & (g <= 1)].all()
        assert not shorter[g > 1 + 1e-9].any()
    # A batch is another matter: the cross-entropy gradients of classes 0, 0, 1 at p = (2/3, 1/3) cancel.
    logits = torch.tensor([[2.0, 1.0]], dtype=torch.float64).log().repeat(3, 1).requires_grad_()
    labels = torch.tensor([0, 0, 1])
    assert gradient(fc.focal_loss(logits, labels, gamma=0.0), logits).sum(0).norm() < 1e-15
    assert (fc.gradient_ratio([2 / 3, 1 / 3], 3.0) < 1).all()
    assert gradient(fc.focal_loss(logits, labels, gamma=3.0), logits).sum(0).norm() > 0.1


@check("mukhoti2020.g.limits")
def app_c_g_tends_to_1_at_0_and_is_0_at_1() -> None:
    """g is within gamma p (1 - log p) of 1 down to p = 1e-300, exactly 1 at p = 0 and exactly 0 at p = 1."""
    for gamma in GAMMAS:
        p = 10.0 ** -np.arange(3, 300, 9)
        away = np.abs(fc.gradient_ratio(p, gamma) - 1)
        assert (away <= gamma * p * (1 - np.log(p)) * 1.01 + 1e-15).all()
        assert fc.gradient_ratio([0.0, 1.0], gamma).tolist() == [1.0, 0.0]


@check("mukhoti2020.eq8")
def eq8_slope_of_g_by_p() -> None:
    """The printed slope against high-precision differentiation and against differences of our g."""
    for gamma in GAMMAS:
        for p in (0.001, 0.05, 0.2, 0.5, 0.8, 0.95):
            bracket = -2 * (1 - p) - (1 - p) * math.log(p) + (gamma - 1) * p * math.log(p)
            printed = gamma * (1 - p) ** (gamma - 2) * bracket
            with mpmath.workdps(40):
                exact = float(mpmath.diff(lambda x, gamma=gamma: exact_g(x, gamma), p))
            step = 1e-5 * p
            above, below = fc.gradient_ratio([p + step, p - step], gamma).tolist()
            close(printed, exact, rel=1e-9)
            close((above - below) / (2 * step), printed, rel=1e-4, abs=1e-7)


@check("mukhoti2020.eq10")
def eq10_g_rises_once_from_1_and_then_falls_to_0() -> None:
    """k falls from 1 to -(1 + gamma), its sign is that of the slope of g, and its root is where our g peaks."""
    for gamma in GAMMAS:
        p = np.concatenate([np.geomspace(1e-12, 1e-3, 500), np.linspace(1e-3, 1 - 1e-6, 20_000)[1:]])
        k = 2 * (1 - p) / np.log(p) + 1 - gamma * p
        assert (np.diff(k) < 0).all()
        assert 1 - k[0] < 0.1
        close(k[-1], -(1 + gamma), abs=1e-4)
        with mpmath.workdps(30):
            slope = np.array([float(mpmath.diff(lambda x, gamma=gamma: exact_g(x, gamma), v)) for v in p[::500]])
        assert (np.sign(slope) == np.sign(k[::500])).all()
        peak = fc.confidence_thresholds(gamma)[0]
        g = fc.gradient_ratio(p, gamma)
        assert (np.diff(g[p < peak]) >= 0).all()
        assert (np.diff(g[p > peak]) < 0).all()
        close(2 * (1 - peak) / math.log(peak) + 1 - gamma * peak, 0, abs=1e-12)


@check("mukhoti2020.g.threshold")
def fig4a_g_is_at_least_1_up_to_one_threshold_and_below_1_after_it() -> None:
    """The root of g = 1 in high precision, and the sign of g - 1 on 100,001 points on both sides of it."""
    for gamma in GAMMAS:
        threshold = fc.confidence_thresholds(gamma)[1]
        with mpmath.workdps(40):
            root = mpmath.findroot(lambda p, gamma=gamma: exact_g(p, gamma) - 1, threshold)
        close(threshold, float(root), rel=1e-9)
        p = np.linspace(0, 1, 100_001)
        g = fc.gradient_ratio(p, gamma)
        assert (g[p <= threshold] >= 1 - 1e-15).all()
        assert (g[p > threshold + 1e-6] < 1).all()
        assert threshold < 0.5
        printed = {1.0: 0.36788, 2.0: 0.29764, 3.0: 0.25258, 5.0: 0.19680, 7.0: 0.16290}
        assert round(threshold, 5) == printed.get(gamma, round(threshold, 5))


@check(
    "mukhoti2020.g.p0-gamma1",
    printed="For gamma = 1, p0 is about 0.4.",
    true="p0 = 1/e = 0.3679. At 0.4, g is 0.967.",
)
def sec4_threshold_for_gamma_1_is_one_over_e_and_only_roughly_0_4() -> None:
    """The threshold of gamma = 1 is 1/e, and g(0.4, 1) is 0.967."""
    threshold = fc.confidence_thresholds(1.0)[1]
    close(threshold, math.exp(-1), rel=1e-14)
    close(float(fc.gradient_ratio(0.4, 1.0)), 0.96652, abs=1e-5)
    assert abs(threshold - 0.4) < 0.05


@check(
    "mukhoti2020.g.steeper",
    printed="The fall of g is steeper for larger gamma.",
    true=(
        "True for gamma 1, 2, 3, 5, 7, 10 (steepest slope 2.00, 2.04, 2.69, 4.10, 5.58, 7.88). Not between 1 "
        "and 2: 1.78 at gamma 1.5. Below 1 the slope at p = 1 is infinite."
    ),
)
def fig4a_fall_of_g_is_steeper_for_larger_gamma_among_whole_numbers() -> None:
    """The steepest slope of g for six whole gammas, and for 0.5 and 1.5, where the order breaks."""
    p = np.linspace(1e-6, 1 - 1e-6, 100_001)

    def steepest(gamma: float) -> float:
        return float(-np.gradient(fc.gradient_ratio(p, gamma), p).min())

    whole = [steepest(gamma) for gamma in (1.0, 2.0, 3.0, 5.0, 7.0, 10.0)]
    close(whole, [2.0, 2.0437, 2.6877, 4.0960, 5.5761, 7.8835], abs=1e-3)
    # Not between 1 and 2: at gamma 1 the steepest place is p = 1, which any larger gamma makes flat.
    close(steepest(1.5), 1.7808, abs=1e-3)
    # Nor below 1, where the slope at p = 1 is infinite.
    assert steepest(0.5) > 100


@check(
    "mukhoti2020.sec4.gamma7",
    printed="For gamma >= 7, g is nearly 0 around p = 0.5 and training fails.",
    true=(
        "g(0.5, 7) = 0.0457 and g(0.5, 10) = 0.0077, so the first half holds. Training does not fail at gamma "
        "7: komisarenko2024, Table 1, has accuracies of 93.1, 76.3 and 50.9 %."
    ),
)
def sec4_g_is_nearly_0_at_one_half_from_gamma_7_on() -> None:
    """g(0.5, gamma) from 3 to 500, and the published accuracies of networks trained with gamma 7."""
    g = {gamma: float(fc.gradient_ratio(0.5, gamma)) for gamma in (3.0, 5.0, 7.0, 10.0, 20.0)}
    close(g, {3.0: 0.38493, 5.0: 0.13955, 7.0: 0.04572, 10.0: 0.00775, 20.0: 1.417e-05}, rel=1e-3)
    assert fc.gradient_ratio(np.full(500, 0.5), torch.linspace(7, 500, 500, dtype=torch.float64)).max() < 0.046
    # "Training fails" is not so for gamma 7 itself: komisarenko2024 reports these accuracies (%).
    trained = {
        row["dataset"]: float(row["value"])
        for row in published_results()
        if row["paper"] == "komisarenko2024" and row["method"] == "fl-7" and row["metric"] == "accuracy"
    }
    assert trained == {"cifar10": 93.1, "cifar100": 76.3, "tiny-imagenet": 50.9}


def lambert_gamma(p0: float, branch: int) -> Any:
    """gamma of Prop. 2 with the given branch of the Lambert function, in the working precision of mpmath."""
    a, b = 1 - mpmath.mpf(p0), mpmath.mpf(p0) * mpmath.log(p0)
    argument = -(a ** (1 - a / b)) * mpmath.log(a) / b
    return a / b + mpmath.lambertw(argument, branch).real / mpmath.log(a)


@check("mukhoti2020.prop2")
def prop2_no_gradient_from_p0_on_exceeds_cross_entropy_from_gamma_star_on() -> None:
    """gamma* against the Lambert formula in high precision; g <= 1 from p0 on, and the bound is sharp."""
    for p0 in (0.001, 0.05, 0.2, 0.25, math.exp(-1), 0.45, 0.499):
        star = fc.gamma_star(p0)
        with mpmath.workdps(60):
            close(star, float(lambert_gamma(p0, -1)), rel=1e-9)
        close(float(fc.gradient_ratio(p0, star)), 1, abs=1e-11)
        p = np.linspace(p0, 1, 5000)
        for factor in (1, 1.0001, 1.5, 10):
            assert (fc.gradient_ratio(p, factor * star) <= 1 + 1e-11).all()
        # gamma* is the least such gamma, and p0 the least such p.
        assert float(fc.gradient_ratio(p0, 0.99 * star)) > 1
        assert float(fc.gradient_ratio(0.99 * p0, star)) > 1
        # From one half on the formula gives 0, and indeed every gamma will do.
        with mpmath.workdps(60):
            assert abs(lambert_gamma(0.5 + p0, -1)) < 1e-25
        with refused("any gamma > 0 will do"):
            fc.gamma_star(0.5 + p0)
        assert all((fc.gradient_ratio(np.linspace(0.5, 1, 1000), gamma) <= 1).all() for gamma in GAMMAS)


@check(
    "mukhoti2020.prop2.equality",
    printed="For p >= p0 and gamma >= gamma*, g = 1 only at p = p0 and gamma = gamma*.",
    true="Holds for p0 < 0.5. For p0 >= 0.5 the formula gives gamma* = 0, and g(p, 0) = 1 for every p.",
)
def prop2_equality_only_at_p0_and_gamma_star_needs_p0_below_one_half() -> None:
    """g < 1 everywhere else on a grid of (p, gamma) for p0 < 0.5; for p0 = 0.6, g = 1 at many points."""
    # As printed, p0 = 0.6 has gamma* = 0, and g(p, 0) = 1 for every p.
    with mpmath.workdps(60):
        assert abs(lambert_gamma(0.6, -1)) < 1e-25
    assert fc.gradient_ratio([0.6, 0.75, 0.9], 0.0).tolist() == [1, 1, 1]
    for p0 in (0.01, 0.1, 0.2, 0.25, 0.4, 0.49):
        star = fc.gamma_star(p0)
        p, factor = np.meshgrid(np.linspace(p0, 1, 200), np.linspace(1, 4, 50))
        g = fc.gradient_ratio(p, torch.tensor(factor * star))
        elsewhere = (p > p0) | (factor > 1)
        close(g[~elsewhere], 1, abs=1e-12)
        assert (g[elsewhere] < 1 - 1e-6).all()


@check(
    "mukhoti2020.prop2.w0",
    printed="The principal branch W_0 gives a negative gamma.",
    true="For p0 < 0.5 it gives exactly 0. It is negative only for p0 > 0.5: -0.4027 at 0.6, -0.9309 at 0.9.",
)
def eq13_principal_branch_gives_0_below_one_half_and_a_negative_gamma_only_above() -> None:
    """The W_0 root in high precision: 0 for six p0 below 0.5, negative for four above."""
    with mpmath.workdps(60):
        below = [float(lambert_gamma(p0, 0)) for p0 in (0.01, 0.1, 0.2, 0.25, 0.4, 0.49)]
        above = {p0: lambert_gamma(p0, 0) for p0 in (0.51, 0.6, 0.75, 0.9)}
        assert all(abs(exact_g(p0, gamma) - 1) < 1e-25 for p0, gamma in above.items())
    assert np.abs(below).max() < 1e-25
    close([float(gamma) for gamma in above.values()], [-0.0498, -0.4027, -0.7477, -0.9309], abs=1e-4)
    assert fc.gradient_ratio([0.01, 0.25, 0.49], 0.0).tolist() == [1, 1, 1]


@check("mukhoti2020.prop2.minimum")
def app_c_argument_of_the_lambert_function_is_negative_and_least_at_one_half() -> None:
    """The argument of W at 999 points: negative, falling up to p0 = 0.5, where it is -1/e, and rising after it."""
    with mpmath.workdps(40):

        def argument(p0: Any) -> Any:
            a, b = 1 - mpmath.mpf(p0), mpmath.mpf(p0) * mpmath.log(p0)
            return -(a ** (1 - a / b)) * mpmath.log(a) / b

        values = np.array([float(argument(p0)) for p0 in np.linspace(0.001, 0.999, 999)])
        least = float(argument(mpmath.mpf("0.5")))
    close(least, -math.exp(-1), rel=1e-14)
    assert (values < 0).all()
    assert values.argmin() == 499
    assert (np.diff(values[:500]) < 0).all()
    assert (np.diff(values[499:]) > 0).all()
    # There the two roots meet, so gamma* tends to 0 from the left.
    assert fc.gamma_star(0.5 - 1e-9) < 1e-7


@check("mukhoti2020.schedule.values")
def sec4_g_is_about_1_at_the_thresholds_of_the_schedule() -> None:
    """g(0.2, 5) = 0.98691 and g(0.25, 3) = 1.00672, and the gammas that make them exactly 1."""
    close(float(fc.gradient_ratio(0.2, 5.0)), 0.98691, abs=1e-5)
    close(float(fc.gradient_ratio(0.25, 3.0)), 1.00672, abs=1e-5)
    # The gammas that make it 1 exactly:
    close((fc.gamma_star(0.2), fc.gamma_star(0.25)), (4.8506, 3.0702), abs=1e-4)


def gammas_at(policy: str, p: Tensor) -> Any:
    """The gammas that a focal loss with this policy takes at true-class probabilities p."""
    gamma: Any = fc.FocalLoss(policy).gamma
    return gamma(p)


@check(
    "mukhoti2020.schedule.region",
    printed="With FLSD-53, g > 1 on [0, 0.25) and g < 1 on (0.25, 1].",
    true=(
        "g < 1 on (0.1968, 0.2), by at most 1.3 %, and g > 1 on (0.25, 0.2526), by at most 0.7 %; g = 1 at p "
        "= 0. It holds elsewhere."
    ),
)
def sec4_schedule_has_g_above_1_up_to_0_25_and_below_1_after_it_but_for_two_slivers() -> None:
    """g under FLSD-53 at 100,001 probabilities: which ones are on the wrong side of 1, and by how much."""
    p = np.linspace(0, 1, 100_001)
    gamma = gammas_at("flsd-53", torch.tensor(p))
    g = fc.gradient_ratio(p, gamma)
    wrong = ((p < 0.25) & (g <= 1)) | ((p > 0.25) & (g >= 1))
    slivers = (p == 0) | ((p > 0.1968) & (p < 0.2)) | ((p > 0.25) & (p < 0.2526))
    assert (wrong <= slivers).all()
    assert wrong[[0, 19_900, 25_200]].all()
    assert wrong.sum() == 1 + 319 + 258
    # And there g is off by at most 1.3 % and 0.7 %.
    close((1 - g[wrong & (p < 0.25)]).max(), 0.0131, abs=1e-4)
    close((g[wrong & (p > 0.25)] - 1).max(), 0.0067, abs=1e-4)


@check("mukhoti2020.flsd53.rule")
def sec51_flsd53_takes_gamma_5_below_0_2_and_3_from_there_on() -> None:
    """The gammas at and next to the switching point, and the losses of 250 samples."""
    loss = fc.FocalLoss("flsd-53", reduction="none")
    around = torch.tensor([0.0, 0.1, math.nextafter(0.2, 0), 0.2, 0.5, 1.0], dtype=torch.float64)
    assert gammas_at("flsd-53", around).tolist() == [5, 5, 5, 3, 3, 3]
    p = np.linspace(0.003, 0.997, 250)
    gamma = np.where(p < 0.2, 5, 3)
    logits = torch.tensor(np.log(np.stack([1 - p, p], 1)))
    losses = loss(logits, torch.ones(250, dtype=torch.long)).numpy()
    close(losses, -((1 - p) ** gamma) * np.log(p), rel=1e-10)


@check("mukhoti2020.flsd532.rule")
def app_e_flsd532_takes_gamma_5_then_3_from_0_2_then_2_from_0_5() -> None:
    """The gammas at and next to both switching points, and the losses of 250 samples."""
    loss = fc.FocalLoss("flsd-532", reduction="none")
    around = torch.tensor([0.0, math.nextafter(0.2, 0), 0.2, math.nextafter(0.5, 0), 0.5, 1.0], dtype=torch.float64)
    assert gammas_at("flsd-532", around).tolist() == [5, 5, 3, 3, 2, 2]
    p = np.linspace(0.003, 0.997, 250)
    gamma = np.select([p < 0.2, p < 0.5], [5, 3], 2)
    logits = torch.tensor(np.log(np.stack([1 - p, p], 1)))
    losses = loss(logits, torch.ones(250, dtype=torch.long)).numpy()
    close(losses, -((1 - p) ** gamma) * np.log(p), rel=1e-10)


@check("mukhoti2020.flsc.rule")
def app_e_flsc_takes_gamma_5_for_100_epochs_then_3_for_150_then_the_last() -> None:
    """The gamma of each of 350 epochs, read off the loss at p = 1/2."""
    for name, last in (("flsc-532", 2.0), ("flsc-531", 1.0)):
        loss = fc.FocalLoss(name)
        even = torch.zeros(1, 2, dtype=torch.float64)
        gammas = []
        for epoch in range(350):
            loss.set_epoch(epoch)
            # p = 1/2, so the loss is log(2) / 2^gamma.
            gammas.append(math.log2(math.log(2) / float(loss(even, torch.tensor([0])))))
        close(gammas, [5.0] * 100 + [3.0] * 150 + [last] * 100)


@check("mukhoti2020.ls.rule")
def sec51_label_smoothing_leaves_1_minus_alpha_and_shares_alpha_among_the_wrong_classes() -> None:
    """The loss against the printed soft targets for alpha 0.05 and 0.1 and 2 to 1000 classes."""
    for num_classes in CLASS_COUNTS:
        probs = distributions(num_classes, 20)
        labels = np.arange(20) % num_classes
        one_hot = np.eye(num_classes)[labels]
        for alpha in (0.05, 0.1):
            smoothed = (1 - alpha) * one_hot + alpha * (1 - one_hot) / (num_classes - 1)
            loss = fc.LabelSmoothingLoss(alpha, reduction="none")(torch.tensor(np.log(probs)), torch.tensor(labels))
            close(loss.numpy(), -(smoothed * np.log(probs)).sum(1), rel=1e-12)
        assert fc.LabelSmoothingLoss().alpha == 0.05


@check("mukhoti2020.ts-identity")
def tables_metrics_are_the_same_before_and_after_scaling_where_the_temperature_is_1() -> None:
    """All 506 published pairs of values before and after scaling; the 44 with T = 1 are equal."""
    rows = [row for row in published_results() if row["paper"] == "mukhoti2020" and row["table"] not in ("3", "13")]
    temperature = {
        (row["dataset"], row["model"], row["method"]): float(row["temperature"])
        for row in rows
        if row["table"] in ("1", "5") and row["temperature"]
    }
    before_in = {"1": "1", "2": "2", "5": "5", "6": "6", "10": "9", "12": "11"}
    before = {
        (row["table"], (row["dataset"], row["model"], row["method"])): row["value"]
        for row in rows
        if row["phase"] == "pre"
    }
    pairs = [
        (row["value"], before[before_in[row["table"]], model], temperature[model])
        for row in rows
        if row["phase"] == "post" and (model := (row["dataset"], row["model"], row["method"]))
    ]
    unscaled = [(after, value) for after, value, t in pairs if t == 1]
    assert len(pairs) == 2 * (55 + 77 + 121)
    assert len(unscaled) == 44
    assert all(float(after) == float(value) for after, value in unscaled)
    # Elsewhere scaling nearly always changes the number.
    assert sum(float(after) != float(value) for after, value, t in pairs if t != 1) > 300
