r"""Scans of the focal temperature family: a criterion at every point (gamma, T) of a grid.

$$ p = \Psi^\gamma(\mathrm{softmax}(x / T)), \qquad p_j = h(q_j) / \sum_l h(q_l) $$

Temperature scaling is the column gamma = 0, focal calibration the row T = 1. A point costs little, because

- of a row only the distances to its largest logit matter, and their order does not depend on T: the few largest classes
  are found once;
- $h(q)/q$ is a smooth function of $q$ and $q \log q$. With the m largest classes aside, the others have q at most
  1 / (m + 1), where a polynomial with ten terms is right to 1e-6. Its ten sums over the classes serve all gammas of one
  T, and an error that is too large for a gamma is noticed when the polynomial is fitted: that gamma is computed class
  by class;
- an ECE, of whatever kind, is at least the distance of mean confidence and accuracy. Where that alone exceeds the best
  value so far, nothing needs to be sorted. For gamma = 0 the mean confidence falls with T, so that whole stretches
  of temperatures are left out.

The scan runs in float32, right to 3e-6; whatever comes that close to the best is computed again in float64.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.calibrators.criteria import Criterion
from focalcal.calibrators.data import Block, FitData, Sample
from focalcal.core.checks import Array
from focalcal.core.confidence_summary import ConfidenceSummary
from focalcal.core.focal import wide_dtype
from focalcal.core.focal_map import focal_log_probs

# Classes of a row that are computed one by one, if it has more than twice as many.
_TOP = 8
# What the scan may be off by: the polynomial's error and float32.
_SURE = 3e-6
_POLYNOMIAL = 1e-6
# The degree of the polynomial in q and q log q.
_DEGREE = 3
# Values of the logits up to which prepared rows are kept; beyond, they are prepared anew for each temperature.
_KEPT = 1 << 24
# What the histogram of a point's confidences takes of a stream's memory.
_BYTES_HISTOGRAM = 3 << 19
# How far the criterion of a sample may be from that of all rows, in 1 / sqrt(rows): twice what a worst case has.
_STANDARD_ERRORS = 2.0
# Every so-many-th temperature is looked at first, for a value to beat.
_STRIDE = 16
# Of points that cannot be told apart from the best, so many are computed exactly, those nearest to T = 1 first.
_EXACT = 48
_EXACT_STREAMED = 2  # each costs a pass
_NO_CLASS = -1e30
# exp is several times slower where it underflows; what is smaller than this counts as 0.
_LOG_TINY, _TINY = -86.0, 1e-37
# Gammas that are worked on together.
_TOGETHER = 16

Point: TypeAlias = tuple[float, float]  # (gamma, T)
Lines: TypeAlias = Sequence[tuple[float, tuple[float, ...]]]  # temperatures with some gammas each


@dataclass(frozen=True)
class Found:
    """The best point of a scan, its criterion (exact), and whether it lies at an end of the temperatures or gammas."""

    gamma: float
    temperature: float
    value: float
    points: int
    at_boundary: bool


def scan_grid(data: FitData, criterion: Criterion, gammas: Sequence[float], temperatures: Sequence[float]) -> Found:
    """The best point of a full grid; ties go to the point nearest to T = 1."""
    ordered, some = sorted(set(gammas)), range(0, len(set(gammas)), _TOGETHER)
    lines = [(t, tuple(ordered[first : first + _TOGETHER])) for t in sorted(set(temperatures)) for first in some]
    found = scan_lines(data, criterion, lines)
    at_end = _at_end(found.temperature, temperatures) or _at_end(found.gamma, gammas)
    return replace(found, at_boundary=at_end)


def _at_end(value: float, values: Sequence[float]) -> bool:
    return min(values) < max(values) and value in (min(values), max(values))


def scan_lines(data: FitData, criterion: Criterion, lines: Lines) -> Found:
    """The best of points given as temperatures with some gammas each."""
    values = _smooth_values(data, criterion, lines) if criterion.smooth else _gap_values(data, criterion, lines)
    points = [(gamma, temperature) for temperature, gammas in lines for gamma in gammas]
    flat = np.concatenate(values)
    limit = flat.min() + 2 * _SURE * max(1.0, abs(float(flat.min())))
    close = sorted((_distance(point), point) for point, value in zip(points, flat, strict=True) if value <= limit)
    if len(close) > _EXACT:  # a plateau, or a crowd: the best of the approximate values are still among them
        best = np.argsort(flat, kind="stable")[: _EXACT // 2]
        close = sorted({*close[: _EXACT // 2], *((_distance(points[i]), points[i]) for i in best)})
    close = close if data.in_memory else close[:_EXACT_STREAMED]
    exact = [(criterion.of(data, focal_temperature_map(*point)), distance, point) for distance, point in close]
    least = min(value for value, _, _ in exact)
    # Equal up to the rounding of sums in another order.
    value, _, (gamma, temperature) = min(
        (entry for entry in exact if entry[0] <= least + 1e-12 * max(1.0, abs(least))), key=lambda entry: entry[1]
    )
    return Found(gamma, temperature, value, len(points), False)


def _distance(point: Point) -> tuple[float, float]:
    """How far a point is from the identity: in log T first, then in gamma."""
    gamma, temperature = point
    return round(abs(math.log(temperature)), 12), abs(gamma)


def focal_temperature_map(gamma: float, temperature: float) -> Any:
    """The map of logits (n, K) to log-probabilities, in float64 unless gamma is 0 and the logits are in float32."""

    def apply(logits: Tensor) -> Tensor:
        if gamma == 0:
            return logits / temperature
        wide = logits.to(wide_dtype(logits.device))
        return focal_log_probs(wide / temperature, torch.tensor(gamma, dtype=wide.dtype, device=wide.device))

    return apply


# ---------------------------------------------------------------------- rows, prepared


@dataclass(frozen=True)
class _Prepared:
    """Rows as distances to their largest logit, float32: (m, n) of the largest classes, (n, C) of the others.

    Others may hold places of classes that are among the largest: their distance is `_NO_CLASS`.
    """

    top: Tensor
    others: Tensor
    label: Tensor
    correct: Tensor
    weight: Tensor | None


def _prepare(block: Block) -> _Prepared:
    ordered, place = block.logits.topk(_count_top(block.logits.shape[1]), dim=1)
    first = ordered[:, :1]
    others = (block.logits - first).float()
    others = others.scatter_(1, place, _NO_CLASS) if others.shape[1] > place.shape[1] else others[:, :0]
    label = block.logits.gather(1, block.labels.unsqueeze(1)) - first
    correct = place[:, 0] == block.labels
    return _Prepared(
        (ordered - first).t().float().contiguous(), others, label.squeeze(1).float(), correct, block.weight
    )


def _count_top(num_classes: int) -> int:
    return _TOP if num_classes > 2 * _TOP else num_classes


class _Rows:
    """Rows in memory, prepared: once if they are few, else for each temperature anew."""

    def __init__(self, data: FitData) -> None:
        self._data, self._scratch = data, _Scratch()
        few = data.count() * data.num_classes <= _KEPT
        self._kept = data.reduce(lambda blocks: list(map(_prepare, blocks)), operator.add) if few else []

    def _columns(self, of_rows: Callable[[_Prepared], tuple[Array, ...]]) -> tuple[Array, ...]:
        if not self._kept:
            return self._data.columns(lambda block: of_rows(_prepare(block)))
        return tuple(np.concatenate(column, axis=-1) for column in zip(*map(of_rows, self._kept), strict=True))

    def correct_and_weight(self) -> tuple[Array, Array | None]:
        """Whether each row's largest class is its label, and the weights, if there are any."""
        correct, weight = self._columns(_correct_and_weight)
        return correct, None if (weight == 1).all() else weight

    def confidences(self, temperature: float, gammas: tuple[float, ...]) -> Array:
        """The confidence of each row (G, N)."""
        return self._columns(lambda rows: (_block_confidences(temperature, gammas, rows, self._scratch),))[0]


def _correct_and_weight(rows: _Prepared) -> tuple[Array, Array]:
    weight = torch.ones_like(rows.label, dtype=torch.float64) if rows.weight is None else rows.weight
    return rows.correct.cpu().numpy(), weight.cpu().numpy()


# ---------------------------------------------------------------------- the family at one temperature


@dataclass(frozen=True)
class _Family:
    """What criteria need of rows at one T, for G gammas: (G, n) each.

    All of h is relative to (1 - q)^-gamma of the largest class, which overflows where that class is all but sure.
    """

    top: Tensor  # h of the largest class
    total: Tensor  # sum of h
    squares: Tensor | None  # sum of h squared, if asked for; in float64, for the range
    log_label: Tensor | None  # log h of the label, if asked for


class _Scratch:
    """Memory that is used again and again: fresh pages cost more than the arithmetic that fills them."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], device: torch.device) -> Tensor:
        """A float32 tensor with any values, which is nobody's until its name is taken again."""
        size = math.prod(shape)
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = torch.empty(size, device=device)
        return self._held[name][:size].view(*shape)


def _family(
    rows: _Prepared,
    temperature: float,
    gammas: tuple[float, ...],
    scratch: _Scratch,
    *,
    label: bool = False,
    squared: bool = False,
) -> _Family:
    inverse, device = 1 / temperature, rows.top.device
    log_q, q = (scratch.take(name, rows.others.shape, device) for name in ("log q", "q"))
    torch.mul(rows.others, inverse, out=log_q).clamp_(min=_LOG_TINY)
    torch.threshold_(torch.exp(log_q, out=q), _TINY, 0.0)
    exp_top = torch.exp((rows.top * inverse).clamp_(min=_LOG_TINY))
    rest = exp_top[1:].sum(0) + q.sum(1)
    whole, log_whole = 1 + rest, torch.log1p(rest)
    not_first = rest / whole
    log_not_first = _log_rest(rest, rows.top, inverse) - log_whole
    gamma = torch.tensor(gammas, device=device).view(-1, 1, 1)

    q_top = exp_top.div_(whole)
    not_top = 1 - q_top
    not_top[0] = not_first  # 1 - q would cancel
    ahead = torch.log(not_top) - log_not_first
    ahead[0] = 0
    h_top = _h(q_top, rows.top * inverse - log_whole, not_top, ahead, gamma, scratch)  # (G, m, n)
    squares = h_top.to(wide_dtype(device)).square().sum(1) if squared else None
    total = h_top.sum(1)
    first = h_top[:, 0].clone()
    if rows.others.shape[1]:
        q.div_(whole.unsqueeze(1))
        log_q.sub_(log_whole.unsqueeze(1))
        _add_others(q, log_q, log_not_first, gammas, total, squares, scratch)
    log_label = _log_h_label(rows, inverse, log_whole, not_first, log_not_first, gamma[:, 0]) if label else None
    return _Family(first, total, squares, log_label)


def _add_others(
    q: Tensor,
    log_q: Tensor,
    log_not_first: Tensor,
    gammas: tuple[float, ...],
    total: Tensor,
    squares: Tensor | None,
    scratch: _Scratch,
) -> None:
    """Add what the classes that are not among the largest have to the sums (G, n) of h and of its square."""
    linear, square, exact = _polynomials(gammas)
    gamma = torch.tensor(gammas, device=q.device).view(-1, 1)
    for g in exact:  # class by class, where the polynomial would not be right
        not_q = 1 - q
        h = _h(q, log_q, not_q, torch.log(not_q) - log_not_first.unsqueeze(1), gamma[g], scratch)
        total[g] += h.sum(1)
        if squares is not None:
            squares[g] += h.to(squares.dtype).square().sum(1)
    degree = _DEGREE if len(exact) < np.count_nonzero(gammas) else 1  # without gamma h is q, and h^2 is q^2
    sums = _monomial_sums(q, log_q, degree, scratch)
    scale = torch.exp((gamma * log_not_first).clamp_(max=80.0))  # the sums are 0 where it would overflow
    total.addcmul_(linear[:, : len(sums)].to(sums) @ sums, scale)
    if squares is not None:
        squares += (square[:, : len(sums)].to(sums) @ sums) * scale.to(squares.dtype).square()


def _log_rest(rest: Tensor, top: Tensor, inverse: float) -> Tensor:
    """log of the sum of all shares but the first, also where they underflow: then the largest ones decide."""
    behind = torch.exp((top[1:] - top[1]) * inverse).sum(0)
    return torch.where(rest > 1e-30, torch.log(rest), top[1] * inverse + torch.log(behind))


def _log_h_label(
    rows: _Prepared, inverse: float, log_whole: Tensor, not_first: Tensor, log_not_first: Tensor, gamma: Tensor
) -> Tensor:
    log_q = rows.label * inverse - log_whole
    q = torch.exp(log_q)
    not_q = torch.where(rows.correct, not_first, 1 - q)
    ahead = torch.where(rows.correct, 0.0, torch.log(not_q) - log_not_first)
    return log_q - gamma * ahead - torch.log1p(gamma * _r(q, log_q, not_q))


def _h(q: Tensor, log_q: Tensor, not_q: Tensor, ahead: Tensor, gamma: Tensor, scratch: _Scratch) -> Tensor:
    """h = q (1 - q)^-gamma / (1 + gamma r); log(1 - q) is given as how far it is ahead of that of the largest class.

    In memory of the scratch.
    """
    shape = torch.broadcast_shapes(q.shape, gamma.shape)
    h, divisor = (scratch.take(name, shape, q.device) for name in ("h", "divisor"))
    torch.sub(log_q, torch.mul(ahead, gamma, out=h), out=h).exp_()
    return h.div_(torch.mul(_r(q, log_q, not_q), gamma, out=divisor).add_(1))


def _r(q: Tensor, log_q: Tensor, not_q: Tensor) -> Tensor:
    """-q log q / (1 - q), which tends to 1 where 1 - q vanishes."""
    return torch.where(not_q > 1e-30, -q * log_q / not_q, 1.0)


def _monomial_sums(q: Tensor, log_q: Tensor, degree: int, scratch: _Scratch) -> Tensor:
    """Sums over classes of q times each monomial q^a (q log q)^b up to the degree, in the order of `_monomials`.

    Uses up `log_q`.
    """
    tilted = log_q.mul_(q)  # q log q
    column, product = (scratch.take(name, q.shape, q.device) for name in ("column", "product"))
    sums: list[list[Tensor]] = []
    for power in range(degree + 1):  # column is q (q log q)^power
        if power:
            torch.mul(column if power > 1 else q, tilted, out=column)
        now = column if power else q
        sums.append([now.sum(1)])
        for _ in range(degree - power):
            now = torch.mul(now, q, out=product)
            sums[-1].append(now.sum(1))
    return torch.stack([sums[b][total - b] for total in range(degree + 1) for b in range(total + 1)])


def _monomials(q: Array) -> Array:
    """The monomials (n, 10) by total degree, so that those of a lower degree come first."""
    tilted = q * np.log(q)
    return np.stack([q ** (total - b) * tilted**b for total in range(_DEGREE + 1) for b in range(total + 1)], 1)


@lru_cache(maxsize=64)
def _polynomials(gammas: tuple[float, ...]) -> tuple[Tensor, Tensor, list[int]]:
    """Coefficients (G, 10) of h/q and of h^2/q in the monomials for q up to 1 / (m + 1); and which gammas need more."""
    q, monomials, solve = _least_squares()
    gamma = np.array(gammas)[:, None]
    ratio = np.exp(-gamma * np.log1p(-q)) / (1 - gamma * q * np.log(q) / (1 - q))
    linear, square = ratio[:, ::2] @ solve, (q * ratio**2)[:, ::2] @ solve
    # On all points, half of which the coefficients have not seen.
    error = np.abs(np.stack([linear @ monomials - ratio, square @ monomials - q * ratio**2])).max((0, 2))
    plain, exact = np.flatnonzero(gamma == 0), np.flatnonzero(error > _POLYNOMIAL)
    linear[plain], square[plain] = np.eye(len(solve.T))[:2]  # exactly 1 and q
    linear[exact] = square[exact] = 0
    return torch.from_numpy(linear), torch.from_numpy(square), exact.tolist()


@lru_cache(maxsize=1)
def _least_squares() -> tuple[Array, Array, Array]:
    """Points q, the monomials (10, n) there, and what gives their coefficients from the values at every other point.

    The points crowd at both ends like the zeros of Chebyshev polynomials, where least squares comes near to the least
    largest error; the third power also crowds them at 0, where q log q is steep.
    """
    angle = np.pi * (np.arange(401) + 0.5) / 401
    q = ((1 - np.cos(angle)) / 2) ** 3 / (_TOP + 1)
    monomials = _monomials(q).T
    size = np.abs(monomials).max(1, keepdims=True)
    return q, monomials, np.linalg.pinv(monomials[:, ::2] / size, rcond=1e-14) / size.T


# ---------------------------------------------------------------------- criteria at all points


def _smooth_values(data: FitData, criterion: Criterion, lines: Lines) -> list[Array]:
    """Means over rows, in one pass: all temperatures go over a block while it is in the cache."""
    sums = data.reduce(functools.partial(_smooth_sums, criterion, lines), _added)
    return [total / data.mass for total in sums]


def _smooth_sums(criterion: Criterion, lines: Lines, blocks: Iterator[Block]) -> list[Array]:
    sums, scratch = [np.zeros(len(gammas)) for _, gammas in lines], _Scratch()
    for block in blocks:
        rows = _prepare(block)
        for place, (temperature, gammas) in enumerate(lines):
            family = _family(rows, temperature, gammas, scratch, label=True, squared=criterion.name == "brier")
            column = _column(family, criterion)
            weighted = column.sum(1, dtype=torch.float64) if rows.weight is None else column.double() @ rows.weight
            sums[place] += weighted.cpu().numpy()
    return sums


def _added(one: list[Array], other: list[Array]) -> list[Array]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _column(family: _Family, criterion: Criterion) -> Tensor:
    assert family.log_label is not None
    if family.squares is not None:
        p = torch.exp(family.log_label) / family.total
        return family.squares / family.total.to(family.squares.dtype).square() - 2 * p + 1
    nll = (torch.log(family.total) - family.log_label).clamp_(min=0.0)
    return nll if criterion.gamma is None else torch.pow(-torch.expm1(-nll), criterion.gamma) * nll


def _gap_values(data: FitData, criterion: Criterion, lines: Lines) -> list[Array]:
    """Values of a criterion of confidence and correctness; infinity where it cannot be the least."""
    if not data.in_memory:
        sample = data.reduce(Sample.of, Sample.merge)  # a stream may turn out to be small
        if not data.in_memory:
            return _streamed_values(data, sample, criterion, lines)
    return _seen(data, criterion, lines)


def _seen(data: FitData, criterion: Criterion, lines: Lines, slack: float = 4 * _SURE) -> list[Array]:
    """The values of all points that are not further than `slack` from the best one by their mean confidence."""
    seen = _Seen(data, criterion, lines, slack)
    by_temperature = all(earlier[0] < later[0] for earlier, later in itertools.pairwise(lines))
    if by_temperature and all(gammas == (0.0,) for _, gammas in lines):
        seen.halve(0, len(lines) - 1)
    else:  # some temperatures first, for a value to beat
        for place in (*range(0, len(lines), _STRIDE), *range(len(lines))):
            seen.visit(place)
    return seen.values


def _streamed_values(data: FitData, sample: Sample, criterion: Criterion, lines: Lines) -> list[Array]:
    """Values for more rows than can be kept: a sample says which points matter, and passes measure those.

    As many points a pass as there is room for, each with its own confidences or their histogram.
    """
    some = sample.data()
    slack = _STANDARD_ERRORS / math.sqrt(some.num_rows)
    values = _seen(some, criterion, lines, slack)
    limit = min(float(each.min()) for each in values) + slack
    wanted = [(place, g) for place, each in enumerate(values) for g in np.flatnonzero(each <= limit).tolist()]
    values = [np.full(len(gammas), math.inf) for _, gammas in lines]
    assert data.most_rows is not None
    together = max(1, data.memory // _BYTES_HISTOGRAM)
    for start in range(0, len(wanted), together):
        points = wanted[start : start + together]
        fold = functools.partial(_point_confidences, lines, points, data.most_rows // len(points))
        found: list[ConfidenceSummary] = data.reduce(fold, _merged_confidences)
        for (place, g), kept in zip(points, found, strict=True):
            values[place][g] = criterion.of_ranking(kept.ranked())
    return values


def _point_confidences(
    lines: Lines, points: Sequence[tuple[int, int]], most_rows: int, blocks: Iterator[Block]
) -> list[ConfidenceSummary]:
    """The confidences of all rows at some points: places of a line, and of its gammas."""
    kept, scratch = [ConfidenceSummary(most_rows) for _ in points], _Scratch()
    by_line = itertools.groupby(range(len(points)), key=lambda i: points[i][0])
    chosen = [(place, list(group)) for place, group in by_line]
    for block in blocks:
        rows = _prepare(block)
        correct, weight = _correct_and_weight(rows)
        for place, some in chosen:
            temperature, gammas = lines[place]
            wanted = tuple(gammas[points[i][1]] for i in some)
            confidence = _block_confidences(temperature, wanted, rows, scratch)
            for i, column in zip(some, confidence, strict=True):
                kept[i].add(np.ascontiguousarray(column), correct, None if rows.weight is None else weight)
    return kept


def _merged_confidences(one: list[ConfidenceSummary], other: list[ConfidenceSummary]) -> list[ConfidenceSummary]:
    return [a.merge(b) for a, b in zip(one, other, strict=True)]


class _Seen:
    """What is known of a criterion along the temperatures."""

    def __init__(self, data: FitData, criterion: Criterion, lines: Lines, slack: float) -> None:
        self._criterion, self._lines, self._rows, self._slack = criterion, lines, _Rows(data), slack
        self._correct, self._weight = self._rows.correct_and_weight()
        self._share = np.full(len(self._correct), 1 / data.mass, dtype=np.float32)
        if self._weight is not None:
            self._share *= self._weight.astype(np.float32)
        self._accuracy = float(self._share @ self._correct)
        self.values = [np.full(len(gammas), math.inf) for _, gammas in lines]
        self._best = math.inf
        self._surplus: dict[int, Array] = {}

    def visit(self, place: int) -> Array:
        """Mean confidence minus accuracy of each gamma at a temperature; the criterion where that is small enough."""
        if place not in self._surplus:
            confidence = self._rows.confidences(*self._lines[place])
            surplus = confidence @ self._share - self._accuracy
            for g in np.argsort(np.abs(surplus)):
                if abs(surplus[g]) > self._best + self._slack:
                    break
                self.values[place][g] = self._criterion.of_confidences(confidence[g], self._correct, self._weight)
                self._best = min(self._best, self.values[place][g])
            self._surplus[place] = surplus
        return self._surplus[place]

    def halve(self, first: int, last: int) -> None:
        """Visit the temperatures between two places that may matter, given that the confidence falls with T."""
        high, low = float(self.visit(first)[0]), float(self.visit(last)[0])
        if last - first < 2 or max(low, -high) > self._best + self._slack:
            return
        # The half in which confidence and accuracy meet comes first: it has the values to beat.
        middle = (first + last) // 2
        halves = [(first, middle), (middle, last)]
        for half in halves if float(self.visit(middle)[0]) < 0 else reversed(halves):
            self.halve(*half)


def _block_confidences(temperature: float, gammas: tuple[float, ...], rows: _Prepared, scratch: _Scratch) -> Array:
    """The confidence of each row (G, n)."""
    family = _family(rows, temperature, gammas, scratch)
    return np.asarray((family.top / family.total).clamp_(max=1.0).cpu().numpy())
