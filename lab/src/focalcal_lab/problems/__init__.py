"""The papers' two toy problems, where the truth is known: a linear model, and three classes on a line.

`python -m focalcal_lab.problems FOLDER` solves both, prints their tables and draws their figures.
"""

from focalcal_lab.problems.draw import draw_mistakes, draw_norms, draw_one_dimensional, save_drawings
from focalcal_lab.problems.linear import (
    Limit,
    LinearProblem,
    LinearRun,
    linear_limit,
    linear_problem,
    linear_risk,
    sure_mistakes,
)
from focalcal_lab.problems.one_dimensional import (
    Estimate,
    OneDimensionalProblem,
    one_dimensional_limits,
    one_dimensional_problem,
)

__all__ = [
    "Estimate",
    "Limit",
    "LinearProblem",
    "LinearRun",
    "OneDimensionalProblem",
    "draw_mistakes",
    "draw_norms",
    "draw_one_dimensional",
    "linear_limit",
    "linear_problem",
    "linear_risk",
    "one_dimensional_limits",
    "one_dimensional_problem",
    "save_drawings",
    "sure_mistakes",
]
