"""What scores can be: logits, log-probabilities or probabilities; and one as the other."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from focalcal.core.focal import wide_dtype

Kind = Literal["logits", "log_probs", "probs"]
KINDS = ("logits", "log_probs", "probs")

# torch's softmax over the last dimension is vectorised from this many classes on.
_VECTOR = 16


def logits_of(scores: Tensor, kind: Kind) -> Tensor:
    """Scores of any kind as finite logits: a probability of 0 becomes the smallest normal number of its precision.

    >>> logits_of(torch.tensor([[0.5, 0.5]]), "probs")
    tensor([[-0.6931, -0.6931]])
    """
    tiny = torch.finfo(scores.dtype).tiny
    if kind == "probs":
        return torch.log(scores.clamp(min=tiny))
    return scores.clamp(min=math.log(tiny)) if kind == "log_probs" else scores


def probabilities(scores: Tensor, kind: Kind) -> Tensor:
    """Probabilities (n, K) of scores of any kind, in their precision.

    >>> probabilities(torch.zeros(1, 4), "logits")
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    shares = scores if kind == "probs" else torch.softmax(padded(scores), 1)[:, : scores.shape[1]]
    # The sum in float64: with 50,000 classes float32 is off by 1e-5.
    return (shares / shares.sum(1, keepdim=True, dtype=wide_dtype(scores.device)).to(scores.dtype)).contiguous()


def padded(scores: Tensor) -> Tensor:
    """The scores with impossible classes behind, if there are so few that torch's softmax would be slow."""
    if scores.shape[1] >= _VECTOR or scores.device.type != "cpu":
        return scores
    padded = scores.new_full((len(scores), _VECTOR), torch.finfo(scores.dtype).min / 2)  # finite: 0 times it is 0
    padded[:, : scores.shape[1]] = scores
    return padded
