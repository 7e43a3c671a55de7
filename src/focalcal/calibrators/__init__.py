"""Post-hoc calibrators: fitted to held-out logits and labels, they turn logits into log-probabilities one can trust.

>>> from focalcal import TemperatureScaling
>>> calibrator = TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1])
>>> [round(p, 4) for p in calibrator.predict_probs([[2.0, 0.0]])[0].tolist()]  # two of three were right
[0.6667, 0.3333]
"""

from focalcal.calibrators.base import Calibrator, FitReport
from focalcal.calibrators.binary import BetaCalibration, PlattScaling
from focalcal.calibrators.compose import Compose
from focalcal.calibrators.ensemble import EnsembleTemperatureScaling
from focalcal.calibrators.files import load_calibrator
from focalcal.calibrators.focal import FocalCalibration, FocalTemperatureScaling
from focalcal.calibrators.identity import Identity
from focalcal.calibrators.linear import DirichletCalibration, MatrixScaling, VectorScaling
from focalcal.calibrators.one_vs_rest import BayesianBinning, HistogramBinning, IsotonicCalibration
from focalcal.calibrators.spline import SplineCalibration
from focalcal.calibrators.temperature import TemperatureScaling

__all__ = [
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
]
