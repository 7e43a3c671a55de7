"""The table of losses by name, which Hugging Face, Lightning and recipes look up.

>>> make_loss("fl-3"), make_loss("flsd-53").gamma
(FocalLoss(gamma=3.0, reduction='mean'), StepGamma(thresholds=(0.2,), gammas=(5.0, 3.0)))
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from focalcal.core.checks import require, require_reduction
from focalcal.errors import InputError
from focalcal.kernels.focal_loss import Reduction
from focalcal.losses.adafocal import AdaFocalLoss
from focalcal.losses.brier import BrierLoss
from focalcal.losses.calfocal import CalFocalLoss
from focalcal.losses.focal import FocalLoss
from focalcal.losses.label_smoothing import LabelSmoothingLoss
from focalcal.losses.mmce import MMCELoss

# A loss in a new file becomes public by standing in this list.
__all__ = [
    "LOSSES",
    "AdaFocalLoss",
    "BrierLoss",
    "CalFocalLoss",
    "FocalLoss",
    "LabelSmoothingLoss",
    "MMCELoss",
    "NamedLoss",
    "make_loss",
    "register_loss",
]

LossFactory: TypeAlias = "Callable[..., nn.Module]"
_NUMBER = re.compile(r"(?P<family>.+)-(?P<number>\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class NamedLoss:
    """A loss that can be had by its name.

    Args:
        name: its name; lower case.
        factory: makes the loss. It takes `reduction` and the options that the caller gives by name.
        number: what a number behind the name means, as GAMMA in "fl-3"; the factory takes it first. "" for no number.

    >>> LOSSES["fl"].number, LOSSES["fl"].factory(3.0, reduction="sum")
    ('GAMMA', FocalLoss(gamma=3.0, reduction='sum'))
    """

    name: str
    factory: LossFactory
    number: str = ""

    @property
    def shown(self) -> str:
        """The name as a message shows it."""
        return f"{self.name}-{self.number}" if self.number else self.name


def _cross_entropy(**options: Any) -> nn.Module:
    return FocalLoss(0.0, **options)


def _policy(name: str) -> LossFactory:
    return lambda **options: FocalLoss(name, **options)


def _brier(reduction: Reduction, **options: Any) -> nn.Module:
    # A mean even where the others are sums, as in the released code of mukhoti2020.
    return BrierLoss(**options)


def _mmce(reduction: Reduction, **options: Any) -> nn.Module:
    # A property of the batch: with sums it is multiplied by the batch size, as in the same code.
    return MMCELoss(batch_scale=reduction == "sum", **options)


LOSSES: dict[str, NamedLoss] = {
    loss.name: loss
    for loss in (
        NamedLoss("ce", _cross_entropy),
        NamedLoss("brier", _brier),
        NamedLoss("mmce", _mmce),
        NamedLoss("ls", LabelSmoothingLoss, "ALPHA"),
        NamedLoss("fl", FocalLoss, "GAMMA"),
        NamedLoss("flsc-531", _policy("flsc-531")),
        NamedLoss("flsc-532", _policy("flsc-532")),
        NamedLoss("flsd-53", _policy("flsd-53")),
        NamedLoss("flsd-532", _policy("flsd-532")),
        NamedLoss("calfocal", CalFocalLoss),
        NamedLoss("calfocal-sample", lambda **options: CalFocalLoss(per_sample=True, **options)),
        NamedLoss("adafocal", AdaFocalLoss),
    )
}
"""The losses by name."""


def register_loss(name: str, factory: LossFactory, *, number: str = "") -> NamedLoss:
    """Enter a loss of your own in the table, so that recipes, Hugging Face and Lightning find it by its name.

    where `factory` takes `reduction` ("mean" or "sum") and whatever options the caller gives, and returns a module
    that is called with logits and labels. With `number` the name ends in one, which the factory takes first.

    >>> from torch import nn
    >>> loss = register_loss("plain-ce", lambda reduction: nn.CrossEntropyLoss(reduction=reduction))
    >>> make_loss("plain-ce", reduction="sum").reduction
    'sum'
    >>> del LOSSES["plain-ce"]
    """
    require(bool(name) and name == name.lower(), "name", "must be in lower case", repr(name))
    require(name not in LOSSES, "name", "must not be taken", repr(name))
    require(callable(factory), "factory", "must be a function that makes a loss", type(factory).__name__)
    LOSSES[name] = NamedLoss(name, factory, number)
    return LOSSES[name]


def make_loss(name: str, *, reduction: Reduction = "mean", **options: Any) -> nn.Module:
    """A loss by its name in the papers' tables, with further options of its class.

    With `reduction="sum"` the losses are those of mukhoti2020's released code, whose papers do not say it: summed over
    the batch, but Brier a mean, and the MMCE term multiplied by the batch size.

    >>> make_loss("ls-0.05", reduction="sum").alpha, make_loss("fl-3").gamma
    (0.05, 3.0)
    """
    require_reduction(reduction)
    asked = name.lower()
    known, numbers = LOSSES.get(asked), []
    if known is None and (found := _NUMBER.fullmatch(asked)):
        known, numbers = LOSSES.get(found["family"]), [float(found["number"])]
    if known is None or bool(known.number) != bool(numbers):
        names = ", ".join(loss.shown for loss in LOSSES.values())
        raise InputError(f"loss: must be one of {names}; got {name!r}.")
    return known.factory(*numbers, reduction=reduction, **options)
