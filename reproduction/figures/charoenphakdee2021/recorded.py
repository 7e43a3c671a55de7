"""The numbers that `record.py` wrote."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def recorded() -> dict[str, Any]:
    """What networks on the one-dimensional problem ("line") and on noisy digits ("digits") gave.

    >>> sorted(recorded())
    ['digits', 'line']
    """
    found: dict[str, Any] = json.loads(
        resources.files(__package__).joinpath("recorded.json").read_text(encoding="utf-8")
    )
    return found
