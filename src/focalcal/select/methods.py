"""The methods that take part in a comparison: calibrators by name, or all that suit the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.table import (
    calibrator_entries,
    calibrator_label,
    calibrator_names,
    make_calibrator,
    short_name,
)
from focalcal.core.checks import require
from focalcal.select.result import IDENTITY

Method: TypeAlias = "Calibrator | type[Calibrator] | str"
Methods: TypeAlias = "Mapping[str, Method] | Sequence[Method] | Method"


def chosen_methods(
    methods: Methods | None, num_classes: int, num_rows: int
) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """Calibrators by name, and the reasons why some of the default set are missing."""
    if methods is None:
        return suitable_methods(num_classes, num_rows)
    if isinstance(methods, Mapping):
        named = [(name, _template(method)) for name, method in methods.items()]
    else:
        several = isinstance(methods, Iterable) and not isinstance(methods, (str, Calibrator))
        templates = [_template(method) for method in (methods if several else [methods])]  # type: ignore[union-attr]
        named = [(calibrator_label(template), template) for template in templates]
    require(len(named) > 0, "methods", "must name at least one method", "none", "None takes all that suit the data.")
    names = [name for name, _ in named]
    doubled = sorted({str(name) for name in names if names.count(name) > 1 or name == IDENTITY})
    fix = "Pass a mapping from names of your own to calibrators; the raw logits take part in any case."
    require(not doubled, "methods", f"names must differ from one another and from {IDENTITY}", ", ".join(doubled), fix)
    return dict(named), {}


def in_order_of_simplicity(templates: Mapping[str, Calibrator]) -> dict[str, Calibrator]:
    """The methods as the table of calibrators has them, simple ones first; those that it lacks come last.

    >>> from focalcal import IsotonicCalibration, TemperatureScaling
    >>> list(in_order_of_simplicity({"steps": IsotonicCalibration(), "T": TemperatureScaling()}))
    ['T', 'steps']
    """
    order = calibrator_names()

    def place(name: str) -> int:
        known = short_name(templates[name])
        return order.index(known) if known in order else len(order)

    return {name: templates[name] for name in sorted(templates, key=place)}


def _template(method: object) -> Calibrator:
    """The calibrator of a method that is given as a calibrator, a class or a name."""
    if isinstance(method, str):
        method = make_calibrator(method)
    made = method() if isinstance(method, type) and issubclass(method, Calibrator) else method
    require(isinstance(made, Calibrator), "methods", "must be calibrators, their classes or names", repr(method))
    assert isinstance(made, Calibrator)
    return made


def suitable_methods(num_classes: int, num_rows: int) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """The calibrators of the table that suit such data, by name, and why the others do not.

    >>> suitable_methods(3, 100)[1]["platt"]
    'it is for two classes, and there are 3'
    """
    templates: dict[str, Calibrator] = {}
    left_out = {}
    for entry in calibrator_entries():
        parameters = num_classes * (num_classes + 1)
        if entry.two_classes and num_classes != 2:
            left_out[entry.name] = f"it is for two classes, and there are {num_classes:,}"
        elif entry.square and parameters > num_rows:
            left_out[entry.name] = f"it has {parameters:,} parameters, more than the {num_rows:,} rows"
        else:
            made = [entry.load()(**settings) for settings in entry.tried]
            templates |= {calibrator_label(calibrator): calibrator for calibrator in made}
    return templates, left_out
