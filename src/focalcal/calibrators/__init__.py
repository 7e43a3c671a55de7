"""Post-hoc calibrators: fitted to held-out logits and labels, they turn logits into log-probabilities one can trust.

>>> from focalcal import TemperatureScaling
>>> calibrator = TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1])
>>> [round(p, 4) for p in calibrator.predict_probs([[2.0, 0.0]])[0].tolist()]  # two of three were right
[0.6667, 0.3333]
"""

from focalcal.calibrators.base import Calibrator, FitReport
from focalcal.calibrators.compose import Compose
from focalcal.calibrators.files import load_calibrator
from focalcal.calibrators.focal import FocalCalibration
from focalcal.calibrators.temperature import TemperatureScaling

__all__ = [
    "Calibrator",
    "Compose",
    "FitReport",
    "FocalCalibration",
    "TemperatureScaling",
    "load_calibrator",
]
