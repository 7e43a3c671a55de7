"""Data that break calibrators: each is answered by finite probabilities and an honest report, or by a clear error."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

import focalcal.calibrators as c
from focalcal.errors import InputWarning
from tests.calibrators.cases import (
    CASES,
    calibrators_that,
    close,
    draw,
    every_calibrator,
    require_no_worse,
    same,
    softmax,
)

LOWER, UPPER = 0.01, 1000.0


def sound(case, logits, labels, seen=None):
    """Fits, and asks for what holds whatever the data: finite log-probabilities that sum to 1, no worse than none."""
    calibrator = case.make().fit(logits, labels)
    report = calibrator.report_
    assert math.isfinite(report.before)
    assert math.isfinite(report.after)
    require_no_worse(case, report)
    for part in (calibrator, *getattr(calibrator, "parts", [])):
        assert all(bool(torch.isfinite(buffer).all()) for buffer in part.buffers())
    logits = torch.tensor(np.asarray(logits if seen is None else seen))
    log_probs = calibrator(logits)
    assert bool(torch.isfinite(log_probs).all())
    assert bool((log_probs <= 1e-12).all())
    tolerance = 2e-6 if log_probs.dtype == torch.float32 else 1e-9
    close(log_probs.double().exp().sum(1), np.ones(len(log_probs)), tolerance)
    if calibrator.report_.kept_identity:
        same(log_probs, torch.log_softmax(logits, 1))
    return calibrator


def separable(classes, rows=80):
    """Every row right, each by a margin of its own."""
    generator = np.random.default_rng(0)
    logits = generator.standard_normal((rows, classes))
    return logits, logits.argmax(1)


# ------------------------------------------------------------------------------------------------- of every calibrator


@pytest.mark.parametrize("scale", [1e-6, 1e4])
@every_calibrator
def test_a_model_that_is_always_right_gives_finite_output(case, scale):
    logits, labels = separable(case.classes)
    sound(case, scale * logits, labels)


@pytest.mark.parametrize("scale", [1e-6, 1e4])
@every_calibrator
def test_a_model_that_is_always_wrong_gives_finite_output(case, scale):
    logits, _ = separable(case.classes)
    sound(case, scale * logits, logits.argmin(1))


@pytest.mark.parametrize("value", [0.0, 1e4])
@every_calibrator
def test_constant_logits_give_finite_output(case, value):
    labels = np.arange(50) % case.classes
    logits = np.full((50, case.classes), value)
    sound(case, logits, labels)


@every_calibrator
def test_equal_rows_give_finite_output(case):
    logits = np.tile(np.arange(case.classes, dtype=float), (50, 1))
    sound(case, logits, np.arange(50) % case.classes)


@pytest.mark.parametrize("label", [0, -1])
@every_calibrator
def test_labels_of_one_class_give_finite_output(case, label):
    logits, _ = case.data(50)
    labels = np.full(50, range(case.classes)[label])
    sound(case, logits, labels)


@calibrators_that("not binary")
def test_a_class_without_labels_gives_finite_output(case):
    logits, labels = case.data(50)
    sound(case, logits, np.minimum(labels, case.classes - 2))


@every_calibrator
def test_two_rows_are_enough(case):
    logits, _ = case.data(50)
    for labels in ([0, 0], [0, 1], [1, 0]):
        sound(case, logits[:2], labels, logits)
        sound(case, logits[[0, 0]], labels, logits)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_calibrator
def test_logits_of_ten_thousand_give_finite_output(case, dtype):
    logits, labels = case.data(80)
    logits = (1e4 * logits).astype(dtype)
    sound(case, logits, labels)


@every_calibrator
def test_logits_at_the_end_of_float16_give_finite_output(case):
    logits, labels = case.data(80)
    largest = torch.tensor(np.clip(1e5 * logits, -32736, 65504)).half()  # what is lower masks a class
    calibrator = sound(case, largest, labels, largest.float())
    assert bool(torch.isfinite(calibrator(largest)).all())


@every_calibrator
def test_one_class_far_away_gives_finite_output(case):
    logits, labels = (values.copy() for values in case.data(80))
    logits[:, 1] -= 1e4
    sound(case, logits, labels)


@every_calibrator
def test_two_classes_are_fitted(case):
    logits, labels = draw(80, 2)
    sound(case, logits, labels)


# A matrix of 2,000 x 2,000 is no one's to fit to data, and a fit for each class takes its time.
FEWER = ("matrix", "dirichlet", "histogram", "isotonic", "bayesian binning")


@calibrators_that("not binary")
def test_many_classes_are_fitted(case):
    classes = 60 if case.id in FEWER else 2000
    generator = np.random.default_rng(0)
    logits = 3 * generator.standard_normal((40, classes)).astype(np.float32)
    labels = np.where(np.arange(40) % 2, logits.argmax(1), generator.integers(0, classes, 40))
    calibrator = sound(case, logits, labels)
    if case.keeps_class:
        assert (calibrator(logits).argmax(1) == logits.argmax(1)).all()


VALUES = st.floats(-20, 20, width=32) | st.sampled_from([0.0, 1.0, -1.0, 1e4, -1e4, 1e-30])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_finite_logits_and_labels_are_fitted(case, data):
    classes = 2 if case.binary else data.draw(st.integers(2, 5))
    rows = data.draw(st.integers(2, 12))
    flat = data.draw(st.lists(VALUES, min_size=rows * classes, max_size=rows * classes))
    labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    logits = np.array(flat).reshape(rows, classes).astype(data.draw(st.sampled_from([np.float32, np.float64])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # some draws look like probabilities
        calibrator = sound(case, logits, labels)
    if case.keeps_class:
        log_probs = calibrator(logits)
        top = np.take_along_axis(log_probs, logits.argmax(1)[:, None], 1)
        # Close logits may become equal probabilities, and rounding is in the last bits of the largest log-probability.
        assert (top[:, 0] >= log_probs.max(1) - 1e-6).all()


# --------------------------------------------------------------------------------------------- of temperature scaling


def test_perfectly_separable_data_take_the_temperature_to_its_lower_bound():
    logits, labels = separable(4)
    calibrator = c.TemperatureScaling().fit(logits, labels)
    assert calibrator.temperature_ == pytest.approx(LOWER)
    assert calibrator.report_.at_boundary
    assert calibrator.report_.converged
    assert not calibrator.report_.kept_identity
    assert calibrator.report_.after < calibrator.report_.before
    assert bool(np.isfinite(calibrator(1e4 * logits)).all())
    narrow = c.TemperatureScaling(bounds=(0.25, 4.0)).fit(logits, labels)
    assert narrow.temperature_ == pytest.approx(0.25)
    assert narrow.report_.at_boundary


def test_wrong_way_data_take_the_temperature_to_its_upper_bound():
    logits, _ = separable(4)
    calibrator = c.TemperatureScaling().fit(logits, logits.argmin(1))
    assert calibrator.temperature_ == pytest.approx(UPPER)
    assert calibrator.report_.at_boundary
    assert calibrator.report_.converged
    assert calibrator.report_.after == pytest.approx(math.log(4), abs=1e-2)
    close(calibrator.predict_probs(logits), np.full_like(logits, 0.25), 1e-2)


@pytest.mark.parametrize("criterion", ["brier", "focal"])
def test_the_bounds_hold_for_every_smooth_criterion(criterion):
    logits, labels = separable(4)
    options = {"gamma": 2.0} if criterion == "focal" else {}
    right = c.TemperatureScaling(criterion, **options).fit(logits, labels)
    wrong = c.TemperatureScaling(criterion, **options).fit(logits, logits.argmin(1))
    # Long before the lower bound all probabilities are 0 or 1 and nothing is left to gain.
    assert LOWER <= right.temperature_ < 0.1
    assert wrong.temperature_ == pytest.approx(UPPER)
    assert wrong.report_.at_boundary


def test_constant_logits_leave_the_temperature_at_one():
    logits = np.zeros((50, 4))
    calibrator = c.TemperatureScaling().fit(logits, np.arange(50) % 4)
    assert calibrator.temperature_ == 1.0
    assert not calibrator.report_.at_boundary
    assert calibrator.report_.converged
    assert calibrator.report_.before == calibrator.report_.after == pytest.approx(math.log(4), rel=1e-15)


@pytest.mark.parametrize("classes", [2, 20])
def test_a_calibrated_model_has_a_temperature_of_one(classes):
    generator = np.random.default_rng(0)
    logits = 2 * generator.standard_normal((20_000, classes))
    below = softmax(logits).cumsum(1) < generator.random((20_000, 1))
    labels = np.minimum(below.sum(1), classes - 1)
    assert c.TemperatureScaling().fit(logits, labels).temperature_ == pytest.approx(1, abs=2e-2)
    sharp = c.TemperatureScaling().fit(3 * logits, labels)
    assert sharp.temperature_ == pytest.approx(3, abs=6e-2)
    assert c.TemperatureScaling("brier").fit(logits, labels).temperature_ == pytest.approx(1, abs=4e-2)


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1e2, 1e4])
def test_the_temperature_follows_the_scale_of_the_logits(scale):
    logits, labels = draw(240)
    reference = c.TemperatureScaling(bounds=(1e-8, 1e8)).fit(logits, labels).temperature_
    scaled = c.TemperatureScaling(bounds=(1e-8, 1e8)).fit(scale * logits, labels)
    assert scaled.temperature_ == pytest.approx(scale * reference, rel=1e-9)
    assert scaled.report_.converged


def test_one_far_outlier_does_not_stop_the_search():
    logits, labels = (values.copy() for values in draw(240))
    logits[0] = 200 * np.eye(4)[(labels[0] + 1) % 4]  # quite certain, and wrong
    calibrator = c.TemperatureScaling().fit(logits, labels)
    assert calibrator.report_.converged
    assert not calibrator.report_.at_boundary
    inverse = 1 / calibrator.temperature_ * np.array([1 - 1e-4, 1.0, 1 + 1e-4])
    nll = [-np.log(softmax(b * logits)[np.arange(240), labels]).mean() for b in inverse]
    assert nll[1] == min(nll)


def test_nothing_to_gain_is_said_so():
    """Two rows of three right at log-odds log 2: already the best temperature."""
    logits = np.tile([math.log(2), 0.0], (3, 1))
    calibrator = c.TemperatureScaling().fit(logits, [0, 0, 1])
    assert calibrator.temperature_ == pytest.approx(1, abs=1e-9)
    assert calibrator.report_.after == pytest.approx(calibrator.report_.before, rel=1e-12)
    assert calibrator.report_.after <= calibrator.report_.before
