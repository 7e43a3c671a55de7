from __future__ import annotations

import torch
from torch.testing import assert_close

import focalcal as fc


def test_it_is_the_cross_entropy_with_targets_that_give_alpha_to_the_other_classes():
    logits = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 3.0]], dtype=torch.float64)
    weight = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    targets = torch.tensor([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9]], dtype=torch.float64)
    expected = -(weight * targets * torch.log_softmax(logits[:2], 1)).sum()
    loss = fc.LabelSmoothingLoss(0.1, weight=weight, ignore_index=7, reduction="sum")
    assert_close(loss(logits, torch.tensor([0, 2, 7])), expected)
