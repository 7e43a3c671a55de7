r"""The probabilities that the classes beyond a list can have.

Beyond the list there are n classes. They share the mass $r$, and none of them exceeds the cap $c$, the smallest listed
probability. A completion is any $q \in [0, c]^n$ with $\sum_j q_j = r$. Over all completions, $\sum_j f(q_j)$ of a
convex f is smallest where all $q_j$ are equal, by Jensen's inequality, and largest at a vertex. The vertices are alike:
as many classes as possible at the cap, one with what is left, none in the others (the greedy fill). For a concave f it
is the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Tail:
    """The classes beyond the list of each row (n,): their `mass`, the `cap` of each, and their `count`, in float64.

    The mass fits: it is at most `cap * count`.

    >>> tail = Tail(torch.tensor([0.25]), torch.tensor([0.1]), torch.tensor([4.0]))
    >>> tail.greedy_fill()
    (tensor([2.]), tensor([0.0500]))
    """

    mass: Tensor
    cap: Tensor
    count: Tensor

    def greedy_fill(self) -> tuple[Tensor, Tensor]:
        """How many classes the greedy fill has at the cap, and what it leaves for one more."""
        full = torch.minimum(torch.floor(self.mass / self.cap.clamp_min(TINY)), self.count)
        return full, (self.mass - full * self.cap).clamp_min(0)

    def even_share(self) -> Tensor:
        """What each class has where all have the same."""
        return self.mass / self.count.clamp_min(1)

    def squares(self) -> tuple[Tensor, Tensor]:
        r"""Bounds of $\sum_j q_j^2$, which is convex: even shares, greedy fill.

        >>> tail = Tail(torch.tensor([0.25]), torch.tensor([0.1]), torch.tensor([4.0]))
        >>> tail.squares()  # 0.25^2 / 4, and 2 * 0.1^2 + 0.05^2
        (tensor([0.0156]), tensor([0.0225]))
        """
        full, left = self.greedy_fill()
        return self.mass * self.even_share(), full * self.cap.square() + left.square()

    def entropy(self) -> tuple[Tensor, Tensor]:
        r"""Bounds of $-\sum_j q_j \log q_j$, which is concave: greedy fill, even shares.

        >>> tail = Tail(torch.tensor([0.25]), torch.tensor([0.1]), torch.tensor([4.0]))
        >>> tail.entropy()
        (tensor([0.6103]), tensor([0.6931]))
        """
        full, left = self.greedy_fill()
        return -full * torch.xlogy(self.cap, self.cap) - torch.xlogy(left, left), -torch.xlogy(
            self.mass, self.even_share()
        )

    def one_share(self) -> tuple[Tensor, Tensor]:
        r"""Bounds of what any one class has: from $\max(0, r - (n-1) c)$, where the others are full, to $\min(r, c)$.

        >>> Tail(torch.tensor([0.25]), torch.tensor([0.1]), torch.tensor([3.0])).one_share()
        (tensor([0.0500]), tensor([0.1000]))
        """
        return (self.mass - (self.count - 1) * self.cap).clamp_min(0), torch.minimum(self.mass, self.cap)

    def without(self, share: Tensor, classes: Tensor) -> Tail:
        """The tail without so many classes that have that share together."""
        return Tail((self.mass - share).clamp_min(0), self.cap, self.count - classes)
