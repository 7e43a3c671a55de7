"""Measures of logits with masked classes: those of probabilities that are exactly 0 there."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal import metrics as m
from focalcal.files import PredictionStream, read_predictions
from tests.calibrators.cases import softmax

N, K = 60, 6
GENERATOR = np.random.default_rng(0)
MASKED = GENERATOR.random((N, K)) < 0.4
LABELS = GENERATOR.integers(0, K, N)
MASKED[np.arange(N), LABELS] = False
MASKED[0] = np.arange(K) != LABELS[0]  # only the label is left
LOGITS = np.where(MASKED, -np.inf, 2 * GENERATOR.standard_normal((N, K)))
PROBS = softmax(LOGITS)
WAYS = [(np.float64, -np.inf), (np.float64, -1e37), (np.float32, np.finfo(np.float32).min), (np.float16, -65504.0)]
every_way = pytest.mark.parametrize(("dtype", "mask"), WAYS)


def given(dtype, mask, logits=LOGITS):
    return np.where(np.isinf(logits), mask, logits).astype(dtype)


def same(one, other, near):
    assert set(one) == set(other)
    for name, value in one.items():
        assert value == pytest.approx(other[name], rel=near, abs=near), name


@every_way
def test_evaluate_is_that_of_probabilities_of_zero(dtype, mask, tmp_path):
    logits, near = given(dtype, mask), {np.float64: 1e-12, np.float32: 2e-6, np.float16: 5e-3}[dtype]
    evaluation = fc.evaluate(logits, LABELS)
    same(evaluation.values, fc.evaluate(PROBS, LABELS, kind="probs").values, near)
    wide = np.where(MASKED, -np.inf, logits.astype(np.float64))
    same(evaluation.values, fc.evaluate(wide, LABELS).values, 2e-6)
    np.savez(tmp_path / "rows.npz", logits=logits, labels=LABELS)
    same(fc.evaluate(PredictionStream(tmp_path / "rows.npz")).values, evaluation.values, 1e-12)
    table = read_predictions(tmp_path / "rows.npz")
    same(fc.evaluate(table.scores, LABELS).values, evaluation.values, 1e-12)


@pytest.mark.parametrize("target", ["top_label", 2, "classwise"])
def test_single_measures_and_intervals_are_those_of_probabilities_of_zero(target):
    for scores in (given(np.float64, mask) for mask in (-np.inf, -1e37)):
        masked, zeros = m.read(scores, LABELS, target=target), m.read(PROBS, LABELS, kind="probs", target=target)
        for measure in (m.ece, m.ada_ece, m.brier, m.nll):
            assert measure(masked) == pytest.approx(measure(zeros), rel=1e-12)
        some = {"num_resamples": 100, "seed": 0}
        one, other = (fc.bootstrap(m.ece, rows, **some) for rows in (masked, zeros))
        assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-12)


def test_entropy_rank_and_divergence():
    row, alone = [[0.0, 0.0, -np.inf, -1e37]], [[3.0, -np.inf, -np.inf, -1e37]]
    assert m.entropy(row, [0]).overall == pytest.approx(math.log(2))
    assert m.entropy(alone, [0]).overall == 0
    assert m.nll(alone, [0]) == m.brier(alone, [0]) == 0
    assert m.kl_to_posterior(row, [[0.5, 0.5, 0.0, 0.0]]) == pytest.approx(0, abs=1e-15)
    ranks = [int(m.read(row, [label]).column("rank")[0]) for label in range(4)]
    assert ranks == [0, 1, 2, 3]  # equal ones by their number, as with probabilities


@every_way
def test_a_masked_label_has_an_infinite_nll(dtype, mask):
    labels = LABELS.copy()
    labels[5] = np.flatnonzero(MASKED[5])[0]
    evaluation = fc.evaluate(given(dtype, mask), labels)
    assert evaluation.nll == math.inf
    assert evaluation.brier == pytest.approx(fc.evaluate(PROBS, labels, kind="probs").brier, rel=5e-3)
    assert any("nll is infinite" in warning for warning in evaluation.warnings)


@every_way
def test_a_row_without_any_class_is_refused(dtype, mask, tmp_path):
    logits = given(dtype, mask)
    logits[7] = mask
    with pytest.raises(fc.InputError, match="scores: every class is masked in row 7"):
        fc.evaluate(logits, LABELS)
    np.savez(tmp_path / "rows.npz", logits=logits, labels=LABELS)
    for call in (lambda path: fc.evaluate(PredictionStream(path)), read_predictions):
        with pytest.raises(fc.InputError, match=r"rows\.npz: every class is masked in row 7"):
            call(tmp_path / "rows.npz")


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_other_infinities_are_refused_beside_masks(value):
    logits = LOGITS.copy()
    logits[9, 1] = value
    with pytest.raises(fc.InputError, match=f"scores: every value must be finite; got {value} in row 9"):
        fc.evaluate(logits, LABELS)


def test_streaming_metrics_take_masked_batches():
    streaming = pytest.importorskip("focalcal.metrics.streaming")
    everything = streaming.Everything(num_classes=K)
    for rows in (slice(0, 25), slice(25, N)):
        everything.update(torch.from_numpy(LOGITS[rows]), torch.from_numpy(LABELS[rows]))
    expected = fc.evaluate(PROBS, LABELS, kind="probs").values
    for name, value in everything.compute().items():
        if expected.get(name) is not None:
            assert float(value) == pytest.approx(expected[name], rel=1e-12, abs=1e-12), name


def test_the_optimal_temperature_reads_the_classes_that_are_left():
    soft = [fc.optimal_temperature(given(np.float64, mask), LABELS) for mask in (-np.inf, -1e37)]
    far = fc.optimal_temperature(np.where(MASKED, -1e7, LOGITS), LABELS)
    assert soft == pytest.approx([far, far], rel=1e-9)
    with pytest.raises(fc.InputError, match="labels: a label must not be masked; class"):
        fc.optimal_temperature(LOGITS, np.argmax(MASKED, 1))
