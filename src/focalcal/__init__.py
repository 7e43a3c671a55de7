"""focalcal makes classifiers say how sure they are, truthfully.

Training losses, the theory behind them, and every calibration measure. Names are loaded when first used, so that the
command line answers at once.

>>> import torch, focalcal as fc
>>> loss = fc.FocalLoss(gamma=3.0)
>>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
tensor(0.0002)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from focalcal import calibrators, metrics, papers
    from focalcal.calibrators import (
        BayesianBinning,
        BetaCalibration,
        Calibrator,
        Compose,
        DirichletCalibration,
        EnsembleTemperatureScaling,
        FitReport,
        FocalCalibration,
        FocalTemperatureScaling,
        HistogramBinning,
        Identity,
        IsotonicCalibration,
        MatrixScaling,
        PlattScaling,
        SplineCalibration,
        TemperatureScaling,
        VectorScaling,
        load_calibrator,
    )
    from focalcal.core.focal import confidence_thresholds, gamma_star, gradient_ratio
    from focalcal.core.maps import focal_map, focal_map_inverse, focal_minimizer, proper_focal_loss
    from focalcal.core.temperature import (
        nearest_temperature,
        optimal_temperature,
        suggest_gamma,
        temperature_bounds,
    )
    from focalcal.errors import (
        FileFormatError,
        FocalCalError,
        InputError,
        InputWarning,
        MissingExtraError,
        NotFittedError,
    )
    from focalcal.losses import (
        AdaFocalLoss,
        BinaryFocalLoss,
        BrierLoss,
        CalFocalLoss,
        FocalLoss,
        LabelSmoothingLoss,
        LinearFocalLoss,
        MMCELoss,
        ScheduledGamma,
        StepGamma,
        brier_loss,
        focal_loss,
        sigmoid_focal_loss,
    )
    from focalcal.metrics import Evaluation, bootstrap, compare, evaluate
    from focalcal.report import plots
    from focalcal.select import Selection, select_calibrator

__version__ = "0.1.0.dev0"

__all__ = [
    "AdaFocalLoss",
    "BayesianBinning",
    "BetaCalibration",
    "BinaryFocalLoss",
    "BrierLoss",
    "CalFocalLoss",
    "Calibrator",
    "Compose",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "Evaluation",
    "FileFormatError",
    "FitReport",
    "FocalCalError",
    "FocalCalibration",
    "FocalLoss",
    "FocalTemperatureScaling",
    "HistogramBinning",
    "Identity",
    "InputError",
    "InputWarning",
    "IsotonicCalibration",
    "LabelSmoothingLoss",
    "LinearFocalLoss",
    "MMCELoss",
    "MatrixScaling",
    "MissingExtraError",
    "NotFittedError",
    "PlattScaling",
    "ScheduledGamma",
    "Selection",
    "SplineCalibration",
    "StepGamma",
    "TemperatureScaling",
    "VectorScaling",
    "bootstrap",
    "brier_loss",
    "calibrators",
    "compare",
    "confidence_thresholds",
    "evaluate",
    "focal_loss",
    "focal_map",
    "focal_map_inverse",
    "focal_minimizer",
    "gamma_star",
    "gradient_ratio",
    "load_calibrator",
    "metrics",
    "nearest_temperature",
    "optimal_temperature",
    "papers",
    "plots",
    "proper_focal_loss",
    "select_calibrator",
    "sigmoid_focal_loss",
    "suggest_gamma",
    "temperature_bounds",
]

# Where each name is defined; what is not listed is a loss.
_THEORY = {
    "focalcal.core.focal": ("confidence_thresholds", "gamma_star", "gradient_ratio"),
    "focalcal.core.maps": ("focal_map", "focal_map_inverse", "focal_minimizer", "proper_focal_loss"),
    "focalcal.core.temperature": (
        "nearest_temperature",
        "optimal_temperature",
        "suggest_gamma",
        "temperature_bounds",
    ),
    "focalcal.calibrators": (
        "BayesianBinning",
        "BetaCalibration",
        "Calibrator",
        "Compose",
        "DirichletCalibration",
        "EnsembleTemperatureScaling",
        "FitReport",
        "FocalCalibration",
        "FocalTemperatureScaling",
        "HistogramBinning",
        "Identity",
        "IsotonicCalibration",
        "MatrixScaling",
        "PlattScaling",
        "SplineCalibration",
        "TemperatureScaling",
        "VectorScaling",
        "load_calibrator",
    ),
    "focalcal.errors": (
        "FileFormatError",
        "FocalCalError",
        "InputError",
        "InputWarning",
        "MissingExtraError",
        "NotFittedError",
    ),
    "focalcal.metrics": ("Evaluation", "bootstrap", "compare", "evaluate"),
    "focalcal.select": ("Selection", "select_calibrator"),
}
_MODULES = {
    "calibrators": "focalcal.calibrators",
    "metrics": "focalcal.metrics",
    "papers": "focalcal.papers",
    "plots": "focalcal.report.plots",
}
_HOME = {name: module for module, names in _THEORY.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in __all__:
        raise AttributeError(f"module 'focalcal' has no attribute {name!r}")
    value = getattr(import_module(_HOME.get(name, "focalcal.losses")), name)
    globals()[name] = value  # found at once the next time
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
