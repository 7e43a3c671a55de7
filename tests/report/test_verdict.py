"""The verdict follows from the numbers, and says nothing that chance could have said."""

from __future__ import annotations

import numpy as np
import pytest

import focalcal as fc
from focalcal import metrics
from focalcal.report.verdict import assess


def drawn(sharpness, n=4000, seed=0):
    """Logits whose labels were drawn from logits `sharpness` times flatter: too sure above 1, too modest below."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, 5))
    labels = (logits / sharpness + rng.gumbel(size=logits.shape)).argmax(1)
    return logits, labels


@pytest.mark.parametrize(
    ("sharpness", "direction", "words"),
    [(2.5, "overconfident", "too sure"), (0.5, "underconfident", "not sure enough"), (1.0, "calibrated", "chance")],
)
def test_the_verdict_names_the_direction(sharpness, direction, words):
    found = assess(*drawn(sharpness))
    assert found.direction == direction
    assert found.verdict.startswith(direction)
    assert words in found.verdict


def test_errors_that_cancel_on_average_are_not_called_calibrated():
    """Half of the rows say 60 % and are right 80 % of the time, half the other way round."""
    probs = np.repeat([[0.6, 0.4], [0.8, 0.2]], 2000, axis=0)
    labels = np.concatenate([np.arange(2000) >= 1600, np.arange(2000) >= 1200]).astype(int)
    found = assess(probs, labels, kind="probs")
    assert found.direction == "both"
    assert found.verdict.startswith("miscalibrated both ways")
    assert found.intervals["gap"].value == pytest.approx(0)
    assert found.intervals["ece"].value == pytest.approx(0.2)


def test_the_numbers_are_those_of_the_library():
    logits, labels = drawn(2.0, n=1500)
    found = assess(logits, labels, num_bins=10, seed=3)
    assert found.evaluation == fc.evaluate(logits, labels, num_bins=10)
    assert found.intervals["ece"] == fc.bootstrap("ece", logits, labels, num_bins=10, seed=3)
    assert found.intervals["ada_ece"] == fc.bootstrap("ada_ece", logits, labels, num_bins=10, seed=3)
    assert found.intervals["nll"] == fc.bootstrap("nll", logits, labels, seed=3)
    gap = metrics.mean_confidence(logits, labels) - metrics.accuracy(logits, labels)
    assert found.intervals["gap"].value == pytest.approx(gap)
    said = f"on average {100 * gap:.1f} points too sure; ECE {100 * found.intervals['ece'].value:.1f} %"
    assert said in found.verdict


@pytest.mark.parametrize("n", [1, 2, 15, 16, 40])
def test_few_rows_are_assessed_too(n):
    found = assess(*drawn(1.0, n=n))
    assert found.evaluation.n == n
    assert found.verdict.startswith(
        f"calibrated, as far as {n} rows can tell: ECE {100 * found.evaluation.ece:.1f} %; up"
    )


def test_a_few_rows_that_happen_to_be_right_prove_nothing():
    found = assess([[3.0, 0.0]] * 4, [0, 0, 0, 0])
    assert found.intervals["gap"].high < 0
    assert found.direction == "calibrated"
    assert assess([[3.0, 0.0]] * 400, [0] * 400).direction == "underconfident"


def test_a_small_gap_is_called_slight():
    probs = np.tile([[0.905, 0.095]], (40_000, 1))
    labels = (np.arange(40_000) >= 36_000).astype(int)
    assert assess(probs, labels, kind="probs", num_resamples=100).verdict.startswith(
        "slightly overconfident: on average 0.5 points"
    )


def test_weights_that_are_whole_numbers_count_as_repeated_rows():
    logits, labels = drawn(2.5, n=300)
    times = np.random.default_rng(1).integers(0, 4, 300)
    weighted = assess(logits, labels, sample_weight=times.astype(float))
    repeated = assess(np.repeat(logits, times, 0), np.repeat(labels, times))
    assert weighted.intervals["ece"].value == pytest.approx(repeated.intervals["ece"].value)
    assert weighted.direction == repeated.direction == "overconfident"
    assert weighted.chance is None
