"""Selecting a calibrator: folds, scores, the verdict and the nested score, on data whose truth is known."""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import stats

import focalcal as fc
from focalcal import calibrators, metrics as m
from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.identity import Identity
from focalcal.calibrators.search import Criterion
from focalcal.core.optimum import Optimum
from focalcal.select import Selection, select_calibrator
from focalcal.select.contest import Contest, Entry, simplest_within_noise
from focalcal.select.folds import FoldedRows
from focalcal.select.methods import in_order_of_simplicity, suitable_methods
from focalcal.select.recommendation import Recommendation, recommend, verdict_of
from focalcal.select.result import MethodScore, corrected
from focalcal.select.selection import criteria

TS = calibrators.TemperatureScaling


def draw(num_rows, num_classes=4, temperature=1.0, seed=0):
    """Logits that are the truth times a temperature, and labels drawn from the truth."""
    rng = np.random.default_rng(seed)
    truth = 1.5 * rng.normal(size=(num_rows, num_classes))
    probs = np.exp(truth) / np.exp(truth).sum(1, keepdims=True)
    labels = (probs.cumsum(1) > rng.random((num_rows, 1))).argmax(1)
    return temperature * truth, labels


LOGITS, LABELS = draw(400, temperature=3.0)


class Small(Calibrator):
    """Divides by a fixed number; what a fit is given is put into `SEEN`."""

    FITTED = ("factor_",)
    SEEN: ClassVar[list[np.ndarray]] = []

    def __init__(self, factor=1.0, fail_below=0):
        super().__init__()
        self.criterion, self.factor, self.fail_below = Criterion("nll"), factor, fail_below

    def settings(self):
        return {"factor": self.factor, "fail_below": self.fail_below}

    def _fit(self, data):
        blocks = data.reduce(list, operator.add)
        rows = torch.cat([block.logits for block in blocks]).numpy()
        weight = blocks[0].weight
        self.SEEN.append(rows if weight is None else np.column_stack([rows, weight.numpy()]))
        if len(rows) < self.fail_below:
            raise ArithmeticError(f"only {len(rows)} rows")
        self._set(factor_=self.factor)
        return Optimum(None, 0.0, 1, before=1.0)  # whatever it is, it is used

    def _log_probs(self, logits):
        return torch.log_softmax(logits / self._value("factor_").to(logits.dtype), 1)


class Permuted(Small):
    """Gives the logits of the classes to other classes."""

    def __init__(self, order):
        super().__init__()
        self.order = list(order)

    def settings(self):
        return {"order": self.order}

    def _log_probs(self, logits):
        return torch.log_softmax(logits[:, self.order], 1)


class Memory(Small):
    """Confident on the rows it has seen: only honest predictions are unsure."""

    def _fit(self, data):
        outcome = super()._fit(data)
        self.seen = {tuple(row) for row in self.SEEN[-1]}
        return outcome

    def _log_probs(self, logits):
        known = torch.tensor([[tuple(row) in self.seen] for row in logits.tolist()])
        return torch.log_softmax(torch.where(known, 1000 * logits, 0 * logits), 1)


def draw_useless(num_rows, num_classes, seed):
    """Logits that know nothing of the labels: all permutations of the classes are equally bad in truth."""
    rng = np.random.default_rng(seed)
    return 1.5 * rng.normal(size=(num_rows, num_classes)), rng.integers(0, num_classes, num_rows)


@pytest.fixture(autouse=True)
def _forget():
    Small.SEEN.clear()


@pytest.fixture(autouse=True, scope="module")
def few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("focalcal.select.selection._NUM_RESAMPLES", 100)
        yield


@pytest.fixture(scope="module")
def overconfident(few_resamples):
    return select_calibrator(LOGITS, LABELS, methods=["TemperatureScaling", Small(2.0), Small(0.5)])


def row_of(selection, name):
    return next(row for row in selection.table if row.name == name)


# ---------------------------------------------------------------------- what comes out


def test_overconfidence_is_found_and_mended(overconfident):
    best = overconfident.table[0]
    assert best.name == overconfident.winner_name == "temperature"
    assert overconfident.winner is overconfident.best
    assert overconfident.winner.temperature_ == pytest.approx(TS().fit(LOGITS, LABELS).temperature_, rel=1e-12)
    assert best.p_corrected < 0.05
    assert best.difference_high < 0
    assert overconfident.verdict.startswith("Use temperature: nll ")
    assert [row.name for row in overconfident.table][-2:] == ["identity", "Small(factor=0.5)"]
    assert overconfident.chosen == {"temperature": 5}


def test_calibrated_logits_are_kept_as_they_are():
    logits, labels = draw(400, seed=1)
    selection = select_calibrator(logits, labels, methods=[TS(), Small(0.99)])
    assert selection.verdict.startswith(
        "No method is significantly better than the raw logits (best: Small(factor=0.99"
    )
    assert selection.verdict.endswith("Keep the logits as they are, or collect more rows.")
    assert selection.winner_name == "identity"
    assert isinstance(selection.winner, Identity)
    np.testing.assert_allclose(selection.winner(logits), np.log(m_softmax(logits)), atol=1e-12)


def test_methods_that_are_all_worse_are_said_to_be():
    selection = select_calibrator(*draw(300), methods=[Small(4.0)], nested=False)
    assert selection.verdict.startswith(
        "No method is better than the raw logits (best: Small(factor=4.0), difference +"
    )
    assert selection.table[0].name == "identity"
    assert isinstance(selection.best, Identity)
    assert selection.winner_name == "identity"


def m_softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_the_best_method_is_kept_beside_a_cautious_winner():
    logits, labels = draw(60, temperature=1.3, seed=5)
    selection = select_calibrator(logits, labels, methods=[TS()], nested=False)
    assert selection.table[0].name == "temperature"
    assert selection.winner_name == "identity"
    assert isinstance(selection.best, TS)
    assert "No method is significantly better than the raw logits (best: temperature, " in selection.verdict


# ---------------------------------------------------------------------- folds


def test_folds_never_overlap_with_the_rows_that_a_fit_is_given():
    select_calibrator(LOGITS[:60], LABELS[:60], methods={"small": Small(2.0)}, nested=False)
    *folds, refit = Small.SEEN
    assert len(folds) == 5
    assert len(refit) == 60
    held_out = [{tuple(row) for row in LOGITS[:60]} - {tuple(row) for row in seen} for seen in folds]
    assert [len(part) for part in held_out] == [12] * 5
    assert len(set.union(*held_out)) == 60


def test_predictions_come_from_fits_that_did_not_see_the_row():
    selection = select_calibrator(LOGITS[:50], LABELS[:50], methods={"memory": Memory()}, num_repeats=2)
    assert row_of(selection, "memory").score == pytest.approx(np.log(4), abs=1e-12)
    assert selection.num_repeats == 2


def test_the_nested_fits_leave_out_two_folds_and_are_shared():
    select_calibrator(LOGITS[:60], LABELS[:60], methods={"small": Small(2.0)}, num_folds=4)
    sizes = [len(seen) for seen in Small.SEEN]
    assert sizes == [45] * 4 + [30] * 6 + [60]
    left_out = [frozenset(map(tuple, LOGITS[:60])) - frozenset(map(tuple, seen)) for seen in Small.SEEN]
    pairs = {left_out[i] | left_out[j] for i in range(4) for j in range(i)}
    assert set(left_out[4:10]) == pairs


@pytest.mark.parametrize("num_folds", [2, 3, 7])
def test_every_class_is_dealt_out_evenly(num_folds):
    labels = np.repeat([0, 1, 2], [50, 7, 2])
    data = FoldedRows.read(np.zeros((59, 3)), labels, "logits", None)
    folds = data.folds(num_folds, np.random.default_rng(0))
    for rows in (labels >= 0, labels == 0, labels == 1, labels == 2):
        counts = np.bincount(folds[rows], minlength=num_folds)
        assert counts.max() - counts.min() <= 1


def test_all_positions_of_a_sample_are_in_one_fold():
    logits = np.random.default_rng(0).normal(size=(12, 3, 2, 2))
    labels = np.zeros((12, 2, 2), dtype=int)
    weight = np.ones_like(labels)
    weight[0] = weight[1, 0] = 0  # all of one sample, some of another
    for given, samples in ((None, np.repeat(range(12), 4)), (weight, [1, 1, *np.repeat(range(2, 12), 4)])):
        data = FoldedRows.read(logits, labels, "logits", given)
        folds = data.folds(3, np.random.default_rng(0))
        assert len(folds) == len(samples)
        assert len(set(zip(folds.tolist(), samples, strict=True))) == len(set(samples)) == data.num_samples
    assert select_calibrator(logits, labels, methods=[Small()], num_folds=3).num_rows == 48


# ---------------------------------------------------------------------- scores, by hand


def by_hand(logits, labels, template, num_folds, seed, weight=None):
    """Log-probabilities of held-out rows by the folds of a seed, in plain numpy and torch."""
    rng = np.random.default_rng([seed, 0])
    folds = np.empty(len(labels), int)
    folds[np.lexsort((rng.random(len(labels)), labels))] = np.arange(len(labels)) % num_folds
    held_out = np.empty_like(logits)
    for fold in range(num_folds):
        out = folds == fold
        part = None if weight is None else weight[~out]
        held_out[out] = template().fit(logits[~out], labels[~out], sample_weight=part)(logits[out])
    return held_out


@pytest.mark.parametrize(
    ("criterion", "weighted"),
    [("nll", False), ("nll", True), ("ece", True), ("ada_ece", False), ("ada_ece", True), ("classwise_ece", False)],
)
def test_scores_intervals_and_p_values_are_those_of_bootstrap_and_compare(criterion, weighted, monkeypatch):
    logits, labels = LOGITS[:100], LABELS[:100]
    weight = np.random.default_rng(5).uniform(0.5, 2, 100) if weighted else None
    selection = select_calibrator(
        logits, labels, methods=[TS()], criterion=criterion, nested=False, seed=3, sample_weight=weight, level=0.9
    )
    held_out = by_hand(logits, labels, TS, 5, 3, weight)
    options = {"kind": "log_probs", "sample_weight": weight, "level": 0.9, "seed": 3, "num_resamples": 100}
    compared = fc.compare(held_out, np.log(m_softmax(logits)), labels, metric=criterion, **options)
    row = row_of(selection, "temperature")
    found = [row.score, row.difference, row.difference_low, row.difference_high, row.p_value]
    expected = [compared.first, compared.difference, compared.low, compared.high, compared.p_value]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert row_of(selection, "identity").score == pytest.approx(compared.second, abs=1e-9)
    assert selection.definition == compared.definition
    # `bootstrap` would sort the rows first, and so draw others.
    monkeypatch.setattr(m.read(logits, labels).__class__, "in_order", lambda rows: rows)
    interval = fc.bootstrap(criterion, held_out, labels, **options)
    assert [row.low, row.high] == pytest.approx([interval.low, interval.high], abs=1e-9)


@pytest.mark.parametrize("criterion", ["nll", "brier", "ada_ece", "classwise_ece"])
@pytest.mark.parametrize("num_repeats", [1, 2])
def test_methods_are_measured_together_as_they_are_one_by_one(criterion, num_repeats, monkeypatch):
    def rows(methods):
        options = {"criterion": criterion, "num_repeats": num_repeats, "nested": False}
        # At this level as few resamples are drawn for three methods as for one.
        found = select_calibrator(LOGITS[:120], LABELS[:120], methods=methods, level=0.5, **options)
        numbers = [field.name for field in dataclasses.fields(MethodScore) if field.name not in ("name", "fit_seconds")]
        return {row.name: {name: getattr(row, name) for name in numbers} for row in found.table}

    def check(found):
        for name, row in together.items():
            for field, value in row.items():
                if field != "p_corrected":
                    assert found[name][field] == (value if value is None else pytest.approx(value, abs=1e-10))

    methods = {"small": Small(2.0), "large": Small(5.0), "temperature": TS()}
    together = rows(methods)
    check({name: row for each in methods for name, row in rows({each: methods[each]}).items()})
    monkeypatch.setattr("focalcal.select.contest._WAITING", 1)  # no room for two
    check(rows(methods))


def test_whole_weights_change_scores_as_repeated_rows_do():
    weight = np.random.default_rng(2).integers(0, 3, len(LABELS))
    selection = select_calibrator(LOGITS, LABELS, methods=[Small(2.0)], nested=False, sample_weight=weight)
    repeated = np.repeat(np.arange(len(LABELS)), weight)
    assert selection.num_rows == (weight > 0).sum()
    score = row_of(selection, "Small(factor=2.0)").score
    assert score == pytest.approx(m.nll(LOGITS[repeated] / 2, LABELS[repeated]), abs=1e-12)
    assert all((seen[:, -1] > 0).all() for seen in Small.SEEN)


def test_repeats_are_averaged_and_make_the_score_steadier():
    first, second = (select_calibrator(LOGITS, LABELS, methods=[TS()], nested=False, seed=s) for s in (0, 1))
    once, again = (row_of(s, "temperature").score for s in (first, second))
    assert once != again
    single = [by_hand_seeded(repeat) for repeat in range(3)]
    many = select_calibrator(LOGITS, LABELS, methods=[TS()], nested=False, num_repeats=3)
    assert row_of(many, "temperature").score == pytest.approx(np.mean(single), abs=1e-12)
    low, high = row_of(many, "temperature").low, row_of(many, "temperature").high
    assert low < np.mean(single) < high


def by_hand_seeded(repeat):
    folds = FoldedRows.read(LOGITS, LABELS, "logits", None).folds(5, np.random.default_rng([0, repeat]))
    held_out = np.empty_like(LOGITS)
    for fold in range(5):
        out = folds == fold
        held_out[out] = TS().fit(LOGITS[~out], LABELS[~out])(LOGITS[out])
    return m.nll(held_out, LABELS)


def test_the_debiased_error_of_repeats_has_the_bias_of_one_round_taken_off():
    logits, labels = LOGITS[:150], LABELS[:150]
    selection = select_calibrator(
        logits, labels, methods=[Small(3.0)], criterion="ece_debiased", nested=False, num_repeats=2
    )
    # All rounds predict the same here, so that repeating them must change nothing.
    expected = fc.compare(logits / 3, logits, labels, metric="ece_debiased", num_resamples=100)
    row = row_of(selection, "Small(factor=3.0)")
    found = [row.score, row.difference, row.difference_low, row.difference_high]
    assert found == pytest.approx([expected.first, expected.difference, expected.low, expected.high], abs=1e-9)


def test_probabilities_give_what_their_logits_give():
    probs = m_softmax(LOGITS)
    from_probs = select_calibrator(probs, LABELS, kind="probs", methods=[TS()], nested=False)
    from_logs = select_calibrator(np.log(probs), LABELS, kind="log_probs", methods=[TS()], nested=False)
    from_logits = select_calibrator(LOGITS, LABELS, methods=[TS()], nested=False)
    for selection in (from_probs, from_logs):
        assert selection.table[0].score == pytest.approx(from_logits.table[0].score, abs=1e-9)


def test_scores_of_the_positive_class_do_as_well():
    logits = LOGITS[:, 1] - LOGITS[:, 0]
    labels = (np.random.default_rng(0).random(400) < 1 / (1 + np.exp(-logits / 3))).astype(int)
    one = select_calibrator(logits, labels, methods=[TS()])
    two = select_calibrator(np.stack([0 * logits, logits], 1), labels, methods=[TS()])
    assert one.table[0].score == two.table[0].score
    assert one.winner.predict_probs(logits).shape == (400,)


@pytest.mark.parametrize("criterion", criteria())
def test_every_criterion_works_also_on_few_rows(criterion):
    logits, labels = draw(12, 3, temperature=2.0)
    selection = select_calibrator(logits, labels, methods=[Small(2.0)], criterion=criterion, num_folds=3, level=0.5)
    assert all(np.isfinite(row.score) for row in selection.table)
    json.dumps(selection.to_dict(), allow_nan=False)


def test_a_class_of_probability_zero_gives_an_infinite_score_and_no_warning():
    class Certain(Small):
        def _log_probs(self, logits):
            top = torch.nn.functional.one_hot(logits.argmax(1), logits.shape[1])
            return torch.log(top.to(logits.dtype))

    selection = select_calibrator(LOGITS, LABELS, methods={"certain": Certain(), "small": Small(2.0)})
    assert [row.name for row in selection.table] == ["small", "identity", "certain"]
    assert selection.table[-1].score == np.inf
    assert selection.table[-1].p_value is None
    assert selection.to_dict()["table"][-1]["score"] == "inf"
    assert selection.winner_name == "small"
    alone = select_calibrator(LOGITS, LABELS, methods={"certain": Certain()})
    assert alone.verdict.startswith("No method gives a finite nll.")


# ---------------------------------------------------------------------- the correction


def test_p_values_are_corrected_as_by_hand():
    given = [0.01, 0.04, None, 0.03, 0.005, 0.9]
    rows = corrected([MethodScore(str(p), p_value=p) for p in given])
    # Sorted: 0.005 * 5, 0.01 * 4, 0.03 * 3, 0.04 * 2 (not below the one before), 0.9 * 1.
    assert [row.p_corrected for row in rows] == pytest.approx([0.04, 0.09, None, 0.09, 0.025, 0.9])


def test_many_methods_can_be_significant_all_the_same():
    methods = {f"small {i}": Small(2.0 + i / 50) for i in range(10)}
    selection = select_calibrator(LOGITS[:150], LABELS[:150], methods=methods, nested=False, num_folds=2)
    assert selection.table[0].p_corrected < 0.05
    assert selection.winner_name != "identity"


@pytest.mark.slow
def test_chance_is_rarely_called_significant():
    """Where no method is better, at most 5 % of selections may say that one is, over all methods together."""
    methods = {f"order {order}": Permuted(order) for order in itertools.permutations(range(3)) if order != (0, 1, 2)}
    found = [
        select_calibrator(*draw_useless(100, 3, seed), methods=methods, nested=False, num_folds=2).winner_name
        for seed in range(40)
    ]
    wrong = sum(name != "identity" for name in found)
    assert stats.binom.sf(wrong - 1, 40, 0.05) > 1e-3


# ---------------------------------------------------------------------- the nested score


def test_the_nested_score_is_that_of_the_method_when_there_is_no_choice():
    better = select_calibrator(LOGITS, LABELS, methods=[TS()])
    row = row_of(better, "temperature")
    assert better.chosen == {"temperature": 5}
    for name in ("score", "low", "high", "difference", "p_value"):
        assert getattr(better.nested, name) == getattr(row, name)
    worse = select_calibrator(*draw(300), methods=[Small(5.0)])
    assert worse.chosen == {"identity": 5}
    assert worse.nested.score == row_of(worse, "identity").score
    assert worse.nested.difference == 0
    assert select_calibrator(LOGITS, LABELS, methods=[TS()], nested=False).nested is None


def test_the_choice_without_a_fold_uses_no_fit_that_saw_the_fold(monkeypatch):
    logits, labels, used = LOGITS[:50], LABELS[:50], []

    def rows(contest, folds, by_fold):
        missing = set(range(5)) - set(by_fold)
        for fold, calibrator in by_fold.items():
            if isinstance(calibrator, Memory):
                hidden = np.isin(folds, [fold, *missing])
                used.append((len(missing), len(calibrator.seen & {tuple(row) for row in logits[hidden]})))
        return original(contest, folds, by_fold)

    original = Contest._rows
    monkeypatch.setattr(Contest, "_rows", rows)
    select_calibrator(logits, labels, methods={"memory": Memory()})
    assert used.count((0, 0)) >= 5
    assert used.count((1, 0)) == 20
    assert all(seen == 0 for _, seen in used)


@pytest.mark.slow
def test_the_nested_score_is_not_optimistic_where_the_naive_one_is():
    methods = {f"order {order}": Permuted(order) for order in itertools.permutations(range(4)) if order != (0, 1, 2, 3)}
    naive, nested = [], []
    for seed in range(20):
        logits, labels = draw_useless(100, 4, seed)
        selection = select_calibrator(logits, labels, methods=methods, level=0.5)
        truth = -np.log(m_softmax(logits)).mean()  # of every method, over all labels that might have been
        naive.append(selection.table[0].score - truth)
        nested.append(selection.nested.score - truth)
    assert np.mean(naive) < -0.1
    assert stats.ttest_1samp(naive, 0).pvalue < 1e-6
    assert abs(np.mean(nested)) < 0.1
    assert stats.ttest_1samp(nested, 0).pvalue > 0.01


# ---------------------------------------------------------------------- methods


def test_methods_are_calibrators_classes_names_or_a_mapping_of_them():
    template = TS("ada_ece")
    for methods, names in [
        ("temperature", ["temperature"]),
        ("TemperatureScaling", ["temperature"]),
        ("Temperature:ada_ece", ["temperature:ada_ece"]),
        (TS, ["temperature"]),
        (template, ["temperature:ada_ece"]),
        ((TS, template), ["temperature", "temperature:ada_ece"]),
        ({"a": "TemperatureScaling", "b": TS}, ["a", "b"]),
        ([calibrators.Compose(calibrators.FocalCalibration(1.0), TS())],
         ["Compose(focal(gamma=1.0), temperature)"]),
    ]:  # fmt: skip
        selection = select_calibrator(LOGITS[:50], LABELS[:50], methods=methods, nested=False, num_folds=2, level=0.5)
        assert sorted(row.name for row in selection.table) == sorted(["identity", *names])
    assert not template.is_fitted


@pytest.mark.slow
def test_every_calibrator_of_the_table_can_be_named():
    logits, labels = draw(60, 2, temperature=2.0)
    names = [name for name in calibrators.calibrator_names() if name != "identity"]
    selection = select_calibrator(logits, labels, methods=names, num_folds=2, nested=False, level=0.5)
    for name in names:
        row = row_of(selection, name)
        assert row.error is None
        assert np.isfinite(row.score)
        assert row.fit_seconds > 0


def test_the_default_set_leaves_out_what_does_not_suit_the_data():
    templates, left_out = suitable_methods(num_classes=2, num_rows=1000)
    assert len(templates) == sum(len(entry.tried) for entry in calibrators.table.calibrator_entries())
    assert left_out == {}
    templates, left_out = suitable_methods(num_classes=100, num_rows=5000)
    assert left_out["platt"] == "it is for two classes, and there are 100"
    assert left_out["matrix"] == "it has 10,100 parameters, more than the 5,000 rows"
    assert set(left_out) == {"platt", "beta", "matrix", "dirichlet"}
    assert not set(left_out) & set(templates)
    assert {"temperature", "temperature:ada_ece"} <= set(templates)


@pytest.mark.slow
def test_the_default_set_mends_overconfidence():
    logits, labels = draw(1000, 3, temperature=3.0)
    selection = select_calibrator(logits, labels, num_folds=3)
    assert not [row for row in selection.table if row.error is not None]
    assert selection.winner_name != "identity"
    assert selection.nested.difference_high < 0
    assert "platt left out: it is for two classes, and there are 3." in str(selection)
    assert selection.left_out


def test_a_method_that_raises_is_listed_and_kills_nothing():
    selection = select_calibrator(LOGITS, LABELS, methods={"broken": Small(fail_below=1000), "fine": TS()})
    broken = row_of(selection, "broken")
    assert broken is selection.table[-1]
    assert (broken.score, broken.failures, broken.error) == (None, 1, "ArithmeticError: only 320 rows")
    assert selection.winner_name == "fine"
    assert "broken: 1 fit failed: ArithmeticError: only 320 rows" in str(selection)


def test_a_method_that_fails_on_fewer_rows_is_scored_but_not_chosen_inside():
    selection = select_calibrator(LOGITS, LABELS, methods={"needy": Small(2.0, fail_below=300)})
    needy = row_of(selection, "needy")
    assert needy.score == pytest.approx(m.nll(LOGITS / 2, LABELS))
    assert needy.failures == 10
    assert selection.chosen == {"identity": 5}


def test_a_method_that_fails_on_all_rows_falls_behind_the_next():
    class Full(Small):
        def _fit(self, data):
            outcome = super()._fit(data)
            if len(self.SEEN[-1]) == 400:
                raise ArithmeticError("too many")
            return outcome

    selection = select_calibrator(LOGITS, LABELS, methods={"full": Full(3.0), "small": Small(2.0)})
    assert [row.name for row in selection.table] == ["small", "identity", "full"]
    assert selection.table[-1].error == "ArithmeticError: too many"
    assert selection.winner_name == "small"


def test_predictions_that_are_no_numbers_count_as_a_failure():
    class Lost(Small):
        def _log_probs(self, logits):
            return logits * float("nan")

    selection = select_calibrator(LOGITS, LABELS, methods={"lost": Lost(), "fine": TS()}, nested=False)
    assert "finite" in row_of(selection, "lost").error


def test_if_all_fail_that_is_an_error():
    with pytest.raises(fc.FocalCalError, match=r"No method could be fitted\. a: ArithmeticError: .* b: Arithm"):
        select_calibrator(LOGITS, LABELS, methods={"a": Small(fail_below=999), "b": Small(fail_below=999)})


# ---------------------------------------------------------------------- the result


def test_the_seed_decides_everything():
    def run(seed):
        plain = select_calibrator(LOGITS[:150], LABELS[:150], methods=[TS(), Small(2.0)], seed=seed).to_dict()
        for row in plain["table"]:
            row.pop("fit_seconds")
        return plain

    assert run(0) == run(0)
    assert run(0)["table"] != run(1)["table"]


def test_to_dict_is_json(overconfident):
    plain = json.loads(json.dumps(overconfident.to_dict(), allow_nan=False))
    assert plain["winner_name"] == "temperature"
    assert plain["table"][0]["score"] == overconfident.table[0].score
    assert plain["nested"]["name"] == "select, then calibrate"
    assert plain["criterion"] == "nll"
    assert not {"winner", "best"} & set(plain)


def test_the_selection_prints_as_a_table(overconfident):
    lines = str(overconfident).splitlines()
    assert lines[0] == "NLL in nats, mean over rows; 400 rows, 4 classes, 5 folds"
    assert lines[1].split()[:2] == ["method", "nll"]
    assert [line.split()[0] for line in lines[2:6]] == [row.name for row in overconfident.table]
    assert len({len(line) for line in lines[1:7]}) == 1
    assert lines[-1] == overconfident.verdict
    page = overconfident._repr_html_()
    assert page.count("<tr>") == 6
    assert "Small(factor=2.0)" in page


def test_names_are_escaped_on_the_page():
    selection = select_calibrator(LOGITS, LABELS, methods={"<b>": TS()}, nested=False)
    assert "&lt;b&gt;" in selection._repr_html_()
    assert "<b>" not in selection._repr_html_()


def test_a_selection_is_frozen(overconfident):
    assert isinstance(overconfident, Selection)
    with pytest.raises(AttributeError):
        overconfident.verdict = "all is well"


def test_progress_counts_to_the_end_also_past_failures():
    calls = []
    methods = {"a": TS(), "b": Small(fail_below=999)}
    select_calibrator(LOGITS, LABELS, methods=methods, progress=lambda *call: calls.append(call))
    done = [call[0] for call in calls]
    assert done == sorted(set(done))
    assert calls[-1] == (46, 46, "a")  # (5 + 10 fits) of the identity and both methods, and the last one


def test_what_progress_raises_ends_the_selection():
    def stop(done, total, what):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        select_calibrator(LOGITS, LABELS, methods=[TS()], progress=stop)


def test_logits_that_look_like_probabilities_are_warned_of_once():
    with pytest.warns(fc.InputWarning) as warned:
        select_calibrator(m_softmax(LOGITS), LABELS, methods=[TS()], nested=False)
    assert len(warned) == 1


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_folds": 1}, "num_folds: must be at least 2"),
        ({"num_folds": 2}, "num_folds: must be at least 3 for a nested score; got 2. Take more folds, or nested=False"),
        ({"num_folds": 2.5}, "must be whole numbers"),
        ({"num_folds": 401}, "logits: 401 folds need as many rows; got 400"),
        ({"num_repeats": 0}, "num_repeats: must be at least 1"),
        ({"criterion": "accuracy"}, "criterion: must be one of error, nll, brier"),
        ({"criterion": "ecce"}, "criterion: must be one of error"),
        ({"level": 95}, "level: must lie between 0 and 1"),
        ({"level": 1.0}, "level: must lie between 0 and 1"),
        ({"seed": -1}, "seed: must not be negative"),
        ({"methods": []}, "methods: must name at least one method"),
        ({"methods": {}}, "methods: must name at least one method"),
        ({"methods": ["Tempered"]}, "must be one of .*temperature.*'Tempered'"),
        ({"methods": ["load_calibrator"]}, "must be one of identity"),
        ({"methods": ["Calibrator"]}, "must be one of identity"),
        ({"methods": [3]}, "methods: must be calibrators, their classes or names; got 3"),
        ({"methods": [TS(), TS()]}, "names must differ from one another and from identity; got temperature"),
        ({"methods": {"identity": TS()}}, "names must differ from one another and from identity; got identity"),
        ({"kind": "logit"}, "kind: must be one of"),
        ({"sample_weight": np.ones(3)}, "sample_weight: must have shape"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_a_way_out(options, message):
    with pytest.raises(fc.InputError, match=message):
        select_calibrator(LOGITS, LABELS, **{"methods": [TS()], **options})


def test_broken_logits_are_refused():
    broken = LOGITS.copy()
    broken[17, 0] = np.nan
    with pytest.raises(fc.InputError, match="row 17"):
        select_calibrator(broken, LABELS, methods=[TS()])


# ---------------------------------------------------------------------- the identity


def test_the_identity_is_a_calibrator_like_any_other(tmp_path):
    fitted = Identity().fit(LOGITS, LABELS)
    assert fitted.report_.before == fitted.report_.after == pytest.approx(m.nll(LOGITS, LABELS), rel=1e-12)
    assert not fitted.report_.kept_identity
    streamed = Identity().fit(lambda: [(LOGITS[:100], LABELS[:100]), (LOGITS[100:], LABELS[100:])])
    assert streamed.report_.before == pytest.approx(fitted.report_.before, rel=1e-12)
    fitted.save(tmp_path / "identity.json")
    again = calibrators.load_calibrator(tmp_path / "identity.json")
    assert isinstance(again, Identity)
    np.testing.assert_array_equal(again.predict_probs(LOGITS), fitted.predict_probs(LOGITS))
    np.testing.assert_allclose(fitted.predict_probs(LOGITS), m_softmax(LOGITS), atol=1e-15)
    assert repr(fitted) == "Identity()"


@pytest.mark.slow
def test_the_identity_can_be_exported(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    Identity().fit(LOGITS, LABELS).to_onnx(tmp_path / "identity.onnx")
    session = runtime.InferenceSession(tmp_path / "identity.onnx")
    (found,) = session.run(None, {"logits": LOGITS[:5].astype(np.float32)})
    np.testing.assert_allclose(np.exp(found), m_softmax(LOGITS[:5]), atol=1e-6)


# ---------------------------------------------------------------------- what is recommended


def entry_of(name: str, score: float, differences: list[float] | None = None) -> Entry:
    entry = Entry(Identity(), MethodScore(name, score=score), [])
    entry.differences = None if differences is None else np.array(differences)
    return entry


def test_the_simplest_method_within_one_standard_error_of_the_best_is_chosen():
    drawn = {"identity": [0.0] * 4, "temperature": [-2.0, -1.8, -2.2, -2.0], "matrix": [-2.1, -2.1, -2.1, -2.1]}
    entries = {name: entry_of(name, 0.0, each) for name, each in drawn.items()}
    noise = np.std([0.1, 0.3, -0.1, 0.1], ddof=1)
    scores = {"identity": 3.0, "temperature": 1.0 + 0.99 * noise, "matrix": 1.0}
    assert simplest_within_noise(entries, scores) == "temperature"
    assert simplest_within_noise(entries, scores | {"temperature": 1.0 + 1.01 * noise}) == "matrix"
    assert simplest_within_noise({name: entry_of(name, 0.0) for name in drawn}, scores) == "matrix"  # noise unknown


def test_a_simple_method_is_recommended_before_an_elaborate_one_that_is_no_better():
    logits, labels = draw(1500, temperature=2.5, seed=4)
    selection = select_calibrator(logits, labels, methods=["matrix", "isotonic", "vector", "temperature"])
    assert [row.name for row in selection.table if row.p_corrected is not None and row.p_corrected < 0.05]
    assert selection.winner_name == "temperature"
    assert isinstance(selection.winner, TS)
    assert selection.winner.temperature_ == pytest.approx(TS().fit(logits, labels).temperature_, rel=1e-12)
    assert selection.verdict.startswith("Use temperature: nll ")


def test_the_verdict_says_why_it_does_not_take_the_best_score():
    row = MethodScore("temperature", 1.01, difference=-0.2, difference_low=-0.3, difference_high=-0.1, p_corrected=0.01)
    best = dataclasses.replace(row, name="matrix", score=1.0)
    table = [best, row, MethodScore("identity", 1.2)]
    choice = Recommendation("temperature", best, noise=0.02)
    assert verdict_of(table, choice, None, "nll", 0.95) == (
        "Use temperature: nll 1.01 instead of 1.2 (difference -0.2, p = 0.01 after correction for 2 methods, 95% "
        "interval -0.3 to -0.1). matrix has 1, which is within one standard error (0.02) of it, and "
        "temperature is simpler."
    )


def test_nothing_is_recommended_that_the_nested_score_does_not_support():
    best = MethodScore("matrix", 1.0, difference=-0.2, difference_low=-0.3, difference_high=-0.1, p_corrected=0.01)
    table = [best, MethodScore("identity", 1.2)]
    entries = {"identity": entry_of("identity", 1.2), "matrix": entry_of("matrix", 1.0)}
    worse = MethodScore("select, then calibrate", 1.25, difference=0.05)
    choice = recommend(table, entries, worse, 0.95)
    assert (choice.name, choice.supported) == ("identity", False)
    assert verdict_of(table, choice, worse, "nll", 0.95) == (
        "Keep the logits as they are. matrix looks better (difference -0.2, p = 0.01), but choosing a method on "
        "these rows does not improve nll on new ones (select, then calibrate: +0.05). Collect more rows, or "
        "compare fewer methods."
    )
    assert recommend(table, entries, dataclasses.replace(worse, difference=-0.1), 0.95).name == "matrix"
    assert recommend(table, entries, None, 0.95).name == "matrix"


def test_methods_are_entered_in_order_of_simplicity():
    steps, vector = calibrators.IsotonicCalibration(), calibrators.VectorScaling()
    methods = {"steps": steps, "own": Small(2.0), "T": TS(), "per class": vector}
    assert list(in_order_of_simplicity(methods)) == ["T", "per class", "steps", "own"]
