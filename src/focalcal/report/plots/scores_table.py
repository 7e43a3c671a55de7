"""A `PredictionTable` of scores and labels that were given as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from focalcal.core.checks import Array, ArrayLike, require, to_float_tensor
from focalcal.core.score_kinds import Kind
from focalcal.files.prediction_table import PredictionTable


def table_of(
    scores: Any,
    labels: ArrayLike | None,
    *,
    kind: Kind,
    sample_weight: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
) -> PredictionTable:
    """Scores (N, K), or (N,) of the positive class, and what belongs to them.

    >>> table_of([[2.0, 0.0]], [0], kind="logits", class_names=["cat", "dog"]).num_classes
    2
    """
    require(labels is not None, "labels", "must be given beside scores", None)
    read = to_float_tensor(scores, "scores").detach().cpu()
    read = read.float() if read.dtype in (torch.float16, torch.bfloat16) else read
    require(read.dim() in (1, 2), "scores", "must have shape (N, K) or (N,)", tuple(read.shape))
    weights = None if sample_weight is None else _array(sample_weight).astype(float)
    names = None if class_names is None else tuple(class_names)
    return PredictionTable("scores", read.numpy(), kind, labels=_array(labels), weights=weights, class_names=names)


def _array(values: Any) -> Array:
    return np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)
