r"""What each row of scores says: confidence, correctness, NLL, Brier score, entropy, rank of the label.

With $t$ the predicted class, $p$ proportional to the probabilities of a row (its shares) and $r = \sum_{j \ne t} p_j$,
everything is taken from $r$ and not from $1 - p_t$, so that nothing cancels however sure the row is:

$$ \text{confidence} = \frac{p_t}{p_t + r}, \qquad -\log p_y = (x_t - x_y) + \log(1 + r / p_t). $$

Probabilities and log-probabilities have rows that sum to 1, as `with_unit_sums` makes them: the confidence is one of
them, unchanged. What a row yields does not depend on the rows beside it, so scores can be read chunk by chunk.

`DefinedRows` is the definition; `cpp/rows.h` computes the same in one pass through memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import Array
from focalcal.core.focal import wide_dtype
from focalcal.core.masking import mask_limit, unify_masks
from focalcal.core.score_kinds import KINDS, Kind, probabilities
from focalcal.kernels.class_bins import ClassBinSums
from focalcal.kernels.compiled import kernels_for, row_layout, threads_for, with_adjacent_classes

# The columns in the order in which the compiled kernel takes their addresses, with their types; None is that of the
# confidence, which keeps the precision of the scores (float32 for half precision).
_COLUMNS: dict[str, Any] = {
    "confidence": None,
    "correct": np.bool_,
    "nll": np.float64,
    "brier": np.float64,
    "entropy": np.float64,
    "energy": np.float64,
    "rank": np.int64,
    "top": np.int64,
    "top_confidence": np.float64,
}


def read_rows(
    scores: Tensor,
    labels: Tensor | None,
    kind: Kind,
    names: Sequence[str],
    *,
    target: int | None = None,
    class_sums: ClassBinSums | None = None,
    weight: Array | None = None,
) -> dict[str, Array]:
    """The named columns (n,) of scores (n, K) with labels (n,); the bins of every class are added to `class_sums`.

    `target` is the class whose confidence is meant, None for the predicted one; `top` is always the predicted class,
    `top_confidence` its probability in float64 (NaN where a row has NaN or an infinite logit), and `energy` the
    logsumexp of logits. The confidence keeps the scores' precision, but at least float32; everything else is float64.
    Masked classes may be given in any of the ways of `core.masking`. Weights (n,) matter to `class_sums` alone.

    >>> read_rows(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]), "logits", ["nll"])["nll"].round(4)
    array([0.1269, 0.6931])
    """
    kernels = kernels_for(scores)
    if kernels is None:
        return _read_by_definition(scores, labels, kind, names, target, class_sums, weight)
    limit = -np.inf if kind == "probs" else mask_limit(scores.dtype)
    if kind != "logits" and scores.dtype.itemsize == 2:
        scores = scores.float()
    scores = with_adjacent_classes(scores)
    precision = np.float64 if scores.dtype == torch.float64 else np.float32
    columns = {name: np.empty(len(scores), _COLUMNS[name] or precision) for name in names}
    found = None if class_sums is None else ClassBinSums(class_sums.num_classes, class_sums.num_bins)
    labels = None if labels is None else labels.contiguous()
    kernels.rows(
        *row_layout(scores),
        0 if labels is None else labels.data_ptr(),
        0 if weight is None else weight.ctypes.data,
        KINDS.index(kind),
        -1 if target is None else target,
        limit,
        *(columns[name].ctypes.data if name in columns else 0 for name in _COLUMNS),
        *((0, 0, 0) if found is None else (found.num_bins, found.sums.data_ptr(), found.whole[2].data_ptr())),
        threads_for(scores.numel()),
    )
    if class_sums is not None and found is not None:
        class_sums.take(found, len(scores), weight)
    return columns


def _read_by_definition(
    scores: Tensor,
    labels: Tensor | None,
    kind: Kind,
    names: Sequence[str],
    target: int | None,
    class_sums: ClassBinSums | None,
    weight: Array | None,
) -> dict[str, Array]:
    given = scores.dtype
    scores = scores if given in (torch.float32, torch.float64) else scores.float()
    scores = scores if kind == "probs" else unify_masks(scores, given)
    rows = DefinedRows(scores, labels, kind, target)
    columns = {name: getattr(rows, name).cpu().numpy() for name in names}
    if class_sums is not None:
        assert labels is not None
        class_sums.add(probabilities(scores, kind), labels, weight)
    return columns


class DefinedRows:
    """The numbers of each row as formulas in torch, on any device; masked classes have the score -inf.

    >>> DefinedRows(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]), "logits").nll
    tensor([0.1269, 0.6931], dtype=torch.float64)
    """

    def __init__(self, scores: Tensor, labels: Tensor | None, kind: Kind, target: int | None = None) -> None:
        self.scores, self.kind, self.target, self._wide = scores, kind, target, wide_dtype(scores.device)
        self._best, self._top = scores.max(1, keepdim=True)
        self._labels = self._top if labels is None else labels.unsqueeze(1)
        self._others = self._shares.scatter(1, self._top, 0.0)  # of the classes that were not predicted
        self.first, self.rest = self._at(self._shares, self._top), self._others.sum(1, dtype=self._wide)
        self.whole = self.first + self.rest

    @cached_property
    def _shares(self) -> Tensor:
        """What is proportional to the probabilities."""
        if self.kind == "logits":
            return torch.exp(self.scores - self._best)
        return self.scores if self.kind == "probs" else self.scores.exp()

    def _at(self, values: Tensor, place: Tensor) -> Tensor:
        """The value of each row at a class (n, 1), in float64."""
        return values.gather(1, place).squeeze(1).to(self._wide)

    @property
    def top(self) -> Tensor:
        """The predicted class: the first of those with the largest score."""
        return self._top.squeeze(1)

    @property
    def surplus(self) -> Tensor:
        """Minus the logarithm of the largest probability."""
        return torch.log1p(self.rest / self.first)

    @property
    def confidence(self) -> Tensor:
        """The probability of the predicted class, or of the target."""
        share = self.first if self.target is None else self._shares[:, self.target].to(self._wide)
        # By rounding a given probability may be above 1.
        return (share / self.whole if self.kind == "logits" else share.clamp(max=1)).to(self.scores.dtype)

    @property
    def top_confidence(self) -> Tensor:
        """The probability of the predicted class in float64; NaN in a row with NaN or an infinite logit."""
        return torch.where(self._best.squeeze(1) < float("inf"), self.first / self.whole, float("nan"))

    @property
    def correct(self) -> Tensor:
        """Whether the predicted class, or the target, is the label."""
        return self._labels.squeeze(1) == (self.top if self.target is None else self.target)

    @property
    def energy(self) -> Tensor:
        """The logsumexp of the logits."""
        return self._best.squeeze(1).to(self._wide) + self.surplus

    @property
    def nll(self) -> Tensor:
        """Minus the logarithm of the label's probability."""
        best, label = self._at(self.scores, self._top), self._at(self.scores, self._labels)
        return (torch.log(best) - torch.log(label) if self.kind == "probs" else best - label) + self.surplus

    @property
    def brier(self) -> Tensor:
        """The squared error of the probability vector."""
        squares = self._others.square().sum(1, dtype=self._wide)
        # All in shares, whose sum is not quite 1: the label's probability 1 is `whole`.
        missed = self.first.square() + self.whole * (self.whole - 2 * self._at(self._others, self._labels))
        at_top = torch.where(self.top == self._labels.squeeze(1), self.rest.square(), missed)
        return (squares + at_top) / self.whole.square()

    @property
    def entropy(self) -> Tensor:
        """The entropy of the probability vector in nats."""
        if self.kind == "probs":
            spread = torch.log(self.first) * self.rest - torch.xlogy(self._others, self._others).sum(
                1, dtype=self._wide
            )
        else:
            # A class this far behind has probability 0: 0 times infinity must not make it NaN.
            behind = (self.scores - self._best).clamp(min=-1e4)
            spread = -(behind * self._others).sum(1, dtype=self._wide)
        return self.surplus + spread / self.whole

    @property
    def rank(self) -> Tensor:
        """How many classes come before the label: higher scores, and equal ones with lower numbers."""
        mine = self.scores.gather(1, self._labels)
        lower = torch.arange(self.scores.shape[1], device=self.scores.device) < self._labels
        return ((self.scores > mine) | ((self.scores == mine) & lower)).sum(1)
