"""Calibrators of two classes: Platt scaling and beta calibration, logistic regressions fitted to the exact minimum.

A row in which one class is masked leaves the other: its probability is 1, and the fit has nothing to learn from it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData, LabelledLogits, row_weights
from focalcal.calibrators.fitted_values import FittedValue
from focalcal.calibrators.search.criteria import Criterion
from focalcal.calibrators.standardisation import Moments, merged_moments
from focalcal.core.checks import require
from focalcal.core.convex import PointDerivatives, minimize_convex
from focalcal.core.focal import wide_dtype
from focalcal.core.masking import is_masked, masked_log_softmax, without_masks
from focalcal.core.optimum import Optimum

Parameters = Literal["abm", "ab", "am"]


class _BinaryCalibrator(Calibrator):
    """A map of the log-odds of two classes."""

    PER_CLASS = True
    BINARY = True

    def __init__(self) -> None:
        super().__init__()
        self.criterion = Criterion("nll")


class PlattScaling(_BinaryCalibrator):
    r"""Platt scaling: a logistic regression on the log-odds of two classes.

    $$ p_1 = \sigma(a s + b), \qquad s = x_1 - x_0 $$

    where $x$ are the logits (N, 2), or $s$ those of the positive class (N,), and $a$, $b$ are `a_` and `b_`. With
    `smooth_targets` the cross-entropy is that of the targets $(N_+ + 1)/(N_+ + 2)$ for positive rows and
    $1/(N_- + 2)$ for negative ones, so that it has a minimum whatever the data; weights count as rows. If the NLL of
    the labels themselves is no better for it than that of the raw logits, those are kept.

    Source: [platt1999]. Differs: the sign of a and b.

    >>> calibrator = PlattScaling(smooth_targets=False).fit([1.0, 1.0, 1.0, -1.0, -1.0, -1.0], [1, 1, 0, 0, 0, 1])
    >>> round(calibrator.a_, 4), abs(round(calibrator.b_, 4))  # two of three were right: log 2
    (0.6931, 0.0)
    """

    FITTED: ClassVar = {"a_": FittedValue(), "b_": FittedValue()}
    a_: float
    b_: float

    def __init__(self, *, smooth_targets: bool = True) -> None:
        super().__init__()
        self.smooth_targets = bool(smooth_targets)

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {"smooth_targets": self.smooth_targets}

    def _fit(self, data: FitData) -> Optimum[Any]:
        regression = _Regression(data, lambda odds: odds.unsqueeze(1), intercept=True)
        if self.smooth_targets:
            negative, positive = regression.counts
            regression.targets = (1 / (negative + 2), (positive + 1) / (positive + 2))
        found = regression.fit((0,))
        self._set(a_=found.slopes[0], b_=found.intercept)
        return found.minimum

    def _log_probs(self, logits: Tensor) -> Tensor:
        odds = _log_odds(logits)
        return _both(self._value("a_").to(odds) * odds + self._value("b_").to(odds), logits)


class BetaCalibration(_BinaryCalibrator):
    r"""Beta calibration: a monotone map of the probability of two classes with up to three parameters.

    $$ \log\frac{p_1}{1 - p_1} = a \log q - b \log(1 - q) + c, \qquad q = \mathrm{softmax}(x)_1, \qquad a, b \ge 0 $$

    where $x$ are the logits and $a$, $b$, $c$ are `a_`, `b_`, `c_`. `parameters` says which are free: all ("abm"), a
    and b with $p_1 = 1/2$ at $q = 1/2$ ("ab"), or $a = b$ and c ("am"). Minimises the NLL; where a or b would be
    negative the best fit with a zero is taken, and the report says `at_boundary`.

    Source: [kull2017]. Differs: if both would be negative, both ways to set one to 0 are tried.

    >>> logits, labels = [1.0, 1.0, 1.0, -1.0, -1.0, -1.0], [1, 1, 0, 0, 0, 1]
    >>> calibrator = BetaCalibration("am").fit(logits, labels)
    >>> round(calibrator.a_, 4)  # two of three were right: log 2
    0.6931
    """

    FITTED: ClassVar = {"a_": FittedValue(least=0), "b_": FittedValue(least=0), "c_": FittedValue()}
    a_: float
    b_: float
    c_: float

    def __init__(self, parameters: Parameters = "abm") -> None:
        super().__init__()
        known = get_args(Parameters)
        require(parameters in known, "parameters", f"must be one of {', '.join(known)}", repr(parameters))
        self.free = parameters  # `parameters` is a method of every module

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {"parameters": self.free}

    def _fit(self, data: FitData) -> Optimum[Any]:
        regression = _Regression(data, self._features, intercept=self.free != "ab")
        found = regression.fit_above_zero()
        a, b = found.slopes if len(found.slopes) == 2 else found.slopes * 2
        c = (a - b) * math.log(2) if self.free == "ab" else found.intercept
        self._set(a_=a, b_=b, c_=c)
        return replace(found.minimum, at_boundary=found.minimum.at_boundary or min(a, b) == 0)

    def _features(self, odds: Tensor) -> Tensor:
        """The features that a and b are the factors of."""
        if self.free == "am":
            return odds.unsqueeze(1)
        features = torch.stack([F.logsigmoid(odds), -F.logsigmoid(-odds)], 1)
        return features if self.free == "abm" else features + math.log(2) * features.new_tensor([1.0, -1.0])

    def _log_probs(self, logits: Tensor) -> Tensor:
        # log_softmax rather than logsigmoid, which ONNX takes apart into log(sigmoid).
        log_q = without_masks(torch.log_softmax(logits.to(wide_dtype(logits.device)), 1), is_masked(logits))
        a, b, c = (self._value(name).to(log_q) for name in self.FITTED)
        return _both(a * log_q[:, 1] - b * log_q[:, 0] + c, logits)


def _log_odds(logits: Tensor) -> Tensor:
    """The log-odds (n,) of class 1, finite also where a class is masked."""
    wide = without_masks(logits.to(wide_dtype(logits.device)), is_masked(logits))
    return wide[:, 1] - wide[:, 0]


def _both(log_odds: Tensor, logits: Tensor) -> Tensor:
    """Log-probabilities (n, 2) of log-odds (n,), and of the class that is left where one is masked."""
    return masked_log_softmax(torch.stack([torch.zeros_like(log_odds), log_odds], 1), is_masked(logits))


def _weights(block: LabelledLogits) -> Tensor:
    """The weights (n,) of the rows, 0 where a class is masked."""
    return row_weights(block) * ~is_masked(block.logits).any(1)


# ------------------------------------------------------------------------------------------------------------ the fit


@dataclass(frozen=True)
class _Fitted:
    """A logistic regression: a slope for each feature, 0 for those left out, and where its search ended."""

    slopes: list[float]
    intercept: float
    minimum: Optimum[Tensor]


class _Regression:
    """Logistic regression on features (n, q) of the log-odds, in coordinates without correlation.

    `targets` are the probabilities that negative and positive rows are fitted to.
    """

    def __init__(self, data: FitData, features: Callable[[Tensor], Tensor], *, intercept: bool) -> None:
        self.data, self.features, self.intercept = data, features, intercept
        self.targets = (0.0, 1.0)
        self.moments, positive = data.reduce(functools.partial(_moments, features), merged_moments)
        fix = "Give rows that leave both."
        require(self.moments.mass > 0, "logits", "a class is masked in every row", "nothing to learn from", fix)
        self.counts = (self.moments.mass - positive, positive)

    def fit_above_zero(self) -> _Fitted:
        """The best fit without negative slopes.

        If the best fit of all has some, that of the allowed ones has a 0 among them, because the way from there to the
        best of all leaves what is allowed at once. All ways to leave out one slope are tried, and then all slopes.
        """
        every = tuple(range(len(self.moments.mean)))
        for count in reversed(range(len(every) + 1)):
            fits = [self.fit(columns) for columns in itertools.combinations(every, count)]
            allowed = [found for found in fits if min(found.slopes) >= 0]
            if allowed:
                break
        return min(allowed, key=lambda found: found.minimum.value)

    def fit(self, columns: tuple[int, ...]) -> _Fitted:
        """The best fit with the slopes of these features only."""
        part = self.moments.part(columns, centred=self.intercept)
        directions = part.directions()
        start = torch.zeros(directions.shape[1] + self.intercept, dtype=torch.float64)
        if not len(start):
            return _Fitted([0.0] * len(self.moments.mean), 0.0, Optimum(start, math.log(2), 1))
        found = minimize_convex(functools.partial(self._read, columns, part.mean, directions), start)
        chosen = directions @ found.point[: directions.shape[1]]
        slopes = [0.0] * len(self.moments.mean)
        for column, slope in zip(columns, chosen.tolist(), strict=True):
            slopes[column] = slope
        intercept = float(found.point[-1] - part.mean.dot(chosen)) if self.intercept else 0.0
        return _Fitted(slopes, intercept, found)

    def _read(self, columns: tuple[int, ...], mean: Tensor, directions: Tensor, theta: Tensor) -> PointDerivatives:
        """The mean cross-entropy and its derivatives, in one pass."""
        features, intercept, targets, size = self.features, self.intercept, self.targets, len(theta)

        def sums(block: LabelledLogits) -> Tensor:
            weight = _weights(block)
            x = features(_log_odds(block.logits))[:, list(columns)]
            z = (x - mean.to(x)) @ directions.to(x)
            z = torch.cat([z, z.new_ones(len(z), 1)], 1) if intercept else z
            log_odds = z @ theta.to(z)
            target = torch.tensor(targets, dtype=z.dtype, device=z.device)[block.labels]
            # Both logarithms, because log(1 + e^t) - target t would cancel.
            entropy = target * F.logsigmoid(log_odds) + (1 - target) * F.logsigmoid(-log_odds)
            p, not_p = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
            gradient = z.T @ (weight * ((1 - target) * p - target * not_p))
            hessian = z.T @ (z * (weight * p * not_p).unsqueeze(1))
            return torch.cat([-weight.dot(entropy).view(1), gradient, hessian.flatten()]).to(theta)

        value, gradient, hessian = self.data.mean(sums).split([1, size, size * size])
        return PointDerivatives(float(value), gradient, hessian.view(size, size))


def _moments(features: Callable[[Tensor], Tensor], blocks: Iterator[LabelledLogits]) -> tuple[Moments, float]:
    """Means and covariances of the features, and the weight of positive rows."""
    moments, positive = Moments(), 0.0
    for block in blocks:
        fix = "For more classes take VectorScaling, MatrixScaling or DirichletCalibration."
        require(block.logits.shape[1] == 2, "logits", "this calibrator takes 2 classes", block.logits.shape[1], fix)
        weight = _weights(block)
        moments.add(features(_log_odds(block.logits)), weight, torch.finfo(block.logits.dtype).eps)
        positive += float(weight[block.labels == 1].sum())
    return moments, positive
