"""The log-odds of classes, from logits: exact however sure a row is, and differentiable to any order."""

from __future__ import annotations

import torch
from torch import Tensor

from focalcal.core.focal import SURE_ODDS, wide_dtype
from focalcal.core.masking import mask_limit

_MASKED = mask_limit(torch.float32)  # that of bfloat16 and float64, too; ONNX clips at numbers of float32 only


def log_odds(logits: Tensor, labels: Tensor) -> Tensor:
    """The log-odds (N, 1) of the labelled class, in float64; differentiable, and exact however sure the row is.

    >>> log_odds(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))  # 2 - log 2
    tensor([[1.3069]], dtype=torch.float64)
    """
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    index = labels.unsqueeze(1)
    others = logits.scatter(1, index, float("-inf"))
    best = others.detach().amax(1, keepdim=True).clamp_min(_MASKED)
    wide = wide_dtype(logits.device)
    rest = torch.exp(others - best).sum(1, keepdim=True).to(wide)  # at least 1, or 0 where no other class is left
    true = finite_or_nan(logits.gather(1, index).to(wide))
    alone = (rest == 0) & (true > float("-inf"))
    odds = (true - best.to(wide)) - torch.log(torch.where(rest == 0, 1.0, rest))
    return torch.where(alone, SURE_ODDS, odds)


def finite_or_nan(logits: Tensor) -> Tensor:
    """Logits with NaN in place of plus infinity, of which there is no softmax; minus infinity is a mask, and stays.

    >>> finite_or_nan(torch.tensor([1.0, float("inf"), float("-inf")]))
    tensor([1., nan, -inf])
    """
    return torch.where(logits == float("inf"), float("nan"), logits)


def all_log_odds(logits: Tensor) -> Tensor:
    """The log-odds (N, K) of every class, in float64; differentiable.

    >>> all_log_odds(torch.tensor([[2.0, 0.0]]))
    tensor([[ 2., -2.]], dtype=torch.float64)
    """
    logits = logits.to(wide_dtype(logits.device))
    top = logits.argmax(1, keepdim=True)
    log_probs = torch.log_softmax(logits, 1)
    # Every class but the first is at most 1/2, so 1 - p does not cancel; the first is taken from the others.
    log_not_p = torch.log1p(-torch.exp(log_probs).scatter(1, top, 0.0))
    return (log_probs - log_not_p).scatter(1, top, log_odds(logits, top.squeeze(1)))
