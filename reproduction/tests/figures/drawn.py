"""Every figure of the papers, drawn once for all tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from reproduction.figures import all_figures


@cache
def figure(name: str) -> Any:
    """A figure by its name."""
    return all_figures()[name]()
