r"""Calibrators that are linear in the logits: vector, matrix and Dirichlet scaling, fitted to the exact minimum.

The NLL is convex in the parameters. It is minimised from uniform probabilities on, in coordinates in which the inputs
have mean 0, variance 1 and (for matrices) no correlation, so that their scale does not matter:

$$ x W + b = z\,\Theta, \quad z = ((x - \bar x) V, 1), \quad W = V \Theta_{1..r}, \quad b = \Theta_{r+1} - \bar x W $$

With $p = \mathrm{softmax}(z\Theta)$ and $\langle\cdot\rangle$ the weighted mean over rows, gradient and Hessian are

$$ \frac{\partial}{\partial\Theta_{ak}} = \langle z_a (p_k - [y = k]) \rangle, \qquad
   \frac{\partial^2}{\partial\Theta_{ak} \partial\Theta_{bl}} = \langle z_a z_b\, p_k ([k = l] - p_l) \rangle . $$

What does not vary on the data by more than its rounding gets the weight 0.

Where classes are masked, the softmax is over those that are left, and the input of a masked class is 0: it adds nothing
to the others. For Dirichlet calibration that is the model itself, because a part of a Dirichlet distribution is a
Dirichlet distribution of that part, with the same parameters.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData, LabelledLogits, row_weights
from focalcal.calibrators.fitted_values import FittedValue
from focalcal.calibrators.search.criteria import Criterion
from focalcal.calibrators.standardisation import Moments, merged_moments
from focalcal.core.checks import require
from focalcal.core.convex import HessianProduct, PointDerivatives, minimize_convex
from focalcal.core.focal import wide_dtype
from focalcal.core.masking import is_masked, masked_log_softmax, without_masks
from focalcal.core.optimum import Optimum
from focalcal.errors import InputError
from focalcal.machine import machine_memory, readable

# Parameters up to which the Hessian is written down; beyond, conjugate gradients apply it in passes over the data.
_MOST_OF_VECTOR = 400
_MOST_OF_MATRIX = 1200
# Numbers in the blocks that guide conjugate gradients, one block for each class; beyond, one serves all.
_MOST_IN_BLOCKS = 1 << 24
# Numbers in float64 that the fit of a matrix holds at its peak, for each of the K^2 weights: measured at 1,000 and
# 1,500 classes with more rows than classes.
_HELD_PER_WEIGHT = 24
# Of each squared weight and intercept, unless told otherwise.
_PENALTY = 0.02
# Values of the largest temporary array of a pass.
_TEMPORARY = 1 << 21


class _LinearCalibrator(Calibrator):
    """Softmax of logits that are linear in `weight_` and `bias_`."""

    FITTED: ClassVar = {"weight_": FittedValue(("classes", "classes")), "bias_": FittedValue(("classes",))}
    PER_CLASS = True
    FULL: ClassVar[bool]  # whether the map mixes classes
    weight_: Tensor
    bias_: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.criterion = Criterion("nll")

    @abstractmethod
    def _coordinates(self, moments: Moments) -> _Coordinates:
        """The coordinates of the fit."""

    @abstractmethod
    def _linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        """The weight applied to inputs (n, K)."""

    def _inputs(self, logits: Tensor) -> Tensor:
        """The inputs of the linear map."""
        return logits

    def _fit(self, data: FitData) -> Optimum[Any]:
        moments, before = data.reduce(self._moments, merged_moments)
        coordinates = self._coordinates(moments)
        found = minimize_convex(_Objective(data, self._inputs, coordinates).read, coordinates.start())
        weight, bias = coordinates.back(found.point)
        self._set(weight_=weight, bias_=bias - bias.mean())
        after = found.value - coordinates.penalty(found.point)
        return replace(found, value=after, before=before / data.mass)

    def _moments(self, blocks: Iterator[LabelledLogits]) -> tuple[Moments, float]:
        """Means and covariances of the inputs, and the summed NLL of the logits as they are."""
        moments, before = Moments(full=self.FULL), 0.0
        for block in blocks:
            if self.FULL:
                _require_memory(type(self).__name__, block.logits.shape[1])
            wide, weight = block.logits.to(wide_dtype(block.logits.device)), row_weights(block)
            inputs = without_masks(self._inputs(wide), is_masked(wide))
            moments.add(inputs, weight, torch.finfo(block.logits.dtype).eps)
            before += float(weight.dot(_nll(torch.log_softmax(wide, 1), block.labels)))
        return moments, before

    def _log_probs(self, logits: Tensor) -> Tensor:
        masked = is_masked(logits)
        inputs = without_masks(self._inputs(logits.to(wide_dtype(logits.device))), masked)
        weight, bias = self._value("weight_").to(inputs.dtype), self._value("bias_").to(inputs.dtype)
        return masked_log_softmax(self._linear(inputs, weight) + bias, masked)


class VectorScaling(_LinearCalibrator):
    r"""Vector scaling: a factor and a bias for each class.

    $$ p = \mathrm{softmax}(w \odot x + b) $$

    where $x$ are the logits, $w$ is `weight_` (K,) and $b$ is `bias_` (K,), with mean 0. Both minimise the NLL, by
    Newton's method. If that has no minimum, because the classes can be told apart without error or one of them has no
    row, the fit ends where no more than 1e-12 is left to gain, and the report says `at_boundary`.

    Source: [guo2017, Sec. 4.2].

    >>> logits, labels = [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]], [0, 0, 1, 1, 0]
    >>> calibrator = VectorScaling().fit(logits, labels)
    >>> [round(p, 4) for p in calibrator.predict_probs([[2.0, 0.0]])[0].tolist()]  # two of three were right
    [0.6667, 0.3333]
    """

    FITTED: ClassVar = {"weight_": FittedValue(("classes",)), "bias_": FittedValue(("classes",))}
    FULL = False

    def settings(self) -> dict[str, Any]:
        """It has none."""
        return {}

    def _coordinates(self, moments: Moments) -> _Coordinates:
        return _VectorCoordinates(moments)

    def _linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        return inputs * weight


class MatrixScaling(_LinearCalibrator):
    r"""Matrix scaling: a linear map of the logits, with ODIR, the penalty on off-diagonal weights and intercepts.

    $$ p = \mathrm{softmax}(x W + b), \qquad \min_{W, b}\; \mathrm{NLL} + \frac{\lambda}{K(K-1)} \sum_{i \ne j} W_{ij}^2
       + \frac{\mu}{K} \sum_j b_j^2 $$

    where $x$ are the logits, $W$ is `weight_` (K, K), $b$ is `bias_` (K,), $\lambda$ is `off_diagonal` and $\mu$ is
    `intercept`. Unless given they are K(K-1)/50 and K/50, that is 0.02 times the sums of squares, which does well on
    1,000 to 5,000 rows of 10 and of 100 classes. The report has the NLL without the penalty.

    Without penalties W and b are those of ever smaller ones: the off-diagonal entries of each row of W, and those of
    b, have mean 0. For many classes there is then often no minimum, because the classes can be told apart without
    error; see `VectorScaling`. Beyond 34 classes the Hessian is applied by conjugate gradients, in passes over the
    data: 100 classes and 5,000 rows take a few hundred. The fit holds about 200 bytes for each of the K^2 weights, and
    is refused before it begins where the machine has less memory: 10,000 classes take 18 GiB.

    Source: [guo2017, Sec. 4.2] for the map, [kull2019, Sec. 3] for the penalty.

    >>> logits, labels = [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]], [0, 0, 1, 1, 0]
    >>> calibrator = MatrixScaling(off_diagonal=0.0, intercept=0.0).fit(logits, labels)
    >>> [round(p, 4) for p in calibrator.predict_probs([[2.0, 0.0]])[0].tolist()]  # two of three were right
    [0.6667, 0.3333]
    """

    FULL = True

    def __init__(self, off_diagonal: float | None = None, intercept: float | None = None) -> None:
        super().__init__()
        for name, value in (("off_diagonal", off_diagonal), ("intercept", intercept)):
            fine = value is None or (math.isfinite(value) and value >= 0)
            require(fine, name, "must be non-negative and finite", value)
        self.off_diagonal, self.intercept = off_diagonal, intercept

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {"off_diagonal": self.off_diagonal, "intercept": self.intercept}

    def _coordinates(self, moments: Moments) -> _Coordinates:
        classes = len(moments.mean)
        off_diagonal = _PENALTY * classes * (classes - 1) if self.off_diagonal is None else self.off_diagonal
        return _MatrixCoordinates(
            moments, off_diagonal, _PENALTY * classes if self.intercept is None else self.intercept
        )

    def _linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        return inputs @ weight


class DirichletCalibration(MatrixScaling):
    r"""Dirichlet calibration: matrix scaling of the log-probabilities instead of the logits.

    $$ p = \mathrm{softmax}(\log q\, W + b), \qquad q = \mathrm{softmax}(x) $$

    where $x$ are the logits and all else is as in `MatrixScaling`. A constant added to the logits changes nothing.

    Source: [kull2019, Sec. 3].

    >>> logits, labels = [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]], [0, 0, 1, 1, 0]
    >>> calibrator = DirichletCalibration(off_diagonal=0.0, intercept=0.0).fit(logits, labels)
    >>> [round(p, 4) for p in calibrator.predict_probs([[2.0, 0.0]])[0].tolist()]  # two of three were right
    [0.6667, 0.3333]
    """

    def _inputs(self, logits: Tensor) -> Tensor:
        return torch.log_softmax(logits, 1)


def _require_memory(name: str, classes: int) -> None:
    """Refuse a matrix whose fit the machine cannot hold, before anything of its size is allocated."""
    weights, needed = classes * classes, 8 * _HELD_PER_WEIGHT * classes * classes
    if needed > machine_memory():
        raise InputError(
            f"logits: {name} has {classes:,} x {classes:,} = {weights:,} weights, and its fit holds about "
            f"{_HELD_PER_WEIGHT} numbers of 8 bytes for each: {readable(needed)} of memory, and there are "
            f"{readable(machine_memory())}. Take VectorScaling, which has {2 * classes:,} weights."
        )


# ----------------------------------------------------------------------------------------------------- coordinates


class _Coordinates(ABC):
    """Standardised inputs and the parameters that belong to them, as one vector of `size`."""

    size: int
    dense: bool  # whether the Hessian is written down

    @property
    @abstractmethod
    def block_shape(self) -> tuple[int, int, int]:
        """The shape that `blocks` returns."""

    @property
    def bend_shape(self) -> tuple[int, ...]:
        """The shape of the second derivatives that a pass adds up."""
        return (self.size, self.size) if self.dense else self.block_shape

    @property
    def bend_size(self) -> int:
        """The number of second derivatives that a pass adds up."""
        return math.prod(self.bend_shape)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Inputs (n, K) in these coordinates."""

    @abstractmethod
    def logits(self, z: Tensor, theta: Tensor) -> Tensor:
        """Logits (n, K) of features, linear in the parameters."""

    @abstractmethod
    def gradient(self, z: Tensor, residual: Tensor) -> Tensor:
        """The transpose of `logits`: from (n, K) to the parameters."""

    @abstractmethod
    def hessian(self, z: Tensor, p: Tensor, weight: Tensor) -> Tensor:
        """Second derivatives of the NLL, summed over rows of probabilities p (n, K)."""

    @abstractmethod
    def blocks(self, z: Tensor, p: Tensor, weight: Tensor) -> Tensor:
        """The second derivatives within each class (K, a, a), or their mean (1, a, a)."""

    @abstractmethod
    def back(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias for the inputs before standardisation."""

    def start(self) -> Tensor:
        """Parameters that give equal probabilities."""
        return torch.zeros(self.size, dtype=torch.float64)

    def penalty_gradient(self, theta: Tensor) -> Tensor:
        """The gradient of the quadratic that is added to the NLL."""
        return torch.zeros_like(theta)

    def penalty_hessian(self) -> Tensor:
        """The second derivatives of the penalty."""
        return torch.zeros(self.size, self.size, dtype=torch.float64)

    def penalty_blocks(self) -> Tensor:
        """The second derivatives of the penalty within each class, or their mean."""
        return torch.zeros((), dtype=torch.float64)

    def penalty(self, theta: Tensor) -> float:
        """The value of the penalty."""
        return float(theta.dot(self.penalty_gradient(theta))) / 2


class _VectorCoordinates(_Coordinates):
    """One factor for each class, then one bias for each."""

    def __init__(self, moments: Moments) -> None:
        self.mean, self.scale = moments.mean, moments.scale
        self.classes = len(self.mean)
        self.size = 2 * self.classes
        self.dense = self.size <= _MOST_OF_VECTOR

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return self.classes, 2, 2

    def features(self, x: Tensor) -> Tensor:
        return (x - self.mean.to(x)) * self.scale.to(x)

    def logits(self, z: Tensor, theta: Tensor) -> Tensor:
        return torch.addcmul(theta[self.classes :], z, theta[: self.classes])

    def gradient(self, z: Tensor, residual: Tensor) -> Tensor:
        return torch.cat([(z * residual).sum(0), residual.sum(0)])

    def hessian(self, z: Tensor, p: Tensor, weight: Tensor) -> Tensor:
        slopes = torch.cat([p * z, p], 1)
        weighted = slopes * weight.unsqueeze(1)
        hessian = -(slopes.T @ weighted)
        by_factor, by_bias = weighted.split(self.classes, 1)
        own = torch.stack([(by_factor * z).sum(0), by_factor.sum(0), by_factor.sum(0), by_bias.sum(0)])
        blocks = hessian.view(2, self.classes, 2, self.classes).diagonal(dim1=1, dim2=3)
        blocks += own.view(2, 2, self.classes)
        return hessian

    def blocks(self, z: Tensor, p: Tensor, weight: Tensor) -> Tensor:
        bend = p * (1 - p) * weight.unsqueeze(1)
        mixed = (bend * z).sum(0)
        return torch.stack([(bend * z * z).sum(0), mixed, mixed, bend.sum(0)], 1).view(-1, 2, 2)

    def back(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        weight = self.scale * theta[: self.classes]
        return weight, theta[self.classes :] - self.mean * weight


class _MatrixCoordinates(_Coordinates):
    """Uncorrelated features and 1 (r + 1), times the classes."""

    def __init__(self, moments: Moments, off_diagonal: float, intercept: float) -> None:
        self.mean, classes = moments.mean, len(moments.mean)
        cost = torch.full((classes + 1, classes), off_diagonal / (classes * (classes - 1)), dtype=torch.float64)
        cost.diagonal().zero_()
        cost[-1] = intercept / classes
        self.cost = cost
        # With probabilities around 1/K the data bend the NLL by 1/K; the penalty adds to that.
        self.directions = moments.directions(2 * classes * float(cost[0, 1]))
        self.rank, self.classes = self.directions.shape[1], classes
        # From theta to weight and bias.
        self.map = torch.zeros(classes + 1, self.rank + 1, dtype=torch.float64)
        self.map[:-1, :-1] = self.directions
        self.map[-1, :-1], self.map[-1, -1] = -(self.mean @ self.directions), 1.0
        self.size = (self.rank + 1) * classes
        self.dense = self.size <= _MOST_OF_MATRIX
        self.block_each = self.size * (self.rank + 1) <= _MOST_IN_BLOCKS

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return self.classes if self.block_each else 1, self.rank + 1, self.rank + 1

    def features(self, x: Tensor) -> Tensor:
        z = (x - self.mean.to(x)) @ self.directions.to(x)
        return torch.cat([z, torch.ones_like(x[:, :1])], 1)

    def logits(self, z: Tensor, theta: Tensor) -> Tensor:
        return z @ theta.view(-1, self.classes)

    def gradient(self, z: Tensor, residual: Tensor) -> Tensor:
        return (z.T @ residual).flatten()

    def hessian(self, z: Tensor, p: Tensor, weight: Tensor) -> Tensor:
        # Products of two features and of two probabilities are symmetric: a quarter of all pairs of pairs is enough.
        features, by_features = _pairs_of(self.rank + 1)
        classes, by_classes = _pairs_of(self.classes)
        z, p = z.T.contiguous(), p.T.contiguous()  # rows of a matrix are taken faster than columns
        squares, weighted = z[features[0]] * z[features[1]], p * weight
        mixed = squares @ (p[classes[0]] * weighted[classes[1]]).T
        hessian = -mixed[by_features][:, :, by_classes].transpose(1, 2).reshape(self.size, self.size)
        self._own(hessian).add_((squares @ weighted.T)[by_features])
        return hessian

    def blocks(self, z: Tensor, p: Tensor, weight: Tensor) -> Tensor:
        bend = p * (1 - p) * weight.unsqueeze(1)
        bend = bend if self.block_each else bend.mean(1, keepdim=True)
        return torch.stack([z.T @ (z * column.unsqueeze(1)) for column in bend.T])

    def back(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        both = self.map @ theta.view(-1, self.classes)
        weight, bias = both[:-1], both[-1]
        others = (weight.sum(1) - weight.diagonal()) / (self.classes - 1)
        return weight - others.unsqueeze(1), bias  # the same number for all classes is none

    def penalty_gradient(self, theta: Tensor) -> Tensor:
        gradient: Tensor = self.map.T @ (2 * self.cost * (self.map @ theta.view(-1, self.classes)))
        return gradient.flatten()

    def penalty_hessian(self) -> Tensor:
        hessian = super().penalty_hessian()
        self._own(hessian).add_(2 * torch.einsum("ia,ik,ib->abk", self.map, self.cost, self.map))
        return hessian

    def penalty_blocks(self) -> Tensor:
        cost = self.cost if self.block_each else self.cost.mean(1, keepdim=True)
        return torch.stack([2 * self.map.T @ (self.map * column.unsqueeze(1)) for column in cost.T])

    def _own(self, hessian: Tensor) -> Tensor:
        """The second derivatives (r + 1, r + 1, K) within each class."""
        shape = (self.rank + 1, self.classes)
        return hessian.view(*shape, *shape).diagonal(dim1=1, dim2=3)


@functools.lru_cache(maxsize=8)
def _pairs_of(count: int) -> tuple[Tensor, Tensor]:
    """The pairs i <= j of so many things (2, P), and the place of the pair of any two of them (count, count).

    >>> _pairs_of(2)
    (tensor([[0, 0, 1],
            [0, 1, 1]]), tensor([[0, 1],
            [1, 2]]))
    """
    pairs = torch.triu_indices(count, count)
    place = torch.zeros(count, count, dtype=torch.int64)
    place[pairs[0], pairs[1]] = place[pairs[1], pairs[0]] = torch.arange(pairs.shape[1])
    return pairs, place


# ------------------------------------------------------------------------------------------------------------ the fit


class _Objective:
    """The mean NLL with its penalty, as a function of the parameters."""

    def __init__(self, data: FitData, inputs: Callable[[Tensor], Tensor], coordinates: _Coordinates) -> None:
        self.data, self.inputs, self.coordinates = data, inputs, coordinates

    def read(self, theta: Tensor) -> PointDerivatives:
        """The value at a point and its derivatives, in one pass."""
        coordinates = self.coordinates
        of_rows = functools.partial(_derivatives, self.inputs, coordinates, theta)
        value, gradient, bend = self.data.mean(of_rows).split([1, coordinates.size, coordinates.bend_size])
        fixed = coordinates.penalty_hessian() if coordinates.dense else coordinates.penalty_blocks()
        bend = bend.view(coordinates.bend_shape) + fixed
        value, gradient = float(value) + coordinates.penalty(theta), gradient + coordinates.penalty_gradient(theta)
        return PointDerivatives(
            value, gradient, bend if coordinates.dense else HessianProduct(functools.partial(self.bend, theta), bend)
        )

    def bend(self, theta: Tensor, direction: Tensor) -> Tensor:
        """The Hessian at a point, applied to a direction, in one pass."""
        of_rows = functools.partial(_bent, self.inputs, self.coordinates, theta, direction)
        bent: Tensor = self.data.mean(of_rows) + self.coordinates.penalty_gradient(direction)
        return bent


def _rows(
    inputs: Callable[[Tensor], Tensor], coordinates: _Coordinates, block: LabelledLogits
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Features, masks, labels and weights of the rows of a block, some at a time."""
    width = coordinates.size if coordinates.dense else block.logits.shape[1]
    columns = (block.logits, block.labels, row_weights(block))
    for logits, labels, weight in zip(*(c.split(max(1, _TEMPORARY // width)) for c in columns), strict=True):
        masked = is_masked(logits)
        known = without_masks(inputs(logits.to(wide_dtype(logits.device))), masked)
        yield coordinates.features(known), masked, labels, weight


def _derivatives(
    inputs: Callable[[Tensor], Tensor], coordinates: _Coordinates, theta: Tensor, block: LabelledLogits
) -> Tensor:
    """The summed NLL of a block, its gradient, and its Hessian or the blocks of it, one after the other."""
    sums = torch.zeros(1 + coordinates.size + coordinates.bend_size, dtype=torch.float64)
    for z, masked, labels, weight in _rows(inputs, coordinates, block):
        log_p = masked_log_softmax(coordinates.logits(z, theta.to(z)), masked)
        p = log_p.exp()
        residual = p.scatter_add(1, labels.unsqueeze(1), -torch.ones_like(p[:, :1])) * weight.unsqueeze(1)
        bend = coordinates.hessian(z, p, weight) if coordinates.dense else coordinates.blocks(z, p, weight)
        value, gradient = weight.dot(_nll(log_p, labels)).view(1), coordinates.gradient(z, residual)
        sums += torch.cat([value, gradient, bend.flatten()]).to(sums)
    return sums


def _bent(
    inputs: Callable[[Tensor], Tensor],
    coordinates: _Coordinates,
    theta: Tensor,
    direction: Tensor,
    block: LabelledLogits,
) -> Tensor:
    bent = torch.zeros_like(theta)
    for z, masked, _, weight in _rows(inputs, coordinates, block):
        p = masked_log_softmax(coordinates.logits(z, theta.to(z)), masked).exp()
        along = coordinates.logits(z, direction.to(z))
        residual = p * (along - (p * along).sum(1, keepdim=True)) * weight.unsqueeze(1)
        bent += coordinates.gradient(z, residual).to(theta)
    return bent


def _nll(log_p: Tensor, labels: Tensor) -> Tensor:
    return -log_p.gather(1, labels.unsqueeze(1)).squeeze(1)
