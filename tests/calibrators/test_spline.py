"""Spline calibration against another basis of natural splines, on rows written out one by one."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

import focalcal as fc
import focalcal.calibrators as c
from focalcal.calibrators import spline
from focalcal.errors import InputError
from tests.calibrators.cases import draw


def natural_basis(t, knots, derivative):
    """Truncated powers, linear beyond the outer knots; not the basis that the package uses."""

    def cubes(knot):
        inside = np.maximum(t - knot, 0)
        return 3 * inside**2 if derivative else inside**3

    def d(k):
        return (cubes(knots[k]) - cubes(knots[-1])) / (knots[-1] - knots[k])

    first = [np.zeros_like(t), np.ones_like(t)] if derivative else [np.ones_like(t), t]
    return np.stack([*first, *(d(k) - d(len(knots) - 2) for k in range(len(knots) - 2))], 1)


def slow_spline(confidence, correct, num_knots=6, weight=None):
    """The distinct scores and what they become: every row is a point, equal ones share their correctness."""
    weight = np.ones(len(confidence)) if weight is None else weight
    scores, place = np.unique(confidence, return_inverse=True)
    order = np.argsort(confidence, kind="stable")
    shared = (np.bincount(place, correct) / np.bincount(place))[place]
    before = np.cumsum(weight[order]) - weight[order]
    t = before / before[-1]
    curve = np.cumsum((weight * (shared - confidence))[order]) / weight.sum()
    knots = np.linspace(0, 1, num_knots)
    root = np.sqrt(weight[order])
    heights = np.linalg.lstsq(root[:, None] * natural_basis(t, knots, False), root * curve, rcond=None)[0]
    corrected = confidence[order] + natural_basis(t, knots, True) @ heights
    return scores, np.bincount(place[order], corrected) / np.bincount(place)


def top_label(logits, labels):
    probs = torch.softmax(torch.tensor(logits), 1).numpy().round(14)  # the same logits in another order are a tie
    return probs.max(1), (probs.argmax(1) == labels).astype(float)


def coarse(rows=300, classes=4, seed=0):
    """Logits of a few kinds only, so that most confidences occur many times."""
    logits, labels = draw(rows, classes, seed)
    return np.round(logits / 4) * 2, labels


DATA = {"distinct": draw(300), "tied": coarse(), "binary": draw(300, 2), "binary tied": coarse(classes=2)}


@pytest.mark.parametrize("num_knots", [2, 3, 6, 15])
@pytest.mark.parametrize("data", DATA)
def test_the_table_is_that_of_the_rows_one_by_one(data, num_knots):
    logits, labels = DATA[data]
    scores, calibrated = slow_spline(*top_label(logits, labels), num_knots)
    fitted = c.SplineCalibration(num_knots).fit(logits, labels)
    # A group of scores that rounding keeps apart has two points in the table: its ends.
    place = np.searchsorted(scores + 1e-13, fitted.scores_.numpy())
    assert set(place) == set(range(len(scores)))
    np.testing.assert_allclose(fitted.scores_, scores[place], rtol=1e-13)
    np.testing.assert_allclose(fitted.calibrated_, calibrated[place], atol=1e-11)


@pytest.mark.parametrize("data", DATA)
def test_new_confidences_are_interpolated_and_cut(data):
    logits, labels = DATA[data]
    table = slow_spline(*top_label(logits, labels))
    fresh = 3 * draw(100, logits.shape[1], seed=9)[0]
    confidence, _ = top_label(fresh, 0)
    fitted = c.SplineCalibration().fit(logits, labels)
    assert not fitted.report_.kept_identity
    got = fitted.predict_probs(fresh)[np.arange(100), fresh.argmax(1)]
    np.testing.assert_allclose(got, np.clip(np.interp(confidence, *table), 0, 1), atol=1e-11)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("largest", [3, 60])
def test_whole_weights_are_repeated_rows(data, largest):
    logits, labels = DATA[data]
    weight = np.random.default_rng(0).integers(1, largest, len(labels))
    weighted = c.SplineCalibration().fit(logits, labels, sample_weight=weight)
    repeated = c.SplineCalibration().fit(np.repeat(logits, weight, 0), np.repeat(labels, weight))
    torch.testing.assert_close(weighted.scores_, repeated.scores_, rtol=0, atol=0)
    torch.testing.assert_close(weighted.calibrated_, repeated.calibrated_, rtol=0, atol=1e-12)


def test_large_weights_cost_nothing_and_approach_a_limit():
    logits, labels = DATA["distinct"]
    start = time.perf_counter()
    first, second = (
        c.SplineCalibration().fit(logits, labels, sample_weight=np.full(len(labels), weight)) for weight in (1e5, 1e12)
    )
    assert time.perf_counter() - start < 5
    torch.testing.assert_close(first.calibrated_, second.calibrated_, rtol=0, atol=1e-6)


def test_weights_that_are_not_whole_are_steps_of_unequal_length():
    logits, labels = DATA["distinct"]
    weight = np.random.default_rng(0).random(len(labels)) ** 3
    _, calibrated = slow_spline(*top_label(logits, labels), weight=weight)
    fitted = c.SplineCalibration().fit(logits, labels, sample_weight=weight)
    np.testing.assert_allclose(fitted.calibrated_, calibrated, atol=1e-11)


def test_weights_that_are_not_whole_have_no_scale():
    logits, labels = DATA["tied"]
    weight = np.random.default_rng(0).random(len(labels))
    one, other = (c.SplineCalibration().fit(logits, labels, sample_weight=w) for w in (weight, 7 * weight))
    torch.testing.assert_close(one.calibrated_, other.calibrated_, rtol=0, atol=1e-12)
    halves = c.SplineCalibration().fit(*DATA["distinct"], sample_weight=np.full(300, 0.5))
    plain = c.SplineCalibration().fit(*DATA["distinct"])
    torch.testing.assert_close(halves.calibrated_, plain.calibrated_, rtol=0, atol=1e-12)
    assert not torch.allclose(one.calibrated_, c.SplineCalibration().fit(logits, labels).calibrated_)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_order_of_rows_does_not_change_a_bit(weighted):
    logits, labels = DATA["tied"]
    weight = np.random.default_rng(1).random(len(labels)) if weighted else np.ones(len(labels))
    order = np.random.default_rng(2).permutation(len(labels))
    one = c.SplineCalibration().fit(logits, labels, sample_weight=weight)
    other = c.SplineCalibration().fit(logits[order], labels[order], sample_weight=weight[order])
    assert torch.equal(one.calibrated_, other.calibrated_)


def test_the_sum_rule_is_exact_up_to_degree_seven():
    sizes = np.arange(41.0)
    place, weight = spline._sum_rule(sizes)
    for size in range(41):
        for degree in range(8):
            exact = sum(j**degree for j in range(size))
            assert (weight[size] * place[size] ** degree).sum() == pytest.approx(exact, rel=1e-12)
    assert ((place >= 0) & ((place <= sizes[:, None] - 1) | (weight == 0))).all()


def test_a_long_table_is_thinned_within_its_tolerance(monkeypatch):
    generator = np.random.default_rng(0)
    scores = 8 * generator.beta(2, 1, 40_000)  # many are nearly certain
    scores[:4000] = 5.0  # and a tenth of all are equal
    labels = generator.random(40_000) > 1 / (1 + np.exp(0.4 * scores))
    thin = c.SplineCalibration().fit(scores, labels)
    monkeypatch.setattr(spline, "_LONGEST_TABLE", 1 << 20)
    whole = c.SplineCalibration().fit(scores, labels)
    assert len(whole.scores_) == 36_001
    assert len(thin.scores_) < 5000
    error = np.interp(whole.scores_, thin.scores_, thin.calibrated_) - whole.calibrated_.numpy()
    assert 0 < np.abs(error).max() <= 1e-4


def test_the_other_classes_keep_their_proportions_however_sure_the_row_is():
    fitted = c.SplineCalibration().fit(*DATA["distinct"])
    logits = torch.tensor([[1.0, 0.5, 0.0, -1.0], [50.0, 2.0, 1.0, -700.0], [1e4, 2.0, 1.0, 0.0]], dtype=torch.float64)
    log_probs = fitted(logits)
    torch.testing.assert_close(log_probs[:, 1:].diff(), logits[:, 1:].diff(), rtol=0, atol=1e-12)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-15)


def test_the_predicted_class_changes_where_the_second_one_gets_more():
    logits = np.log([[0.5, 0.4, 0.1]] * 10)
    fitted = c.SplineCalibration().fit(logits, [0] * 4 + [1] * 5 + [2])
    # The slope between the first and the last of N points is (N - 1) / N of the mean error, -0.1.
    np.testing.assert_allclose(fitted.predict_probs(logits[:1])[0], [0.41, 0.472, 0.118], atol=1e-12)


def test_the_identity_is_kept_where_ks_would_get_worse():
    logits = np.log([[0.4, 0.3, 0.3]] * 10)
    fitted = c.SplineCalibration().fit(logits, [2] * 10)  # the first class to none: the second one then claims a half
    assert fitted.report_.kept_identity
    assert fitted.report_.before == fitted.report_.after == pytest.approx(0.4)
    np.testing.assert_allclose(fitted.predict_probs(logits), np.exp(logits), rtol=1e-12)


def test_calibrated_predictions_stay_nearly_what_they_are():
    logits, labels = draw(20_000, 3, overconfidence=1.0)
    fitted = c.SplineCalibration().fit(logits, labels)
    change = np.abs(fitted.predict_probs(logits) - torch.softmax(torch.tensor(logits), 1).numpy())
    assert change.max() < 0.04


def test_an_overconfident_model_is_corrected_on_rows_that_the_fit_did_not_see():
    fitted = c.SplineCalibration().fit(*draw(5000, 3))
    logits, labels = draw(5000, 3, seed=1)
    raw, calibrated = (fc.metrics.ks_error(scores, labels) for scores in (logits, fitted(logits)))
    assert calibrated < raw / 5


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        ([[1.0, 0.0], [1.0, 0.0]], [0, 1]),
        ([[0.0, 0.0, 0.0]] * 7, [0, 1, 2, 0, 0, 0, 1]),
        ([[3e4, 0.0], [-3e4, 0.0], [0.0, 1.0]], [0, 0, 0]),
        ([[3.0, 0.0, 1.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.1]], [1, 1, 1]),
        ([[3e38, 3e38, -3e38], [0.0, 2.0, 1.0]], [0, 0]),
    ],
    ids=["two equal rows", "constant logits", "extreme logits", "one label", "the largest numbers"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_and_odd_data_give_finite_probabilities(logits, labels, dtype):
    logits = torch.tensor(logits, dtype=dtype)
    fitted = c.SplineCalibration().fit(logits, torch.tensor(labels))
    for scale in (0.0, 1.0, 1e30 if logits.abs().max() < 1e5 else 0.5):
        log_probs = fitted._log_probs(scale * logits)
        assert log_probs.dtype == dtype
        assert bool(torch.isfinite(log_probs).all())
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(logits), dtype=dtype))
    assert fitted(logits[:0]).shape == logits[:0].shape


def test_scores_that_rounding_keeps_apart_are_one_group():
    logits = np.array([[3.0, 1.5, 0.7, -2.0], [3.0, -2.0, 1.5, 0.7], [3.0, 0.7, -2.0, 1.5]])[np.arange(60) % 3]
    labels = np.repeat([0, 1], 30)
    fitted = c.SplineCalibration().fit(logits + np.arange(60)[:, None], labels)  # three orders, sixty constants
    assert len(np.unique(fitted.calibrated_)) == 1
    assert len(fitted.scores_) == 2


def test_single_precision_is_computed_in_double():
    fitted = c.SplineCalibration().fit(*DATA["distinct"])
    logits = torch.tensor(draw(50, seed=9)[0], dtype=torch.float32)
    assert torch.equal(fitted(logits), fitted(logits.double()).float())


def test_a_saved_one_gives_the_same_bits(tmp_path):
    fitted = c.SplineCalibration(4).fit(*DATA["tied"])
    fitted.save(tmp_path / "spline.safetensors")
    loaded = fc.load_calibrator(tmp_path / "spline.safetensors")
    logits = draw(50, seed=9)[0]
    assert loaded.settings() == {"num_knots": 4}
    assert np.array_equal(loaded(logits), fitted(logits))


@pytest.mark.slow
def test_onnx_agrees_on_the_rows_of_the_fit(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    logits, labels = coarse(classes=5)
    fitted = c.SplineCalibration().fit(logits, labels)
    assert not fitted.report_.kept_identity
    fitted.to_onnx(tmp_path / "spline.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "spline.onnx", providers=["CPUExecutionProvider"])
    logits = logits.astype(np.float32)
    (got,) = session.run(None, {"logits": logits})
    np.testing.assert_allclose(np.exp(got), fitted.predict_probs(logits), atol=1e-6)


def test_fewer_than_two_knots_are_refused():
    with pytest.raises(InputError, match="num_knots: must be at least 2; got 1"):
        c.SplineCalibration(1)
