r"""What each row of scores says: confidence, correctness, NLL, Brier score, entropy, rank of the label.

With $t$ the predicted class, $p$ proportional to the probabilities of a row and $r = \sum_{j \ne t} p_j$, everything is
taken from $r$ and not from $1 - p_t$, so that nothing cancels however sure the row is:

$$ \text{confidence} = \frac{p_t}{p_t + r}, \qquad -\log p_y = (x_t - x_y) + \log(1 + r / p_t). $$

Probabilities and log-probabilities have rows that sum to 1, as `with_unit_sums` makes them: the confidence is one of
them, unchanged. What a row yields does not depend on the rows beside it, so scores can be read chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from focalcal.core.checks import Array
from focalcal.core.focal import wide_dtype
from focalcal.core.score_kinds import Kind, padded

# From this many classes on, numpy finds the largest score several times faster than torch.
_MANY_CLASSES = 64


class RowStatistics:
    """Numbers of each row of scores (n, K) with labels (n,); each column is a property, computed when first asked for.

    `target` is the class whose confidence is meant, None for the predicted one. The confidence keeps the scores'
    precision; everything else is float64.

    >>> RowStatistics(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]), "logits").nll
    tensor([0.1269, 0.6931], dtype=torch.float64)
    """

    def __init__(self, scores: Tensor, labels: Tensor, kind: Kind, target: int | None = None) -> None:
        self.scores, self.labels, self.kind, self.target = scores, labels, kind, target
        self.wide = wide_dtype(self.scores.device)
        self.best, self.top = _largest(self.scores)
        self._padded = padded(self.scores) if kind == "logits" else self.scores
        self._shares = self._all_shares()
        self._first = self._shares.gather(1, self.top)
        # Both are read before `others` takes the memory.
        self._of_target = None if target is None else self._shares[:, target].to(self.wide, copy=True)
        self._sum = self._shares.sum(1, dtype=self.wide) if self.scores.dtype == torch.float32 else None

    def _all_shares(self) -> Tensor:
        """What is proportional to the probabilities, in memory of its own."""
        if self.kind == "logits":
            return torch.softmax(self._padded, 1)
        return self.scores.clone() if self.kind == "probs" else self.scores.exp()

    @cached_property
    def others(self) -> Tensor:
        """Shares of the classes that were not predicted, 0 at the one that was; in the memory of all shares."""
        return self._shares.scatter_(1, self.top, 0.0)

    @cached_property
    def first(self) -> Tensor:
        """The share of the predicted class."""
        return self._first.squeeze(1).to(self.wide)

    @cached_property
    def rest(self) -> Tensor:
        """The share of all other classes together; float32 shares are so coarse that float64 may subtract them."""
        return self.others.sum(1, dtype=self.wide) if self._sum is None else self.whole - self.first

    @cached_property
    def whole(self) -> Tensor:
        """The sum of all shares, about 1."""
        return self.first + self.rest if self._sum is None else torch.maximum(self._sum, self.first)

    @cached_property
    def surplus(self) -> Tensor:
        """Minus the logarithm of the largest probability."""
        return torch.log1p(self.rest / self.first)

    @property
    def confidence(self) -> Tensor:
        """The probability of the predicted class, or of the target."""
        share = self.first if self._of_target is None else self._of_target
        # By rounding a given probability may be above 1.
        return (share / self.whole if self.kind == "logits" else share.clamp(max=1)).to(self.scores.dtype)

    @property
    def correct(self) -> Tensor:
        """Whether the predicted class, or the target, is the label."""
        return self.labels == (self.top.squeeze(1) if self.target is None else self.target)

    @property
    def energy(self) -> Tensor:
        """The logsumexp of the logits."""
        return self.best.squeeze(1).to(self.wide) + self.surplus

    @property
    def nll(self) -> Tensor:
        """Minus the logarithm of the label's probability."""
        top, label = (column.squeeze(1).to(self.wide) for column in (self.best, self._at_label(self.scores)))
        return (torch.log(top) - torch.log(label) if self.kind == "probs" else top - label) + self.surplus

    @property
    def brier(self) -> Tensor:
        """The squared error of the probability vector."""
        squares = torch.mul(self.others, self.others).sum(1, dtype=self.wide)
        of_label = self._at_label(self.others).squeeze(1).to(self.wide)
        # All in shares, whose sum is not quite 1: the label's probability 1 is `whole`.
        missed = self.first.square() + self.whole * (self.whole - 2 * of_label)
        at_top = torch.where(self.top.squeeze(1) == self.labels, self.rest.square(), missed)
        return (squares + at_top) / self.whole.square()

    @property
    def entropy(self) -> Tensor:
        """The entropy of the probability vector in nats."""
        if self.kind == "probs":
            spread = torch.log(self.first) * self.rest - torch.xlogy(self.others, self.others).sum(1, dtype=self.wide)
        else:
            # A class this far behind has probability 0: 0 times infinity must not make it NaN.
            behind = (self._padded - self.best).clamp_(min=-1e4)
            spread = -behind.mul_(self.others).sum(1, dtype=self.wide)
        return self.surplus + spread / self.whole

    @property
    def rank(self) -> Tensor:
        """How many classes come before the label: higher scores, and equal ones with lower numbers."""
        below = (self.top.squeeze(1) != self.labels).nonzero().squeeze(1)  # the others come first
        if 2 * len(below) > len(self.labels):  # picking them out would cost more
            return _rank(self.scores, self.labels.unsqueeze(1))
        rank = torch.zeros_like(self.labels)
        if len(below):
            rank[below] = _rank(self.scores[below], self.labels[below].unsqueeze(1))
        return rank

    @property
    def probs(self) -> Tensor:
        """All probabilities (n, K), in the memory of the shares: ask for it last."""
        shares, whole = self.others.scatter_(1, self.top, self._first), self.whole.unsqueeze(1).to(self.scores.dtype)
        return shares.div_(whole)[:, : self.scores.shape[1]] if self.kind == "logits" else shares

    def columns(self, names: Sequence[str]) -> dict[str, Array]:
        """The named columns as arrays (n,)."""
        return {name: getattr(self, name).cpu().numpy() for name in names}

    def _at_label(self, values: Tensor) -> Tensor:
        return values.gather(1, self.labels.unsqueeze(1))


def _largest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score of each row (n, 1) and its class, the first of equal ones."""
    if scores.device.type != "cpu" or scores.shape[1] < _MANY_CLASSES:
        best, top = scores.max(1, keepdim=True)
        return best, top
    top = torch.from_numpy(scores.numpy().argmax(1)).unsqueeze(1)
    return scores.gather(1, top), top


def _rank(scores: Tensor, index: Tensor) -> Tensor:
    """How many classes come before the one at `index` (n, 1)."""
    mine, counted = scores.gather(1, index), torch.empty_like(scores)
    # Counted in floating point, which is faster than in bool and exact up to 16 million classes.
    above = torch.gt(scores, mine, out=counted).sum(1).long()
    tied = (torch.eq(scores, mine, out=counted).sum(1) > 1).nonzero().squeeze(1)
    if len(tied):
        before = torch.arange(scores.shape[1], device=scores.device) < index[tied]
        above[tied] += ((scores[tied] == mine[tied]) & before).sum(1)
    return above
