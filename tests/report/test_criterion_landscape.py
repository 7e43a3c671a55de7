from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from focalcal.calibrators import FocalTemperatureScaling, TemperatureScaling
from focalcal.calibrators.fit_data import data_of_arrays
from focalcal.calibrators.search import Criterion, focal_temperature_map
from focalcal.errors import InputError
from focalcal.files.prediction_table import PredictionTable
from focalcal.report.criterion_landscape import CRITERIA, landscape, landscapes
from tests.report.cases import sharp_table

pytestmark = pytest.mark.slow


def criterion_at(table: PredictionTable, criterion: str, gamma: float, temperature: float) -> float:
    data = data_of_arrays(table.scores, table.labels, table.kind, table.weights)
    return Criterion(criterion).of(data, focal_temperature_map(gamma, temperature))


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_the_criteria_of_the_library(weighted: bool) -> None:
    weights = np.random.default_rng(0).uniform(0.5, 2, 400) if weighted else None
    table = sharp_table(400, weights=weights)
    for found in landscapes(table):
        for i, j in ((0, 3), (9, 20), (15, 25), (24, 39)):
            exact = criterion_at(table, found.criterion, found.gammas[i], found.temperatures[j])
            assert found.values[i][j] == pytest.approx(exact, abs=2e-6)


def test_values_of_many_classes_are_right_to_three_digits() -> None:
    table = sharp_table(400, 60)
    for found in landscapes(table):
        for i, j in ((4, 12), (9, 20), (15, 25), (24, 35)):
            exact = criterion_at(table, found.criterion, found.gammas[i], found.temperatures[j])
            assert found.values[i][j] == pytest.approx(exact, rel=2e-3, abs=5e-4)


def test_optima_are_those_of_the_fits_and_no_value_of_the_map_is_better() -> None:
    table = sharp_table(2000, 5)
    nll, ada_ece = landscapes(table)
    plain = TemperatureScaling("nll").fit(table.scores, table.labels)
    focal = FocalTemperatureScaling("nll", search="continuous").fit(table.scores, table.labels)
    assert nll.best_temperature.gamma == 0
    assert nll.best_temperature.temperature == pytest.approx(plain.temperature_, rel=1e-6)
    assert nll.best_focal.value == pytest.approx(focal.report_.after, abs=1e-6)
    assert nll.best_focal.gamma == pytest.approx(focal.gamma_, abs=0.02)
    for found in (nll, ada_ece):
        assert found.best_focal.value <= np.min(found.values)
        assert found.best_focal.value <= found.best_temperature.value
        assert found.best_temperature.value <= min(found.values[found.gammas.index(0.0)])
        assert found.best_focal.value == pytest.approx(
            criterion_at(table, found.criterion, found.best_focal.gamma, found.best_focal.temperature), abs=2e-6
        )


def test_no_fitted_calibrator_by_the_same_criterion_is_better_than_the_marked_optimum() -> None:
    table = sharp_table(1500, 5, seed=3)
    fitted = FocalTemperatureScaling("ada_ece").fit(table.scores, table.labels)
    found = landscapes(table, fitted=[fitted])[CRITERIA.index("ada_ece")]
    assert found.best_focal.value <= fitted.report_.after + 1e-6


def test_map_covers_the_optima_one_and_the_paper_gammas() -> None:
    for found in landscapes(sharp_table(500, sharp=3.0)):
        best = found.best_temperature.temperature
        assert found.temperatures[0] <= 0.34 * min(best, 1)
        assert found.temperatures[-1] >= 3 * max(best, 1)
        assert {-0.9, 0.0, 1.0, 5.0} <= set(found.gammas)
        assert np.shape(found.values) == (len(found.gammas), len(found.temperatures))


def test_line_goes_through_the_best_temperatures_of_gamma_0_and_1() -> None:
    table = sharp_table(2000, 5)
    found = landscape(table, "nll")
    gamma, temperature = np.array(found.line).T
    at_zero, at_one = np.interp([0.0, 1.0], gamma, temperature)
    assert at_zero == pytest.approx(found.best_temperature.temperature, rel=1e-6)
    around = [criterion_at(table, "nll", 1.0, at_one * factor) for factor in (0.98, 1.0, 1.02)]
    assert around[1] == min(around)
    np.testing.assert_allclose(np.diff(temperature), temperature[1] - temperature[0])


def test_large_tables_are_sampled_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focalcal.report.criterion_landscape.MAX_ROWS", 200)
    table = sharp_table(300, 2)
    one, same, other = (landscape(table, "nll", seed=seed) for seed in (0, 0, 1))
    assert one == same
    assert one.values != other.values


def test_all_correct_rows_give_a_map_all_the_same() -> None:
    table = sharp_table(100)
    table = replace(table, labels=table.scores.argmax(1))
    for found in landscapes(table):
        assert np.isfinite(found.values).all()
        assert found.temperatures[0] <= found.best_focal.temperature <= found.temperatures[-1]


def test_unknown_criteria_are_refused() -> None:
    with pytest.raises(InputError, match="nll, ada_ece"):
        landscape(sharp_table(20), "ece")
