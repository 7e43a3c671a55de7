"""Whether the place of an output can be written to, which commands ask before long work starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from focalcal.errors import InputError


def require_output(out: str, option: str, *, inputs: Sequence[str] = ()) -> None:
    """Refuse a place that cannot be written, or that is one of the inputs."""
    place = Path(out)
    if not out.strip():
        raise InputError(f"{option}: must be a path; got nothing.")
    if place.is_dir():
        raise InputError(f"{out}: is a directory; {option} needs the name of a file.")
    require_place(out, option)
    for each in inputs:
        if os.path.exists(each) and os.path.exists(out) and os.path.samefile(each, out):
            raise InputError(f"{out}: is read and cannot be written at the same time. Give {option} another name.")


def require_place(out: str, option: str) -> None:
    """Refuse a place in a directory that is not there or cannot be written to, and pipes and devices.

    Files are moved to their place when they are complete: a device would be replaced, not written to.
    """
    place = Path(out)
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise InputError(f"{out}: is neither a file nor a directory. Give {option} the name of a file.")
    parent = Path(out).absolute().parent
    if not parent.is_dir():
        raise InputError(f"{out}: there is no directory {parent}. Make it first, or change {option}.")
    if not os.access(parent, os.W_OK):
        raise InputError(f"{out}: the directory {parent} cannot be written to. Change {option}.")
