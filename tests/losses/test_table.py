"""Losses by name: every entry of the table, what a name with a number means, and entries of one's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import focalcal as fc
from focalcal.errors import InputError
from focalcal.losses import LOSSES, make_loss, register_loss

LOGITS, LABELS = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, -1.0], [0.5, 0.0, 3.0]]), torch.tensor([0, 2, 2])
# What each name stands for, as the code of mukhoti2020 and ghosh2022 has it; the second is the reduction "sum".
EXPECTED = {
    "ce": (fc.FocalLoss(0.0), fc.FocalLoss(0.0, reduction="sum")),
    "brier": (fc.BrierLoss(), fc.BrierLoss()),
    "mmce": (fc.MMCELoss(), fc.MMCELoss(batch_scale=True)),
    "ls-0.05": (fc.LabelSmoothingLoss(0.05), fc.LabelSmoothingLoss(0.05, reduction="sum")),
    "fl-3": (fc.FocalLoss(3.0), fc.FocalLoss(3.0, reduction="sum")),
    "fl-0.5": (fc.FocalLoss(0.5), fc.FocalLoss(0.5, reduction="sum")),
    "flsc-531": (fc.FocalLoss("flsc-531"), fc.FocalLoss("flsc-531", reduction="sum")),
    "flsc-532": (fc.FocalLoss("flsc-532"), fc.FocalLoss("flsc-532", reduction="sum")),
    "flsd-53": (fc.FocalLoss("flsd-53"), fc.FocalLoss("flsd-53", reduction="sum")),
    "flsd-532": (fc.FocalLoss("flsd-532"), fc.FocalLoss("flsd-532", reduction="sum")),
    "calfocal": (fc.CalFocalLoss(), fc.CalFocalLoss(reduction="sum")),
    "calfocal-sample": (fc.CalFocalLoss(per_sample=True), fc.CalFocalLoss(per_sample=True, reduction="sum")),
    "adafocal": (fc.AdaFocalLoss(), fc.AdaFocalLoss(reduction="sum")),
}


def test_every_entry_is_checked_below():
    assert {name if name in LOSSES else name.rsplit("-", 1)[0] for name in EXPECTED} == set(LOSSES)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_name_gives_its_loss_with_either_reduction(name):
    for reduction, expected in zip(("mean", "sum"), EXPECTED[name], strict=True):
        made = make_loss(name.upper(), reduction=reduction)
        assert type(made) is type(expected)
        assert repr(made) == repr(expected)
        assert torch.equal(made(LOGITS, LABELS), expected(LOGITS, LABELS))


def test_options_reach_the_class():
    assert make_loss("adafocal", num_bins=7).num_bins == 7
    assert make_loss("fl-3", ignore_index=5).ignore_index == 5


@pytest.mark.parametrize("name", ["focal", "fl", "fl-", "fl-three", "ce-3", "flsd-53-2", "adafocal-1", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(InputError, match=r"loss: must be one of ce, brier, mmce, ls-ALPHA, fl-GAMMA, .*adafocal; got"):
        make_loss(name)


def test_a_loss_of_ones_own_is_found_by_its_name(monkeypatch):
    monkeypatch.setattr("focalcal.losses.table.LOSSES", dict(LOSSES))
    register_loss("huber", lambda delta, reduction: nn.HuberLoss(reduction, delta), number="DELTA")
    assert make_loss("huber-0.5", reduction="sum").delta == 0.5
    for bad in ("huber", "CE", "ce", ""):
        with pytest.raises(InputError, match="name: must"):
            register_loss(bad, nn.CrossEntropyLoss)
    with pytest.raises(InputError, match="factory: must be a function"):
        register_loss("mine", "nn.CrossEntropyLoss")
