"""Spline calibration: the confidence corrected by the slope of a smooth cumulative error."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData, LabelledLogits, row_weights
from focalcal.calibrators.fitted_values import FittedValue
from focalcal.calibrators.piecewise import ScoreGroups, by_rows, linear_lookup
from focalcal.calibrators.search.criteria import Criterion
from focalcal.core.checks import Array, require
from focalcal.core.focal import wide_dtype
from focalcal.core.masking import is_masked, without_masks
from focalcal.core.ranking import Ranking

# Tables up to this length are kept as they are. A longer one is thinned until no fit score is further away than the
# tolerance, which is ten times less than what sampling leaves unknown of a confidence with a million rows.
_LONGEST_TABLE = 1 << 14
_FIRST_POINTS = 1 << 9
_TOLERANCE = 1e-4


class SplineCalibration(Calibrator):
    r"""Spline calibration of the confidence: a correction without bins.

    $$ h(t_i) = \frac1N \sum_{j \le i} (a_j - s_j), \qquad t_i = \frac{i}{N - 1}, \qquad
       c'(s_i) = s_i + S'(t_i) $$

    where $s_0 \le s_1 \le \dots$ are the confidences of the fit rows in order, $a$ is their correctness and $S$ is the
    natural cubic spline with `num_knots` equally spaced knots in [0, 1] that is nearest to $h$ in least squares. Other
    confidences are interpolated linearly between those of the fit, the outer ones being kept beyond them, and the
    result is cut to [0, 1]. The classes that were not predicted keep their proportions and share what is left:

    $$ p'_j = p_j \, \frac{1 - c'}{1 - c} \qquad (j \text{ not predicted}). $$

    So the predicted class changes where $c'$ falls below the share of the second one. Rows of equal confidence, also
    those that only rounding keeps apart, are taken in random order, on average, and have the mean of their $c'$.
    Whole-number weights mean repeated rows; other weights are steps of unequal length on the axis of $t$. With fewer
    rows than knots there are as many knots as rows.

    `scores_` (M,) and `calibrated_` (M,) are the distinct $s$ and their $c'$ before the cut; beyond 16,384 of them, as
    many as keep every $c'$ within 1e-4.

    Source: [gupta2021]. Differs: the released code exchanges the two weights of the interpolation, and leaves the
    other classes alone.

    >>> logits = [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    >>> calibrator = SplineCalibration(num_knots=3).fit(logits, [0, 0, 1, 1, 0])
    >>> [round(p, 3) for p in calibrator.predict_probs(logits)[0].tolist()]
    [0.689, 0.311]
    """

    FITTED: ClassVar = {
        "scores_": FittedValue(("points",), least=0, most=1, increasing=True),
        "calibrated_": FittedValue(("points",)),
    }
    scores_: Tensor
    calibrated_: Tensor

    def __init__(self, num_knots: int = 6) -> None:
        super().__init__()
        require(num_knots >= 2, "num_knots", "must be at least 2", num_knots, "The paper uses 6.")
        self.num_knots, self.criterion = num_knots, Criterion("ks")

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {"num_knots": self.num_knots}

    def _fit(self, data: FitData) -> None:
        confidence, correct, weight = data.columns(_row_columns)
        groups = ScoreGroups.of_scores(confidence, correct, None if (weight == 1).all() else weight)
        scores, calibrated = _thinned(*groups.points(_recalibrated(groups, self.num_knots)))
        self._set(scores_=torch.from_numpy(scores), calibrated_=torch.from_numpy(calibrated))

    def _log_probs(self, logits: Tensor) -> Tensor:
        return by_rows(self._calibrated_rows, logits)

    def _calibrated_rows(self, logits: Tensor) -> Tensor:
        top, confidence = _top(logits)
        table = (self._value(name).unsqueeze(0) for name in self.FITTED)
        calibrated = linear_lookup(confidence, *table).clamp(0, 1)
        limits = torch.finfo(logits.dtype)
        log_top, log_rest = (torch.log(share.clamp(min=limits.tiny)) for share in (calibrated, 1 - calibrated))
        is_top, masked = torch.arange(logits.shape[1], device=logits.device) == top, is_masked(logits)
        alone = (is_top | masked).all(1, keepdim=True)  # then the top has all, whatever its confidence
        # The proportions of the others from the others alone: 1 - c may be 0.
        left_out = (is_top | masked) & ~alone
        others = torch.log_softmax(
            torch.where(left_out, float("-inf"), without_masks(logits, masked)).to(confidence.dtype), 1
        )
        log_probs = torch.where(is_top, torch.where(alone, 0.0, log_top), log_rest + others).clamp(min=limits.min)
        return torch.where(masked, float("-inf"), log_probs)


def _row_columns(block: LabelledLogits) -> tuple[Array, ...]:
    """Confidence, correctness and weight of the rows of a block."""
    top, score = _top(block.logits)
    rows = (score.squeeze(1), top.squeeze(1) == block.labels, row_weights(block))
    return tuple(column.cpu().numpy() for column in rows)


def _top(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The predicted class of each row (n, 1), the first of equal ones, and its probability in float64."""
    top = logits.argmax(1, keepdim=True)
    return top, torch.softmax(logits.to(wide_dtype(logits.device)), 1).gather(1, top)


def _recalibrated(ranked: Ranking, num_knots: int) -> Array:
    """The corrected confidence of each group of equal ones."""
    from scipy.interpolate import CubicSpline

    count, mass = (column.astype(np.float64) for column in (ranked.count, ranked.mass))
    excess = (ranked.right - ranked.value * mass) / ranked.total
    start, reached = (np.cumsum(column) - column for column in (mass, excess))
    step = mass / count  # each group is `count` points that share its mass evenly
    length = ranked.total - step[-1]
    knots = np.linspace(0, 1, min(num_knots, int(count.sum())))
    group, place, weight = _points(count, start, step, length * knots[1:-1])
    t = (start[group] + place * step[group]) / length
    curve = reached[group] + (place + 1) * (excess / count)[group]
    root = np.sqrt(weight * step[group])
    basis = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")(t)  # a spline is its heights at the knots
    heights = np.linalg.lstsq(root[:, None] * basis, root * curve, rcond=None)[0]
    slope = CubicSpline(knots, heights, bc_type="natural")(t, 1)
    return np.asarray(ranked.value + np.bincount(group, weight * slope) / count)


def _points(count: Array, start: Array, step: Array, knots: Array) -> tuple[Array, Array, Array]:
    """Points and weights that stand for all points of all groups: the group, the place in it, and the weight of each.

    Group g has `count` points at start + step * place for places 0, 1, ...; between `knots` everything that is summed
    is a polynomial of degree 6 in the place, so four points do for a million.
    """
    inner = np.searchsorted(start, knots, side="right") - 1
    cut = np.clip(np.ceil((knots - start[inner]) / step[inner]), 0, count[inner])
    group = np.concatenate([np.arange(len(count)), inner])
    first = np.concatenate([np.zeros(len(count)), cut])
    order = np.lexsort((first, group))
    group, first = group[order], first[order]
    same = np.append(group[1:] == group[:-1], False)
    size = np.where(same, np.append(first[1:], 0), count[group]) - first
    offset, weight = _sum_rule(size)
    used = weight > 0
    return np.repeat(group, used.sum(1)), (first[:, None] + offset)[used], weight[used]


def _sum_rule(size: Array) -> tuple[Array, Array]:
    r"""Places and weights (n, 4) with $\sum_{j=0}^{m-1} f(j) = \sum_i w_i f(x_i)$ for polynomials of degree up to 7.

    The Gauss rule of m equally spaced points: the places are the zeros of their orthogonal polynomial of degree 4,
    which about the middle is $z^2 - \frac{3m^2 - 13}{14} z + \frac{3 (m^2 - 1)(m^2 - 9)}{560}$ in $z = x^2$. Up to four
    points stand for themselves, with weight 0 for those that are not there.

    >>> place, weight = _sum_rule(np.array([10.0]))
    >>> round(float((weight * place**7).sum()), 6), sum(j**7 for j in range(10))
    (8080425.0, 8080425)
    """
    size = size[:, None]
    many, square = np.maximum(size, 4), np.maximum(size, 4) ** 2
    half = (3 * square - 13) / 28
    root = np.sqrt(half**2 - 3 * (square - 1) * (square - 9) / 560)
    outer, inner = half + root, half - root
    outer_weight = many * ((square - 1) / 24 - inner / 2) / (outer - inner)
    offset = np.sqrt(np.hstack([outer, inner, inner, outer])) * [-1, -1, 1, 1] + (many - 1) / 2
    weight = np.hstack([outer_weight, many / 2 - outer_weight, many / 2 - outer_weight, outer_weight])
    own = np.broadcast_to(np.arange(4.0), offset.shape)
    return np.where(size <= 4, own, offset), np.where(size <= 4, own < size, weight)


def _thinned(points: Array, values: Array) -> tuple[Array, Array]:
    """Some of the points, such that lines between them pass by all others within the tolerance."""
    if len(points) <= _LONGEST_TABLE:
        return points, values
    kept = np.linspace(0, len(points) - 1, _FIRST_POINTS).astype(np.int64)
    while True:
        error = np.abs(np.interp(points, points[kept], values[kept]) - values)
        far = np.maximum.reduceat(error, kept)[:-1] > _TOLERANCE
        if not far.any():
            return points[kept], values[kept]
        kept = np.union1d(kept, (kept[:-1][far] + kept[1:][far]) // 2)
