"""Code of the user's own that gives data: imported only by a name from the command line, never by one from a file.

Recipes and run folders are passed on, and to import a module is to run it. So a file can at most record the name; what
is imported is an object that `import_dataset` made, which no file can hold.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from focalcal.errors import InputError


@dataclass(frozen=True)
class UserDataset:
    """A data set, a class of data sets or a function that makes one, and the name by which the user asked for it."""

    name: str
    found: Any


def is_dataset_name(name: str) -> bool:
    """Whether a text is "package.module:name", which is safe to show and to type.

    >>> is_dataset_name("package.module:Pairs"), is_dataset_name("module:a; rm -r ~")
    (True, False)
    """
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")])


def import_dataset(name: str) -> UserDataset:
    """Import what the user named; modules in the current folder are found, too, but only here.

    >>> import_dataset("torch.utils.data:TensorDataset").found.__name__
    'TensorDataset'
    """
    if not is_dataset_name(name):
        raise InputError(f'dataset: must be "package.module:name"; got {name!r}.')
    module, _, attribute = name.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"dataset: {name} cannot be imported ({error}). Is it installed, or in this folder?"
        ) from error
    finally:
        sys.path.remove(here)
    if isinstance(found, type) and not (hasattr(found, "__getitem__") and hasattr(found, "__len__")):
        raise InputError(f"dataset: {name} must be a class of data sets, with __len__ and __getitem__, or a function.")
    return UserDataset(name, found)
