"""Lightning: a classifier for any network and loss, callbacks that steer the losses, and a monitor.

>>> from focalcal.integrations.lightning import AdaFocalCallback, CalibratedClassifier
"""

from __future__ import annotations

from focalcal.errors import MissingExtraError

try:
    import lightning.pytorch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("Lightning is not installed. pip install 'focalcal[lab]' brings it.") from error

from focalcal.integrations.lightning.callbacks import AdaFocalCallback, CalFocalCallback, GammaScheduleCallback
from focalcal.integrations.lightning.classifier import CalibratedClassifier
from focalcal.integrations.lightning.monitor import MonitorCallback, read_monitor

__all__ = [
    "AdaFocalCallback",
    "CalFocalCallback",
    "CalibratedClassifier",
    "GammaScheduleCallback",
    "MonitorCallback",
    "read_monitor",
]
