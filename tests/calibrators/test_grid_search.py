"""The fast scan against the slow one: every point of the grid, class by class, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal.calibrators.fit_data import data_of_arrays
from focalcal.calibrators.search import Criterion, focal_temperature_map, grid
from focalcal.calibrators.search.grid import scan_grid, scan_lines
from focalcal.calibrators.search.line import _best_of_each, search_line
from focalcal.kernels.focal_grid import SCAN_ERROR

GAMMAS = (-0.9, -0.5, 0.0, 0.05, 1.0, 5.0, 20.0)
TEMPERATURES = (0.01, 0.05, 0.3, 0.8, 1.0, 1.3, 2.5, 5.0, 100.0)
CRITERIA = [Criterion("nll"), Criterion("brier"), Criterion("focal", 2.0), Criterion("ece"), Criterion("ada_ece")]
CRITERIA += [Criterion("smooth_ece"), Criterion("ks")]


def planted(num, classes, temperature=1.7, seed=0):
    """Logits that are too sharp by a temperature."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(num, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return temperature * logits, labels


def data_of(logits, labels, weight=None):
    return data_of_arrays(logits, labels, "logits", weight)


def direct(logits, labels, gamma, temperature, criterion):
    """The definition, through the public map and the public measures."""
    probs = torch.softmax(logits / temperature, 1)
    probs = fc.focal_map(probs, gamma) if gamma else probs
    if criterion.name == "focal":
        p = probs.gather(1, labels.unsqueeze(1)).squeeze(1)
        return float(((1 - p) ** criterion.gamma * -torch.log(p)).mean())
    measure = {"ks": "ks_error"}.get(criterion.name, criterion.name)
    return float(getattr(fc.metrics, measure)(probs, labels, kind="probs"))


@pytest.mark.parametrize("classes", [2, 9, 16, 17, 60])
@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: c.name)
def test_the_scan_finds_what_a_direct_evaluation_of_every_point_finds(classes, criterion):
    logits, labels = planted(300, classes)
    gammas, temperatures = (-0.5, 0.0, 0.25, 1.0, 5.0), (0.5, 0.9, 1.1, 1.6, 1.8, 2.4, 3.0)
    found = scan_grid(data_of(logits, labels), criterion, gammas, temperatures)
    table = {(g, t): direct(logits, labels, g, t, criterion) for g in gammas for t in temperatures}
    assert found.value == pytest.approx(min(table.values()), abs=1e-12)
    assert table[found.point] == pytest.approx(min(table.values()), abs=1e-12)
    assert found.iterations == len(table)


@pytest.mark.parametrize("classes", [3, 40])
@pytest.mark.parametrize("criterion", CRITERIA[:3], ids=lambda c: c.name)
def test_every_value_of_a_smooth_scan_is_right_to_what_it_promises(classes, criterion):
    logits, labels = planted(200, classes, seed=3)
    lines = [(temperature, GAMMAS) for temperature in TEMPERATURES]
    values = grid.values_at(data_of(logits, labels), criterion, lines)
    for point, value in zip(grid._points(lines), values, strict=True):
        expected = criterion.of(data_of(logits, labels), focal_temperature_map(*point))
        assert value == pytest.approx(expected, rel=SCAN_ERROR, abs=SCAN_ERROR), point


@pytest.mark.parametrize("classes", [2, 50])
@pytest.mark.parametrize("criterion", CRITERIA[3:], ids=lambda c: c.name)
def test_values_of_a_scan_are_right_and_what_it_leaves_out_is_worse(classes, criterion):
    logits, labels = planted(200, classes, seed=5)
    lines = [(0.4 * i, (-0.5, 0.0, 1.0, 5.0)) for i in range(1, 13)]
    values, left_out = grid.values_at(data_of(logits, labels), criterion, lines), 0
    for point, value in zip(grid._points(lines), values, strict=True):
        exact = criterion.of(data_of(logits, labels), focal_temperature_map(*point))
        left_out += math.isinf(value)
        # A confidence within the error of an edge may change its bin of equal width.
        error = 1 / 200 if criterion.name == "ece" else 2 * SCAN_ERROR
        assert exact > values.min() if math.isinf(value) else value == pytest.approx(exact, abs=error)
    if criterion.name in ("ece", "ada_ece"):
        assert left_out == 0
    else:
        assert left_out > len(lines)  # or it would be slow


@pytest.mark.parametrize("name", ["nll", "ece", "ada_ece"])
def test_whole_number_weights_are_repeated_rows(name):
    logits, labels = planted(120, 20, seed=7)
    weight = torch.arange(120) % 3
    kept = torch.repeat_interleave(torch.arange(120), weight)
    gammas, temperatures = (-0.5, 0.0, 1.0), (0.8, 1.2, 1.5, 1.9)
    weighted = scan_grid(data_of(logits, labels, weight.double()), Criterion(name), gammas, temperatures)
    repeated = scan_grid(data_of(logits[kept], labels[kept]), Criterion(name), gammas, temperatures)
    assert weighted.point == repeated.point
    assert weighted.value == pytest.approx(repeated.value, abs=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: c.name)
def test_ties_go_to_the_temperature_nearest_to_one_and_to_gamma_zero(criterion):
    logits, labels = torch.zeros(30, 4, dtype=torch.float64), torch.arange(30) % 4
    found = scan_grid(data_of(logits, labels), criterion, (-0.5, 0.0, 1.0), [i / 10 for i in range(1, 30)])
    assert found.point == (0.0, 1.0)
    assert not found.at_boundary


def test_a_line_search_says_whether_gamma_is_at_an_end_and_does_without_points_along_the_line():
    data, temperatures = data_of(*planted(300, 3)), [i / 10 for i in range(5, 40)]
    for gammas, at_end in (((-1.0, 3.0), False), ((0.0, 1.0), True), ((30.0, 40.0), False)):
        found = search_line(data, Criterion("nll"), gammas, temperatures)
        assert found.point == (0.0, 1.7)
        assert found.at_boundary is at_end


@pytest.mark.parametrize("criterion", [CRITERIA[0], *CRITERIA[3:]], ids=lambda c: c.name)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_ends_of_a_line_are_the_best_temperatures_of_gamma_0_and_1(criterion, weighted):
    data = data_of(*planted(200, 5), torch.rand(200, dtype=torch.float64) if weighted else None)
    temperatures = [i / 5 for i in range(3, 20)]
    found = _best_of_each(data, criterion, (0.0, 1.0), temperatures)
    assert found == [scan_grid(data, criterion, [gamma], temperatures) for gamma in (0.0, 1.0)]


def test_in_memory_every_point_that_may_be_the_best_is_measured_exactly(monkeypatch):
    logits, labels = planted(300, 3)
    temperatures = (0.8, 1.0, 1.2, 1.6, 2.0, 3.0)
    best = scan_grid(data_of(logits, labels), Criterion("nll"), (0.0,), temperatures)
    assert best.point.temperature != 1.0
    monkeypatch.setattr(grid, "SCAN_ERROR", 1.0)  # by its approximate value any point may be the best
    monkeypatch.setattr(grid, "_EXACT_STREAMED", 1)
    assert scan_grid(data_of(logits, labels), Criterion("nll"), (0.0,), temperatures) == best


def test_rows_that_are_not_kept_give_the_same_result(monkeypatch):
    logits, labels = planted(300, 30)
    gammas, temperatures = (-0.5, 0.0, 0.5, 1.0), (0.8, 1.2, 1.6, 2.0)
    kept = scan_grid(data_of(logits, labels), Criterion("ece"), gammas, temperatures)
    monkeypatch.setattr(grid, "_KEPT", 0)
    monkeypatch.setattr(grid, "_CONFIDENCES_OF_A_PASS", 1500)  # four points and no more
    assert scan_grid(data_of(logits, labels), Criterion("ece"), gammas, temperatures) == kept


@pytest.mark.parametrize("scale", [1e-6, 1e4])
@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: c.name)
def test_tiny_and_huge_logits_give_finite_values(scale, criterion):
    logits, labels = planted(50, 20)
    lines = [(temperature, GAMMAS[1:]) for temperature in TEMPERATURES]
    found = scan_lines(data_of(scale * logits, labels), criterion, lines)
    assert math.isfinite(found.value)
    assert found.value <= criterion.of(data_of(scale * logits, labels)) + 1e-12  # the identity is one of the points


@pytest.mark.parametrize("criterion", ["smooth_ece", "ks"])
def test_tied_confidences_are_measured_once_and_not_at_every_point(criterion, monkeypatch):
    measured = []
    plain = Criterion.of_confidences
    monkeypatch.setattr(Criterion, "of_confidences", lambda self, *rows: measured.append(0) or plain(self, *rows))
    labels = np.arange(300) % 10
    fitted = fc.FocalTemperatureScaling(criterion, gammas=[0.5, 1.0, 2.0]).fit(np.zeros((300, 10)), labels)
    assert fitted.report_.after == pytest.approx(0, abs=1e-15)
    assert len(measured) <= 60  # of 2,000 points and 100 temperatures
