"""What must hold for any predictions: ranges, invariances, merging, and the awkward corners."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from focalcal import metrics as m
from focalcal.core.binning import bin_predictions
from tests.metrics.test_measures import MEASURES, softmax

# Drawn logits may happen to look like probabilities, of which measures warn.
pytestmark = pytest.mark.filterwarnings("ignore::focalcal.errors.InputWarning")

few = settings(max_examples=10)
BINNED = ["equal_width", "equal_mass", "array_split", "interpolated", "equal_width_sweep", "equal_mass_sweep"]
NORMS = ["l1", "l2", "max"]


@st.composite
def predictions(draw, min_rows=15, max_rows=40, max_classes=5, ties=True):
    """Logits and labels; with ties, rows come from a short list and logits from a coarse grid."""
    classes = draw(st.integers(2, max_classes))
    rows = draw(st.integers(min_rows, max_rows))
    value = st.integers(-12_000, 12_000).map(lambda thousandths: thousandths / 1000)
    if ties:
        value = st.one_of(value, st.integers(-3, 3).map(float))
        pool = draw(arrays(np.float64, (draw(st.integers(1, rows)), classes), elements=value))
        logits = pool[draw(arrays(np.int64, rows, elements=st.integers(0, len(pool) - 1)))]
    else:
        logits = draw(arrays(np.float64, (rows, classes), elements=value))
    labels = draw(arrays(np.int64, rows, elements=st.integers(0, classes - 1)))
    return logits, labels


def far_from_decisions(logits):
    """Whether no rounding error can move a row to another bin, tie two rows or part them, or change the prediction.

    Rows that are equal entry by entry stay equal, and so do classes of equal logits.
    """
    probs = softmax(np.unique(logits, axis=0))
    edges = np.array(sorted({k / n for n in range(1, len(logits) + 1) for k in range(n)}))
    ranked = [probs.max(1), -(probs * np.log(probs)).sum(1), *probs.T]
    second, first = np.sort(probs, axis=1)[:, -2:].T
    return (
        all((np.diff(np.sort(column)) > 1e-9).all() for column in ranked)
        and np.abs(probs[..., None] - edges).min() > 1e-9
        and (first - second).min() > 1e-9
    )


def measures_that_differ(one, other):
    """The names of the measures of which two sets of arguments give different numbers; undefined equals undefined."""

    def agree(a, b):
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)

    return [name for name, call in MEASURES.items() if not agree(call(*one[0], **one[1]), call(*other[0], **other[1]))]


# ------------------------------------------------------------------------------------------------------------ ranges


@pytest.mark.parametrize("edges", BINNED)
@few
@given(data=predictions(), num_bins=st.integers(1, 15))
def test_ece_lies_between_zero_and_one(edges, data, num_bins):
    if edges.endswith("sweep"):
        errors = [m.ece_sweep(*data, edges=edges.removesuffix("_sweep"), norm=norm) for norm in ("l1", "l2")]
    else:
        errors = [m.ece(*data, num_bins=num_bins, edges=edges, norm=norm) for norm in NORMS]
    assert all(0 <= error <= 1 for error in errors)
    assert all(low <= high + 1e-12 for low, high in itertools.pairwise(errors))  # l1 <= l2 <= max


@few
@given(data=predictions())
def test_bounded_measures_keep_their_bounds(data):
    for measure in (m.smooth_ece, m.ks_error, m.mmce, m.classwise_ece, m.aurc, m.accuracy, m.error, m.mean_confidence):
        assert 0 <= measure(*data) <= 1
    assert 0 <= m.brier(*data) <= 2
    assert m.nll(*data) >= 0
    assert 0 <= m.entropy(*data).overall <= math.log(data[0].shape[1]) + 1e-12


@few
@given(data=predictions(), num_bins=st.integers(1, 15))
def test_merging_bins_never_raises_ece(data, num_bins):
    """One bin has the smallest error of all: the distance of mean confidence and accuracy."""
    whole = abs(m.mean_confidence(*data) - m.accuracy(*data))
    assert m.ece(*data, num_bins=1) == pytest.approx(whole, abs=1e-12)
    assert m.ece(*data, num_bins=num_bins) <= m.ece(*data, num_bins=2 * num_bins) + 1e-12
    assert m.ada_ece(*data, num_bins=num_bins) >= whole - 1e-12


# ------------------------------------------------------------------------------------------------------- invariances


@few
@given(data=predictions(), seed=st.integers(0, 9))
def test_the_order_of_the_rows_does_not_matter(data, seed):
    logits, labels = data
    order = np.random.default_rng(seed).permutation(len(labels))
    assert measures_that_differ(((logits[order], labels[order]), {}), (data, {})) == []


@few
@given(data=predictions(), seed=st.integers(0, 9))
def test_the_order_of_weighted_rows_does_not_matter(data, seed):
    logits, labels = data
    generator = np.random.default_rng(seed)
    order, weight = generator.permutation(len(labels)), generator.uniform(0.1, 3, len(labels))
    shuffled = (logits[order], labels[order]), {"sample_weight": weight[order]}
    assert measures_that_differ(shuffled, (data, {"sample_weight": weight})) == []


@few
@given(data=predictions(), seed=st.integers(0, 9))
def test_a_constant_added_to_each_row_changes_nothing(data, seed):
    logits, labels = data
    assume(far_from_decisions(logits))
    constants = dict(zip(map(bytes, logits), np.random.default_rng(seed).uniform(-30, 30, len(labels)), strict=True))
    shift = np.array([constants[bytes(row)] for row in logits])[:, None]  # equal rows stay equal
    assert measures_that_differ(((logits + shift, labels), {}), (data, {})) == []


@few
@given(data=predictions())
def test_the_three_kinds_agree(data):
    logits, labels = data
    assume(far_from_decisions(logits))
    probs = softmax(logits)
    assert measures_that_differ(((probs, labels), {"kind": "probs"}), (data, {})) == []
    assert measures_that_differ(((np.log(probs), labels), {"kind": "log_probs"}), (data, {})) == []


@few
@given(data=predictions(), num_bins=st.integers(1, 15))
def test_equal_mass_counts_differ_by_at_most_one(data, num_bins):
    for edges in ("equal_mass", "array_split"):
        bins = m.reliability(*data, num_bins=num_bins, edges=edges)
        assert bins.count.sum() == len(data[1])
        assert torch.equal(bins.count, bins.count.round())
        assert bins.count.max() - bins.count.min() <= 1
    bins = m.reliability(*data, num_bins=num_bins, edges="equal_mass")
    assert m.ada_ece(*data, num_bins=num_bins) == pytest.approx(float((bins.weight * bins.gap.abs()).sum()), abs=1e-12)


@pytest.mark.parametrize("distinct", [1, 3])
@pytest.mark.parametrize("edges", ["equal_mass", "array_split"])
def test_counts_of_equal_mass_bins_are_whole_however_many_rows_tie(edges, distinct):
    for rows in range(distinct, 41):
        confidence = (1 + np.arange(rows) % distinct) / 4
        for num_bins in range(1, rows + 1):
            bins = bin_predictions(confidence, np.arange(rows) % 2, num_bins=num_bins, edges=edges)
            expected = np.bincount(np.arange(rows) * num_bins // rows)
            expected = -np.sort(-expected) if edges == "array_split" else expected
            assert bins.count.tolist() == expected.tolist(), (rows, num_bins)


@pytest.mark.parametrize("num_bins", [3, 5, 7, 10, 15])
def test_float32_confidence_at_an_edge_is_in_the_same_bin_on_every_road(num_bins):
    for edge in range(num_bins // 2 + 1, num_bins):
        probs = np.array([[edge / num_bins, 1 - edge / num_bins]], dtype=np.float32)
        roads = [
            m.reliability(probs, [0], kind="probs", num_bins=num_bins),
            m.reliability(probs, [0], kind="probs", num_bins=num_bins, target=0),
            m.reliability(probs, [0], kind="probs", num_bins=num_bins, sample_weight=[0.5]),
            m.reliability(m.from_pairs(probs[:, 0], [1]), num_bins=num_bins),
            m.evaluate(probs, [0], kind="probs", num_bins=num_bins).bins,
        ]
        assert [int(bins.count.argmax()) for bins in roads] == [edge - 1] * 5


# ------------------------------------------------------------------------------------------------------------- merge


ROWS = st.lists(
    st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.2, 0.5, 1.0])), st.booleans(), st.integers(1, 3)),
    min_size=1,
    max_size=25,
)


def same_bins(ours, expected):
    for field in ("edges", "count", "mass"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(expected, field))
    for field in ("confidence", "accuracy"):
        np.testing.assert_allclose(getattr(ours, field), getattr(expected, field), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@given(parts=st.tuples(ROWS, ROWS, ROWS), num_bins=st.integers(1, 15))
def test_merging_is_associative_and_commutative_and_bins_the_union(weighted, parts, num_bins):
    def binned(rows):
        confidence, correct, weight = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
        return bin_predictions(confidence, correct, num_bins=num_bins, weight=weight if weighted else None)

    a, b, c = (binned(rows) for rows in parts)
    union = binned([row for rows in parts for row in rows])
    same_bins(a.merge(b), b.merge(a))
    same_bins(a.merge(b).merge(c), a.merge(b.merge(c)))
    same_bins(a.merge(b).merge(c), union)


def test_bins_of_other_edges_do_not_merge():
    confidence, correct = torch.tensor([0.2, 0.7]), torch.tensor([0, 1])
    bins = bin_predictions(confidence, correct, num_bins=4)
    for other in (
        bin_predictions(confidence, correct, num_bins=5),
        bin_predictions(confidence, correct, edges="equal_mass", num_bins=2),
    ):
        with pytest.raises(ValueError, match="edges"):
            bins.merge(other)


# ------------------------------------------------------------------------------------------------------- the corners


def all_numbers_of(scores, labels, **options):
    """Every measure of these rows that does not need more than one bin or both right and wrong rows."""
    one = {"num_bins": 1}
    return {
        "ece": m.ece(scores, labels, **options),
        "rms": m.ece(scores, labels, norm="l2", **options),
        "mce": m.mce(scores, labels, **options),
        "ada_ece": m.ada_ece(scores, labels, **one, **options),
        "classwise_ece": m.classwise_ece(scores, labels, **options),
        "ece_debiased": m.ece_debiased(scores, labels, **one, **options),
        "ece_debiased_l1": m.ece_debiased(scores, labels, norm="l1", **one, **options),
        "ece_sweep": m.ece_sweep(scores, labels, **options),
        "ece_sweep_equal_width": m.ece_sweep(scores, labels, edges="equal_width", **options),
        "smooth_ece": m.smooth_ece(scores, labels, **options),
        "ks_error": m.ks_error(scores, labels, **options),
        "mmce": m.mmce(scores, labels, **options),
        "mmce_weighted": m.mmce(scores, labels, weighted=True, **options),
        "brier": m.brier(scores, labels, **options),
        "accuracy": m.accuracy(scores, labels, **options),
        "error": m.error(scores, labels, **options),
        "top_k": m.top_k_accuracy(scores, labels, k=1, **options),
        "mean_confidence": m.mean_confidence(scores, labels, **options),
        "entropy": m.entropy(scores, labels, **options).overall,
        "s99": m.s99(scores, labels, **options).share,
        "brier_total": m.brier_decomposition(scores, labels, **options).total,
        "aurc": m.aurc(scores, labels, **options),
    }


def assert_all_finite(numbers):
    assert [name for name, value in numbers.items() if not math.isfinite(value)] == []


def test_all_confidences_tied_give_the_gap_whatever_the_bins():
    """64 rows of confidence 3/4, of which 40 are right: every binned error is 1/8."""
    probs = np.tile([0.125, 0.75, 0.125], (64, 1))
    labels = np.array([1] * 40 + [0] * 24)
    found = all_numbers_of(probs, labels, kind="probs")
    for name in (
        "ece",
        "rms",
        "mce",
        "ada_ece",
        "ece_sweep",
        "ece_sweep_equal_width",
        "smooth_ece",
        "ks_error",
        "mmce",
    ):
        assert found[name] == pytest.approx(1 / 8, abs=1e-9), name
    for num_bins in (3, 15, 64):
        assert m.ada_ece(probs, labels, kind="probs", num_bins=num_bins) == pytest.approx(1 / 8, abs=1e-12)
    assert found["aurc"] == pytest.approx(24 / 64, abs=1e-12)
    assert m.auroc_correctness(probs, labels, kind="probs") == 0.5


@pytest.mark.parametrize("right", [True, False])
def test_a_single_row_works(right):
    probs, labels = np.array([[0.25, 0.625, 0.125]]), np.array([1 if right else 0])
    found = all_numbers_of(probs, labels, kind="probs")
    assert_all_finite(found)
    gap = 0.375 if right else 0.625
    for name in ("ece", "rms", "mce", "ada_ece", "ece_sweep", "ece_sweep_equal_width", "ks_error", "mmce"):
        assert found[name] == pytest.approx(gap, abs=1e-12), name
    assert found["smooth_ece"] == pytest.approx(gap, abs=1e-9)
    assert m.nll(probs, labels, kind="probs") == pytest.approx(-math.log(0.625 if right else 0.25), abs=1e-12)
    for num_bins in (1, 15):
        found = m.evaluate(probs, labels, kind="probs", num_bins=num_bins)
        assert (found.ece, found.ada_ece) == pytest.approx((gap, gap), abs=1e-12)
        assert found.warnings  # of so few rows


def test_a_single_class_in_the_labels_works():
    probs = softmax(np.random.default_rng(0).standard_normal((40, 3)))
    labels = np.full(40, 2)
    assert_all_finite(all_numbers_of(probs, labels, kind="probs"))
    absent = m.ece(probs, labels, kind="probs", target=0, num_bins=1)
    assert absent == pytest.approx(probs[:, 0].mean(), abs=1e-12)
    present = m.ece(probs, labels, kind="probs", target=2, num_bins=1)
    assert present == pytest.approx(1 - probs[:, 2].mean(), abs=1e-12)
    assert_all_finite({"evaluate": m.evaluate(probs, labels, kind="probs").classwise_ece})


def test_confidences_of_exactly_zero_and_one_work():
    probs = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    labels = np.array([0, 0, 1, 0])
    found = all_numbers_of(probs, labels, kind="probs")
    assert_all_finite(found)
    for name in ("ece", "rms", "mce", "ada_ece", "classwise_ece", "ks_error", "mmce"):
        if name != "classwise_ece":
            assert found[name] == pytest.approx(1 / 4, abs=1e-12), name
    assert found["entropy"] == 0
    assert found["s99"] == 1
    table = m.reliability(probs, labels, kind="probs", target="positive")
    assert table.count[0] == 2  # confidence 0 is in the first bin
    assert table.count[-1] == 2
    assert table.accuracy[0] == 0
    assert table.accuracy[-1] == 0.5
    assert m.ece(probs, labels, kind="probs", target="positive") == pytest.approx(1 / 4, abs=1e-12)
    assert m.nll(probs[:3], labels[:3], kind="probs") == 0
    assert m.nll(probs, labels, kind="probs") == math.inf  # what did happen was given no chance


def test_logits_so_far_apart_that_confidence_rounds_to_one_work():
    logits = np.array([[800.0, -800.0], [-800.0, 800.0], [0.0, 800.0]])
    labels = np.array([0, 0, 1])
    found = all_numbers_of(logits, labels)
    assert_all_finite(found)
    assert found["mean_confidence"] == 1
    assert m.nll(logits, labels) == pytest.approx(1600 / 3, rel=1e-12)


@pytest.mark.parametrize(("rows", "classes"), [(500, 2), (60, 10_000)])
def test_few_and_many_classes_work(rows, classes):
    generator = np.random.default_rng(0)
    logits = 3 * generator.standard_normal((rows, classes))
    labels = np.where(generator.uniform(size=rows) < 0.5, logits.argmax(1), generator.integers(0, classes, rows))
    probs = softmax(logits)
    found = all_numbers_of(logits, labels)
    assert_all_finite(found)
    picked = probs[np.arange(rows), labels]
    assert found["brier"] == pytest.approx(((probs**2).sum(1) - 2 * picked + 1).mean(), abs=1e-12)
    assert found["accuracy"] == (probs.argmax(1) == labels).mean()
    # Few rows fill few bins of a class: most of 10,000 classes have no label at all.
    per_class = [
        abs(np.bincount(np.minimum(np.ceil(p * 15), 15).astype(int), p - (labels == k), 16)).sum() / rows
        for k, p in enumerate(probs.T)
    ]
    assert found["classwise_ece"] == pytest.approx(np.mean(per_class), abs=1e-12)
    single = all_numbers_of(logits.astype(np.float32), labels)
    for name in ("ece", "brier", "mean_confidence", "entropy", "accuracy", "classwise_ece"):
        assert single[name] == pytest.approx(found[name], abs=1e-5), name


# ------------------------------------------------------------------------------------------- the band of calibration


def calibrated(seed, rows=400, classes=3, sharpen=1.0):
    """Labels drawn from the probabilities themselves; `sharpen` then makes the model too sure."""
    generator = np.random.default_rng(seed)
    logits = 1.5 * generator.standard_normal((rows, classes))
    labels = (softmax(logits).cumsum(1) < generator.uniform(size=(rows, 1))).sum(1)
    return sharpen * logits, labels


@pytest.mark.parametrize("edges", ["equal_width", "equal_mass"])
def test_calibrated_predictions_show_an_ece_within_their_band(edges):
    """A 95 % band: of 40 draws at most 5 may fall outside (more would happen once in 70 times)."""
    inside = 0
    for seed in range(40):
        bars = m.consistency_bars(*calibrated(seed), edges=edges, num_resamples=300, seed=seed)
        assert bars.ece == pytest.approx(m.ece(*calibrated(seed), edges=edges), abs=1e-12)
        assert 0 < bars.ece_low < bars.expected_ece < bars.ece_high
        inside += bars.ece_low <= bars.ece <= bars.ece_high
    assert inside >= 35


def test_predictions_that_are_too_sure_show_an_ece_above_their_band():
    for seed in range(5):
        bars = m.consistency_bars(*calibrated(seed, sharpen=2.5), num_resamples=200, seed=seed)
        assert bars.ece > bars.ece_high


def test_the_expected_ece_of_calibrated_predictions_shrinks_with_the_rows():
    """The bias of ECE falls as one over the root of N."""
    few_rows, many_rows = (
        m.consistency_bars(*calibrated(0, rows=rows), num_resamples=300, seed=0).expected_ece for rows in (200, 3200)
    )
    assert few_rows / many_rows == pytest.approx(4, rel=0.25)
