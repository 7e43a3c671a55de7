"""Every measure against a slow loop written from its definition, on data with and without ties.

The loops take probabilities as lists of floats, count correctness in fractions and share it among rows of equal
confidence where a rule cuts between them. Weights, ignored labels, shapes and kinds are tested by what they must equal.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal import metrics as m
from focalcal.core.binning import bin_predictions

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


# ------------------------------------------------------------------------------------------------------------ the data


@dataclass(frozen=True)
class Data:
    scores: np.ndarray
    labels: np.ndarray
    kind: str
    probs: list[list[float]]

    @property
    def num_classes(self):
        return self.scores.shape[1]


def softmax(logits):
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def draw_labels(generator, probs):
    """Labels that follow sharper probabilities than given, so that gaps have both signs."""
    sharper = probs**1.5 / (probs**1.5).sum(1, keepdims=True)
    return np.array([generator.choice(len(p), p=p) for p in sharper])


def distinct(rows=60, classes=4, seed=0):
    """Logits without ties."""
    generator = np.random.default_rng(seed)
    logits = 1.5 * generator.standard_normal((rows, classes)) - 0.5
    probs = softmax(logits)
    return Data(logits, draw_labels(generator, probs), "logits", probs.tolist())


def repeated(rows=60, classes=4, seed=1):
    """Logits of which most rows occur several times, with different labels."""
    generator = np.random.default_rng(seed)
    logits = (1.5 * generator.standard_normal((rows // 4, classes)) - 0.5)[generator.integers(0, rows // 4, rows)]
    probs = softmax(logits)
    return Data(logits, draw_labels(generator, probs), "logits", probs.tolist())


def tied(rows=64, classes=4, seed=2):
    """Probabilities in sixteenths, none 0: exact ties between rows, within rows, and with the edges of 4 or 8 bins."""
    generator = np.random.default_rng(seed)
    shape = generator.dirichlet(np.full(classes, 0.5), rows)
    probs = np.array([generator.multinomial(16 - classes, p) + 1 for p in shape]) / 16
    return Data(probs, draw_labels(generator, probs), "probs", probs.tolist())


DATA = {
    "distinct": distinct(),
    "repeated": repeated(),
    "tied": tied(),
    "binary": tied(classes=2, seed=3),
}
all_data = pytest.mark.parametrize("data", DATA.values(), ids=DATA)
TARGETS = ["top_label", 0, 1, "classwise"]


# --------------------------------------------------------------------------------------------- the definitions, slowly


def top(p):
    return p.index(max(p))


def pairs(data, target):
    if target == "top_label":
        return [(max(p), top(p) == y) for p, y in zip(data.probs, data.labels, strict=True)]
    column = 1 if target == "positive" else target
    return [(p[column], y == column) for p, y in zip(data.probs, data.labels, strict=True)]


def over_targets(data, target, error, mean=lambda values: sum(values) / len(values)):
    """An error of (confidence, correct) pairs for a target; that of "classwise" is a mean over the classes."""
    if target == "classwise":
        return mean([error(pairs(data, k)) for k in range(data.num_classes)])
    return error(pairs(data, target))


def root_mean_square(values):
    return math.sqrt(sum(v * v for v in values) / len(values))


MEANS = {"l1": lambda values: sum(values) / len(values), "l2": root_mean_square, "max": max}


def share_ties(rows):
    """Sorted by confidence, the correctness of equal confidences replaced by its mean."""
    groups = defaultdict(list)
    for confidence, correct in rows:
        groups[confidence].append(int(correct))
    return [(c, Fraction(sum(group), len(group))) for c, group in sorted(groups.items()) for _ in group]


def cut(rows, scheme, num_bins):
    """The rows of each bin."""
    if scheme == "equal_width":
        return [
            [(c, Fraction(int(k))) for c, k in rows if b / num_bins < c <= (b + 1) / num_bins or (b == 0 and c == 0)]
            for b in range(num_bins)
        ]
    ranked, n = share_ties(rows), len(rows)
    if scheme == "equal_mass":
        return [[row for i, row in enumerate(ranked) if num_bins * i // n == b] for b in range(num_bins)]
    if scheme == "array_split":
        sizes = [n // num_bins + (b < n % num_bins) for b in range(num_bins)]
        return [ranked[sum(sizes[:b]) : sum(sizes[: b + 1])] for b in range(num_bins)]
    assert scheme == "interpolated"
    values = [c for c, _ in ranked]
    edges = np.interp([n * b / num_bins for b in range(num_bins + 1)], range(n), values)
    return [
        [(c, k) for c, k in ranked if edges[b] < c <= edges[b + 1] or (b == 0 and c <= edges[1])]
        for b in range(num_bins)
    ]


def table(bins):
    """Count, mean confidence and accuracy (a fraction) of each filled bin."""
    return [(len(b), math.fsum(c for c, _ in b) / len(b), sum(k for _, k in b) / len(b)) for b in bins if b]


def binned_error(bins, norm):
    filled = table(bins)
    n = sum(count for count, _, _ in filled)
    if norm == "max":
        return max(abs(c - float(a)) for _, c, a in filled)
    if norm == "l2":
        return math.sqrt(sum(count / n * (c - float(a)) ** 2 for count, c, a in filled))
    return sum(count / n * abs(c - float(a)) for count, c, a in filled)


def debiased_l2(bins):
    """The root of the sum over bins of n_b/N [gap^2 - a(1-a)/(n_b-1)], where a bin of one row says nothing."""
    filled = table(bins)
    n = sum(count for count, _, _ in filled)
    total = sum(
        count / n * ((c - float(a)) ** 2 - float(a * (1 - a)) / (count - 1)) for count, c, a in filled if count > 1
    )
    return math.sqrt(max(total, 0.0))


def folded_normal(mean, spread):
    if spread == 0:
        return abs(mean)
    z = mean / spread
    return spread * math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + mean * math.erf(z / math.sqrt(2))


def debiased_l1(bins):
    """Twice the plug-in minus its mean when each accuracy is redrawn from a normal with its standard error."""
    filled = table(bins)
    n = sum(count for count, _, _ in filled)
    redrawn = sum(
        count / n * folded_normal(c - float(a), math.sqrt(float(a * (1 - a)) / count)) for count, c, a in filled
    )
    return 2 * binned_error(bins, "l1") - redrawn


def sweep(rows, scheme, norm):
    """Bins are added, from two on, until the accuracies of the filled ones fall somewhere."""
    best = cut(rows, scheme, 1)
    for num_bins in range(2, len(rows) + 1):
        bins = cut(rows, scheme, num_bins)
        accuracies = [a for _, _, a in table(bins)]
        if any(low > high for low, high in itertools.pairwise(accuracies)):
            break
        best = bins
    return binned_error(best, norm)


def smooth(rows, sigma):
    """The integral of |mean (confidence - correct) K(t, confidence)|, from its antiderivative between its zeros."""
    confidence = np.array([c for c, _ in rows])
    residual = np.array([c - int(k) for c, k in rows]) / len(rows)
    images = np.concatenate([sign * confidence + 2 * shift for shift in range(-6, 7) for sign in (1, -1)])
    heights = np.tile(residual, 26)

    def density(t):
        return float(np.sum(heights * np.exp(-(((t - images) / sigma) ** 2) / 2))) / (sigma * math.sqrt(2 * math.pi))

    def integral(t):
        return math.fsum(
            h * math.erf((t - x) / (sigma * math.sqrt(2))) / 2 for h, x in zip(heights, images, strict=True)
        )

    grid = np.linspace(0, 1, 401)
    ends = [0.0]
    for low, high in itertools.pairwise(grid):
        start = density(low)
        if start * density(high) < 0:
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (middle, high) if start * density(middle) > 0 else (low, middle)
            ends.append(high)
    ends.append(1.0)
    return sum(abs(integral(high) - integral(low)) for low, high in itertools.pairwise(ends))


def ks(rows):
    """The largest distance of the cumulative sums at any threshold: a threshold never parts equal confidences."""
    thresholds = {c for c, _ in rows}
    return max(abs(math.fsum(c - k for c, k in rows if c <= t)) for t in thresholds) / len(rows)


def kernel_error(rows, weighted):
    """MMCE: the root of the double sum; in the weighted form each side is divided by its own number of rows."""
    right = sum(1 for _, k in rows if k)
    share = (
        {True: 1 / right, False: 1 / (len(rows) - right)} if weighted else dict.fromkeys((True, False), 1 / len(rows))
    )
    total = math.fsum(
        (k - c) * share[bool(k)] * (j - d) * share[bool(j)] * math.exp(-abs(c - d) / 0.4)
        for c, k in rows
        for d, j in rows
    )
    return math.sqrt(total)


def row_entropy(p):
    return -math.fsum(v * math.log(v) for v in p if v > 0)


def mean(values):
    return math.fsum(values) / len(values)


def share_of_pairs(positive, negative):
    """How often a positive scores higher than a negative; a tie counts half."""
    wins = sum(Fraction(int(a > b)) + Fraction(int(a == b), 2) for a in positive for b in negative)
    return float(wins / (len(positive) * len(negative)))


def risks(rows):
    """The error rate among the k most confident, for every k."""
    found, wrong = [], Fraction(0)
    for k, (_, correct) in enumerate(reversed(share_ties(rows)), start=1):
        wrong += 1 - correct
        found.append(float(wrong / k))
    return found


def brier_parts(rows, scheme, num_bins):
    filled = table(cut(rows, scheme, num_bins))
    n = len(rows)
    calibration = sum(count / n * (c - float(a)) ** 2 for count, c, a in filled)
    refinement = sum(count / n * float(a * (1 - a)) for count, c, a in filled)
    total = mean([(c - k) ** 2 for c, k in rows])
    return np.array([calibration, refinement, total - calibration - refinement, total])


# ------------------------------------------------------------------------------------------------------- binned errors


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@all_data
def test_ece_equals_the_loop(data, norm, target):
    for num_bins in (1, 4, 8, 15):
        ours = m.ece(data.scores, data.labels, kind=data.kind, num_bins=num_bins, norm=norm, target=target)
        error = over_targets(
            data, target, lambda rows, n=num_bins: binned_error(cut(rows, "equal_width", n), norm), MEANS[norm]
        )
        assert ours == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@all_data
def test_ada_ece_equals_the_loop_and_shares_ties(data, norm, target):
    for num_bins in (1, 5, 7, 15):
        ours = m.ada_ece(data.scores, data.labels, kind=data.kind, num_bins=num_bins, norm=norm, target=target)
        error = over_targets(
            data, target, lambda rows, n=num_bins: binned_error(cut(rows, "equal_mass", n), norm), MEANS[norm]
        )
        assert ours == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize("scheme", ["equal_width", "equal_mass", "array_split", "interpolated"])
@all_data
def test_every_scheme_of_edges_gives_the_bins_of_the_loop(data, scheme):
    rows, num_bins = pairs(data, "top_label"), 12  # a divisor of 60, so that edges of the ranks are whole numbers
    bins = cut(rows, scheme, num_bins)
    ours = m.reliability(data.scores, data.labels, kind=data.kind, num_bins=num_bins, edges=scheme)
    np.testing.assert_array_equal(ours.count, [len(b) for b in bins])
    filled = ours.count > 0
    np.testing.assert_allclose(ours.confidence[filled], [c for _, c, _ in table(bins)], **CLOSE)
    np.testing.assert_allclose(ours.accuracy[filled], [float(a) for _, _, a in table(bins)], **CLOSE)
    error = m.ece(data.scores, data.labels, kind=data.kind, num_bins=num_bins, edges=scheme)
    assert error == pytest.approx(binned_error(bins, "l1"), abs=1e-12)
    worst = m.mce(data.scores, data.labels, kind=data.kind, num_bins=num_bins, edges=scheme)
    assert worst == pytest.approx(binned_error(bins, "max"), abs=1e-12)
    per_class = m.classwise_ece(data.scores, data.labels, kind=data.kind, num_bins=num_bins, edges=scheme)
    expected = over_targets(data, "classwise", lambda rows: binned_error(cut(rows, scheme, num_bins), "l1"))
    assert per_class == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scheme", ["equal_width", "equal_mass"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("target", TARGETS)
@all_data
def test_debiased_errors_equal_the_loop(data, target, norm, scheme):
    """Equal mass is cut as the reference cuts it: as evenly as possible, the larger bins first."""
    slow, cutting = {"l1": debiased_l1, "l2": debiased_l2}[norm], {"equal_mass": "array_split"}.get(scheme, scheme)
    for num_bins in (3, 7, 15):
        options = {"num_bins": num_bins, "norm": norm, "edges": scheme, "target": target}
        ours = m.ece_debiased(data.scores, data.labels, kind=data.kind, **options)
        error = over_targets(data, target, lambda rows, n=num_bins: slow(cut(rows, cutting, n)), MEANS[norm])
        assert ours == pytest.approx(error, abs=1e-10)  # a root near 0 doubles the digits that cancel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("scheme", ["equal_width", "equal_mass"])
@all_data
def test_sweep_errors_equal_the_loop(data, scheme, norm, target):
    ours = m.ece_sweep(data.scores, data.labels, kind=data.kind, norm=norm, edges=scheme, target=target)
    error = over_targets(data, target, lambda rows: sweep(rows, scheme, norm), MEANS[norm])
    assert ours == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize(("scheme", "found"), [("equal_width", 4), ("equal_mass", 3)])
def test_the_sweep_passes_over_empty_bins_and_stops_where_accuracy_falls(scheme, found):
    confidence = np.array([0.05, 0.1, 0.15, 0.8, 0.85, 0.95, 1.0])  # nothing in the middle
    correct = np.array([0, 0, 1, 1, 0, 1, 1])
    bins = bin_predictions(confidence, correct, edges=f"{scheme}_sweep")
    assert len(bins.count) == found
    rows = list(zip(confidence.tolist(), correct.tolist(), strict=True))
    ours = m.ece_sweep(m.from_pairs(confidence, correct), edges=scheme, norm="l2")
    assert ours == pytest.approx(sweep(rows, scheme, "l2"), abs=1e-12)
    assert ours == pytest.approx(binned_error(cut(rows, scheme, found), "l2"), abs=1e-12)


def test_the_sweep_sees_a_bin_whose_upper_edge_is_the_least_confidence():
    """In two bins the row at 0.5 is alone in the first and right, the other is wrong: one bin remains."""
    rows = m.from_pairs([0.5, 0.75], [1, 0])
    assert len(m.reliability(rows, edges="equal_width_sweep").count) == 1
    assert m.ece_sweep(rows, edges="equal_width") == pytest.approx(0.125, abs=1e-12)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sigma", [0.02, 0.3])
@all_data
def test_smooth_ece_of_a_bandwidth_equals_the_integral(data, sigma, target):
    ours = m.smooth_ece(data.scores, data.labels, kind=data.kind, sigma=sigma, target=target)
    assert ours == pytest.approx(over_targets(data, target, lambda rows: smooth(rows, sigma)), abs=1e-12)


@all_data
def test_smooth_ece_is_the_bandwidth_that_gives_itself(data):
    ours = m.smooth_ece(data.scores, data.labels, kind=data.kind)
    assert smooth(pairs(data, "top_label"), float(ours)) == pytest.approx(ours, abs=1e-12)


@pytest.mark.parametrize("target", TARGETS)
@all_data
def test_ks_error_equals_the_loop_over_thresholds(data, target):
    ours = m.ks_error(data.scores, data.labels, kind=data.kind, target=target)
    assert ours == pytest.approx(over_targets(data, target, ks), abs=1e-12)


def test_ks_error_never_parts_equal_confidences():
    """Sorted as given, the running sum of the three tied rows would reach 0.9; together they differ by 0.7."""
    assert m.ks_error(m.from_pairs([0.9, 0.9, 0.9], [0, 1, 1])) == pytest.approx(0.7 / 3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("target", TARGETS)
@all_data
def test_mmce_equals_the_double_loop(data, target, weighted):
    ours = m.mmce(data.scores, data.labels, kind=data.kind, weighted=weighted, target=target)
    error = over_targets(data, target, lambda rows: kernel_error(rows, weighted))
    assert ours == pytest.approx(error, abs=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_mmce_does_not_depend_on_the_scale_of_the_weights(weighted):
    data = DATA["distinct"]
    weights = np.linspace(1.0, 2.0, len(data.labels))
    large, small = (
        m.mmce(data.scores, data.labels, kind=data.kind, weighted=weighted, sample_weight=scale * weights)
        for scale in (1.0, 2.0**-30)
    )
    assert small == pytest.approx(large, rel=1e-12)


# ------------------------------------------------------------------------------------- targets, definitions and tables


def test_positive_is_the_second_class_and_an_integer_any_class():
    data = DATA["binary"]
    for name in ("ece", "ada_ece", "mce", "ece_debiased", "ece_sweep", "smooth_ece", "ks_error", "mmce"):
        measure = getattr(m, name)
        positive = measure(data.scores, data.labels, kind=data.kind, target="positive")
        assert positive == measure(data.scores, data.labels, kind=data.kind, target=1), name
        rows = m.from_pairs([p[1] for p in data.probs], data.labels == 1)
        assert positive == pytest.approx(measure(rows), abs=1e-12), name


def test_binary_scores_mean_what_the_target_says():
    data = DATA["binary"]
    found = {}
    for target in ("top_label", "positive", "classwise"):
        found[target] = m.ece(data.scores, data.labels, kind=data.kind, target=target)
        expected = over_targets(data, target, lambda rows: binned_error(cut(rows, "equal_width", 15), "l1"))
        assert found[target] == pytest.approx(expected, abs=1e-12)
    assert abs(found["top_label"] - found["positive"]) > 0.01
    assert len({value.definition for value in found.values()}) == 3


def test_a_result_is_a_float_that_names_its_definition():
    data = DATA["distinct"]
    error = m.ece(data.scores, data.labels)
    assert isinstance(error, float)
    assert error.definition == "ECE, top label, 15 equal-width bins, l1"
    others = [
        m.ece(data.scores, data.labels, num_bins=10),
        m.ece(data.scores, data.labels, norm="l2"),
        m.ada_ece(data.scores, data.labels),
        m.ece(data.scores, data.labels, target="classwise"),
        m.ece(data.scores, data.labels, target=2),
    ]
    assert len({other.definition for other in [error, *others]}) == 6


@pytest.mark.parametrize("target", ["top_label", 2])
@all_data
def test_reliability_gives_count_confidence_and_accuracy_per_bin(data, target):
    if target == 2 and data.num_classes == 2:
        target = 1
    bins = m.reliability(data.scores, data.labels, kind=data.kind, num_bins=8, target=target)
    expected = cut(pairs(data, target), "equal_width", 8)
    np.testing.assert_array_equal(bins.count, [len(b) for b in expected])
    np.testing.assert_array_equal(bins.mass, [len(b) for b in expected])
    np.testing.assert_allclose(bins.edges, np.arange(9) / 8, **CLOSE)
    np.testing.assert_allclose(bins.weight, [len(b) / len(data.labels) for b in expected], **CLOSE)
    gaps = [c - float(a) for _, c, a in table(expected)]
    np.testing.assert_allclose(bins.gap[bins.count > 0], gaps, **CLOSE)


# -------------------------------------------------------------------------------------------------------------- scores


@all_data
def test_nll_brier_accuracy_error_and_mean_confidence_equal_the_loops(data):
    given = {"kind": data.kind}
    rows = list(zip(data.probs, data.labels, strict=True))
    assert m.nll(data.scores, data.labels, **given) == pytest.approx(
        mean([-math.log(p[y]) for p, y in rows]), abs=1e-12
    )
    brier = mean([sum((v - (k == y)) ** 2 for k, v in enumerate(p)) for p, y in rows])
    assert m.brier(data.scores, data.labels, **given) == pytest.approx(brier, abs=1e-12)
    accuracy = sum(top(p) == y for p, y in rows) / len(rows)
    assert m.accuracy(data.scores, data.labels, **given) == pytest.approx(accuracy, abs=1e-15)
    assert m.error(data.scores, data.labels, **given) == pytest.approx(1 - accuracy, abs=1e-15)
    confidence = mean([max(p) for p, _ in rows])
    assert m.mean_confidence(data.scores, data.labels, **given) == pytest.approx(confidence, abs=1e-12)


@all_data
def test_entropy_is_also_given_for_the_right_and_the_wrong(data):
    entropy = m.entropy(data.scores, data.labels, kind=data.kind)
    rows = [(row_entropy(p), top(p) == y) for p, y in zip(data.probs, data.labels, strict=True)]
    assert entropy.overall == pytest.approx(mean([h for h, _ in rows]), abs=1e-12)
    assert entropy.correct == pytest.approx(mean([h for h, right in rows if right]), abs=1e-12)
    assert entropy.wrong == pytest.approx(mean([h for h, right in rows if not right]), abs=1e-12)


@pytest.mark.parametrize("threshold", [0.375, 0.5, 0.75])
@all_data
def test_sure_rows_reach_the_threshold_or_pass_it(data, threshold):
    sure = m.s99(data.scores, data.labels, kind=data.kind, threshold=threshold)
    held = [right for c, right in pairs(data, "top_label") if c >= threshold]
    assert sure.share == pytest.approx(len(held) / len(data.labels), abs=1e-15)
    assert sure.accuracy == pytest.approx(sum(held) / len(held), abs=1e-15)


def test_s99_means_at_least_0_99():
    probs = np.array([[0.99, 0.01], [0.995, 0.005], [0.98, 0.02], [0.005, 0.995]])
    sure = m.s99(probs, [0, 1, 1, 1], kind="probs")
    assert (sure.share, sure.accuracy) == pytest.approx((0.75, 2 / 3))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@all_data
def test_top_k_accuracy_ranks_equal_scores_by_class_number(data, k):
    k = min(k, data.num_classes)
    hits = 0
    for p, y in zip(data.probs, data.labels, strict=True):
        before = sum(v > p[y] or (v == p[y] and j < y) for j, v in enumerate(p))
        hits += before < k
    ours = m.top_k_accuracy(data.scores, data.labels, kind=data.kind, k=k)
    assert ours == pytest.approx(hits / len(data.labels), abs=1e-15)
    if k == 1:
        assert ours == m.accuracy(data.scores, data.labels, kind=data.kind)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scheme", ["equal_width", "equal_mass"])
@all_data
def test_brier_parts_equal_the_loop_and_add_up(data, scheme, target):
    for num_bins in (1, 8, 15):
        options = {"kind": data.kind, "num_bins": num_bins, "edges": scheme, "target": target}
        parts = m.brier_decomposition(data.scores, data.labels, **options)
        expected = over_targets(data, target, lambda rows, n=num_bins: brier_parts(rows, scheme, n), sum)
        ours = [parts.calibration, parts.refinement, parts.within_bins, parts.total]
        np.testing.assert_allclose(ours, expected, **CLOSE)
        if target == "classwise":
            assert parts.total == pytest.approx(m.brier(data.scores, data.labels, kind=data.kind), abs=1e-12)


# ---------------------------------------------------------------------------------- ranking, outliers, known posterior


@all_data
def test_aurc_is_the_mean_risk_over_all_coverages(data):
    expected = risks(pairs(data, "top_label"))
    assert m.aurc(data.scores, data.labels, kind=data.kind) == pytest.approx(mean(expected), abs=1e-12)


@all_data
def test_the_risk_coverage_curve_has_a_point_wherever_a_threshold_can_be(data):
    """A threshold takes rows of equal confidence together."""
    curve = m.risk_coverage_curve(data.scores, data.labels, kind=data.kind)
    rows = pairs(data, "top_label")
    expected = risks(rows)
    taken = [sum(c >= t for c, _ in rows) for t in sorted({c for c, _ in rows}, reverse=True)]
    np.testing.assert_allclose(curve.coverage, np.array(taken) / len(rows), **CLOSE)
    np.testing.assert_allclose(curve.risk, [expected[k - 1] for k in taken], **CLOSE)


@all_data
def test_auroc_of_correctness_counts_pairs_and_half_the_ties(data):
    ours = m.auroc_correctness(data.scores, data.labels, kind=data.kind)
    rows = pairs(data, "top_label")
    assert ours == pytest.approx(
        share_of_pairs(*([c for c, k in rows if k == side] for side in (True, False))), abs=1e-12
    )


@pytest.mark.parametrize("name", ["distinct", "repeated"])
def test_auroc_by_entropy_counts_pairs_and_half_the_ties(name):
    data = DATA[name]  # not the tied data: there the same entropy comes from sums in another order
    ours = m.auroc_correctness(data.scores, data.labels, kind=data.kind, by="entropy")
    rows = [(-row_entropy(p), top(p) == y) for p, y in zip(data.probs, data.labels, strict=True)]
    assert ours == pytest.approx(
        share_of_pairs(*([c for c, k in rows if k == side] for side in (True, False))), abs=1e-12
    )


def outlier_scores(logits, score):
    if score == "energy":
        return [max(x) + math.log(math.fsum(math.exp(v - max(x)) for v in x)) for x in logits.tolist()]
    probs = softmax(logits).tolist()
    return [max(p) for p in probs] if score == "max_prob" else [-row_entropy(p) for p in probs]


@pytest.mark.parametrize("score", ["entropy", "max_prob", "energy"])
@pytest.mark.parametrize("ties", [False, True])
def test_outlier_measures_equal_the_loops(score, ties):
    for n in range(20, 201, 20):  # 95 % of n is a whole number, in decimals and not in floats
        generator = np.random.default_rng(n)
        pool = 2 * generator.standard_normal((12, 5))
        inside = pool[generator.integers(0, 12, n)] if ties else 2 * generator.standard_normal((n, 5))
        outside = pool[generator.integers(4, 12, 33)] if ties else generator.standard_normal((33, 5))
        kept, strange = outlier_scores(inside, score), outlier_scores(outside, score)
        if ties:  # the loop's own ties, made exact
            kept, strange = np.round(kept, 12).tolist(), np.round(strange, 12).tolist()
        assert m.ood_auroc(inside, outside, score=score) == pytest.approx(share_of_pairs(kept, strange), abs=1e-12)
        threshold = max(t for t in kept if 100 * sum(s >= t for s in kept) >= 95 * n)
        expected = sum(s >= threshold for s in strange) / len(strange)
        assert m.fpr95(inside, outside, score=score) == pytest.approx(expected, abs=1e-15), n


def test_outliers_by_entropy_and_largest_probability_may_come_as_probabilities():
    generator = np.random.default_rng(0)
    inside, outside = 2 * generator.standard_normal((50, 5)), generator.standard_normal((40, 5))
    for score in ("entropy", "max_prob"):
        for measure in (m.ood_auroc, m.fpr95):
            from_probs = measure(softmax(inside), softmax(outside), kind="probs", score=score)
            assert from_probs == pytest.approx(measure(inside, outside, score=score), abs=1e-12)


@all_data
def test_kl_to_the_posterior_equals_the_loop(data):
    generator = np.random.default_rng(5)
    posterior = generator.dirichlet(np.ones(data.num_classes), len(data.labels))
    posterior[:3] = np.eye(data.num_classes)[0]  # 0 log 0 is 0
    expected = mean(
        [
            math.fsum(v * math.log(v / w) for v, w in zip(q, p, strict=True) if v > 0)
            for q, p in zip(posterior.tolist(), data.probs, strict=True)
        ]
    )
    assert m.kl_to_posterior(data.scores, posterior, kind=data.kind) == pytest.approx(expected, abs=1e-12)
    assert m.kl_to_posterior(data.scores, np.array(data.probs), kind=data.kind) == pytest.approx(0, abs=1e-12)


# ---------------------------------------------------------------------- what holds for every measure of scores, labels


def measure(function, *fields, **options):
    """A measure as a function of scores and labels that gives an array of numbers."""

    def call(*given, **more):
        result = function(*given, **options, **more)
        parts = [getattr(result, field) for field in fields] if fields else [result]
        return np.concatenate([np.atleast_1d(np.asarray(part, dtype=np.float64)).ravel() for part in parts])

    return call


EVALUATION = [
    "num_classes",
    "num_bins",
    "accuracy",
    "error",
    "nll",
    "brier",
    "mean_confidence",
    "entropy",
    "entropy_correct",
    "entropy_wrong",
    "ece",
    "rms_ce",
    "mce",
    "ada_ece",
    "classwise_ece",
    "ece_debiased",
    "ece_debiased_l1",
    "ece_sweep",
    "ece_sweep_equal_width",
    "smooth_ece",
    "ks_error",
    "mmce",
    "s99",
    "brier_calibration",
    "brier_refinement",
    "aurc",
    "auroc_correctness",
]

MEASURES = {
    "ece": measure(m.ece, num_bins=5),
    "ece_l2": measure(m.ece, norm="l2", num_bins=5),
    "ece_max": measure(m.ece, norm="max", num_bins=5),
    "ece_of_class_1": measure(m.ece, target=1, num_bins=5),
    "ece_interpolated": measure(m.ece, edges="interpolated", num_bins=5),
    "ada_ece": measure(m.ada_ece, num_bins=5),
    "ada_ece_classwise": measure(m.ada_ece, num_bins=5, target="classwise"),
    "mce": measure(m.mce, num_bins=5),
    "classwise_ece": measure(m.classwise_ece, num_bins=5),
    "ece_debiased": measure(m.ece_debiased, num_bins=5),
    "ece_debiased_l1": measure(m.ece_debiased, norm="l1", num_bins=5),
    "ece_debiased_equal_width": measure(m.ece_debiased, edges="equal_width", num_bins=5),
    "ece_debiased_classwise": measure(m.ece_debiased, target="classwise", num_bins=5),
    "ece_sweep": measure(m.ece_sweep),
    "ece_sweep_equal_width": measure(m.ece_sweep, edges="equal_width"),
    "smooth_ece": measure(m.smooth_ece),
    "smooth_ece_sigma": measure(m.smooth_ece, sigma=0.05),
    "ks_error": measure(m.ks_error),
    "mmce": measure(m.mmce),
    "mmce_weighted": measure(m.mmce, weighted=True),
    "nll": measure(m.nll),
    "brier": measure(m.brier),
    "accuracy": measure(m.accuracy),
    "error": measure(m.error),
    "top_k_accuracy": measure(m.top_k_accuracy, k=2),
    "mean_confidence": measure(m.mean_confidence),
    "entropy": measure(m.entropy, "overall", "correct", "wrong"),
    "s99": measure(m.s99, "share", "accuracy", threshold=0.5),
    "brier_decomposition": measure(m.brier_decomposition, "calibration", "refinement", "within_bins", "total"),
    "aurc": measure(m.aurc),
    "risk_coverage_curve": measure(m.risk_coverage_curve, "coverage", "risk"),
    "auroc_correctness": measure(m.auroc_correctness),
    "auroc_by_entropy": measure(m.auroc_correctness, by="entropy"),
    "reliability": measure(m.reliability, "mass", "confidence", "accuracy", num_bins=5),
    "evaluate": measure(m.evaluate, *EVALUATION, num_bins=5),
}
every_measure = pytest.mark.parametrize("call", MEASURES.values(), ids=MEASURES)


def close(ours, expected, tolerance=1e-10):
    """Roots of differences and the bandwidth of smooth ECE lose some digits, hence not 1e-12."""
    np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance, equal_nan=False)


@pytest.mark.parametrize("name", ["distinct", "repeated", "binary"])
@every_measure
def test_whole_weights_equal_repeated_rows(call, name):
    data = DATA[name]
    weight = np.random.default_rng(7).integers(0, 4, len(data.labels))
    ours = call(data.scores, data.labels, kind=data.kind, sample_weight=weight.astype(np.float64))
    close(ours, call(np.repeat(data.scores, weight, 0), np.repeat(data.labels, weight), kind=data.kind))


COUNTS_ROWS = {"ada_ece", "ada_ece_classwise", "ece_interpolated", "ece_sweep", "aurc", "reliability", "evaluate"}
SCALE_FREE = [name for name in MEASURES if "debiased" not in name and name not in COUNTS_ROWS]


@pytest.mark.parametrize("name", SCALE_FREE)
def test_only_the_ratios_of_weights_count(name):
    """Except where the number of rows itself enters: the variance that is taken off, cuts between rows, masses."""
    data, call = DATA["distinct"], MEASURES[name]
    weight = np.random.default_rng(8).integers(1, 4, len(data.labels)).astype(np.float64)
    ours = call(data.scores, data.labels, kind=data.kind, sample_weight=2 * weight)
    close(ours, call(data.scores, data.labels, kind=data.kind, sample_weight=weight))


@every_measure
def test_weights_of_one_change_nothing(call):
    for data in DATA.values():
        plain = call(data.scores, data.labels, kind=data.kind)
        close(call(data.scores, data.labels, kind=data.kind, sample_weight=np.ones(len(data.labels))), plain, 1e-12)


@pytest.mark.parametrize("ignore_index", [-100, 255, 2])
@every_measure
def test_ignored_labels_equal_dropped_rows(call, ignore_index):
    data = DATA["distinct"]
    labels = data.labels.copy()
    labels[::7] = ignore_index
    kept = labels != ignore_index
    ours = call(data.scores, labels, kind=data.kind, ignore_index=ignore_index)
    close(ours, call(data.scores[kept], labels[kept], kind=data.kind), 1e-12)


@every_measure
def test_ignored_labels_drop_their_weights_too(call):
    data = DATA["distinct"]
    labels, weight = data.labels.copy(), np.random.default_rng(9).uniform(0.5, 2, len(data.labels))
    labels[::5] = -1
    kept = labels != -1
    ours = call(data.scores, labels, kind=data.kind, ignore_index=-1, sample_weight=weight)
    close(ours, call(data.scores[kept], labels[kept], kind=data.kind, sample_weight=weight[kept]), 1e-12)


@every_measure
def test_more_dimensions_equal_their_rows_one_after_the_other(call):
    data = DATA["distinct"]
    scores = np.moveaxis(data.scores.reshape(10, 6, 4), 2, 1)  # (10, 4, 6)
    labels = data.labels.reshape(10, 6).copy()
    labels[3, 2] = -100
    weight = np.random.default_rng(10).integers(1, 3, labels.shape).astype(np.float64)
    kept = labels.ravel() != -100
    flat = call(data.scores[kept], data.labels[kept], sample_weight=weight.ravel()[kept])
    close(call(scores, labels, ignore_index=-100, sample_weight=weight), flat, 1e-12)
    deeper = scores.reshape(10, 4, 2, 3), labels.reshape(10, 2, 3)
    close(call(*deeper, ignore_index=-100, sample_weight=weight.reshape(10, 2, 3)), flat, 1e-12)


@pytest.mark.parametrize("kind", ["logits", "log_probs", "probs"])
@every_measure
def test_one_score_a_row_is_that_of_the_positive_class(call, kind):
    generator = np.random.default_rng(11)
    logits = 2 * generator.standard_normal(60)
    positive = 1 / (1 + np.exp(-logits))
    labels = (generator.uniform(size=60) < positive**1.5).astype(np.int64)
    one, two = {
        "logits": (logits, np.stack([np.zeros(60), logits], 1)),
        "probs": (positive, np.stack([1 - positive, positive], 1)),
        "log_probs": (np.log(positive), np.log(np.stack([1 - positive, positive], 1))),
    }[kind]
    close(call(one, labels, kind=kind), call(two, labels, kind=kind))


def test_one_score_of_one_half_predicts_the_first_class():
    assert m.accuracy([0.5, 0.5, 0.75], [0, 1, 1], kind="probs") == pytest.approx(2 / 3)
    assert m.accuracy([0.0, 0.0, 1.5], [0, 1, 1]) == pytest.approx(2 / 3)


@every_measure
def test_arrays_tensors_and_lists_give_the_same_numbers(call):
    data = DATA["repeated"]
    plain = call(data.scores, data.labels)
    for scores, labels in [
        (torch.tensor(data.scores), torch.tensor(data.labels)),
        (data.scores.tolist(), data.labels.tolist()),
        (torch.tensor(data.scores, requires_grad=True), torch.tensor(data.labels, dtype=torch.int32)),
        (np.asfortranarray(data.scores), data.labels.astype(np.uint8)),
    ]:
        np.testing.assert_array_equal(call(scores, labels), plain)


OF_A_TARGET = {"ece_of_class_1": 1, "ada_ece_classwise": "classwise", "ece_debiased_classwise": "classwise"}


@pytest.mark.parametrize("name", [name for name in MEASURES if name not in (*OF_A_TARGET, "classwise_ece", "evaluate")])
def test_rows_that_were_read_once_give_the_same_numbers(name):
    for data in DATA.values():
        rows = m.read(data.scores, data.labels, kind=data.kind)
        np.testing.assert_array_equal(MEASURES[name](rows), MEASURES[name](data.scores, data.labels, kind=data.kind))


@pytest.mark.parametrize("target", [0, 1, "classwise"])
@pytest.mark.parametrize("measure", [m.ece, m.ada_ece, m.ece_debiased, m.ece_sweep, m.smooth_ece, m.ks_error, m.mmce])
def test_rows_are_read_for_a_target(measure, target):
    for data in DATA.values():
        rows = m.read(data.scores, data.labels, kind=data.kind, target=target)
        assert measure(rows) == measure(data.scores, data.labels, kind=data.kind, target=target)


def test_classwise_ece_takes_rows_of_every_class_only():
    data = DATA["distinct"]
    rows = m.read(data.scores, data.labels, target="classwise")
    assert m.classwise_ece(rows) == m.classwise_ece(data.scores, data.labels)
    for target in ("top_label", 1):
        with pytest.raises(fc.InputError, match="classwise"):
            m.classwise_ece(m.read(data.scores, data.labels, target=target))


@pytest.mark.parametrize(
    "name",
    [
        "ece",
        "ece_l2",
        "ece_max",
        "ece_interpolated",
        "ada_ece",
        "mce",
        "ece_debiased",
        "ece_debiased_l1",
        "ece_sweep",
        "smooth_ece",
        "ks_error",
        "mmce",
        "mmce_weighted",
        "accuracy",
        "error",
        "mean_confidence",
        "s99",
        "brier_decomposition",
        "aurc",
        "auroc_correctness",
        "reliability",
    ],
)
@all_data
def test_given_pairs_equal_the_top_label(data, name):
    rows = pairs(data, "top_label")
    given = m.from_pairs(np.array([c for c, _ in rows]), np.array([k for _, k in rows]))
    close(MEASURES[name](given), MEASURES[name](data.scores, data.labels, kind=data.kind), 1e-12)


def test_given_pairs_take_weights():
    rows, weight = pairs(DATA["tied"], "top_label"), np.random.default_rng(12).integers(0, 3, 64)
    confidence, correct = np.array([c for c, _ in rows]), np.array([k for _, k in rows])
    weighted = m.from_pairs(confidence, correct, sample_weight=weight.astype(np.float64))
    again = m.from_pairs(np.repeat(confidence, weight), np.repeat(correct, weight))
    for name in ("ece", "ada_ece", "ks_error", "mmce", "aurc", "ece_sweep"):
        close(MEASURES[name](weighted), MEASURES[name](again))


@all_data
def test_evaluate_agrees_with_every_measure_called_alone(data):
    num_bins = 6
    found = m.evaluate(data.scores, data.labels, kind=data.kind, num_bins=num_bins)

    def alone(function, **options):
        return function(data.scores, data.labels, kind=data.kind, **options)

    entropy, sure = alone(m.entropy), alone(m.s99)
    parts = alone(m.brier_decomposition, num_bins=num_bins)
    expected = {
        "n": len(data.labels),
        "num_classes": data.num_classes,
        "num_bins": num_bins,
        "accuracy": alone(m.accuracy),
        "error": alone(m.error),
        "nll": alone(m.nll),
        "brier": alone(m.brier),
        "mean_confidence": alone(m.mean_confidence),
        "entropy": entropy.overall,
        "entropy_correct": entropy.correct,
        "entropy_wrong": entropy.wrong,
        "ece": alone(m.ece, num_bins=num_bins),
        "rms_ce": alone(m.ece, num_bins=num_bins, norm="l2"),
        "mce": alone(m.mce, num_bins=num_bins),
        "ada_ece": alone(m.ada_ece, num_bins=num_bins),
        "classwise_ece": alone(m.classwise_ece, num_bins=num_bins),
        "ece_debiased": alone(m.ece_debiased, num_bins=num_bins),
        "ece_debiased_l1": alone(m.ece_debiased, num_bins=num_bins, norm="l1"),
        "ece_sweep": alone(m.ece_sweep),
        "ece_sweep_equal_width": alone(m.ece_sweep, edges="equal_width"),
        "smooth_ece": alone(m.smooth_ece),
        "ks_error": alone(m.ks_error),
        "mmce": alone(m.mmce),
        "s99": sure.share,
        "s99_accuracy": sure.accuracy,
        "brier_calibration": parts.calibration,
        "brier_refinement": parts.refinement,
        "aurc": alone(m.aurc),
        "auroc_correctness": alone(m.auroc_correctness),
    }
    for name, value in expected.items():
        if isinstance(value, float) and math.isnan(value):  # no sure row: what does not exist is None here
            assert getattr(found, name) is None, name
            continue
        assert getattr(found, name) == pytest.approx(value, abs=1e-12), name
    assert found.top_5_accuracy is None  # fewer than five classes
    assert found.kind == data.kind
    for ours, scheme in ((found.bins, "equal_width"), (found.equal_mass_bins, "equal_mass")):
        bins = alone(m.reliability, num_bins=num_bins, edges=scheme)
        for field in ("edges", "count", "confidence", "accuracy"):
            np.testing.assert_allclose(getattr(ours, field), getattr(bins, field), err_msg=field, **CLOSE)


def test_evaluate_has_top_5_from_five_classes_on_and_leaves_out_the_classwise_family_if_told():
    data = distinct(classes=6, seed=4)
    found = m.evaluate(data.scores, data.labels, classwise=False)
    assert found.classwise_ece is None
    assert found.top_5_accuracy == m.top_k_accuracy(data.scores, data.labels, k=5)


@all_data
def test_training_rows_are_binned_by_their_true_class_with_the_edges_of_the_validation_bins(data):
    """[ghosh2022, Sec. 4]: C_train is the mean probability of the true class."""
    train = repeated(rows=80, classes=data.num_classes, seed=6)
    scores = train.scores if data.kind == "logits" else np.array(train.probs)
    for scheme in ("equal_width", "equal_mass"):
        options = {"kind": data.kind, "num_bins": 6, "edges": scheme}
        both = m.train_val_bins(scores, train.labels, data.scores, data.labels, **options)
        validation = m.reliability(data.scores, data.labels, **options)
        rows = [(p[y], top(p) == y) for p, y in zip(train.probs, train.labels, strict=True)]
        edges = validation.edges.tolist()
        inside = [
            [(c, Fraction(int(k))) for c, k in rows if (b == 0 or edges[b] < c) and (b == 5 or c <= edges[b + 1])]
            for b in range(6)
        ]
        for field in ("edges", "count", "confidence", "accuracy"):
            np.testing.assert_allclose(getattr(both.val, field), getattr(validation, field), err_msg=field, **CLOSE)
        np.testing.assert_array_equal(both.train.count, [len(b) for b in inside])
        filled = both.train.count > 0
        np.testing.assert_allclose(both.train.confidence[filled], [c for _, c, _ in table(inside)], **CLOSE)
        np.testing.assert_allclose(both.train.accuracy[filled], [float(a) for _, _, a in table(inside)], **CLOSE)


def test_the_namespace_is_reachable_from_the_package():
    assert fc.metrics is m
