"""Bootstrap, comparison, bands and consistency bars, against plain resampling, scipy and a known truth."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from inspect import signature

import numpy as np
import pytest
import torch
from scipy import stats

import focalcal as fc
from focalcal import metrics as m
from focalcal.core.binning import bin_predictions
from focalcal.kernels.class_bins import ClassBinSums
from focalcal.metrics import intervals
from focalcal.metrics.reliability import accuracy_bands, chance_band

RNG = np.random.default_rng(0)
LOGITS = 2 * RNG.normal(size=(300, 4))
LABELS = np.array([RNG.choice(4, p=p) for p in np.exp(LOGITS / 1.5) / np.exp(LOGITS / 1.5).sum(1, keepdims=True)])
ROWS = m.read(LOGITS, LABELS)
WEIGHTS = RNG.integers(1, 4, len(LABELS)).astype(float)


def drawn_counts(num_resamples, seed):
    """How often each row is in each resample, drawn as `bootstrap` draws."""
    rng = np.random.default_rng(seed)
    return np.stack([np.bincount(rng.integers(0, 300, 300, np.int32), minlength=300) for _ in range(num_resamples)])


MEASURES = {
    "nll": m.nll,
    "brier": m.brier,
    "accuracy": m.accuracy,
    "mean_confidence": m.mean_confidence,
    "top_k_accuracy": lambda *a, **k: m.top_k_accuracy(*a, k=2, **k),
    "ece": m.ece,
    "mce": m.mce,
    "ada_ece": m.ada_ece,
    "sweep": m.ece_sweep,
    "smooth_ece": m.smooth_ece,
    "ks_error": m.ks_error,
    "mmce": m.mmce,
    "aurc": m.aurc,
    "auroc": m.auroc_correctness,
    "auroc by entropy": lambda *a, **k: m.auroc_correctness(*a, by="entropy", **k),
}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_resample_measures_what_its_repeated_rows_would(name, weighted):
    times = drawn_counts(5, seed=1)
    weight = WEIGHTS if weighted else None
    values = MEASURES[name](m.read(LOGITS, LABELS, sample_weight=weight).resampled(times))
    for value, row in zip(values, times, strict=True):
        index = np.repeat(np.arange(300), row)
        again = MEASURES[name](LOGITS[index], LABELS[index], sample_weight=None if weight is None else weight[index])
        assert value == pytest.approx(again, abs=1e-12)


@pytest.mark.parametrize("edges", ["equal_width", "equal_mass"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_classwise_resamples_measure_what_their_repeated_rows_would(edges, norm):
    times = drawn_counts(3, seed=2)
    rows = m.read(LOGITS, LABELS, target="classwise")
    values = m.ece(rows.resampled(times), edges=edges, norm=norm)
    for value, row in zip(values, times, strict=True):
        index = np.repeat(np.arange(300), row)
        again = m.ece(LOGITS[index], LABELS[index], edges=edges, norm=norm, target="classwise")
        assert value == pytest.approx(again, abs=1e-12)


def test_a_percentile_interval_is_made_of_the_quantiles_of_the_resamples():
    interval = m.bootstrap("ece", LOGITS, LABELS, method="percentile", num_resamples=200, level=0.9, seed=3)
    values = m.ece(ROWS.in_order().resampled(drawn_counts(200, seed=3)))
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(values, [0.05, 0.95])), abs=1e-12)
    assert interval.value == pytest.approx(m.ece(LOGITS, LABELS), rel=1e-14)
    assert interval.definition == "ECE, top label, 15 equal-width bins, l1"


def test_a_bca_interval_of_a_mean_agrees_with_scipy():
    nll = ROWS.column("nll")
    seed = "rng" if "rng" in signature(stats.bootstrap).parameters else "random_state"  # before scipy 1.15
    theirs = stats.bootstrap((nll,), np.mean, n_resamples=20_000, method="BCa", **{seed: 1}).confidence_interval
    ours = m.bootstrap("nll", LOGITS, LABELS, num_resamples=20_000)
    spread = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * spread)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * spread)


def test_any_function_of_rows_can_be_resampled_and_a_seed_repeats_itself():
    def both(rows):
        return m.nll(rows) + m.ece(rows)

    one, two = (m.bootstrap(both, LOGITS, LABELS, num_resamples=100, seed=5) for _ in range(2))
    assert one == two
    assert one.value == pytest.approx(m.nll(ROWS) + m.ece(ROWS))
    assert m.bootstrap(both, LOGITS, LABELS, num_resamples=100, seed=6) != one


def test_intervals_of_several_measures_are_those_of_each():
    measures = {"ece": m.ece, "ten bins": partial(m.ece, num_bins=10), "aurc": "aurc"}
    found = m.bootstrap_each(measures, LOGITS, LABELS, sample_weight=WEIGHTS, seed=4, num_resamples=200)
    options = {"sample_weight": WEIGHTS, "seed": 4, "num_resamples": 200}
    assert found["ece"] == fc.bootstrap("ece", LOGITS, LABELS, **options)
    assert found["aurc"] == fc.bootstrap("aurc", LOGITS, LABELS, **options)
    ten = fc.bootstrap("ece", LOGITS, LABELS, num_bins=10, **options)
    assert (found["ten bins"].low, found["ten bins"].high) == (ten.low, ten.high)
    with pytest.raises(fc.InputError, match="at least one measure"):
        m.bootstrap_each([], LOGITS, LABELS)


@pytest.mark.parametrize("weighted", [False, True])
def test_equal_mass_bins_of_resamples_share_ties_as_repeated_rows_do(weighted):
    confidence = RNG.integers(1, 12, 100) / 12
    correct = RNG.random(100) < confidence
    weight = RNG.random(100) if weighted else None
    times = np.stack([np.bincount(RNG.integers(0, 100, 100), minlength=100) for _ in range(5)])
    bins = m.from_pairs(confidence, correct, sample_weight=weight).resampled(times).bins(7, "equal_mass")
    for row, repeat in enumerate(times):
        share = None if weight is None else np.repeat(weight, repeat)
        rows = m.from_pairs(np.repeat(confidence, repeat), np.repeat(correct, repeat), sample_weight=share)
        one = rows.bins(7, "equal_mass")
        for name in ("confidence", "accuracy", "mass"):
            torch.testing.assert_close(getattr(bins, name)[row], getattr(one, name), rtol=1e-12, atol=1e-12)


def test_a_basic_interval_mirrors_the_quantiles_and_no_error_is_negative():
    replicates = np.concatenate([m.ece(part) for part in intervals._resamples(ROWS.in_order(), 300, 0)])
    low, high = np.quantile(replicates, [0.025, 0.975])
    found = fc.bootstrap("ece", LOGITS, LABELS, num_resamples=300)
    assert found.method == "basic"
    assert (found.low, found.high) == pytest.approx((max(0, 2 * found.value - high), 2 * found.value - low))
    assert fc.bootstrap("nll", LOGITS, LABELS, num_resamples=100).method == "bca"
    calibrated = fc.bootstrap("ece", [[0.5, 0.5]] * 40, [0, 1] * 20, kind="probs", num_resamples=100)
    assert (calibrated.value, calibrated.low, calibrated.high) == (0, 0, 0)


def test_an_infinite_nll_has_no_interval_and_no_warning():
    probs = np.array([[1.0, 0.0], [0.8, 0.2], [0.7, 0.3]] * 10)
    found = fc.bootstrap("nll", probs, [1, 0, 0] * 10, kind="probs", num_resamples=100)
    assert np.isinf(found.value)
    assert np.isnan([found.low, found.high]).all()


def test_options_targets_and_kinds_reach_the_measure():
    probs = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    one = m.bootstrap("ece", probs, LABELS, kind="probs", target=2, num_bins=5, num_resamples=100)
    assert one.value == pytest.approx(m.ece(LOGITS, LABELS, target=2, num_bins=5), abs=1e-12)
    assert one.definition == "ECE, class 2 against the rest, 5 equal-width bins, l1"
    classwise = m.bootstrap("classwise_ece", LOGITS, LABELS, num_resamples=100)
    assert classwise.value == m.classwise_ece(LOGITS, LABELS)


@pytest.mark.parametrize("target", [0, 3, "classwise", "top_label"])
def test_the_interval_is_that_of_the_target(target):
    interval = m.bootstrap("ks_error", LOGITS, LABELS, target=target, num_resamples=100)
    assert interval.value == pytest.approx(m.ks_error(LOGITS, LABELS, target=target), abs=1e-12)
    assert interval.definition == m.ks_error(LOGITS, LABELS, target=target).definition


@pytest.mark.parametrize("weighted", [False, True])
def test_classwise_resamples_have_means_and_sweeps_of_their_repeated_rows(weighted):
    times, weight = drawn_counts(3, seed=4), WEIGHTS if weighted else None
    resampled = m.read(LOGITS, LABELS, target="classwise", sample_weight=weight).resampled(times)
    parts, sweeps, nll = m.brier_decomposition(resampled), m.ece_sweep(resampled), m.nll(resampled)
    for r, row in enumerate(times):
        index = np.repeat(np.arange(300), row)
        again = {"sample_weight": None if weight is None else weight[index]}
        expected = m.brier_decomposition(LOGITS[index], LABELS[index], target="classwise", **again)
        assert parts.calibration[r] == pytest.approx(expected.calibration, abs=1e-12)
        assert parts.within_bins[r] == pytest.approx(expected.within_bins, abs=1e-12)
        assert nll[r] == pytest.approx(m.nll(LOGITS[index], LABELS[index], **again), abs=1e-12)
        swept = m.ece_sweep(LOGITS[index], LABELS[index], target="classwise", **again)
        assert sweeps[r] == pytest.approx(swept, abs=1e-12)


def test_undefined_values_are_left_out_of_the_skewness():
    """Without its only wrong row a data set has no AUROC: that group must not cost BCa its acceleration."""
    rng = np.random.default_rng(0)
    replicates, left_out, tails = rng.exponential(size=500), rng.exponential(size=50), np.array([0.025, 0.975])
    expected = intervals._bca_tails(0.8, replicates, left_out, tails)
    assert intervals._bca_tails(0.8, replicates, np.append(left_out, np.nan), tails) == pytest.approx(expected)
    assert expected != pytest.approx(intervals._bca_tails(0.8, replicates, np.ones(50), tails))
    bias = stats.norm.ppf((replicates < 0.8).mean())
    shifted = bias + stats.norm.ppf(tails)
    acceleration = -stats.skew(left_out) / (6 * np.sqrt(len(left_out)))
    assert expected == pytest.approx(stats.norm.cdf(bias + shifted / (1 - acceleration * shifted)))


def test_a_debiased_estimate_stays_unbiased_in_resamples():
    """A resample of a sample has the sampling noise of both; taking off only one of them would shift every interval."""
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.5, 1, 2000)
    rows = m.from_pairs(confidence, rng.random(2000) < confidence - 0.1)
    drawn = rng.integers(0, 2000, (400, 2000))
    times = np.stack([np.bincount(row, minlength=2000) for row in drawn])
    for norm in ("l1", "l2"):
        value = m.ece_debiased(rows, norm=norm, edges="equal_width")
        resampled = m.ece_debiased(rows.resampled(times), norm=norm, edges="equal_width").mean()
        assert resampled == pytest.approx(value, abs=0.003)


def test_a_constant_measure_has_an_interval_without_width():
    interval = m.bootstrap("accuracy", [[2.0, 0.0]] * 20, [0] * 20)
    assert (interval.value, interval.low, interval.high) == (1.0, 1.0, 1.0)


def test_comparison_is_paired():
    worse = LOGITS * 1.05
    result = m.compare(worse, LOGITS, LABELS)
    assert result.difference == pytest.approx(m.nll(worse, LABELS) - m.nll(LOGITS, LABELS))
    assert result.low <= result.difference <= result.high
    apart = m.bootstrap("nll", LOGITS, LABELS)
    assert result.high - result.low < (apart.high - apart.low) / 3
    assert m.compare(LOGITS, LOGITS, LABELS).p_value == 1.0


def test_a_clear_difference_is_significant_and_its_sign_is_first_minus_second():
    result = m.compare(3 * LOGITS, LOGITS, LABELS, metric="ece")
    assert result.difference > 0 < result.low
    assert result.p_value <= 0.02
    assert result.first == pytest.approx(m.ece(3 * LOGITS, LABELS))
    other = m.compare(LOGITS, 3 * LOGITS, LABELS, metric=m.ece)
    assert other.difference == -result.difference
    assert other.high < 0


def test_clopper_pearson_bands_agree_with_scipy():
    bins = m.reliability(LOGITS, LABELS)
    low, high = m.accuracy_bands(bins, level=0.9)
    for b, count in enumerate(bins.count.tolist()):
        if count == 0:
            assert (low[b], high[b]) == (0, 1)
            continue
        exact = stats.binomtest(round(float(bins.accuracy[b]) * count), int(count)).proportion_ci(0.9, method="exact")
        assert (float(low[b]), float(high[b])) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize("edges", ["equal_width", "equal_mass"])
def test_consistency_bars_are_those_of_redrawn_labels(edges):
    confidence = np.random.default_rng(3).uniform(0.3, 1, 400)
    rows = m.from_pairs(confidence, np.ones(400))
    bars = m.consistency_bars(rows, edges=edges, num_resamples=4000)
    rng = np.random.default_rng(4)
    errors = [m.ece(m.from_pairs(confidence, rng.random(400) < confidence), edges=edges) for _ in range(2000)]
    assert bars.expected_ece == pytest.approx(np.mean(errors), rel=0.02)
    assert (bars.ece_low, bars.ece_high) == pytest.approx(tuple(np.quantile(errors, [0.025, 0.975])), rel=0.06)
    assert bars.ece > bars.ece_high
    held = bars.bins.count > 0
    inside = (bars.low <= bars.bins.confidence) & (bars.bins.confidence <= bars.high)
    assert inside[held].all()
    assert (bars.bins.accuracy[held] > bars.high[held])[:8].all()  # correct throughout, which 0.3 to 0.8 would not be


def test_many_rows_do_not_make_consistency_bars_slow_or_wrong():
    """Rows are drawn in cells of neighbours: the spread is still that of a binomial."""
    confidence = np.full(200_000, 0.75)
    bars = m.consistency_bars(m.from_pairs(confidence, np.ones(200_000)), num_resamples=4000)
    low, high = stats.binom(200_000, 0.75).ppf([0.025, 0.975]) / 200_000
    place = int(bars.bins.count.argmax())
    assert float(bars.low[place]) == pytest.approx(low, abs=1e-4)
    assert float(bars.high[place]) == pytest.approx(high, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"metric": "ecee"}, "metric: must be a function of rows or one of accuracy"),
        ({"metric": 3}, "metric: must be a measure"),
        ({"metric": m.entropy}, "metric: must give one number"),
        ({"num_resamples": 10}, "num_resamples: must be a whole number from 100"),
        ({"level": 1.0}, "level: must lie between 0 and 1"),
        ({"method": "wild"}, "method: must be one of auto, bca, percentile, basic"),
        ({"labels": None}, "labels: must be given"),
    ],
)
def test_bad_requests_are_refused(arguments, match):
    given = {"metric": "ece", "scores": LOGITS, "labels": LABELS} | arguments
    with pytest.raises(fc.InputError, match=match):
        m.bootstrap(given.pop("metric"), given.pop("scores"), given.pop("labels"), **given)


def test_consistency_bars_are_of_one_target():
    with pytest.raises(fc.InputError, match="target: must be one class or the top label"):
        m.consistency_bars(LOGITS, LABELS, target="classwise")
    with pytest.raises(fc.InputError, match="target: must be one class or the top label"):
        m.consistency_bars(m.read(LOGITS, LABELS, target="classwise"))


def test_sets_of_different_length_cannot_be_compared():
    with pytest.raises(fc.InputError, match="must have as many rows"):
        m.compare(ROWS, m.read(LOGITS[:10], LABELS[:10]))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_bootstrap_intervals_cover_the_truth_as_often_as_they_say(method):
    """300 data sets from a population whose posteriors are known: 95 % intervals must hold the truth in 91..99 %."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(200_000, 3))
    posterior = torch.softmax(torch.from_numpy(logits) / 1.6, 1).numpy()  # the model is too sure
    log_probs = torch.log_softmax(torch.from_numpy(logits), 1).numpy()
    confidence, top = np.exp(log_probs.max(1)), log_probs.argmax(1)
    chance = posterior[np.arange(len(top)), top]
    place = np.minimum((confidence * 15).astype(int), 14)
    share, gaps = np.bincount(place, minlength=15), np.bincount(place, weights=confidence - chance, minlength=15)
    truth = {
        "nll": -(posterior * log_probs).sum(1).mean(),
        "accuracy": chance.mean(),
        "ece_debiased": np.sqrt((gaps**2 / np.maximum(share, 1)).sum() / len(top)),
    }
    measures = {name: m.MEASURES[name] for name in truth}
    measures["ece_debiased"] = partial(m.ece_debiased, edges="equal_width")
    hits = dict.fromkeys(truth, 0)
    for repetition in range(300):
        index = rng.integers(0, len(top), 1000)
        labels = (rng.random((1000, 1)) > posterior[index].cumsum(1)[:, :-1]).sum(1)
        rows = m.read(logits[index], labels)
        found = m.bootstrap_each(measures, rows, method=method, num_resamples=300, seed=repetition)
        for name, value in truth.items():
            hits[name] += found[name].low <= value <= found[name].high
    assert all(273 <= count <= 297 for count in hits.values()), hits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ece", "ada_ece"])
@pytest.mark.parametrize("temperature", [1.1, 2.0])
def test_intervals_of_calibration_errors_cover_the_truth_also_where_noise_is_much_of_them(name, temperature):
    """At temperature 1.1 BCa, which suits other measures, covers the truth in 5 to 60 of 100 cases."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(400_000, 5))

    def labels_of(rows):
        return (rows / temperature + rng.gumbel(size=rows.shape)).argmax(1)

    truth = getattr(m, name)(logits, labels_of(logits))
    hits = 0
    for repetition in range(100):
        rows = logits[repetition * 1000 : (repetition + 1) * 1000]
        found = m.bootstrap(name, rows, labels_of(rows), num_resamples=250)
        hits += found.low <= truth <= found.high
    assert 85 <= hits <= 99


def test_the_chance_band_of_rows_that_rounding_made_more_than_sure_is_one():
    bins = bin_predictions(torch.ones(20), torch.ones(20), num_bins=1)
    sure = replace(bins, confidence=bins.confidence + 1e-12)
    assert [end.tolist() for end in chance_band(sure)] == [[1.0], [1.0]]


def test_bins_of_classes_count_the_rows_unless_weights_are_whole_numbers():
    probs, labels = torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1])
    for weight, counted in ((None, 2.0), ([0.5, 0.25], 2.0), ([3.0, 1.0], 4.0)):
        sums = ClassBinSums(2, 2)
        sums.add(probs, labels, None if weight is None else np.array(weight))
        assert sums.bins().count.tolist() == [[0.0, counted], [counted, 0.0]]


def test_a_band_of_more_than_everything_is_refused():
    bins = bin_predictions(torch.ones(20), torch.ones(20), num_bins=1)
    for level in (0.0, 1.0, 1.5):
        with pytest.raises(fc.InputError, match="level: must lie between 0 and 1"):
            accuracy_bands(bins, level)
