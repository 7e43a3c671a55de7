from __future__ import annotations

import numpy as np
import pytest

from focalcal import metrics
from focalcal.errors import InputError
from focalcal.files.prediction_table import PredictionTable
from focalcal.report import classes
from tests.report.cases import sharp_table


def test_classes_have_their_names_or_their_numbers() -> None:
    assert classes.class_names(sharp_table(10, 3, class_names=("cat", "", "dog"))) == ["cat", "", "dog"]
    assert classes.class_names(sharp_table(10, 3)) == ["class 0", "class 1", "class 2"]


def test_names_must_be_as_many_as_classes() -> None:
    with pytest.raises(InputError, match="one for each of 3 classes"):
        classes.class_names(sharp_table(10, 3, class_names=("cat", "dog")))


@pytest.mark.parametrize("weighted", [False, True])
def test_class_table_agrees_with_the_library(weighted: bool) -> None:
    weights = np.random.default_rng(0).uniform(0.5, 2, 500) if weighted else None
    table = sharp_table(500, 5, weights=weights)
    decisions = classes.Decisions.of(table)
    found = classes.class_table(table, decisions, [str(k) for k in range(5)], num_bins=15, at_most=100)
    assert sorted(found.name) == list("01234")
    assert found.ece == sorted(found.ece, reverse=True)
    classwise = metrics.classwise_ece(table.scores, table.labels, sample_weight=weights)
    assert np.mean(found.ece) == pytest.approx(float(classwise))
    share = np.ones(500) if weights is None else weights
    probs = np.exp(table.scores - np.logaddexp.reduce(table.scores, 1, keepdims=True))
    for place, name in enumerate(found.name):
        here = table.labels == int(name)
        right = table.scores[here].argmax(1) == int(name)
        assert found.count[place] == here.sum()
        assert found.frequency[place] == pytest.approx(np.average(here, weights=share), abs=1e-6)
        assert found.mean_probability[place] == pytest.approx(np.average(probs[:, int(name)], weights=share), abs=1e-6)
        assert found.gap[place] == pytest.approx(found.mean_probability[place] - found.frequency[place], abs=1e-9)
        assert found.recall[place] == pytest.approx(np.average(right, weights=share[here]))
        of_class = metrics.ece(table.scores, table.labels, target=int(name), sample_weight=weights)
        assert found.ece[place] == pytest.approx(float(of_class), abs=1e-6)


def test_a_class_without_rows_has_no_recall_and_is_missing() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 3))
    table = PredictionTable("two of three", logits, "logits", labels=np.arange(50) % 2)
    decisions = classes.Decisions.of(table)
    found = classes.class_table(table, decisions, ["a", "b", "c"], num_bins=15, at_most=100)
    assert found.recall[found.name.index("c")] is None
    assert found.count[found.name.index("c")] == 0
    assert classes.missing_classes(decisions, ["a", "b", "c"]) == ["c"]


def test_of_many_classes_only_the_worst_are_listed() -> None:
    table = sharp_table(500, 40)
    found = classes.class_table(table, classes.Decisions.of(table), classes.class_names(table), num_bins=15, at_most=7)
    every = classes.class_table(table, classes.Decisions.of(table), classes.class_names(table), num_bins=15, at_most=40)
    assert (found.num_classes, found.name, found.ece) == (40, every.name[:7], every.ece[:7])


def test_confusions_are_counted_among_confident_errors_only() -> None:
    label = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    predicted = np.array([1, 1, 0, 0, 1, 0, 2, 2])
    confidence = np.array([0.9, 0.8, 0.99, 0.95, 0.6, 0.4, 0.7, 0.85])
    found = classes.confusions(classes.Decisions(label, predicted, None), confidence, ["a", "b", "c"])
    assert found.threshold == 0.85  # half of the rows reach it
    assert found.total == 2
    assert list(zip(found.true, found.predicted, found.count, strict=True)) == [("b", "a", 1), ("a", "b", 1)]
    assert found.mean_confidence == [0.95, 0.9]


def test_unsure_models_have_confident_errors_from_one_half_on() -> None:
    confidence = np.array([0.3, 0.35, 0.4, 0.55])
    found = classes.confusions(classes.Decisions(np.zeros(4, int), np.ones(4, int), None), confidence, ["a", "b"])
    assert (found.threshold, found.total, found.count) == (0.5, 1, [1])


def test_errors_of_a_model_that_is_always_sure_are_confident_from_nine_tenths_on() -> None:
    confidence = np.array([0.85, 0.92, 0.9999, 0.99999])
    found = classes.confusions(classes.Decisions(np.zeros(4, int), np.ones(4, int), None), confidence, ["a", "b"])
    assert (found.threshold, found.total) == (0.9, 3)


def test_the_most_frequent_confusion_comes_first_and_there_are_fifteen_at_most() -> None:
    generator = np.random.default_rng(0)
    label, predicted = generator.integers(0, 30, (2, 3000))
    found = classes.confusions(classes.Decisions(label, predicted, None), np.ones(3000), [str(k) for k in range(30)])
    assert len(found.count) == 15
    assert found.count == sorted(found.count, reverse=True)
    assert found.total == int((label != predicted).sum())
    pairs = zip(found.true, found.predicted, found.count, strict=True)
    assert all(count == ((label == int(a)) & (predicted == int(b))).sum() for a, b, count in pairs)


def test_rows_of_weight_zero_do_not_count() -> None:
    table = sharp_table(100, 3, weights=np.repeat([1.0, 0.0], 50))
    assert len(classes.Decisions.of(table).label) == 50


def test_labels_are_asked_for_by_the_name_of_the_table() -> None:
    with pytest.raises(InputError, match=r"unlabelled.*must have labels"):
        classes.Decisions.of(PredictionTable("unlabelled", np.zeros((3, 2)), "logits"))
