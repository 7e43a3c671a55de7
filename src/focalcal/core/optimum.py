"""The result of a search for a minimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Point = TypeVar("Point")


@dataclass(frozen=True)
class Optimum(Generic[Point]):
    """The best point of a search, the objective there, and how the search ended.

    `iterations` counts steps, passes or points of a grid; 0 says that nothing was searched because the caller gave the
    point. `at_boundary` says that the objective is lowest at an end of what was searched, or falls for ever. `before`
    is the objective of the raw logits, where the search has come across it.

    >>> Optimum(point=2.0, value=0.5, iterations=3).converged
    True
    """

    point: Point
    value: float
    iterations: int
    converged: bool = True
    at_boundary: bool = False
    before: float | None = None
