from __future__ import annotations

import pytest
import torch

import focalcal as fc
from focalcal import noisy_digits as lab


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
    temperature, found = {}, {}
    for name, make_loss in lab.LOSSES.items():
        *_, network = lab.train(make_loss(), train, val)
        temperature[name] = fc.optimal_temperature(lab.predict(network, val), val.labels)
        found[name] = fc.evaluate(lab.predict(network, test), test.labels)
    assert temperature["cross-entropy"] > 2.2
    assert temperature["FL-3"] < 1.5
    assert temperature["FLSD-53"] < 1.5
    assert temperature["AdaFocal"] < 2.0
    for name in ("FL-3", "FLSD-53", "AdaFocal"):
        assert found[name].ece < found["cross-entropy"].ece
        assert found[name].nll < found["cross-entropy"].nll
        assert found[name].accuracy > found["cross-entropy"].accuracy - 0.03
