from __future__ import annotations

import pytest
import torch

import focalcal as fc
from focalcal.lab import noisy_digits as lab


def test_splits_are_fixed_by_the_seed_and_do_not_overlap():
    first, second, other = lab.load(0), lab.load(0), lab.load(1)
    assert all(torch.equal(a.images, b.images) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0].images, other[0].images)
    rows = torch.cat([split.images.flatten(1) for split in first])
    assert len(torch.unique(rows, dim=0)) == 1797


def test_training_is_repeatable_and_adafocal_learns_its_gammas():
    train, val, test = lab.load(0)
    losses = [fc.AdaFocalLoss(), fc.AdaFocalLoss()]
    networks = [list(lab.train(loss, train, val, epochs=2))[-1] for loss in losses]
    assert torch.equal(lab.predict(networks[0], test), lab.predict(networks[1], test))
    assert (losses[0].gamma != 1).all()
    assert losses[0].history["gamma"].shape == (2, 15)


@pytest.mark.slow
def test_cross_entropy_is_far_too_sure_and_focal_losses_are_not():
    """What the demo shows: the optimal temperature of cross-entropy is well above 2."""
    train, val, test = lab.load(0)
    outcomes = {}
    for name, make_loss in lab.LOSSES.items():
        *_, network = lab.train(make_loss(), train, val)
        outcomes[name] = lab.score(name, network, val, test)
    assert outcomes["cross-entropy"].temperature > 2.2
    assert outcomes["FL-3"].temperature < 1.5
    assert outcomes["FLSD-53"].temperature < 1.5
    assert outcomes["AdaFocal"].temperature < 2.0
    for name in ("FL-3", "FLSD-53", "AdaFocal"):
        assert outcomes[name].ece < outcomes["cross-entropy"].ece
        assert outcomes[name].nll < outcomes["cross-entropy"].nll
        assert outcomes[name].accuracy > outcomes["cross-entropy"].accuracy - 0.03
