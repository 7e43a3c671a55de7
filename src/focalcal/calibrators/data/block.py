"""Some rows, as fits see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from focalcal.core.focal import wide_dtype
from focalcal.core.score_kinds import Kind, logits_of
from focalcal.predictions.arrays import Chunk


@dataclass(frozen=True)
class Block:
    """Some rows: logits (n, K) in float32 or float64, labels (n,) and weights (n,) in float64, or None."""

    logits: Tensor
    labels: Tensor
    weight: Tensor | None

    @staticmethod
    def of(chunk: Chunk, kind: Kind) -> Block:
        """The rows of a chunk of scores of any kind."""
        weight = None
        if chunk.weight is not None:
            weight = torch.from_numpy(chunk.weight).to(chunk.scores.device, wide_dtype(chunk.scores.device))
        return Block(logits_of(chunk.scores, kind), chunk.labels, weight)

    def copy(self) -> Block:
        """The same rows in memory of their own: a batch may be overwritten by the next one."""
        return Block(self.logits.clone(), self.labels.clone(), None if self.weight is None else self.weight.clone())

    def split(self, values: int) -> Iterator[Block]:
        """The rows in smaller blocks of about so many logits."""
        rows = max(1, values // self.logits.shape[1])
        for start in range(0, len(self.labels), rows):
            part = slice(start, start + rows)
            yield Block(self.logits[part], self.labels[part], None if self.weight is None else self.weight[part])

    def mean_sum(self, column: Tensor) -> float:
        """The weighted sum of a column (n,) of the rows."""
        column = column.to(wide_dtype(column.device))
        return float(column.sum() if self.weight is None else (column * self.weight).sum())
