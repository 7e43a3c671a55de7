"""The public names of focalcal.calibrators: those below and the classes of the table."""

from .base import Calibrator as Calibrator, FitReport as FitReport
from .compose import Compose as Compose
from .files import load_calibrator as load_calibrator
from .table import *  # noqa: F403
