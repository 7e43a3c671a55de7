"""Lists of the most likely classes: bounds that hold for every completion, and are attained by some."""

from __future__ import annotations

import functools
import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import focalcal as fc
from focalcal import metrics
from focalcal.calibrators.optimal_temperature import optimal_temperature
from focalcal.metrics.truncated import (
    TopK,
    TruncatedSummary,
    evaluate_truncated,
    extreme_completions,
    temperature_interval,
    tempered_nll,
)
from focalcal.metrics.truncated.listed_rows import ListedRows
from focalcal.metrics.truncated.unlisted_classes import Tail
from tests.metrics.completions import completed, cut, drawn, filled, grid, in_order

EXACT = 1e-13  # a tolerance that leaves the bounds what they are on paper
ENDS = ("nll", "brier", "entropy", "entropy_correct", "entropy_wrong", "top_5_accuracy")


def predictions(rows=400, num_classes=30, seed=0, spread=2.0):
    """Probabilities and labels of a model that is somewhat too sure."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(rows, num_classes))
    probs = np.exp(logits - logits.max(1, keepdims=True))
    labels = (logits / 1.5 + rng.gumbel(size=logits.shape)).argmax(1)
    return probs / probs.sum(1, keepdims=True), labels


def lists_of(probs, labels, k, *, given="none", tolerance=EXACT, **options):
    """The top k of whole rows; the labels' log-probabilities of all rows, of half of them, or of none."""
    classes, top = cut(probs, k)
    own = np.log(probs[np.arange(len(labels)), labels])
    if given == "half":
        own = np.where(np.arange(len(labels)) % 2 == 0, own, np.nan)
    options |= {} if given == "none" else {"label_log_probs": own}
    return TopK(classes, np.log(top), labels, num_classes=probs.shape[1], tolerance=tolerance, **options)


def numbers(evaluation):
    """The numbers of a whole evaluation by their names."""
    plain = evaluation.to_dict()
    return {name: plain[name] for name in evaluation.definitions if name != "classwise_ece"}


def assert_inside(truth, evaluation, slack=1e-9, names=None):
    for name in numbers(truth) if names is None else names:
        value = getattr(truth, name)
        ends = evaluation.interval(name)
        if value is None:
            assert ends is None, name
        else:
            assert ends[0] - slack <= value <= ends[1] + slack, name


def evaluated(probs, labels, **options):
    return fc.evaluate(probs, labels, kind="probs", classwise=False, **options)


# ----------------------------------------------------------------------------------------------------- whole rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_lists_of_all_classes_are_evaluated_as_whole_distributions(dtype, weighted, kind):
    probs, labels = predictions(num_classes=7)
    log_probs = np.log(probs).astype(dtype)
    options = {"sample_weight": np.random.default_rng(1).random(len(labels))} if weighted else {}
    shuffled = np.random.default_rng(2).permuted(np.tile(np.arange(7), (len(labels), 1)), axis=1)
    values = [shuffled, np.take_along_axis(log_probs, shuffled, 1), labels]
    values = [torch.from_numpy(value) for value in values] if kind == "torch" else values
    evaluation = evaluate_truncated(TopK(*values, num_classes=7, **options))
    truth = fc.evaluate(log_probs, labels, kind="log_probs", **options)
    assert evaluation.bounds == {}
    assert evaluation.exact == pytest.approx(numbers(truth), abs=1e-6 if dtype == np.float32 else 1e-12)
    assert evaluation.nll_known == pytest.approx(truth.nll, abs=1e-6)
    assert evaluation.remaining_mass == pytest.approx(0, abs=1e-12)
    assert (evaluation.num_rows, evaluation.num_unknown) == (truth.n, 0)


def test_every_measure_but_the_classwise_one_has_its_number_or_its_bounds():
    probs, labels = predictions()
    evaluation = evaluate_truncated(lists_of(probs, labels, 3))
    assert set(evaluation.exact) | set(evaluation.bounds) == set(numbers(evaluated(probs, labels)))
    assert set(evaluation.bounds) == set(ENDS)
    assert list(evaluation.unavailable) == ["classwise_ece"]
    with pytest.raises(fc.InputError, match="needs the probability of every class"):
        evaluation.interval("classwise_ece")


# ------------------------------------------------------------------------------------------------- nothing escapes


@st.composite
def whole_rows(draw):
    """Rows with many ties and zeros, labels, and how many classes are listed."""
    num_classes, rows = draw(st.integers(2, 9)), draw(st.integers(1, 12))
    counts = draw(
        st.lists(st.lists(st.integers(0, 5), min_size=num_classes, max_size=num_classes), min_size=rows, max_size=rows)
    )
    probs = np.array(counts, dtype=np.float64)
    probs[probs.sum(1) == 0] = 1
    probs = probs ** draw(st.sampled_from([1, 3, 9]))
    labels = np.array(draw(st.lists(st.integers(0, num_classes - 1), min_size=rows, max_size=rows)))
    return probs / probs.sum(1, keepdims=True), labels, draw(st.integers(1, num_classes))


@settings(max_examples=30)
@given(whole_rows(), st.sampled_from(["none", "half", "all"]))
def test_the_truth_is_always_inside_the_bounds(rows, label_log_probs):
    probs, labels, k = rows
    with np.errstate(divide="ignore"):  # a class of probability 0 that is listed is a place left over
        lists = lists_of(probs, labels, k, given=label_log_probs, tolerance=1e-9)
    # Confidences like 1/3 or 1/5 are at the edge of a bin, where the logarithm's rounding decides.
    names = [*ENDS, "accuracy", "error", "mean_confidence", "s99", "s99_accuracy"]
    assert_inside(evaluated(probs, labels), evaluate_truncated(lists), names=names)


@pytest.mark.parametrize("k", [1, 2, 4, 5, 12, 29, 30])
@pytest.mark.parametrize("given", ["none", "half", "all"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_truth_of_a_model_is_inside_the_bounds(k, given, dtype):
    probs, labels = predictions()
    probs = probs.astype(dtype)
    probs = probs / probs.sum(1, keepdims=True)
    evaluation = evaluate_truncated(lists_of(probs, labels, k, given=given, tolerance=None))
    truth = evaluated(probs, labels)
    assert_inside(truth, evaluation, slack=1e-9 if dtype == np.float64 else 1e-5)
    assert evaluation.exact["ece"] == pytest.approx(truth.ece, abs=1e-6)
    assert ("top_5_accuracy" in evaluation.exact) == (k >= 5)
    assert ("nll" in evaluation.exact) == (given == "all" or k >= 29)


def test_bounds_become_narrower_as_lists_become_longer():
    probs, labels = predictions()
    lists = [evaluate_truncated(lists_of(probs, labels, k)) for k in (1, 2, 4, 8, 16, 30)]
    for name in ("brier", "entropy"):
        ends = [evaluation.interval(name) for evaluation in lists]
        for (low, high), (next_low, next_high) in itertools.pairwise(ends):
            assert low <= next_low <= next_high <= high


# ---------------------------------------------------------------------------------------------------------- tightness


@pytest.mark.parametrize("mass", [0.0, 0.05, 0.2, 0.25, 0.5])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_tail_is_bounded_as_by_trying_all_its_completions(mass, count):
    cap, steps = 0.25, 40
    tail = Tail(*(torch.tensor([float(value)], dtype=torch.float64) for value in (mass, cap, count)))
    everything = np.array(list(grid(mass, cap, count, steps)))
    entropies = -np.where(everything > 0, everything * np.log(np.where(everything > 0, everything, 1)), 0).sum(1)
    for (low, high), values in (
        (tail.squares(), (everything**2).sum(1)),
        (tail.entropy(), entropies),
        (tail.one_share(), everything[:, 0]),
    ):
        assert values.min() - mass * 2 / steps**2 <= float(low) + mass * 2 / steps**2
        assert float(low) <= values.min() + 1e-12
        assert values.max() - 1e-12 <= float(high)
        assert [float(low), float(high)] == pytest.approx([values.min(), values.max()], abs=mass * 0.01)


def brute_force(classes, probs, label, num_classes, steps=24):
    """The smallest and the largest value of each measure over a grid of completions of one row."""
    found = []
    for shares in grid(1 - probs.sum(), probs.min(), num_classes - len(classes), steps):
        row = completed(classes, probs, shares, num_classes)
        nll = -math.log(row[label]) if row[label] > 0 else math.inf
        brier = ((row - np.eye(num_classes)[label]) ** 2).sum()
        entropy = -sum(share * math.log(share) for share in row if share > 0)
        found.append((nll, brier, entropy, float(np.flatnonzero(in_order(row) == label)[0] < 5)))
    names = ("nll", "brier", "entropy", "top_5_accuracy")
    return {name: (min(values), max(values)) for name, values in zip(names, zip(*found, strict=True), strict=True)}


@pytest.mark.parametrize("label", [0, 1, 3])
@pytest.mark.parametrize(
    ("num_classes", "probs"),
    [
        (5, [0.5, 0.3]),  # the rest fits into one class
        (5, [0.4, 0.2]),  # into two
        (5, [0.3, 0.22]),  # nearly full
        (6, [0.6, 0.3]),
        (6, [0.3, 0.2, 0.2]),
        (3, [0.5, 0.3]),  # one class is left, which is known then
        (4, [0.25, 0.25]),  # full
    ],
)
def test_both_ends_of_a_row_are_those_of_all_its_completions(label, num_classes, probs):
    label, classes, probs = min(label, num_classes - 1), np.arange(len(probs)), np.array(probs)
    lists = TopK(classes[None], np.log(probs)[None], [label], num_classes=num_classes, tolerance=EXACT)
    evaluation = evaluate_truncated(lists)
    for name, (low, high) in brute_force(classes, probs, label, num_classes).items():
        if name == "top_5_accuracy" and num_classes < 5:
            continue
        ends = evaluation.interval(name)
        assert ends[0] <= low + 1e-9, name
        assert ends[1] >= high - 1e-9, name
        assert ends == pytest.approx((low, high), abs=0.004), name


def completions_of(probs, labels, k, shares):
    """Whole rows with the same lists whose tails are completed by `shares(mass, cap, count)`, in order of classes."""
    rows = []
    for listed, top in zip(*cut(probs, k), strict=True):
        tail = shares(1 - top.sum(), top.min(), probs.shape[1] - k)
        rows.append(completed(listed, top, tail, probs.shape[1]))
    return np.array(rows)


def evenly(mass, cap, count):
    return np.full(count, mass / count)


@pytest.mark.parametrize("k", [3, 10])
def test_entropy_is_attained_by_the_greedy_fill_and_by_even_shares(k):
    probs, labels = predictions()
    evaluation = evaluate_truncated(lists_of(probs, labels, k))
    ends = [evaluated(completions_of(probs, labels, k, how), labels) for how in (filled, evenly)]
    for name in ("entropy", "entropy_correct", "entropy_wrong"):
        assert evaluation.bounds[name] == pytest.approx([getattr(end, name) for end in ends], abs=1e-12)


@pytest.mark.parametrize("k", [3, 10])
@pytest.mark.parametrize("given", ["none", "all"])
def test_brier_and_nll_are_attained_by_completions_that_favour_or_starve_the_label(k, given):
    probs, labels = predictions()
    evaluation = evaluate_truncated(lists_of(probs, labels, k, given=given))
    ends = []
    for favoured in (True, False):
        rows = []
        for row, label in zip(probs, labels, strict=True):
            listed = in_order(row)[:k]
            if given == "all" and label not in listed:
                listed = np.append(listed, label)
            mass, cap, tail = 1 - row[listed].sum(), row[in_order(row)[k - 1]], np.zeros(len(row))
            others = np.setdiff1d(np.arange(len(row)), listed)
            if label not in listed and favoured:
                tail[label] = min(mass, cap)
            others = others[others != label]
            left = mass - tail.sum()
            tail[others] = evenly(left, cap, len(others)) if favoured else filled(left, cap, len(others))
            tail[listed] = row[listed]
            rows.append(tail)
        ends.append(evaluated(np.array(rows), labels))
    assert evaluation.bounds["brier"] == pytest.approx([end.brier for end in ends], abs=1e-12)
    assert evaluation.interval("nll") == pytest.approx([end.nll for end in ends], abs=1e-9)


# ------------------------------------------------------------------------------------------------------------- labels


def test_labels_beyond_the_list_are_counted_and_left_out_of_the_known_mean():
    lists = TopK(
        [[0, 1]] * 3, np.log([[0.6, 0.2]] * 3), [0, 2, 3], num_classes=9, label_log_probs=[np.nan, np.nan, np.log(0.1)]
    )
    evaluation = evaluate_truncated(lists)
    assert (evaluation.num_rows, evaluation.num_unknown) == (3, 1)
    assert evaluation.nll_known == pytest.approx(-(np.log(0.6) + np.log(0.1)) / 2)
    assert evaluation.bounds["nll"][1] == math.inf
    assert evaluation.bounds["nll"][0] == pytest.approx(-np.log([0.6, 0.2, 0.1]).mean(), abs=1e-3)
    assert evaluation.remaining_mass == pytest.approx((0.2 + 0.2 + 0.1) / 3)
    assert "1 of 3 labels are neither listed nor given" in evaluation.warnings[-1]


def test_a_given_label_takes_its_share_from_what_is_left_but_does_not_lower_the_cap():
    lists = TopK([[0, 1]], np.log([[0.6, 0.2]]), [2], num_classes=4, label_log_probs=[np.log(0.05)], tolerance=EXACT)
    evaluation = evaluate_truncated(lists)
    # One class is left, and has 0.15, more than the label: everything is known.
    assert {"nll", "brier", "entropy"} <= set(evaluation.exact)
    assert evaluation.exact["brier"] == pytest.approx(0.6**2 + 0.2**2 + 0.15**2 + 0.95**2)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_top_5_accuracy_is_bounded_as_by_trying_all_completions(k):
    rng, outcomes = np.random.default_rng(0), set()
    for _ in range(80):
        probs = rng.dirichlet(np.full(8, 10.0 ** rng.uniform(-1, 1.5)))
        label = int(rng.integers(8))
        ((rows, _),) = lists_of(probs[None], np.array([label]), k, given="all").chunks()
        high, low = (float(rank) < 5 for rank in rows.ranks)
        listed = in_order(probs)[:k]
        listed = np.append(listed, label) if label not in listed else listed
        cap, found = probs[listed[k - 1]], set()
        for _ in range(30):
            # A little less than the cap: of equal classes the listed ones come first.
            shares = (1 - 1e-12) * drawn(1 - probs[listed].sum(), cap, 8 - len(listed), rng)
            row = completed(listed, probs[listed], shares, 8)
            found.add(float(np.flatnonzero(in_order(row) == label)[0] < 5))
        assert low <= min(found)
        assert max(found) <= high
        outcomes.add((low, high, len(found)))
    assert len(outcomes) >= (3 if k > 1 else 2)


def test_top_5_accuracy_of_a_given_label_knows_when_too_many_must_be_before_it():
    # Five others share 0.5, at most 0.1 each: all are at 0.1 and come before the label.
    far = TopK([[0]], np.log([[0.1]]), [9], num_classes=11, label_log_probs=[np.log(0.0001)], tolerance=EXACT)
    near = TopK([[0]], np.log([[0.5]]), [9], num_classes=11, label_log_probs=[np.log(0.4)], tolerance=EXACT)
    open_ = TopK([[0]], np.log([[0.5]]), [9], num_classes=11, label_log_probs=[np.log(0.01)], tolerance=EXACT)
    assert evaluate_truncated(far).exact["top_5_accuracy"] == 0
    assert evaluate_truncated(near).exact["top_5_accuracy"] == 1
    assert evaluate_truncated(open_).bounds["top_5_accuracy"] == (0, 1)


# -------------------------------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_rest_that_rounding_took_away_makes_no_label_impossible(dtype):
    log_probs = np.log([[0.9, 0.1 + 1e-9]]).astype(dtype)  # nothing is left
    evaluation = evaluate_truncated(TopK([[0, 1]], log_probs, [5], num_classes=50_000))
    low, high = evaluation.bounds["nll"]
    assert low == pytest.approx(-math.log(1e-5), abs=0.02)  # what the tolerance allows
    assert high == math.inf
    assert evaluation.interval("brier") == pytest.approx((0.9**2 + 0.1**2 + 1,) * 2, abs=1e-6)


def test_a_label_beyond_the_list_is_no_likelier_than_the_last_on_it():
    log_probs = np.array([[-1e-9, -30.0]], dtype=np.float32)
    evaluation = evaluate_truncated(TopK([[0, 1]], log_probs, [5], num_classes=50_000))
    assert evaluation.bounds["nll"] == pytest.approx((30, math.inf))


@pytest.mark.parametrize("over", [1e-7, 9e-6])
def test_a_sum_slightly_above_one_is_divided_out(over):
    probs = np.array([[0.7, 0.2, 0.1]]) * (1 + over)
    evaluation = evaluate_truncated(TopK([[0, 1, 2]], np.log(probs), [1], num_classes=10))
    assert evaluation.remaining_mass == 0
    assert evaluation.exact["nll"] == pytest.approx(-np.log(0.2), abs=1e-12)
    assert evaluation.exact["mean_confidence"] == pytest.approx(0.7, abs=1e-12)
    assert evaluation.exact["brier"] == pytest.approx(0.7**2 + 0.8**2 + 0.1**2, abs=1e-12)


def test_places_left_over_may_hold_any_number():
    rows = [[0.6, 0.3, 0.0], [0.5, 0.0, 0.0], [0.4, 0.3, 0.2]]
    with np.errstate(divide="ignore"):
        lists = TopK([[4, 2, -1], [1, 1, 99], [0, 1, 2]], np.log(rows), [2, 1, 5], num_classes=6)
    evaluation = evaluate_truncated(lists)
    alone = [
        evaluate_truncated(TopK([[4, 2]], np.log([[0.6, 0.3]]), [2], num_classes=6)),
        evaluate_truncated(TopK([[1]], np.log([[0.5]]), [1], num_classes=6)),
        evaluate_truncated(TopK([[0, 1, 2]], np.log([[0.4, 0.3, 0.2]]), [5], num_classes=6)),
    ]
    for name in ("nll", "brier", "entropy", "top_5_accuracy", "mean_confidence"):
        mean = np.mean([one.interval(name) for one in alone], axis=0)
        assert evaluation.interval(name) == pytest.approx(mean, abs=1e-12), name


def test_a_label_beside_a_place_left_over_is_not_listed():
    evaluation = evaluate_truncated(TopK([[3, 5]], [[math.log(0.6), -math.inf]], [5], num_classes=9))
    assert evaluation.num_unknown == 1
    assert evaluation.bounds["nll"] == pytest.approx((-math.log(0.4), math.inf), abs=1e-4)


def test_of_equal_classes_the_lower_number_is_predicted_wherever_it_stands_in_the_list():
    log_probs = np.log([[0.3, 0.3, 0.3]] * 3)
    evaluation = evaluate_truncated(TopK([[8, 2, 5]] * 3, log_probs, [8, 2, 5], num_classes=10))
    assert evaluation.exact["accuracy"] == pytest.approx(1 / 3)
    row = np.full(10, 0.1 / 7)
    row[[8, 2, 5]] = 0.3
    assert_inside(evaluated(np.tile(row, (3, 1)), np.array([8, 2, 5])), evaluation)


def test_a_label_given_as_impossible_has_an_infinite_nll_at_both_ends():
    lists = TopK([[0]], np.log([[0.9]]), [3], num_classes=9, label_log_probs=[-np.inf])
    evaluation = evaluate_truncated(lists)
    assert evaluation.exact["nll"] == evaluation.nll_known == math.inf
    assert evaluation.num_unknown == 0


def test_rows_of_weight_0_do_not_count_and_whole_weights_are_repeated_rows():
    probs, labels = predictions(rows=50)
    weight = np.random.default_rng(3).integers(0, 3, len(labels))
    some = evaluate_truncated(lists_of(probs, labels, 4, sample_weight=weight))
    repeated = evaluate_truncated(lists_of(probs.repeat(weight, 0), labels.repeat(weight), 4))
    assert some.num_rows == np.count_nonzero(weight)
    for name in [*repeated.exact, *repeated.bounds]:
        assert some.interval(name) == pytest.approx(repeated.interval(name), abs=1e-12), name
    assert some.nll_known == pytest.approx(repeated.nll_known)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_taken_as_it_is_rounded(dtype):
    probs, labels = predictions(num_classes=6)
    classes, top = cut(probs, 3)
    lists = TopK(classes, torch.from_numpy(np.log(top)).to(dtype), labels, num_classes=6)
    assert lists.tolerance == 4 * torch.finfo(dtype).eps
    assert_inside(evaluated(probs, labels), evaluate_truncated(lists), slack=0.3)


# ----------------------------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("weighted", [False, True])
def test_neither_batches_nor_the_order_of_merging_change_anything(weighted):
    probs, labels = predictions(rows=90)
    weight = np.random.default_rng(5).random(90)
    parts = [np.arange(0, 40), np.arange(40, 41), np.arange(41, 90)]
    batches = [
        lists_of(probs[part], labels[part], 4, given="half", **({"sample_weight": weight[part]} if weighted else {}))
        for part in parts
    ]
    summaries = []
    for batch in batches:
        summaries.append(TruncatedSummary(30))
        summaries[-1].add(batch)
    whole = evaluate_truncated(batches)
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        merged = functools.reduce(TruncatedSummary.merge, [summaries[place] for place in order]).evaluation()
        assert (merged.num_rows, merged.num_unknown) == (whole.num_rows, whole.num_unknown)
        assert set(merged.bounds) == set(whole.bounds)
        for name in [*whole.exact, *whole.bounds]:
            assert merged.interval(name) == pytest.approx(whole.interval(name), abs=1e-12), name
        assert merged.remaining_mass == pytest.approx(whole.remaining_mass)


def test_the_top_label_is_read_by_every_measure_of_it():
    probs, labels = predictions()
    summary = TruncatedSummary(30)
    summary.add(lists_of(probs, labels, 2))
    truth = metrics.ece(probs, labels, kind="probs", num_bins=9)
    assert metrics.ece(summary.top_label, num_bins=9) == pytest.approx(truth, abs=1e-12)
    assert metrics.reliability(summary.top_label).count.sum() == len(labels)


def test_beyond_most_rows_a_histogram_takes_the_place_of_confidences():
    probs, labels = predictions()
    summary = TruncatedSummary(30, most_rows=100)
    summary.add(lists_of(probs, labels, 2))
    evaluation = summary.evaluation()
    assert any("histogram" in warning for warning in evaluation.warnings)
    assert evaluation.exact["ece"] == pytest.approx(evaluated(probs, labels).ece, abs=1e-12)
    assert evaluation.exact["ada_ece"] == pytest.approx(evaluated(probs, labels).ada_ece, abs=1e-3)


def test_chunks_leave_no_seam(monkeypatch):
    probs, labels = predictions()
    lists = lists_of(probs, labels, 3, given="half", sample_weight=np.arange(400) % 3)
    whole, best = evaluate_truncated(lists), temperature_interval(lists)
    monkeypatch.setattr("focalcal.metrics.truncated.top_k._CHUNK", 20)
    assert len(list(lists.chunks())) > 50
    pieces = evaluate_truncated(lists)
    for name in [*whole.exact, *whole.bounds]:
        assert pieces.interval(name) == pytest.approx(whole.interval(name), abs=1e-12), name
    assert temperature_interval(lists).low == pytest.approx(best.low, rel=1e-9)


def test_empty_batches_are_welcome_but_no_rows_at_all_are_not():
    empty = TopK(np.empty((0, 2), dtype=int), np.empty((0, 2)), [], num_classes=30)
    probs, labels = predictions(rows=20)
    lists = lists_of(probs, labels, 2)
    assert evaluate_truncated([empty, lists]).num_rows == 20
    for nothing in (empty, []):
        with pytest.raises(fc.InputError, match="must be added before"):
            evaluate_truncated(nothing)


# ------------------------------------------------------------------------------------------------------------- result


def test_a_result_is_plain_and_says_what_it_does_not_know():
    probs, labels = predictions(rows=100)
    evaluation = evaluate_truncated(lists_of(probs, labels, 2))
    plain = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    assert plain["schema"] == 1
    assert plain["bounds"]["nll"] == [evaluation.bounds["nll"][0], "inf"]
    assert plain["exact"] == evaluation.exact
    text = str(evaluation)
    assert f"nothing is known of {evaluation.remaining_mass:.4f} of the probability" in text
    assert f"{evaluation.bounds['brier'][0]:.4f} .. {evaluation.bounds['brier'][1]:.4f}" in text
    assert all(name in text for name in [*evaluation.exact, *evaluation.bounds, "nll_known", "classwise_ece"])
    assert f"and of {evaluation.num_unknown} labels" in text


def test_undefined_numbers_are_none():
    evaluation = evaluate_truncated(TopK([[0]], np.log([[0.7]]), [0], num_classes=4))
    assert evaluation.exact["top_5_accuracy"] is None
    assert evaluation.interval("entropy_wrong") is None
    assert evaluate_truncated(TopK([[0]], np.log([[0.7]]), [1], num_classes=4)).nll_known is None
    with pytest.raises(fc.InputError, match="must be one of accuracy"):
        evaluation.interval("eec")


# ------------------------------------------------------------------------------------------------------------- errors


def refused(match, classes=((0, 1),), probs=((0.6, 0.3),), labels=(0,), num_classes=9, log_probs=None, **options):
    given = np.log(np.array(probs)) if log_probs is None else log_probs
    with pytest.raises(fc.InputError, match=match):
        TopK(np.array(classes), given, np.array(labels), num_classes=num_classes, **options)


def test_what_cannot_be_a_list_of_the_most_likely_classes_is_refused_with_a_way_out():
    refused(
        "log_probs: every log-probability must be at most 0; got 0.6 in row 0.*not logits",
        log_probs=np.array([[0.6, 0.3]]),
    )
    refused(
        "log_probs: every log-probability must be at most 0; got nan in row 0", log_probs=np.array([[np.nan, -1.0]])
    )
    refused("log_probs: -9999 is no log-probability; .*Give -inf", log_probs=np.array([[-0.001, -9999.0]]))
    refused("every row must list at least one class", log_probs=np.full((1, 2), -np.inf))
    refused(r"classes: every listed class must lie in 0..8; got 9 in row 0", classes=((0, 9),))
    refused(r"classes: every listed class must lie in 0..8; got -1 in row 0", classes=((-1, 3),))
    refused("no class may be listed twice in a row; got 4 in row 1", [[0, 1], [4, 4]], [[0.6, 0.3]] * 2, [0, 0])
    refused(r"labels: every label must lie in 0..8; got 9 in row 0", labels=(9,))
    refused("must not exceed 1 by more than 1e-05 in sum; got 1.0001 in row 0", probs=((0.7, 0.3001),))
    refused("no class beyond the list may exceed its smallest", probs=((0.6, 0.01),))
    refused("those of a row cannot sum to 1; got 0.9 in row 0", num_classes=2)
    refused("num_classes: must be at least k = 3; got 2", ((0, 1, 2),), ((0.5, 0.3, 0.2),), num_classes=2)
    refused("num_classes: must be a whole number from 2", num_classes=2.0)
    refused("classes: must have shape", classes=((0, 1, 2),))
    refused("labels: must have shape", labels=(0, 1))
    refused("log_probs: must have shape", log_probs=np.log([0.6, 0.3]))
    refused("classes: must be class numbers", classes=((0.0, 1.0),))
    refused("labels: must be class numbers", labels=(True,))
    refused("sample_weight: must have shape", sample_weight=[1.0, 2.0])
    refused("tolerance: must be finite", tolerance=-1.0)


def test_label_log_probs_that_contradict_the_list_are_refused():
    name = "label_log_probs"
    refused(f"{name}: must agree with the list.*got -2.3.* in row 0.*same position", label_log_probs=[np.log(0.1)])
    refused(f"{name}: a label beyond the list must not be more likely", labels=(5,), label_log_probs=[np.log(0.35)])
    refused("must not exceed 1", labels=(5,), label_log_probs=[np.log(0.2)])
    refused(f"{name}: every log-probability must be at most 0", label_log_probs=[0.5])
    refused(f"{name}: -9999 is no log-probability.*NaN", labels=(5,), label_log_probs=[-9999.0])
    refused(f"{name}: must have shape", label_log_probs=[-1.0, -1.0])
    TopK([[0, 1]], np.log([[0.6, 0.3]]), [0], num_classes=9, label_log_probs=[round(math.log(0.6), 4)])


def test_summaries_that_do_not_belong_together_are_refused():
    with pytest.raises(fc.InputError, match="must have 10 classes and 15 bins; got 10 and 20"):
        TruncatedSummary(10).merge(TruncatedSummary(10, num_bins=20))
    with pytest.raises(fc.InputError, match="must have the 10 classes"):
        TruncatedSummary(10).add(TopK([[0]], np.log([[0.9]]), [0], num_classes=9))
    with pytest.raises(fc.InputError, match="must be TopK"):
        evaluate_truncated([np.zeros(3)])


# -------------------------------------------------------------------------------------------------------- temperature


def best_temperature(rows, labels):
    return optimal_temperature(np.log(np.maximum(rows, 1e-300)), labels)


def test_the_interval_of_whole_rows_is_their_best_temperature():
    probs, labels = predictions(num_classes=6)
    interval = temperature_interval(lists_of(probs, labels, 6))
    truth = best_temperature(probs, labels)
    assert [interval.low, interval.high, interval.greedy, interval.spread] == pytest.approx([truth] * 4, abs=1e-8)
    assert interval.low_with_unknown == interval.low
    assert not interval.at_boundary


@pytest.mark.parametrize("k", [2, 5, 15])
@pytest.mark.parametrize("spread", [0.5, 2.0, 3.0])
def test_greedy_and_spread_are_the_best_temperatures_of_these_completions(k, spread):
    probs, labels = predictions(spread=spread)
    listed = (cut(probs, k)[0] == labels[:, None]).any(1)
    interval = temperature_interval(lists_of(probs, labels, k))
    assert (interval.num_rows, interval.num_unknown) == (listed.sum(), (~listed).sum())
    for name, how in (("greedy", filled), ("spread", evenly)):
        rows = completions_of(probs, labels, k, how)
        assert getattr(interval, name) == pytest.approx(best_temperature(rows[listed], labels[listed]), rel=1e-6), name


@pytest.mark.parametrize("given", ["none", "all"])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_temperature_of_every_completion_is_inside_the_interval(seed, given):
    rng = np.random.default_rng(seed)
    num_classes, k, rows = int(rng.integers(4, 9)), int(rng.integers(1, 4)), int(rng.integers(3, 9))
    probs = rng.dirichlet(np.full(num_classes, 10.0 ** rng.uniform(-1, 1)), size=rows)
    labels = np.array(
        [row.argmax() if rng.random() < 0.6 else in_order(row)[rng.integers(0, num_classes)] for row in probs]
    )
    labels[0] = in_order(probs[0])[min(k, num_classes) - 1]  # at least one label is known
    listed = (cut(probs, k)[0] == labels[:, None]).any(1) | (given == "all")
    interval = temperature_interval(lists_of(probs, labels, k, given=given))
    for _ in range(30):
        completion = []
        for row, label in zip(probs[listed], labels[listed], strict=True):
            kept = in_order(row)[:k]
            cap = row[kept[-1]]
            kept = kept if label in kept else np.append(kept, label)
            shares = drawn(max(1 - row[kept].sum(), 0.0), cap, num_classes - len(kept), rng)
            completion.append(completed(kept, row[kept], shares, num_classes))
        best = best_temperature(np.array(completion), labels[listed])
        assert interval.low * (1 - 1e-6) <= best <= interval.high * (1 + 1e-6)


def slope(beta, listed, tail):
    """G: the mean of log p with weights p^beta."""
    x = np.concatenate([listed, tail[tail > 0]])
    return float((x**beta * np.log(x)).sum() / (x**beta).sum())


def of_few_levels(mass, cap, count):
    """Completions in which all classes but some at the cap or at 0 are equal, and one has what is left."""
    for some in {*range(min(count, 60)), *np.linspace(0, count - 1, 60).astype(int)}:
        if mass / (some + 1) <= cap:
            yield np.r_[np.full(some + 1, mass / (some + 1)), np.zeros(count - some - 1)]
        if 0 <= (level := (mass - some * cap) / (count - some)) <= cap:
            yield np.r_[np.full(some, cap), np.full(count - some, level)]
    for level in np.geomspace(1e-60, 1, 60) * mass / count / 2:
        full = int((mass - count * level) / (cap - level))
        left = mass - full * cap - (count - full - 1) * level
        if full < count and 0 <= left <= cap:
            yield np.r_[np.full(full, cap), left, np.full(count - full - 1, level)]


def extreme_slopes(beta, listed, mass, cap, count):
    """The bounds of G that the two extreme completions give."""
    x = np.log(listed / listed[0])
    values = mass / listed[0], math.log(cap / listed[0]), float(count)
    tail = extreme_completions.LogTail.of(*(torch.tensor([value], dtype=torch.float64) for value in values))
    known = extreme_completions.Known(*(torch.tensor([(np.exp(beta * x) * x**power).sum()]) for power in (0, 1)), beta)
    found = []
    for completion in (extreme_completions.smallest_mean, extreme_completions.largest_mean):
        levels, counts = completion(tail, known)
        shares = counts * torch.exp(beta * levels)
        mean = (known.weighted + (shares * levels).sum(0)) / (known.total + shares.sum(0))
        found.append(float(mean) + math.log(listed[0]))
    return found


@pytest.mark.parametrize("beta", [0.02, 0.5, 0.95, 1.0, 1.05, 3.0, 20.0])
@pytest.mark.parametrize(
    ("count", "listed"),
    [(3, 0.3), (8, 0.9), (40, 0.6), (400, 0.95), (400, 0.2), (4000, 0.02)],
)
def test_the_extremes_of_the_slope_hold_for_every_completion_and_are_nearly_attained(beta, count, listed):
    rng = np.random.default_rng(count)
    listed = np.sort(rng.dirichlet(np.full(4, 2.0)))[::-1] * listed
    mass = 1 - listed.sum()
    listed = np.maximum(listed, mass / (0.9 * count))  # so that the rest fits; the slope needs no sum of 1
    cap = listed[-1]
    low, high = extreme_slopes(beta, listed, mass, cap, count)
    tried = [drawn(mass, cap, count, rng) for _ in range(200)] + list(of_few_levels(mass, cap, count))
    found = [slope(beta, listed, tail) for tail in [*tried, filled(mass, cap, count)]]
    assert low - 1e-9 <= min(found)
    assert max(found) <= high + 1e-9
    if mass / cap >= 5:  # then one class does not matter much
        spread = max(found) - min(found)
        assert [min(found), max(found)] == pytest.approx([low, high], abs=0.1 * spread + 1e-9)


def test_the_best_temperature_of_another_completion_may_lie_outside_greedy_and_spread():
    probs, labels, num_classes = np.array([[0.43, 0.1], [0.51, 0.23], [0.255, 0.245]]), np.array([0, 0, 1]), 98
    interval = temperature_interval(TopK([[0, 1]] * 3, np.log(probs), labels, num_classes=num_classes))
    rows = []
    for listed, some in zip(probs, (5, 2, 3), strict=True):  # so many classes share the rest, the others have nothing
        shares = np.r_[np.full(some, (1 - listed.sum()) / some), np.zeros(96 - some)]
        assert shares.max() <= listed.min()
        rows.append(completed(np.arange(2), listed, shares, num_classes))
    best = best_temperature(np.array(rows), labels)
    assert interval.low <= best < 0.8 * min(interval.greedy, interval.spread)


def test_rows_without_a_label_are_left_out_and_can_only_raise_the_temperature_above_its_bound():
    probs, labels = predictions(rows=60, num_classes=8, spread=2.5)
    lists = lists_of(probs, labels, 2)
    interval = temperature_interval(lists)
    assert interval.num_unknown > 5
    rng = np.random.default_rng(0)
    for _ in range(30):
        rows = completions_of(probs, labels, 2, functools.partial(drawn, rng=rng))
        assert best_temperature(rows, labels) >= interval.low_with_unknown * (1 - 1e-6)
    known = temperature_interval(lists_of(probs, labels, 2, given="all"))
    assert known.num_unknown == 0
    assert known.low >= interval.low_with_unknown


def test_the_bound_with_unknown_labels_is_their_best_temperature_where_one_class_is_left():
    probs, labels = predictions(rows=100, num_classes=3)
    unknown, known = (temperature_interval(lists_of(probs, labels, 2, given=given)) for given in ("none", "all"))
    assert unknown.num_unknown > 5
    assert unknown.low_with_unknown == pytest.approx(best_temperature(probs, labels), rel=1e-6)
    assert (known.low, known.high) == pytest.approx((unknown.low_with_unknown,) * 2, rel=1e-6)


def test_the_highest_temperature_is_that_of_the_greedy_fill_where_one_class_can_hold_the_rest():
    probs = np.array([[0.6, 0.3], [0.5, 0.4], [0.8, 0.15]]).repeat(3, 0)
    labels = np.array([0, 1, 1, 0, 1, 1, 0, 1, 1])
    interval = temperature_interval(TopK([[0, 1]] * 9, np.log(probs), labels, num_classes=40))
    assert interval.greedy > 1
    assert interval.high == pytest.approx(interval.greedy, rel=1e-9)
    assert interval.low < interval.greedy - 0.1


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.0, 1.7, 6.0])
def test_the_tempered_nll_is_bounded_by_the_two_completions(temperature):
    probs, labels = predictions(rows=60)
    lists = lists_of(probs, labels, 4, given="all")
    low, high = tempered_nll(lists, temperature)
    rng = np.random.default_rng(0)

    def nll(rows):
        return float(metrics.nll(np.log(np.maximum(rows, 1e-300)) / temperature, labels))

    assert low - 1e-12 <= nll(probs) <= high + 1e-12
    both = []
    for shares in (filled, evenly, *[functools.partial(drawn, rng=rng)] * 40):
        completion = []
        for row, label in zip(probs, labels, strict=True):
            kept = in_order(row)[:4]
            cap = row[kept[-1]]
            kept = kept if label in kept else np.append(kept, label)
            completion.append(completed(kept, row[kept], shares(1 - row[kept].sum(), cap, 30 - len(kept)), 30))
        both.append(nll(np.array(completion)))
        assert low - 1e-9 <= both[-1] <= high + 1e-9
    assert sorted(both[:2]) == pytest.approx([low, high], abs=1e-9)


def test_weights_and_batches_do_what_repeated_rows_do():
    probs, labels = predictions(rows=60)
    weight = np.random.default_rng(3).integers(0, 3, 60)
    weighted = lists_of(probs, labels, 4, given="half", sample_weight=weight)
    repeated = lists_of(probs.repeat(weight, 0), labels.repeat(weight), 4, given="none")
    one = temperature_interval(lists_of(probs, labels, 4, sample_weight=weight))
    two = temperature_interval(repeated)
    assert (one.low, one.high) == pytest.approx((two.low, two.high), rel=1e-8)
    parts = [lists_of(probs[part], labels[part], 4, given="half") for part in (slice(0, 7), slice(7, 60))]
    whole = temperature_interval(lists_of(probs[:7], labels[:7], 4, given="half")), temperature_interval(parts)
    opened = temperature_interval(lambda: iter(parts))
    assert whole[1] == opened
    assert whole[1].num_rows + whole[1].num_unknown == 60
    assert temperature_interval(weighted).num_rows <= np.count_nonzero(weight)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_class_numbers_of_any_integer_type_are_the_same(dtype):
    log_probs = np.log([[0.6, 0.3], [0.5, 0.4]])
    plain = TopK([[7, 3], [2, 1]], log_probs, [3, 2], num_classes=10)
    lists = TopK(
        torch.tensor([[7, 3], [2, 1]], dtype=dtype), log_probs, torch.tensor([3, 2], dtype=dtype), num_classes=10
    )
    assert evaluate_truncated(lists) == evaluate_truncated(plain)
    assert lists.classes.dtype == lists.labels.dtype == (dtype if dtype == torch.int32 else torch.int64)


def test_what_rounding_took_from_a_list_is_no_more_than_its_unlisted_classes_can_hold():
    log_probs = torch.tensor([[1 - 1e-6, 1e-9]], dtype=torch.float64).log()
    rows = ListedRows(torch.tensor([[0, 1]]), log_probs, torch.tensor([0]), None, num_classes=4, tolerance=1e-5)
    assert float(rows.raw_mass) == pytest.approx(2e-9)


def test_classes_before_a_label_beyond_the_list_are_at_least_those_that_its_own_share_leaves_no_room_for():
    """Of 0.6 in three classes of at most 0.25, two must exceed 0.15: with one, 0.25 + 0.15 + 0.15 is too little."""
    log_probs, given = (
        torch.tensor([[0.25]], dtype=torch.float64).log(),
        torch.tensor([0.15], dtype=torch.float64).log(),
    )
    rows = ListedRows(torch.tensor([[0]]), log_probs, torch.tensor([1]), given, num_classes=5, tolerance=1e-5)
    assert [int(rank) for rank in rows.ranks] == [3, 4]


def test_a_model_without_a_mistake_is_sharpened_to_the_end_of_the_search():
    interval = temperature_interval(TopK([[0, 1]] * 2, np.log([[0.6, 0.3]] * 2), [0, 0], num_classes=9))
    assert interval.at_boundary
    assert interval.low == pytest.approx(0.01)
    wrong = temperature_interval(TopK([[0, 1]] * 2, np.log([[0.9, 0.05]] * 2), [1, 1], num_classes=9))
    assert wrong.at_boundary
    assert wrong.high == pytest.approx(1000)


def test_temperatures_that_cannot_be_found_are_refused():
    unknown = TopK([[0]], np.log([[0.6]]), [1], num_classes=9)
    with pytest.raises(fc.InputError, match="must have a row whose label's probability is known; got 1 others"):
        temperature_interval(unknown)
    with pytest.raises(fc.InputError, match="must have a row whose label's probability is known"):
        tempered_nll(unknown, 2.0)
    impossible = TopK([[0]], np.log([[0.6]]), [1], num_classes=9, label_log_probs=[-np.inf])
    with pytest.raises(fc.InputError, match="a label of probability 0 has no finite NLL"):
        temperature_interval(impossible)
    with pytest.raises(fc.InputError, match="opens the data anew"):
        temperature_interval(iter([unknown]))
    with pytest.raises(fc.InputError, match="must hold TopK"):
        temperature_interval([np.zeros(3)])
    with pytest.raises(fc.InputError, match="temperature: must be positive"):
        tempered_nll(unknown, 0.0)
