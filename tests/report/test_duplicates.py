"""Rows that occur more than once are counted, and rows of a fit are found among those that are scored."""

from __future__ import annotations

import numpy as np
import pytest

from focalcal.report.duplicates import count_duplicates


@pytest.mark.parametrize(("dtype", "num_classes"), [(np.float16, 2), (np.float32, 7), (np.float64, 3000)])
def test_duplicates_are_counted_after_their_first_row(dtype: type, num_classes: int) -> None:
    scores = np.random.default_rng(0).normal(size=(900, num_classes)).astype(dtype)
    unique = len(np.unique(scores, axis=0))
    scores[[5, 700, 899]] = scores[1]
    assert count_duplicates(scores) == 900 - len(np.unique(scores, axis=0)) >= 3
    assert unique - 3 <= len(np.unique(scores, axis=0))


def test_rows_that_hold_the_same_numbers_in_another_order_are_no_duplicates() -> None:
    assert count_duplicates(np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 0.0], [0.0, 3.0]])) == 0


def test_minus_zero_is_zero() -> None:
    assert count_duplicates(np.array([[0.0, 1.0], [-0.0, 1.0]])) == 1


def test_duplicates_of_binary_scores_are_equal_numbers() -> None:
    assert count_duplicates(np.array([0.5, 0.25, 0.5, 0.5])) == 2
