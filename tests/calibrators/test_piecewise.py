"""Tables: against numpy's search and interpolation, at their points, between them and beyond them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focalcal.calibrators import piecewise
from focalcal.calibrators.piecewise import by_rows, linear_lookup, stacked, step_lookup


def table(length, seed=0):
    """Points of three classes, of different lengths and padded, with scores on them, between them and beyond."""
    generator = np.random.default_rng(seed)
    rows = [np.sort(generator.random(size)) for size in (length, max(1, length // 2), 1)]
    scores = np.stack([np.concatenate([row, generator.random(200), [0.0, 1.0]])[-150:] for row in rows], 1)
    scores[: min(150, length), 0] = rows[0][:150]
    return rows, scores


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8, 100])
def test_steps_count_the_edges_below_a_score(length):
    edges, scores = table(length)
    values = [np.arange(len(row) + 1.0) for row in edges]
    got = step_lookup(torch.from_numpy(scores), stacked(edges), stacked(values))
    expected = [np.searchsorted(row, scores[:, k]) for k, row in enumerate(edges)]
    np.testing.assert_array_equal(got, np.stack(expected, 1))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8, 100])
def test_lines_are_those_of_numpy(length):
    points, scores = table(length)
    values = [np.random.default_rng(k).random(len(row)) for k, row in enumerate(points)]
    got = linear_lookup(torch.from_numpy(scores), stacked(points), stacked(values))
    expected = [np.interp(scores[:, k], row, values[k]) for k, row in enumerate(points)]
    np.testing.assert_allclose(got, np.stack(expected, 1), rtol=1e-13)


@pytest.mark.parametrize("rows", [0, 1, 5, 64])
def test_rows_taken_in_parts_are_the_rows(rows, monkeypatch):
    logits = torch.randn(rows, 3, generator=torch.Generator().manual_seed(0))
    expected, seen = torch.log_softmax(logits.double(), 1).float(), []
    monkeypatch.setattr(piecewise, "_TOGETHER", 12)
    got = by_rows(lambda part: seen.append(len(part)) or torch.log_softmax(part.double(), 1), logits)
    assert got.dtype == torch.float32
    assert torch.equal(got, expected)
    assert max(seen) <= 4
