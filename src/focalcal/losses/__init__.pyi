"""The public names of focalcal.losses, for type checkers."""

from .adafocal import *  # noqa: F403
from .brier import *  # noqa: F403
from .calfocal import *  # noqa: F403
from .focal import *  # noqa: F403
from .gamma import *  # noqa: F403
from .label_smoothing import *  # noqa: F403
from .linear import *  # noqa: F403
from .mmce import *  # noqa: F403
from .sigmoid import *  # noqa: F403
from .table import *  # noqa: F403
