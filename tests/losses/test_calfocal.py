from __future__ import annotations

import torch
from torch.testing import assert_close

import focalcal as fc
from tests.losses.test_adafocal import predictions


def test_gamma_per_bin_follows_equation_3():
    loss = fc.CalFocalLoss(lam=4.0, num_bins=5)
    loss.update(*predictions())
    history = loss.history
    expected = torch.exp(4 * (history["confidence"][0] - history["accuracy"][0]))
    centre = (loss.edges[1:] + loss.edges[:-1]) / 2
    assert_close(loss.gamma_at(centre), expected)
    assert (expected - 1).abs().max() > 0.3


def test_gamma_per_sample_follows_equation_2():
    loss = fc.CalFocalLoss(lam=4.0, per_sample=True, num_bins=5)
    loss.update(*predictions())
    p = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    expected = torch.exp(4 * (p - loss.at(p, loss.history["accuracy"][0])))
    assert_close(loss.gamma_at(p), expected)


def test_before_any_update_every_bin_counts_as_calibrated():
    logits, labels = predictions()
    assert_close(fc.CalFocalLoss()(logits, labels), fc.focal_loss(logits, labels, gamma=1.0))


def test_it_has_no_memory_of_earlier_updates():
    once, twice = fc.CalFocalLoss(), fc.CalFocalLoss()
    twice.update(*predictions(seed=1))
    for loss in (once, twice):
        loss.update(*predictions(seed=2))
    assert torch.equal(once.accuracy, twice.accuracy)
    assert torch.equal(once.confidence, twice.confidence)


def test_a_checkpoint_holds_the_bins():
    loss, other = fc.CalFocalLoss(), fc.CalFocalLoss()
    loss.update(*predictions())
    other.load_state_dict(loss.state_dict())
    logits, labels = predictions(seed=3)
    assert torch.equal(loss(logits, labels), other(logits, labels))
