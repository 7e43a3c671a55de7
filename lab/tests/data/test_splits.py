from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from focalcal.errors import InputError
from focalcal_lab.data.splits import SplitSizes, divide, first_rows, ranks_in_class, shuffled


def test_fifty_thousand_rows_become_the_papers_sizes_by_a_permutation_that_anyone_can_repeat() -> None:
    train, val = divide(torch.arange(50_000) % 10, SplitSizes(), seed=7)
    assert (len(train), len(val)) == (45_000, 5_000)
    order = np.random.default_rng(7).permutation(50_000)
    assert set(val.tolist()) == set(order[:5000].tolist())
    assert torch.equal(torch.cat([train, val]).sort().values, torch.arange(50_000))
    assert torch.equal(train, train.sort().values)


def test_another_seed_gives_another_split_and_the_same_seed_the_same() -> None:
    labels = torch.arange(1000) % 10
    assert torch.equal(divide(labels, SplitSizes(), seed=1)[1], divide(labels, SplitSizes(), seed=1)[1])
    assert not torch.equal(divide(labels, SplitSizes(), seed=1)[1], divide(labels, SplitSizes(), seed=2)[1])


@given(st.lists(st.integers(1, 30), min_size=2, max_size=6), st.floats(0.05, 0.5), st.integers(0, 5))
def test_every_beginning_of_a_stratified_order_has_the_classes_in_proportion(
    counts: list[int], share: float, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    order = shuffled(labels, np.random.default_rng(seed), stratified=True)
    assert sorted(order) == list(range(len(labels)))
    num = round(share * len(labels))
    taken = np.bincount(labels[order[:num]], minlength=len(counts))
    # Each class is cut at the same key; the cut lies within a row of the share that was asked for.
    assert (
        np.abs(taken - num * np.array(counts) / len(labels)) <= 1 + np.array(counts) * len(counts) / len(labels)
    ).all()


def test_equal_classes_are_split_exactly() -> None:
    labels = torch.arange(2000) % 20
    train, val = divide(labels, SplitSizes(stratified=True), seed=0)
    assert torch.equal(labels[val].bincount(), torch.full((20,), 10))
    assert torch.equal(labels[train].bincount(), torch.full((20,), 90))


def test_fraction_keeps_a_share_of_each_class_and_then_splits_that() -> None:
    labels = torch.tensor([0] * 500 + [1] * 300 + [2] * 4)
    train, val = divide(labels, SplitSizes(fraction=0.1, num_val=20), seed=3)
    both = torch.cat([train, val])
    assert len(set(both.tolist())) == len(both)
    assert labels[both].bincount().tolist() == [50, 30, 1]  # a class never vanishes
    assert len(val) == 20


def test_fewer_training_rows_leave_validation_as_it_is() -> None:
    labels = torch.arange(500) % 5
    whole_train, whole_val = divide(labels, SplitSizes(), seed=0)
    train, val = divide(labels, SplitSizes(num_train=30), seed=0)
    assert torch.equal(val, whole_val)
    assert len(train) == 30
    assert set(train.tolist()) < set(whole_train.tolist())
    assert len(divide(labels, SplitSizes(num_train=10_000), seed=0)[0]) == 450


def test_ranks_agree_with_counting() -> None:
    labels = np.random.default_rng(0).integers(0, 4, 50)
    ranks, counts = ranks_in_class(labels)
    assert ranks.tolist() == [int((labels[:row] == labels[row]).sum()) for row in range(50)]
    assert counts.tolist() == [int((labels == label).sum()) for label in labels]


def test_first_rows_are_distinct_and_sorted() -> None:
    rows = first_rows(100, 10, seed=1)
    assert len(set(rows.tolist())) == 10
    assert torch.equal(rows, rows.sort().values)
    assert torch.equal(first_rows(5, 10, seed=1), torch.arange(5))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_val": 0}, "num_val"),
        ({"num_val": True}, "num_val"),
        ({"num_train": 1.5}, "num_train"),
        ({"num_test": -1}, "num_test"),
        ({"fraction": 0}, "fraction"),
        ({"fraction": 1.5}, "fraction"),
        ({"fraction": "10 %"}, "fraction"),
        ({"valid_size": 0.1}, "valid_size"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"^{said}: "):
        SplitSizes.read(options)


def test_validation_must_leave_something_to_train_on() -> None:
    with pytest.raises(InputError, match="num_val: must leave something to train on, of 10 rows; got 10"):
        divide(torch.zeros(10), SplitSizes(num_val=10), seed=0)
    with pytest.raises(InputError, match="num_val"):
        divide(torch.zeros(4), SplitSizes(), seed=0)
