r"""The explorer's sample: some rows, small enough for a web page, from which every point of the family can be measured.

$$ p = \Psi^\gamma(\mathrm{softmax}(x / T)), \qquad p_j = h(q_j) / \sum_l h(q_l) $$

Of a row with few classes all logits are kept. Of one with many the largest ones are kept, and the true class; the
others are gathered in ranges of similar logits. A range is replaced by two logits, each of which counts for several
classes, so that mean and variance of its logits are exact and their skewness nearly so: then $\sum_j e^{x_j / T}$ is
right for every T, and not only for the one at which it was taken. What matters at some T is how wide a range is
beside its distance to the largest logit, so ranges are cut where that is worst.

`measures` computes what the page computes, from what the page has.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import Array, require
from focalcal.core.score_kinds import logits_of
from focalcal.files.prediction_table import PredictionTable
from focalcal.metrics import ada_ece, ece, from_pairs
from focalcal.report.classes import predictions_of
from focalcal.report.contents import Explorer

# Rows of a model in the page at most, and bytes of all models together before base64 makes four of three.
MAX_ROWS = 4000
BUDGET = 420_000
# All logits of a row are kept, if there is room for so many rows: more rows say more than the last digits of each.
FEWEST_FULL_ROWS = 2000
# The reduced form: logits that are kept, and ranges of the others, of two logits each.
WIDTH = 16
RANGES = 8
# A count of classes in the page has two bytes.
MOST_CLASSES = 65_535
# Distances below this are one and the same at every temperature that the sliders reach.
_NEAR = 0.1
# A confidence this close to an edge lies on it: the page's logits are rounded, and 1/3 is an edge.
_ON_EDGE = 1e-6


@dataclass(frozen=True, eq=False)
class ExplorerSample:
    """Rows as `Explorer` describes them: logits (n, width) in float64, the others as (n, groups), and the rest (n,)."""

    num_classes: int
    scores: Tensor
    label: Tensor
    correct: Tensor
    tail_scores: Tensor
    tail_counts: Tensor
    weights: Tensor | None

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.scores)

    def at(self, temperature: float) -> TemperedSample:
        """The family at one temperature."""
        return TemperedSample(self, temperature)


class TemperedSample:
    """What all gammas at one temperature share: log q, log(1 - q) and r = -q log q / (1 - q) of every class and group.

    1 - q of the largest class is the sum of the others, in logarithms, so that it is there however sure the row is.
    """

    def __init__(self, sample: ExplorerSample, temperature: float) -> None:
        require(temperature > 0 and math.isfinite(temperature), "temperature", "must be positive", temperature)
        self.sample = sample
        scores = torch.cat([sample.scores, sample.tail_scores], 1) / temperature
        self._log_counts = torch.cat([torch.zeros_like(sample.scores), torch.log(sample.tail_counts)], 1)
        rest = torch.logsumexp((scores + self._log_counts)[:, 1:], 1, keepdim=True)
        log_whole = torch.nn.functional.softplus(rest, threshold=50.0)  # of all shares; the first one is 1
        self._log_q = scores - log_whole
        q = torch.exp(self._log_q)
        not_q = 1 - q
        self._log_not_q = torch.log(not_q.clamp_min(0.1))  # no class but the first is above 1/2
        self._log_not_q[:, :1] = rest - log_whole
        not_q[:, :1] = torch.exp(rest - log_whole)
        self._r = torch.where(not_q > 1e-300, -q * self._log_q / not_q.clamp_min(1e-300), 1.0)

    def columns(self, gamma: float) -> tuple[Tensor, Tensor]:
        """Confidence, in float32, and -log p of the label, (n,) each.

        Rows of equal scores are tied in the library. Here the true class is kept apart from the others, which changes
        the last digits of a sum; float32 does not show them.
        """
        require(gamma > -1 and math.isfinite(gamma), "gamma", "must be greater than -1", gamma)
        log_h = self._log_q - gamma * self._log_not_q - torch.log1p(gamma * self._r)
        log_sum = torch.logsumexp(log_h + self._log_counts, 1)
        log_label = log_h.gather(1, self.sample.label.unsqueeze(1)).squeeze(1)
        return torch.exp(log_h[:, 0] - log_sum).float(), (log_sum - log_label).clamp_min(0.0)


def measures(explorer: Explorer, gamma: float, temperature: float, *, num_bins: int = 15) -> dict[str, float]:
    """`ece`, `ada_ece` and `nll` of the explorer's sample at a point of the family: what the page must show there.

    Confidences are rounded to float32, so that those which only differ by rounding are tied. One that is less than
    1e-6 / `num_bins` away from an edge of equal-width bins counts as lying on it. There are at most as many bins of
    equal mass as rows.

    >>> table = PredictionTable("t", np.array([[2.0, 0.0], [0.0, 1.0]]), "logits", labels=np.array([0, 0]))
    >>> {name: round(value, 3) for name, value in measures(explorer_of(table), 0.0, 1.0).items()}
    {'ece': 0.425, 'ada_ece': 0.425, 'nll': 0.72}
    """
    sample = decode(explorer)
    confidence, nll = sample.at(temperature).columns(gamma)
    return measures_of(sample, confidence, nll, num_bins)


def measures_of(sample: ExplorerSample, confidence: Tensor, nll: Tensor, num_bins: int) -> dict[str, float]:
    """ECE, AdaECE and mean NLL of the sample's rows with these confidences and losses."""
    weight = None if sample.weights is None else sample.weights.numpy()
    given = confidence.numpy().clip(0.0, 1.0)
    place = given.astype(np.float64) * num_bins
    near = np.round(place)
    on_edge = np.abs(place - near) < _ON_EDGE
    rows = from_pairs(given, sample.correct, sample_weight=weight)
    snapped = from_pairs(np.where(on_edge, near / num_bins, given), sample.correct, sample_weight=weight)
    return {
        "ece": float(ece(snapped, num_bins=num_bins)),
        "ada_ece": float(ada_ece(rows, num_bins=min(num_bins, sample.num_rows))),
        "nll": float(np.average(nll.numpy(), weights=weight)),
    }


# ---------------------------------------------------------------------- from rows to the sample


def explorer_of(
    table: PredictionTable,
    *,
    seed: int = 0,
    budget: int = BUDGET,
    temperature: float = 1.0,
    focal_gamma: float = 0.0,
    focal_temperature: float = 1.0,
) -> Explorer:
    """A sample of a table's rows for the page, in at most about `budget` bytes, and where its sliders start.

    >>> table = PredictionTable("t", np.array([[2.0, 0.0], [0.0, 1.0]]), "logits", labels=np.array([0, 0]))
    >>> explorer_of(table).num_rows
    2
    """
    width, ranges = form_of(table.num_classes, table.num_rows, budget)
    at_most = min(MAX_ROWS, budget // _bytes_of_row(width, ranges))
    sample = sample_of(some_rows(table, at_most, seed), width=width, ranges=ranges)
    return Explorer(
        num_rows=sample.num_rows,
        out_of=table.num_rows,
        seed=seed,
        num_classes=table.num_classes,
        width=width,
        groups=sample.tail_scores.shape[1],
        scores=_packed(sample.scores, "<f4"),
        label=_packed(sample.label, "<u2"),
        correct=_packed(sample.correct, "u1"),
        tail_scores=_packed(sample.tail_scores, "<f4"),
        tail_counts=_packed(sample.tail_counts, "<u2"),
        weights=None if sample.weights is None else _packed(sample.weights, "<f4"),
        temperature=temperature,
        focal_gamma=focal_gamma,
        focal_temperature=focal_temperature,
    )


def form_of(num_classes: int, num_rows: int, budget: int) -> tuple[int, int]:
    """How many logits of a row are kept, and in how many ranges the others go: none, if all are kept.

    >>> form_of(10, 5000, BUDGET), form_of(100, 5000, BUDGET), form_of(100, 500, BUDGET)
    ((10, 0), (16, 8), (100, 0))
    """
    room = budget // _bytes_of_row(num_classes, 0) >= min(num_rows, FEWEST_FULL_ROWS)
    return (num_classes, 0) if room or num_classes <= WIDTH + 2 * RANGES else (WIDTH, RANGES)


def _bytes_of_row(width: int, ranges: int) -> int:
    return 4 * width + 2 * ranges * (4 + 2) + 2 + 1


def some_rows(table: PredictionTable, at_most: int, seed: int) -> PredictionTable:
    """So many rows at most, drawn without replacement from those that have a weight, in their order.

    >>> some_rows(PredictionTable("t", np.arange(6.0).reshape(3, 2), "logits"), 2, seed=0).num_rows
    2
    """
    some = np.arange(table.num_rows) if table.weights is None else np.flatnonzero(table.weights)
    if len(some) > at_most:
        some = np.sort(np.random.default_rng(seed).choice(some, at_most, replace=False))
    return table if len(some) == table.num_rows else table.take(some)


def sample_of(table: PredictionTable, *, width: int, ranges: int) -> ExplorerSample:
    """All rows of a table in the form of the sample, with `width` logits kept and the others in `ranges`."""
    pieces = []
    for chunk in predictions_of(table).chunks():
        logits = logits_of(chunk.scores, table.kind).to(torch.float64)
        weights = None if chunk.weight is None else torch.from_numpy(chunk.weight)
        pieces.append(replace(_reduced(logits, chunk.labels, width, ranges), weights=weights))
    return _joined(pieces)


def _joined(pieces: list[ExplorerSample]) -> ExplorerSample:
    columns = ("scores", "label", "correct", "tail_scores", "tail_counts")
    weights = [piece.weights for piece in pieces if piece.weights is not None]
    return ExplorerSample(
        pieces[0].num_classes,
        **{name: torch.cat([getattr(piece, name) for piece in pieces]) for name in columns},
        weights=torch.cat(weights) if weights else None,
    )


def _reduced(logits: Tensor, labels: Tensor, width: int, ranges: int) -> ExplorerSample:
    """Rows (n, K) in the form of the sample, without weights."""
    ordered, place = torch.sort(logits - logits.amax(1, keepdim=True), dim=1, descending=True, stable=True)
    rank = (place == labels.unsqueeze(1)).to(torch.uint8).argmax(1)
    num_classes = logits.shape[1]
    empty = ordered[:, :0]
    if width == num_classes:
        return ExplorerSample(num_classes, ordered, rank, rank == 0, empty, empty, None)
    # A true class that is not among the largest takes the last place among them, and the others move on by one.
    of_label = ordered.gather(1, rank.unsqueeze(1))
    kept, far = ordered[:, :width].clone(), rank.unsqueeze(1) >= width
    kept[:, width - 1 :] = torch.where(far, of_label, kept[:, width - 1 :])
    moved = torch.arange(width, num_classes) <= rank.unsqueeze(1)
    others = torch.where(moved, ordered[:, width - 1 : -1], ordered[:, width:])
    scores, counts = _gathered(-others.numpy(), ranges)
    groups = torch.from_numpy(-scores), torch.from_numpy(counts)
    return ExplorerSample(num_classes, kept, rank.clamp_max(width - 1), rank == 0, *groups, None)


def _gathered(distance: Array, ranges: int) -> tuple[Array, Array]:
    """Distances (n, C) to the largest logit, rising, as two distances for each range (n, 2 * ranges) and their counts.

    With shares p and 1 - p of the two, mean m, deviation s and skewness (2p - 1) / sqrt(p (1 - p)) are those of the
    range, if they lie at m - s sqrt((1 - p) / p) and m + s sqrt(p / (1 - p)).
    """
    owner = _ranges(distance, ranges)
    rows = len(distance)
    place = (np.arange(rows)[:, None] * ranges + owner).ravel()

    def total(values: Array | None) -> Array:
        weights = None if values is None else values.ravel()
        return np.bincount(place, weights=weights, minlength=rows * ranges).astype(np.float64)

    count = total(None)
    size = np.maximum(count, 1)
    mean = total(distance) / size
    off = distance - mean[place].reshape(distance.shape)
    deviation = np.sqrt(total(off**2) / size)
    spread = np.maximum(deviation, 1e-12)
    skewness = total(off**3) / size / spread**3
    share = (1 + skewness / np.sqrt(4 + skewness**2)) / 2
    near = np.clip(np.round(share * count), np.minimum(count, 1), np.maximum(count - 1, np.minimum(count, 1)))
    far = count - near
    both = (near > 0) & (far > 0)
    odds = np.where(both, near / np.maximum(far, 1), 1.0)
    step = np.where(both, deviation, 0.0)
    # An empty range counts nothing, but its distance must be one that a class could have.
    mean = np.where(count > 0, mean, np.repeat(distance[:, -1], ranges))
    pairs = np.stack([np.maximum(mean - step / np.sqrt(odds), 0), mean + step * np.sqrt(odds)], 1)
    counts = np.stack([near, far], 1)
    return pairs.reshape(rows, 2 * ranges), counts.reshape(rows, 2 * ranges)


def _ranges(distance: Array, ranges: int) -> Array:
    """The range (n, C) that each of the rising distances falls in: the worst range of a row is halved until there are
    enough. Worst is the one with the most classes times the fourth power of its width over its distance, which is how
    its share of the sum is off at the temperature where that shows most.
    """
    rows, classes = np.arange(len(distance)), distance.shape[1]
    start, end = np.zeros((len(distance), 1), dtype=np.int64), np.full((len(distance), 1), classes)
    for _ in range(ranges - 1):
        first = distance[rows[:, None], np.minimum(start, classes - 1)]
        last = distance[rows[:, None], np.maximum(end - 1, 0)]
        badness = (end - start) * ((last - first) / np.maximum(first + last, _NEAR)) ** 4
        worst = np.argmax(badness, 1)
        middle = (first[rows, worst] + last[rows, worst]) / 2
        cut = np.maximum((distance <= middle[:, None]).sum(1), start[rows, worst])
        cut = np.minimum(cut, end[rows, worst])
        start, end = np.column_stack([start, cut]), np.column_stack([end, end[rows, worst]])
        end[rows, worst] = cut
    ordered = np.sort(start, 1)
    return np.asarray((np.arange(classes)[None, :, None] >= ordered[:, None, :]).sum(2) - 1)


# ---------------------------------------------------------------------- from the page and back


def decode(explorer: Explorer) -> ExplorerSample:
    """The sample that an explorer holds.

    >>> table = PredictionTable("t", np.array([[2.0, 0.0], [0.0, 1.0]]), "logits", labels=np.array([0, 0]))
    >>> decode(explorer_of(table)).scores
    tensor([[ 0., -2.],
            [ 0., -1.]], dtype=torch.float64)
    """
    n, weights = explorer.num_rows, explorer.weights
    return ExplorerSample(
        explorer.num_classes,
        _unpacked(explorer.scores, "<f4").reshape(n, explorer.width),
        _unpacked(explorer.label, "<u2").long(),
        _unpacked(explorer.correct, "u1").bool(),
        _unpacked(explorer.tail_scores, "<f4").reshape(n, explorer.groups),
        _unpacked(explorer.tail_counts, "<u2").reshape(n, explorer.groups),
        None if weights is None else _unpacked(weights, "<f4"),
    )


def _packed(values: Tensor, dtype: str) -> str:
    return base64.b64encode(values.numpy().astype(dtype).tobytes()).decode("ascii")


def _unpacked(text: str, dtype: str) -> Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), dtype=dtype).astype(np.float64))
