"""The public names of focalcal, written once: `__init__.py` reads this list and loads each name on first use."""

from . import calibrators as calibrators
from . import losses as losses
from . import metrics as metrics
from .calibrators import (
    BayesianBinning as BayesianBinning,
)
from .calibrators import (
    BetaCalibration as BetaCalibration,
)
from .calibrators import (
    Calibrator as Calibrator,
)
from .calibrators import (
    Compose as Compose,
)
from .calibrators import (
    DirichletCalibration as DirichletCalibration,
)
from .calibrators import (
    EnsembleTemperatureScaling as EnsembleTemperatureScaling,
)
from .calibrators import (
    FitReport as FitReport,
)
from .calibrators import (
    FocalCalibration as FocalCalibration,
)
from .calibrators import (
    FocalTemperatureScaling as FocalTemperatureScaling,
)
from .calibrators import (
    HistogramBinning as HistogramBinning,
)
from .calibrators import (
    Identity as Identity,
)
from .calibrators import (
    IsotonicCalibration as IsotonicCalibration,
)
from .calibrators import (
    MatrixScaling as MatrixScaling,
)
from .calibrators import (
    PlattScaling as PlattScaling,
)
from .calibrators import (
    SplineCalibration as SplineCalibration,
)
from .calibrators import (
    TemperatureScaling as TemperatureScaling,
)
from .calibrators import (
    VectorScaling as VectorScaling,
)
from .calibrators import (
    load_calibrator as load_calibrator,
)
from .core.focal import (
    confidence_thresholds as confidence_thresholds,
)
from .core.focal import (
    gamma_star as gamma_star,
)
from .core.focal import (
    gradient_ratio as gradient_ratio,
)
from .core.focal_map import (
    focal_map as focal_map,
)
from .core.focal_map import (
    focal_map_inverse as focal_map_inverse,
)
from .core.focal_map import (
    focal_minimizer as focal_minimizer,
)
from .core.focal_map import (
    proper_focal_loss as proper_focal_loss,
)
from .core.temperature import (
    nearest_temperature as nearest_temperature,
)
from .core.temperature import (
    optimal_temperature as optimal_temperature,
)
from .core.temperature import (
    suggest_gamma as suggest_gamma,
)
from .core.temperature import (
    temperature_bounds as temperature_bounds,
)
from .errors import (
    FileFormatError as FileFormatError,
)
from .errors import (
    FocalCalError as FocalCalError,
)
from .errors import (
    InputError as InputError,
)
from .errors import (
    InputWarning as InputWarning,
)
from .errors import (
    MissingExtraError as MissingExtraError,
)
from .errors import (
    NotFittedError as NotFittedError,
)
from .losses import (
    AdaFocalLoss as AdaFocalLoss,
)
from .losses import (
    BinaryFocalLoss as BinaryFocalLoss,
)
from .losses import (
    BrierLoss as BrierLoss,
)
from .losses import (
    CalFocalLoss as CalFocalLoss,
)
from .losses import (
    FocalLoss as FocalLoss,
)
from .losses import (
    LabelSmoothingLoss as LabelSmoothingLoss,
)
from .losses import (
    LinearFocalLoss as LinearFocalLoss,
)
from .losses import (
    MMCELoss as MMCELoss,
)
from .losses import (
    ScheduledGamma as ScheduledGamma,
)
from .losses import (
    StepGamma as StepGamma,
)
from .losses import (
    brier_loss as brier_loss,
)
from .losses import (
    focal_loss as focal_loss,
)
from .losses import (
    sigmoid_focal_loss as sigmoid_focal_loss,
)
from .metrics import (
    Evaluation as Evaluation,
)
from .metrics import (
    bootstrap as bootstrap,
)
from .metrics import (
    compare as compare,
)
from .metrics import (
    evaluate as evaluate,
)
from .report import (
    plots as plots,
)
from .select import (
    Selection as Selection,
)
from .select import (
    select_calibrator as select_calibrator,
)

__version__: str
