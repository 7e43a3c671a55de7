"""Streaming gives what one call gives, however the rows come; and the sketch keeps its bound."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal import metrics as m
from focalcal.core.binning import Bins
from focalcal.core.confidence_histogram import CELLS, cell_of, cut_error
from focalcal.errors import InputError, MissingExtraError
from focalcal.metrics import streaming

TOLERANCE = 1e-12
on_the_grid = pytest.mark.parametrize(
    ("dtype", "classes"),
    [
        (torch.float32, 2),
        (torch.float32, 3),
        (torch.float32, 16),
        (torch.float32, 100),
        (torch.float64, 10),
        (torch.float64, 17),
        (torch.float16, 3),
        (torch.bfloat16, 10),
    ],
)

FAMILIES = ("Scores", "EqualWidth", "Classwise", "Ranked")
ONE_CALL = {family: getattr(streaming, family).measures() for family in FAMILIES}


def predictions(rows: int, classes: int, dtype: torch.dtype = torch.float32, seed: int = 0):
    """Logits and labels of a classifier that is right more often than not, with some rows of equal confidence."""
    generator = torch.Generator().manual_seed(1000 * classes + seed)
    logits = 3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    logits[rows // 2 :: 7] = logits[rows // 2].clone()
    drawn = torch.randint(0, classes, (rows,), generator=generator)
    labels = torch.where(torch.rand(rows, generator=generator) < 0.6, logits.argmax(1), drawn)
    return logits.to(dtype), labels


def families(classes: int, **how):
    """A maker of each family with all its measures."""
    return {
        "Scores": lambda: streaming.Scores(**how),
        "EqualWidth": lambda: streaming.EqualWidth(**how),
        "Classwise": lambda: streaming.Classwise(num_classes=classes, **how),
        "Ranked": lambda: streaming.Ranked(**how),
        "Sketch": lambda: streaming.Ranked(exact=False, **how),
        "Everything": lambda: streaming.Everything(num_classes=classes, **how),
    }


def splits(rows: int, seed: int) -> list[list[slice]]:
    """Batches of one row, uneven ones, and equal ones with a small one at the end."""
    random = np.random.default_rng(seed)
    uneven = [0, *np.sort(random.choice(np.arange(1, rows), 6, replace=False)).tolist(), rows]
    return [
        [slice(i, i + 1) for i in range(rows)],
        [slice(a, b) for a, b in pairwise(uneven)],
        [slice(i, min(i + 32, rows)) for i in range(0, rows, 32)],
    ]


def streamed(make, logits, labels, batches, seed: int):
    """All batches in random order over 2 to 4 objects, which are merged two by two in random order."""
    random = np.random.default_rng(seed)
    parts = [make() for _ in range(random.integers(2, 5))]
    for i in random.permutation(len(batches)):
        parts[random.integers(len(parts))].update(logits[batches[i]], labels[batches[i]])
    while len(parts) > 1:
        other = parts.pop(random.integers(len(parts)))
        assert parts[random.integers(len(parts))].merge(other) in parts
    return parts[0]


def keys_of(metric) -> np.ndarray:
    return np.sort(np.concatenate([part.numpy() for part in metric.keys or metric.wide_keys]))


def joined_states(metric) -> dict[str, torch.Tensor]:
    """A copy of every state, lists strung together."""
    sums = {name: getattr(metric, name).clone() for name in metric.sums}
    lists = {
        name: torch.cat([torch.empty(0, dtype=kind), *getattr(metric, name)]) for name, kind in metric.lists.items()
    }
    return sums | lists


def close(value) -> object:
    return pytest.approx(value, abs=TOLERANCE, rel=0, nan_ok=True)


def numbers(values) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def _defined(values) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def assert_same_evaluation(found, expected):
    """Field by field: counts, words and warnings exactly, numbers to rounding."""
    for each in fields(expected):
        mine, theirs = getattr(found, each.name), getattr(expected, each.name)
        if isinstance(theirs, Bins):
            assert torch.equal(mine.count, theirs.count), each.name
            for column in ("edges", "confidence", "accuracy", "mass"):
                torch.testing.assert_close(getattr(mine, column), getattr(theirs, column), rtol=0, atol=TOLERANCE)
        elif each.name == "values":
            assert [name for name in mine if mine[name] is None] == [name for name in theirs if theirs[name] is None]
            assert _defined(mine) == close(_defined(theirs))
        else:
            assert mine == theirs, each.name


# --- one call


def test_every_measure_that_reads_one_thing_is_in_one_family():
    alone = [name for name, measure in m.MEASURES.items() if measure.in_evaluate and len(measure.reads) == 1]
    debiased = ONE_CALL["EqualWidth"]["ece_debiased"]  # in bins of equal width; that of the table has equal mass
    assert debiased.options == {"edges": "equal_width"}
    named = [name for measures in ONE_CALL.values() for name, measure in measures.items() if measure is not debiased]
    assert sorted(named) == sorted(alone)


@on_the_grid
def test_any_split_and_any_order_of_merging_gives_what_one_call_gives(dtype, classes):
    logits, labels = predictions(61, classes, dtype)
    expected = {
        family: {name: float(measure(logits, labels)) for name, measure in measures.items()}
        for family, measures in ONE_CALL.items()
    }
    makers = families(classes)
    for seed, batches in enumerate(splits(len(labels), classes)):
        for family, values in expected.items():
            found = streamed(makers[family], logits, labels, batches, seed)
            assert numbers(found.compute()) == close(values), family


@on_the_grid
def test_the_evaluation_of_a_stream_is_that_of_one_call_field_by_field(dtype, classes):
    logits, labels = predictions(61, classes, dtype, seed=1)
    expected = fc.evaluate(logits, labels)
    make = families(classes)["Everything"]
    for seed, batches in enumerate(splits(len(labels), classes)):
        found = streamed(make, logits, labels, batches, seed)
        assert_same_evaluation(found.evaluation(), expected)
        plain_numbers = {name: value for name, value in expected.to_dict().items() if isinstance(value, float)}
        assert numbers(found.compute()) == close(plain_numbers)


@on_the_grid
def test_a_row_gives_the_same_bits_in_whatever_batch_it_comes(dtype, classes):
    logits, labels = predictions(101, classes, dtype, seed=2)
    makers = families(classes)
    whole = makers["Ranked"]()
    whole.update(logits, labels)
    assert keys_of(whole).dtype == (np.int64 if dtype == torch.float64 else np.int32)
    for family in ("Ranked", "Everything"):
        for seed, batches in enumerate(splits(len(labels), classes)):
            assert np.array_equal(keys_of(streamed(makers[family], logits, labels, batches, seed)), keys_of(whole))


@pytest.mark.parametrize("kind", ["logits", "log_probs", "probs"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_row_gives_the_same_bits_when_its_classes_lie_in_columns(dtype, kind):
    logits, labels = predictions(101, 17, torch.float64, seed=3)
    scores = {"logits": logits, "log_probs": logits.log_softmax(1), "probs": logits.softmax(1)}[kind].to(dtype)
    in_columns = scores.t().contiguous().t()
    whole = streaming.Ranked(kind=kind)
    whole.update(scores, labels)
    for seed, batches in enumerate(splits(len(labels), 0)):
        found = streamed(lambda: streaming.Ranked(kind=kind), in_columns, labels, batches, seed)
        assert np.array_equal(keys_of(found), keys_of(whole))


def test_equal_rows_stay_tied_when_their_classes_lie_in_columns():
    for row in predictions(9, 17, torch.float64)[0].softmax(1):
        probs, labels = row.repeat(17, 1).t().contiguous().t(), torch.full((17,), int(row.argmin()))
        labels[-1] = row.argmax()
        found = streaming.Ranked("auroc_correctness", kind="probs")
        found.update(probs[:8], labels[:8])
        found.update(probs[8:], labels[8:])
        assert float(found.compute()) == m.auroc_correctness(probs, labels, kind="probs") == 0.5


def test_a_large_batch_that_is_read_in_chunks_gives_what_small_ones_give():
    logits, labels = predictions(300_000, 2, seed=4)  # 2 classes: the chunk holds 131,072 rows
    one, many = (streaming.Everything(num_classes=2) for _ in range(2))
    one.update(logits, labels)
    for start in range(0, len(labels), 70_001):
        many.update(logits[start : start + 70_001], labels[start : start + 70_001])
    assert np.array_equal(keys_of(one), keys_of(many))
    assert torch.equal(one.evaluation().bins.count, many.evaluation().bins.count)
    assert torch.equal(one.class_sums[0], many.class_sums[0])
    assert torch.equal(one.label_counts, many.label_counts)
    assert numbers(one.compute()) == close(numbers(many.compute()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_counts_are_exact(dtype):
    logits, labels = predictions(101, 10, dtype, seed=5)
    expected = m.reliability(logits, labels)
    for seed, batches in enumerate(splits(len(labels), 5)):
        found = streamed(families(10)["EqualWidth"], logits, labels, batches, seed)
        assert torch.equal(found.bin_sums[0], expected.count)
        assert torch.equal(found.bin_sums[1], expected.mass)
        everything = streamed(families(10)["Everything"], logits, labels, batches, seed)
        assert torch.equal(everything.label_counts, torch.bincount(labels, minlength=10).double())


def test_batches_of_both_precisions_are_put_together():
    logits, labels = predictions(101, 3, seed=6)
    makers = families(3)
    expected = fc.evaluate(logits, labels)
    ranked, everything = makers["Ranked"](), makers["Everything"]()
    for metric in (ranked, everything):
        metric.update(logits[:50], labels[:50])
        metric.update(logits[50:].double(), labels[50:])
    # The confidences of float32 logits are rounded to float32.
    assert float(ranked.compute()["ada_ece"]) == pytest.approx(expected.ada_ece, abs=1e-7)
    assert float(ranked.compute()["smooth_ece"]) == pytest.approx(expected.smooth_ece, abs=1e-7)
    assert everything.evaluation().ada_ece == pytest.approx(expected.ada_ece, abs=1e-7)


@pytest.mark.parametrize("family", ["Scores", "EqualWidth", "Classwise"])
def test_weighted_streams_give_what_one_weighted_call_gives(family):
    logits, labels = predictions(101, 3, seed=7)
    weight = np.random.default_rng(7).random(101) + 0.1
    expected = {n: float(f(logits, labels, sample_weight=weight)) for n, f in ONE_CALL[family].items()}
    for batches in splits(101, 7):
        found = families(3)[family]()
        for batch in batches:
            found.update(logits[batch], labels[batch], weight[batch])
        assert numbers(found.compute()) == close(expected)


def test_weights_that_add_up_to_a_whole_number_only_in_one_order_change_nothing():
    logits, labels, weight = torch.tensor([[1.0, 0.0]] * 10), torch.tensor([0, 1] * 5), np.full(10, 0.3)
    found = streaming.EqualWidth("ece_debiased", num_bins=1)
    found.update(logits[:3], labels[:3], weight[:3])
    found.update(logits[3:], labels[3:], weight[3:])
    expected = m.ece_debiased(logits, labels, num_bins=1, edges="equal_width", sample_weight=weight)
    assert float(found.compute()) == close(expected)


@pytest.mark.parametrize("kind", ["log_probs", "probs"])
def test_streams_of_probabilities_give_what_one_call_gives(kind):
    logits, labels = predictions(101, 3, torch.float64, seed=8)
    scores = logits.log_softmax(1) if kind == "log_probs" else logits.softmax(1)
    for batches in splits(101, 8):
        found = streamed(families(3, kind=kind)["Everything"], scores, labels, batches, 8)
        assert_same_evaluation(found.evaluation(), fc.evaluate(scores, labels, kind=kind))


@pytest.mark.parametrize("target", ["positive", 0, 1])
@pytest.mark.parametrize("family", ["EqualWidth", "Ranked"])
def test_streams_of_one_class_give_what_one_call_gives(family, target):
    logits, labels = predictions(101, 2, seed=9)
    make = families(2, target=target)[family]
    names = set(ONE_CALL[family]) - {"aurc", "auroc_correctness"}  # those two mean the predicted class
    expected = {name: float(ONE_CALL[family][name](logits, labels, target=target)) for name in names}
    found = numbers(streamed(make, logits, labels, splits(101, 9)[1], 9).compute())
    assert {name: found[name] for name in names} == close(expected)


@pytest.mark.parametrize("family", ["Scores", "EqualWidth", "Classwise", "Ranked", "Everything"])
def test_ignored_rows_do_not_count_even_where_a_whole_batch_is_ignored(family):
    logits, labels = predictions(101, 3, seed=10)
    ignored = labels.clone()
    ignored[20:45] = -100
    kept = ignored != -100
    make = families(3, ignore_index=-100)[family]
    one, many = families(3)[family](), make()
    one.update(logits[kept], labels[kept])
    many.update(logits[:30], ignored[:30])
    many.update(logits[30:40], ignored[30:40])  # nothing in here counts
    many.update(logits[40:], ignored[40:])
    assert numbers(many.compute()) == close(numbers(one.compute()))


def test_pixels_stream_like_rows():
    logits, labels = predictions(120, 3, seed=11)
    images, masks = logits.view(5, 4, 6, 3).movedim(-1, 1), labels.view(5, 4, 6)
    found = streaming.EqualWidth("ece")
    found.update(images[:2], masks[:2])
    found.update(images[2:], masks[2:])
    assert float(found.compute()) == close(m.ece(logits, labels))


def test_batches_may_be_overwritten_once_they_are_taken_in():
    logits, labels = predictions(400, 5)
    held = torch.empty_like(logits[:100]), torch.empty_like(labels[:100])
    for name, make in families(5).items():
        metric, whole = make(), make()
        for start in range(0, 400, 100):
            held[0][:], held[1][:] = logits[start : start + 100], labels[start : start + 100]
            metric.update(*held)
            whole.update(logits[start : start + 100], labels[start : start + 100])
        assert metric.compute() == whole.compute(), name


def test_numpy_and_lists_are_as_good_as_tensors():
    logits, labels = predictions(101, 3, seed=12)
    found = streaming.EqualWidth("ece")
    found.update(logits[:50].numpy(), labels[:50].numpy())
    found.update(logits[50:], labels[50:].tolist())
    assert float(found.compute()) == close(m.ece(logits, labels))


@pytest.mark.parametrize("num_bins", [1, 2, 10])
def test_the_number_of_bins_is_the_callers(num_bins):
    logits, labels = predictions(101, 3, seed=13)
    for family, names in {"EqualWidth": ["ece", "mce"], "Ranked": ["ada_ece"], "Classwise": ["classwise_ece"]}.items():
        found = streamed(families(3, num_bins=num_bins)[family], logits, labels, splits(101, 13)[1], 13)
        for name in names:
            expected = ONE_CALL[family][name](logits, labels, num_bins=num_bins)
            assert float(found.compute()[name]) == close(expected)


def test_one_chosen_measure_is_a_number_and_several_are_a_dictionary():
    logits, labels = predictions(101, 3)
    one, two = streaming.EqualWidth("mce"), streaming.EqualWidth("mce", "ece")
    for metric in (one, two):
        metric.update(logits, labels)
    assert one.compute().dtype == torch.float64
    assert float(one.compute()) == close(m.mce(logits, labels))
    assert list(two.compute()) == ["mce", "ece"]


# --- the life of an object


FAMILIES = ["Scores", "EqualWidth", "Classwise", "Ranked", "Sketch", "Everything"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reset_object_is_as_good_as_a_fresh_one(family):
    (logits, labels), (others, other_labels) = predictions(101, 3), predictions(60, 3, seed=14)
    again, fresh = (families(3)[family]() for _ in range(2))
    again.update(others, other_labels)
    again.compute()
    again.reset()
    for metric in (again, fresh):
        metric.update(logits, labels)
    assert numbers(again.compute()) == numbers(fresh.compute())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric:UserWarning")  # torchmetrics' count is not saved
def test_a_saved_and_loaded_state_goes_on_where_it_stopped(family, tmp_path):
    logits, labels = predictions(101, 3)
    make = families(3)[family]
    first, whole = make(), make()
    first.update(logits[:40], labels[:40])
    first.update(logits[40:60], labels[40:60])
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second = make()
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert numbers(second.compute()) == numbers(first.compute())
    second.update(logits[60:], labels[60:])
    whole.update(logits, labels)
    assert numbers(second.compute()) == close(numbers(whole.compute()))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_state_does_not_change_when_anyone_goes_on(family):
    logits, labels = predictions(101, 3)
    make = families(3)[family]
    first, second, third, expected = make(), make(), make(), make()
    for metric in (first, expected):
        metric.update(logits[:40], labels[:40])
    saved = first.state_dict()
    first.update(logits[40:], labels[40:])
    second.load_state_dict(saved)
    second.update(logits[40:70], labels[40:70])
    third.load_state_dict(saved)
    third.merge(make())  # counts as no batch of its own, but is not without batches either
    third._update_count = 1
    assert numbers(third.compute()) == numbers(expected.compute())
    first.reset()
    first.update(logits[:40], labels[:40])
    assert numbers(first.compute()) == numbers(expected.compute())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"]
)
def test_a_copy_goes_its_own_way(family, duplicate):
    logits, labels = predictions(101, 3)
    first = families(3)[family]()
    first.update(logits[:60], labels[:60])
    before = numbers(first.compute())
    second = duplicate(first)
    assert numbers(second.compute()) == before
    second.update(logits[60:], labels[60:])
    assert numbers(second.compute()) != before
    first._computed = None
    assert numbers(first.compute()) == before


@pytest.mark.parametrize("family", FAMILIES)
def test_calling_gives_the_value_of_the_batch_and_accumulates(family):
    logits, labels = predictions(101, 3)
    make = families(3)[family]
    metric, whole = make(), make()
    for batch in (slice(0, 50), slice(50, 80), slice(80, 101)):
        alone = make()
        alone.update(logits[batch], labels[batch])
        assert numbers(metric(logits[batch], labels[batch])) == close(numbers(alone.compute()))
    whole.update(logits, labels)
    assert numbers(metric.compute()) == close(numbers(whole.compute()))


@pytest.mark.parametrize("exact", [True, False])
def test_calling_with_a_batch_of_fewer_rows_than_bins_loses_nothing(exact):
    logits, labels = predictions(101, 3)
    metric, whole = (streaming.Ranked("ada_ece", exact=exact) for _ in range(2))
    metric(logits[:98], labels[:98])
    try:
        metric(logits[98:], labels[98:])  # the usual last batch; 3 rows have no 15 bins of equal mass
    except InputError:
        metric.update(logits[98:], labels[98:])  # refusing its value is fair, forgetting the other rows is not
    whole.update(logits, labels)
    assert float(metric.compute()) == close(float(whole.compute()))


@pytest.mark.parametrize("family", ["Scores", "EqualWidth", "Classwise", "Ranked", "Sketch", "Everything"])
def test_a_refused_batch_leaves_no_trace(family):
    logits, labels = predictions(200_000, 2)
    metric = families(2)[family]()
    metric.update(logits[:100], labels[:100])
    before = joined_states(metric)
    logits[-1, 0] = float("nan")  # in the second chunk
    with pytest.raises(InputError, match="finite"):
        metric.update(logits, labels)
    for name, state in joined_states(metric).items():
        assert torch.equal(state, before[name]), name


def test_merging_leaves_the_other_object_as_it_was():
    logits, labels = predictions(101, 3)
    for family, make in families(3).items():
        one, two, alone = make(), make(), make()
        one.update(logits[:50], labels[:50])
        for metric in (two, alone):
            metric.update(logits[50:], labels[50:])
        one.merge(two)
        one.update(logits[:50], labels[:50])
        assert numbers(two.compute()) == numbers(alone.compute()), family


def test_computing_twice_and_going_on_works():
    logits, labels = predictions(101, 3)
    for family, make in families(3).items():
        metric, whole = make(), make()
        metric.update(logits[:50], labels[:50])
        metric.compute()
        metric.compute()
        metric.update(logits[50:], labels[50:])
        whole.update(logits, labels)
        assert numbers(metric.compute()) == close(numbers(whole.compute())), family


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "convert",
    [
        lambda metric: metric.half(),
        lambda metric: metric.bfloat16(),
        lambda metric: metric.float(),
        lambda metric: metric.to("cpu"),
        lambda metric: metric.to(torch.float16),
        lambda metric: torch.nn.ModuleList([torch.nn.Linear(1, 1), metric]).to(torch.bfloat16)[1],
    ],
    ids=["half", "bfloat16", "float", "to cpu", "to float16", "in a network to bfloat16"],
)
def test_half_precision_networks_leave_the_states_in_float64(family, convert):
    logits, labels = predictions(5000, 3, torch.float16)  # float16 cannot count to 5000
    make = families(3)[family]
    metric, untouched = make(), make()
    for each in (metric, untouched):
        each.update(logits[:4000], labels[:4000])
    metric = convert(metric)
    for each in (metric, untouched):
        each.update(logits[4000:], labels[4000:])
    converted = joined_states(metric)
    for name, state in joined_states(untouched).items():
        assert converted[name].dtype == state.dtype
        assert torch.equal(converted[name], state), name


# --- torchmetrics


def test_they_are_torchmetrics_and_live_in_a_collection():
    torchmetrics = pytest.importorskip("torchmetrics")
    logits, labels = predictions(101, 3)
    collection = torchmetrics.MetricCollection(
        {
            "ece": streaming.EqualWidth("ece"),
            "mce": streaming.EqualWidth("mce"),
            "ranked": streaming.Ranked("ada_ece", "auroc_correctness"),
            "accuracy": torchmetrics.classification.MulticlassAccuracy(num_classes=3, average="micro"),
        }
    )
    assert all(isinstance(metric, torchmetrics.Metric) for metric in collection.values())
    expected = {
        "ece": m.ece(logits, labels),
        "mce": m.mce(logits, labels),
        "ada_ece": m.ada_ece(logits, labels),
        "auroc_correctness": m.auroc_correctness(logits, labels),
    }
    for _ in range(2):  # the second time after a reset
        for batch in splits(101, 0)[1]:
            collection.update(logits[batch], labels[batch])
        found = numbers(collection.compute())
        assert found.pop("accuracy") == pytest.approx(m.accuracy(logits, labels), abs=1e-6)
        assert found == close(expected)
        collection.reset()
    found = numbers(collection(logits, labels))
    assert found["ece"] == close(expected["ece"])


def test_everything_lives_in_a_collection_and_names_do_not_clash():
    torchmetrics = pytest.importorskip("torchmetrics")
    logits, labels = predictions(101, 3)
    collection = torchmetrics.MetricCollection(
        {"width": streaming.EqualWidth(), "mass": streaming.Ranked(), "all": streaming.Everything(num_classes=3)}
    )
    collection.update(logits, labels)
    found, everything = numbers(collection.compute()), fc.evaluate(logits, labels)
    assert sorted(found.values()) == close(
        sorted(
            [
                float(ONE_CALL[family][name](logits, labels))
                for family in ("EqualWidth", "Ranked")
                for name in ONE_CALL[family]
            ]
            + [value for value in everything.to_dict().values() if isinstance(value, float)]
        )
    )


def test_torchmetrics_own_merge_agrees_with_ours():
    pytest.importorskip("torchmetrics")
    logits, labels = predictions(101, 3)
    for family, make in families(3).items():
        one, two, whole = make(), make(), make()
        one.update(logits[:50], labels[:50])
        two.update(logits[50:], labels[50:])
        whole.update(logits, labels)
        one.merge_state(two)
        assert numbers(one.compute()) == close(numbers(whole.compute())), family


# --- torchmetrics is an extra


def test_without_torchmetrics_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "focalcal.metrics.streaming")
    with pytest.raises(MissingExtraError, match=r"pip install 'focalcal\[metrics\]'"):
        importlib.import_module("focalcal.metrics.streaming")


# --- the sketch


def pairs_as_probs(confidence, correct):
    """Two classes, the first of which has the given confidence and is the label where that was correct."""
    confidence = np.asarray(confidence)
    return np.stack([confidence, 1 - confidence], 1), 1 - np.asarray(correct).astype(np.int64)


def sketch_of(confidence, correct, num_bins=15, **how):
    sketch = streaming.Ranked("ada_ece", num_bins=num_bins, exact=False, kind="probs", target=0, **how)
    sketch.update(*pairs_as_probs(confidence, correct))
    return sketch


def exact_ada_ece(confidence, correct, num_bins=15):
    return m.ada_ece(m.from_pairs(confidence, correct), num_bins=num_bins)


def distribution(name: str, n: int, seed: int):
    """Confidences and correctness of n rows."""
    random = np.random.default_rng(seed)
    if name == "uniform":
        confidence = random.random(n)
    elif name == "near one, many exactly":
        confidence = 1 - np.minimum(random.random(n), 10.0 ** random.uniform(-12, 0, n))
    elif name == "like a network":
        confidence = 1 / (1 + np.exp(-random.normal(3, 2, n)))
    elif name == "two points":
        confidence = random.choice([0.6, 0.9], n)
    elif name == "two points in one cell":
        confidence = random.choice([0.50001, 0.50002], n)
    elif name == "near one half":
        confidence = 0.5 + 1e-4 * random.standard_normal(n)
    else:
        confidence = random.beta(0.02, 0.02, n)  # at both ends
    confidence = confidence.astype(np.float32)
    return confidence, random.random(n) < confidence**2


DISTRIBUTIONS = [
    "uniform",
    "like a network",
    "near one, many exactly",
    "two points",
    "two points in one cell",
    "near one half",
    "both ends",
]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("num_bins", [2, 15, 40])
def test_the_sketch_is_within_its_bound(name, num_bins):
    for seed, n in enumerate((40, 137, 1000, 20_000)):
        confidence, correct = distribution(name, n, seed)
        sketch = sketch_of(confidence, correct, num_bins)
        assert abs(float(sketch.compute()) - exact_ada_ece(confidence, correct, num_bins)) <= (
            sketch.error_bound() + TOLERANCE
        )


def test_near_one_there_are_rows_at_exactly_one():
    confidence, _ = distribution("near one, many exactly", 1000, 0)
    assert 100 < (confidence == 1).sum() < 900


@pytest.mark.parametrize("num_bins", [2, 3, 15])
@pytest.mark.parametrize("correct_first", [True, False])
def test_the_sketch_is_within_its_bound_when_a_cell_holds_the_correct_rows_apart(num_bins, correct_first):
    for start in (0.2, 0.5, 0.9):
        inside = start + np.linspace(1e-6, 1e-5, 900)
        assert len(np.unique(cell_of(inside))) <= 2
        for outside in (0, 100, 3000):
            confidence = np.concatenate([np.full(outside, start / 2), inside, np.full(outside, 1 - (1 - start) / 2)])
            correct = np.arange(900) < 450
            correct = correct if correct_first else ~correct
            correct = np.concatenate([np.full(outside, correct_first), correct, np.full(outside, not correct_first)])
            sketch = sketch_of(confidence, correct, num_bins)
            off = abs(float(sketch.compute()) - exact_ada_ece(confidence, correct, num_bins))
            assert off <= sketch.error_bound() + TOLERANCE


def test_the_bound_holds_in_the_worst_case_of_a_cell_as_wide_as_it_is():
    """Both halves of a cell at its two ends, the lower one correct, and rows beside it that keep gaps one-sided."""
    low, high = 0.5, 0.5 + 1.29e-4
    assert cell_of(np.array([low]))[0] == cell_of(np.array([high]))[0]
    confidence = np.repeat([0.3, low, high, 0.9], [100, 1000, 1000, 100])
    correct = np.repeat([1, 1, 0, 0], [100, 1000, 1000, 100])
    sketch = sketch_of(confidence, correct, num_bins=2)
    off = abs(float(sketch.compute()) - exact_ada_ece(confidence, correct, num_bins=2))
    assert off > 0.9 * sketch.error_bound()  # the case is as bad as the bound says
    assert off <= sketch.error_bound() + TOLERANCE


@pytest.mark.parametrize("name", ["uniform", "like a network"])
def test_the_bound_is_small_for_many_rows_that_are_spread_out(name):
    confidence, correct = distribution(name, 200_000, 1)
    sketch = sketch_of(confidence, correct)
    assert 0 <= sketch.error_bound() < 1e-3
    assert abs(float(sketch.compute()) - exact_ada_ece(confidence, correct)) <= sketch.error_bound()


def test_an_exact_ranking_has_no_error():
    ranked = streaming.Ranked()
    ranked.update(*predictions(101, 3))
    assert ranked.error_bound() == 0
    assert ranked.error_bound(num_bins=3) == 0


def test_the_bound_follows_the_number_of_bins():
    sketch = sketch_of(*distribution("uniform", 200_001, 2))
    assert sketch.error_bound() == sketch.error_bound(num_bins=15) > sketch.error_bound(num_bins=2) > 0
    assert sketch.error_bound(num_bins=1) == 0


def test_the_sketch_does_not_grow():
    sketch = sketch_of(*distribution("uniform", 100, 0))
    size = sketch.cells.numel()
    for seed in range(5):
        sketch.update(*pairs_as_probs(*distribution("uniform", 10_000, seed)))
    assert sketch.cells.numel() == size == 3 * CELLS
    assert not sketch.lists
    assert float(sketch.cells[0].sum()) == 50_100


def test_batches_and_merges_in_any_order_give_the_same_bits_of_the_sketch():
    logits, labels = predictions(1001, 3, seed=15)
    whole = streaming.Ranked(exact=False)
    whole.update(logits, labels)
    for seed, batches in enumerate(splits(1001, 15)[1:]):
        found = streamed(families(3)["Sketch"], logits, labels, batches, seed)
        assert torch.equal(found.cells, whole.cells)
        assert numbers(found.compute()) == numbers(whole.compute())


def test_every_measure_of_the_sketch_is_near_the_exact_one():
    logits, labels = predictions(5001, 3, seed=16)
    sketch = streaming.Ranked(exact=False)
    sketch.update(logits, labels)
    for name, value in sketch.compute().items():
        if not name.startswith("ece_sweep"):  # one bin more or less is another number
            assert float(value) == pytest.approx(ONE_CALL["Ranked"][name](logits, labels), abs=5e-4), name


# --- errors


@pytest.mark.parametrize("family", ["Scores", "EqualWidth", "Ranked"])
def test_an_unknown_measure_is_refused_with_the_known_ones(family):
    with pytest.raises(InputError, match=rf"measures: must be among .*{next(iter(ONE_CALL[family]))}.*got eec"):
        getattr(streaming, family)("eec")


def test_another_family_is_not_merged():
    with pytest.raises(InputError, match="must be EqualWidth; got Scores"):
        streaming.EqualWidth().merge(streaming.Scores())


@pytest.mark.parametrize("family", ["EqualWidth", "Classwise", "Everything"])
def test_another_number_of_bins_is_not_merged(family):
    one, two = (families(3, num_bins=num_bins)[family]() for num_bins in (15, 10))
    with pytest.raises(InputError, match="the same num_bins"):
        one.merge(two)


@pytest.mark.parametrize("family", ["Classwise", "Everything"])
def test_another_number_of_classes_is_neither_merged_nor_taken_in(family):
    one, two = (families(classes)[family]() for classes in (3, 4))
    with pytest.raises(InputError, match="classes"):
        one.merge(two)
    with pytest.raises(InputError, match="must have 4 classes; got 3"):
        two.update(*predictions(20, 3))


def test_a_refused_merge_leaves_no_trace():
    logits, labels = predictions(101, 3)
    one, two = streaming.Everything(num_classes=3), streaming.Everything(num_classes=3, num_bins=10)
    for metric in (one, two):
        metric.update(logits, labels)
    before = one.evaluation()
    with pytest.raises(InputError):
        one.merge(two)
    assert one.evaluation() == before


@pytest.mark.parametrize("exact", [True, False])
def test_a_sketch_and_exact_rows_are_not_merged(exact):
    with pytest.raises(InputError):
        streaming.Ranked(exact=exact).merge(streaming.Ranked(exact=not exact))


@pytest.mark.parametrize("family", ["EqualWidth", "Ranked"])
def test_different_targets_are_not_merged(family):
    with pytest.raises(InputError):
        getattr(streaming, family)(target=0).merge(getattr(streaming, family)(target=1))


@pytest.mark.parametrize("family", ["EqualWidth", "Ranked"])
def test_every_class_at_once_is_refused(family):
    with pytest.raises(InputError, match="target: must be one class or the top label"):
        getattr(streaming, family)(target="classwise")


@pytest.mark.parametrize("family", ["EqualWidth", "Classwise", "Ranked", "Everything"])
def test_no_bins_are_refused(family):
    def value():
        metric = families(3, num_bins=0)[family]()
        metric.update(*predictions(20, 3))
        return metric.compute()

    with pytest.raises(InputError, match="num_bins"):
        value()


@pytest.mark.parametrize("family", FAMILIES)
def test_bad_batches_are_refused_as_by_the_functions(family):
    metric = families(3)[family]()
    with pytest.raises(InputError, match="labels"):
        metric.update(torch.randn(2, 3), torch.tensor([0, 3]))
    with pytest.raises(InputError, match="kind"):
        families(3, kind="odds")[family]().update(torch.randn(2, 3), torch.tensor([0, 1]))


def test_an_empty_histogram_has_no_error():
    assert cut_error(np.zeros(CELLS), num_bins=3) == 0
