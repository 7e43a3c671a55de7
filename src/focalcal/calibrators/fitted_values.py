"""What the fitted values of a calibrator may be: stated with the calibrator, and checked where a file is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from focalcal.core.checks import require

if TYPE_CHECKING:
    from focalcal.calibrators.base import Calibrator

# Float64 rounds a sum of weights by less.
_SUM_TOLERANCE = 1e-9
_MOST_CLASSES = 2**31 - 1
# Logits that any calibrator has to take: of the class that is ahead, the first, none or the last.
_PROBED = (30.0, 0.0, -30.0)
_PROBED_TOLERANCE = 1e-4


@dataclass(frozen=True)
class FittedValue:
    """What a fitted value may be: its shape, and the range of its entries.

    Args:
        shape: a size for each dimension: a number, "classes", "functions" (one for each class, a single one for two
            classes), or any other name, which stands for the same size in all values of a calibrator; "bins - 1" is one
            less.
        above: what every entry exceeds.
        least: what no entry is below.
        most: what no entry exceeds.
        increasing: whether entries never decrease along the last dimension.
        shares: whether the entries sum to 1.

    >>> FittedValue(above=0).require("temperature_", torch.tensor(-1.0), {})
    Traceback (most recent call last):
    focalcal.errors.InputError: temperature_: must be above 0; got -1.
    """

    shape: tuple[int | str, ...] = ()
    above: float = -math.inf
    least: float = -math.inf
    most: float = math.inf
    increasing: bool = False
    shares: bool = False

    def require(self, name: str, value: Tensor, sizes: dict[str, int]) -> None:
        """Raise an InputError unless the value is allowed; sizes that are not known yet are those of this value."""
        self._require_shape(name, value, sizes)
        require(bool(torch.isfinite(value).all()), name, "must be finite", "NaN or infinity")
        least, most = float(value.min()), float(value.max())
        require(least > self.above, name, f"must be above {self.above:g}", f"{least:g}")
        require(least >= self.least, name, f"must be at least {self.least:g}", f"{least:g}")
        require(most <= self.most, name, f"must be at most {self.most:g}", f"{most:g}")
        if self.increasing:
            falls = bool((value.diff(dim=-1) < 0).any())
            require(not falls, name, "must not decrease", "entries that do")
        if self.shares:
            total = float(value.sum())
            require(abs(total - 1) <= _SUM_TOLERANCE, name, "must sum to 1", f"{total:g}")

    def _require_shape(self, name: str, value: Tensor, sizes: dict[str, int]) -> None:
        rule = f"must have {len(self.shape)} dimensions" if self.shape else "must be a number"
        require(value.dim() == len(self.shape), name, rule, f"shape {tuple(value.shape)}")
        expected = tuple(_size(each, given, sizes) for each, given in zip(self.shape, value.shape, strict=True))
        fits = tuple(value.shape) == expected and 0 not in expected
        require(fits, name, f"must have shape {expected}", f"shape {tuple(value.shape)}")


def _size(named: int | str, given: int, sizes: dict[str, int]) -> int:
    """The size that a dimension must have; a name that has none yet takes the given one."""
    if isinstance(named, int):
        return named
    name, _, less = named.partition(" - ")
    return sizes.setdefault(name, given + int(less or 0)) - int(less or 0)


def require_values(calibrator: Calibrator) -> None:
    """Raise an InputError unless the number of classes and all fitted values are what a fit could have set."""
    classes, stated = calibrator.num_classes_, calibrator.FITTED
    if classes is not None or calibrator.PER_CLASS:
        known = isinstance(classes, int) and not isinstance(classes, bool) and 2 <= classes <= _MOST_CLASSES
        require(known, "num_classes", "must be a whole number from 2", repr(classes))
    if calibrator.BINARY:
        require(classes == 2, "num_classes", f"{type(calibrator).__name__} is for 2 classes", classes)
    sizes = {} if classes is None else {"classes": classes, "functions": 1 if classes == 2 else classes}
    for name in stated:
        value = calibrator._value(name)
        if isinstance(stated, Mapping):
            stated[name].require(name, value, sizes)
        else:
            require(bool(torch.isfinite(value).all()), name, "must be finite", "NaN or infinity")


def _parts(calibrator: Calibrator) -> list[Calibrator]:
    """The calibrator and all its parts."""
    return [part for part in calibrator.modules() if hasattr(part, "PER_CLASS")]  # type: ignore[misc]


def require_probabilities(calibrator: Calibrator) -> None:
    """Raise an InputError unless ordinary logits become probabilities that are finite and sum to 1.

    Values that are allowed one by one may still be too large together: a temperature of 1e-300, or a weight of 1e300.
    """
    tied: list[int] = [part.num_classes_ for part in _parts(calibrator) if part.PER_CLASS and part.num_classes_]
    ahead = torch.linspace(1, -1, tied[0] if tied else 3, dtype=torch.float64)
    logits = torch.tensor(_PROBED, dtype=torch.float64).unsqueeze(1) * ahead
    for rows in (logits, logits.float()):
        with torch.no_grad():
            sums = calibrator(rows).double().exp().sum(1)
        sound = bool(((sums - 1).abs() < _PROBED_TOLERANCE).all())  # not so for NaN
        fitted = ", ".join(calibrator.FITTED) or "fitted values"
        require(sound, fitted, "must give probabilities that sum to 1", f"sums of {sums.tolist()}")
