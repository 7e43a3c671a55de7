"""The ECE of many columns of confidences against the bins of each one."""

from __future__ import annotations

import numpy as np
import pytest

from focalcal.core.binning import bin_norm, bin_ranked
from focalcal.core.ranking import Ranking
from focalcal.kernels import binned_gaps as module, compiled
from focalcal.kernels.binned_gaps import binned_gaps

KERNELS = compiled.compiled_kernels()
SCHEMES = {False: "equal_width", True: "equal_mass"}


def by_ranking(confidence, correct, num_bins, equal_mass):
    ranked = [Ranking.of_rows(column, correct) for column in confidence]
    bins = (bin_ranked(each, num_bins=num_bins, edges=SCHEMES[equal_mass]) for each in ranked)
    return np.array([float(bin_norm(each, "l1")) for each in bins])


def columns(rows, digits, seed=0):
    """Confidences with few or many ties, crowded below 1, most of them 1, all equal, and over many magnitudes."""
    generator = np.random.default_rng(seed)
    plain = generator.uniform(0, 1, rows).round(digits)
    crowded, some = 1 - 1e-5 * plain**6, np.where(generator.uniform(size=rows) < 0.8, 1, plain)
    wide = 10.0 ** (-36 * plain)
    confidence = np.stack([plain, crowded, some, np.full(rows, 0.1), wide]).astype(np.float32)
    return confidence, generator.uniform(size=rows) < plain


@pytest.mark.parametrize("equal_mass", [False, True])
@pytest.mark.parametrize("digits", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 63, 64, 65, 66, 300, 5000])
def test_gaps_are_those_of_the_bins(rows, digits, equal_mass):
    confidence, correct = columns(rows, digits)
    for num_bins in (1, 2, 7, 15, 100):
        num_bins = min(num_bins, rows)
        found = binned_gaps(confidence, correct, num_bins=num_bins, equal_mass=equal_mass)
        np.testing.assert_allclose(found, by_ranking(confidence, correct, num_bins, equal_mass), rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_bins", [1, 3, 10, 15])
def test_confidences_on_an_edge_belong_to_the_lower_bin(num_bins):
    edges = (np.arange(num_bins + 1) / num_bins).astype(np.float32)
    confidence = np.concatenate([edges, np.nextafter(edges, np.float32(0)), np.nextafter(edges[:-1], np.float32(1))])
    correct = np.arange(len(confidence)) % 3 == 0
    found = binned_gaps(confidence[None], correct, num_bins=num_bins, equal_mass=False)
    np.testing.assert_allclose(found, by_ranking(confidence[None], correct, num_bins, False), rtol=0, atol=1e-12)


@pytest.mark.parametrize("equal_mass", [False, True])
def test_the_order_of_rows_does_not_matter(equal_mass):
    confidence, correct = columns(1000, 2)
    order = np.random.default_rng(1).permutation(1000)
    found, other = (
        binned_gaps(confidence[:, rows], correct[rows], num_bins=15, equal_mass=equal_mass)
        for rows in (slice(None), order)
    )
    np.testing.assert_allclose(found, other, rtol=0, atol=1e-13)


@pytest.mark.skipif(KERNELS is None, reason="there are no compiled kernels here")
def test_threads_and_instruction_sets_give_the_same_bits(monkeypatch):
    confidence, correct = columns(2000, 4)
    confidence, before, found = np.tile(confidence, (30, 1)), KERNELS.in_use(), []
    for name in KERNELS.available():
        KERNELS.choose(name)
        for threads in (1, 2, 4):
            monkeypatch.setattr(module, "threads_for", lambda _, threads=threads: threads)
            found.append(binned_gaps(confidence, correct, num_bins=15, equal_mass=True))
    KERNELS.choose(before)
    assert all(np.array_equal(found[0], each) for each in found)


def test_confidences_in_float64_are_binned_as_they_are():
    confidence = np.array([[0.3, 0.3 + 1e-12, 0.8]])
    found = binned_gaps(confidence, np.array([True, False, True]), num_bins=3, equal_mass=True)
    assert found == pytest.approx([(0.7 + 0.3 + 0.2) / 3])
