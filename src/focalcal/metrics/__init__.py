"""Every calibration measure, one way to read scores.

Each measure takes `(scores, labels, *, kind="logits" | "log_probs" | "probs")`, numpy or torch, and returns a float
that knows its definition. `read` reads scores once for many measures, `evaluate` computes all of them, `bootstrap`
says how certain one is, `register_measure` adds one of your own, and `focalcal.metrics.streaming` has classes for
streams and training loops.

>>> from focalcal import metrics
>>> metrics.ece([[2.0, 0.0], [0.0, 1.0]], [0, 1]).definition
'ECE, top label, 15 equal-width bins, l1'
"""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from focalcal.metrics.accuracy import *  # noqa: F403
from focalcal.metrics.bin_free_errors import *  # noqa: F403
from focalcal.metrics.calibration_error import *  # noqa: F403
from focalcal.metrics.entropy import *  # noqa: F403
from focalcal.metrics.evaluation import *  # noqa: F403
from focalcal.metrics.intervals import *  # noqa: F403
from focalcal.metrics.out_of_distribution import *  # noqa: F403
from focalcal.metrics.prediction_set import *  # noqa: F403
from focalcal.metrics.proper_scores import *  # noqa: F403
from focalcal.metrics.read_scores import *  # noqa: F403
from focalcal.metrics.reliability import *  # noqa: F403
from focalcal.metrics.selective_prediction import *  # noqa: F403
from focalcal.metrics.table import *  # noqa: F403

# Each module lists its public names in its own `__all__`.
__all__ = sorted(name for name, thing in globals().items() if name[0] != "_" and not isinstance(thing, _ModuleType))


def __getattr__(name: str) -> object:
    if name == "streaming":  # loaded when asked for: it needs torchmetrics
        return _import_module("focalcal.metrics.streaming")
    raise AttributeError(f"module 'focalcal.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "streaming"])
