"""Paths below a folder from names that a file gives: one function makes them all, and none of them leaves the folder.

A recipe, a run folder or a results file may come from someone else, and its names become names of files: of the recipe,
the method, a calibrator's phase, a set that is out of distribution.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from focalcal.errors import InputError

_LONGEST = 120  # bytes of a name: file systems take 255, of which suffixes and temporary names need some
# Names of devices on Windows, whatever their suffix, and characters that its file names cannot have.
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
_FORBIDDEN = '<>:"|?*\\'


def path_below(folder: str | Path, *names: str, what: str = "") -> Path:
    """The path of a file or folder below `folder`; each of `names` is one part of it.

    Refuses names that are not fit for a file on every system, and links that lead out of the folder. `what` is what
    errors call the names.

    >>> path_below("runs", *"cpu/digits".split("/"), "fl-3", "seed-0").as_posix()
    'runs/cpu/digits/fl-3/seed-0'
    >>> path_below("runs", "../../shared", what="method")
    Traceback (most recent call last):
    focalcal.errors.InputError: method: must not have a slash; got '../../shared'. Choose a plain name, such as run-1.
    """
    place = Path(folder).joinpath(*(check_name(name, what) for name in names))
    if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder)):
        raise InputError(
            f"{place}: leads out of {folder} through a link, and a run reads and writes below its own folder only. "
            "Replace the link by what it stands for."
        )
    return place


def check_name(name: str, what: str = "", *, most_parts: int = 1) -> str:
    """The name itself, if it is fit for a file, or for a path of at most `most_parts` parts.

    >>> check_name("cpu/digits", "name", most_parts=2)
    'cpu/digits'
    >>> check_name("..", "phase")
    Traceback (most recent call last):
    focalcal.errors.InputError: phase: must not end with a dot; got '..'. Choose a plain name, such as run-1.
    """
    parts = name.split("/")
    rule = next((broken for part in parts if (broken := _broken_rule(part))), "")
    if len(parts) > most_parts:
        rule = "must not have a slash" if most_parts == 1 else f"must have at most {most_parts} parts"
    if rule:
        shown = repr(name) if len(name) <= 60 else f"{name[:60]!r}..."
        said = f"{what}: {rule}; got {shown}" if what else f"{shown}: {rule}"
        raise InputError(f"{said}. Choose a plain name, such as run-1.")
    return name


def _broken_rule(part: str) -> str:
    """Which rule for one part of a path is broken; empty if none is."""
    if not part:
        return "must not be empty, nor have an empty part"
    if not part.isprintable():  # neither NUL nor what a terminal obeys, nor half of a character
        return "must have no control characters"
    if any(sign in _FORBIDDEN for sign in part):
        return f"must have none of {' '.join(_FORBIDDEN)}"
    if part.endswith("."):
        return "must not end with a dot"
    if part != part.strip():
        return "must not begin or end with a space"
    if _DEVICE.fullmatch(part):
        return "must not be the name of a device of Windows"
    if len(part.encode()) > _LONGEST:
        return f"must have at most {_LONGEST} bytes in each part"
    return ""
