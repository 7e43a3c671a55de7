from __future__ import annotations

import numpy as np
import pytest

from focalcal.core import binning
from focalcal.kernels import bins
from focalcal.kernels.compiled import compiled_kernels

pytestmark = pytest.mark.skipif(compiled_kernels() is None, reason="compares the compiled kernel with its definition")

RNG = np.random.default_rng(0)
CONFIDENCES = {
    "spread": RNG.random(5000),
    "sure": 1 - 10.0 ** -RNG.uniform(0, 17, 5000),
    "tied": RNG.integers(0, 5, 5000) / 4,
    "all the same": np.ones(300),
    "one row": np.array([0.25]),
    "smallest": np.array([0.0, 5e-324, 2.0**-1074, 1.0, 1 - 2.0**-53]),
}


@pytest.mark.parametrize("name", CONFIDENCES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edges", ["equal_width", "interpolated"])
def test_bins_are_those_of_the_definition(name, dtype, edges):
    confidence = CONFIDENCES[name].astype(dtype)
    correct = RNG.random(len(confidence)) < confidence
    found = bins.bin_predictions(confidence, correct, num_bins=15, edges=edges)
    expected = binning.bin_predictions(confidence, correct, num_bins=15, edges=edges)
    assert np.array_equal(found.edges, expected.edges)
    assert np.array_equal(found.count, expected.count)
    np.testing.assert_allclose(found.confidence, expected.confidence, rtol=1e-12)
    np.testing.assert_allclose(found.accuracy, expected.accuracy, rtol=1e-12)
