"""Training rows into training and validation, by a stated seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import require
from focalcal.errors import InputError

# 5,000 of CIFAR's 50,000 images and 50 of the 500 of each class of Tiny-ImageNet.
VAL_SHARE = 0.1


@dataclass(frozen=True)
class SplitSizes:
    """How many rows go where.

    `num_val` rows of the training set become validation (a tenth unless it is given), at most `num_train` of the rest
    are trained on, at most `num_test` test rows are kept. Before that, `fraction` keeps this share of the rows of each
    class. With `stratified`, each part has the classes in the proportion of the whole.
    """

    num_val: int | None = None
    num_train: int | None = None
    num_test: int | None = None
    fraction: float = 1.0
    stratified: bool = False

    def __post_init__(self) -> None:
        for name in ("num_val", "num_train", "num_test"):
            value = getattr(self, name)
            whole = value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)
            require(whole, name, "must be a whole number of at least 1", repr(value))
        number = isinstance(self.fraction, int | float) and 0 < self.fraction <= 1
        require(number, "fraction", "must lie in (0, 1]", repr(self.fraction))

    @classmethod
    def read(cls, options: Mapping[str, Any], **defaults: Any) -> SplitSizes:
        """The options of a data set that say how it is split.

        >>> SplitSizes.read({"num_val": 500}, stratified=True)
        SplitSizes(num_val=500, num_train=None, num_test=None, fraction=1.0, stratified=True)
        >>> SplitSizes.read({"num_vals": 500})
        Traceback (most recent call last):
        focalcal.errors.InputError: num_vals: is not an option of this data set; those that split it are num_val, \
num_train, num_test, fraction, stratified.
        """
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise InputError(
                    f"{name}: is not an option of this data set; those that split it are {', '.join(known)}."
                )
        return cls(**{**defaults, **options})


def shuffled(labels: np.ndarray[Any, Any], generator: np.random.Generator, stratified: bool) -> np.ndarray[Any, Any]:
    """All rows in random order; `stratified`, such that every beginning of it has the classes in proportion.

    Row r of the n_c of a class, counted in random order, gets the key (r + 1/2) / n_c. So the rows with keys below t
    are t n_c of each class, rounded.

    >>> order = shuffled(np.array([0] * 6 + [1] * 2), np.random.default_rng(0), stratified=True)
    >>> sorted((np.array([0] * 6 + [1] * 2)[order[:4]]).tolist())
    [0, 0, 0, 1]
    """
    order = generator.permutation(len(labels))
    if not stratified:
        return order
    ranks, counts = ranks_in_class(labels[order])
    return order[np.argsort((ranks + 0.5) / counts, kind="stable")]


def ranks_in_class(labels: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """For each row, how many rows of its class come before it, and how many there are.

    >>> ranks_in_class(np.array([4, 7, 4, 4]))
    (array([0, 0, 1, 2]), array([3, 1, 3, 3]))
    """
    by_class = np.argsort(labels, kind="stable")
    _, starts, inverse, counts = np.unique(labels[by_class], return_index=True, return_inverse=True, return_counts=True)
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[by_class] = np.arange(len(labels)) - starts[inverse]
    sizes = np.empty(len(labels), dtype=np.int64)
    sizes[by_class] = counts[inverse]
    return ranks, sizes


def divide(labels: Tensor, split: SplitSizes, *, seed: int) -> tuple[Tensor, Tensor]:
    """The rows of training and of validation, each in the order of the file.

    Without `fraction` and `stratified`, validation is the beginning of `default_rng(seed).permutation(N)`.

    >>> train, val = divide(torch.zeros(50), SplitSizes(), seed=0)
    >>> len(train), val
    (45, tensor([ 2,  4, 18, 23, 36]))
    """
    generator = np.random.default_rng(seed)
    classes = labels.numpy()
    rows = np.arange(len(classes))
    if split.fraction < 1:
        order = shuffled(classes, generator, stratified=False)
        ranks, counts = ranks_in_class(classes[order])
        rows = np.sort(order[ranks < np.maximum(1, np.round(split.fraction * counts))])
    num_val = round(VAL_SHARE * len(rows)) if split.num_val is None else split.num_val
    fits = 1 <= num_val < len(rows)
    require(fits, "num_val", f"must leave something to train on, of {len(rows)} rows", num_val, "Give more rows.")
    order = rows[shuffled(classes[rows], generator, split.stratified)]
    train = order[num_val:][: split.num_train]
    return torch.from_numpy(np.sort(train)), torch.from_numpy(np.sort(order[:num_val]))


def first_rows(num_rows: int, limit: int | None, *, seed: int) -> Tensor:
    """All rows, or `limit` of them at random, in the order of the file.

    >>> first_rows(3, None, seed=0), len(first_rows(100, 7, seed=0))
    (tensor([0, 1, 2]), 7)
    """
    if limit is None or limit >= num_rows:
        return torch.arange(num_rows)
    return torch.from_numpy(np.sort(np.random.default_rng(seed).permutation(num_rows)[:limit]))
