"""Training losses: drop-ins for `nn.CrossEntropyLoss` that make classifiers truthful about how sure they are.

>>> import torch
>>> from focalcal.losses import make_loss
>>> make_loss("flsd-53")(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0]))
tensor(1.1956)
"""

from types import ModuleType as _ModuleType

from focalcal.losses.adafocal import *  # noqa: F403
from focalcal.losses.brier import *  # noqa: F403
from focalcal.losses.calfocal import *  # noqa: F403
from focalcal.losses.focal import *  # noqa: F403
from focalcal.losses.gamma import *  # noqa: F403
from focalcal.losses.label_smoothing import *  # noqa: F403
from focalcal.losses.linear import *  # noqa: F403
from focalcal.losses.mmce import *  # noqa: F403
from focalcal.losses.sigmoid import *  # noqa: F403
from focalcal.losses.table import *  # noqa: F403

# Each module lists its public names in its own `__all__`.
__all__ = sorted(name for name, thing in globals().items() if name[0] != "_" and not isinstance(thing, _ModuleType))


def __dir__() -> list[str]:
    return __all__
