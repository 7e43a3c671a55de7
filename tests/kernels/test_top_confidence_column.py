from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from focalcal.kernels.rows import read_rows


def top_confidence(logits):
    found = read_rows(logits, None, "logits", ("top", "top_confidence"))
    return torch.from_numpy(found["top"]), torch.from_numpy(found["top_confidence"])


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 2), (9, 5), (40, 16), (33, 100), (20, 2049), (2, 100_000)])
def test_prediction_and_confidence_are_those_of_softmax(kernels, dtype, shape):
    logits = (3 * torch.randn(shape, generator=torch.Generator().manual_seed(0))).to(dtype)
    predicted, confidence = top_confidence(logits)
    assert torch.equal(predicted, logits.float().argmax(1) if dtype.itemsize == 2 else logits.argmax(1))
    assert confidence.dtype is torch.float64
    rtol = 1e-13 if dtype is torch.float64 else 1e-6
    assert_close(confidence, torch.softmax(logits.double(), 1).amax(1), rtol=rtol, atol=0)
    assert_close(top_confidence(logits.t().contiguous().t())[1], confidence, rtol=rtol, atol=0)


def test_the_first_of_tied_classes_is_predicted(kernels):
    logits = torch.zeros(3, 50)
    logits[1, [20, 40]] = 1.0
    logits[2, [48, 49]] = 1.0
    assert top_confidence(logits)[0].tolist() == [0, 20, 48]


def test_a_sure_row_is_sure_and_an_unusable_one_has_no_confidence(kernels):
    low = torch.finfo(torch.float32).min
    rows = [
        [40.0, 0.0],
        [1.0, -math.inf],
        [-math.inf] * 2,
        [low] * 2,
        [math.inf, 0.0],
        [math.nan, 0.0],
        [0.0, math.nan],
    ]
    confidence = torch.cat([top_confidence(torch.tensor([row]))[1] for row in rows])
    assert confidence[0] == pytest.approx(1 / (1 + math.exp(-40)), rel=1e-15)
    assert confidence[1] == 1
    assert torch.isnan(confidence[2:]).all()
