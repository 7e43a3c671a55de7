from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

import focalcal as fc


def batch():
    generator = torch.Generator().manual_seed(4)
    return 2 * torch.randn(30, 5, generator=generator, dtype=torch.float64), torch.randint(
        0, 5, (30,), generator=generator
    )


def definition(logits, labels):
    confidence, predicted = torch.softmax(logits, 1).max(1)
    residual = (predicted == labels).double() - confidence
    kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / 0.4)
    return torch.sqrt(residual @ kernel @ residual) / len(labels)


def test_it_is_the_base_loss_plus_lambda_times_the_definition():
    logits, labels = batch()
    loss = fc.MMCELoss(lam=3.0, weighted=False)
    assert_close(
        loss(logits, labels),
        F.cross_entropy(logits, labels) + 3 * definition(logits, labels),
        rtol=1e-12,
        atol=0,
    )


def test_the_weighted_form_counts_right_and_wrong_rows_alike():
    logits, labels = batch()
    confidence, predicted = torch.softmax(logits, 1).max(1)
    correct = predicted == labels
    residual = torch.where(correct, (1 - confidence) / correct.sum(), -confidence / (~correct).sum())
    kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / 0.4)
    assert_close(fc.MMCELoss().mmce(logits, labels), torch.sqrt(residual @ kernel @ residual), rtol=1e-12, atol=0)


def test_it_regularises_any_base_loss():
    logits, labels = batch()
    loss = fc.MMCELoss(lam=1.0, weighted=False, base=fc.FocalLoss(2.0))
    expected = fc.focal_loss(logits, labels, gamma=2.0) + definition(logits, labels)
    assert_close(loss(logits, labels), expected, rtol=1e-12, atol=0)


def test_batch_scale_multiplies_the_term_beside_a_summed_loss():
    logits, labels = batch()
    loss = fc.MMCELoss(lam=2.0, weighted=False, batch_scale=True)
    expected = F.cross_entropy(logits, labels, reduction="sum") + 2 * 30 * definition(logits, labels)
    assert_close(loss(logits, labels), expected, rtol=1e-12, atol=0)


def test_ignored_rows_do_not_count():
    logits, labels = batch()
    kept = fc.MMCELoss()(logits[5:], labels[5:])
    labels[:5] = -100
    assert_close(fc.MMCELoss()(logits, labels), kept, rtol=1e-12, atol=0)
    assert fc.MMCELoss()(logits, torch.full_like(labels, -100)) == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_a_batch_that_is_all_right_or_all_wrong_has_finite_gradients(weighted):
    logits, _ = batch()
    logits.requires_grad_()
    for labels in (logits.argmax(1), (logits.argmax(1) + 1) % 5):
        (gradient,) = torch.autograd.grad(fc.MMCELoss(weighted=weighted)(logits, labels), logits)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("options", "match"),
    [({"lam": -1.0}, "lam: must not be negative"), ({"width": 0.0}, "width: must be positive")],
)
def test_bad_settings_are_refused(options, match):
    with pytest.raises(fc.InputError, match=match):
        fc.MMCELoss(**options)
