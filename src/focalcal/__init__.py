"""focalcal makes classifiers say how sure they are, truthfully.

Training losses, the theory behind them, and (in later releases) metrics, calibrators and reports for calibration.

>>> import focalcal as fc
>>> loss = fc.FocalLoss(gamma=3.0)
"""

from focalcal.core.focal import confidence_thresholds, gamma_star, gradient_ratio
from focalcal.core.maps import focal_map, focal_map_inverse, focal_minimizer, proper_focal_loss
from focalcal.core.temperature import nearest_temperature, optimal_temperature, suggest_gamma, temperature_bounds
from focalcal.errors import FocalCalError, InputError
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

__version__ = "0.1.0.dev0"

__all__ = [
    "AdaFocalLoss",
    "BinaryFocalLoss",
    "BrierLoss",
    "CalFocalLoss",
    "FocalCalError",
    "FocalLoss",
    "InputError",
    "LabelSmoothingLoss",
    "LinearFocalLoss",
    "MMCELoss",
    "ScheduledGamma",
    "StepGamma",
    "__version__",
    "brier_loss",
    "confidence_thresholds",
    "focal_loss",
    "focal_map",
    "focal_map_inverse",
    "focal_minimizer",
    "gamma_star",
    "gradient_ratio",
    "nearest_temperature",
    "optimal_temperature",
    "proper_focal_loss",
    "sigmoid_focal_loss",
    "suggest_gamma",
    "temperature_bounds",
]
