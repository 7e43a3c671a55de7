"""Temperatures, grids and the focal map against the published implementations, on real predictions."""

from __future__ import annotations

import re

import numpy as np
import pytest

import focalcal as fc
from tests.golden.test_losses import MODELS

pytestmark = pytest.mark.slow

KOMISARENKO_REFERENCE = [i / 20 for i in range(1, 101)]  # their code: 0.05 to 5.00 in steps of 0.05


@pytest.fixture(scope="module", params=MODELS)
def case(request, golden, golden_predictions):
    """Reference values, logits and labels of the calibration half, logits and labels of the evaluation half."""
    probs, labels = golden_predictions(request.param)
    logits = np.log(np.maximum(probs, 1e-38))
    return (
        golden("calibrators.json")["models"][request.param],
        logits[:5000],
        labels[:5000],
        logits[5000:],
        labels[5000:],
    )


def test_the_temperature_by_nll_is_the_high_precision_optimum(case):
    reference, logits, labels, _, _ = case
    found = fc.TemperatureScaling().fit(logits, labels)
    for entry in reference["temperature_nll"]:
        assert found.temperature_ == pytest.approx(entry["definition_value"]["temperature"], rel=1e-10)
    assert found.report_.after == pytest.approx(reference["temperature_nll"][0]["value"]["nll_calibration"], rel=1e-12)
    # In float32 the rows are rounded, and the temperature moves in the eighth digit.
    coarse = fc.TemperatureScaling().fit(logits.astype(np.float32), labels)
    assert coarse.temperature_ == pytest.approx(found.temperature_, rel=1e-6)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert fc.TemperatureScaling().fit(probs, labels, kind="probs").temperature_ == pytest.approx(found.temperature_)


@pytest.mark.parametrize("criterion", ["ece", "ada_ece"])
def test_the_grid_of_mukhoti2020_gives_the_references_argmin(case, criterion):
    reference, logits, labels, evaluated, truth = case
    entry = reference[f"temperature_grid_equal_{'width' if criterion == 'ece' else 'mass'}_ece"][0]
    found = fc.TemperatureScaling(criterion).fit(logits, labels)
    exact = entry["definition_value"]
    assert found.temperature_ == pytest.approx(exact["temperature"], abs=1e-12)
    assert found.temperature_ == pytest.approx(entry["value"]["temperature"], abs=1e-9)
    assert found.report_.after == pytest.approx(exact["error_at_minimum"], abs=1e-12)
    measured = fc.metrics.nll(found(evaluated), truth)
    assert measured == pytest.approx(exact["evaluation"]["nll"], rel=1e-12)


def test_the_focal_map_equals_the_reference(case):
    reference, logits, *_ = case
    for name, entry in reference["focal_map_first_64"].items():
        gamma, temperature = map(float, re.fullmatch(r"gamma=(.+),T=(.+)", name).groups())
        probs = fc.FocalCalibration(gamma).predict_probs(logits[:64] / temperature)
        exact = entry["definition_value"]
        largest = np.sort(probs, 1)[:, ::-1][: len(exact["top3"]), :3]
        np.testing.assert_allclose(largest, exact["top3"], rtol=0, atol=1e-12)
        np.testing.assert_allclose((probs**2).sum(), exact["sum_of_squares"], rtol=1e-12)


def test_focal_temperature_scaling_finds_the_references_best_point(case):
    reference, logits, labels, _, _ = case
    known = {
        float(name.removeprefix("gamma=")): entry["value"]
        for name, entry in reference["focal_temperature_scaling"].items()
        if name != "joint"
    }
    best = min(known, key=lambda gamma: known[gamma]["nll_calibration"])
    found = fc.FocalTemperatureScaling("nll", gammas=sorted(known), grid=KOMISARENKO_REFERENCE).fit(logits, labels)
    assert found.gamma_ == best  # gamma 0, which is always among ours, is not better
    assert found.temperature_ == pytest.approx(known[best]["temperature_by_nll"], abs=1e-9)
    assert found.report_.after == pytest.approx(known[best]["nll_calibration"], rel=1e-9)


def test_the_continuous_search_is_at_least_as_good_as_the_best_known_point(case):
    reference, logits, labels, _, _ = case
    known = reference["focal_temperature_scaling"]
    found = fc.FocalTemperatureScaling("nll", search="continuous").fit(logits, labels)
    assert found.report_.converged
    assert found.report_.after <= known["joint"]["value"]["nll_calibration"] + 1e-12
    for name, entry in known.items():
        if name != "joint":
            assert found.report_.after <= entry["definition_value"]["nll_calibration"] + 1e-12
