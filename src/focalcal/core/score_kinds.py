"""What scores can be: logits, log-probabilities or probabilities; and one as the other."""

from __future__ import annotations

import math
from typing import Literal, cast

import torch
from torch import Tensor

from focalcal.core.checks import require
from focalcal.core.focal import wide_dtype

Kind = Literal["logits", "log_probs", "probs"]
KINDS = ("logits", "log_probs", "probs")
# What callers may say: unnormalised log-scores are logits by another name.
GivenKind = Literal["logits", "log_probs", "probs", "log_scores"]
GIVEN_KINDS = (*KINDS, "log_scores")

# torch's softmax over the last dimension is vectorised from this many classes on.
_VECTOR = 16

# Probabilities are often means over models or trees: over so many at least, rounding is allowed for.
_MEMBERS = 128
# What rounding may take from the sum of a row, or add to it, before it says too little about the probabilities.
_MOST_ROUNDING = 0.1


def plain_kind(kind: object) -> Kind:
    """The kind that a caller named, checked.

    Log-scores that are not normalised, such as sums of log-likelihoods, are read as logits: their exponentials are
    divided by their sum, which is the softmax.

    >>> plain_kind("log_scores"), plain_kind("probs")
    ('logits', 'probs')
    """
    known = isinstance(kind, str) and kind in GIVEN_KINDS
    require(known, "kind", f"must be one of {', '.join(GIVEN_KINDS)}", repr(kind))
    return "logits" if kind == "log_scores" else cast(Kind, kind)


def logits_of(scores: Tensor, kind: Kind) -> Tensor:
    """Scores of any kind as finite logits: a probability of 0 becomes the smallest normal number of its precision.

    >>> logits_of(torch.tensor([[0.5, 0.5]]), "probs")
    tensor([[-0.6931, -0.6931]])
    """
    if kind == "probs":
        return torch.log(positive(scores))
    return scores.clamp(min=math.log(torch.finfo(scores.dtype).tiny)) if kind == "log_probs" else scores


def positive(probs: Tensor) -> Tensor:
    """Probabilities with the smallest normal number of their precision in the place of 0.

    >>> positive(torch.tensor([[1.0, 0.0]])).log()
    tensor([[  0.0000, -87.3365]])
    """
    return probs.clamp(min=torch.finfo(probs.dtype).tiny)


def probabilities(scores: Tensor, kind: Kind) -> Tensor:
    """Probabilities (n, K) of scores of any kind, in their precision; given ones are as `with_unit_sums` leaves them.

    >>> probabilities(torch.zeros(1, 4), "logits")
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    if kind != "logits":
        return scores if kind == "probs" else scores.exp()
    shares = torch.softmax(padded(scores), 1)[:, : scores.shape[1]]
    # The sum in float64: with 50,000 classes float32 is off by 1e-5.
    return (shares / shares.sum(1, keepdim=True, dtype=wide_dtype(scores.device)).to(scores.dtype)).contiguous()


def log_probabilities(scores: Tensor, kind: Kind) -> Tensor:
    """Finite log-probabilities (n, K) of scores of any kind, in their precision; `logits_of` says what becomes of 0.

    >>> log_probabilities(torch.zeros(1, 2), "logits")
    tensor([[-0.6931, -0.6931]])
    """
    return torch.log_softmax(scores, 1) if kind == "logits" else logits_of(scores, kind)


def with_unit_sums(scores: Tensor, kind: Kind, epsilon: float) -> Tensor:
    r"""Probabilities or log-probabilities (n, K) whose rows sum to 1; logits as they are.

    A row whose sum is 1 within rounding is left as it is, because a division would split equal probabilities and push
    those on the edge of a bin across it. All other rows are divided by their sum. `epsilon` is that of the precision
    in which the scores were given.

    What rounding can do, with $u = \epsilon / 2$: a softmax adds up K numbers, off by $(K - 1) u$ at most, and rounds
    each quotient, off by $u$; a mean over M models is off by $M u$ more, and the sum taken here by $(K - 1) u$.
    Together that is below $(K + M / 2)\, \epsilon$. Logarithms add the entropy times $u$, which is below $u \log K$.

    >>> with_unit_sums(torch.tensor([[0.35, 0.65], [0.3, 0.69999]]).double(), "probs", 2**-52)
    tensor([[0.3500, 0.6500],
            [0.3000, 0.7000]], dtype=torch.float64)
    """
    if kind == "logits":
        return scores
    sums = (scores if kind == "probs" else scores.exp()).sum(1, dtype=wide_dtype(scores.device))
    num_classes = scores.shape[1]
    off = ((sums - 1).abs() > rounding_of_sums(num_classes, epsilon)).nonzero().squeeze(1)
    if len(off) and scores.dtype == torch.float64:
        # What was computed in float32 has its rounding, also after it was widened.
        rows, single = scores[off], torch.finfo(torch.float32).eps
        near = (sums[off] - 1).abs() <= rounding_of_sums(num_classes, single)
        widened = (rows.float().double() == rows).all(1) & near
        off = off[~widened]
    if not len(off):
        return scores
    total = sums[off].unsqueeze(1)
    summed = scores[off] / total if kind == "probs" else scores[off] - torch.log(total)
    return scores.index_copy(0, off, summed.to(scores.dtype))


def rounding_of_sums(num_classes: int, epsilon: float) -> float:
    """How far a row of probabilities may be from 1 by rounding alone; `with_unit_sums` derives it.

    >>> rounding_of_sums(10, 2**-52) < 1e-13
    True
    """
    return (num_classes + _MEMBERS / 2) * epsilon


def rounded_to(probs: Tensor, sums: Tensor, epsilon: float) -> int | None:
    r"""The decimals to which probabilities (n, K) were rounded, if that explains their `sums` (n,); else None.

    K numbers rounded to d decimals are together off by $K\, 10^{-d} / 2$ at most. Only 2 to 4 decimals are considered,
    and no sum that is off by more than a tenth. `epsilon` is that of the precision in which the scores were given.

    >>> thirds = torch.full((1, 3), 0.33).double()
    >>> rounded_to(thirds, thirds.sum(1), 2**-52), rounded_to(thirds + 0.01, (thirds + 0.01).sum(1), 2**-52)
    (2, None)
    """
    single = torch.finfo(torch.float32).eps  # numbers may have been float32 before they were widened
    if not len(probs) or epsilon > single:
        return None
    for digits in (2, 3, 4):
        scaled = probs.to(wide_dtype(probs.device)) * 10**digits
        if bool(((scaled - scaled.round()).abs() <= 10**digits * single).all()):
            most = min(probs.shape[1] * 10.0**-digits / 2, _MOST_ROUNDING) + 1e-9
            return digits if bool(((sums - 1).abs() <= most).all()) else None
    return None


def rounding_words(digits: int) -> str:
    """What is said of probabilities that were rounded.

    >>> rounding_words(2)
    'the probabilities were rounded to 2 digits, so that rows do not sum to 1; each row is divided by its sum.'
    """
    return (
        f"the probabilities were rounded to {digits} digits, so that rows do not sum to 1; each row is divided by its "
        "sum."
    )


def padded(scores: Tensor) -> Tensor:
    """The scores with impossible classes behind, if there are so few that torch's softmax would be slow."""
    if scores.shape[1] >= _VECTOR or scores.device.type != "cpu":
        return scores
    padded = scores.new_full((len(scores), _VECTOR), torch.finfo(scores.dtype).min / 2)  # finite: 0 times it is 0
    padded[:, : scores.shape[1]] = scores
    return padded
