"""The calibrators' short names, which the command line and the lab's recipes share.

They stand apart from the calibrators, so that knowing a name imports no tensor library.
"""

from __future__ import annotations

from focalcal.errors import InputError

# Short names and the classes that they mean; a class's own name is understood, too.
METHODS = {
    "identity": "Identity",
    "temperature": "TemperatureScaling",
    "focal": "FocalCalibration",
    "focal-temperature": "FocalTemperatureScaling",
    "ensemble-temperature": "EnsembleTemperatureScaling",
    "spline": "SplineCalibration",
    "vector": "VectorScaling",
    "matrix": "MatrixScaling",
    "dirichlet": "DirichletCalibration",
    "platt": "PlattScaling",
    "beta": "BetaCalibration",
    "histogram": "HistogramBinning",
    "isotonic": "IsotonicCalibration",
    "bbq": "BayesianBinning",
}
_ALIASES = {"ets": "ensemble-temperature", "focal-calibration": "focal", "bayesian-binning": "bbq"}
# Those whose fitted values are a few numbers; all others have arrays, and files for them.
_NUMBERS = ("identity", "temperature", "focal", "focal-temperature", "platt", "beta")


def method_name(text: str) -> str:
    """The short name of a method that was typed as it is, by an alias or by its class.

    >>> method_name("ETS"), method_name("TemperatureScaling"), method_name("focal_temperature")
    ('ensemble-temperature', 'temperature', 'focal-temperature')
    """
    plain = text.strip().lower().replace("_", "-")
    classes = {kind.lower(): name for name, kind in METHODS.items()}
    name = _ALIASES.get(plain, classes.get(plain, plain))
    if name not in METHODS:
        raise InputError(f"method: must be one of {', '.join(METHODS)}; got {text.strip()!r}.")
    return name


def file_suffix(name: str) -> str:
    """Of the file that a calibrator of this short name is saved in.

    >>> file_suffix("temperature"), file_suffix("spline")
    ('.json', '.safetensors')
    """
    return ".json" if name in _NUMBERS else ".safetensors"
