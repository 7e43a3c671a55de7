r"""The one-dimensional problem of charoenphakdee2021's Sec. 5.2: who recovers the true posterior?

Networks are trained on a large sample with cross-entropy and focal loss. Their outputs as they are, after temperature
scaling fitted by NLL ($\mathrm{TS}_{\mathrm{NLL}}$) and after $\Psi^\gamma$ are compared with the posterior, which is
known; beside them stands what an endless sample and a perfect network would give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from focalcal.calibrators import Calibrator, FocalCalibration, TemperatureScaling
from focalcal.core.checks import require
from focalcal.core.focal_map import focal_minimizer
from focalcal.losses import FocalLoss
from focalcal.metrics import ece, error, kl_to_posterior, read
from focalcal_lab.data.dataset import TensorRows
from focalcal_lab.data.synthetic import ClassMixture, one_dimensional

Step = Literal["raw", "temperature", "focal-map"]

_HIDDEN, _BATCH_SIZE, _LEARNING_RATE = 64, 1000, 3e-3
_GRID = 241
# Points of equal probability that stand for the distribution itself.
_QUANTILES = 20_000


@dataclass(frozen=True)
class PosteriorEstimate:
    """How near the outputs after a step come to the posterior: error rate, KL divergence (nats) and ECE (15 bins).

    `probs` (G, K) are the outputs on the problem's grid, to be drawn.

    >>> apart = one_dimensional(train_size=1, means=(-3, 0, 3), scales=(1, 1, 1)).facts["mixture"]
    >>> found = one_dimensional_limits(apart, [1.0])[2]
    >>> found.gamma, found.step, round(found.kl, 4)
    (1.0, 'focal-map', 0.0)
    """

    gamma: float
    step: Step
    error: float
    kl: float
    ece: float
    temperature: float | None
    probs: Tensor


@dataclass(frozen=True)
class OneDimensionalProblem:
    """Networks (`measured`) and what they tend to (`limits`), one estimate for each gamma and step.

    `joint` (G, K) are the densities $p(x, y)$ and `posterior` (G, K) is $p(y | x)$ on `grid` (G,).

    >>> problem = one_dimensional_problem(gammas=[1.0], epochs=1, train_size=5000, val_size=5000, test_size=5000)
    >>> round(problem.limit_of(1.0, "raw").ece, 3), len(problem.measured)
    (0.068, 3)
    """

    seed: int
    epochs: int
    train_size: int
    bayes_error: float
    grid: Tensor
    joint: Tensor
    posterior: Tensor
    measured: tuple[PosteriorEstimate, ...]
    limits: tuple[PosteriorEstimate, ...]

    def of(self, gamma: float, step: Step) -> PosteriorEstimate:
        """The measured estimate of this gamma and step."""
        return next(one for one in self.measured if one.gamma == gamma and one.step == step)

    def limit_of(self, gamma: float, step: Step) -> PosteriorEstimate:
        """What the estimate of this gamma and step tends to."""
        return next(one for one in self.limits if one.gamma == gamma and one.step == step)


@dataclass(frozen=True)
class _Outputs:
    """Log-probabilities that something is fitted to, is measured on, and is drawn at."""

    fit: Tensor
    test: Tensor
    grid: Tensor


@dataclass(frozen=True)
class _Weighted:
    """Inputs, labels with weights, and for each row of the outputs the posterior."""

    inputs: Tensor
    labels: Tensor
    weights: Tensor | None
    posterior: Tensor


def one_dimensional_problem(
    seed: int = 0,
    *,
    gammas: Sequence[float] = (0.0, 1.0, 5.0),
    epochs: int = 12,
    train_size: int = 200_000,
    val_size: int = 50_000,
    test_size: int = 400_000,
) -> OneDimensionalProblem:
    r"""Train a three-layer network with every gamma, and compare its outputs with the posterior.

    where gamma 0 is cross-entropy. Temperatures are fitted to validation rows, all else is measured on test rows; the
    distribution is that of `one_dimensional`. With the defaults it takes under a minute on one core.

    Source: [charoenphakdee2021, Sec. 5.2, Fig. 3]. The paper says neither the sizes nor how it trained.

    >>> problem = one_dimensional_problem(gammas=[1.0], epochs=1, train_size=5000, val_size=5000, test_size=5000)
    >>> [(one.step, round(one.ece, 3)) for one in problem.limits]
    [('raw', 0.068), ('temperature', 0.026), ('focal-map', 0.0)]
    """
    require(len(gammas) >= 1, "gammas", "must be at least one", "none")
    require(epochs >= 1, "epochs", "must be at least 1", epochs)
    data = one_dimensional(seed=seed, train_size=train_size, val_size=val_size, test_size=test_size)
    assert isinstance(data.train, TensorRows)
    assert isinstance(data.val, TensorRows)
    assert isinstance(data.test, TensorRows)
    mixture: ClassMixture = data.facts["mixture"]
    grid = _grid()
    test = _Weighted(data.test.inputs, data.test.labels, None, mixture.posterior(data.test.inputs))
    fit = _Weighted(data.val.inputs, data.val.labels, None, test.posterior[:0])
    measured = list[PosteriorEstimate]()
    for gamma in gammas:
        network = _train(gamma, data.train, seed, epochs)
        outputs = _Outputs(*(_predict(network, inputs) for inputs in (fit.inputs, test.inputs, grid)))
        measured += _estimates(gamma, outputs, fit, test)
    return OneDimensionalProblem(
        seed=seed,
        epochs=epochs,
        train_size=train_size,
        bayes_error=1 - float(_whole(mixture).posterior.amax(1).mean()),
        grid=grid.squeeze(1),
        joint=mixture.log_joint(grid).exp(),
        posterior=mixture.posterior(grid),
        measured=tuple(measured),
        limits=one_dimensional_limits(mixture, gammas),
    )


def one_dimensional_limits(mixture: ClassMixture, gammas: Sequence[float]) -> tuple[PosteriorEstimate, ...]:
    """What networks on a mixture over a line tend to: the estimates from the minimisers of the focal risk.

    >>> apart = one_dimensional(train_size=1, means=(-3, 0, 3), scales=(1, 1, 1)).facts["mixture"]
    >>> [round(one.kl, 4) for one in one_dimensional_limits(apart, [1.0])]  # there a temperature does nearly as well
    [0.0382, 0.0007, 0.0]
    """
    whole, grid = _whole(mixture), _grid()
    found = list[PosteriorEstimate]()
    for gamma in gammas:
        points = _minimizer(mixture, gamma, whole.inputs)
        found += _estimates(gamma, _Outputs(points, points, _minimizer(mixture, gamma, grid)), whole, whole)
    return tuple(found)


def _grid() -> Tensor:
    """Where curves are drawn: 99.6 % of the inputs lie there, and beyond them no network has seen enough to speak."""
    return torch.linspace(-4, 4, _GRID, dtype=torch.float64)[:, None]


def _train(gamma: float, train: TensorRows, seed: int, epochs: int) -> nn.Module:
    """A network of three layers, by Adam with a rate that falls to 0, so that it ends at rest."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(1, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, 3)
        )
    generator = torch.Generator().manual_seed(seed)
    loss, optimizer = FocalLoss(gamma), torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    steps = epochs * -(-len(train) // _BATCH_SIZE)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(train), generator=generator).split(_BATCH_SIZE):
            optimizer.zero_grad()
            loss(network(train.inputs[batch]), train.labels[batch]).backward()
            optimizer.step()
            falling.step()
    return network


@torch.no_grad()
def _predict(network: nn.Module, inputs: Tensor) -> Tensor:
    return torch.log_softmax(network(inputs.float()).double(), dim=1)


def _minimizer(mixture: ClassMixture, gamma: float, inputs: Tensor) -> Tensor:
    """The log-probabilities of least focal risk at each input."""
    return torch.log(focal_minimizer(mixture.posterior(inputs), gamma))


def _whole(mixture: ClassMixture) -> _Weighted:
    """The distribution itself: inputs of equal probability, each with all labels, weighted by the posterior."""
    fine = torch.linspace(-12, 12, 200_001, dtype=torch.float64)[:, None]
    below = mixture.log_joint(fine).exp().sum(1).cumsum(0)
    middles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    places = torch.from_numpy(np.interp(middles, (below / below[-1]).numpy(), fine[:, 0].numpy()))[:, None]
    posterior, num_classes = mixture.posterior(places), mixture.num_classes
    labels = torch.arange(num_classes).repeat(_QUANTILES)
    return _Weighted(places, labels, posterior.flatten(), posterior)


def _estimates(gamma: float, outputs: _Outputs, fit: _Weighted, test: _Weighted) -> Iterator[PosteriorEstimate]:
    yield _estimate(gamma, "raw", None, outputs, test)
    if gamma == 0:  # cross-entropy is proper, and its focal map leaves everything as it is
        return
    scaling = TemperatureScaling("nll")
    scaling.fit(_each(outputs.fit, fit), fit.labels, kind="log_probs", sample_weight=fit.weights)
    yield _estimate(gamma, "temperature", scaling, outputs, test)
    yield _estimate(gamma, "focal-map", FocalCalibration(gamma), outputs, test)


@torch.no_grad()
def _estimate(
    gamma: float, step: Step, calibrator: Calibrator | None, outputs: _Outputs, test: _Weighted
) -> PosteriorEstimate:
    after, drawn = (part if calibrator is None else calibrator(part) for part in (outputs.test, outputs.grid))
    rows = read(_each(after, test), test.labels, kind="log_probs", sample_weight=test.weights)
    return PosteriorEstimate(
        gamma=gamma,
        step=step,
        error=float(error(rows)),
        kl=max(0.0, float(kl_to_posterior(after, test.posterior, kind="log_probs"))),  # not -1e-17
        ece=float(ece(rows)),
        temperature=float(calibrator.temperature_) if isinstance(calibrator, TemperatureScaling) else None,
        probs=drawn.exp(),
    )


def _each(outputs: Tensor, of: _Weighted) -> Tensor:
    """The outputs once for each label of their input."""
    return outputs.repeat_interleave(len(of.labels) // len(outputs), dim=0)
