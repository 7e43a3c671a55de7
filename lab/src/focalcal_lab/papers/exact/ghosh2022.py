"""AdaFocal: Calibration-aware Adaptive Focal Loss (ghosh2022), claim by claim."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import focalcal as fc
from focalcal.core.binning import bin_predictions
from focalcal.losses.adafocal import next_gamma
from focalcal_lab.papers.exact.tools import (
    GAMMAS,
    Array,
    calibration_error,
    check,
    close,
    gradient,
    loss_at,
    softmax,
    warned,
)


def validation(confidence: float, accuracy: float, count: int = 100) -> tuple[Tensor, Tensor]:
    """Two-class logits and labels of `count` predictions with the given confidence and accuracy."""
    logits = torch.tensor([[confidence, 1 - confidence]], dtype=torch.float64).log().repeat(count, 1)
    return logits, (torch.arange(count) >= round(accuracy * count)).long()


def random_validation(count: int = 900, seed: int = 0, num_classes: int = 4) -> tuple[Tensor, Tensor]:
    """Overconfident logits (N, K) and labels (N,)."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(count, num_classes))
    labels = [rng.choice(num_classes, p=row) for row in softmax(logits / 2)]
    return torch.tensor(logits), torch.tensor(labels)


def confidence_and_correct(logits: Tensor, labels: Tensor) -> tuple[Array, Array]:
    """The largest probability of each row, and whether it belongs to the label."""
    probs = softmax(logits.numpy())
    return probs.max(1), (probs.argmax(1) == labels.numpy()).astype(float)


def statistics(logits: Tensor, labels: Tensor, edges: Any) -> Array:
    """Mean confidence and accuracy of each bin (lower, upper] with the given edges, by a plain loop."""
    confidence, correct = confidence_and_correct(logits, labels)
    means = []
    edges = np.asarray(edges) * (1 + 1e-12)  # edges are confidences themselves, here rounded differently
    for i, (lower, upper) in enumerate(pairwise(edges)):
        inside = (confidence <= upper) & ((confidence > lower) | (i == 0))
        means.append((confidence[inside].mean(), correct[inside].mean()))
    return np.array(means).T


def training_batch(p: Any) -> tuple[Tensor, Tensor]:
    """Three-class logits whose true class, number 1, has the probabilities p."""
    p = torch.as_tensor(p, dtype=torch.float64)
    rest = (1 - p) / 2
    return torch.stack([rest, p, rest], 1).log(), torch.ones(len(p), dtype=torch.long)


def inside_bins(edges: Any) -> Array:
    """One probability well inside every bin of given edges, from 0 on."""
    edges = np.concatenate([[0.0], np.asarray(edges)[1:]])
    return (edges[:-1] + edges[1:]) / 2


@check("ghosh2022.eq1")
def eq1_inverse_focal_loss_has_larger_gradients_than_cross_entropy_for_confident_samples() -> None:
    """The loss, its gradients over those of cross-entropy, from which p on they are larger, where the sign turns."""
    p = np.linspace(0.001, 0.999, 999)
    for a in (0.5, 1.0, 2.0):
        close(loss_at(p, -a), -((1 + p) ** a) * np.log(p), rel=1e-11)
        logits, labels = training_batch(p)
        ratio = []
        for gamma in (-a, 0.0):
            x = logits.clone().requires_grad_()
            ratio.append(gradient(fc.focal_loss(x, labels, gamma=gamma, reduction="sum"), x)[:, 1].numpy())
        expected = (1 + p) ** a + a * p * (1 + p) ** (a - 1) * np.log(p)
        close(ratio[0] / ratio[1], expected, rel=1e-10)
        close(fc.gradient_ratio(p, -a), expected, rel=1e-12)
        threshold = brentq(lambda v, a=a: float(fc.gradient_ratio(v, -a)) - 1, 0.05, 0.95)
        assert ((expected > 1) == (p > threshold)).all()
        close(threshold, {0.5: 0.34185, 1.0: math.exp(-1), 2.0: 0.42728}[a], abs=1e-5)
        close(float(fc.gradient_ratio(1.0, -a)), 2**a)
    # Too large a gamma turns the gradient around; the bound of the paper, -2, stays clear of that.
    assert fc.gradient_ratio(p, -3.59).min() > 0
    assert fc.gradient_ratio(p, -3.6).min() < 0
    with warned("wrong sign"):
        fc.FocalLoss(-4.0)


@check(
    "ghosh2022.fn2.gradient",
    printed="Raising gamma makes the gradient smaller (mostly) for p above about 0.2.",
    true=(
        "g(p, gamma) grows with gamma up to (1-p)/(p log p) - 1/log(1-p) and falls after it: up to 5.58 at p "
        "= 0.1, 2.00 at 0.2, 0.87 at 0.3. Always smaller from p = 0.5 on; from p = 0.2 on if gamma >= 2."
    ),
)
def footnote2_raising_gamma_makes_the_gradient_smaller_only_above_a_probability_that_depends_on_gamma() -> None:
    """The gamma at which g(p, gamma) peaks for several p, and where raising gamma does shrink the gradient."""
    gammas = np.linspace(0, 15, 15_001)

    def peak(p: float) -> float:
        ratio = fc.gradient_ratio(np.full_like(gammas, p), torch.tensor(gammas))
        top = int(ratio.argmax())
        assert (np.diff(ratio[: top + 1]) > 0).all()
        assert (np.diff(ratio[top:]) < 0).all()
        return float(gammas[top])

    for p in (0.1, 0.2, 0.3, 0.4):
        close(peak(p), (1 - p) / (p * math.log(p)) - 1 / math.log(1 - p), abs=1e-3)
    close([peak(p) for p in (0.1, 0.2, 0.3)], [5.583, 1.996, 0.866], abs=1e-3)
    # Above 0.2 it can grow (0.25 from gamma 0.5 to 1), below 0.2 it can shrink (0.1 from gamma 6 to 7).
    assert fc.gradient_ratio(0.25, 1.0) > fc.gradient_ratio(0.25, 0.5) + 0.02
    assert fc.gradient_ratio(0.1, 7.0) < fc.gradient_ratio(0.1, 6.0) - 0.01
    # What holds: always smaller from p = 1/2 on, and from p = 0.2 on once gamma is at least 2.
    steps = torch.tensor(GAMMAS, dtype=torch.float64)
    for p in np.linspace(0.5, 0.99, 50):
        assert (torch.diff(fc.gradient_ratio(torch.full_like(steps, p), steps)) < 0).all()
    for p in np.linspace(0.2, 0.99, 80):
        assert (torch.diff(fc.gradient_ratio(torch.full_like(steps[4:], p), steps[4:])) < 0).all()


@check("ghosh2022.eq2")
def eq2_calfocal_gamma_of_a_sample_is_exp_lambda_p_minus_bin_accuracy() -> None:
    """CalFocal's loss per sample with the gamma of eq. 2, bin accuracies from a plain loop."""
    for lam in (1.0, 10.0):
        loss = fc.CalFocalLoss(lam=lam, per_sample=True, num_bins=5, reduction="none")
        loss.update(*random_validation())
        edges = loss.edges.tolist()
        _, accuracy = statistics(*random_validation(), edges)
        p = np.repeat(inside_bins(edges), 2) * np.tile([0.999, 1.001], 5)
        gamma = np.exp(lam * (p - np.repeat(accuracy, 2)))
        losses = loss(*training_batch(p)).numpy()
        close(losses, -((1 - p) ** gamma) * np.log(p), rel=1e-9)
        assert len(set(gamma)) == 10


@check("ghosh2022.fig3a")
def fig3a_calfocal_drops_sharply_near_the_bin_accuracy_and_stays_near_0_above_it() -> None:
    """The curve of CalFocal for a bin accuracy of 0.8 and lambda 20, 50, 100: where it drops and what is left above."""
    p = np.linspace(0.01, 0.999, 990)
    steepest = []
    for lam in (20.0, 50.0, 100.0):
        loss = fc.CalFocalLoss(lam=lam, per_sample=True, num_bins=1, reduction="none")
        loss.update(*validation(0.9, 0.8))
        values = loss(*training_batch(p)).numpy()
        assert values[p >= 0.8].max() < 0.045
        assert values[p >= 0.85].max() < 0.01
        slope = np.gradient(values, p)[p > 0.5]
        steepest.append(-slope.min())
        close(p[p > 0.5][slope.argmin()], 0.8, abs=0.07)
    # Below 0.7 and with lambda 100 it is cross-entropy to 0.1 %: gamma is below exp(-10).
    close(values[p <= 0.7], -np.log(p[p <= 0.7]), rel=1e-3)
    assert steepest[0] < steepest[1] < steepest[2]
    assert steepest[2] > 7


@check("ghosh2022.eq3")
def eq3_calfocal_gamma_of_a_bin_is_exp_lambda_confidence_minus_accuracy() -> None:
    """CalFocal's gamma per bin and its loss against eq. 3, bin statistics from a plain loop."""
    for lam in (1.0, 10.0):
        loss = fc.CalFocalLoss(lam=lam, num_bins=5, reduction="none")
        loss.update(*random_validation())
        edges = loss.edges.tolist()
        confidence, accuracy = statistics(*random_validation(), edges)
        gamma = np.exp(lam * (confidence - accuracy))
        close(loss.history["gamma"][0].numpy(), gamma, rel=1e-9)
        p = np.repeat(inside_bins(edges), 2) * np.tile([0.999, 1.001], 5)
        losses = loss(*training_batch(p)).numpy()
        close(losses, -((1 - p) ** np.repeat(gamma, 2)) * np.log(p), rel=1e-9)


@check("ghosh2022.calfocal.limit1")
def sec51_calfocal_forgets_its_gamma_once_the_error_is_gone_and_adafocal_does_not() -> None:
    """An error of 0.15 that is then gone: CalFocal's gamma returns to 1, AdaFocal's stays."""
    calfocal, adafocal = fc.CalFocalLoss(lam=10.0, num_bins=1), fc.AdaFocalLoss(num_bins=1, lam=10.0)
    high = math.exp(10 * 0.15)
    for loss in (calfocal, adafocal):
        for accuracy in (0.75, 0.9):  # overconfident by 0.15, then calibrated
            loss.update(*validation(0.9, accuracy))
    close(calfocal.history["gamma"].flatten().tolist(), [high, 1.0])
    close(adafocal.history["gamma"].flatten().tolist(), [high, high])
    near = [fc.CalFocalLoss(lam=10.0, num_bins=1) for _ in range(3)]
    for loss, error in zip(near, (0.1, 0.01, 0.001), strict=True):
        loss.update(*validation(0.9, 0.9 - error, count=1000))
    gammas = [loss.history["gamma"].item() for loss in near]
    close(gammas, [math.exp(1), math.exp(0.1), math.exp(0.01)])


@check("ghosh2022.calfocal.limit2")
def sec51_calfocal_stays_put_at_a_constant_error_while_adafocal_grows() -> None:
    """Five updates at the same error: CalFocal's gamma is constant, AdaFocal's grows every time."""
    calfocal, adafocal = fc.CalFocalLoss(lam=2.0, num_bins=1), fc.AdaFocalLoss(num_bins=1, lam=2.0)
    for loss in (calfocal, adafocal):
        for _ in range(5):
            loss.update(*validation(0.9, 0.7))
    close(calfocal.history["gamma"].flatten().tolist(), [math.exp(0.4)] * 5)
    close(adafocal.history["gamma"].flatten().tolist(), [math.exp(0.4 * t) for t in range(1, 6)])


@check("ghosh2022.eq4")
def eq4_adafocal_gamma_is_the_first_gamma_times_the_exponential_of_all_errors() -> None:
    """Thirty random updates are one exponential of their sum; and how much error leads to 20, 0.2 and 0.5."""
    errors = np.random.default_rng(0).uniform(-0.15, 0.2, 30)
    for lam in (1.0, 3.0):
        gamma = torch.tensor([2.0, 5.0], dtype=torch.float64)
        for error in errors:
            gamma = next_gamma(gamma, torch.tensor([error, error]), lam=lam, switch_at=1e-9, bounds=(-2.0, 1e9))
        close(gamma.numpy(), np.array([2, 5]) * math.exp(lam * errors.sum()), rel=1e-12)

    def errors_needed(step: float, reached: Callable[[Tensor], Tensor]) -> float:
        """How much error, in steps of one sign, takes gamma from 1 to where `reached` holds."""
        gamma, total = torch.tensor(1.0, dtype=torch.float64), 0.0
        while not reached(gamma):
            gamma = next_gamma(gamma, torch.tensor(step), lam=1.0, switch_at=1e-9, bounds=(-2.0, 20.0))
            total += step
        return total

    close(errors_needed(0.01, lambda gamma: gamma >= 20), math.log(20), abs=0.011)
    close(errors_needed(-0.01, lambda gamma: gamma < 0.2), math.log(0.2), abs=0.011)
    close(errors_needed(-0.01, lambda gamma: gamma < 0.5), math.log(0.5), abs=0.011)


def follow(gamma: float, response: float, steps: int = 60) -> Array:
    """The gammas of AdaFocal where log gamma moves the error towards `response` * log(3 / gamma)."""
    path = [gamma]
    for _ in range(steps):
        error = response * math.log(3 / path[-1])
        now = torch.tensor(path[-1], dtype=torch.float64)
        path.append(float(next_gamma(now, torch.tensor(error), lam=1.0, switch_at=0.2, bounds=(-2.0, 20.0))))
    return np.array(path)


@check(
    "ghosh2022.eq4.fixpoint",
    printed="gamma_b rests exactly where C = A and oscillates around that point.",
    true=(
        "It rests there, and also at gamma_max if C > A and at gamma_min if C < A. It oscillates only if the "
        "confidence reacts strongly to gamma; with a weak reaction it creeps there from one side."
    ),
)
def sec52_gamma_rests_exactly_where_confidence_equals_accuracy() -> None:
    """gamma rests at zero error and at its bounds; near the point of rest it creeps or swings, by the response."""
    gamma = torch.tensor([0.2, 1.0, 3.0, 20.0, -0.2, -2.0], dtype=torch.float64)
    options: dict[str, Any] = {"lam": 1.0, "switch_at": 0.2, "bounds": (-2.0, 20.0)}
    assert torch.equal(next_gamma(gamma, torch.zeros(6), **options), gamma)
    for error in (0.01, -0.01):
        moved = next_gamma(gamma[1:3], torch.full((2,), error), **options)
        assert (torch.sign(moved - gamma[1:3]) == np.sign(error)).all()
    # It also rests at its bounds, whatever the error there.
    at_bounds = torch.tensor([20.0, -2.0], dtype=torch.float64)
    assert torch.equal(next_gamma(at_bounds, torch.tensor([0.3, -0.3]), **options), at_bounds)
    # A gamma that has just changed sides rests as well.
    for switch_at in (0.2, 0.5, 0.7):
        options["switch_at"] = switch_at
        for gamma in (torch.tensor([0.1], dtype=torch.float64), torch.tensor([-0.1], dtype=torch.float64)):
            switched = next_gamma(gamma, torch.zeros(1), **options)
            assert switched.tolist() == (-torch.sign(gamma) * switch_at).tolist()
            assert torch.equal(next_gamma(switched, torch.zeros(1), **options), switched)
    # Around the point of rest it oscillates only if gamma acts strongly on the confidence.
    creeping, swinging = follow(1.0, 0.5), follow(1.0, 1.5)
    close(creeping[-1], 3)
    close(swinging[-1], 3)
    assert (np.diff(creeping[:20]) > 0).all()
    assert (np.sign(swinging[:20] - 3) == np.tile([-1, 1], 10)).all()


@check("ghosh2022.eq5")
def eq5_adafocal_loss_is_focal_for_positive_and_inverse_focal_for_negative_gamma() -> None:
    """The loss of bins with gamma 3, -1.5, 0 and -2 against both formulas."""
    loss = fc.AdaFocalLoss(num_bins=4, reduction="none")
    gamma = [3.0, -1.5, 0.0, -2.0]
    loss.gamma.copy_(torch.tensor(gamma))
    p = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.99])
    expected = [
        -((1 - v) ** g if g >= 0 else (1 + v) ** abs(g)) * math.log(v)
        for v, g in zip(p, np.repeat(gamma, 2), strict=True)
    ]
    close(loss(*training_batch(p)).numpy(), expected, rel=1e-12)


@check("ghosh2022.alg1.init")
def algorithm1_lines_2_and_3_start_from_equal_width_bins_with_gamma_1() -> None:
    """The first edges, the bin of every centre, and the loss before any update."""
    for num_bins in (1, 4, 15):
        loss = fc.AdaFocalLoss(num_bins=num_bins, reduction="none")
        assert loss.edges.tolist() == [i / num_bins for i in range(num_bins + 1)]
        loss.gamma.copy_(torch.arange(1.0, num_bins + 1))  # a different gamma in every bin shows where samples fall
        centres = (torch.arange(num_bins, dtype=torch.float64) + 0.5) / num_bins
        assert loss.gamma_at(centres).tolist() == list(range(1, num_bins + 1))
        fresh = fc.AdaFocalLoss(num_bins=num_bins, reduction="none")
        p = np.linspace(0.01, 0.99, 50)
        close(fresh(*training_batch(p)).numpy(), -(1 - p) * np.log(p), rel=1e-12)


@check("ghosh2022.alg1.lookup")
def algorithm1_lines_7_and_8_take_gamma_by_the_probability_of_the_true_class() -> None:
    """Samples take the gamma at the probability of their true class, not at their confidence; below all, the first."""
    loss = fc.AdaFocalLoss(num_bins=3, reduction="none")
    loss.update(*random_validation())
    loss.gamma.copy_(torch.tensor([4.0, 2.0, 1.0]))
    edges = loss.edges.tolist()
    assert edges[0] > 0.25  # the least confident of four-class predictions
    # The other classes hold 0.6 or more, but the sample is looked up at p = 0.2 or so, not at its confidence.
    logits = torch.tensor([[0.2, 0.79, 0.01], [0.02, 0.9, 0.08]], dtype=torch.float64).log()
    losses = loss(logits, torch.tensor([0, 0])).numpy()
    close(losses, [-(0.8**4) * math.log(0.2), -(0.98**4) * math.log(0.02)], rel=1e-12)
    p = np.array([1e-9, *inside_bins(edges)])
    assert loss.gamma_at(torch.tensor(p)).tolist() == [4, 4, 2, 1]


@check("ghosh2022.alg1.rebin")
def algorithm1_line_15_recomputes_the_bins_at_every_update_and_bin_i_keeps_its_gamma() -> None:
    """Three updates with sharper and sharper models: edges, statistics and gammas against a plain loop."""
    loss = fc.AdaFocalLoss()
    expected = np.ones(15)
    for seed in range(3):
        logits, labels = random_validation(seed=seed)
        logits = logits * (1 + seed)  # a sharper model, hence other edges
        loss.update(logits, labels)
        edges = np.append(loss.history["lower_edge"][seed], loss.history["upper_edge"][seed, -1])
        confidence, accuracy = statistics(logits, labels, edges)
        close(loss.history["confidence"][seed].numpy(), confidence, rel=1e-9)
        close(loss.history["accuracy"][seed].numpy(), accuracy, rel=1e-9)
        # The row on an inner edge belongs to the bin below: the first bin has one more, the last one less.
        assert loss.history["count"][seed].tolist() == [61] + 13 * [60] + [59]
        expected = expected * np.exp(confidence - accuracy)
        close(loss.gamma.numpy(), expected, rel=1e-9)
    assert (loss.history["lower_edge"].diff(dim=0).abs() > 1e-3).all()


def algorithm1_step(
    gamma: float, error: float, lam: float, gamma_min: float, gamma_max: float, switch_at: float
) -> float:
    """Lines 16 to 23 of Algorithm 1, as printed, for one bin."""
    if gamma >= 0:
        gamma = min(gamma_max, gamma * math.exp(lam * error))
        if abs(gamma) < switch_at:
            gamma = -switch_at
    else:
        gamma = max(gamma_min, gamma * math.exp(-lam * error))
        if abs(gamma) < switch_at:
            gamma = switch_at
    return gamma


def steps_agree(gammas: Array, switch_at: float, bounds: tuple[float, float]) -> Array:
    """Compare one random step of every gamma with Algorithm 1; return the last ones."""
    errors = np.random.default_rng(0).uniform(-1, 1, len(gammas))
    for lam in (0.5, 1.0, 4.0):
        ours = next_gamma(
            torch.tensor(gammas), torch.tensor(errors), lam=lam, switch_at=switch_at, bounds=bounds
        ).tolist()
        printed = [algorithm1_step(g, e, lam, *bounds, switch_at) for g, e in zip(gammas, errors, strict=True)]
        close(ours, printed, rel=1e-13)
    return np.array(printed)


@check("ghosh2022.alg1.focal-step")
def algorithm1_lines_16_to_19_step_a_focal_gamma() -> None:
    """501 gammas from 0 to 20 take the printed step, for three lambdas and both thresholds."""
    for switch_at in (0.2, 0.5):
        gammas = np.concatenate([[0.0], np.geomspace(0.01, 20, 500)])
        after = steps_agree(gammas, switch_at, (-2.0, 20.0))
        assert after.max() == 20
        assert (after == -switch_at).sum() > 50
        assert (np.abs(after) >= switch_at).all()


@check("ghosh2022.alg1.inverse-step")
def algorithm1_lines_20_to_23_step_an_inverse_focal_gamma() -> None:
    """500 negative gammas take the printed step, for three lambdas and both thresholds."""
    for switch_at in (0.2, 0.5):
        after = steps_agree(-np.geomspace(0.01, 2, 500), switch_at, (-2.0, 20.0))
        assert after.min() == -2
        assert (after == switch_at).sum() > 50
        assert (np.abs(after) >= switch_at).all()


@check("ghosh2022.hyper.lambda")
def sec6_adafocal_uses_lambda_1() -> None:
    """One default update at an error of 0.25 multiplies gamma by exp(0.25)."""
    loss = fc.AdaFocalLoss(num_bins=1)
    loss.update(*validation(0.9, 0.65))
    close(loss.gamma.tolist(), [math.exp(0.25)])


def after_updates(loss: fc.AdaFocalLoss, confidence: float, accuracy: float, times: int) -> float:
    """The gamma of the only bin after so many updates on the same predictions."""
    for _ in range(times):
        loss.update(*validation(confidence, accuracy))
    return loss.gamma.item()


@check("ghosh2022.hyper.gamma-max")
def sec6_adafocal_holds_gamma_at_20() -> None:
    """Ten default updates at a large error stop at 20."""
    close(after_updates(fc.AdaFocalLoss(num_bins=1), 0.99, 0.0, 3), math.exp(2.97))
    assert after_updates(fc.AdaFocalLoss(num_bins=1), 0.99, 0.0, 10) == 20


@check("ghosh2022.hyper.switch")
def sec6_adafocal_switches_to_inverse_focal_loss_at_0_2_or_at_0_5() -> None:
    """Default updates switch to -0.2 when gamma falls below 0.2; with switch_at=0.5, to -0.5 below 0.5."""
    # Underconfident by 0.4: gamma is exp(-0.4 t), below 0.5 from t = 2 and below 0.2 from t = 5 on.
    close(after_updates(fc.AdaFocalLoss(num_bins=1), 0.55, 0.95, 4), math.exp(-1.6))
    assert after_updates(fc.AdaFocalLoss(num_bins=1), 0.55, 0.95, 5) == -0.2
    close(after_updates(fc.AdaFocalLoss(num_bins=1, switch_at=0.5), 0.55, 0.95, 1), math.exp(-0.4))
    assert after_updates(fc.AdaFocalLoss(num_bins=1, switch_at=0.5), 0.55, 0.95, 2) == -0.5


@check("ghosh2022.hyper.bins")
def sec6_adafocal_and_ece_use_15_bins_of_equal_mass() -> None:
    """1500 predictions fall into 15 bins of 100, in AdaFocal (but for one on an edge) and in the ECE."""
    loss = fc.AdaFocalLoss()
    logits, labels = random_validation(count=1500)
    loss.update(logits, labels)
    counts = loss.history["count"][0]
    assert counts.shape == (15,)
    assert counts.sum() == 1500
    assert (counts - 100).abs().max() <= 1
    confidence, correct = map(torch.tensor, confidence_and_correct(logits, labels))
    assert bin_predictions(confidence, correct, edges="equal_mass").count.tolist() == [100] * 15


@check("ghosh2022.hyper.frequency")
def app_j_gamma_is_updated_once_for_a_whole_epoch() -> None:
    """Training batches leave gamma alone; an epoch of validation batches is one update."""
    logits, labels = random_validation()
    loss, at_once = fc.AdaFocalLoss(), fc.AdaFocalLoss()
    for _ in range(20):  # training batches leave gamma alone
        loss(*training_batch([0.3, 0.6]))
    assert loss.gamma.tolist() == [1] * 15
    loss.update_from(zip(logits.split(128), labels.split(128), strict=True), model=lambda x: x)
    at_once.update(logits, labels)
    assert loss.history["gamma"].shape == (1, 15)
    torch.testing.assert_close(loss.gamma, at_once.gamma, rtol=0, atol=0)
    assert (loss.gamma != 1).all()


@check("ghosh2022.hyper.gamma0")
def algorithm1_gamma_starts_at_1_in_every_bin() -> None:
    """A fresh AdaFocal loss is the focal loss with gamma 1 at 200 probabilities."""
    loss = fc.AdaFocalLoss(reduction="none")
    p = np.linspace(0.001, 0.999, 200)
    assert loss.gamma.tolist() == [1] * 15
    close(loss(*training_batch(p)).numpy(), loss_at(p, 1.0), rel=1e-10)


@check("ghosh2022.ts.grid")
def sec6_temperature_grid_of_100_points_finds_the_temperature_of_least_equal_mass_ece() -> None:
    """The grid finds four planted temperatures exactly, and the nearest point to one that lies between."""
    grid = np.arange(1, 101) / 10
    assert (grid[0], grid[-1], len(grid)) == (0.1, 10.0, 100)
    logits = 3 * np.random.default_rng(0).normal(size=(600, 5))

    def ece(temperature: float, truth: float) -> float:
        # Rows count as right with their true probability, so the only error is that of the temperature.
        predicted = logits.argmax(1)
        confidence = softmax(logits / temperature)[np.arange(600), predicted]
        right = softmax(logits / truth)[np.arange(600), predicted]
        return calibration_error(bin_predictions(torch.tensor(confidence), torch.tensor(right), edges="equal_mass"))

    for truth in (0.4, 1.0, 2.5, 7.3):
        errors = [ece(temperature, truth) for temperature in grid]
        assert grid[np.argmin(errors)] == truth
        assert min(errors) < 1e-12
        assert ece(truth + 0.1, truth) > 1e-3
    # A truth between two points is missed by at most half a step.
    assert grid[np.argmin([ece(temperature, 1.73) for temperature in grid])] == 1.7


@check("ghosh2022.frequency.counts")
def app_i_updates_per_epoch_when_gamma_is_updated_every_n_batches() -> None:
    """Batches of 15,098 rows by 128 and by 32, and the updates made when gamma follows every n of them."""
    for batch_size, batches, updates in ((128, 118, {50: 2, 10: 11, 1: 118}), (32, 472, {100: 4, 10: 47, 1: 472})):
        logits, labels = random_validation(count=30)
        epoch = DataLoader(TensorDataset(torch.arange(15_098)), batch_size=batch_size)
        assert len(epoch) == batches
        for every, expected in updates.items():
            loss = fc.AdaFocalLoss(num_bins=5)
            for number in range(1, len(epoch) + 1):
                if number % every == 0:
                    loss.update(logits, labels)
            assert len(loss.history["gamma"]) == expected
