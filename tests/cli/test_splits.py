"""Which rows are fitted to and which are scored."""

from __future__ import annotations

import numpy as np
import pytest

import focalcal as fc
from focalcal.cli.splits import SplitOptions, divide, only
from focalcal.report.duplicates import count_shared
from focalcal.report.hold_out import hold_out
from tests.cli.tools import halves, predictions


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_a_held_out_share_is_drawn_from_every_class_alike_and_by_the_seed(share):
    table = predictions(1000)
    fit, score = hold_out(table, share, seed=3)
    assert score.num_rows == round(1000 * share)
    assert fit.num_rows + score.num_rows == 1000
    wanted = share * np.bincount(table.labels)
    assert np.abs(np.bincount(score.labels, minlength=4) - wanted).max() <= 1
    again, other = hold_out(table, share, seed=3)[1], hold_out(table, share, seed=4)[1]
    np.testing.assert_array_equal(again.scores, score.scores)
    assert not np.array_equal(other.scores, score.scores)


def test_no_row_is_both_fitted_and_scored():
    fit, score = hold_out(predictions(501), 0.5, seed=0)
    assert count_shared(fit, score) == 0
    assert count_shared(fit, fit) == fit.num_rows


def test_a_share_of_too_few_rows_is_refused():
    with pytest.raises(fc.InputError, match="too few rows"):
        hold_out(predictions(3), 0.1, seed=0)


def test_the_same_scores_with_another_label_are_another_row():
    table = predictions()
    other = predictions()
    other.labels[:] = (other.labels + 1) % 4
    assert count_shared(table, other) == 0


def test_rows_are_the_same_in_either_precision():
    table = predictions()
    wide = predictions().take(np.arange(400))
    object.__setattr__(wide, "scores", wide.scores.astype(np.float64))
    assert count_shared(table, wide) == 400


def test_validation_splits_of_other_names_are_found():
    for name in ("validation", "valid", "dev"):
        table = predictions(split=np.where(halves(400) == "val", name, "test"))
        assert f"split {name} (200 rows)" in divide(table, None, SplitOptions()).words


def test_rows_of_one_split_can_be_held_out_from():
    table = predictions(split=halves(400))
    division = divide(table, None, SplitOptions(split="val", holdout=0.5))
    assert division.fit.num_rows == division.score.num_rows == 100
    assert set(division.fit.split) == set(division.score.split) == {"val"}


def test_a_file_of_one_split_is_taken_whole():
    table = predictions(split=np.full(400, "anything"))
    assert only(table, None).num_rows == 400
