"""The nearest temperatures that the checks rely on, against a finer search than a check has time for."""

from __future__ import annotations

import pytest

import focalcal as fc
from focalcal_lab.papers.exact.komisarenko2024 import nearest_by_search, worst_difference
from focalcal_lab.papers.exact.tools import logit_rows


@pytest.mark.slow
@pytest.mark.parametrize(("num_classes", "step"), [(3, 0.01), (4, 0.05)])
def test_nearest_temperature_agrees_with_a_fine_search_of_all_rows(num_classes, step):
    rows = logit_rows(num_classes, step)
    for gamma in (1.0, 5.0):
        ours = fc.nearest_temperature(gamma, num_classes)
        found, least = nearest_by_search(gamma, rows, ours)
        assert ours == pytest.approx(found, rel=1e-3)
        assert worst_difference(ours, gamma, rows) == pytest.approx(least, rel=3e-3)
