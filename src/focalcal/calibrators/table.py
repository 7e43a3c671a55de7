"""The table of calibrators: their names, where each class is, and what it preserves.

`select_calibrator`, the command line, recipes and calibrator files all look calibrators up here, by short name, alias
or class name. Reading the table imports no tensor library.

>>> find_calibrator("ETS").name, find_calibrator("TemperatureScaling").name
('ensemble-temperature', 'temperature')
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

from focalcal.errors import FocalCalError, InputError

if TYPE_CHECKING:  # the classes of the table, for type checkers and editors
    from focalcal.calibrators.base import Calibrator
    from focalcal.calibrators.binary import BetaCalibration as BetaCalibration, PlattScaling as PlattScaling
    from focalcal.calibrators.ensemble import EnsembleTemperatureScaling as EnsembleTemperatureScaling
    from focalcal.calibrators.focal import (
        FocalCalibration as FocalCalibration,
        FocalTemperatureScaling as FocalTemperatureScaling,
    )
    from focalcal.calibrators.identity import Identity as Identity
    from focalcal.calibrators.linear import (
        DirichletCalibration as DirichletCalibration,
        MatrixScaling as MatrixScaling,
        VectorScaling as VectorScaling,
    )
    from focalcal.calibrators.one_vs_rest import (
        BayesianBinning as BayesianBinning,
        HistogramBinning as HistogramBinning,
        IsotonicCalibration as IsotonicCalibration,
    )
    from focalcal.calibrators.spline import SplineCalibration as SplineCalibration
    from focalcal.calibrators.temperature import TemperatureScaling as TemperatureScaling

Preserves = Literal["ranking", "class", "nothing"]

# The entry-point group of distributions that bring calibrators: each entry is a module that registers them.
GROUP = "focalcal.calibrators"


@dataclass(frozen=True)
class CalibratorEntry:
    """A row of the table.

    Attributes:
        name: the short name.
        location: where the class is, as "module:Class".
        preserves: what a fit leaves as it was in every row: the "ranking" of all classes, the predicted "class", or
            "nothing".
        aliases: other names.
        two_classes: whether it takes two classes only.
        arrays: whether its fitted values are arrays, saved as safetensors, or a few numbers, saved as JSON.
        square: whether it has K (K + 1) parameters for K classes; it is not tried on fewer rows than that.
        tried: the settings that `select_calibrator` tries unless it is told otherwise.
    """

    name: str
    location: str
    preserves: Preserves = "nothing"
    aliases: tuple[str, ...] = ()
    two_classes: bool = False
    arrays: bool = False
    square: bool = False
    tried: tuple[dict[str, Any], ...] = ({},)

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return self.location.rpartition(":")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the file that it is saved in."""
        return ".safetensors" if self.arrays else ".json"

    def load(self) -> type[Calibrator]:
        """The class, imported."""
        module, _, name = self.location.partition(":")
        kind: type[Calibrator] = _REGISTERED.get(self.name) or getattr(importlib.import_module(module), name)
        return kind


def _row(name: str, location: str, preserves: Preserves, **more: Any) -> CalibratorEntry:
    return CalibratorEntry(name, f"focalcal.calibrators.{location}", preserves, **more)


# Simple methods first: of equal scores `select_calibrator` puts the first one first.
_BUILT_IN = (
    _row("identity", "identity:Identity", "ranking", tried=()),
    _row("temperature", "temperature:TemperatureScaling", "ranking", tried=({}, {"criterion": "ada_ece"})),
    _row("focal", "focal:FocalCalibration", "ranking", aliases=("focal-calibration",)),
    _row(
        "focal-temperature",
        "focal:FocalTemperatureScaling",
        "ranking",
        tried=({"criterion": "nll", "search": "continuous"}, {}),
    ),
    _row("ensemble-temperature", "ensemble:EnsembleTemperatureScaling", "ranking", aliases=("ets",), arrays=True),
    _row("spline", "spline:SplineCalibration", "nothing", arrays=True),
    _row("platt", "binary:PlattScaling", "nothing", two_classes=True),
    _row("beta", "binary:BetaCalibration", "nothing", two_classes=True),
    _row("vector", "linear:VectorScaling", "nothing", arrays=True),
    _row("matrix", "linear:MatrixScaling", "nothing", arrays=True, square=True),
    _row("dirichlet", "linear:DirichletCalibration", "nothing", arrays=True, square=True),
    _row("histogram", "one_vs_rest:HistogramBinning", "nothing", arrays=True),
    _row("isotonic", "one_vs_rest:IsotonicCalibration", "nothing", arrays=True),
    _row("bbq", "one_vs_rest:BayesianBinning", "nothing", aliases=("bayesian-binning",), arrays=True),
)
_ENTRIES = {entry.name: entry for entry in _BUILT_IN}
_REGISTERED: dict[str, type[Calibrator]] = {}


def calibrator_entries() -> tuple[CalibratorEntry, ...]:
    """All rows of the table, with those that were registered.

    >>> [entry.name for entry in calibrator_entries()][:3]
    ['identity', 'temperature', 'focal']
    """
    return tuple(_ENTRIES.values())


def calibrator_names() -> tuple[str, ...]:
    """The short names of all calibrators.

    >>> calibrator_names()[:3]
    ('identity', 'temperature', 'focal')
    """
    return tuple(_ENTRIES)


def find_calibrator(text: str) -> CalibratorEntry:
    """The row of a calibrator by its short name, an alias or its class name, in upper or lower case.

    >>> find_calibrator("focal_temperature").class_name
    'FocalTemperatureScaling'
    """
    entry = _lookup(text)
    if entry is None:
        _load_plugins()
        entry = _lookup(text)
    if entry is None:
        raise InputError(f"method: must be one of {', '.join(_ENTRIES)}; got {text.strip()!r}.")
    return entry


def _lookup(text: str) -> CalibratorEntry | None:
    plain = _plain(text)
    for entry in _ENTRIES.values():
        if plain in (entry.name, *map(_plain, entry.aliases), entry.class_name.lower()):
            return entry
    return None


def _plain(text: str) -> str:
    return text.strip().lower().replace("_", "-")


def _load_plugins() -> None:
    for plugin in entry_points(group=GROUP):
        plugin.load()


def register_calibrator(
    kind: type[Calibrator],
    name: str,
    *,
    aliases: tuple[str, ...] = (),
    preserves: Preserves = "nothing",
    arrays: bool = False,
) -> None:
    """Enter a calibrator of your own in the table.

    It can then be named in `select_calibrator`, on the command line and in recipes, and its files can be loaded. For
    the command line, a distribution names the module that registers it in the entry-point group
    `focalcal.calibrators`.

    Args:
        kind: the class, which must be one that `kind(**calibrator.settings())` makes again.
        name: the short name, in lower case with hyphens.
        aliases: other names.
        preserves: what it leaves as it was in every row: the "ranking" of all classes, the predicted "class", or
            "nothing".
        arrays: whether fitted values are arrays, which are saved as safetensors instead of JSON.

    >>> import focalcal as fc
    >>> class HalfTemperature(fc.Identity):
    ...     def _log_probs(self, logits):
    ...         return (2 * logits).log_softmax(1)
    >>> register_calibrator(HalfTemperature, "half", preserves="ranking")
    >>> fc.calibrators.make_calibrator("half")
    HalfTemperature()
    """
    location = f"{kind.__module__}:{kind.__qualname__}"
    for text in (name, *aliases, kind.__name__):
        known = _lookup(text)
        if known is not None and known.location != location:
            raise InputError(f"name: {text!r} already stands for {known.class_name}. Choose another one.")
    if name != _plain(name) or ":" in name or "," in name:
        raise InputError(f"name: must be lower case with hyphens and without colons or commas; got {name!r}.")
    _ENTRIES[name] = CalibratorEntry(name, location, preserves, aliases, bool(kind.BINARY), arrays)
    _REGISTERED[name] = kind


def make_calibrator(text: str, **options: Any) -> Calibrator:
    """A calibrator, not fitted yet, from its name: NAME, NAME:CRITERION or NAME:CRITERION:SEARCH.

    `options` are further arguments of its class.

    >>> make_calibrator("temperature:ada_ece").criterion.name
    'ada_ece'
    """
    name, *more = (part.strip() for part in text.split(":"))
    if len(more) > 2:
        raise InputError(f"method: must be NAME, NAME:CRITERION or NAME:CRITERION:SEARCH; got {text.strip()!r}.")
    entry = find_calibrator(name)
    options = {**dict(zip(("criterion", "search"), more, strict=False)), **options}
    known = _parameters(entry.load())
    for option in options:
        if option not in known:
            raise InputError(f"{option}: is not an option of method {entry.name}. Leave it out.")
    return entry.load()(**options)


def _parameters(kind: type[Calibrator]) -> tuple[str, ...]:
    import inspect

    return tuple(inspect.signature(kind).parameters)


def short_name(calibrator: Calibrator | type[Calibrator]) -> str:
    """The short name of a calibrator's class; the name of the class if it is not in the table.

    >>> import focalcal as fc
    >>> short_name(fc.PlattScaling())
    'platt'
    """
    kind = calibrator if isinstance(calibrator, type) else type(calibrator)
    location = f"{kind.__module__}:{kind.__qualname__}"
    return next((entry.name for entry in _ENTRIES.values() if entry.location == location), kind.__name__)


def calibrator_label(calibrator: Calibrator) -> str:
    """A calibrator's short name with the settings that are not its defaults, as `make_calibrator` takes them.

    >>> import focalcal as fc
    >>> calibrator_label(fc.TemperatureScaling("ada_ece")), calibrator_label(fc.HistogramBinning(10))
    ('temperature:ada_ece', 'histogram(num_bins=10)')
    """
    from focalcal.calibrators.compose import Compose

    kind, settings = type(calibrator), calibrator.settings()
    if isinstance(calibrator, Compose):
        return f"{kind.__name__}({', '.join(map(calibrator_label, calibrator.parts))})"
    try:
        usual = kind().settings()
    except (TypeError, FocalCalError):  # some argument has no default
        usual = {}
    own = {name: value for name, value in settings.items() if usual.get(name) != value}
    label = short_name(calibrator)
    if "search" in own:
        label += f":{settings['criterion']}:{own.pop('search')}"
        own.pop("criterion", None)
    elif "criterion" in own:
        label += f":{own.pop('criterion')}"
    return f"{label}({', '.join(f'{name}={value}' for name, value in own.items())})" if own else label
