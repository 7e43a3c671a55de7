r"""One binning engine: every ECE, AdaFocal and every reliability diagram read the same `Bins`.

A bin $b$ holds the confidences in $(e_{b-1}, e_b]$; the first one is closed at its lower end. Counts add up to N.
Sums run over the sorted rows, so the result does not depend on their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from focalcal.core.inputs import require

Scheme = Literal["equal_width", "equal_mass", "interpolated"]


@dataclass(frozen=True)
class Bins:
    r"""Per-bin statistics of N predictions, in float64: B bins, B + 1 edges.

    `count` is $|B_b|$, `confidence` the mean confidence $C_b$ and `accuracy` the mean correctness $A_b$; both are 0
    in an empty bin, so that its `gap` $C_b - A_b$ is 0 as well.
    """

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def gap(self) -> Tensor:
        """Confidence minus accuracy: positive where the model is too sure."""
        return self.confidence - self.accuracy

    @property
    def weight(self) -> Tensor:
        """The share of the predictions that each bin holds."""
        return self.count / self.count.sum()


def bin_predictions(
    confidence: Tensor, correct: Tensor, *, num_bins: int = 15, edges: Scheme | Tensor = "equal_width"
) -> Bins:
    r"""Sort predictions into bins of confidence.

    where `confidence` (N,) lies in [0, 1], `correct` (N,) is 0 or 1, and `edges` is one of

    - `"equal_width"`: edges $i/M$ [mukhoti2020, Eq. 1];
    - `"equal_mass"`: the row of rank i (from 0) goes to bin $\lfloor M i / N \rfloor$, so that counts differ by at most
      one [mukhoti2020, Eq. 3]. Equal confidences share their correctness evenly, wherever the cut falls among them;
    - `"interpolated"`: edges at the ranks $N i / M$ of the sorted confidences, linear in between; equal confidences
      stay together, and a bin of zero width is empty [ghosh2022, as released];
    - a tensor of increasing edges, the outer two being stretched to cover all confidences.

    >>> bins = bin_predictions(torch.tensor([0.55, 0.65, 0.95]), torch.tensor([1, 0, 1]), num_bins=2)
    >>> bins.count, bins.gap
    (tensor([0., 3.], dtype=torch.float64), tensor([0.0000, 0.0500], dtype=torch.float64))
    """
    require(num_bins >= 1, "num_bins", "must be at least 1", num_bins, "The papers use 15.")
    require(confidence.dim() == 1, "confidence", "must have shape (N,)", tuple(confidence.shape))
    require(len(confidence) >= 1, "confidence", "must have at least one row", 0)
    require(correct.shape == confidence.shape, "correct", "must have confidence's shape", tuple(correct.shape))
    values, order = torch.sort(confidence.detach().to("cpu", torch.float64))
    right = _share_among_ties(values, correct.detach().to("cpu", torch.float64)[order])
    if isinstance(edges, Tensor):
        cut, member = _by_edges(values, edges.to("cpu", torch.float64))
    elif edges == "equal_width":
        cut, member = _by_edges(values, equal_width_edges(num_bins))
    elif edges == "interpolated":
        cut, member = _by_edges(values, interpolated_edges(values, num_bins))
    else:
        require(edges == "equal_mass", "edges", "must be equal_width, equal_mass, interpolated or a tensor", edges)
        require(num_bins <= len(values), "num_bins", f"must be at most N = {len(values)}", num_bins)
        member = torch.arange(len(values)) * num_bins // len(values)
        first = torch.searchsorted(member, torch.arange(1, num_bins))
        inner = (values[first - 1] + values[first]) / 2
        cut = torch.cat([values.new_zeros(1), inner, values.new_ones(1)])
    num_bins = len(cut) - 1
    count = torch.bincount(member, minlength=num_bins).double()
    total = values.new_zeros(2, num_bins).index_add_(1, member, torch.stack([values, right]))
    mean = total / count.clamp_min(1)
    return Bins(edges=cut, count=count, confidence=mean[0], accuracy=mean[1])


def equal_width_edges(num_bins: int) -> Tensor:
    """The edges 0, 1/M, ..., 1.

    >>> equal_width_edges(4)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000], dtype=torch.float64)
    """
    return torch.arange(num_bins + 1, dtype=torch.float64) / num_bins


def interpolated_edges(values: Tensor, num_bins: int) -> Tensor:
    """Edges at the ranks N i / M of sorted values, linear between neighbours, the last one at the largest value.

    >>> interpolated_edges(torch.tensor([0.1, 0.2, 0.4, 0.8], dtype=torch.float64), 3)
    tensor([0.1000, 0.2667, 0.6667, 0.8000], dtype=torch.float64)
    """
    rank = torch.arange(num_bins + 1, dtype=torch.float64) * len(values) / num_bins
    below = rank.long().clamp_max(len(values) - 1)
    above = (below + 1).clamp_max(len(values) - 1)
    return values[below] + (rank - below) * (values[above] - values[below])


def _by_edges(values: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """The edges, and the bin of each value: (lower, upper], everything beyond the outer edges in the outer bins."""
    return edges, torch.bucketize(values, edges[1:-1].contiguous())


def _share_among_ties(values: Tensor, correct: Tensor) -> Tensor:
    """Each row's correctness replaced by the mean over the rows with the same value (sorted)."""
    _, group, size = torch.unique_consecutive(values, return_inverse=True, return_counts=True)
    total = correct.new_zeros(len(size)).index_add_(0, group, correct)  # sums of 0 and 1: exact in any order
    shared: Tensor = (total / size)[group]
    return shared
