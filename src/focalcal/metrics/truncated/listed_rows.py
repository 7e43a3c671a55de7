r"""Rows of lists of the most likely classes: their columns at the lower and the upper end of every measure.

With $p$ the listed probabilities, $r$ what is left of 1, n the classes beyond the list and $c$ the smallest listed one,
$r$ is kept in $[0, n c]$ and everything divided by $\sum p + r$, so that rounding never makes a row impossible. A label
beyond the list whose probability is given counts as listed, but does not lower the cap.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from focalcal.core.checks import Array
from focalcal.metrics.truncated.unlisted_classes import Tail

# Counts of classes are taken from quotients that may be off by their rounding: outwards, to stay on the safe side.
_ROUNDING = 1e-9
# A thousand float64 numbers that add up to 1 do so within less.
_SUMMED = 1e-12


class ListedRows:
    """Some rows of a `TopK`: each column is a property, (n,) and float64 unless it says otherwise.

    >>> log_probs = torch.tensor([[0.6, 0.3]], dtype=torch.float64).log()
    >>> rows = ListedRows(torch.tensor([[7, 3]]), log_probs, torch.tensor([3]), None, num_classes=10, tolerance=1e-5)
    >>> rows.tail.mass, rows.tail.cap, rows.rank
    (tensor([0.1000], dtype=torch.float64), tensor([0.3000], dtype=torch.float64), tensor([1]))
    """

    def __init__(
        self,
        classes: Tensor,
        log_probs: Tensor,
        labels: Tensor,
        given: Tensor | None,
        num_classes: int,
        tolerance: float,
    ) -> None:
        self.classes, self.labels, self.num_classes, self.tolerance = classes, labels, num_classes, tolerance
        self.dtype = log_probs.dtype
        self.raw = log_probs.double()
        self.given = None if given is None else given.double()

    # ------------------------------------------------------------------ as listed

    @cached_property
    def listed(self) -> Tensor:
        """Which places (n, k) hold a class."""
        return self.raw > -torch.inf

    @cached_property
    def num_listed(self) -> Tensor:
        """How many classes a row lists."""
        return self.listed.sum(1)

    @cached_property
    def shares(self) -> Tensor:
        """The listed probabilities (n, k) as given."""
        return self.raw.exp()

    @cached_property
    def listed_sum(self) -> Tensor:
        """Their sum."""
        return self.shares.sum(1)

    @cached_property
    def raw_top(self) -> Tensor:
        """The largest listed log-probability."""
        return self.raw.amax(1)

    @cached_property
    def raw_cap(self) -> Tensor:
        """The smallest listed log-probability."""
        if bool(self.listed.all()):
            return self.raw.amin(1)
        return torch.where(self.listed, self.raw, torch.inf).amin(1)

    @cached_property
    def at_label(self) -> Tensor:
        """The place (n, k) of the label, if it is listed."""
        return (self.classes == self.labels.unsqueeze(1)) & self.listed

    @cached_property
    def in_list(self) -> Tensor:
        """Whether the label is listed."""
        return self.at_label.any(1)

    @cached_property
    def listed_label(self) -> Tensor:
        """The label's listed log-probability, -inf where it is not listed."""
        return torch.where(self.at_label, self.raw, -torch.inf).amax(1)

    @cached_property
    def is_given(self) -> Tensor:
        """Whether the label is beyond the list and its log-probability is given."""
        return torch.zeros_like(self.in_list) if self.given is None else ~self.in_list & ~self.given.isnan()

    @cached_property
    def known(self) -> Tensor:
        """Whether the label's probability is known."""
        return self.in_list | self.is_given

    @cached_property
    def raw_label(self) -> Tensor:
        """The label's log-probability as listed or given, NaN where it is not known."""
        return torch.where(self.in_list, self.listed_label, torch.nan if self.given is None else self.given)

    @cached_property
    def outside(self) -> Tensor:
        """The probability that is known of a label beyond the list, else 0; above the cap by rounding only."""
        return torch.where(self.is_given, torch.minimum(self.raw_label, self.raw_cap).exp(), 0.0)

    @cached_property
    def free(self) -> Tensor:
        """How many classes nothing is known of."""
        return (self.num_classes - self.num_listed - self.is_given.long()).double()

    @cached_property
    def raw_mass(self) -> Tensor:
        """What is left for them."""
        most = self.free * self.raw_cap.exp()
        return torch.minimum((1 - self.listed_sum - self.outside).clamp_min(0), most)

    # ------------------------------------------------------------------ as probabilities

    @cached_property
    def whole(self) -> Tensor:
        """What everything is divided by: 1 but for rounding, and 1 if it is but the rounding of this sum.

        So rows that list the same probability first have the same confidence, whatever else they list.
        """
        whole = self.listed_sum + self.outside + self.raw_mass
        return torch.where((whole - 1).abs() <= _SUMMED, 1.0, whole)

    @cached_property
    def tail(self) -> Tail:
        """The classes that nothing is known of."""
        return Tail(self.raw_mass / self.whole, self.raw_cap.exp() / self.whole, self.free)

    @property
    def confidence(self) -> Tensor:
        """The largest probability, in the precision of the list."""
        return (self.raw_top.exp() / self.whole).clamp(max=1).to(self.dtype)

    @cached_property
    def rank(self) -> Tensor:
        """How many listed classes come before the label: likelier ones, and equal ones with lower numbers."""
        mine = torch.where(self.in_list, self.listed_label, -torch.inf).unsqueeze(1)
        before = (self.raw > mine) | ((self.raw == mine) & (self.classes < self.labels.unsqueeze(1)) & self.listed)
        return before.sum(1)

    @property
    def correct(self) -> Tensor:
        """Whether the predicted class, which is always listed, is the label."""
        return self.in_list & (self.rank == 0)

    @cached_property
    def label_shares(self) -> tuple[Tensor, Tensor]:
        """Bounds of the label's probability; both the same where it is known."""
        least, most = self.tail.one_share()
        share = self.raw_label.exp() / self.whole
        return torch.where(self.known, share, least), torch.where(self.known, share, most)

    @property
    def nll(self) -> tuple[Tensor, Tensor]:
        r"""Bounds of $-\log p_y$.

        For a label of which nothing is known $-\log \min(r, c)$ and, as a rule, infinity. Rounding may have taken a
        small $r$ away, so that the tolerance is added.
        """
        least, most = self.label_shares
        known = torch.log(self.whole) - self.raw_label
        low = -torch.log(torch.minimum(most + self.tolerance, self.tail.cap))
        high = -torch.log((least - self.tolerance).clamp_min(0))
        return torch.where(self.known, known, low), torch.where(self.known, known, high)

    @property
    def brier(self) -> tuple[Tensor, Tensor]:
        r"""Bounds of $(1 - p_y)^2 + \sum_{j \ne y} p_j^2$.

        In the share $y$ of a label of which nothing is known, the slope $2y - 2 - S'(r - y)$ is negative, where $S$ is
        either bound of the other classes' squares: so its largest share is at the lower end, its least at the upper.
        """
        others = self.shares.masked_fill(self.at_label, 0.0).square().sum(1) / self.whole.square()
        unknown = (~self.known).double()
        least, most = self.label_shares
        low = self.tail.without(most * unknown, unknown).squares()[0]
        high = self.tail.without(least * unknown, unknown).squares()[1]
        return others + (1 - most).square() + low, others + (1 - least).square() + high

    @property
    def entropy(self) -> tuple[Tensor, Tensor]:
        """Bounds of the entropy in nats."""
        logs = self.raw.masked_fill(~self.listed, 0.0)
        outside = torch.xlogy(self.outside, self.outside)
        known = (self.listed_sum + self.outside) * torch.log(self.whole) - (self.shares * logs).sum(1) - outside
        low, high = self.tail.entropy()
        return known / self.whole + low, known / self.whole + high

    @property
    def ranks(self) -> tuple[Tensor, Tensor]:
        r"""Bounds of how many classes come before the label: exact where it is listed.

        Before a label beyond the list whose probability $q$ is known, there are at most $r / q$ unlisted classes. The
        others are too many to be all behind it if $r > n q$; then at least $(r - n q) / (c - q)$ come before.
        """
        tail, share = self.tail, self.label_shares[0]
        room = (tail.cap - share).clamp_min(1e-300)
        fewest = torch.ceil((tail.mass - tail.count * share) / room - _ROUNDING).clamp_min(0)
        most = torch.floor(tail.mass / share.clamp_min(1e-300) + _ROUNDING)
        most = torch.where(share > 0, torch.minimum(most, tail.count), tail.count)
        unknown = torch.full_like(self.rank, self.num_classes - 1)
        best = self.num_listed + torch.where(self.is_given, torch.minimum(fewest, most).long(), 0)
        worst = torch.where(self.is_given, self.num_listed + most.long(), unknown)
        return torch.where(self.in_list, self.rank, best), torch.where(self.in_list, self.rank, worst)

    # ------------------------------------------------------------------ both ends

    def columns(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """The columns of the lower and of the upper end of every measure; a bad rank is a low accuracy."""
        nll, brier, entropy, (best, worst) = self.nll, self.brier, self.entropy, self.ranks
        pairs = {"confidence": self.confidence, "correct": self.correct, "known": self.known, "mass": self.tail.mass}
        ends = [
            pairs | {"nll": nll[end], "brier": brier[end], "entropy": entropy[end], "rank": rank}
            for end, rank in enumerate((worst, best))
        ]
        low, high = ({name: column.numpy() for name, column in end.items()} for end in ends)
        return low, high
