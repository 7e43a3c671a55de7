from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import focalcal as fc

LOGITS = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 3.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 2, 1])


def plain_brier(logits, targets):
    return ((torch.softmax(logits, 1) - targets) ** 2).sum(1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_it_is_the_squared_distance_to_hard_and_to_soft_targets(reduction):
    hard = torch.nn.functional.one_hot(LABELS, 3).double()
    reduce = {"mean": torch.mean, "sum": torch.sum, "none": torch.clone}[reduction]
    soft = 0.8 * hard + 0.2 / 3
    assert_close(fc.brier_loss(LOGITS, LABELS, reduction=reduction), reduce(plain_brier(LOGITS, hard)))
    assert_close(fc.brier_loss(LOGITS, soft, reduction=reduction), reduce(plain_brier(LOGITS, soft)))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ignored_rows_do_not_count(reduction):
    ignored = torch.tensor([0, -100, 1])
    kept = fc.brier_loss(LOGITS[[0, 2]], LABELS[[0, 2]], reduction=reduction)
    assert_close(fc.brier_loss(LOGITS, ignored, reduction=reduction), kept)
    assert fc.brier_loss(LOGITS, ignored, reduction="none")[1] == 0
    assert_close(fc.BrierLoss(ignore_index=7, reduction=reduction)(LOGITS, torch.tensor([0, 7, 1])), kept)
