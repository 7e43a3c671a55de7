r"""One binning engine: every ECE, AdaFocal and every reliability diagram read the same `Bins`.

A bin $b$ holds the confidences in $(e_{b-1}, e_b]$; the first one is closed at its lower end. Counts add up to N.
An edge is compared in the precision of the confidences, so that a float32 0.3 is not above 3/10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import Array, require, require_whole
from focalcal.core.ranking import Ranking, is_fractional, whole_numbers

Scheme = Literal["equal_width", "equal_mass", "array_split", "interpolated", "equal_width_sweep", "equal_mass_sweep"]

Norm = Literal["l1", "l2", "max"]


@dataclass(frozen=True)
class Bins:
    r"""Per-bin statistics of predictions, in float64: B + 1 `edges`, and for each bin, in the last dimension,

    - `count`, the number of rows $|B_b|$, and `mass`, their total weight. Both are the same where rows have no weights,
      or weights that are whole numbers, which mean repeated rows;
    - `confidence`, the mean confidence $C_b$, and `accuracy`, the mean correctness $A_b$, both 0 in an empty bin.

    A leading dimension, where there is one, runs over classes or resamples.
    """

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor
    mass: Tensor

    @property
    def gap(self) -> Tensor:
        """Confidence minus accuracy: positive where the model is too sure."""
        return self.confidence - self.accuracy

    @property
    def weight(self) -> Tensor:
        """The share of the predictions that each bin holds."""
        return self.mass / self.mass.sum(-1, keepdim=True)

    def merge(self, other: Bins) -> Bins:
        """The bins of both sets of predictions together.

        >>> one = bin_predictions(torch.tensor([0.9]), torch.tensor([1]), num_bins=1)
        >>> two = bin_predictions(torch.tensor([0.5]), torch.tensor([0]), num_bins=1)
        >>> one.merge(two).gap
        tensor([0.2000], dtype=torch.float64)
        """
        same = self.edges.shape == other.edges.shape and torch.equal(self.edges, other.edges)
        require(
            same,
            "other",
            "must have the same edges",
            f"{len(other.edges) - 1} bins with other edges",
            "Bins of equal mass have edges of their own: merge the rows instead.",
        )
        return Bins.of_sums(
            self.edges, *(mine + theirs for mine, theirs in zip(self.sums(), other.sums(), strict=True))
        )

    def sums(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Count, mass, and the sums of weighted confidence and correctness: what adds up over batches."""
        return self.count, self.mass, self.mass * self.confidence, self.mass * self.accuracy

    @staticmethod
    def of_sums(edges: Tensor, count: Tensor, mass: Tensor, confidence: Tensor, accuracy: Tensor) -> Bins:
        """Bins from the sums of weighted confidence and correctness over the rows of each bin."""
        size = torch.where(mass > 0, mass, 1.0)
        share = (accuracy / size).clamp(0, 1)  # differences of cumulative sums may leave it by rounding
        return Bins(edges=edges, count=count, confidence=confidence / size, accuracy=share, mass=mass)


def require_bins(num_bins: int, edges: Scheme | Tensor) -> None:
    """Refuse a number of bins that is none, and unknown edges.

    >>> require_bins(15, "quantile")
    Traceback (most recent call last):
    focalcal.errors.InputError: edges: must be a tensor or one of equal_width, equal_mass, array_split, interpolated,
    equal_width_sweep, equal_mass_sweep; got quantile.
    """
    require_whole(num_bins, "num_bins", 1, "The papers use 15.")
    known = isinstance(edges, Tensor) or (isinstance(edges, str) and edges in get_args(Scheme))
    got = edges if isinstance(edges, str) else type(edges).__name__
    require(known, "edges", f"must be a tensor or one of {', '.join(get_args(Scheme))}", got)


def bin_predictions(
    confidence: Tensor | Array,
    correct: Tensor | Array,
    *,
    num_bins: int = 15,
    edges: Scheme | Tensor = "equal_width",
    weight: Tensor | Array | None = None,
) -> Bins:
    r"""Sort predictions into bins of confidence.

    where `confidence` (N,) lies in [0, 1], `correct` (N,) is 0 or 1, or the probability of 1 where that is known,
    `weight` (N,) is not negative, and `edges` is

    - `"equal_width"`: edges $i/M$ [mukhoti2020, Eq. 1];
    - `"equal_mass"`: the row of rank i (from 0) goes to bin $\lfloor M i / N \rfloor$, so that counts differ by at most
      one [mukhoti2020, Eq. 3]. Equal confidences share their correctness evenly, wherever the cut falls among them;
    - `"array_split"`: of equal mass too, but the larger bins come first [kumar2019, as released];
    - `"interpolated"`: edges at the ranks $N i / M$ of the sorted confidences, linear in between; equal confidences
      stay together, and a bin of zero width is empty [ghosh2022, as released];
    - `"equal_width_sweep"`, `"equal_mass_sweep"`: as many bins as keep the accuracies in order [roelofs2022, Alg. 1];
    - a tensor of increasing edges, the outer two being stretched to cover all confidences.

    Whole-number weights mean repeated rows; with others, bins of equal mass have equal weight and may share a row.

    >>> bins = bin_predictions(torch.tensor([0.55, 0.65, 0.95]), torch.tensor([1, 0, 1]), num_bins=2)
    >>> bins.count, bins.gap
    (tensor([0., 3.], dtype=torch.float64), tensor([0.0000, 0.0500], dtype=torch.float64))
    """
    require_bins(num_bins, edges)
    given, right, share = prediction_columns(confidence, correct, weight)
    if (isinstance(edges, Tensor) or edges == "equal_width") and not is_fractional(right):
        cut = edges.to("cpu", torch.float64) if isinstance(edges, Tensor) else equal_width_edges(num_bins)
        return _bins_between(cut, given, right, share)
    return bin_ranked(Ranking.of_rows(given, right, share), num_bins=num_bins, edges=edges)


def bin_ranked(ranked: Ranking, *, num_bins: int = 15, edges: Scheme | Tensor = "equal_width") -> Bins:
    """The bins of predictions that are already ranked; `edges` as in `bin_predictions`.

    >>> ranked = Ranking.of_rows(np.array([0.9, 0.9, 0.9, 0.9]), np.array([1, 0, 0, 0]))
    >>> bin_ranked(ranked, num_bins=2, edges="equal_mass").accuracy
    tensor([0.2500, 0.2500], dtype=torch.float64)
    """
    if not isinstance(edges, Tensor) and edges.endswith("_sweep"):
        edges = cast(Scheme, edges.removesuffix("_sweep"))
        num_bins = ranked.sweep(equal_mass=edges == "equal_mass")
    require(num_bins >= 1, "num_bins", "must be at least 1", num_bins, "The papers use 15.")
    if isinstance(edges, Tensor):
        cut = edges.to("cpu", torch.float64).numpy()
    elif edges == "equal_width":
        cut = equal_width_edges(num_bins).numpy()
    elif edges == "interpolated":
        repeated = np.repeat(ranked.value.astype(np.float64), ranked.count.astype(np.int64))
        cut = interpolated_edges(repeated.take, len(repeated), num_bins)
    else:
        names = ("equal_mass", "array_split")
        require(edges in names, "edges", f"must be a tensor or one of {', '.join(Scheme.__args__)}", edges)  # type: ignore[attr-defined]
        return _bins_of_mass(ranked, num_bins, larger_first=edges == "array_split")
    sums = ranked.below_values(cut)
    sums[:, 0], sums[:, -1] = 0, ranked.before(np.array([len(ranked.value)]))[:, 0]  # nothing is outside
    return _assemble(cut, sums)


def prediction_columns(confidence: Any, correct: Any, weight: Any) -> tuple[Array, Array, Array | None]:
    """The columns as arrays on the CPU, checked for shape."""
    given = _as_array(confidence)
    given = given if given.dtype in (np.float32, np.float64) else given.astype(np.float64)
    right = _as_array(correct)
    share = None if weight is None else _as_array(weight).astype(np.float64)
    require(given.ndim == 1, "confidence", "must have shape (N,)", given.shape)
    require(len(given) >= 1, "confidence", "must have at least one row", 0)
    require(right.shape == given.shape, "correct", "must have confidence's shape", right.shape)
    if share is not None:
        require(share.shape == given.shape, "weight", "must have confidence's shape", share.shape)
    return given, right, share


def _as_array(values: Any) -> Array:
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return np.asarray((values.float() if values.dtype in (torch.float16, torch.bfloat16) else values).numpy())


def _bins_between(edges: Tensor, confidence: Array, correct: Array, weight: Array | None) -> Bins:
    """Bins with fixed edges, in one pass over rows in any order."""
    num_bins, hit = len(edges) - 1, correct.astype(np.float64)
    place, mass = bin_of(confidence, edges.numpy()), np.ones(len(confidence)) if weight is None else weight
    rows, total, sums, right = (
        torch.from_numpy(np.bincount(place, weights=term, minlength=num_bins))
        for term in (np.ones(len(confidence)), mass, mass * confidence, mass * hit)
    )
    count = total if weight is None or whole_numbers(weight) else rows
    return Bins.of_sums(edges, count, total, sums, right)


def bin_of(values: Array, edges: Array) -> Array:
    """The bin of each value, (lower, upper], the outer ones without end; edges in the precision of the values.

    >>> bin_of(np.array([0.0, 0.5, 0.6]), np.array([0.0, 0.5, 1.0]))
    array([0, 0, 1])
    """
    return np.searchsorted(edges[1:-1].astype(values.dtype), values)


def require_a_row_for_each_bin(num_bins: int, rows: int) -> None:
    """Raise an InputError if rows are too few for bins of equal mass."""
    require(num_bins <= rows, "num_bins", f"must be at most N = {rows}", num_bins, "Take fewer bins or more rows.")


def _bins_of_mass(ranked: Ranking, num_bins: int, *, larger_first: bool) -> Bins:
    rows = int(ranked.count.sum())
    require_a_row_for_each_bin(num_bins, rows)
    sums, edge = ranked.below_masses(ranked.mass_cuts(num_bins, larger_first=larger_first))
    edge[0], edge[-1] = 0.0, 1.0
    return _assemble(edge, sums)


def _assemble(edges: Array, sums: Array) -> Bins:
    """Bins from the sums (4, M + 1) of count, mass, confidence and correctness below each edge."""
    inside = torch.from_numpy(np.diff(sums, axis=1))
    return Bins.of_sums(torch.from_numpy(np.asarray(edges, dtype=np.float64)), *inside)


def bin_norm(bins: Bins, norm: Norm) -> Tensor:
    r"""The gaps of the bins in one number: $\sum_b w_b |g_b|$, $\sqrt{\sum_b w_b g_b^2}$ or $\max_b |g_b|$.

    >>> bins = bin_predictions(torch.tensor([0.3, 0.9]), torch.tensor([0, 1]), num_bins=2)
    >>> [round(float(bin_norm(bins, norm)), 4) for norm in ("l1", "l2", "max")]
    [0.2, 0.2236, 0.3]
    """
    require(isinstance(norm, str) and norm in get_args(Norm), "norm", "must be l1, l2 or max", repr(norm))
    if norm == "l1":
        return (bins.weight * bins.gap.abs()).sum(-1)
    if norm == "l2":
        return (bins.weight * bins.gap**2).sum(-1).sqrt()
    return bins.gap.abs().amax(-1)


def equal_width_edges(num_bins: int) -> Tensor:
    """The edges 0, 1/M, ..., 1.

    >>> equal_width_edges(4)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000], dtype=torch.float64)
    """
    return torch.arange(num_bins + 1, dtype=torch.float64) / num_bins


def interpolated_edges(values_at: Callable[[Array], Array], rows: int, num_bins: int) -> Array:
    """Edges at the ranks N i / M of sorted values, linear between neighbours, the last one at the largest value.

    where `values_at` gives the values at some ranks, which rise.

    >>> interpolated_edges(np.array([0.1, 0.2, 0.4, 0.8]).take, 4, 3).round(4)
    array([0.1   , 0.2667, 0.6667, 0.8   ])
    """
    rank = np.arange(num_bins + 1) * rows / num_bins
    below = np.minimum(rank.astype(np.int64), rows - 1)
    lower, upper = values_at(np.stack([below, np.minimum(below + 1, rows - 1)], 1).reshape(-1)).reshape(-1, 2).T
    edges: Array = lower + (rank - below) * (upper - lower)
    return edges
