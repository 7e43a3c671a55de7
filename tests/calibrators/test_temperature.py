from __future__ import annotations

import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

import focalcal as fc
from focalcal.calibrators.fit_data import LabelledLogits
from focalcal.calibrators.search import sample as sample_module, temperature as search_module, temperatures_of
from focalcal.calibrators.search.sample import RowSample
from focalcal.kernels.compiled import kernels_for
from tests.calibrators.test_grid_search import planted

SMOOTH = [("nll", None), ("brier", None), ("focal", 0.5), ("focal", 3.0)]


def criterion_at(logits, labels, temperature, name, gamma):
    """The definition, from torch's own softmax."""
    log_probs = torch.log_softmax(logits / temperature, 1)
    nll = -log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    if name == "brier":
        return float((log_probs.exp() - torch.nn.functional.one_hot(labels, logits.shape[1])).square().sum(1).mean())
    return float(((1 - torch.exp(-nll)) ** (gamma or 0.0) * nll).mean())


@pytest.mark.parametrize(("name", "gamma"), SMOOTH)
@pytest.mark.parametrize("classes", [2, 7])
def test_a_smooth_criterion_is_minimised_to_the_last_digits(name, gamma, classes):
    logits, labels = planted(400, classes)
    found = fc.TemperatureScaling(name, gamma=gamma).fit(logits, labels)
    reference = minimize_scalar(
        lambda u: criterion_at(logits, labels, math.exp(u), name, gamma), bounds=(-1, 2), method="bounded",
        options={"xatol": 1e-12},
    )  # fmt: skip
    assert found.report_.converged
    assert found.report_.after <= reference.fun + 1e-15
    assert math.log(found.temperature_) == pytest.approx(reference.x, abs=1e-6)
    # The slope vanishes: to the second order of a step of 1e-4 both sides are equally bad.
    up, down = (criterion_at(logits, labels, found.temperature_ * math.exp(s), name, gamma) for s in (1e-4, -1e-4))
    assert abs(up - down) < 1e-11


def test_the_criterion_of_the_training_loss_moves_the_temperature_away_from_that_of_the_nll():
    """charoenphakdee2021: the focal loss as objective gives another answer than the likelihood."""
    logits, labels = planted(2000, 5)
    plain = fc.TemperatureScaling().fit(logits, labels).temperature_
    focal = fc.TemperatureScaling("focal", gamma=3.0).fit(logits, labels).temperature_
    assert focal > 1.1 * plain
    assert fc.TemperatureScaling("focal", gamma=0.0).fit(logits, labels).temperature_ == pytest.approx(plain, rel=1e-8)


@pytest.mark.parametrize("criterion", ["ece", "ada_ece", "smooth_ece"])
def test_refinement_finds_something_better_between_the_points_of_the_grid(criterion):
    logits, labels = planted(1000, 5)
    coarse = fc.TemperatureScaling(criterion, grid=[0.5, 1.0, 1.5, 2.0, 2.5]).fit(logits, labels)
    fine = fc.TemperatureScaling(criterion, grid=[0.5, 1.0, 1.5, 2.0, 2.5], refine=True).fit(logits, labels)
    assert fine.report_.after < coarse.report_.after
    assert abs(fine.temperature_ - coarse.temperature_) <= 0.5
    assert fine.report_.after == pytest.approx(getattr(fc.metrics, criterion)(fine(logits), labels), abs=1e-12)


def test_a_grid_serves_smooth_criteria_too():
    logits, labels = planted(500, 4)
    exact = fc.TemperatureScaling().fit(logits, labels)
    grid = fc.TemperatureScaling(grid="komisarenko2024").fit(logits, labels)
    assert abs(grid.temperature_ - exact.temperature_) <= 0.01
    assert exact.report_.after <= grid.report_.after
    assert grid.report_.iterations == 500


def test_the_grids_of_the_papers():
    mukhoti, komisarenko = (temperatures_of(name) for name in ("mukhoti2020", "komisarenko2024"))
    assert (len(mukhoti), mukhoti[0], mukhoti[20], mukhoti[-1]) == (100, 0.1, 2.1, 10.0)
    assert (len(komisarenko), komisarenko[0], komisarenko[-1]) == (500, 0.01, 5.0)


def test_large_data_starts_from_a_sample_and_needs_few_passes(monkeypatch):
    logits, labels = planted(20_000, 5, temperature=2.4)
    passes = Mock(side_effect=search_module.tempered_sums)
    monkeypatch.setattr(search_module, "tempered_sums", passes)
    monkeypatch.setattr(search_module, "SAMPLED", 4000)
    monkeypatch.setattr(sample_module, "SAMPLED", 4000)
    found = fc.TemperatureScaling().fit(logits, labels)
    whole = [call for call in passes.call_args_list if len(call.args[0]) == 20_000]
    assert len(whole) <= (1 if kernels_for(logits) else 2)  # the kernels read the sample before the first pass
    assert found.temperature_ == pytest.approx(fc.optimal_temperature(logits, labels), rel=1e-9)


def test_bad_values_are_found_and_named_though_no_pass_checks_for_them():
    logits, labels = planted(3000, 5)
    for value, match in ((math.nan, "must be finite; got nan in row 2001"), (math.inf, "got inf in row 2001")):
        bad = logits.clone()
        bad[2001, 3] = value
        with pytest.raises(fc.InputError, match=match):
            fc.TemperatureScaling().fit(bad, labels)
    masked = logits.clone()
    masked[2001, labels[2001]] = -math.inf
    with pytest.raises(fc.InputError, match=r"a label must not be masked; .* in row 2001"):
        fc.TemperatureScaling().fit(masked, labels)
    masked[2001] = -math.inf
    with pytest.raises(fc.InputError, match="every class is masked in row 2001"):
        fc.TemperatureScaling().fit(masked, labels)


def test_a_sample_without_a_minimum_is_no_obstacle():
    """The rows that a preview takes are all right, and would be content with the lowest temperature."""
    logits, labels = planted(4096, 4)
    labels[::8] = logits[::8].argmax(1)
    found = fc.TemperatureScaling().fit(logits, labels)
    assert found.report_.converged
    assert not found.report_.at_boundary
    assert found.temperature_ == pytest.approx(fc.optimal_temperature(logits, labels), rel=1e-9)


def test_the_sample_is_thinned_evenly_from_streams_of_any_length():
    sample = RowSample()
    for start in range(0, 100_000, 1000):
        logits = torch.arange(start, start + 1000, dtype=torch.float64).unsqueeze(1).expand(-1, 100)
        sample.add(LabelledLogits(logits, torch.zeros(1000, dtype=torch.int64), None))
    rows = torch.cat([block.logits[:, 0] for block in sample.blocks])
    assert len(rows) * 100 <= sample_module.SAMPLED
    assert len(rows) > 1000
    assert float(rows.mean()) == pytest.approx(50_000, rel=0.05)


def test_bounds_hold_the_temperature_and_are_reported():
    logits, labels = planted(500, 4, temperature=3.0)
    held = fc.TemperatureScaling(bounds=(0.5, 1.5)).fit(logits, labels)
    assert held.temperature_ == pytest.approx(1.5)
    assert held.report_.at_boundary
    grid = fc.TemperatureScaling("ece", grid=[0.5, 1.0, 1.5]).fit(logits, labels)
    assert grid.temperature_ == 1.5
    assert grid.report_.at_boundary


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_finds_the_same_temperature(dtype):
    logits, labels = planted(3000, 10)
    exact = fc.TemperatureScaling().fit(logits.to(dtype).double(), labels).temperature_
    assert fc.TemperatureScaling().fit(logits.to(dtype), labels).temperature_ == pytest.approx(exact, rel=1e-6)


def test_a_weight_of_all_ones_changes_nothing():
    logits, labels = planted(300, 4)
    plain, weighted = fc.TemperatureScaling(), fc.TemperatureScaling()
    plain.fit(logits, labels)
    weighted.fit(logits, labels, sample_weight=np.ones(300))
    assert weighted.temperature_ == pytest.approx(plain.temperature_, rel=1e-14)


@pytest.mark.parametrize(("name", "gamma"), SMOOTH[1:])
def test_a_start_from_a_sample_ends_at_the_same_temperature(monkeypatch, name, gamma):
    logits, labels = planted(20_000, 5, temperature=2.4)
    whole = fc.TemperatureScaling(name, gamma=gamma).fit(logits, labels)
    monkeypatch.setattr(sample_module, "SAMPLED", 4000)
    sampled = fc.TemperatureScaling(name, gamma=gamma).fit(logits, labels)
    assert sampled.temperature_ == pytest.approx(whole.temperature_, rel=1e-8)
    assert sampled.report_.iterations <= 5
