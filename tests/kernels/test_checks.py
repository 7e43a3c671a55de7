"""The few numbers that tell whether scores need a closer look."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from focalcal.kernels.extremes import extremes, largest_sum_error

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (17, 16), (40, 33)])
def test_extremes_are_the_lowest_and_the_highest(shape, dtype):
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert extremes(scores) == (scores.min().item(), scores.max().item(), False)
    assert extremes(scores.t()) == extremes(scores)
    assert extremes(scores[::2, : shape[1] // 2 + 1])[0] == scores[::2, : shape[1] // 2 + 1].min().item()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("place", [0, 15, 16, 50])
def test_nan_and_infinities_are_seen_wherever_they_stand(place, dtype):
    scores = torch.zeros(1, 51, dtype=dtype)
    for value, expected in ((math.inf, (0.0, math.inf, False)), (-math.inf, (-math.inf, 0.0, False))):
        scores[0, place] = value
        assert extremes(scores) == expected
    scores[0, place] = math.nan
    assert extremes(scores) == (0.0, 0.0, True)


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
@pytest.mark.parametrize("classes", [2, 15, 16, 40])
def test_the_largest_error_of_a_sum(classes, dtype):
    probs = torch.rand(30, classes, generator=torch.Generator().manual_seed(2)).to(dtype).softmax(1)
    probs[11] *= 1.25
    expected = np.abs(probs.double().sum(1).numpy() - 1).max()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert largest_sum_error(probs, "probs") == pytest.approx(expected, abs=tolerance)
    assert largest_sum_error(probs.log(), "log_probs") == pytest.approx(expected, abs=tolerance)


def test_a_sum_with_nan_has_the_error_nan_whatever_comes_after_it():
    probs = torch.full((5, 4), 0.25)
    probs[1, 2] = math.nan
    assert math.isnan(largest_sum_error(probs, "probs"))
