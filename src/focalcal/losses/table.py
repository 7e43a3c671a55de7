"""Losses by the names that the papers' tables give them."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from focalcal.core.checks import require_reduction
from focalcal.errors import InputError
from focalcal.losses.adafocal import AdaFocalLoss
from focalcal.losses.brier import BrierLoss
from focalcal.losses.calfocal import CalFocalLoss
from focalcal.losses.focal import FocalLoss, Reduction
from focalcal.losses.label_smoothing import LabelSmoothingLoss
from focalcal.losses.mmce import MMCELoss

NAMES = (
    "ce, brier, mmce, ls-ALPHA (ls-0.05), fl-GAMMA (fl-3), flsc-531, flsc-532, flsd-53, flsd-532, calfocal, "
    "calfocal-sample, adafocal"
)


def make_loss(name: str, *, reduction: Reduction = "mean", **options: Any) -> nn.Module:
    """A loss by its name in the papers' tables, with further options of its class.

    With `reduction="sum"` the losses are those of mukhoti2020's released code, whose papers do not say it: summed over
    the batch, but Brier a mean, and the MMCE term multiplied by the batch size.

    >>> make_loss("flsd-53").gamma
    StepGamma(thresholds=(0.2,), gammas=(5.0, 3.0))
    >>> make_loss("ls-0.05", reduction="sum").alpha, make_loss("fl-3").gamma
    (0.05, 3.0)
    """
    require_reduction(reduction)
    match name.lower():
        case "ce":
            return FocalLoss(0.0, reduction=reduction, **options)
        case "brier":
            return BrierLoss(**options)
        case "mmce":
            return MMCELoss(batch_scale=reduction == "sum", **options)
        case "flsc-531" | "flsc-532" | "flsd-53" | "flsd-532" as policy:
            return FocalLoss(policy, reduction=reduction, **options)
        case "calfocal":
            return CalFocalLoss(reduction=reduction, **options)
        case "calfocal-sample":
            return CalFocalLoss(per_sample=True, reduction=reduction, **options)
        case "adafocal":
            return AdaFocalLoss(reduction=reduction, **options)
    if numbered := re.fullmatch(r"(ls|fl)-(\d+(?:\.\d+)?)", name.lower()):
        family, number = numbered.group(1), float(numbered.group(2))
        if family == "ls":
            return LabelSmoothingLoss(number, reduction=reduction, **options)
        return FocalLoss(number, reduction=reduction, **options)
    raise InputError(f"loss: must be one of {NAMES}; got {name!r}.")
