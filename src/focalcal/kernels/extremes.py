"""A few numbers about scores that tell whether their values need a closer look, from one pass through memory."""

from __future__ import annotations

import torch
from torch import Tensor

from focalcal.core.focal import wide_dtype
from focalcal.core.score_kinds import Kind
from focalcal.kernels.compiled import kernels_for, row_layout, threads_for, with_adjacent_classes


def extremes(scores: Tensor) -> tuple[float, float, bool]:
    """The lowest and the highest of scores (n, K), and whether one of them is NaN.

    >>> extremes(torch.tensor([[1.0, -2.0], [float("nan"), 0.0]]))
    (-2.0, 1.0, True)
    """
    kernels = kernels_for(scores)
    if kernels is None:
        missing = torch.isnan(scores)
        inf = float("inf")
        return (
            float(torch.where(missing, inf, scores).amin()),
            float(torch.where(missing, -inf, scores).amax()),
            bool(missing.any()),
        )
    scores = with_adjacent_classes(scores)
    lowest, highest, has_nan = kernels.extremes(*row_layout(scores), threads_for(scores.numel()))
    return lowest, highest, has_nan


def largest_sum_error(scores: Tensor, kind: Kind) -> float:
    """How far the sum of a row of probabilities or log-probabilities (n, K) is from 1 at most; NaN where one is NaN.

    >>> largest_sum_error(torch.tensor([[0.5, 0.5], [0.5, 0.75]]), "probs")
    0.25
    """
    kernels = kernels_for(scores)
    if kernels is None:
        # exp in half precision would lose digits that the sum is to be judged by.
        probs = scores if kind == "probs" else scores.to(torch.promote_types(scores.dtype, torch.float32)).exp()
        return float((probs.sum(1, dtype=wide_dtype(scores.device)) - 1).abs().amax())
    scores = with_adjacent_classes(scores)
    error: float = kernels.sum_error(*row_layout(scores), kind == "log_probs", threads_for(scores.numel()))
    return error
