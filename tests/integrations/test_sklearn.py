"""`CalibratedModel`: scikit-learn's own checks, the same work done by hand, and what can go wrong with folds."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from packaging.version import Version
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Lasso, LogisticRegression, Perceptron
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import focalcal as fc
from focalcal.integrations.sklearn import CalibratedModel, ReliabilityDisplay, calibration_scorer

DIGITS, DIGIT_LABELS = load_digits(return_X_y=True)
TRAIN, TEST, LABELS, TEST_LABELS = train_test_split(DIGITS, DIGIT_LABELS, test_size=0.5, random_state=0)
CANCER, CANCER_LABELS = load_breast_cancer(return_X_y=True)
SCALED = StandardScaler().fit_transform(CANCER)
NAMES = np.array(["malignant", "benign"])[CANCER_LABELS]


def nll(model, rows, labels):
    return log_loss(labels, model.predict_proba(rows))


def log_votes(probs):
    """Logarithms, with half the smallest probability in the place of 0."""
    return np.log(np.where(probs > 0, probs, probs[probs > 0].min() / 2))


def same(left, right):
    np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-15)


# ---------------------------------------------------------------------- scikit-learn's own checks


class ForTwoClasses(fc.TemperatureScaling):
    BINARY = True


# What scikit-learn calibrates by a temperature itself, to compare with.
if_it_has_temperatures = pytest.mark.skipif(
    Version(sklearn.__version__) < Version("1.8"), reason="scikit-learn has temperature scaling from 1.8 on"
)
# A calibrator is only ever fitted and called, so that a few of them stand for all.
SOME = [fc.TemperatureScaling(), fc.IsotonicCalibration(), fc.VectorScaling()]
# The rows of scikit-learn's weights check can be separated: where a linear fit stops depends on the rounding.
WITHOUT_AN_OPTIMUM = {"check_sample_weight_equivalence_on_dense_data": "the optimum lies at infinity"}


@pytest.mark.filterwarnings("ignore:The least populated class")  # scikit-learn 1.6 has a check with few rows of a class
@pytest.mark.parametrize(
    "model", [CalibratedModel(), CalibratedModel(GaussianNB(), fc.IsotonicCalibration(), cv=3, ensemble=True)]
)
def test_scikit_learns_checks_pass(model):
    results = check_estimator(model, on_skip=None)
    assert sum(result["status"] == "passed" for result in results) > 50


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "known"),
    [
        (CalibratedModel(method="predict_proba"), {}),
        (CalibratedModel(GaussianNB(), ForTwoClasses()), {}),
        (CalibratedModel(LogisticRegression(), fc.Compose(fc.FocalCalibration(), fc.TemperatureScaling()), cv=2), {}),
        (CalibratedModel(DecisionTreeClassifier(max_depth=3, random_state=0), cv=StratifiedKFold(2)), {}),
        (CalibratedModel(GaussianNB(), fc.PlattScaling(), cv=2), {}),
        (CalibratedModel(GaussianNB(), fc.HistogramBinning(), cv=2, ensemble=True), {}),
        (CalibratedModel(GaussianNB(), fc.VectorScaling(), cv=2), WITHOUT_AN_OPTIMUM),
    ],
)
def test_scikit_learns_checks_pass_with_other_settings(model, known):
    results = check_estimator(model, on_skip=None, expected_failed_checks=known)
    assert sum(result["status"] == "passed" for result in results) > 50


# ---------------------------------------------------------------------- the same by hand


@pytest.mark.parametrize("calibrator", [*SOME, fc.PlattScaling()], ids=lambda c: type(c).__name__)
@pytest.mark.parametrize(
    ("estimator", "method", "kind"),
    [(LinearSVC(random_state=0), "decision_function", "logits"), (GaussianNB(), "predict_proba", "probs")],
)
def test_one_calibrator_equals_out_of_fold_scores_and_a_refit(estimator, method, kind, calibrator):
    rows, labels, new = SCALED[:400], CANCER_LABELS[:400], SCALED[400:]
    model = CalibratedModel(estimator, calibrator, cv=4).fit(rows, labels)
    scores = cross_val_predict(estimator, rows, labels, cv=4, method=method)
    by_hand = copy.deepcopy(calibrator).fit(scores, labels, kind=kind)
    scores = getattr(clone(estimator).fit(rows, labels), method)(new)
    same(
        model.predict_proba(new),
        np.exp(by_hand(scores)) if kind == "logits" else by_hand.predict_probs(scores, kind=kind),
    )


@pytest.mark.parametrize("estimator", [HistGradientBoostingClassifier(max_iter=3, random_state=0), SVC()])
def test_margins_of_many_classes_equal_the_work_by_hand(estimator):
    model = CalibratedModel(estimator, cv=3).fit(TRAIN, LABELS)
    scores = cross_val_predict(estimator, TRAIN, LABELS, cv=3, method="decision_function")
    by_hand = fc.TemperatureScaling().fit(scores, LABELS)
    same(model.calibrator_.temperature_, by_hand.temperature_)
    same(model.predict_proba(TEST), by_hand.predict_probs(clone(estimator).fit(TRAIN, LABELS).decision_function(TEST)))
    assert model.zero_probs_ == [None]


def test_a_probability_of_zero_is_half_the_smallest_one():
    forest = RandomForestClassifier(9, random_state=0)
    model = CalibratedModel(forest, cv=3).fit(TRAIN, LABELS)
    scores = cross_val_predict(forest, TRAIN, LABELS, cv=3, method="predict_proba")
    zero = scores[scores > 0].min() / 2
    assert (scores[np.arange(len(LABELS)), LABELS] == 0).any()
    assert model.zero_probs_ == [zero]
    by_hand = fc.TemperatureScaling().fit(log_votes(scores), LABELS)
    new = forest.fit(TRAIN, LABELS).predict_proba(TEST)
    same(model.predict_proba(TEST), np.exp(by_hand(np.log(np.where(new > 0, new, zero)))))


def test_an_ensemble_is_the_mean_of_its_folds():
    model = CalibratedModel(GaussianNB(), cv=3, ensemble=True).fit(TRAIN, LABELS)
    each = []
    for train, test in StratifiedKFold(3).split(TRAIN, LABELS):
        fold = GaussianNB().fit(TRAIN[train], LABELS[train])
        calibrator = fc.TemperatureScaling().fit(fold.predict_proba(TRAIN[test]), LABELS[test], kind="probs")
        each.append(calibrator.predict_probs(fold.predict_proba(TEST), kind="probs"))
    same(model.predict_proba(TEST), np.mean(each, 0))
    same(np.exp(model.predict_log_proba(TEST)), np.mean(each, 0))
    assert len(model.calibrated_pairs_) == 3
    assert not hasattr(model, "estimator_")
    with pytest.raises(AttributeError, match="has no calibrator_: an ensemble has 3, in calibrated_pairs_"):
        model.calibrator_  # noqa: B018


@if_it_has_temperatures
@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize(("rows", "labels"), [(SCALED, CANCER_LABELS), (DIGITS / 16, DIGIT_LABELS)])
def test_temperature_agrees_with_scikit_learns(rows, labels, ensemble):
    estimator = LinearSVC(random_state=0)
    ours = CalibratedModel(estimator, cv=3, ensemble=ensemble).fit(rows[::2], labels[::2])
    theirs = CalibratedClassifierCV(estimator, method="temperature", cv=3, ensemble=ensemble).fit(
        rows[::2], labels[::2]
    )
    # Theirs stops at a tolerance of about 1e-6 in the temperature.
    np.testing.assert_allclose(ours.predict_proba(rows[1::2]), theirs.predict_proba(rows[1::2]), atol=2e-5)


def test_a_splitter_that_repeats_rows_is_welcome():
    splits = ShuffleSplit(3, test_size=0.4, random_state=0)
    model = CalibratedModel(GaussianNB(), cv=splits).fit(SCALED, CANCER_LABELS)
    scores, labels = [], []
    for train, test in splits.split(SCALED):
        scores.append(GaussianNB().fit(SCALED[train], CANCER_LABELS[train]).predict_proba(SCALED[test]))
        labels.append(CANCER_LABELS[test])
    by_hand = fc.TemperatureScaling().fit(np.concatenate(scores), np.concatenate(labels), kind="probs")
    same(model.calibrator_.temperature_, by_hand.temperature_)


def test_random_state_shuffles_the_folds():
    def temperature(**settings):
        return CalibratedModel(GaussianNB(), **settings).fit(TRAIN, LABELS).calibrator_.temperature_

    shuffled = StratifiedKFold(3, shuffle=True, random_state=1)
    assert temperature(cv=3, random_state=1) == temperature(cv=shuffled)
    assert temperature(cv=3, random_state=1) != temperature(cv=3, random_state=2)
    assert temperature(cv=3) == temperature(cv=StratifiedKFold(3))


# ---------------------------------------------------------------------- what it is for


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("calibrator", SOME, ids=lambda c: type(c).__name__)
def test_an_overconfident_model_is_cured(calibrator, ensemble):
    raw = GaussianNB(var_smoothing=1e-2).fit(TRAIN, LABELS)
    model = CalibratedModel(raw, calibrator, ensemble=ensemble, random_state=0).fit(TRAIN, LABELS)
    assert nll(model, TEST, TEST_LABELS) < 0.7 * nll(raw, TEST, TEST_LABELS)


# With few trees or neighbours some labels have no vote at all, and must not frighten the calibrator out of its wits.
@pytest.mark.parametrize("estimator", [RandomForestClassifier(n, random_state=0) for n in (10, 50)])
def test_an_unsure_forest_is_cured(estimator):
    forest = estimator.fit(TRAIN, LABELS)
    model = CalibratedModel(forest).fit(TRAIN, LABELS)
    assert model.calibrator_.temperature_ < 1
    assert nll(model, TEST, TEST_LABELS) < 0.5 * nll(forest, TEST, TEST_LABELS)
    assert np.mean(model.predict(TEST) == TEST_LABELS) == forest.score(TEST, TEST_LABELS)


@if_it_has_temperatures
@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("estimator", [KNeighborsClassifier(), RandomForestClassifier(20, random_state=0)])
def test_votes_are_better_calibrated_than_by_scikit_learn(estimator, ensemble):
    train, test, labels, test_labels = train_test_split(CANCER, CANCER_LABELS, test_size=0.5, random_state=0)
    ours = CalibratedModel(estimator, ensemble=ensemble).fit(train, labels)
    theirs = CalibratedClassifierCV(estimator, method="temperature", ensemble=ensemble).fit(train, labels)
    assert nll(ours, test, test_labels) < min(nll(m, test, test_labels) for m in (theirs, estimator.fit(train, labels)))


@pytest.mark.slow
def test_the_table_of_the_docs_is_true():
    page = (Path(__file__).resolve().parents[2] / "docs/sklearn.md").read_text()
    rows = re.findall(r"^\| (digits|breast cancer), (.*) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for data, name, *stated in rows:
        images, labels = load_digits(return_X_y=True) if data == "digits" else (CANCER, CANCER_LABELS)
        train, test, labels, test_labels = train_test_split(images, labels, test_size=0.5, random_state=0)
        size = int(re.search(r"\d+", name).group())
        estimator = RandomForestClassifier(size, random_state=0) if "forest" in name else KNeighborsClassifier(size)
        theirs = CalibratedClassifierCV(estimator, method="temperature", ensemble=False)
        measured = [
            nll(m.fit(train, labels), test, test_labels) for m in (estimator, theirs, CalibratedModel(estimator))
        ]
        np.testing.assert_allclose(measured, np.array(stated, float), atol=1e-3, err_msg=f"{data}, {name}")


# ---------------------------------------------------------------------- answers


def test_labels_may_be_strings_and_the_decision_is_the_log_odds_of_the_second():
    model = CalibratedModel(LinearSVC(random_state=0)).fit(SCALED, NAMES)
    numbers = CalibratedModel(LinearSVC(random_state=0)).fit(SCALED, 1 - CANCER_LABELS)  # in the same order
    assert model.classes_.tolist() == ["benign", "malignant"]
    probs, decision = model.predict_proba(SCALED), model.decision_function(SCALED)
    same(probs, numbers.predict_proba(SCALED))
    assert decision.shape == (len(SCALED),)
    same(decision, np.log(probs[:, 1]) - np.log(probs[:, 0]))
    assert (model.predict(SCALED) == model.classes_[(decision > 0).astype(int)]).all()
    assert model.score(SCALED, NAMES) > 0.95


def test_log_probabilities_do_not_underflow():
    model = CalibratedModel(LogisticRegression(), cv=3).fit(SCALED, CANCER_LABELS)
    far = 1e4 * SCALED[:5]
    assert (model.predict_proba(far).min(1) == 0).all()
    assert np.isfinite(model.predict_log_proba(far)).all()
    assert np.isfinite(model.decision_function(far)).all()


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")
def test_the_method_decides_which_scores_are_calibrated():
    by_margin, by_probability = (
        CalibratedModel(SVC(probability=True, random_state=0), method=method, cv=3)
        for method in ("decision_function", "predict_proba")
    )
    by_margin.fit(SCALED, CANCER_LABELS)
    by_probability.fit(SCALED, CANCER_LABELS)
    # The margins are a third of the log-odds; the probabilities are calibrated by Platt's method already.
    assert by_margin.calibrator_.temperature_ < 0.6
    assert abs(by_probability.calibrator_.temperature_ - 1) < 0.2


def test_single_precision_scores_stay_in_single_precision():
    class Single(GaussianNB):
        def predict_proba(self, X):
            return super().predict_proba(X).astype(np.float32)

    model = CalibratedModel(Single()).fit(SCALED, CANCER_LABELS)
    assert model.predict_proba(SCALED).dtype == np.float32
    double = CalibratedModel(GaussianNB()).fit(SCALED, CANCER_LABELS)
    np.testing.assert_allclose(model.calibrator_.temperature_, double.calibrator_.temperature_, rtol=0.05)


def test_tables_and_sparse_matrices_reach_the_estimator_as_they_are():
    table = pd.DataFrame(SCALED, columns=[f"column {i}" for i in range(SCALED.shape[1])])
    model = CalibratedModel(LogisticRegression(), cv=3).fit(table, pd.Series(NAMES))
    assert model.feature_names_in_.tolist() == table.columns.tolist()
    assert model.n_features_in_ == model.estimator_.n_features_in_ == SCALED.shape[1]
    sparse = CalibratedModel(LogisticRegression(), cv=3).fit(scipy.sparse.csr_matrix(SCALED), NAMES)
    assert not hasattr(sparse, "feature_names_in_")
    np.testing.assert_allclose(model.predict_proba(table), sparse.predict_proba(SCALED), atol=1e-3)


def test_it_takes_what_its_estimator_takes():
    assert get_tags(CalibratedModel(HistGradientBoostingClassifier())).input_tags.allow_nan
    assert not get_tags(CalibratedModel(LogisticRegression())).input_tags.allow_nan
    assert not get_tags(CalibratedModel(RandomForestClassifier())).classifier_tags.multi_label
    assert get_tags(CalibratedModel(calibrator=ForTwoClasses())).classifier_tags.multi_class
    assert not get_tags(CalibratedModel(threshold=0.5)).classifier_tags.multi_class


def test_kernel_matrices_are_cut_along_both_sides():
    kernel = SCALED @ SCALED.T
    model = CalibratedModel(SVC(kernel="precomputed"), cv=3).fit(kernel, CANCER_LABELS)
    linear = CalibratedModel(SVC(kernel="linear"), cv=3).fit(SCALED, CANCER_LABELS)
    np.testing.assert_allclose(model.predict_proba(kernel), linear.predict_proba(SCALED), rtol=1e-6)


# ---------------------------------------------------------------------- fitted before


@pytest.mark.parametrize("freeze", [False, True])
def test_a_fitted_estimator_is_left_as_it_is(freeze):
    fitted = GaussianNB().fit(TRAIN, LABELS)
    before, calibrator = pickle.dumps(fitted), fc.TemperatureScaling()
    estimator, cv = (FrozenEstimator(fitted), 5) if freeze else (fitted, "prefit")
    model = CalibratedModel(estimator, calibrator, cv=cv).fit(TEST[:400], TEST_LABELS[:400])
    assert pickle.dumps(fitted) == before
    assert model.estimator_ is estimator
    assert not calibrator.is_fitted
    by_hand = fc.TemperatureScaling().fit(fitted.predict_proba(TEST[:400]), TEST_LABELS[:400], kind="probs")
    same(model.predict_proba(TEST), by_hand.predict_probs(fitted.predict_proba(TEST), kind="probs"))


def test_a_fitted_estimator_keeps_classes_that_the_calibration_rows_lack():
    fitted, some = GaussianNB().fit(TRAIN, LABELS), TEST_LABELS < 7
    model = CalibratedModel(fitted, cv="prefit").fit(TEST[some], TEST_LABELS[some])
    assert model.classes_.tolist() == list(range(10))
    assert (model.predict(TEST) == fitted.predict(TEST)).all()


def test_a_frozen_estimator_stays_fitted_in_cross_validation():
    model = CalibratedModel(FrozenEstimator(GaussianNB().fit(TRAIN, LABELS)))
    assert min(cross_val_score(model, TEST, TEST_LABELS, cv=3)) > 0.7


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("ensemble", [False, True])
def test_whole_weights_are_repeated_rows(ensemble):
    rows, labels = SCALED[:300], CANCER_LABELS[:300]
    weight = np.random.default_rng(0).integers(0, 4, len(labels))
    order = np.repeat(np.arange(len(labels)), weight)
    folds = [(np.flatnonzero(np.arange(300) % 3 != i), np.flatnonzero(np.arange(300) % 3 == i)) for i in range(3)]
    repeated = [tuple(np.flatnonzero(np.isin(order, part)) for part in fold) for fold in folds]
    bayes = GaussianNB(var_smoothing=0)  # which would come from the unweighted rows
    weighted = CalibratedModel(bayes, cv=folds, ensemble=ensemble).fit(rows, labels, sample_weight=weight)
    expected = CalibratedModel(bayes, cv=repeated, ensemble=ensemble).fit(rows[order], labels[order])
    np.testing.assert_allclose(weighted.predict_proba(SCALED), expected.predict_proba(SCALED), rtol=1e-8, atol=1e-15)


def test_an_estimator_without_weights_says_so_and_the_calibrator_still_has_them():
    weight = np.where(CANCER_LABELS == 1, 5.0, 1.0)
    neighbours = KNeighborsClassifier(30)
    with pytest.warns(
        fc.InputWarning, match="KNeighborsClassifier.fit does not take it; only the calibrator"
    ) as caught:
        model = CalibratedModel(neighbours).fit(SCALED, CANCER_LABELS, sample_weight=weight)
    assert caught[0].filename == __file__
    scores = cross_val_predict(neighbours, SCALED, CANCER_LABELS, method="predict_proba")
    by_hand = fc.TemperatureScaling().fit(log_votes(scores), CANCER_LABELS, sample_weight=weight)
    same(model.calibrator_.temperature_, by_hand.temperature_)


def test_weights_of_a_fitted_estimator_go_to_the_calibrator():
    fitted, weight = GaussianNB().fit(TRAIN, LABELS), 1.0 + (TEST_LABELS == 3)
    model = CalibratedModel(fitted, cv="prefit").fit(TEST, TEST_LABELS, sample_weight=weight)
    by_hand = fc.TemperatureScaling().fit(fitted.predict_proba(TEST), TEST_LABELS, kind="probs", sample_weight=weight)
    same(model.calibrator_.temperature_, by_hand.temperature_)


def test_rows_without_weight_count_for_nothing():
    forest = RandomForestClassifier(9, min_samples_leaf=5, random_state=0).fit(TRAIN, LABELS)
    probs = forest.predict_proba(TEST)
    least = np.where(probs > 0, probs, 1).min(1)
    some = least > np.quantile(least, 0.1)
    model = CalibratedModel(FrozenEstimator(forest))
    without = clone(model).fit(TEST[some], TEST_LABELS[some])
    weighted = clone(model).fit(TEST, TEST_LABELS, sample_weight=some.astype(float))
    assert weighted.zero_probs_ == without.zero_probs_ == [least[some].min() / 2] != [least.min() / 2]
    assert weighted.calibrator_.report_.num_rows == some.sum()
    same(weighted.predict_proba(TEST), without.predict_proba(TEST))
    with pytest.raises(fc.InputError, match=r"cv: must leave each calibrator at least 2 rows with a weight.*got 1\."):
        clone(model).fit(TEST, TEST_LABELS, sample_weight=np.arange(len(TEST)) == 3)


# ---------------------------------------------------------------------- among other estimators


def test_a_grid_search_chooses_the_calibrator():
    choices = [fc.TemperatureScaling(), fc.VectorScaling(), fc.HistogramBinning(3)]
    pipeline = make_pipeline(StandardScaler(), CalibratedModel(GaussianNB(var_smoothing=1e-2), cv=3))
    grid = {"calibratedmodel__calibrator": choices, "calibratedmodel__estimator__var_smoothing": [1e-2, 1e-1]}
    search = GridSearchCV(pipeline, grid, scoring="neg_log_loss", cv=2).fit(TRAIN, LABELS)
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) == 6
    assert search.best_score_ == max(scores)
    assert isinstance(search.best_params_["calibratedmodel__calibrator"], fc.Calibrator)
    assert not any(calibrator.is_fitted for calibrator in choices)
    assert search.best_estimator_[-1].calibrator_.is_fitted
    assert nll(search, TEST, TEST_LABELS) < 1


def test_it_wraps_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    model = CalibratedModel(pipeline, cv=3).fit(CANCER, NAMES)
    assert model.estimator_[-1].n_features_in_ == model.n_features_in_ == 30
    assert not hasattr(pipeline[-1], "coef_")
    same(model.calibrator_.temperature_, by_hand_temperature(pipeline, CANCER, NAMES))


def by_hand_temperature(estimator, rows, names):
    scores = cross_val_predict(estimator, rows, names, cv=3, method="decision_function")
    return fc.TemperatureScaling().fit(scores, (names == "malignant").astype(int)).temperature_


@pytest.mark.parametrize("ensemble", [False, True])
def test_pickles_and_clones(ensemble):
    model = CalibratedModel(GaussianNB(), fc.TemperatureScaling(bounds=(0.5, 500.0)), cv=3, ensemble=ensemble)
    model.fit(TRAIN, LABELS)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(TEST) == model.predict_proba(TEST)).all()
    assert [c.report_ for _, c in again.calibrated_pairs_] == [c.report_ for _, c in model.calibrated_pairs_]
    copied = clone(model)
    assert not hasattr(copied, "classes_")
    assert copied.calibrator is not model.calibrator
    assert copied.calibrator.settings() == model.calibrator.settings()
    assert (copied.fit(TRAIN, LABELS).predict_proba(TEST) == model.predict_proba(TEST)).all()


def test_settings_that_change_after_the_fit_change_nothing_before_the_next():
    model = CalibratedModel(GaussianNB(), cv=3).fit(TRAIN, LABELS)
    before = model.predict_proba(TEST)
    model.set_params(method="decision_function", ensemble=True, calibrator=fc.FocalCalibration())
    assert (model.predict_proba(TEST) == before).all()


def test_the_template_is_never_fitted_and_each_fold_has_its_own():
    template = fc.TemperatureScaling()
    model = CalibratedModel(GaussianNB(), template, cv=3, ensemble=True).fit(TRAIN, LABELS)
    assert not template.is_fitted
    assert len({calibrator.temperature_ for _, calibrator in model.calibrated_pairs_}) == 3


def test_a_second_fit_forgets_the_first():
    table = pd.DataFrame(SCALED, columns=[f"column {i}" for i in range(SCALED.shape[1])])
    model = CalibratedModel(GaussianNB(), cv=3).fit(table, NAMES)
    model.set_params(ensemble=True).fit(DIGITS, DIGIT_LABELS)
    assert model.n_features_in_ == 64
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(model, "calibrator_")
    with pytest.raises(fc.InputError):
        model.fit(DIGITS, DIGIT_LABELS, sample_weight=np.zeros(len(DIGITS)))
    assert model.predict(DIGITS).shape == (len(DIGITS),)  # a fit that fails leaves the last one


# ---------------------------------------------------------------------- classes missing from a fold

RARE = np.where(np.arange(len(DIGITS)) == 5, 10, DIGIT_LABELS)  # an eleventh class with one row


@pytest.mark.parametrize("estimator", [GaussianNB(), LinearSVC(random_state=0, max_iter=5000)])
def test_a_class_that_a_fold_lacks_does_not_spoil_the_calibrator(estimator):
    rows, folds = DIGITS[:900] / 16, KFold(3, shuffle=True, random_state=0)
    model = CalibratedModel(estimator, cv=folds).fit(rows, RARE[:900])
    known = np.arange(900) != 5
    parts = [(np.setdiff1d(train, 5), np.setdiff1d(test, 5)) for train, test in folds.split(rows)]
    scores, labels = [], []
    for (train, _), (_, test) in zip(folds.split(rows), parts, strict=True):
        fold = clone(estimator).fit(rows[train], RARE[train])
        kind = "decision_function" if hasattr(fold, "decision_function") else "predict_proba"
        given = getattr(fold, kind)(rows[test])
        aligned = np.zeros((len(test), 11)) if kind == "predict_proba" else np.full((len(test), 11), -1e3)
        aligned[:, fold.classes_] = given
        scores.append(aligned)
        labels.append(RARE[test])
    kind = "probs" if kind == "predict_proba" else "logits"
    by_hand = fc.TemperatureScaling().fit(np.concatenate(scores), np.concatenate(labels), kind=kind)
    assert model.calibrator_.report_.num_rows == known.sum()
    np.testing.assert_allclose(model.calibrator_.temperature_, by_hand.temperature_, rtol=1e-9)
    assert model.predict_proba(rows).shape == (900, 11)


def test_in_an_ensemble_a_missing_class_is_nearly_impossible_for_its_fold():
    folds = KFold(3, shuffle=True, random_state=0)
    model = CalibratedModel(GaussianNB(), cv=folds, ensemble=True).fit(DIGITS, RARE)
    lacking = [m for m, _ in model.calibrated_pairs_ if len(m.classes_) == 10]
    assert len(lacking) == 1
    probs = model.predict_proba(DIGITS)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-12)
    assert probs[5, 10] > 0.5  # the two other folds know it
    assert probs[:, 10].max() < 0.7


@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
def test_stratified_folds_live_with_a_class_of_one_row():
    model = CalibratedModel(GaussianNB()).fit(DIGITS, RARE)
    assert model.classes_.tolist() == list(range(11))
    assert model.calibrator_.report_.num_rows == len(DIGITS) - 1


def test_a_model_of_a_fold_with_one_class_only():
    labels = np.repeat([0, 1], 100)
    rows = np.random.default_rng(0).normal(size=(200, 2)) + labels[:, None]
    first = (np.arange(50), np.arange(50, 200))  # trained on class 0 only
    model = CalibratedModel(
        DecisionTreeClassifier(max_depth=1), cv=[first, (np.arange(0, 200, 2), np.arange(1, 200, 2))]
    )
    model.fit(rows, labels)
    assert model.calibrator_.report_.num_rows == 50 + 100


class InAnotherOrder(GaussianNB):
    """Some libraries have their classes in the order of the user."""

    def fit(self, X, y):
        super().fit(X, y)
        self.order, self.classes_ = np.arange(len(self.classes_))[::-1], self.classes_[::-1]
        return self

    def predict_proba(self, X):
        self.classes_ = self.classes_[::-1]
        probs = super().predict_proba(X)[:, self.order]
        self.classes_ = self.classes_[::-1]
        return probs


def test_columns_follow_the_classes_in_whatever_order_the_estimator_has_them():
    other = CalibratedModel(InAnotherOrder(), cv=3).fit(TRAIN, LABELS)
    plain = CalibratedModel(GaussianNB(), cv=3).fit(TRAIN, LABELS)
    assert other.classes_.tolist() == list(range(10))
    np.testing.assert_allclose(other.predict_proba(TEST), plain.predict_proba(TEST), rtol=1e-9)


# ---------------------------------------------------------------------- errors


class Odd(ClassifierMixin, BaseEstimator):
    """A classifier that gives back the scores that it is told."""

    def __init__(self, scores=None):
        self.scores = scores

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.asarray(self.scores)[: len(X)]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"estimator": Perceptron(), "method": "predict_proba"}, "estimator: must have predict_proba; got Perceptron"),
        ({"estimator": Lasso()}, "estimator: must have decision_function or predict_proba; got Lasso"),
        ({"method": "logits"}, "method: must be one of auto, decision_function, predict_proba; got 'logits'"),
        ({"calibrator": fc.TemperatureScaling}, "calibrator: must be a focalcal calibrator"),
        ({"calibrator": "temprature"}, "method: must be one of identity, temperature.* got 'temprature'"),
        ({"threshold": 0.5}, "threshold: Only binary classification is supported.*got 3 classes. Set threshold=None"),
        ({"threshold": 1.5}, "threshold: must be a probability, or None; got 1.5"),
        ({"cv": 1}, "cv: must be a number of folds from 2 on, a splitter, pairs .* got 1"),
        ({"cv": True}, "cv: must be a number of folds"),
        ({"cv": "fitted"}, "cv: must be a number of folds .* got 'fitted'"),
        ({"cv": 2.5}, "cv: must be a number of folds .* got 2.5"),
        ({"cv": iter(())}, "cv: must give at least one fold; got none. A generator can be used once"),
        ({"cv": LeaveOneOut(), "ensemble": True}, "cv: must leave each calibrator at least 2 rows .* got 1"),
        ({"estimator": SVC(decision_function_shape="ovo")}, "SVC.decision_function: must give a score for each of 3"),
        ({"estimator": Odd(np.full((99, 3), 2.0))}, r"Odd.predict_proba: every probability must lie in \[0, 1\]"),
        ({"estimator": Odd(np.full((99, 4), 0.25))}, "Odd.predict_proba: must give 3 columns"),
        ({"estimator": Odd(np.full((99, 3), np.nan))}, "Odd.predict_proba: must be finite"),
    ],
)
def test_errors_name_the_argument(settings, says):
    rows = DIGIT_LABELS < 3
    with pytest.raises(fc.InputError, match=says):
        CalibratedModel(**{"estimator": GaussianNB(), **settings}).fit(DIGITS[rows][:99], DIGIT_LABELS[rows][:99])


def test_an_estimator_with_classes_of_its_own_is_refused():
    class Knows(Odd):
        def fit(self, X, y):
            self.classes_ = np.arange(4)
            return self

    with pytest.raises(fc.InputError, match=r"estimator: must know no other classes than \[0 1 2\]; got \[0 1 2 3\]"):
        CalibratedModel(Knows(np.full((99, 4), 0.25))).fit(np.zeros((99, 1)), np.arange(99) % 3)


def test_one_vs_one_scores_are_refused_inside_a_pipeline_too():
    with pytest.raises(fc.InputError, match="must give a score for each of 10 classes; got shape"):
        CalibratedModel(make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))).fit(TRAIN, LABELS)


@pytest.mark.parametrize("cv", ["prefit", 3])
def test_an_estimator_that_should_be_fitted_and_is_not(cv):
    unfitted = GaussianNB() if cv == "prefit" else FrozenEstimator(GaussianNB())
    with pytest.raises(fc.NotFittedError, match=r"must be a fitted classifier with classes_; .* wrap it in FrozenEst"):
        CalibratedModel(unfitted, cv=cv).fit(TRAIN, LABELS)


def test_labels_that_a_fitted_estimator_does_not_know():
    fitted = GaussianNB().fit(TRAIN[LABELS < 5], LABELS[LABELS < 5])
    with pytest.raises(fc.InputError, match=r"y: must have labels that the estimator knows, \[0 1 2 3 4\]; got"):
        CalibratedModel(fitted, cv="prefit").fit(TEST, TEST_LABELS)


def test_weights_of_zero_only():
    with pytest.raises(fc.InputError, match="sample_weight: must have a positive entry; got only zeros"):
        CalibratedModel(GaussianNB()).fit(TRAIN, LABELS, sample_weight=np.zeros(len(LABELS)))


def test_weights_of_the_wrong_length():
    with pytest.raises(fc.InputError, match="sample_weight: must have shape"):
        CalibratedModel(GaussianNB()).fit(TRAIN, LABELS, sample_weight=np.ones(3))


def test_folds_of_one_class_each_leave_nothing_to_fit():
    with pytest.raises(
        fc.InputError, match=r"cv: must leave each calibrator at least 2 rows .* got 0\. Use stratified"
    ):
        CalibratedModel(GaussianNB(), cv=KFold(3)).fit(SCALED[:300], np.repeat([0, 1, 2], 100))


# ---------------------------------------------------------------------- names, settings, folds at once, groups


@pytest.mark.parametrize("name", ["temperature", "isotonic", "IsotonicCalibration", "temperature:brier"])
def test_a_calibrator_may_be_named(name):
    named = CalibratedModel(GaussianNB(), name, cv=3).fit(TRAIN, LABELS)
    made = CalibratedModel(GaussianNB(), fc.calibrators.make_calibrator(name), cv=3).fit(TRAIN, LABELS)
    assert (named.predict_proba(TEST) == made.predict_proba(TEST)).all()
    assert clone(named).get_params()["calibrator"] == name


def test_a_grid_search_goes_through_the_settings_of_the_calibrator():
    model = CalibratedModel(GaussianNB(), "temperature", cv=3)
    assert model.get_params()["calibrator__criterion"] == "nll"
    grid = {"calibrator__criterion": ["nll", "brier", "ada_ece"]}
    search = GridSearchCV(model, grid, scoring="neg_log_loss", cv=2).fit(TRAIN, LABELS)
    assert len(set(search.cv_results_["mean_test_score"])) == 3
    best = search.best_params_["calibrator__criterion"]
    assert search.best_estimator_.calibrator_.settings()["criterion"] == best
    assert model.calibrator == "temperature"


def test_settings_of_a_calibrator_leave_the_given_one_alone():
    given = fc.HistogramBinning(3)
    model = CalibratedModel(GaussianNB(), given).set_params(calibrator__num_bins=7)
    assert model.get_params()["calibrator__num_bins"] == 7
    assert given.num_bins == 3
    both = CalibratedModel().set_params(calibrator__num_bins=5, calibrator="histogram")
    assert both.calibrator.num_bins == 5
    assert clone(both).get_params()["calibrator__num_bins"] == 5
    assert CalibratedModel().get_params()["calibrator__criterion"] == "nll"  # of temperature scaling, the default
    with pytest.raises(
        fc.InputError, match=r"must be among the settings of HistogramBinning: num_bins, edges; got bins"
    ):
        model.set_params(calibrator__bins=3)


@pytest.mark.parametrize("ensemble", [False, True])
def test_folds_fitted_at_the_same_time_are_those_fitted_one_by_one(ensemble):
    settings = {"cv": 3, "ensemble": ensemble}
    one = CalibratedModel(GaussianNB(), **settings).fit(TRAIN, LABELS)
    two = CalibratedModel(GaussianNB(), n_jobs=2, **settings).fit(TRAIN, LABELS)
    assert (one.predict_proba(TEST) == two.predict_proba(TEST)).all()


def test_rows_of_a_group_are_in_one_fold():
    groups = np.arange(len(TRAIN)) // 7
    seen = []

    class Watched(GaussianNB):
        def fit(self, X, y):
            seen.append(set(X[:, -1].astype(int)))
            return super().fit(X, y)

    rows = np.column_stack([TRAIN, groups])
    model = CalibratedModel(Watched(), cv=3).fit(rows, LABELS, groups=groups)
    *folds, last = seen
    assert len(last) == len(set(groups))
    left_out = [set(groups) - fold for fold in folds]
    assert sum(map(len, left_out)) == len(set(groups))  # every group is left out as a whole, once
    by_pairs = CalibratedModel(Watched(), cv=GroupKFold(3)).fit(rows, LABELS, groups=groups)
    pairs = list(GroupKFold(3).split(rows, LABELS, groups))
    assert (
        by_pairs.calibrator_.temperature_
        == CalibratedModel(Watched(), cv=pairs).fit(rows, LABELS).calibrator_.temperature_
    )
    assert model.calibrator_.is_fitted
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CalibratedModel(cv=3).fit(TRAIN, LABELS, groups=groups[:5])


# ---------------------------------------------------------------------- Platt scaling of many classes, thresholds


@pytest.mark.parametrize("name", ["platt", "beta"])
def test_a_calibrator_of_two_classes_is_fitted_to_each_class_against_the_rest(name):
    estimator = GaussianNB(var_smoothing=0.3)  # whose probabilities do not underflow
    model = CalibratedModel(estimator, name, cv=3).fit(TRAIN, LABELS)
    scores = cross_val_predict(estimator, TRAIN, LABELS, cv=3, method="predict_proba")
    test = model.estimator_.predict_proba(TEST)
    logits, test = log_votes(scores), np.log(np.where(test > 0, test, model.zero_probs_[0]))

    def odds(logits, k):
        return logits[:, k] - np.logaddexp.reduce(np.delete(logits, k, 1), axis=1)

    fitted = [fc.calibrators.make_calibrator(name).fit(odds(logits, k), k == LABELS) for k in range(10)]
    each = np.stack([part.predict_probs(odds(test, k)) for k, part in enumerate(fitted)], 1)
    np.testing.assert_allclose(model.predict_proba(TEST), each / each.sum(1, keepdims=True), rtol=1e-6, atol=1e-12)
    assert nll(model, TEST, TEST_LABELS) < nll(model.estimator_, TEST, TEST_LABELS)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(TEST) == model.predict_proba(TEST)).all()
    with pytest.raises(fc.InputError, match=r"BinaryPerClass cannot be saved.*Pickle the model"):
        model.calibrator_.save("platt.json")


def test_predict_follows_the_threshold():
    model = CalibratedModel(GaussianNB(), cv=3).fit(SCALED, NAMES)
    second = model.predict_proba(SCALED)[:, 1]  # malignant
    assert set(model.predict(SCALED[second < 0.5])) == {"benign"}
    for threshold in (0.05, 0.9):
        model.set_params(threshold=threshold)
        assert ((model.predict(SCALED) == "malignant") == (second >= threshold)).all()


# ---------------------------------------------------------------------- scorers and displays


@pytest.mark.parametrize("name", ["ece", "nll", "brier", "ada_ece", "accuracy"])
def test_scorers_by_name_are_the_measures_of_probabilities(name):
    model = CalibratedModel(GaussianNB(), cv=3).fit(SCALED[::2], NAMES[::2])
    probs, labels = model.predict_proba(SCALED[1::2]), (NAMES[1::2] == "malignant").astype(int)
    sign = 1 if name == "accuracy" else -1
    expected = sign * float(getattr(fc.metrics, name)(probs, labels, kind="probs"))
    assert calibration_scorer(name)(model, SCALED[1::2], NAMES[1::2]) == pytest.approx(expected)


def test_scorers_serve_searches_and_cross_validation():
    scorer = pickle.loads(pickle.dumps(calibration_scorer("ece", num_bins=10)))
    grid = {"calibrator": ["temperature", "isotonic"]}
    both = {"ece": scorer, "nll": calibration_scorer("nll")}
    search = GridSearchCV(CalibratedModel(GaussianNB(), cv=3), grid, scoring=both, refit="nll", cv=2)
    search.fit(TRAIN, LABELS)
    assert (search.cv_results_["mean_test_ece"] < 0).all()
    model = CalibratedModel(GaussianNB(), cv=3)
    theirs = cross_val_score(model, TRAIN, LABELS, scoring="neg_log_loss", cv=3)
    ours = cross_val_score(model, TRAIN, LABELS, scoring=calibration_scorer("nll"), cv=3)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    with pytest.raises(fc.InputError, match="measure: must be one of accuracy, error"):
        calibration_scorer("ecee")


def test_scores_follow_classes_in_whatever_order_the_estimator_has_them():
    there = InAnotherOrder().fit(TRAIN, LABELS)
    here = GaussianNB().fit(TRAIN, LABELS)
    assert calibration_scorer("ece")(there, TEST, TEST_LABELS) == calibration_scorer("ece")(here, TEST, TEST_LABELS)
    with pytest.raises(fc.InputError, match="y: must have labels among the classes"):
        calibration_scorer("ece")(here, TEST, TEST_LABELS + 5)


def test_the_display_of_an_estimator_is_that_of_its_predictions():
    pytest.importorskip("matplotlib")
    model = GaussianNB().fit(TRAIN, LABELS)
    display = ReliabilityDisplay.from_estimator(model, TEST, TEST_LABELS, num_bins=10)
    other = ReliabilityDisplay.from_predictions(TEST_LABELS, model.predict_proba(TEST), num_bins=10, name="GaussianNB")
    expected = fc.evaluate(model.predict_proba(TEST), TEST_LABELS, kind="probs", num_bins=10)
    assert display.evaluation == other.evaluation == expected
    assert display.ax_.get_title() == other.ax_.get_title() == f"GaussianNB\n{expected.plot().get_title()}"
    assert display.figure_ is display.ax_.figure
    assert display._repr_png_()[1:4] == b"PNG"
    given = expected.plot().figure.subplots()
    assert display.plot(given).ax_ is given
    binary = GaussianNB().fit(SCALED, NAMES)
    two = ReliabilityDisplay.from_predictions(NAMES, binary.predict_proba(SCALED)[:, 1], classes=binary.classes_)
    assert two.evaluation.n == len(NAMES)


# ---------------------------------------------------------------------- trees


def test_a_random_forest_of_named_classes_is_calibrated():
    forest = RandomForestClassifier(20, random_state=0)
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    model = CalibratedModel(forest, "temperature", cv=3).fit(TRAIN, names[LABELS])
    raw = forest.fit(TRAIN, names[LABELS])
    assert nll(model, TEST, names[TEST_LABELS]) < nll(raw, TEST, names[TEST_LABELS]) - 0.1
    assert (model.predict(TEST) == names[TEST_LABELS]).mean() > 0.9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of these libraries' own
@pytest.mark.parametrize(
    ("package", "name", "settings"),
    [
        ("lightgbm", "LGBMClassifier", {"n_estimators": 30, "verbose": -1}),
        ("xgboost", "XGBClassifier", {"n_estimators": 30}),
        ("catboost", "CatBoostClassifier", {"iterations": 30, "verbose": False, "allow_writing_files": False}),
    ],
)
@pytest.mark.parametrize("calibrator", ["temperature", "platt"])
def test_boosted_trees_of_other_libraries_are_calibrated(package, name, settings, calibrator):
    kind = getattr(pytest.importorskip(package), name)
    model = CalibratedModel(kind(**settings), calibrator, cv=3).fit(TRAIN, LABELS)
    probs = model.predict_proba(TEST)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-6)
    assert (model.predict(TEST) == TEST_LABELS).mean() > 0.9
    raw = kind(**settings).fit(TRAIN, LABELS)
    assert nll(model, TEST, TEST_LABELS) < nll(raw, TEST, TEST_LABELS) + 0.05
