from __future__ import annotations

import itertools
import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

import focalcal as fc
from focalcal.calibrators import optimal_temperature
from focalcal.core import temperature


def worst_difference(rows, gamma, inverse_temperature):
    mapped = fc.focal_map(torch.softmax(rows, 1), gamma)
    return float((torch.softmax(inverse_temperature * rows, 1) - mapped).abs().max())


@pytest.mark.parametrize(
    ("classes", "step", "gamma"),
    [(2, 0.01, 0.5), (2, 0.01, 5.0), (3, 0.1, 0.5), (3, 0.1, 2.0), (3, 0.1, 5.0), (4, 0.25, 2.0)],
)
def test_nearest_temperature_is_the_minimax_over_a_grid_of_all_rows(classes, step, gamma):
    """The oracle: every sorted row of logits at most 10 apart, on a grid."""
    levels = np.arange(0, 10 + 1e-9, step)
    rows = torch.tensor([(0.0, *-np.array(c)) for c in itertools.combinations_with_replacement(levels, classes - 1)])
    found = minimize_scalar(
        lambda b: worst_difference(rows, gamma, b),
        bounds=(1.0, gamma + 1),
        method="bounded",
        options={"xatol": 1e-6},
    )
    ours = 1 / fc.nearest_temperature(gamma, classes)
    assert ours == pytest.approx(found.x, rel=0.02)
    # No row of the grid is further off at our temperature than the grid's own optimum allows.
    assert worst_difference(rows, gamma, ours) <= found.fun * 1.03 + 1e-4


def test_nearest_temperature_lies_between_the_bounds_for_two_classes():
    for gamma in (0.1, 1.0, 4.0, 10.0):
        sharp, soft = fc.temperature_bounds(gamma)
        assert sharp < fc.nearest_temperature(gamma, 2) < soft


def test_nearest_temperature_falls_with_gamma_and_rises_with_the_number_of_classes():
    by_gamma = [fc.nearest_temperature(gamma, 10) for gamma in (0.0, 0.5, 1.0, 3.0, 9.0)]
    by_classes = [fc.nearest_temperature(3.0, classes) for classes in (2, 3, 4, 10, 100, 1000)]
    assert by_gamma[0] == 1
    assert by_gamma == sorted(by_gamma, reverse=True)
    assert by_classes == sorted(by_classes)


def test_a_negative_gamma_softens():
    assert fc.nearest_temperature(-0.5, 3) > 1


def calibrated_logits(num, classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(num, classes, generator=generator, dtype=torch.float64)
    return logits, torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)


def test_optimal_temperature_is_where_the_slope_of_the_nll_vanishes():
    logits, labels = calibrated_logits(500, 5)
    best = fc.optimal_temperature(3 * logits, labels)
    temperature = torch.tensor(best, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.cross_entropy(3 * logits / temperature, labels).backward()
    assert abs(temperature.grad) < 1e-12
    assert best == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("start", [0.001, 0.3, 2.9, 50.0, 1e6])
def test_optimal_temperature_does_not_depend_on_its_start(start):
    logits, labels = calibrated_logits(500, 5)
    assert fc.optimal_temperature(3 * logits, labels, start=start) == pytest.approx(
        fc.optimal_temperature(3 * logits, labels), rel=1e-9
    )


def test_the_last_term_of_the_series_says_how_far_off_its_minimum_may_be():
    step, unsure = temperature._least(np.array([0.0, -0.1, 1.0, 0.5, 0.3, 0.2, 0.7]), 1.0)
    assert unsure == pytest.approx(0.7 / math.factorial(5) * step**5)


def test_a_start_near_the_answer_is_faster(monkeypatch):
    logits, labels = calibrated_logits(500, 5)
    passes = Mock(side_effect=optimal_temperature.tempered_sums)
    monkeypatch.setattr(optimal_temperature, "tempered_sums", passes)
    best = fc.optimal_temperature(30 * logits, labels)
    far = passes.call_count
    assert fc.optimal_temperature(30 * logits, labels, start=best) == pytest.approx(best)
    assert passes.call_count - far < far


@pytest.mark.parametrize("start", [0.0, -1.0, float("nan"), float("inf")])
def test_optimal_temperature_refuses_a_start_that_is_no_temperature(start):
    with pytest.raises(fc.InputError, match="start: must be a positive temperature; got"):
        fc.optimal_temperature([[1.0, 0.0]], [0], start=start)


def test_optimal_temperature_stays_in_its_bounds_when_there_is_no_optimum():
    right, wrong = [[5.0, 0.0], [0.0, 5.0]], [[0.0, 5.0], [5.0, 0.0]]
    assert fc.optimal_temperature(right, [0, 1]) == pytest.approx(0.01)
    assert fc.optimal_temperature(wrong, [0, 1]) == pytest.approx(1000)


@pytest.mark.parametrize(("classes", "planted"), [(2, 2.0), (3, 1.5), (10, 2.0)])
def test_suggested_gamma_undoes_the_overconfidence_that_was_planted(classes, planted):
    """A model that is too sure by T gets the gamma whose nearest temperature is 1/T."""
    logits, labels = calibrated_logits(4000, classes)
    gamma = fc.suggest_gamma(planted * logits, labels)
    temperature = fc.optimal_temperature(planted * logits, labels)
    assert 0 < gamma < 20
    assert 1 / fc.nearest_temperature(gamma, classes) == pytest.approx(temperature, rel=1e-5)


def test_read_only_arrays_and_small_integers_are_welcome():
    """As they come out of a memory-mapped file; torch would warn, and warnings are errors here."""
    logits, labels = calibrated_logits(300, 3)
    frozen, classes = logits.numpy().copy(), labels.numpy().astype(np.uint16)
    frozen.flags.writeable = classes.flags.writeable = False
    expected = pytest.approx(fc.optimal_temperature(logits, labels))
    assert fc.optimal_temperature(frozen, classes) == expected
    assert fc.optimal_temperature(frozen[::-1], classes[::-1]) == expected


def test_suggested_gamma_is_zero_for_a_modest_model_and_capped_for_a_hopeless_one():
    logits, labels = calibrated_logits(2000, 3)
    assert fc.suggest_gamma((0.5 * logits).numpy(), labels.numpy()) == 0.0
    assert fc.suggest_gamma(1000 * logits, labels) == 20.0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: fc.suggest_gamma([[math.nan, 0.0]], [0]), "val_logits: every value must be finite"),
        (lambda: fc.suggest_gamma([0.0, 1.0], [0]), r"val_logits: must have shape \(N, K\)"),
        (lambda: fc.suggest_gamma([[0.0, 1.0]], [0.5]), "val_labels: must be class numbers"),
        (lambda: fc.suggest_gamma([[0.0, 1.0]], [0, 1]), r"val_labels: must have shape \(1,\)"),
        (lambda: fc.suggest_gamma([[0.0, 1.0]], [2]), r"labels: every label must lie in 0\.\.1; got 2"),
        (lambda: fc.suggest_gamma(torch.empty(0, 3), torch.empty(0, dtype=torch.long)), "at least one row"),
        (lambda: fc.nearest_temperature(-1.0, 3), "gamma: must be greater than -1"),
        (lambda: fc.nearest_temperature(1.0, 1), "num_classes: must be at least 2"),
        (lambda: fc.temperature_bounds(-0.5), "gamma: must be non-negative"),
    ],
)
def test_bad_input_is_refused_with_its_name_and_rule(call, match):
    with pytest.raises(fc.InputError, match=match):
        call()
