"""The data sets of the lab: training, validation and test splits, and the facts that a network needs of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import Dataset

Batch: TypeAlias = "tuple[Any, Tensor]"
"""Inputs (a tensor, or anything that a network of the lab takes) and class numbers, one for each row of the logits."""


class Batched(Protocol):
    """A data set that gives whole batches: what torch's loader asks of `__getitems__`, without a list in between.

    >>> rows = TensorRows(torch.zeros(3, 2), torch.tensor([0, 1, 0]))
    >>> hasattr(rows, "__getitems__"), len(rows)
    (True, 3)
    """

    def __len__(self) -> int: ...

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The rows of `indices` as one batch."""
        ...


class TensorRows(Dataset[Any]):
    """Inputs (N, ...) and class numbers (N,) in memory.

    >>> rows = TensorRows(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 0]))
    >>> rows.__getitems__([2, 0])
    (tensor([[4., 5.],
            [0., 1.]]), tensor([0, 0]))
    """

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        return self.inputs[index], self.labels[index]

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The rows of `indices` as one batch."""
        rows = torch.as_tensor(indices)
        return self.inputs[rows], self.labels[rows]


@dataclass(frozen=True)
class DataSplits:
    """A data set, split.

    `augment` changes a training batch at random (with torch's global generator), `prepare` every batch (bytes to
    normalised pixels); both run on the batch's device. `facts` is what a model must know to be built: `channels`,
    `size`, `vocabulary`, `vectors`, `features`. `about` says in one line where the rows come from and how they were
    split. Where a sample gives several rows of logits (the nodes of a tree, the words of a sentence),
    `one_row_a_sample` is false.

    >>> from focalcal_lab.data import load_data
    >>> data = load_data("digits")
    >>> data.num_classes, len(data.train), data.facts["size"]
    (10, 500, 8)
    """

    name: str
    train: Dataset[Any]
    val: Dataset[Any]
    test: Dataset[Any]
    num_classes: int
    class_names: tuple[str, ...] = ()
    augment: Callable[[Any], Any] | None = None
    prepare: Callable[[Any], Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""
    one_row_a_sample: bool = True


class LoadData(Protocol):
    """How a data set is loaded: from `folder` if there is one, else from where the set is public.

    >>> from focalcal_lab.data.synthetic import digits
    >>> load: LoadData = digits
    >>> load(None, seed=0).name
    'digits'
    """

    def __call__(self, folder: Path | None, *, seed: int, **options: Any) -> DataSplits:
        """The data, split by the seed."""
        ...
