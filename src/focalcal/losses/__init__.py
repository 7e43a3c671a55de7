"""Training losses: drop-ins for `nn.CrossEntropyLoss` that make classifiers truthful about how sure they are.

>>> import torch
>>> from focalcal.losses import make_loss
>>> make_loss("flsd-53")(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0]))
tensor(1.1956)
"""

from focalcal.losses.adafocal import AdaFocalLoss
from focalcal.losses.brier import BrierLoss, brier_loss
from focalcal.losses.calfocal import CalFocalLoss
from focalcal.losses.focal import FocalLoss, focal_loss
from focalcal.losses.gamma import ScheduledGamma, StepGamma
from focalcal.losses.label_smoothing import LabelSmoothingLoss
from focalcal.losses.linear import LinearFocalLoss
from focalcal.losses.mmce import MMCELoss
from focalcal.losses.sigmoid import BinaryFocalLoss, sigmoid_focal_loss
from focalcal.losses.table import LOSSES, NamedLoss, make_loss, register_loss

__all__ = [
    "LOSSES",
    "AdaFocalLoss",
    "BinaryFocalLoss",
    "BrierLoss",
    "CalFocalLoss",
    "FocalLoss",
    "LabelSmoothingLoss",
    "LinearFocalLoss",
    "MMCELoss",
    "NamedLoss",
    "ScheduledGamma",
    "StepGamma",
    "brier_loss",
    "focal_loss",
    "make_loss",
    "register_loss",
    "sigmoid_focal_loss",
]
