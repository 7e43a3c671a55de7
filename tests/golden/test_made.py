"""focalcal on synthetic predictions against values recorded from the definitions, by tests/golden/record.py."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal import metrics as m
from tests.golden import record
from tests.golden.made import BATCH, models

EXPECTED = json.loads(record.FILE.read_text())


@pytest.fixture(params=sorted(EXPECTED))
def case(request):
    """The recorded values of a set of predictions, and the predictions."""
    return EXPECTED[request.param], models()[request.param]


MEASURES = {
    "ece_15": lambda x, y: m.ece(x, y),
    "ece_10": lambda x, y: m.ece(x, y, num_bins=10),
    "ece_15_l2": lambda x, y: m.ece(x, y, norm="l2"),
    "mce_15": lambda x, y: m.mce(x, y),
    "ada_ece_15": lambda x, y: m.ada_ece(x, y),
    "array_split_ece_15_l2": lambda x, y: m.ece(x, y, norm="l2", edges="array_split"),
    "classwise_ece_15": lambda x, y: m.classwise_ece(x, y),
    "debiased_15_l2": lambda x, y: m.ece_debiased(x, y),
    "debiased_15_l1": lambda x, y: m.ece_debiased(x, y, norm="l1"),
    "debiased_15_l2_equal_width": lambda x, y: m.ece_debiased(x, y, edges="equal_width"),
    "debiased_15_l2_classwise": lambda x, y: m.ece_debiased(x, y, target="classwise"),
    "sweep_equal_mass_l1": lambda x, y: m.ece_sweep(x, y, edges="equal_mass"),
    "sweep_equal_mass_l2": lambda x, y: m.ece_sweep(x, y, edges="equal_mass", norm="l2"),
    "sweep_equal_width_l1": lambda x, y: m.ece_sweep(x, y, edges="equal_width"),
    "smooth_ece": lambda x, y: m.smooth_ece(x, y),
    "smooth_ece_0.05": lambda x, y: m.smooth_ece(x, y, sigma=0.05),
    "ks_error": lambda x, y: m.ks_error(x, y),
    "mmce": lambda x, y: m.mmce(x[:256], y[:256]),
    "mmce_weighted": lambda x, y: m.mmce(x[:256], y[:256], weighted=True),
    "brier": lambda x, y: m.brier(x, y),
    "nll": lambda x, y: m.nll(x, y),
    "accuracy": lambda x, y: m.accuracy(x, y),
    "top_3_accuracy": lambda x, y: m.top_k_accuracy(x, y, k=3),
    "mean_confidence": lambda x, y: m.mean_confidence(x, y),
    "entropy": lambda x, y: m.entropy(x, y).overall,
    "auroc_by_confidence": lambda x, y: m.auroc_correctness(x, y),
    "auroc_by_entropy": lambda x, y: m.auroc_correctness(x, y, by="entropy"),
}
# Rounding to float32 makes ties of rows that were apart, and these measures depend on the order of rows.
CHANGED_BY_TIES = {"array_split_ece_15_l2", "debiased_15_l2", "debiased_15_l1", "auroc_by_confidence"}
LOSSES = {
    **{f"focal {gamma:g}": fc.FocalLoss(gamma, reduction="sum") for gamma in (0.0, 0.5, 1.0, 3.0, -0.5, -2.0)},
    "flsd-53": fc.FocalLoss("flsd-53", reduction="sum"),
    "brier": fc.BrierLoss(reduction="sum"),
    "label smoothing": fc.LabelSmoothingLoss(0.05, reduction="sum"),
    "mmce weighted=False": fc.MMCELoss(weighted=False).mmce,
    "mmce weighted=True": fc.MMCELoss(weighted=True).mmce,
}


def agree(ours, expected, **tolerance):
    """Compare dictionaries of numbers, and show every difference at once."""
    assert set(ours) == set(expected)
    wrong = {
        name: (ours[name], value) for name, value in expected.items() if ours[name] != pytest.approx(value, **tolerance)
    }
    assert not wrong, wrong


def test_measures_equal_their_definitions(case):
    expected, (logits, labels) = case
    agree({name: float(measure(logits, labels)) for name, measure in MEASURES.items()}, expected["measures"], abs=1e-12)


def test_measures_of_float32_logits_equal_their_definitions_to_six_digits(case):
    """The logits are the same numbers in float32; what differs is what focalcal computes from them."""
    expected, (logits, labels) = case
    single = logits.astype(np.float32)
    ours = {name: float(measure(single, labels)) for name, measure in MEASURES.items()}
    has_ties = m.s99(logits, labels, threshold=1 - 1e-6).share > 0.05
    without = CHANGED_BY_TIES if has_ties else set()
    agree(
        *(
            {name: value for name, value in each.items() if name not in without}
            for each in (ours, expected["measures"])
        ),
        abs=1e-6,
    )


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_equal_their_definitions(name, case):
    expected, made = case
    logits = torch.tensor(2 * made.logits[:BATCH], requires_grad=True)
    value = LOSSES[name](logits, torch.tensor(made.labels[:BATCH]))
    value.backward()
    ours = record.gradient_summary(value.item(), logits.grad.numpy())
    agree(ours, expected["losses"][name], rel=1e-9, abs=1e-14)


def test_a_temperature_is_the_optimum_and_the_best_of_the_grid(case):
    expected, made = case
    calibration, _ = made.halves
    assert fc.TemperatureScaling().fit(*calibration).temperature_ == pytest.approx(expected["temperature"], rel=1e-10)
    for criterion, scheme in (("ece", "equal_width"), ("ada_ece", "equal_mass")):
        fitted = fc.TemperatureScaling(criterion).fit(*calibration)
        temperature, error = expected["error_grid"][scheme]
        assert fitted.temperature_ == pytest.approx(temperature, abs=1e-12)
        assert fitted.report_.after == pytest.approx(error, abs=1e-12)


def test_the_focal_map_is_exact(case):
    expected, (logits, _) = case
    for (gamma, temperature), rows in zip(record.MAP, expected["focal_map"], strict=True):
        probs = fc.FocalCalibration(gamma).predict_probs(logits[: record.MAPPED_ROWS] / temperature)
        np.testing.assert_allclose(-np.sort(-probs)[:, :2], rows, rtol=1e-12, atol=1e-13)


def test_focal_temperature_scaling_finds_the_best_point_of_its_grid_and_the_optimum(case):
    expected, made = case
    calibration, _ = made.halves
    grid = fc.FocalTemperatureScaling("nll", gammas=record.GAMMAS, grid=record.GRID).fit(*calibration)
    found = [grid.gamma_, grid.temperature_, grid.report_.after]
    assert found == pytest.approx(expected["focal_grid"], abs=1e-12)
    continuous = fc.FocalTemperatureScaling("nll", search="continuous").fit(*calibration)
    assert continuous.report_.after <= grid.report_.after + 1e-12
    gamma, least = expected["focal_optimum"]
    if gamma < 20:  # as far as the search goes
        assert continuous.gamma_ == pytest.approx(gamma, abs=1e-5)
        assert continuous.report_.after == pytest.approx(least, abs=1e-12)


def test_no_focal_search_does_worse_than_temperature_scaling_on_the_same_grid(case):
    calibration, _ = case[1].halves
    plain = fc.TemperatureScaling("ada_ece", grid=record.GRID).fit(*calibration)
    for search in ("full", "line"):
        focal = fc.FocalTemperatureScaling("ada_ece", search, gammas=record.GAMMAS, grid=record.GRID).fit(*calibration)
        assert focal.report_.after <= plain.report_.after + 1e-12
        assert np.array_equal(focal(calibration.logits).argmax(1), plain(calibration.logits).argmax(1))


@pytest.mark.parametrize("criterion", ["nll", "brier"])
def test_ensemble_temperature_scaling_reaches_the_least_objective(criterion, case):
    expected, made = case
    temperature, least = expected["ensemble"][criterion]
    fitted = fc.EnsembleTemperatureScaling(criterion).fit(*made.halves[0])
    assert fitted.temperature_ == pytest.approx(temperature, rel=1e-9)
    assert fitted.report_.after == pytest.approx(least, abs=1e-10)


@pytest.mark.parametrize("name", [name for name in EXPECTED if "vector_scaling" in EXPECTED[name]])
def test_vector_and_matrix_scaling_reach_the_least_nll(name):
    expected, (calibration, _) = EXPECTED[name], models()[name].halves
    vector = fc.VectorScaling().fit(*calibration)
    assert vector.report_.after == pytest.approx(expected["vector_scaling"]["nll"], abs=1e-12)
    np.testing.assert_allclose(vector.weight_, expected["vector_scaling"]["weight"], atol=1e-8)
    np.testing.assert_allclose(vector.bias_, expected["vector_scaling"]["bias"], atol=1e-8)
    matrix = fc.MatrixScaling(off_diagonal=0.0, intercept=0.0).fit(*calibration)
    assert matrix.report_.after == pytest.approx(expected["matrix_scaling"]["nll"], abs=1e-12)


@pytest.mark.parametrize("lam", ["1", "20"])
def test_adafocal_has_the_edges_and_gammas_of_its_definition(lam, case):
    expected, made = case
    logits, labels = map(torch.tensor, made.halves[0])
    edges, gammas = expected["adafocal"][lam]
    loss = fc.AdaFocalLoss(lam=float(lam))
    for _ in range(4):
        loss.update(logits, labels)
    np.testing.assert_allclose(loss.edges[1:-1], edges[1:-1], rtol=1e-12)
    np.testing.assert_allclose(loss.gamma, gammas, rtol=1e-9)


def test_the_inputs_are_the_recorded_ones():
    """A number of the file that says nothing but which rows were drawn."""
    for name, made in models().items():
        assert np.all(made.logits * 1024 == np.floor(made.logits * 1024))
        assert EXPECTED[name]["measures"]["accuracy"] == np.mean(made.logits.argmax(1) == made.labels)
