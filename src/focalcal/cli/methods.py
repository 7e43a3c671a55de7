"""Calibrators by the short names of the command line, and what a fitted one says of itself."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from focalcal.calibrators.table import find_calibrator, short_name
from focalcal.errors import InputError

if TYPE_CHECKING:
    from focalcal.calibrators import Calibrator

_SYMBOLS = {"temperature_": "T", "gamma_": "γ"}


@dataclass(frozen=True)
class Wish:
    """A method as the command line names it, with the criterion and the search of its fit where they are not usual.

    `temperature`, `temperature:ada_ece`, `focal-temperature:nll:continuous`.
    """

    name: str
    criterion: str | None = None
    search: str | None = None

    @staticmethod
    def of(text: str) -> Wish:
        """What was typed.

        >>> Wish.of("TemperatureScaling:ada_ece")
        Wish(name='temperature', criterion='ada_ece', search=None)
        """
        given, *more = (part.strip() for part in text.split(":"))
        if len(more) > 2:
            raise InputError(f"method: must be NAME, NAME:CRITERION or NAME:CRITERION:SEARCH; got {text.strip()!r}.")
        return Wish(find_calibrator(given).name, *more)

    def __str__(self) -> str:
        return ":".join(part for part in (self.name, self.criterion, self.search) if part)

    @property
    def suffix(self) -> str:
        """Of the file that such a calibrator is saved in."""
        return find_calibrator(self.name).suffix

    def make(self, *, gamma: float | None = None, loss_gamma: float | None = None) -> Calibrator:
        """The calibrator, not fitted yet; an option that is not one of this method's is refused."""
        kind = find_calibrator(self.name).load()
        known = {name: name for name in inspect.signature(kind).parameters}
        if self.name == "temperature":  # its gamma is that of the loss
            known["loss_gamma"] = known.pop("gamma")
        given = {"criterion": self.criterion, "search": self.search, "gamma": gamma, "loss_gamma": loss_gamma}
        arguments = {name: value for name, value in given.items() if value is not None}
        for name in arguments:
            if name not in known:
                raise InputError(f"--{name.replace('_', '-')}: is not an option of method {self.name}. Leave it out.")
        return kind(**{known[name]: value for name, value in arguments.items()})


def methods_of(text: str) -> dict[str, Calibrator]:
    """Calibrators that are not fitted yet, from names with commas between them.

    >>> methods_of("platt, temperature:ada_ece")["platt"]
    PlattScaling(smooth_targets=True)
    """
    wishes = [Wish.of(part) for part in text.split(",") if part.strip()]
    if not wishes:
        raise InputError("--methods: must name at least one method; got none.")
    return {str(wish): wish.make() for wish in wishes}


def parameters(calibrator: Calibrator) -> str:
    """The fitted values in a few characters: numbers as they are, of arrays the shape.

    >>> from focalcal import FocalCalibration
    >>> parameters(FocalCalibration(2.0))
    'γ = 2'
    """
    said = []
    for name in calibrator.FITTED:
        value = calibrator._value(name)
        symbol = _SYMBOLS.get(name, name.rstrip("_"))
        if value.dim() == 0:
            said.append(f"{symbol} = {float(value):.4g}")
        elif value.numel() <= 3:
            said.append(f"{symbol} = ({', '.join(f'{each:.3g}' for each in value.tolist())})")
        else:
            said.append(f"{symbol} ({' x '.join(str(size) for size in value.shape)})")
    return ", ".join(said)


def load(path: str) -> Calibrator:
    """A calibrator from its file; what is wrong with the file is said in a line."""
    from focalcal.calibrators import load_calibrator

    try:
        return load_calibrator(path)
    except OSError as error:
        fix = "Name a file that focalcal calibrate wrote."
        raise InputError(f"{path}: cannot be read as a calibrator ({error.strerror}). {fix}") from error


def require_classes(calibrator: Calibrator, path: str, num_classes: int, file: str) -> None:
    """Refuse predictions of another number of classes than those of the fit."""
    fitted = calibrator.num_classes_
    if fitted is not None and fitted != num_classes:
        fix = "Take a calibrator that was fitted to predictions like these."
        raise InputError(f"{path}: was fitted to {fitted:,} classes, and {file} has {num_classes:,}. {fix}")


def right_suffix(path: str, calibrator: Calibrator) -> str:
    """The path with the suffix of the calibrator's content, if it has that of the other one.

    >>> from focalcal import PlattScaling, VectorScaling
    >>> right_suffix("best.json", VectorScaling()), right_suffix("best.json", PlattScaling())
    ('best.safetensors', 'best.json')
    """
    kinds = (".json", ".safetensors")
    given = Path(path)
    return (
        str(given.with_suffix(find_calibrator(short_name(calibrator)).suffix))
        if given.suffix.lower() in kinds
        else path
    )


def default_methods(num_classes: int, num_rows: int) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """All methods that suit the data by their short names, and why the others do not.

    >>> methods, left_out = default_methods(3, 1000)
    >>> list(methods)[:3], left_out["platt"]
    (['temperature', 'temperature:ada_ece', 'focal'], 'it is for two classes, and there are 3')
    """
    from focalcal.select import suitable_methods

    return suitable_methods(num_classes, num_rows)
