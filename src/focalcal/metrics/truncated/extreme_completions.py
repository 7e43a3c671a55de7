r"""Completions that are extreme for temperature scaling: what bounds the NLL, and what bounds the best temperature.

With $\beta = 1/T$, the NLL of a row is $\log(A + t) - \beta \log p_y$, where $A = \sum_i p_i^\beta$ is over the classes
that are known and $t = \sum_j q_j^\beta$ over the completion. $q^\beta$ is concave for $T > 1$ and convex for $T < 1$,
so $t$ lies between its values at the greedy fill and at even shares (see `tails`), and so does the NLL.

The best temperature is where the slope in $\beta$, the mean of $G - \log p_y$ over rows, crosses 0, with

$$ G = \frac{A' + \sum_j q_j^\beta \log q_j}{A + \sum_j q_j^\beta}, \qquad A' = \sum_i p_i^\beta \log p_i. $$

For every completion the slope rises with $\beta$ (the NLL is convex). So do its largest and its smallest value over
completions, and where these two cross 0 the range of the best temperatures ends. They can be taken row by row. $G$ is
the largest possible if and only if no completion makes $\sum_j h(q_j)$ larger, with $h(q) = q^\beta (\log q - G)$
(Dinkelbach). For $T > 1$ h is convex up to some q and concave beyond, for $T < 1$ concave first; so by its envelopes
the extremes have at most two levels, and one free number, in which $G$ has a single extreme:

- $T > 1$: $G$ is largest with $r / b$ classes at $b$, none in the others; smallest with all at $a$ but some at the cap.
- $T < 1$: the other way round.

Here $a$ runs from 0 to the even share, and $b$ from there to the cap; the greedy fill and even shares are the ends of
both. The numbers of classes are not rounded, so the range is never too narrow, and too wide by what one class of a row
can do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from focalcal.metrics.truncated.unlisted_classes import TINY, Tail

# A class with exp(-60) of what the first one has changes no digit, nor do all classes of a vocabulary together.
_NOTHING = 60.0
_BISECTIONS = 60


@dataclass(frozen=True)
class Known:
    r"""What the known classes of each row add up to at some $\beta$: $A$, $A'$, and $\beta$ itself."""

    total: Tensor
    weighted: Tensor
    inverse_temperature: float


# Of a tail, levels and how many classes have them: each (levels, n). All of it relative to the likeliest class.
Completion: TypeAlias = Callable[["LogTail", Known], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class LogTail:
    """The classes beyond the list: their mass, the logarithm of the cap, and their number, (n,) each."""

    mass: Tensor
    cap: Tensor
    count: Tensor

    @staticmethod
    def of(mass: Tensor, cap: Tensor, count: Tensor) -> LogTail:
        """A tail whose cap is also at most its mass: then the greedy fill of a small mass is one whole class."""
        return LogTail(mass, torch.where(mass > 0, torch.minimum(cap, torch.log(mass)), cap), count)

    @property
    def even(self) -> Tensor:
        """The logarithm of even shares; the cap where there is nothing to share."""
        shares = torch.log(self.mass / self.count.clamp_min(1))
        return torch.where(self.mass > 0, torch.minimum(shares, self.cap), self.cap)


def greedy_fill(tail: LogTail, known: Known) -> tuple[Tensor, Tensor]:
    """As many classes as possible at the cap, one with what is left.

    >>> tail, known = LogTail.of(*torch.tensor([[0.5], [-1.5], [4.0]])), Known(*torch.tensor([[1.2], [-0.3]]), 0.5)
    >>> levels, counts = greedy_fill(tail, known)
    >>> levels.exp().squeeze(), counts.squeeze()
    (tensor([0.2231, 0.0537]), tensor([2., 1.], dtype=torch.float64))
    """
    full, left = Tail(tail.mass, tail.cap.exp(), tail.count).greedy_fill()
    some = left > 0
    last = torch.where(some, torch.log(left.clamp_min(TINY)), tail.cap)
    return torch.stack([tail.cap, last]), torch.stack([full, some.double()])


def even_shares(tail: LogTail, known: Known) -> tuple[Tensor, Tensor]:
    """The same for all classes.

    >>> tail, known = LogTail.of(*torch.tensor([[0.5], [-1.5], [4.0]])), Known(*torch.tensor([[1.2], [-0.3]]), 0.5)
    >>> even_shares(tail, known)[0].exp()
    tensor([[0.1250]])
    """
    return tail.even.unsqueeze(0), torch.where(tail.mass > 0, tail.count, 0.0).unsqueeze(0)


def largest_mean(tail: LogTail, known: Known) -> tuple[Tensor, Tensor]:
    """The largest G of all completions.

    >>> tail, known = LogTail.of(*torch.tensor([[0.5], [-1.5], [4.0]])), Known(*torch.tensor([[1.2], [-0.3]]), 0.5)
    >>> levels, counts = largest_mean(tail, known)  # T = 2: all at the cap, in a number of classes that is not rounded
    >>> levels.exp(), counts
    (tensor([[0.2231]], dtype=torch.float64), tensor([[2.2408]], dtype=torch.float64))
    """
    return (_some_at_one_level if known.inverse_temperature < 1 else _some_at_the_cap)(tail, known)


def smallest_mean(tail: LogTail, known: Known) -> tuple[Tensor, Tensor]:
    """The smallest G of all completions.

    >>> tail, known = LogTail.of(*torch.tensor([[0.5], [-1.5], [4.0]])), Known(*torch.tensor([[1.2], [-0.3]]), 0.5)
    >>> levels, counts = smallest_mean(tail, known)  # T = 2: none at the cap, all at even shares
    >>> levels[1].exp(), counts.squeeze()
    (tensor([0.1250]), tensor([0., 4.]))
    """
    return (_some_at_the_cap if known.inverse_temperature < 1 else _some_at_one_level)(tail, known)


def _some_at_one_level(tail: LogTail, known: Known) -> tuple[Tensor, Tensor]:
    r"""The extreme G with $r / b$ classes at $b$ and none in the others, in closed form.

    With $z = \log b$ the sum of powers is $r e^{(\beta-1) z}$, and $dG/dz = 0$ where

    $$ 1 + \frac{r}{A} e^{(\beta - 1) z} + (\beta - 1)(z - A'/A) = 0, \quad\text{so}\quad
       z = \frac{A'}{A} - \frac{1 + W(\frac{r}{A} e^{(\beta - 1) A'/A - 1})}{\beta - 1}. $$

    At $\beta = 1$ that is minus infinity, and even shares come out, which then have the smallest G.
    """
    from scipy.special import lambertw  # here, so that `import focalcal` brings in torch and numpy only

    step, mean = known.inverse_temperature - 1, known.weighted / known.total
    w = torch.from_numpy(lambertw((tail.mass / known.total * torch.exp(step * mean - 1)).numpy()).real)
    level = (mean - (1 + w) / torch.tensor(step, dtype=mean.dtype)).clamp(tail.even, tail.cap)
    return level.unsqueeze(0), (tail.mass * torch.exp(-level)).unsqueeze(0)


def _some_at_the_cap(tail: LogTail, known: Known) -> tuple[Tensor, Tensor]:
    r"""The extreme G with all classes at $a$, but as many at the cap as there is mass for.

    Along $a$, G goes to its extreme as long as the tangent of h at $a$ passes $h(c)$ on the right side: where even
    shares are not the extreme yet, the place is found by bisection.
    """
    levels = torch.stack([tail.cap, tail.even])
    counts = torch.stack([torch.zeros_like(tail.mass), torch.where(tail.mass > 0, tail.count, 0.0)])
    inside = ((tail.mass > 0) & (_beyond(tail.even, tail, known) < 0)).nonzero().squeeze(1)
    if len(inside):
        tail = LogTail(tail.mass[inside], tail.cap[inside], tail.count[inside])
        known = Known(known.total[inside], known.weighted[inside], known.inverse_temperature)
        high = tail.even
        low = torch.minimum(high, -(torch.log(tail.count) + _NOTHING) / known.inverse_temperature)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            right = _beyond(middle, tail, known) > 0
            low, high = torch.where(right, middle, low), torch.where(right, high, middle)
        levels[1, inside], counts[:, inside] = low, torch.stack(_split(low, tail))
    return levels, counts


def _split(level: Tensor, tail: LogTail) -> tuple[Tensor, Tensor]:
    """How many classes are at the cap and how many at the level, so that they have the mass together."""
    cap, low = tail.cap.exp(), level.exp()
    at_cap = ((tail.mass - tail.count * low) / (cap - low).clamp_min(TINY)).clamp_min(0).minimum(tail.count)
    return at_cap, tail.count - at_cap


def _beyond(level: Tensor, tail: LogTail, known: Known) -> Tensor:
    r"""Positive where the extreme lies at a higher level: $\pm (h(a) + h'(a)(c - a) - h(c))$, + for $T \le 1$.

    Divided by what keeps it finite, as only the sign is asked for.
    """
    beta = known.inverse_temperature
    at_cap, at_level = _split(level, tail)
    of_cap, of_level = at_cap * torch.exp(beta * tail.cap), at_level * torch.exp(beta * level)
    mean = (known.weighted + of_cap * tail.cap + of_level * level) / (known.total + of_cap + of_level)
    down, keep = level - tail.cap, max(1 - beta, 0.0)
    at_a, at_c = level - mean, tail.cap - mean
    slope = torch.exp((beta - 1 + keep) * down) * (beta * at_a + 1) * -torch.expm1(down)
    tangent = torch.exp((beta + keep) * down) * at_a + slope - torch.exp(keep * down) * at_c
    return -tangent if beta < 1 else tangent
