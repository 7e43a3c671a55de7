"""What the checks share: the decorator that ties one to its claim, comparisons, and the papers' formulas in numpy.

Only `loss_at`, `expected_loss` and `calibration_error` call focalcal: they bring its values to numpy.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import mpmath
import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

import focalcal as fc
from focalcal.core.binning import Bins

# An array of numpy, whose arithmetic has no better type.
Array: TypeAlias = Any

# From almost cross-entropy to the largest gamma of ghosh2022.
GAMMAS = (1e-3, 0.05, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 20.0)
CLASS_COUNTS = (2, 3, 4, 10, 100, 1000)


class Tied(NamedTuple):
    """A check and, if its claim needs a correction, what is printed and what is true."""

    function: Callable[[], None]
    printed: str
    true: str


TIED: dict[str, Tied] = {}


def check(claim_id: str, *, printed: str = "", true: str = "") -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Tie a function to a claim of claims.csv; `printed` and `true` say how a claim has to be corrected."""

    def tie(function: Callable[[], None]) -> Callable[[], None]:
        if claim_id in TIED:
            raise RuntimeError(f"{claim_id} is checked twice: {TIED[claim_id].function.__name__}, {function.__name__}")
        TIED[claim_id] = Tied(function, printed, true)
        return function

    return tie


def close(ours: Any, expected: Any, *, rel: float | None = None, abs: float | None = None) -> None:
    """Raise an AssertionError unless `ours` is `expected` within max(rel * |expected|, abs), in every entry.

    `rel` is 1e-6 unless `abs` alone is given, which then counts alone; `abs` is 1e-12. A number is compared with
    every entry of an array; dictionaries are compared key by key.

    >>> close([0.1 + 0.2, 1.0], [0.3, 1.0])
    >>> close(0.25, 0.26, abs=1e-3)
    Traceback (most recent call last):
    AssertionError: 0.25 is not 0.26 (rel 0, abs 0.001)
    """
    if isinstance(expected, dict):
        if ours.keys() != expected.keys():
            raise AssertionError(f"keys {sorted(ours)} are not {sorted(expected)}")
        ours, expected = [ours[key] for key in expected], list(expected.values())
    if rel is None:
        rel = 0.0 if abs is not None else 1e-6
    abs = 1e-12 if abs is None else abs
    left, right = np.asarray(ours, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if right.ndim and left.shape != right.shape:
        raise AssertionError(f"shape {left.shape} is not {right.shape}")
    with np.errstate(invalid="ignore"):  # an infinity is near itself only, and its distance to itself is NaN
        near = np.isfinite(right) & (np.abs(left - right) <= np.maximum(rel * np.abs(right), abs))
    wrong = ~(near | (left == right))
    if wrong.any():
        first = tuple(np.argwhere(wrong)[0])
        where = f" at {list(map(int, first))}, {wrong.sum()} of {wrong.size} entries" if first else ""
        there = float(right[first]) if right.ndim else float(right)
        raise AssertionError(f"{float(left[first]):.10g} is not {there:.10g}{where} (rel {rel:g}, abs {abs:g})")


@contextmanager
def refused(says: str) -> Iterator[None]:
    """The code inside has to raise an InputError with these words."""
    message = "nothing was refused"
    try:
        yield
    except fc.InputError as error:
        message = str(error)
    assert says in message, f"{message}; it should say {says!r}"


@contextmanager
def warned(says: str) -> Iterator[None]:
    """The code inside has to give a UserWarning with these words."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    texts = [str(each.message) for each in seen if issubclass(each.category, UserWarning)]
    assert any(says in text for text in texts), f"no warning says {says!r}: {texts}"


def distributions(num_classes: int, count: int, seed: int = 0) -> Array:
    """Random points (count, K) inside the simplex, from nearly uniform to nearly one-hot."""
    rng = np.random.default_rng([seed, num_classes])
    concentration = 10 ** rng.uniform(-1, 1.5, (count, 1))
    weights = rng.gamma(np.broadcast_to(concentration, (count, num_classes))) + 1e-8
    return weights / weights.sum(1, keepdims=True)


def posteriors(num_classes: int, count: int, seed: int = 0) -> Array:
    """Random points (count, K) kept off the edge of the simplex, where descent on the logits crawls."""
    return 0.99 * distributions(num_classes, count, seed) + 0.01 / num_classes


def one_above_equals(top: Any, num_classes: int) -> Array:
    """Distributions (len(top), K) with the given largest entries and all others equal."""
    top = np.atleast_1d(np.asarray(top, dtype=float))
    rows = np.repeat((1 - top[:, None]) / (num_classes - 1), num_classes, 1)
    rows[:, 0] = top
    return rows


def simplex_grid(steps: int) -> Array:
    """All points of the three-class simplex whose entries are positive multiples of 1/steps."""
    first, second = np.meshgrid(np.arange(1, steps), np.arange(1, steps), indexing="ij")
    inside = first + second < steps
    first, second = first[inside], second[inside]
    return np.stack([first, second, steps - first - second], 1) / steps


def logit_rows(num_classes: int, step: float, gap: float = 10.0) -> Array:
    """All falling rows of logits that start at 0 and go down to at most -gap, in multiples of a step."""
    levels = np.arange(round(gap / step) + 1) * -step
    below = np.array(list(itertools.combinations_with_replacement(levels, num_classes - 1)))
    return np.concatenate([np.zeros((len(below), 1)), below], 1)


def softmax(logits: Array) -> Array:
    """Softmax along the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(logits: Array) -> Array:
    """1 / (1 + exp(-s))."""
    return 1 / (1 + np.exp(-np.asarray(logits)))


def entropy(rows: Array) -> Array:
    """Shannon entropy along the last axis, 0 log 0 being 0."""
    return -(rows * np.log(np.where(rows > 0, rows, 1))).sum(-1)


def phi(v: Array, gamma: float) -> Array:
    """phi of charoenphakdee2021, eq. 10, which is g of mukhoti2020, Prop. 1; v inside (0, 1)."""
    return (1 - v) ** gamma - gamma * (1 - v) ** (gamma - 1) * v * np.log(v)


def psi(rows: Array, gamma: float) -> Array:
    """Psi of charoenphakdee2021, Thm. 11."""
    h = rows / phi(rows, gamma)
    return h / h.sum(-1, keepdims=True)


def exact_g(p: Any, gamma: Any) -> Any:
    """g of mukhoti2020, Prop. 1, in the working precision of mpmath."""
    p, gamma = mpmath.mpf(p), mpmath.mpf(gamma)
    return (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * mpmath.log(p)


def risk(prediction: Array, posterior: Array, gamma: float) -> Array:
    """The conditional focal risk -sum_y eta_y (1-q_y)^gamma log q_y along the last axis."""
    return -(posterior * (1 - prediction) ** gamma * np.log(prediction)).sum(-1)


def minimise_risk(posterior: Array, gamma: float, start: Array | None = None) -> Array:
    """The minimiser of the conditional focal risk over the simplex, by descent on the logits, to 1e-8.

    Descent starts from the posterior unless a distribution is given.
    """

    def value_and_gradient(logits: Array) -> tuple[Array, Array]:
        q = softmax(logits)
        slope = posterior * (gamma * (1 - q) ** (gamma - 1) * np.log(q) - (1 - q) ** gamma / q)
        value = risk(q, posterior, gamma)
        return np.log(value), q * (slope - (q * slope).sum()) / value  # the log, as a large gamma makes risks tiny

    options = {"ftol": 1e-16, "gtol": 1e-13, "maxiter": 5000, "maxcor": 50}
    start = np.log(posterior if start is None else start)
    return softmax(minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x)


def loss_at(p: Any, gamma: float) -> Array:
    """focalcal's focal loss of samples whose true class has probability p."""
    p = torch.as_tensor(np.atleast_1d(p), dtype=torch.float64)
    logits = torch.stack([torch.log(p), torch.log1p(-p)], 1)
    labels = torch.zeros(len(p), dtype=torch.long)
    return fc.focal_loss(logits, labels, gamma=gamma, reduction="none").numpy()


def expected_loss(prediction: Array, posterior: Array, gamma: float) -> Array:
    """focalcal's focal loss of rows of predictions (N, K) against soft targets (N, K)."""
    logits, targets = torch.as_tensor(np.log(prediction)), torch.as_tensor(posterior)
    return fc.focal_loss(logits, targets, gamma=gamma, reduction="none").numpy()


def gradient(loss: Tensor, by: Tensor) -> Tensor:
    """The gradient of a loss, as a plain tensor."""
    (found,) = torch.autograd.grad(loss, by)
    return found


def calibration_error(bins: Bins) -> float:
    """ECE from focalcal's bins: sum over bins of |B|/N |C - A|."""
    return float((bins.weight * bins.gap.abs()).sum())
