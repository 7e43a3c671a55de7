"""Ensemble temperature scaling: a mixture of the scaled, the original and the uniform prediction."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData, LabelledLogits, row_weights
from focalcal.calibrators.fitted_values import FittedValue
from focalcal.calibrators.search.criteria import Criterion
from focalcal.calibrators.temperature import TemperatureScaling
from focalcal.core.checks import Array, require
from focalcal.core.focal import wide_dtype
from focalcal.core.masking import is_masked, without_masks
from focalcal.core.optimum import Optimum
from focalcal.core.temperature import TEMPERATURE_BOUNDS

# What the scaled and the original prediction keep together, so that the order of the classes shows in float32.
_LEAST_SHARE = 1e-3
# The corners of the allowed weights (scaled, original, uniform), in a circle.
_CORNERS = np.array([[1.0, 0, 0], [0, 1, 0], [0, _LEAST_SHARE, 1 - _LEAST_SHARE], [_LEAST_SHARE, 0, 1 - _LEAST_SHARE]])
_START = np.array([0.9, 0.05, 0.05])
_MAX_PASSES = 50
# A Newton step this small leaves an error of about its square.
_LAST_STEP = 1e-8
_ROUNDING = 1e-15
# Where the two softmaxes hardly differ, their weights are found on the edges.
_SINGULAR = 1e-14
# A prediction of the label that is so many times the mixture's: its square is still finite.
_LARGEST_LOG_RATIO = 300.0


class EnsembleTemperatureScaling(Calibrator):
    r"""Ensemble temperature scaling: a mixture of the scaled, the original and the uniform prediction.

    $$ p = w_1\, \mathrm{softmax}(x / T) + w_2\, \mathrm{softmax}(x) + w_3 / K, \qquad w \ge 0, \quad \sum_i w_i = 1 $$

    where $x$ are the logits, $T$ is `temperature_` and $w$ is `weights_` (3,). First T minimises the `criterion`,
    "brier" or "nll", as in `TemperatureScaling` with its `bounds`; then w does for that T, exactly, because both are
    convex in w. The predicted class stays: $w_3$ is at most 0.999. Where classes are masked, K is the number of those
    that are left.

    Source: [zhang2020]. Differs: the released code always takes the Brier score.

    >>> calibrator = EnsembleTemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1])
    >>> [round(p, 4) for p in calibrator.predict_probs([[2.0, 0.0]])[0].tolist()]  # two of three were right
    [0.6667, 0.3333]
    """

    FITTED: ClassVar = {
        "temperature_": FittedValue(above=0),
        "weights_": FittedValue((3,), least=0, shares=True),
    }
    temperature_: float
    weights_: Tensor

    def __init__(self, criterion: str = "brier", *, bounds: tuple[float, float] = TEMPERATURE_BOUNDS) -> None:
        super().__init__()
        require(criterion in ("brier", "nll"), "criterion", "must be brier or nll", repr(criterion))
        self.criterion = Criterion(criterion)
        self.bounds = TemperatureScaling(criterion, bounds=bounds).bounds

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {"criterion": self.criterion.name, "bounds": list(self.bounds)}

    def _fit(self, data: FitData) -> Optimum[Any]:
        scaling = TemperatureScaling(self.criterion.name, bounds=self.bounds)
        scaled = scaling._fit(data)
        if self.criterion.name == "brier":
            gram = _error_products(data, scaling.temperature_)
            weights = _least_quadratic(np.zeros(3), 2 * gram)
            passes, converged, before, after = 1, True, float(gram[1, 1]), float(weights @ gram @ weights)
        else:
            weights, after, passes, converged = _least_nll(data, scaling.temperature_)
            assert scaled.before is not None
            before = scaled.before
        self._set(temperature_=scaling.temperature_, weights_=torch.from_numpy(weights))
        capped = bool(weights[2] >= 1 - _LEAST_SHARE)
        return Optimum(
            weights,
            after,
            scaled.iterations + passes,
            scaled.converged and converged,
            scaled.at_boundary or capped,
            before,
        )

    def _log_probs(self, logits: Tensor) -> Tensor:
        x = logits.to(wide_dtype(logits.device))
        masked = is_masked(x)
        parts = without_masks(_log_parts(x, self._value("temperature_").to(x)), masked)
        log_p = torch.logsumexp(parts + self._value("weights_").to(x).log().view(3, 1, 1), 0)
        return torch.where(masked, -math.inf, log_p.clamp(max=0))  # the weights may sum to 1 + 1e-16


def _log_parts(logits: Tensor, temperature: Tensor | float) -> Tensor:
    """The three log-probabilities (3, n, K) of rows of logits (n, K)."""
    masked = is_masked(logits)
    uniform = torch.where(masked, -math.inf, -torch.log((~masked).sum(1, keepdim=True).to(logits.dtype)))
    return torch.stack([torch.log_softmax(logits / temperature, 1), torch.log_softmax(logits, 1), uniform])


def _error_products(data: FitData, temperature: float) -> Array:
    """The means over rows of the products (3, 3) of the three errors p - e_y; the Brier score is quadratic in them."""

    def products(block: LabelledLogits) -> Array:
        x = block.logits.to(wide_dtype(block.logits.device))
        errors = _log_parts(x, temperature).exp()
        label = block.labels.view(1, -1, 1).expand(3, -1, 1)
        errors.scatter_add_(2, label, -torch.ones_like(errors[:, :, :1]))
        weighted = (errors * row_weights(block).unsqueeze(1)).flatten(1)
        return np.asarray((weighted @ errors.flatten(1).T).cpu().numpy())

    mean = data.mean(products)
    return np.asarray((mean + mean.T) / 2)


def _least_nll(data: FitData, temperature: float) -> tuple[Array, float, int, bool]:
    r"""Weights with the smallest NLL, its value, the passes and whether the search ended by itself.

    With $r_i$ the i-th prediction of the label divided by the mixture's, the NLL has the gradient $-\langle r \rangle$
    and the Hessian $\langle r r^\top \rangle$: the quadratic that they give is minimised over the allowed weights.
    """
    weights, length = _START, 1.0
    value, gradient, hessian = _nll_of_mixture(data, temperature, weights)
    for passes in range(1, _MAX_PASSES + 1):
        step = _least_quadratic(gradient - hessian @ weights, hessian) - weights
        slope = float(gradient @ step)
        change = slope + float(step @ hessian @ step) / 2
        if np.abs(step).max() <= _LAST_STEP or -change <= _ROUNDING * max(1.0, value):
            return weights + step, value + change, passes, True
        there = _nll_of_mixture(data, temperature, weights + length * step)
        if there[0] <= value + 1e-4 * length * slope + _ROUNDING * max(1.0, value):
            weights, length = weights + length * step, 1.0
            value, gradient, hessian = there
        else:
            length /= 4
    return weights, value, passes, False


def _nll_of_mixture(data: FitData, temperature: float, weights: Array) -> tuple[float, Array, Array]:
    """The mean NLL of the mixture, its gradient (3,) and Hessian (3, 3), in one pass."""

    def sums(block: LabelledLogits) -> Array:
        x = block.logits.to(wide_dtype(block.logits.device))
        label = block.labels.view(1, -1, 1).expand(3, -1, 1)
        log_parts = _log_parts(x, temperature).gather(2, label).squeeze(2)
        log_p = torch.logsumexp(log_parts + torch.from_numpy(weights).to(x).log().unsqueeze(1), 0)
        weight = row_weights(block)
        ratio = (log_parts - log_p).clamp(max=_LARGEST_LOG_RATIO).exp()
        columns = (-weight.dot(log_p).view(1), -(ratio @ weight), ((ratio * weight) @ ratio.T).flatten())
        return np.asarray(torch.cat(columns).cpu().numpy())

    value, *rest = np.split(data.mean(sums), [1, 4])
    return float(value[0]), rest[0], rest[1].reshape(3, 3)


def _least_quadratic(linear: Array, hessian: Array) -> Array:
    """The allowed weights that minimise linear · w + w · hessian · w / 2: inside if that is so, else on an edge.

    >>> _least_quadratic(np.array([-1.0, 0.0, 0.0]), np.eye(3)).round(3)
    array([1., 0., 0.])
    """
    size = max(float(np.abs(hessian).max()), float(np.abs(linear).max()))
    linear, hessian = linear / size, hessian / size
    slopes, ways = linear + hessian @ _CORNERS[0], np.array([[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]])
    bend = ways @ hessian @ ways.T
    if np.linalg.det(bend) > _SINGULAR * np.trace(bend) ** 2:
        inside = _CORNERS[0] + ways.T @ np.linalg.solve(bend, -ways @ slopes)
        if inside.min() >= 0 and inside[2] <= 1 - _LEAST_SHARE:
            return np.asarray(inside)
    best: Array = _CORNERS[0]
    least = math.inf
    for corner, other in zip(_CORNERS, np.roll(_CORNERS, -1, 0), strict=True):
        way = other - corner
        slope, bent = float(way @ (linear + hessian @ corner)), float(way @ hessian @ way)
        along = min(max(-slope / bent, 0.0), 1.0) if bent > 0 else float(slope < 0)
        point = corner + along * way
        value = float(linear @ point + point @ hessian @ point / 2)
        if value < least - _ROUNDING:  # of equal ones the first
            best, least = point, value
    return best
