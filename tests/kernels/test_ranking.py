"""Bins with fixed edges, rankings and what is read from them: compiled loops against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focalcal.core import binning
from focalcal.core.mmce import laplacian_pair_sum
from focalcal.core.ranking import Ranking, pack
from focalcal.core.smooth_ece import smooth_calibration_error
from focalcal.kernels.bins import bin_predictions
from focalcal.kernels.ranking import (
    area_under_roc,
    largest_drift,
    ranked_keys,
    ranked_rows,
    residual_pair_sum,
    risk_area,
    smooth_error,
)


def drawn(rows: int, dtype: type, *, digits: int | None = None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Confidences, many of them tied where they are rounded, and correctness."""
    generator = np.random.default_rng(seed)
    confidence = generator.beta(4, 1, rows)
    confidence = confidence if digits is None else confidence.round(digits)
    return confidence.astype(dtype), generator.random(rows) < confidence


@pytest.mark.parametrize("digits", [None, 2, 0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 2, 1000, 70_000])
def test_rankings_equal_the_definition(rows, dtype, digits):
    confidence, correct = drawn(rows, dtype, digits=digits)
    found, expected = ranked_rows(confidence, correct), Ranking.of_rows(confidence, correct)
    for name in ("value", "count", "mass", "right"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert found.value.dtype == dtype
    assert found.counts_rows


def test_the_number_of_threads_does_not_change_a_long_ranking():
    confidence, correct = drawn(5_000_000, np.float32)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(ranked_rows(confidence, correct))
    finally:
        torch.set_num_threads(before)
    assert all(np.array_equal(each.value, found[0].value) for each in found)
    assert all(np.array_equal(each.right, found[0].right) for each in found)
    assert (np.diff(found[0].value) > 0).all()
    assert found[0].total_right == correct.sum()


def test_keys_are_sorted_where_they_are_and_stay_valid():
    confidence, correct = drawn(500, np.float32, digits=2)
    keys = pack(confidence, correct)
    ranked_keys(keys)
    assert np.array_equal(keys, np.sort(pack(confidence, correct)))


def test_confidences_of_0_and_1():
    ranked = ranked_rows(np.array([1.0, 0.0, 1.0, 0.5]), np.array([1, 0, 0, 1]))
    assert ranked.value.tolist() == [0.0, 0.5, 1.0]
    assert ranked.count.tolist() == [1, 1, 2]
    assert ranked.right.tolist() == [0, 1, 1]


@pytest.mark.parametrize("weighted", [None, "fractions", "whole numbers"])
@pytest.mark.parametrize("num_bins", [1, 2, 15, 64, 65, 66, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bins_with_fixed_edges_equal_the_definition(dtype, num_bins, weighted):
    confidence, correct = drawn(997, dtype, digits=3)
    generator = np.random.default_rng(2)
    weight = {None: None, "fractions": generator.random(997), "whole numbers": generator.integers(0, 3, 997) * 1.0}[
        weighted
    ]
    given = torch.tensor(np.sort(generator.random(num_bins - 1)))
    edges = torch.cat([torch.zeros(1).double(), given, torch.ones(1).double()])
    for options in ({"num_bins": num_bins}, {"edges": edges}):
        found = bin_predictions(confidence, correct, weight=weight, **options)
        expected = binning.bin_predictions(confidence, correct, weight=weight, **options)
        assert torch.equal(found.count, expected.count)
        for name in ("edges", "mass", "confidence", "accuracy"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-14)


def test_bins_do_not_depend_on_the_number_of_threads():
    confidence, correct = drawn(300_000, np.float32)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(bin_predictions(confidence, correct))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each.confidence, found[0].confidence) for each in found)


@pytest.mark.parametrize("digits", [None, 2])
@pytest.mark.parametrize("width", [1e-2, 0.4, 10.0])
def test_the_pair_sum_equals_the_sum_over_all_pairs(width, digits):
    confidence, correct = drawn(300, np.float64, digits=digits)
    a = np.where(correct, (1 - confidence) * 0.7, -confidence * 0.3)
    expected = a @ np.exp(-np.abs(confidence[:, None] - confidence) / width) @ a
    found = residual_pair_sum(ranked_rows(confidence, correct), 0.7, 0.3, width)
    assert found == pytest.approx(expected, rel=1e-11)
    assert float(laplacian_pair_sum(torch.from_numpy(confidence), torch.from_numpy(a), width)) == pytest.approx(found)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("digits", [None, 2])
def test_the_smooth_error_equals_the_definition(digits, dtype, weighted):
    confidence, correct = drawn(3000, dtype, digits=digits)
    weight = np.random.default_rng(3).random(3000) if weighted else None
    ranked = ranked_rows(confidence, correct, weight)
    for sigma in (None, 0.05):
        expected = smooth_calibration_error(ranked.value, ranked.residuals, sigma)[0]
        assert smooth_error(ranked, sigma) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("digits", [None, 2, 0])
@pytest.mark.parametrize("rows", [2, 7, 3000])
def test_areas_and_drift_equal_their_definitions(rows, digits, weighted):
    confidence, correct = drawn(rows, np.float64, digits=digits)
    correct[:2] = [True, False]
    weight = np.random.default_rng(1).random(rows) if weighted else None
    ranked = ranked_rows(confidence, correct, weight)
    assert largest_drift(ranked) == pytest.approx(ranked.largest_drift(), rel=1e-12)
    assert risk_area(ranked) == pytest.approx(ranked.risk_area(), rel=1e-12)
    pairs = ranked.total_right * (ranked.total - ranked.total_right)
    assert area_under_roc(ranked) == pytest.approx(ranked.right_above_wrong() / pairs, rel=1e-12)


@pytest.mark.parametrize("rows", [1, 300, 100_000])
def test_the_risk_area_of_tied_rows_is_their_error(rows):
    """In a group of equal rows every prefix has the same error rate, however the harmonic numbers are added up."""
    ranked = Ranking.of_groups(np.array([0.25, 0.5]), np.array([3, rows]), np.array([0, 0]))
    assert risk_area(ranked) == pytest.approx(1.0, rel=1e-12)
    half = Ranking.of_groups(np.array([0.5]), np.array([2 * rows]), np.array([rows]))
    assert risk_area(half) == pytest.approx(0.5, rel=1e-12)


def test_the_area_under_roc_needs_both_kinds_of_rows():
    assert np.isnan(area_under_roc(ranked_rows(np.array([0.2, 0.7]), np.array([True, True]))))
