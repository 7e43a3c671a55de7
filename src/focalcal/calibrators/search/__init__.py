"""Searches for the best member of a family of calibrators: named criteria, grids, a line, and Newton's method.

`TemperatureScaling` searches T with gamma = 0, `FocalCalibration` gamma with T = 1, `FocalTemperatureScaling` both.
Every search returns a `focalcal.core.optimum.Optimum`.
"""

from focalcal.calibrators.search.criteria import Criterion
from focalcal.calibrators.search.grid import (
    GAMMAS,
    GRIDS,
    FamilyPoint,
    Grid,
    focal_temperature_map,
    gammas_of,
    search_grid,
    temperatures_of,
)
from focalcal.calibrators.search.line import search_line
from focalcal.calibrators.search.newton import search_newton
from focalcal.calibrators.search.temperature import search_temperature

__all__ = [
    "GAMMAS",
    "GRIDS",
    "Criterion",
    "FamilyPoint",
    "Grid",
    "focal_temperature_map",
    "gammas_of",
    "search_grid",
    "search_line",
    "search_newton",
    "search_temperature",
    "temperatures_of",
]
