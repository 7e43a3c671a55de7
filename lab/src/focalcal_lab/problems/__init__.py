"""The papers' two toy problems, where the truth is known: a linear model, and three classes on a line."""

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
    OneDimensionalProblem,
    PosteriorEstimate,
    one_dimensional_limits,
    one_dimensional_problem,
)

__all__ = [
    "Limit",
    "LinearProblem",
    "LinearRun",
    "OneDimensionalProblem",
    "PosteriorEstimate",
    "linear_limit",
    "linear_problem",
    "linear_risk",
    "one_dimensional_limits",
    "one_dimensional_problem",
    "sure_mistakes",
]
