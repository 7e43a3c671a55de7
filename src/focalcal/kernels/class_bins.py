"""The sums behind equal-width bins of every class's probability; `read_rows` adds to them while it reads the scores."""

from __future__ import annotations

import torch
from torch import Tensor

from focalcal.core.binning import Bins, bin_of, equal_width_edges
from focalcal.core.checks import Array, require
from focalcal.core.focal import wide_dtype
from focalcal.core.ranking import whole_numbers


class ClassBinSums:
    """The sums behind bins of equal width, for each of K classes, added up batch by batch.

    At most M - 1 probabilities of a row lie above 1/M. Only those are looked up in the bins; what the first bin holds
    is left over from the sums of whole columns.

    >>> sums = ClassBinSums(num_classes=2, num_bins=2)
    >>> sums.add(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]), None)
    >>> sums.bins().count
    tensor([[1., 1.],
            [1., 1.]], dtype=torch.float64)
    """

    def __init__(self, num_classes: int, num_bins: int) -> None:
        require(num_bins >= 1, "num_bins", "must be at least 1", num_bins, "The papers use 15.")
        self.num_classes, self.num_bins = num_classes, num_bins
        self.sums = torch.zeros(4, num_classes, num_bins, dtype=torch.float64)  # count, mass, confidence, correctness
        self.whole = torch.zeros(3, num_classes, dtype=torch.float64)  # the first three over all bins

    def add(self, probs: Tensor, labels: Tensor, weight: Array | None) -> None:
        """Take in rows (n, K) of probabilities with labels (n,) and perhaps weights (n,): the definition."""
        found, edges = ClassBinSums(self.num_classes, self.num_bins), equal_width_edges(self.num_bins)
        near = torch.ones(len(probs)) if weight is None else torch.from_numpy(weight)
        near = near.to(probs.device, wide_dtype(probs.device))
        found.whole[2] = (near @ probs.to(near)).cpu()
        row, number = (probs > edges[min(1, self.num_bins - 1)].to(probs)).nonzero(as_tuple=True)
        values, share = probs[row, number], near[row]
        of_label = probs.gather(1, labels.unsqueeze(1)).squeeze(1)
        for total, at, value, term in (
            (found.sums[0], number, values, torch.ones_like(share)),
            (found.sums[1], number, values, share),
            (found.sums[2], number, values, share * values),
            (found.sums[3], labels, of_label, near),
        ):
            bins = torch.from_numpy(bin_of(value.cpu().numpy(), edges.numpy()))
            total.view(-1).index_add_(0, at.cpu() * self.num_bins + bins, term.cpu().double())
        self.take(found, len(probs), weight)

    def take(self, found: ClassBinSums, rows: int, weight: Array | None) -> None:
        """Add the sums of one batch, in which every row counts once; whole-number weights mean repeated rows."""
        mass = float(rows) if weight is None else float(weight.sum())
        repeats = weight is None or whole_numbers(weight)
        found.whole[0], found.whole[1] = mass if repeats else rows, mass
        if repeats:
            found.sums[0] = found.sums[1]
        self.sums += found.sums
        self.whole += found.whole

    def merge(self, other: ClassBinSums) -> ClassBinSums:
        """The sums over both sets of rows."""
        merged = ClassBinSums(self.num_classes, self.num_bins)
        merged.sums, merged.whole = self.sums + other.sums, self.whole + other.whole
        return merged

    def bins(self) -> Bins:
        """The bins (K, M) of everything so far."""
        return class_bins(self.sums, self.whole)


def class_bins(sums: Tensor, whole: Tensor) -> Bins:
    """The bins behind the sums of `ClassBinSums`: the first bin has what the others leave over.

    >>> class_bins(torch.zeros(4, 1, 2), torch.tensor([[5.0], [5.0], [1.0]])).confidence
    tensor([[0.2000, 0.0000]])
    """
    sums = sums.cpu().clone()
    sums[:3, :, 0] = (whole.cpu() - sums[:3, :, 1:].sum(2)).clamp_min(0)
    return Bins.of_sums(equal_width_edges(sums.shape[2]), *sums)
