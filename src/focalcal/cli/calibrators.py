"""Calibrators as commands name them, load them and describe what was fitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from focalcal.calibrators.table import calibrator_label, find_calibrator, make_calibrator, short_name
from focalcal.errors import InputError

if TYPE_CHECKING:
    from focalcal.calibrators import Calibrator


def methods_of(text: str) -> dict[str, Calibrator]:
    """Calibrators that are not fitted yet, from names with commas between them.

    >>> list(methods_of("PlattScaling, temperature:ada_ece"))
    ['platt', 'temperature:ada_ece']
    """
    made = [make_calibrator(part) for part in text.split(",") if part.strip()]
    if not made:
        raise InputError("--methods: must name at least one method; got none.")
    return {calibrator_label(calibrator): calibrator for calibrator in made}


def parameters(calibrator: Calibrator) -> str:
    """The fitted values in a few characters: numbers as they are, arrays by their shape.

    >>> from focalcal import FocalCalibration
    >>> parameters(FocalCalibration(2.0))
    'γ = 2'
    """
    from focalcal.report.measure_version import SYMBOLS

    said = []
    for name in calibrator.FITTED:
        value = calibrator._value(name)
        symbol = SYMBOLS.get(name, name.rstrip("_"))
        if value.dim() == 0:
            said.append(f"{symbol} = {float(value):.4g}")
        elif value.numel() <= 3:
            said.append(f"{symbol} = ({', '.join(f'{each:.3g}' for each in value.tolist())})")
        else:
            said.append(f"{symbol} ({' x '.join(str(size) for size in value.shape)})")
    return ", ".join(said)


def load(path: str) -> Calibrator:
    """A calibrator from its file; an error names the file."""
    from focalcal.calibrators import load_calibrator

    try:
        return load_calibrator(path)
    except OSError as error:
        fix = "Name a file that focalcal calibrate wrote."
        raise InputError(f"{path}: cannot be read as a calibrator ({error.strerror}). {fix}") from error


def require_classes(calibrator: Calibrator, path: str, num_classes: int, file: str) -> None:
    """Refuse predictions whose number of classes is not that of the fit."""
    fitted = calibrator.num_classes_
    if fitted is not None and fitted != num_classes:
        fix = "Take a calibrator that was fitted to predictions like these."
        raise InputError(f"{path}: was fitted to {fitted:,} classes, and {file} has {num_classes:,}. {fix}")


def file_suffix(calibrator: Calibrator) -> str:
    """The suffix of the file that a calibrator is saved in: .json, or .safetensors if it has arrays."""
    return find_calibrator(short_name(calibrator)).suffix


def right_suffix(path: str, calibrator: Calibrator) -> str:
    """The path, with the suffix that suits the calibrator if it has the other one.

    >>> from focalcal import PlattScaling, VectorScaling
    >>> right_suffix("best.json", VectorScaling()), right_suffix("best.json", PlattScaling())
    ('best.safetensors', 'best.json')
    """
    given = Path(path)
    return (
        str(given.with_suffix(file_suffix(calibrator))) if given.suffix.lower() in (".json", ".safetensors") else path
    )
