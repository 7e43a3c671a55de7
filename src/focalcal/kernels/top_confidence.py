"""The predicted class of each row of logits, and its probability."""

from __future__ import annotations

import torch
from torch import Tensor

from focalcal.core.focal import wide_dtype
from focalcal.core.masking import mask_limit
from focalcal.kernels.compiled import kernels_for, row_layout, threads_for, with_adjacent_classes


def top_confidence(logits: Tensor) -> tuple[Tensor, Tensor]:
    r"""The predicted class of each row (N, K) and its probability in float64, as $1 / (1 + \sum_j e^{x_j - x_{top}})$.

    The sum is over the other classes, so a sure row keeps its digits. A row with NaN or plus infinity, and one in which
    every class is masked, has the confidence NaN.

    >>> top_confidence(torch.tensor([[1.0, 3.0, 3.0], [40.0, 0.0, 1.0]]))
    (tensor([1, 0]), tensor([0.4683, 1.0000], dtype=torch.float64))
    """
    logits = logits.detach()
    kernels = kernels_for(logits)
    if kernels is None:
        return _defined(logits)
    rows = with_adjacent_classes(logits)
    predicted = torch.empty(len(rows), dtype=torch.int64)
    confidence = torch.empty(len(rows), dtype=torch.float64)
    threads = threads_for(rows.numel())
    kernels.top_confidence(*row_layout(rows), predicted.data_ptr(), confidence.data_ptr(), threads)
    return predicted, confidence


def _defined(logits: Tensor) -> tuple[Tensor, Tensor]:
    rows = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    top = rows.argmax(1, keepdim=True)
    best = rows.gather(1, top)
    others = torch.exp(rows - best).scatter_(1, top, 0.0).sum(1, keepdim=True)
    usable = (best > mask_limit(logits.dtype)) & (best < float("inf"))
    confidence = torch.where(usable, 1 / (1 + others.to(wide_dtype(rows.device))), float("nan"))
    return top.squeeze(1), confidence.squeeze(1)
