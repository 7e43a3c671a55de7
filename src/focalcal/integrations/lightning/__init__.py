"""Lightning: a classifier for any network and loss, and callbacks that steer the losses.

>>> from focalcal.integrations.lightning import AdaFocalCallback, CalibratedClassifier
"""

from __future__ import annotations

from focalcal.errors import MissingExtraError

try:
    import lightning.pytorch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("Lightning is not installed. pip install 'focalcal[lightning]' brings it.") from error

from focalcal.integrations.lightning.callbacks import AdaFocalCallback, CalFocalCallback, GammaScheduleCallback
from focalcal.integrations.lightning.classifier import CalibratedClassifier
from focalcal.integrations.lightning.figures import ReliabilityFigureCallback

__all__ = [
    "AdaFocalCallback",
    "CalFocalCallback",
    "CalibratedClassifier",
    "GammaScheduleCallback",
    "ReliabilityFigureCallback",
]
