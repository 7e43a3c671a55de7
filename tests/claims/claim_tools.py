"""What the claim tests share: the decorator that ties a test to a claim, and the papers' formulas in numpy.

Only `loss_at` and `expected_loss` call focalcal: they bring its losses to numpy.
"""

import itertools

import mpmath
import numpy as np
import torch
from scipy.optimize import minimize

import focalcal as fc

# From almost cross-entropy to the largest gamma of ghosh2022.
GAMMAS = (1e-3, 0.05, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 20.0)
CLASS_COUNTS = (2, 3, 4, 10, 100, 1000)


def claim(claim_id, *, holds=True):
    """Tie a test to a claim of claims.csv; `holds=False` if it needs a correction or a loose reading."""

    def tie(test):
        test.claim_id, test.claim_holds = claim_id, holds
        return test

    return tie


def distributions(num_classes, count, seed=0):
    """Random points (count, K) inside the simplex, from nearly uniform to nearly one-hot."""
    rng = np.random.default_rng([seed, num_classes])
    concentration = 10 ** rng.uniform(-1, 1.5, (count, 1))
    weights = rng.gamma(np.broadcast_to(concentration, (count, num_classes))) + 1e-8
    return weights / weights.sum(1, keepdims=True)


def posteriors(num_classes, count, seed=0):
    """Random points (count, K) kept off the edge of the simplex, where descent on the logits crawls."""
    return 0.99 * distributions(num_classes, count, seed) + 0.01 / num_classes


def one_above_equals(top, num_classes):
    """Distributions (len(top), K) with the given largest entries and all others equal."""
    top = np.atleast_1d(np.asarray(top, dtype=float))
    rows = np.repeat((1 - top[:, None]) / (num_classes - 1), num_classes, 1)
    rows[:, 0] = top
    return rows


def simplex_grid(steps):
    """All points of the three-class simplex whose entries are positive multiples of 1/steps."""
    first, second = np.meshgrid(np.arange(1, steps), np.arange(1, steps), indexing="ij")
    inside = first + second < steps
    first, second = first[inside], second[inside]
    return np.stack([first, second, steps - first - second], 1) / steps


def logit_rows(num_classes, step, gap=10.0):
    """All falling rows of logits that start at 0 and go down to at most -gap, in multiples of a step."""
    levels = np.arange(round(gap / step) + 1) * -step
    below = np.array(list(itertools.combinations_with_replacement(levels, num_classes - 1)))
    return np.concatenate([np.zeros((len(below), 1)), below], 1)


def softmax(logits):
    """Softmax along the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(logits):
    """1 / (1 + exp(-s))."""
    return 1 / (1 + np.exp(-np.asarray(logits)))


def entropy(rows):
    """Shannon entropy along the last axis, 0 log 0 being 0."""
    return -(rows * np.log(np.where(rows > 0, rows, 1))).sum(-1)


def phi(v, gamma):
    """phi of charoenphakdee2021, eq. 10, which is g of mukhoti2020, Prop. 1; v inside (0, 1)."""
    return (1 - v) ** gamma - gamma * (1 - v) ** (gamma - 1) * v * np.log(v)


def psi(rows, gamma):
    """Psi of charoenphakdee2021, Thm. 11."""
    h = rows / phi(rows, gamma)
    return h / h.sum(-1, keepdims=True)


def exact_g(p, gamma):
    """g of mukhoti2020, Prop. 1, in the working precision of mpmath."""
    p, gamma = mpmath.mpf(p), mpmath.mpf(gamma)
    return (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * mpmath.log(p)


def risk(prediction, posterior, gamma):
    """The conditional focal risk -sum_y eta_y (1-q_y)^gamma log q_y along the last axis."""
    return -(posterior * (1 - prediction) ** gamma * np.log(prediction)).sum(-1)


def minimise_risk(posterior, gamma, start=None):
    """The minimiser of the conditional focal risk over the simplex, by descent on the logits, to 1e-8.

    Descent starts from the posterior unless a distribution is given.
    """

    def value_and_gradient(logits):
        q = softmax(logits)
        slope = posterior * (gamma * (1 - q) ** (gamma - 1) * np.log(q) - (1 - q) ** gamma / q)
        value = risk(q, posterior, gamma)
        return np.log(value), q * (slope - (q * slope).sum()) / value  # the log, as a large gamma makes risks tiny

    options = {"ftol": 1e-16, "gtol": 1e-13, "maxiter": 5000, "maxcor": 50}
    start = np.log(posterior if start is None else start)
    return softmax(minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x)


def loss_at(p, gamma):
    """focalcal's focal loss of samples whose true class has probability p."""
    p = torch.as_tensor(np.atleast_1d(p), dtype=torch.float64)
    logits = torch.stack([torch.log(p), torch.log1p(-p)], 1)
    return fc.focal_loss(logits, torch.zeros(len(p), dtype=torch.long), gamma=gamma, reduction="none").numpy()


def expected_loss(prediction, posterior, gamma):
    """focalcal's focal loss of rows of predictions (N, K) against soft targets (N, K)."""
    logits, targets = torch.as_tensor(np.log(prediction)), torch.as_tensor(posterior)
    return fc.focal_loss(logits, targets, gamma=gamma, reduction="none").numpy()


def calibration_error(bins):
    """ECE from focalcal's bins: sum over bins of |B|/N |C - A|."""
    return float((bins.weight * bins.gap.abs()).sum())
