from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.testing import assert_close

import focalcal as fc
from focalcal.core.binning import bin_predictions, interpolated_edges

ROWS = st.lists(
    st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.2, 0.5, 1.0])), st.booleans()),
    min_size=15,
    max_size=80,
)
SCHEMES = ["equal_width", "equal_mass", "array_split", "interpolated", "equal_width_sweep", "equal_mass_sweep"]


def tensors(rows):
    return torch.tensor([c for c, _ in rows], dtype=torch.float64), torch.tensor([k for _, k in rows])


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=30)
@given(rows=ROWS, num_bins=st.integers(1, 15), seed=st.integers(0, 9))
def test_counts_add_up_and_the_order_of_rows_does_not_matter(scheme, rows, num_bins, seed):
    confidence, correct = tensors(rows)
    bins = bin_predictions(confidence, correct, num_bins=num_bins, edges=scheme)
    assert bins.count.sum() == len(rows)
    assert_close((bins.weight * bins.accuracy).sum(), correct.double().mean())
    assert_close((bins.weight * bins.confidence).sum(), confidence.mean())
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    again = bin_predictions(confidence[order], correct[order], num_bins=num_bins, edges=scheme)
    # Bins with fixed edges add up rows as they come, all others in sorted order.
    rounding = 1e-14 if scheme == "equal_width" else 0.0
    for field in ("edges", "count", "confidence", "accuracy", "mass"):
        assert_close(getattr(bins, field), getattr(again, field), rtol=rounding, atol=0.0)


@given(rows=ROWS, num_bins=st.integers(1, 15))
def test_equal_mass_counts_differ_by_at_most_one(rows, num_bins):
    bins = bin_predictions(*tensors(rows), num_bins=num_bins, edges="equal_mass")
    assert bins.count.max() - bins.count.min() <= 1


@given(rows=ROWS, num_bins=st.integers(1, 15))
def test_equal_width_bins_equal_a_plain_loop(rows, num_bins):
    bins = bin_predictions(*tensors(rows), num_bins=num_bins)
    for b in range(num_bins):
        lower, upper = b / num_bins, (b + 1) / num_bins
        inside = [(c, k) for c, k in rows if lower < c <= upper or (b == 0 and c == 0)]
        assert bins.count[b] == len(inside)
        if inside:
            assert bins.confidence[b] == pytest.approx(sum(c for c, _ in inside) / len(inside), abs=1e-12)
            assert bins.accuracy[b] == pytest.approx(sum(k for _, k in inside) / len(inside), abs=1e-12)


def test_tied_rows_share_their_correctness_between_equal_mass_bins():
    bins = bin_predictions(torch.full((4,), 0.9), torch.tensor([1, 0, 0, 0]), num_bins=2, edges="equal_mass")
    assert bins.count.tolist() == [2, 2]
    assert bins.accuracy.tolist() == [0.25, 0.25]


def test_given_edges_take_in_what_lies_beyond_them():
    edges = torch.tensor([0.4, 0.6, 0.8])
    bins = bin_predictions(torch.tensor([0.1, 0.6, 0.7, 1.0]), torch.tensor([1, 1, 0, 1]), edges=edges)
    assert bins.count.tolist() == [2, 2]


def test_interpolated_edges_are_those_of_numpy_interp():
    values = torch.rand(101, generator=torch.Generator().manual_seed(0), dtype=torch.float64).sort().values
    expected = np.interp(np.linspace(0, 101, 16), np.arange(101), values.numpy())
    np.testing.assert_allclose(interpolated_edges(values.numpy().take, 101, 15), expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"num_bins": 0}, "num_bins: must be a whole number from 1; got 0"),
        ({"num_bins": 5, "edges": "equal_mass"}, "num_bins: must be at most N = 2; got 5"),
        ({"edges": "quantile"}, "edges: must be a tensor or one of equal_width, equal_mass"),
    ],
)
def test_bad_input_is_refused(arguments, match):
    with pytest.raises(fc.InputError, match=match):
        bin_predictions(torch.tensor([0.2, 0.4]), torch.tensor([1, 0]), **arguments)


@pytest.mark.parametrize("scheme", SCHEMES[:4])  # the number of bins of a sweep depends on the draws
def test_a_known_probability_of_being_right_is_the_mean_over_draws_of_facts(scheme):
    """Rows that are right with probability 1/2 have the bins of the same rows, each once right and once wrong."""
    confidence = torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chance = torch.where(torch.arange(60) % 3 == 0, 0.5, 1.0)
    twice = torch.cat([confidence, confidence]), torch.cat([torch.ones(60), (chance == 1).double()])
    known = bin_predictions(confidence, chance, num_bins=6, edges=scheme)
    drawn = bin_predictions(*twice, num_bins=6, edges=scheme)
    assert_close(known.accuracy, drawn.accuracy)
    assert_close(2 * known.count, drawn.count)


def test_the_accuracy_of_right_rows_is_never_above_1():
    """Where weights are cut, bins are differences of cumulative sums, which round: with 1 and 22 to more than 1."""
    confidence, weight = (torch.tensor(each, dtype=torch.float64) for each in ([0.5, 0.75], [1.0, 22.0]))
    bins = bin_predictions(confidence, torch.ones(2), num_bins=3, edges="array_split", weight=weight)
    assert bins.accuracy.max() <= 1
