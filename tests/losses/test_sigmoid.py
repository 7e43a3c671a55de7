from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

import focalcal as fc


def batch(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(0, 2, shape, generator=generator)


@pytest.mark.parametrize("shape", [(), (7,), (4, 3), (2, 3, 4)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("soft", [False, True])
def test_gamma_zero_is_binary_cross_entropy(shape, reduction, soft):
    logits, labels = batch(*shape)
    targets = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) if soft else labels
    ours = fc.sigmoid_focal_loss(logits, targets, gamma=0.0, reduction=reduction)
    theirs = F.binary_cross_entropy_with_logits(logits, targets.double(), reduction=reduction)
    assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("gamma", [2.0, -1.0, "flsd-53"])
def test_it_is_the_two_class_focal_loss_of_logits_0_and_x(gamma):
    logits, labels = batch(9)
    rows = torch.stack([torch.zeros_like(logits), logits], 1)
    assert_close(fc.BinaryFocalLoss(gamma)(logits, labels), fc.FocalLoss(gamma)(rows, labels), rtol=1e-12, atol=0)


def test_alpha_weighs_positives_and_negatives():
    logits, labels = batch(9)
    plain = fc.sigmoid_focal_loss(logits, labels, gamma=2.0, reduction="none")
    expected = torch.where(labels == 1, 0.25, 0.75) * plain
    assert_close(fc.sigmoid_focal_loss(logits, labels, alpha=0.25, reduction="none"), expected)
    assert_close(fc.sigmoid_focal_loss(logits, labels.double(), alpha=0.25, reduction="none"), expected)
    assert_close(fc.BinaryFocalLoss(weight=torch.tensor(2.0))(logits, labels), 2 * plain.mean())


@pytest.mark.parametrize("gamma", [0.5, 2.0, -1.5])
def test_gradients_are_right_twice_and_finite_at_the_extremes(gamma):
    logits, labels = batch(6)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: fc.sigmoid_focal_loss(x, labels, gamma=gamma), logits)
    assert torch.autograd.gradgradcheck(lambda x: fc.sigmoid_focal_loss(x, labels, gamma=gamma), logits)
    extreme = torch.tensor([1e4, -1e4, 3e38, -3e38], requires_grad=True)
    fc.sigmoid_focal_loss(extreme, torch.tensor([0, 1, 1, 0]), gamma=gamma).backward()
    assert torch.isfinite(extreme.grad).all()


def test_vmap_over_the_batch_equals_the_batch():
    logits, labels = batch(5)
    rows = torch.func.vmap(fc.BinaryFocalLoss(2.0))(logits, labels)
    assert_close(rows, fc.sigmoid_focal_loss(logits, labels, gamma=2.0, reduction="none"), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x, y: fc.sigmoid_focal_loss(x, y + 1), r"labels: must lie in \[0, 1\]; got 1\.\.2"),
        (lambda x, y: fc.sigmoid_focal_loss(x, y[:2]), r"labels: must have the logits' shape \(4,\)"),
        (lambda x, y: fc.sigmoid_focal_loss(x.long(), y), "logits: must be a floating-point tensor"),
        (lambda x, y: fc.sigmoid_focal_loss(x[:0], y[:0]), "logits: the batch is empty"),
        (lambda x, y: fc.sigmoid_focal_loss(x, y, alpha=2.0), r"alpha: must lie in \[0, 1\]"),
        (lambda x, y: fc.sigmoid_focal_loss(x, y, reduction="x"), "reduction: must be"),
        (lambda x, y: fc.BinaryFocalLoss(validate=True)(x / 0, y), "logits: every value must be finite"),
    ],
)
def test_bad_input_is_refused(call, match):
    with pytest.raises(fc.InputError, match=match):
        call(torch.zeros(4), torch.tensor([0, 1, 1, 1]))
