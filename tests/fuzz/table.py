"""The table of what is fuzzed. To add a target, define `TARGET` in a module and enter the module here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from tests.fuzz.target import Target

_MODULES = {
    "readers": "tests.fuzz.readers.target",
    "calibrator-files": "tests.fuzz.calibrator_files",
    "metrics": "tests.fuzz.metrics",
    "losses": "tests.fuzz.losses",
    "kernels": "tests.fuzz.kernels",
    "recipes": "lab.tests.fuzz.recipes",
}

NAMES = tuple(_MODULES)
# Packages without which a target cannot be tried: the library is also tested without the lab.
NEEDS = {"recipes": "focalcal_lab"}


@cache
def find_target(name: str) -> Target:
    """A target by its name."""
    target: Target = import_module(_MODULES[name]).TARGET
    assert target.name == name
    return target
