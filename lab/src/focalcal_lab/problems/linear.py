r"""The linear problem of mukhoti2020's App. B: how cross-entropy and focal loss stretch two weights.

The model is $f_w(x) = \sigma(w_1 x_1 + w_2 x_2)$ on `four_clusters`. The logit of a Gaussian cluster is Gaussian, so
the risk of any $w$ is a sum of four integrals over a line, and what training tends to is known beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from focalcal.core.checks import require
from focalcal.losses import sigmoid_focal_loss
from focalcal_lab.data.dataset import TensorRows
from focalcal_lab.data.synthetic import ClassMixture, four_clusters

# A mistake at least this confident is the "greater than 90 %" of App. B.
SURE = 0.9
# With half as many, the weights of least risk move by 1e-4 at most, where no label is flipped and they are longest.
_NODES = 200


@dataclass(frozen=True)
class Limit:
    """What training on ever more rows tends to: the weights of least risk, and what they do.

    `logit_norm` is the root of the mean square of the logits, `sure_mistakes` the share of misclassified points with a
    confidence of at least `SURE`.

    >>> two = four_clusters(train_size=1, val_size=1, test_size=1).facts["mixture"]
    >>> limit = linear_limit(two, 1.0)
    >>> round(limit.weight_norm, 3), round(limit.error, 3)
    (0.578, 0.106)
    """

    weights: tuple[float, ...]
    weight_norm: float
    logit_norm: float
    error: float
    sure_mistakes: float


@dataclass(frozen=True)
class LinearRun:
    """Gradient descent with one loss: norms from the start (epoch 0) on, and what the last weights do to the test rows.

    `mistakes` are the confidences of the misclassified test points.

    >>> run = linear_problem(epochs=3, gammas=[1.0]).runs[0]
    >>> run.gamma, run.weight_norms[0], len(run.weight_norms)
    (1.0, 0.0, 4)
    """

    gamma: float
    weights: tuple[float, ...]
    weight_norms: tuple[float, ...]
    logit_norms: tuple[float, ...]
    error: float
    mistakes: tuple[float, ...]
    limit: Limit

    @property
    def sure_mistakes(self) -> float:
        """The share of mistakes with a confidence of at least `SURE`."""
        return sum(confidence >= SURE for confidence in self.mistakes) / max(1, len(self.mistakes))

    @property
    def median_mistake(self) -> float:
        """The median confidence of the mistakes."""
        return float(np.median(self.mistakes)) if self.mistakes else math.nan


@dataclass(frozen=True)
class LinearProblem:
    """The problem solved with each gamma; `bayes_error` is that of the true posterior on the test rows.

    >>> problem = linear_problem(epochs=3)
    >>> [run.gamma for run in problem.runs], problem.epochs
    ([0.0, 1.0], 3)
    """

    seed: int
    epochs: int
    flip: float
    scale: float
    bayes_error: float
    runs: tuple[LinearRun, ...]
    test: TensorRows

    def angle(self) -> float:
        """The largest angle between the weights of two runs, in degrees: 0 if all have the same decision regions."""
        weights = torch.tensor([run.weights for run in self.runs], dtype=torch.float64)
        units = weights / weights.norm(dim=1, keepdim=True)
        return math.degrees(math.acos(min(1.0, float((units @ units.T).min()))))


def linear_problem(
    seed: int = 0,
    *,
    epochs: int = 500,
    gammas: Sequence[float] = (0.0, 1.0),
    learning_rate: float = 0.05,
    flip: float = 0.1,
    scale: float = 1.0,
    train_size: int = 4000,
    test_size: int = 1000,
    distribution_seed: int = 0,
) -> LinearProblem:
    """Train the two weights with every gamma, by gradient descent on all training rows from w = 0.

    where gamma 0 is cross-entropy and an epoch is one step; the further options are those of `four_clusters`.

    Source: [mukhoti2020, App. B, Fig. 7 and 8]. The paper does not say the learning rate, the number of epochs or
    the start.

    >>> problem = linear_problem(epochs=100)
    >>> cross_entropy, focal = problem.runs
    >>> cross_entropy.weight_norms[-1] > focal.weight_norms[-1], problem.angle() < 2
    (True, True)
    """
    require(epochs >= 1, "epochs", "must be at least 1", epochs)
    require(len(gammas) >= 1, "gammas", "must be at least one", "none")
    require(learning_rate > 0, "learning_rate", "must be greater than 0", learning_rate)
    data = four_clusters(
        seed=seed,
        train_size=train_size,
        val_size=1,
        test_size=test_size,
        flip=flip,
        scale=scale,
        distribution_seed=distribution_seed,
    )
    assert isinstance(data.train, TensorRows)
    assert isinstance(data.test, TensorRows)
    mixture: ClassMixture = data.facts["mixture"]
    runs = tuple(_train(gamma, data.train, data.test, mixture, epochs, learning_rate) for gamma in gammas)
    wrong = mixture.posterior(data.test.inputs).argmax(1) != data.test.labels
    return LinearProblem(seed, epochs, flip, scale, float(wrong.double().mean()), runs, data.test)


def _train(
    gamma: float, train: TensorRows, test: TensorRows, mixture: ClassMixture, epochs: int, learning_rate: float
) -> LinearRun:
    inputs, weights = train.inputs.double(), torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=learning_rate)
    weight_norms, logit_norms = [0.0], [0.0]
    for _ in range(epochs):
        optimizer.zero_grad()
        sigmoid_focal_loss(inputs @ weights, train.labels, gamma=gamma).backward()
        optimizer.step()
        weight_norms.append(float(weights.detach().norm()))
        logit_norms.append(float((inputs @ weights.detach()).square().mean().sqrt()))
    logits = test.inputs.double() @ weights.detach()
    wrong = (logits > 0) != (test.labels == 1)
    return LinearRun(
        gamma=gamma,
        weights=tuple(weights.tolist()),
        weight_norms=tuple(weight_norms),
        logit_norms=tuple(logit_norms),
        error=float(wrong.double().mean()),
        mistakes=tuple(torch.sigmoid(logits.abs())[wrong].tolist()),
        limit=linear_limit(mixture, gamma),
    )


def linear_limit(mixture: ClassMixture, gamma: float) -> Limit:
    """The weights of least focal risk on a mixture of two classes, found without a sample.

    >>> two = four_clusters(train_size=1, val_size=1, test_size=1).facts["mixture"]
    >>> [round(linear_limit(two, gamma).weight_norm, 3) for gamma in (0.0, 1.0)]
    [1.046, 0.578]
    """
    require(mixture.num_classes == 2, "mixture", "must have two classes", mixture.num_classes)

    def value_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        weights = torch.tensor(point, dtype=torch.float64, requires_grad=True)
        risk = linear_risk(weights, mixture, gamma)
        (slope,) = torch.autograd.grad(risk, weights)
        return float(risk.detach()), slope.numpy()

    # From one class's mean to the other's, of about the right length: never at the kink of a norm in w = 0.
    side = 2.0 * mixture.classes - 1
    start = (mixture.weights * side) @ mixture.means / 4
    found = minimize(value_and_slope, start.numpy(), jac=True, method="BFGS", options={"gtol": 1e-9})
    weights = torch.from_numpy(found.x)
    centre, spread = _margins(weights, mixture)
    square = mixture.weights @ (centre.square() + spread.square())
    return Limit(
        weights=tuple(found.x.tolist()),
        weight_norm=float(weights.norm()),
        logit_norm=float(square.sqrt()),
        error=_mistakes(weights, mixture, 0.0),
        sure_mistakes=sure_mistakes(weights, mixture),
    )


def sure_mistakes(weights: Tensor, mixture: ClassMixture) -> float:
    """The share of a linear model's mistakes on a mixture whose confidence is at least `SURE`.

    >>> two = four_clusters(train_size=1, val_size=1, test_size=1).facts["mixture"]
    >>> [round(sure_mistakes(torch.tensor([length, 0.0]).double(), two), 2) for length in (0.5, 1.0, 2.0, 4.0)]
    [0.0, 0.36, 0.84, 0.92]
    """
    return _mistakes(weights, mixture, math.log(SURE / (1 - SURE))) / _mistakes(weights, mixture, 0.0)


def linear_risk(weights: Tensor, mixture: ClassMixture, gamma: float) -> Tensor:
    r"""The expected focal loss of a linear model on a mixture of two classes, exact to rounding.

    $$ R(w) = \sum_c \pi_c\, \mathbb{E}_{s \sim N(w^\top m_c,\, |A_c^\top w|^2)}
       \big[ (1 - f_c)\, \ell(s) + f_c\, \ell(-s) \big] $$

    where $s$ is turned so that positive means the cluster's own class, $\ell(s)$ is the focal loss of $\sigma(s)$ and
    $f_c$ the probability that the label is flipped; the expectations are Gauss-Hermite sums.

    >>> two = four_clusters(train_size=1, val_size=1, test_size=1).facts["mixture"]
    >>> nothing = torch.zeros(2).double()  # says 1/2 everywhere: log 2, and with gamma 1 half of it
    >>> [round(float(linear_risk(nothing, two, gamma)), 4) for gamma in (0.0, 1.0)]
    [0.6931, 0.3466]
    """
    nodes, shares = _quadrature()
    centre, spread = _margins(weights, mixture)
    margins = centre[:, None] + spread[:, None] * nodes
    yes = torch.ones_like(margins)
    right = sigmoid_focal_loss(margins, yes, gamma=gamma, reduction="none")
    wrong = sigmoid_focal_loss(-margins, yes, gamma=gamma, reduction="none")
    flip = _flips(mixture)[:, None]
    return mixture.weights @ (((1 - flip) * right + flip * wrong) @ shares)


@cache
def _quadrature() -> tuple[Tensor, Tensor]:
    """Nodes and weights of the expectation over a standard normal distribution."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(_NODES)
    return torch.from_numpy(nodes), torch.from_numpy(shares / shares.sum())


def _margins(weights: Tensor, mixture: ClassMixture) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (C,) of each cluster's logits, positive towards its own class."""
    centre = (2.0 * mixture.classes - 1) * (mixture.means @ weights)
    return centre, (mixture.factors.transpose(1, 2) @ weights).norm(dim=1)


def _flips(mixture: ClassMixture) -> Tensor:
    """The probability (C,) that a cluster's label is the other class."""
    return mixture.noise[mixture.classes, 1 - mixture.classes]


def _mistakes(weights: Tensor, mixture: ClassMixture, bound: float) -> float:
    """The probability of a mistake whose logit is at least `bound` from 0."""
    centre, spread = _margins(weights, mixture)
    flip = _flips(mixture)
    over = torch.special.ndtr((centre - bound) / spread)
    under = torch.special.ndtr((-bound - centre) / spread)
    return float(mixture.weights @ (flip * over + (1 - flip) * under))
