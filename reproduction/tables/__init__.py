"""The tables of docs/results, one module for each page."""

from reproduction.tables import (
    after_training,
    dynamics,
    gamma,
    human,
    losses,
    out_of_distribution,
    overview,
    translation,
)

__all__ = [
    "after_training",
    "dynamics",
    "gamma",
    "human",
    "losses",
    "out_of_distribution",
    "overview",
    "translation",
]
