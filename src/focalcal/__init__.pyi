"""The public names of focalcal, written once: `__init__.py` reads this list and loads each name on first use.

A package with a star lists its own names, so that a new loss or calibrator is entered in its table only.
"""

from . import calibrators as calibrators, losses as losses, metrics as metrics
from .calibrators import *  # noqa: F403
from .calibrators.optimal_temperature import (
    optimal_temperature as optimal_temperature,
    suggest_gamma as suggest_gamma,
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
from .losses import *  # noqa: F403
from .metrics import (
    Evaluation as Evaluation,
    bootstrap as bootstrap,
    compare as compare,
    evaluate as evaluate,
)
from .networks import (
    CalibratedNetwork as CalibratedNetwork,
    calibrate as calibrate,
    collect as collect,
)
from .report import (
    plots as plots,
)
from .report.notebook import (
    WrittenReport as WrittenReport,
    report as report,
)
from .select import (
    Selection as Selection,
    select_calibrator as select_calibrator,
)
from .versions import (
    show_versions as show_versions,
)

__version__: str
