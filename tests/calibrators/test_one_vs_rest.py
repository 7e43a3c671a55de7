"""Histogram binning, isotonic regression and BBQ against loops over rows, and scikit-learn, class by class."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression

import focalcal as fc
import focalcal.calibrators as c
from focalcal.calibrators import one_vs_rest, piecewise
from focalcal.errors import InputError
from tests.calibrators.cases import draw, softmax

# ---------------------------------------------------------------------------------------------- the rules, row by row


def rank_of_first(scores):
    """How many rows have a lower score."""
    return [sum(other < score for other in scores) for score in scores]


def step_function(scores, values):
    """Constant up to halfway between two different scores; values belong to the scores."""
    table = sorted(set(zip(scores, values, strict=True)))

    def at(score):
        for (left, value), (right, _) in itertools.pairwise(table):
            if score <= (left + right) / 2:
                return value
        return table[-1][1]

    return at


def equal_mass_bins(scores, num_bins):
    """The bin of each row: equal scores stay with the first of them."""
    return [num_bins * rank // len(scores) for rank in rank_of_first(scores)]


def slow_histogram(scores, hits, num_bins=15):
    num_bins = min(num_bins, len(scores))
    bins = equal_mass_bins(scores, num_bins)
    values = [np.mean([hit for hit, other in zip(hits, bins, strict=True) if other == b]) for b in bins]
    return step_function(scores, values)


def slow_equal_width(scores, hits, num_bins=15):
    def bin_of(score):
        return max(0, math.ceil(score * num_bins - 1e-12) - 1)

    def at(score):
        inside = [hit for hit, other in zip(hits, scores, strict=True) if bin_of(other) == bin_of(score)]
        return np.mean(inside) if inside else (bin_of(score) + 0.5) / num_bins

    return at


def slow_isotonic(scores, hits):
    return lambda score: float(IsotonicRegression(out_of_bounds="clip").fit(scores, hits).predict([score])[0])


def slow_bbq(scores, hits, factor=10.0, prior_size=2.0):
    """[naeini2015] in plain loops and products of gamma functions."""
    rows = len(scores)
    root = round(rows ** (1 / 3), 9)
    most = min(len(set(scores)), math.ceil(factor * root))
    models = []
    for size in range(min(most, max(1, math.floor(root / factor))), most + 1):
        bins = equal_mass_bins(scores, size)
        used = sorted(set(bins))
        least = [min(s for s, b in zip(scores, bins, strict=True) if b == u) for u in used]
        most = [max(s for s, b in zip(scores, bins, strict=True) if b == u) for u in used]
        edges = [0.0, *((high + low) / 2 for high, low in zip(most, least[1:], strict=False)), 1.0]
        log_score, means = 0.0, {}
        for place, u in enumerate(used):
            m = sum(hit for hit, b in zip(hits, bins, strict=True) if b == u)
            n = bins.count(u) - m
            prior, middle = prior_size / len(used), (edges[place] + edges[place + 1]) / 2
            alpha, beta = prior * middle, prior * (1 - middle)
            log_score += math.lgamma(prior) - math.lgamma(m + n + prior)
            log_score += math.lgamma(m + alpha) - math.lgamma(alpha) + math.lgamma(n + beta) - math.lgamma(beta)
            means[u] = (m + alpha) / (m + n + prior)
        models.append((log_score, [means[b] for b in bins]))
    top = max(log_score for log_score, _ in models)
    shares = [math.exp(log_score - top) for log_score, _ in models]
    values = sum(share * np.array(means) for share, (_, means) in zip(shares, models, strict=True)) / sum(shares)
    return step_function(scores, values)


METHODS = {
    "histogram": (c.HistogramBinning, slow_histogram),
    "histogram of 4 bins": (lambda: c.HistogramBinning(4), lambda s, h: slow_histogram(s, h, 4)),
    "equal width": (lambda: c.HistogramBinning(edges="equal_width"), slow_equal_width),
    "isotonic": (c.IsotonicCalibration, slow_isotonic),
    "bbq": (c.BayesianBinning, slow_bbq),
    "bbq of another prior": (
        lambda: c.BayesianBinning(range_factor=2, prior_size=5),
        lambda s, h: slow_bbq(s, h, 2.0, 5.0),
    ),
}


def coarse(rows=120, classes=3, seed=0):
    """Logits of a few kinds only, so that most scores occur many times."""
    logits, labels = draw(rows, classes, seed)
    return np.round(logits / 3) * 2.1, labels


DATA = {
    "distinct": draw(120, 3),
    "tied": coarse(),
    "binary": draw(120, 2),
    "binary tied": coarse(classes=2),
    "few rows": draw(9, 3),
    "cube": draw(64, 2, seed=3),
}


def slow_probs(rule, logits, labels, fresh):
    """Every class by its own function of the score, fitted to the rows; then rows are brought to sum 1."""
    # The same logits in another order, or shifted, give the same score.
    scores, new = (softmax(x).round(13) for x in (logits, fresh))
    if logits.shape[1] == 2:
        at = rule(scores[:, 1].tolist(), (labels == 1).tolist())
        positive = np.array([at(score) for score in new[:, 1]])
        return np.stack([1 - positive, positive], 1)
    mapped = []
    for k in range(logits.shape[1]):
        at = rule(scores[:, k].tolist(), (labels == k).tolist())
        mapped.append([at(score) for score in new[:, k]])
    mapped = np.array(mapped).T
    total = mapped.sum(1, keepdims=True)
    return np.where(total > 0, mapped / np.where(total > 0, total, 1), 1 / logits.shape[1])


def identity_aside(calibrator):
    """What was fitted, also where the raw probabilities were better."""
    return lambda logits: calibrator._log_probs(torch.tensor(logits)).exp().numpy()


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("method", METHODS)
def test_probabilities_are_those_of_the_rule_class_by_class(method, data):
    make, rule = METHODS[method]
    logits, labels = DATA[data]
    fresh = np.concatenate([logits[:40], draw(60, logits.shape[1], seed=9)[0]])
    got = identity_aside(make().fit(logits, labels))(fresh)
    np.testing.assert_allclose(got, slow_probs(rule, logits, labels, fresh), atol=1e-10)


def test_isotonic_functions_are_those_of_scikit_learn():
    logits, labels = draw(2000, 3)
    weight = np.random.default_rng(0).random(len(labels))
    fitted = c.IsotonicCalibration().fit(logits, labels, sample_weight=weight)
    scores, fresh = (torch.softmax(torch.tensor(x), 1) for x in (logits, draw(500, 3, seed=1)[0]))
    mapped = piecewise.linear_lookup(fresh, fitted.scores_, fitted.calibrated_)
    for k in range(3):
        theirs = IsotonicRegression(out_of_bounds="clip").fit(scores[:, k].numpy(), labels == k, sample_weight=weight)
        np.testing.assert_allclose(mapped[:, k], theirs.predict(fresh[:, k].numpy()), rtol=0, atol=1e-12)


def test_isotonic_regression_does_not_depend_on_who_does_it(monkeypatch):
    rng = np.random.default_rng(0)
    values, weight = rng.random(500), rng.random(500) + 0.1
    by_scipy = one_vs_rest._non_decreasing(values, weight)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    np.testing.assert_allclose(one_vs_rest._non_decreasing(values, weight), by_scipy, rtol=0, atol=1e-12)


# ----------------------------------------------------------------------------------------------- weights and the order


@pytest.mark.parametrize("data", ["distinct", "tied", "binary"])
@pytest.mark.parametrize("method", METHODS)
def test_whole_weights_are_repeated_rows(method, data):
    make, _ = METHODS[method]
    logits, labels = DATA[data]
    weight = np.random.default_rng(0).integers(1, 5, len(labels))
    weighted = make().fit(logits, labels, sample_weight=weight)
    repeated = make().fit(np.repeat(logits, weight, 0), np.repeat(labels, weight))
    for name in weighted.FITTED:
        torch.testing.assert_close(getattr(weighted, name), getattr(repeated, name), rtol=0, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_rows_does_not_change_a_bit(method, weighted):
    make, _ = METHODS[method]
    logits, labels = DATA["tied"]
    weight = np.random.default_rng(1).random(len(labels)) if weighted else np.ones(len(labels))
    order = np.random.default_rng(2).permutation(len(labels))
    one = make().fit(logits, labels, sample_weight=weight)
    other = make().fit(logits[order], labels[order], sample_weight=weight[order])
    for name in one.FITTED:
        assert torch.equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("method", METHODS)
def test_weights_that_are_not_whole_have_no_scale(method):
    make, _ = METHODS[method]
    logits, labels = DATA["distinct"]
    weight = np.random.default_rng(1).random(len(labels))
    weights = (None, weight, 7 * weight)
    plain, one, other = (identity_aside(make().fit(logits, labels, sample_weight=w)) for w in weights)
    np.testing.assert_allclose(one(logits), other(logits), atol=1e-10)
    assert not np.allclose(one(logits), plain(logits), atol=1e-3)


def test_frequencies_are_weighted():
    scores, labels, weight = [0.1, 0.2, 0.8, 0.9], [0, 1, 0, 1], [0.5, 1.5, 0.25, 2.25]
    fitted = c.HistogramBinning(2, edges="equal_width").fit(scores, labels, kind="probs", sample_weight=weight)
    np.testing.assert_allclose(fitted.values_, [[0.75, 0.9]])


# ------------------------------------------------------------------------------------------------- what rows have to be


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_odd_data_give_finite_log_probs_that_sum_to_one(method, num_classes, dtype):
    make, _ = METHODS[method]
    logits, labels = (torch.tensor(values) for values in draw(60, num_classes))
    cases = [
        (logits, labels * 0),  # one class only
        (logits, labels.clamp(max=1)),  # the last of three never occurs
        (logits * 0, labels),  # constant
        (logits * 1e4, labels),  # probabilities of exactly 0 and 1
        (logits[:2], labels[:2]),
    ]
    for x, y in cases:
        fitted = make().fit(x.to(dtype), y)
        for scale in (0.0, 1.0, 1e3, 1e30):
            log_probs = fitted._log_probs((scale * logits).to(dtype))
            assert log_probs.dtype == dtype
            assert bool(torch.isfinite(log_probs).all())
            assert bool((log_probs <= 0).all())
            torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(60, dtype=dtype))
        assert fitted(logits[:0].to(dtype)).shape == (0, num_classes)


@pytest.mark.parametrize("method", METHODS)
def test_constant_logits_give_the_frequencies(method):
    make, _ = METHODS[method]
    labels = np.array([0] * 60 + [1] * 30 + [2] * 10)
    fitted = make().fit(np.zeros((100, 3)), labels)
    np.testing.assert_allclose(fitted.predict_probs(np.zeros((1, 3))), [[0.6, 0.3, 0.1]], atol=0.02)


def test_a_class_that_never_occurs_gets_nothing():
    logits, labels = draw(300, 3)
    for make in (c.HistogramBinning, c.IsotonicCalibration):
        probs = make().fit(logits, labels % 2).predict_probs(logits)
        assert probs[:, 2].max() < 1e-300
    assert 0 < c.BayesianBinning().fit(logits, labels % 2).predict_probs(logits)[:, 2].min() < 0.05


def test_bayesian_bins_may_end_at_the_smallest_number():
    logits = np.array([[0.0, -1e4], [0.0, -745.0], [0.0, -1.0], [0.0, 1.0]] * 5)
    assert softmax(logits)[1, 1] / 2 == 0
    fitted = c.BayesianBinning().fit(logits, (np.arange(20) % 4 == 2).astype(int))
    assert bool(torch.isfinite(fitted.values_).all())


def test_rows_that_no_class_wants_are_uniform():
    logits = np.log([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    fitted = c.HistogramBinning(2, edges="equal_width").fit(logits, [0, 1, 2])
    np.testing.assert_allclose(fitted.predict_probs(logits), np.eye(3), atol=1e-300)
    np.testing.assert_allclose(fitted.predict_probs(np.zeros((1, 3))), np.full((1, 3), 1 / 3), rtol=1e-15)


def test_an_empty_bin_of_equal_width_maps_to_its_middle():
    fitted = c.HistogramBinning(5, edges="equal_width").fit([0.1, 0.9, 0.9], [0, 1, 0], kind="probs")
    np.testing.assert_allclose(fitted.values_, [[0.0, 0.3, 0.5, 0.7, 0.5]], atol=1e-15)
    np.testing.assert_allclose(fitted.edges_, [[0.2, 0.4, 0.6, 0.8]], atol=1e-15)


def test_bayesian_bins_never_cut_equal_scores_apart():
    # Ten times the same score: however many bins a model asks for, there are two.
    scores, labels = np.repeat([0.2, 0.8], 10), np.array([1] * 3 + [0] * 7 + [1] * 9 + [0])
    fitted = c.BayesianBinning().fit(scores, labels, kind="probs")
    np.testing.assert_allclose(fitted.edges_, [[0.5]], rtol=1e-12)
    assert fitted.values_.shape == (1, 2)


@pytest.mark.parametrize("method", METHODS)
def test_scores_that_rounding_keeps_apart_are_one(method):
    make, _ = METHODS[method]
    logits = np.array([[3.0, 1.5, 0.7], [3.0, 0.7, 1.5]])[np.arange(60) % 2] + np.arange(60)[:, None]
    fitted = make().fit(logits, np.arange(60) // 30)
    values = fitted.calibrated_ if isinstance(fitted, c.IsotonicCalibration) else fitted.values_
    np.testing.assert_allclose(lookup_at(fitted, logits)[:, 0], 0.5, atol=0.02)
    assert len(np.unique(values[0])) == 1 or method == "equal width"


def lookup_at(fitted, logits):
    table = (getattr(fitted, name) for name in fitted.FITTED)
    use = piecewise.linear_lookup if isinstance(fitted, c.IsotonicCalibration) else piecewise.step_lookup
    return use(torch.softmax(torch.tensor(logits), 1), *table)


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_is_computed_in_double(method):
    make, _ = METHODS[method]
    logits, labels = DATA["distinct"]
    single = torch.tensor(logits, dtype=torch.float32)
    fitted = make().fit(single, torch.tensor(labels))
    again = make().fit(single.double(), torch.tensor(labels))
    for name in fitted.FITTED:
        assert torch.equal(getattr(fitted, name), getattr(again, name))
    fresh = torch.tensor(draw(80, 3, seed=9)[0], dtype=torch.float32)
    torch.testing.assert_close(fitted(fresh).exp(), again(fresh.double()).exp().float(), rtol=0, atol=1e-7)


def test_rows_of_the_fit_stay_in_their_bins_in_single_precision():
    logits = torch.tensor(draw(2000, 3)[0], dtype=torch.float32)
    labels = torch.tensor(draw(2000, 3)[1])
    for edges in ("equal_mass", "equal_width"):
        fitted = c.HistogramBinning(10, edges=edges).fit(logits, labels)
        mapped = piecewise.step_lookup(torch.softmax(logits.double(), 1), fitted.edges_, fitted.values_)
        for k in range(3):  # in every bin the mapped value is the mean of its rows
            for value in torch.unique(mapped[:, k]):
                inside = mapped[:, k] == value
                assert (labels[inside] == k).double().mean() == pytest.approx(float(value), abs=1e-12)


# ----------------------------------------------------------------------------------------------------- as a calibrator


def test_the_identity_is_kept_where_the_brier_score_would_get_worse():
    scores, labels = [0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [0, 0, 0, 1, 1, 1]
    fitted = c.HistogramBinning(1).fit(scores, labels, kind="probs")
    assert fitted.report_.kept_identity
    assert fitted.report_.after == fitted.report_.before
    np.testing.assert_allclose(fitted.predict_probs(np.array(scores), kind="probs"), scores, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "mean"), [(c.HistogramBinning, 0.04), (c.IsotonicCalibration, 0.015), (c.BayesianBinning, 0.04)]
)
def test_calibrated_predictions_stay_nearly_what_they_are(make, mean):
    logits, labels = draw(20_000, 3, overconfidence=1.0)
    change = np.abs(make().fit(logits, labels).predict_probs(logits) - softmax(logits))
    assert change.mean() < mean


@pytest.mark.parametrize("method", METHODS)
def test_an_overconfident_model_is_corrected_on_rows_that_the_fit_did_not_see(method):
    make, _ = METHODS[method]
    fitted = make().fit(*draw(5000, 3))
    logits, labels = draw(5000, 3, seed=1)
    raw, calibrated = (fc.metrics.classwise_ece(scores, labels) for scores in (logits, fitted(logits)))
    assert calibrated < raw / 2
    assert fc.metrics.brier(fitted(logits), labels) < fc.metrics.brier(logits, labels)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_one_gives_the_same_bits(method, tmp_path):
    make, _ = METHODS[method]
    fitted = make().fit(*DATA["distinct"])
    fitted.save(tmp_path / "c.safetensors")
    loaded = fc.load_calibrator(tmp_path / "c.safetensors")
    logits = draw(50, 3, seed=9)[0]
    assert loaded.settings() == fitted.settings()
    assert np.array_equal(loaded(logits), fitted(logits))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "num_classes"), [("histogram", 2), ("isotonic", 3)])
def test_onnx_agrees_on_the_rows_of_the_fit(method, num_classes, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    make, _ = METHODS[method]
    logits, labels = coarse(classes=num_classes)  # where scores are equal to those that the edges lie between
    fitted = make().fit(logits, labels)
    assert not fitted.report_.kept_identity
    fitted.to_onnx(tmp_path / "c.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "c.onnx", providers=["CPUExecutionProvider"])
    logits = logits.astype(np.float32)
    (got,) = session.run(None, {"logits": logits})
    np.testing.assert_allclose(np.exp(got), fitted.predict_probs(logits), atol=1e-6)


@pytest.mark.parametrize("method", ["histogram", "isotonic", "bbq"])
def test_classes_read_in_several_passes_are_the_same(method, monkeypatch):
    make, _ = METHODS[method]
    logits, labels = draw(200, 5)
    whole = make().fit(logits, labels)
    monkeypatch.setattr(one_vs_rest, "_HELD", 400)  # two classes at a time
    monkeypatch.setattr(piecewise, "_TOGETHER", 64)  # and a few rows at a time where the table is used
    parts = make().fit(logits, labels)
    for name in whole.FITTED:
        assert torch.equal(getattr(whole, name), getattr(parts, name))
    assert np.array_equal(whole(logits), parts(logits))


def test_another_number_of_classes_is_refused():
    with pytest.raises(InputError, match="fitted to 3 classes; got 4"):
        c.HistogramBinning().fit(*draw(100, 3))(np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: c.HistogramBinning(0), "num_bins: must be at least 1; got 0"),
        (lambda: c.HistogramBinning(edges="quantile"), "edges: must be equal_mass or equal_width; got 'quantile'"),
        (lambda: c.BayesianBinning(range_factor=0.5), "range_factor: must be at least 1 and finite; got 0.5"),
        (lambda: c.BayesianBinning(prior_size=0), "prior_size: must be positive and finite; got 0"),
        (lambda: c.BayesianBinning(prior_size=math.nan), "prior_size: must be positive and finite; got nan"),
        (lambda: c.BayesianBinning(range_factor=math.inf), "range_factor: must be at least 1 and finite; got inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("make", [c.HistogramBinning, c.IsotonicCalibration, c.BayesianBinning])
def test_a_fit_tells_how_far_it_has_come(make):
    logits, labels = draw(40, 5)
    told = []
    make().fit(logits, labels, progress=lambda *step: told.append(step))
    assert told == [(k, 5, f"{make.__name__}: class {k} of 5") for k in range(1, 6)]
    composed = []
    c.Compose(c.TemperatureScaling(), make()).fit(logits, labels, progress=lambda *step: composed.append(step))
    assert composed == told


def test_a_long_fit_says_beforehand_how_long_it_takes(monkeypatch):
    clock = iter(np.arange(0.0, 1e6, 6.0))  # every look at the clock is six seconds later
    monkeypatch.setattr("focalcal.calibrators.one_vs_rest.time.perf_counter", lambda: next(clock))
    logits, labels = draw(40, 50)
    with pytest.warns(fc.InputWarning, match="each of 50 classes, which takes about 1[0-9] minutes here") as caught:
        c.HistogramBinning().fit(logits, labels)
    assert len(caught) == 1
    monkeypatch.setattr("focalcal.calibrators.one_vs_rest._LONG_SECONDS", 1e5)
    c.HistogramBinning().fit(logits, labels)
    monkeypatch.setattr("focalcal.calibrators.one_vs_rest._LONG_SECONDS", 0.0)
    c.HistogramBinning().fit(logits, labels, progress=lambda *_: None)  # who watches needs no warning
