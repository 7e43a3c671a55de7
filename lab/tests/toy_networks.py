"""The networks of the one-dimensional problem, which take half a minute: trained once for all tests of this group."""

from __future__ import annotations

import functools

import pytest

from focalcal_lab.problems import OneDimensionalProblem, one_dimensional_problem

toy = pytest.mark.xdist_group("toy")


@functools.cache
def trained() -> OneDimensionalProblem:
    """As `focalcal_lab.problems` trains them by default."""
    return one_dimensional_problem()
