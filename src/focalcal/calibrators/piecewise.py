"""Piecewise functions of a score, kept as tables, one per class: steps, or straight lines between points.

The search takes a fixed number of steps and no branch, so that ONNX can write it down, and its memory grows with the
scores and not with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from focalcal.core.checks import Array
from focalcal.core.ranking import Ranking
from focalcal.kernels.ranking import ranked_rows

# Logits that are taken together: temporaries are float64 and int64, many times the logits, and stay in cache.
_TOGETHER = 1 << 17
# Scores that are closer than this, as a share of themselves, are equal: the same logits in another order, or with a
# constant added, have other last bits.
_ROUNDING = 16 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class ScoreGroups(Ranking):
    """A ranking whose groups are scores that only rounding keeps apart, from `least` to `value` each."""

    least: Array

    @staticmethod
    def of_scores(scores: Array, correct: Array, weight: Array | None = None) -> ScoreGroups:
        """The groups of rows (N,), weighted or not.

        >>> ScoreGroups.of_scores(np.array([0.5, 0.9, 0.5 + 1e-16]), np.array([True, True, False])).right
        array([1, 1])
        """
        exact = ranked_rows(scores, correct, weight)
        starts = np.flatnonzero(np.append(True, np.diff(exact.value) > _ROUNDING * exact.value[1:]))
        count, mass, right = (
            np.add.reduceat(column, starts, dtype=np.int64 if column.dtype.kind == "u" else np.float64)
            for column in (exact.count, exact.mass, exact.right)
        )
        last = np.append(starts[1:], len(exact.value)) - 1
        return ScoreGroups(exact.value[last], count, mass, right, exact.value[starts])

    @property
    def edges(self) -> Array:
        """Halfway between neighbours, 0 before the first and 1 after the last."""
        return np.concatenate([[0.0], (self.value[:-1] + self.least[1:]) / 2, [1.0]])

    def points(self, values: Array) -> tuple[Array, Array]:
        """Where each group begins and ends, once if that is the same, and its value there."""
        ends, twice = np.stack([self.least, self.value], 1), np.stack([values, values], 1)
        new = np.stack([np.full(len(values), True), self.least < self.value], 1)
        return ends[new], twice[new]


def step_lookup(scores: Tensor, edges: Tensor, values: Tensor) -> Tensor:
    """The values of step functions: value j of class k where a score of `scores` (n, K) exceeds j of its edges.

    `edges` is (K, M), increasing, and `values` (K, M + 1): a step holds the scores in (lower, upper].

    >>> edges, values = torch.tensor([[0.2, 0.6]]), torch.tensor([[1.0, 2.0, 3.0]])
    >>> step_lookup(torch.tensor([[0.1], [0.2], [0.3], [0.7]]), edges, values).squeeze(1)
    tensor([1., 1., 2., 3.])
    """
    return values.T.gather(0, _passed(scores, edges))


def linear_lookup(scores: Tensor, points: Tensor, values: Tensor) -> Tensor:
    """The values of functions that are linear between `points` (K, M), increasing, and constant beyond them.

    `values` (K, M) are those at the points; repeated points at the end of a row are padding.

    >>> points, values = torch.tensor([[0.2, 0.6]]), torch.tensor([[1.0, 2.0]])
    >>> linear_lookup(torch.tensor([[0.1], [0.3], [0.6], [0.7]]), points, values).squeeze(1)
    tensor([1.0000, 1.2500, 2.0000, 2.0000])
    """
    above = _passed(scores, points).clamp(max=points.shape[1] - 1)
    below = (above - 1).clamp(min=0)
    left, right = points.T.gather(0, below), points.T.gather(0, above)
    low, high = values.T.gather(0, below), values.T.gather(0, above)
    width = torch.where(right > left, right - left, 1.0)
    return low + (high - low) * ((scores - left) / width).clamp(0, 1)


def _passed(scores: Tensor, table: Tensor) -> Tensor:
    """How many entries of its class's row of the table (K, M) each score (n, K) exceeds."""
    bits = table.shape[1].bit_length()
    # Filled up to a power of two less one with what no score exceeds, so that no step leads out of the table.
    filled = F.pad(table, (0, 2**bits - 1 - table.shape[1]), value=float("inf")).T
    place = torch.zeros_like(scores, dtype=torch.int64)
    for step in (2**bit for bit in reversed(range(bits))):
        place = place + step * (filled.gather(0, place + (step - 1)) < scores)
    return place


def stacked(rows: Sequence[Array]) -> Tensor:
    """Rows of different lengths as one tensor (K, M), the last entry of a shorter one repeated.

    >>> stacked([np.array([0.5]), np.array([0.1, 0.9])])
    tensor([[0.5000, 0.5000],
            [0.1000, 0.9000]], dtype=torch.float64)
    """
    length = max(len(row) for row in rows)
    return torch.from_numpy(np.stack([np.pad(row.astype(np.float64), (0, length - len(row)), "edge") for row in rows]))


def by_rows(log_probs: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """Apply `log_probs` to the rows of `logits`, some at a time, and answer in their precision.

    >>> by_rows(lambda logits: logits.double() + 1, torch.zeros(3, 2)).dtype
    torch.float32
    """
    if torch.compiler.is_compiling() or logits.numel() <= _TOGETHER:  # a traced number of rows is no number
        return log_probs(logits).to(logits.dtype)
    parts = logits.split(max(1, _TOGETHER // logits.shape[1]))
    return torch.cat([log_probs(part).to(logits.dtype) for part in parts])
