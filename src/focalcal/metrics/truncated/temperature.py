"""Temperature scaling of lists: the best temperatures, over everything that the lists leave open."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import Array, require
from focalcal.core.root_finding import solve_increasing
from focalcal.core.temperature import TEMPERATURE_BOUNDS
from focalcal.metrics.truncated.extreme_completions import (
    Completion,
    Known,
    LogTail,
    even_shares,
    greedy_fill,
    largest_mean,
    smallest_mean,
)
from focalcal.metrics.truncated.listed_rows import ListedRows
from focalcal.metrics.truncated.top_k import TopK
from focalcal.metrics.truncated.unlisted_classes import TINY

Batches: TypeAlias = "TopK | Sequence[TopK] | Callable[[], Iterable[TopK]]"

# In place of minus infinity: no share is left of it at any temperature, and 0 times it is 0.
_NOWHERE = -1e9
# Newton's first step in log(1/T): so short that the start is the answer, or so long that there may be none.
_THERE, _FAR = 1e-10, 0.1
# What is added up over rows.
_MASS, _NLL, _SLOPE, _BEND = range(4)


@dataclass(frozen=True)
class TemperatureInterval:
    """The best temperatures of lists; see `temperature_interval`.

    `greedy` and `spread` are those of two completions, `low` and `high` enclose those of all. `num_rows` rows took
    part, and `num_unknown` did not, because nothing is known of their labels' probabilities; with them the best
    temperature is at least `low_with_unknown`, and may be any larger one. `at_boundary` says that some of these is at
    the end of the search, not at a minimum.

    >>> from focalcal.metrics.truncated import TopK
    >>> log_probs = torch.tensor([[0.7, 0.2], [0.8, 0.1]]).log()
    >>> lists = TopK(torch.tensor([[0, 1], [1, 0]]), log_probs, torch.tensor([0, 0]), num_classes=3)
    >>> found = temperature_interval(lists)
    >>> found.low <= found.greedy <= found.high, found.num_rows
    (True, 2)
    """

    low: float
    high: float
    greedy: float
    spread: float
    num_rows: int
    num_unknown: int
    low_with_unknown: float
    at_boundary: bool


def temperature_interval(batches: Batches, *, bounds: tuple[float, float] = TEMPERATURE_BOUNDS) -> TemperatureInterval:
    r"""The range of the NLL-optimal temperatures over all distributions that have these lists.

    $$ T^* = \arg\min_T -\sum_n \log \mathrm{softmax}(\log p_n / T)_{y_n} $$

    where `batches` is a `TopK`, a sequence of them, or a function that opens an iterable of them anew. The optimum is
    `greedy` where in every row the classes beyond the list are filled up to the smallest listed probability one by one,
    and `spread` where they are all equal. The optimum of another completion need not lie between these two, but lies in
    `low`..`high`: `focalcal.metrics.truncated.extreme_completions` says why. These ends are attained up to what one
    class in each row can do.

    Labels of which nothing is known have no NLL, and their rows are left out. That favours low temperatures, as the
    model was wrong there: with such rows in, the optimum is at least `low_with_unknown`, and nothing bounds it from
    above. What is left of a row is taken as its list says. Where rounding has taken it (float32 keeps nothing below
    1e-7), temperatures far above 1 would have brought it back.

    >>> lists = TopK([[0, 1], [0, 1], [0, 2]], np.log([[0.7, 0.2], [0.6, 0.2], [0.8, 0.1]]), [0, 1, 0], num_classes=9)
    >>> interval = temperature_interval(lists)
    >>> [round(value, 3) for value in (interval.low, interval.spread, interval.greedy, interval.high)]
    [0.772, 0.772, 0.872, 0.872]
    """
    fine = 0 < bounds[0] < bounds[1] < math.inf
    require(fine, "bounds", "must be two positive temperatures, the lower one first", bounds)
    num_rows, num_unknown, tailed = _count(batches)
    fix = "Give label_log_probs, or longer lists."
    require(num_rows > 0, "batches", "must have a row whose label's probability is known", f"{num_unknown} others", fix)

    def best(completion: Completion, start: float, *, unknown: bool = False) -> float:
        return _crossing(lambda inverse: _added(batches, inverse, completion, unknown), start, bounds)

    greedy = best(greedy_fill, 1.0)
    spread = best(even_shares, greedy) if tailed else greedy
    ends = [best(smallest_mean, spread), best(largest_mean, greedy)] if tailed else []
    low, high = min(greedy, spread, *ends), max(greedy, spread, *ends)  # in order, but for rounding
    return TemperatureInterval(
        low=low,
        high=high,
        greedy=greedy,
        spread=spread,
        num_rows=num_rows,
        num_unknown=num_unknown,
        low_with_unknown=best(smallest_mean, low, unknown=True) if num_unknown else low,
        at_boundary=low <= bounds[0] * (1 + 1e-9) or high >= bounds[1] * (1 - 1e-9),
    )


def tempered_nll(batches: Batches, temperature: float) -> tuple[float, float]:
    r"""Bounds of the mean NLL of $\mathrm{softmax}(\log p / T)$ over the rows whose label's probability is known.

    where `batches` is as for `temperature_interval` and `temperature` is T. Attained by the greedy fill and by even
    shares, the latter being the upper end for T > 1.

    >>> lists = TopK([[0, 1]], np.log([[0.7, 0.2]]), [0], num_classes=9)
    >>> [round(bound, 4) for bound in tempered_nll(lists, 1.0)], [round(bound, 4) for bound in tempered_nll(lists, 2.0)]
    ([0.3567, 0.3567], [0.6484, 0.93])
    """
    require(temperature > 0, "temperature", "must be positive", temperature)
    sums = [_added(batches, 1 / temperature, completion, unknown=False) for completion in (greedy_fill, even_shares)]
    require(sums[0][_MASS] > 0, "batches", "must have a row whose label's probability is known", "none")
    ends = [float(one[_NLL] / one[_MASS]) for one in sums]
    return min(ends), max(ends)


def _crossing(read: Callable[[float], Array], start: float, bounds: tuple[float, float]) -> float:
    """The temperature at which the slope that `read` gives crosses 0, or the bound that it would cross beyond.

    By Newton's method in log(1/T). The extreme completions change along the way, but by how much does not matter to the
    bend: at an extreme, what a small change of the completion does to the slope is smaller still.
    """
    read = functools.cache(read)
    lower, upper = -math.log(bounds[1]), -math.log(bounds[0])
    first = min(max(-math.log(start), lower), upper)

    def rising(u: Tensor) -> tuple[Tensor, Tensor]:
        inverse = math.exp(float(u))
        _, _, slope, bend = read(inverse)
        return torch.full_like(u, slope), torch.full_like(u, max(inverse * bend, TINY))

    points = [torch.tensor([u], dtype=torch.float64) for u in (lower, upper, first)]
    slope, bend = (float(value) for value in rising(points[2]))
    if abs(slope) <= _THERE * bend:
        return math.exp(-first)
    if abs(slope) > _FAR * bend:  # then it is worth a look whether there is a crossing at all
        at_end = read(math.exp(upper if slope < 0 else lower))[_SLOPE]
        if at_end < 0 if slope < 0 else at_end > 0:
            return bounds[0] if slope < 0 else bounds[1]
    return math.exp(-float(solve_increasing(rising, *points)))


# ---------------------------------------------------------------------------------------------------------------- rows


class _TemperedRows:
    """Rows as logits, taken from the likeliest class: those known (n, m), the label's (n,), and the tail."""

    def __init__(self, rows: ListedRows, weight: Tensor | None, unknown: bool) -> None:
        # Most often all rows take part, and none has to be copied.
        keep = slice(None) if unknown or bool(rows.known.all()) else rows.known
        top = rows.raw_top[keep]
        behind = [(rows.raw[keep] - top.unsqueeze(1)).clamp_min_(_NOWHERE)]
        if rows.given is not None:
            beyond = torch.where(rows.is_given, rows.raw_label, -torch.inf)[keep] - top
            behind.append(beyond.clamp_min(_NOWHERE).unsqueeze(1))
        self.behind = behind[0] if len(behind) == 1 else torch.cat(behind, 1)
        likeliest = torch.log(rows.whole) - rows.nll[0]  # of a label of which nothing is known
        self.label = torch.where(rows.known, rows.raw_label, likeliest)[keep] - top
        self.tail = LogTail.of(rows.raw_mass[keep] * torch.exp(-top), rows.raw_cap[keep] - top, rows.free[keep])
        self.weight = None if weight is None else weight[keep]
        rule, fix = "a label of probability 0 has no finite NLL at any temperature", "Leave its row out."
        require(bool((self.label > -torch.inf).all()), "label_log_probs", rule, "-inf", fix)

    def sums(self, inverse_temperature: float, completion: Completion) -> Array:
        """Mass, NLL, and its slope and bend in the inverse temperature, summed over the completed rows."""
        shares = (self.behind * inverse_temperature).exp_()
        total = shares.sum(1)
        first = shares.mul_(self.behind).sum(1)
        second = shares.mul_(self.behind).sum(1)
        levels, counts = completion(self.tail, Known(total, first, inverse_temperature))
        shares = counts * torch.exp(levels * inverse_temperature)
        total = total + shares.sum(0)
        mean = (first + (shares * levels).sum(0)) / total
        square = (second + (shares * levels.square()).sum(0)) / total
        nll = torch.log(total) - inverse_temperature * self.label
        columns = torch.stack([torch.ones_like(total), nll, mean - self.label, square - mean.square()])
        summed: Array = (columns.sum(1) if self.weight is None else columns @ self.weight).numpy()
        return summed


def _opened(batches: Batches) -> Iterator[TopK]:
    if isinstance(batches, TopK):
        return iter([batches])
    fix = "Pass a list, or a function that opens the data anew: it is read several times."
    again = callable(batches) or isinstance(batches, Sequence)
    require(again, "batches", "must be a TopK, a sequence of them or a function", type(batches).__name__, fix)
    return iter(batches() if callable(batches) else batches)


def _chunks(batches: Batches) -> Iterator[tuple[ListedRows, Tensor | None]]:
    for batch in _opened(batches):
        require(isinstance(batch, TopK), "batches", "must hold TopK", type(batch).__name__)
        for rows, weight in batch.chunks():
            yield rows, None if weight is None else torch.from_numpy(weight)


def _added(batches: Batches, inverse_temperature: float, completion: Completion, unknown: bool) -> Array:
    """The sums over all rows."""
    total = np.zeros(4)
    for rows, weight in _chunks(batches):
        if unknown or bool(rows.known.any()):
            total += _TemperedRows(rows, weight, unknown).sums(inverse_temperature, completion)
    return total


def _count(batches: Batches) -> tuple[int, int, bool]:
    """How many rows have a known label, how many do not, and whether anything is left beyond the lists."""
    known, unknown, tailed = 0, 0, False
    for rows, _ in _chunks(batches):
        found = int(rows.known.sum())
        known, unknown = known + found, unknown + len(rows.known) - found
        tailed = tailed or bool((rows.raw_mass > 0).any())
    return known, unknown, tailed
