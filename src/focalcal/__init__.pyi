"""The public names of focalcal, written once: `__init__.py` reads this list and loads each name on first use."""

from . import calibrators as calibrators, losses as losses, metrics as metrics
from .calibrators import (
    BayesianBinning as BayesianBinning,
    BetaCalibration as BetaCalibration,
    Calibrator as Calibrator,
    Compose as Compose,
    DirichletCalibration as DirichletCalibration,
    EnsembleTemperatureScaling as EnsembleTemperatureScaling,
    FitReport as FitReport,
    FocalCalibration as FocalCalibration,
    FocalTemperatureScaling as FocalTemperatureScaling,
    HistogramBinning as HistogramBinning,
    Identity as Identity,
    IsotonicCalibration as IsotonicCalibration,
    MatrixScaling as MatrixScaling,
    PlattScaling as PlattScaling,
    SplineCalibration as SplineCalibration,
    TemperatureScaling as TemperatureScaling,
    VectorScaling as VectorScaling,
    load_calibrator as load_calibrator,
)
from .core.focal import (
    confidence_thresholds as confidence_thresholds,
    gamma_star as gamma_star,
    gradient_ratio as gradient_ratio,
)
from .core.focal_map import (
    focal_map as focal_map,
    focal_map_inverse as focal_map_inverse,
    focal_minimizer as focal_minimizer,
    proper_focal_loss as proper_focal_loss,
)
from .core.temperature import (
    nearest_temperature as nearest_temperature,
    optimal_temperature as optimal_temperature,
    suggest_gamma as suggest_gamma,
    temperature_bounds as temperature_bounds,
)
from .errors import (
    FileFormatError as FileFormatError,
    FocalCalError as FocalCalError,
    InputError as InputError,
    InputWarning as InputWarning,
    MissingExtraError as MissingExtraError,
    NotFittedError as NotFittedError,
)
from .losses import (
    AdaFocalLoss as AdaFocalLoss,
    BinaryFocalLoss as BinaryFocalLoss,
    BrierLoss as BrierLoss,
    CalFocalLoss as CalFocalLoss,
    FocalLoss as FocalLoss,
    LabelSmoothingLoss as LabelSmoothingLoss,
    LinearFocalLoss as LinearFocalLoss,
    MMCELoss as MMCELoss,
    ScheduledGamma as ScheduledGamma,
    StepGamma as StepGamma,
    brier_loss as brier_loss,
    focal_loss as focal_loss,
    sigmoid_focal_loss as sigmoid_focal_loss,
)
from .metrics import (
    Evaluation as Evaluation,
    bootstrap as bootstrap,
    compare as compare,
    evaluate as evaluate,
)
from .report import (
    plots as plots,
)
from .select import (
    Selection as Selection,
    select_calibrator as select_calibrator,
)

__version__: str
