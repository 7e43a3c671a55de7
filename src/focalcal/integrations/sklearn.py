"""Any scikit-learn classifier, calibrated by any focalcal calibrator, and what scikit-learn measures and draws with."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils import assert_all_finite, column_or_1d, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, has_fit_parameter
from torch import Tensor

from focalcal.calibrators import Calibrator, TemperatureScaling, make_calibrator
from focalcal.calibrators.binary_per_class import BinaryPerClass
from focalcal.core.checks import Array, from_numpy, require
from focalcal.core.score_kinds import Kind, log_probabilities, logits_of, probabilities
from focalcal.errors import InputError, InputWarning, NotFittedError
from focalcal.metrics import MEASURES, Evaluation, evaluate, read
from focalcal.predictions.arrays import Predictions, checked_weight

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CalibratedModel", "CalibrationScorer", "ReliabilityDisplay", "calibration_scorer"]

Method = Literal["auto", "decision_function", "predict_proba"]
_METHODS = ("decision_function", "predict_proba")
_FEWEST_ROWS = 2


class CalibratedModel(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    r"""A scikit-learn classifier whose probabilities come from a focalcal calibrator.

    $$ p(x) = \frac1M \sum_{m=1}^{M} c_m(f_m(x)) $$

    where $f_m$ is a fitted copy of `estimator` (logistic regression unless given), $c_m$ a fitted copy of `calibrator`
    (temperature scaling unless given) and $M$ is 1 unless `ensemble`. Neither argument is ever changed.

    `method` says which scores of the estimator are calibrated: `decision_function`, taken as logits (for two classes
    as the log-odds of the second), or `predict_proba`. `"auto"` takes the first of them that the estimator has.

    `cv` says where the scores come from that the calibrator is fitted to; they are never those of the data that the
    model was trained on.

    - A number of stratified folds, a splitter, or pairs (train, test): each row is scored by the model of a fold that
      did not see it; one calibrator is fitted to all these scores, and the estimator is fitted again to all rows. With
      `ensemble=True` each fold keeps its model and a calibrator of its own instead, and probabilities are averaged.
    - `"prefit"`, or an estimator in scikit-learn's `FrozenEstimator`: it is fitted already, and the rows of `fit`,
      which must be new to it, are for the calibrator only.

    A probability of exactly 0 is how trees and neighbours say that nobody voted for a class. It is taken for half the
    smallest positive one among the scores of the fit, because at $\log 0$ a single row would decide the fit; models
    that never give 0 are not touched.

    A class that is missing from the training rows of a fold has probability 0 for that fold's model (a decision
    function puts it $\log$ of the smallest normal number behind the row's largest), and the fold's rows of that class
    are left out of the fit of the calibrator: no score of that model could have been right.

    `calibrator` may be a name such as "isotonic" or "temperature:ada_ece". `calibrator__...` in a grid search changes
    one of its settings, as in `{"calibrator__criterion": ["nll", "brier"]}`. A calibrator of two classes (Platt, beta)
    is fitted to each class against the rest where there are more, and the results are divided by their sum.

    `n_jobs` folds are fitted at the same time. `fit(..., groups=...)` keeps the rows of a group in one fold.
    `threshold`, for two classes, is the probability from which on `predict` says the second of them; None takes the
    likelier one.

    `random_state` shuffles the rows before a number of folds is cut; with None they keep their order. Splitters and
    the estimator have their own.

    After `fit` there are `classes_`, in order, `calibrated_pairs_`, the pairs $(f_m, c_m)$, and for one pair
    `estimator_` and `calibrator_`; `zero_probs_`, for each pair what a probability of 0 is taken for (None where the
    decision function is calibrated); `n_features_in_` and `feature_names_in_` if the fitted estimator has them.

    Differs from scikit-learn's `CalibratedClassifierCV`: any calibrator, one model unless you ask for an ensemble,
    folds in which a class is missing, classes of a fitted estimator that the rows of `fit` lack, and zeros, to which
    it adds the machine epsilon.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> rows, labels = load_breast_cancer(return_X_y=True)
    >>> model = CalibratedModel(GaussianNB()).fit(rows[:500], labels[:500])
    >>> round(model.calibrator_.temperature_, 1)  # naive Bayes is far too sure
    7.4
    >>> model.estimator_.predict_proba(rows[[508]]).round(4)
    array([[6.000e-04, 9.994e-01]])
    >>> model.predict_proba(rows[[508]]).round(4)
    array([[0.2696, 0.7304]])
    """

    def __init__(
        self,
        estimator: Any = None,
        calibrator: Calibrator | str | None = None,
        *,
        method: Method = "auto",
        cv: Any = 5,
        ensemble: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        threshold: float | None = None,
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.threshold = threshold

    # ------------------------------------------------------------------ fit

    # X and y are scikit-learn's names, and callers may pass them by name.
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit the model and its calibrator to rows `X` with labels `y`, which may be numbers or strings.

        `sample_weight` goes to both; an estimator whose `fit` does not take it is fitted without, with a warning.
        `groups` (N,) go to the splitter; a number of folds is then cut by groups, every class as evenly as they allow.
        """
        self._require_settings()
        X, y, groups = indexable(X, column_or_1d(y, warn=True), groups)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        weight, estimator = _weights(sample_weight, y.shape), self._estimator()
        if self._is_prefit():
            classes = self._require_classes(_classes(estimator))
            scored = self._score(estimator, _TrainingRows(X, y, weight), classes)
            fitted = [(estimator, *self._fit_calibrator([scored]))]
        else:
            self._require_classes(y if weight is None else y[weight > 0])
            classes = np.unique(y)
            rows = _TrainingRows(X, y, weight, _takes_weight(estimator, weight))
            folds = self._folds(estimator, rows, classes, groups)
            if self.ensemble:
                fitted = [(model, *self._fit_calibrator([scored])) for model, scored in folds]
            else:
                calibrator, zero = self._fit_calibrator([scored for _, scored in folds])
                fitted = [(rows.fitted(estimator), calibrator, zero)]
        self.classes_, self.calibrated_pairs_ = classes, [(model, calibrator) for model, calibrator, _ in fitted]
        self.zero_probs_ = [zero for _, _, zero in fitted]
        return self

    def _require_settings(self) -> None:
        allowed = ("auto", *_METHODS)
        require(self.method in allowed, "method", f"must be one of {', '.join(allowed)}", repr(self.method))
        fine = self.calibrator is None or isinstance(self.calibrator, (Calibrator, str))
        fix = 'Pass an instance such as focalcal.TemperatureScaling(), or a name such as "temperature".'
        require(fine, "calibrator", "must be a focalcal calibrator", repr(self.calibrator), fix)
        if isinstance(self.calibrator, str):
            make_calibrator(self.calibrator)  # refuses now what it does not know
        threshold = self.threshold
        fine = threshold is None or (isinstance(threshold, (int, float)) and 0 <= threshold <= 1)
        require(fine, "threshold", "must be a probability, or None", repr(threshold))
        rule, cv = 'must be a number of folds from 2 on, a splitter, pairs (train, test) or "prefit"', self.cv
        number = isinstance(cv, Integral)
        known = cv == "prefit" if isinstance(cv, str) else hasattr(cv, "split") or isinstance(cv, Iterable)
        require(cv >= 2 if number else known, "cv", rule, repr(cv))

    def _estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _is_prefit(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator) or (isinstance(self.cv, str) and self.cv == "prefit")

    def _require_classes(self, labels: Any) -> Any:
        """The classes among the labels, if there are as many as a classifier and its threshold need."""
        classes = np.unique(labels)
        count = len(classes)
        require(count >= 2, "y", "needs rows of at least two classes", "1 class" if count == 1 else "none")
        # The sentence that scikit-learn looks for in its checks.
        rule = "Only binary classification is supported. The type of the target is multiclass"
        fix = "Set threshold=None, and decide by predict_proba."
        require(count == 2 or self.threshold is None, "threshold", rule, f"{count} classes", fix)
        return classes

    def _folds(self, estimator: Any, rows: _TrainingRows, classes: Any, groups: Any) -> list[tuple[Any, _ScoredRows]]:
        """For each fold its model and the scores of the rows that it did not see."""
        splits = list(self._splitter(rows.y, groups).split(rows.X, rows.y, groups))
        require(bool(splits), "cv", "must give at least one fold", "none", "A generator can be used once; pass a list.")
        found: list[tuple[Any, _ScoredRows]] = Parallel(n_jobs=self.n_jobs)(
            delayed(self._fold)(estimator, rows, classes, train, test) for train, test in splits
        )
        return found

    def _splitter(self, y: Any, groups: Any) -> Any:
        """What divides the rows: a number of folds is stratified, and keeps groups together where there are some."""
        if not isinstance(self.cv, Integral):
            return check_cv(self.cv, y, classifier=True)
        kind = StratifiedKFold if groups is None else StratifiedGroupKFold
        return kind(int(self.cv), shuffle=self.random_state is not None, random_state=self.random_state)

    def _fold(
        self, estimator: Any, rows: _TrainingRows, classes: Any, train: Any, test: Any
    ) -> tuple[Any, _ScoredRows]:
        """The model of a fold, if it is kept, and the scores of the rows that it did not see."""
        model = rows.part(estimator, train).fitted(estimator)
        scored = self._score(model, rows.part(estimator, test, train), classes)
        return model if self.ensemble else None, scored

    def _score(self, model: Any, rows: _TrainingRows, classes: Any) -> _ScoredRows:
        """What the calibrator is fitted to: rows that the model has not seen, of classes that it has."""
        method, known = self._method(model), _classes(model)
        strange = ~np.isin(rows.y, classes)
        require(not strange.any(), "y", f"must have labels that the estimator knows, {classes}", rows.y[strange][:1])
        counts = np.isin(rows.y, known) & (rows.weight is None or rows.weight > 0)
        scores, labels = _scores(model, method, rows.X, classes), np.searchsorted(classes, rows.y)
        weight = rows.weight
        return _ScoredRows(method, scores[counts], labels[counts], None if weight is None else weight[counts])

    def _fit_calibrator(self, scored: list[_ScoredRows]) -> tuple[Calibrator, float | None]:
        """A calibrator fitted to the scores, and what it takes a probability of 0 for."""
        scores, labels = np.concatenate([s.scores for s in scored]), np.concatenate([s.labels for s in scored])
        calibrator = self._template(scores.shape[1])
        weight = None if scored[0].weight is None else np.concatenate([s.weight for s in scored])
        rule = f"must leave each calibrator at least {_FEWEST_ROWS} rows with a weight, of classes that its model knows"
        fix = "Use stratified folds, fewer folds or ensemble=False."
        require(len(labels) >= _FEWEST_ROWS, "cv", rule, len(labels), fix)
        zero = float(scores[scores > 0].min()) / 2 if scored[0].method == "predict_proba" else None
        return calibrator.fit(_logits(scores, zero), labels, sample_weight=weight), zero

    def _template(self, num_classes: int) -> Calibrator:
        """A copy of the calibrator that is not fitted, for so many classes."""
        template = _named_calibrator(self.calibrator)
        return BinaryPerClass(template) if template.BINARY and num_classes > 2 else template

    def _method(self, model: Any) -> str:
        names = _METHODS if self.method == "auto" else (self.method,)
        there = [name for name in names if hasattr(model, name)]
        fix = "Calibration needs scores, not only predicted classes."
        require(len(there) > 0, "estimator", f"must have {' or '.join(names)}", type(model).__name__, fix)
        return there[0]

    # ------------------------------------------------------------------ use

    def predict(self, X: Any) -> Any:
        """The class with the largest calibrated probability, the first of equal ones, or what `threshold` says."""
        probs = self.predict_proba(X)
        classes = probs.argmax(1) if self.threshold is None else (probs[:, 1] >= self.threshold).astype(int)
        return self.classes_[classes]

    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities (N, K), with columns in the order of `classes_`."""
        return _mean_probs(list(self._calibrated(X)))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the calibrated probabilities (N, K), exact where these underflow."""
        each = list(self._calibrated(X))
        logs = [log_probabilities(*rows).numpy() for rows in each]
        if len(logs) == 1:
            return np.asarray(logs[0])
        # Where a mean does not underflow its logarithm is taken, so that equal probabilities stay equal.
        probs = _mean_probs(each)
        ordinary = probs >= np.finfo(probs.dtype).tiny
        return np.where(ordinary, np.log(np.where(ordinary, probs, 1)), np.logaddexp.reduce(logs) - math.log(len(logs)))

    def _calibrated(self, X: Any) -> Iterator[tuple[Tensor, Kind]]:
        """Rows (N, K) of each model, calibrated, and their kind."""
        check_is_fitted(self)
        for (model, calibrator), zero in zip(self.calibrated_pairs_, self.zero_probs_, strict=True):
            method: Any = "decision_function" if zero is None else "predict_proba"
            scores = _scores(model, method, X, self.classes_)
            if calibrator.leaves_scores:  # a probability of 0 needs no replacement then
                yield from_numpy(scores), "logits" if zero is None else "probs"
            else:
                with torch.no_grad():
                    yield calibrator(from_numpy(_logits(scores, zero))), "log_probs"

    def decision_function(self, X: Any) -> Array:
        """Calibrated log-probabilities (N, K), or for two classes the log-odds (N,) of the second."""
        log_probs = self.predict_log_proba(X)
        return log_probs[:, 1] - log_probs[:, 0] if len(self.classes_) == 2 else log_probs

    # ------------------------------------------------------------------ what scikit-learn asks

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, with the settings of the calibrator as `calibrator__...`."""
        params: dict[str, Any] = super().get_params(deep)
        if deep:
            try:
                settings = _named_calibrator(self.calibrator).settings()
            except (AttributeError, InputError, TypeError):  # it is no calibrator, and `fit` will say so
                settings = {}
            params |= {f"calibrator__{name}": value for name, value in settings.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `calibrator__...` makes another calibrator with this setting, and leaves the given one be."""
        nested = {name: value for name, value in params.items() if name.startswith("calibrator__")}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        if nested:
            before = _named_calibrator(self.calibrator)
            changed = {name.removeprefix("calibrator__"): value for name, value in nested.items()}
            settings, kind = before.settings(), type(before)
            unknown = sorted(set(changed) - set(settings))
            rule = f"must be among the settings of {kind.__name__}: {', '.join(settings) or 'none'}"
            require(not unknown, "calibrator__...", rule, ", ".join(unknown))
            self.calibrator = kind(**{**settings, **changed})
        return self

    @property
    def estimator_(self) -> Any:
        """The fitted model, where there is one."""
        return self._only_pair("estimator_")[0]

    @property
    def calibrator_(self) -> Calibrator:
        """The fitted calibrator, where there is one."""
        calibrator: Calibrator = self._only_pair("calibrator_")[1]
        return calibrator

    def _only_pair(self, name: str) -> Any:
        pairs = self.__dict__.get("calibrated_pairs_", [])
        if len(pairs) != 1:
            found = f"an ensemble has {len(pairs)}, in calibrated_pairs_" if pairs else "call fit first"
            raise AttributeError(f"{type(self).__name__} has no {name}: {found}.")
        return pairs[0]

    @property
    def n_features_in_(self) -> int:
        """The number of columns, if the estimator tells."""
        count: int = self._first_model("n_features_in_").n_features_in_
        return count

    @property
    def feature_names_in_(self) -> Any:
        """The names of the columns, if the estimator tells."""
        return self._first_model("feature_names_in_").feature_names_in_

    def _first_model(self, name: str) -> Any:
        if "calibrated_pairs_" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no {name}: call fit first.")
        return self.calibrated_pairs_[0][0]

    def __sklearn_tags__(self) -> Any:
        """What the estimator accepts."""
        from sklearn.utils import get_tags

        tags, of_estimator = super().__sklearn_tags__(), get_tags(self._estimator())
        tags.input_tags, tags.no_validation = of_estimator.input_tags, of_estimator.no_validation
        multi_class = of_estimator.classifier_tags is None or of_estimator.classifier_tags.multi_class
        tags.classifier_tags.multi_class = multi_class and self.threshold is None
        return tags


@dataclass(frozen=True)
class _TrainingRows:
    """Rows as scikit-learn has them, and whether the estimator's `fit` takes their weights."""

    X: Any
    y: Any
    weight: Array | None
    for_estimator: bool = False

    def part(self, estimator: Any, index: Any, train: Any = None) -> _TrainingRows:
        """Some of the rows; of a kernel matrix also their columns, or those of `train`."""
        X, y = _safe_split(estimator, self.X, self.y, index, train)
        return replace(self, X=X, y=y, weight=None if self.weight is None else self.weight[index])

    def fitted(self, estimator: Any) -> Any:
        """A copy of the estimator, fitted to the rows."""
        model = clone(estimator)
        model.fit(self.X, self.y, **({"sample_weight": self.weight} if self.for_estimator else {}))
        return model


@dataclass(frozen=True)
class _ScoredRows:
    """What a calibrator is fitted to: scores (n, K), class numbers (n,) and weights (n,) or None."""

    method: str
    scores: Array
    labels: Any
    weight: Array | None


def _weights(sample_weight: Any, place: tuple[int, ...]) -> Array | None:
    if sample_weight is None:
        return None
    weight = checked_weight(sample_weight, place)
    require(bool(weight.any()), "sample_weight", "must have a positive entry", "only zeros")
    return weight


def _takes_weight(estimator: Any, weight: Array | None) -> bool:
    """Whether there are weights that the estimator's `fit` takes; warns where it does not take them."""
    takes = bool(has_fit_parameter(estimator, "sample_weight"))
    if weight is not None and not takes:
        message = f"sample_weight: {type(estimator).__name__}.fit does not take it; only the calibrator is weighted."
        warnings.warn(message, InputWarning, stacklevel=3)
    return weight is not None and takes


def _classes(model: Any) -> Any:
    """The classes that a fitted model knows, in the order of its scores."""
    if not hasattr(model, "classes_"):
        raise NotFittedError(
            f"estimator: must be a fitted classifier with classes_; {type(model).__name__} has none. Fit it before "
            'cv="prefit", and wrap it in FrozenEstimator, because clone and cross-validation take fits away.'
        )
    return np.asarray(model.classes_)


def _mean_probs(rows: list[tuple[Tensor, Kind]]) -> Array:
    """The probabilities (N, K), in the mean over models where there are several."""
    each = [probabilities(*some).numpy() for some in rows]
    return np.asarray(each[0] if len(each) == 1 else np.mean(each, axis=0))


def _scores(model: Any, method: str, X: Any, classes: Any) -> Array:
    """Finite scores (N, K) of the model, with columns in the order of `classes`."""
    known = _classes(model)
    rule = f"must know no other classes than {classes}"
    require(bool(np.isin(known, classes).all()), "estimator", rule, known)
    scores = _model_scores(model, method, X, len(known))
    return _aligned(scores, method, np.searchsorted(classes, known), len(classes))


def _model_scores(model: Any, method: str, X: Any, num_known: int) -> Array:
    """Finite scores (N, K) of the model's own classes: margins, or probabilities that are such."""
    scores, name = np.asarray(getattr(model, method)(X)), f"{type(model).__name__}.{method}"
    scores = scores if np.issubdtype(scores.dtype, np.floating) else scores.astype(np.float64)
    require(bool(np.isfinite(scores).all()), name, "must be finite", "NaN or infinity")
    if method == "decision_function":
        return _margins(model, name, scores, num_known)
    require(scores.shape[1:] == (num_known,), name, f"must give {num_known} columns", f"shape {scores.shape}")
    if num_known > 1:
        for _ in Predictions(scores, None, kind="probs", argument=name, may_be_empty=True).chunks():
            pass  # reading them checks them
    return scores


def _margins(model: Any, name: str, scores: Array, num_known: int) -> Array:
    """What a decision function gave, as (N, K)."""
    if num_known == 2 and scores.size == len(scores):
        log_odds = scores.reshape(-1)
        return np.stack([np.zeros_like(log_odds), log_odds], 1)
    # With three classes one-vs-one scores have three columns too, but these are pairs and not classes.
    per_class = scores.shape[1:] == (num_known,) and not (num_known > 2 and _votes_by_pairs(model))
    fix = 'Use decision_function_shape="ovr" or method="predict_proba".'
    require(per_class, name, f"must give a score for each of {num_known} classes", f"shape {scores.shape}", fix)
    return scores


def _votes_by_pairs(model: Any) -> bool:
    """Whether a support vector machine in the model compares classes one by one."""
    settings = model.get_params() if hasattr(model, "get_params") else {}
    return any(name.endswith("decision_function_shape") and value == "ovo" for name, value in settings.items())


def _aligned(scores: Array, method: str, places: Any, num_classes: int) -> Array:
    """The scores in `num_classes` columns: those of a model's classes at their places, the others impossible."""
    if np.array_equal(places, np.arange(num_classes)):
        return scores
    impossible = np.zeros_like(scores[:, :1])
    if method == "decision_function":
        impossible = scores.max(1, keepdims=True) + np.log(np.finfo(scores.dtype).tiny)
    aligned = np.repeat(impossible, num_classes, 1)
    aligned[:, places] = scores
    return aligned


def _logits(scores: Array, zero: float | None) -> Array:
    """Margins as they are; the logarithms of probabilities, with `zero` in the place of 0."""
    if zero is None:
        return scores
    positive = np.where(scores > 0, scores, np.asarray(zero, scores.dtype))
    logits: Array = logits_of(from_numpy(positive), "probs").numpy()
    return logits


# ---------------------------------------------------------------------- scorers and displays


class CalibrationScorer:
    """A scorer of scikit-learn for a calibration measure; made by `calibration_scorer`.

    >>> calibration_scorer("ece", num_bins=10)
    calibration_scorer('ece', num_bins=10)
    """

    def __init__(self, measure: str, num_bins: int) -> None:
        self.measure, self.num_bins = measure, num_bins

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The measure of the estimator's probabilities, negative where less is better."""
        measure = MEASURES[self.measure]
        probs, labels = _probs_and_labels(estimator, X, y)
        value = float(measure.of(read(probs, labels, kind="probs", sample_weight=sample_weight), self.num_bins))
        return -value if measure.lower_is_better else value

    def __repr__(self) -> str:
        return f"calibration_scorer({self.measure!r}, num_bins={self.num_bins})"


def calibration_scorer(measure: str = "ece", *, num_bins: int = 15) -> CalibrationScorer:
    """A scorer for `GridSearchCV(scoring=...)` and `cross_val_score`: any measure of `focalcal.metrics` by its name.

    Scorers are the higher the better, so that "ece", "nll", "brier" and all others of which less is better come out
    negative. The estimator must have `predict_proba` and `classes_`.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.naive_bayes import GaussianNB
    >>> rows, labels = load_breast_cancer(return_X_y=True)
    >>> cross_val_score(GaussianNB(), rows, labels, scoring=calibration_scorer("ece"), cv=3).round(2)
    array([-0.08, -0.05, -0.05])
    """
    require(measure in MEASURES, "measure", f"must be one of {', '.join(MEASURES)}", repr(measure))
    require(num_bins >= 1, "num_bins", "must be at least 1", num_bins)
    return CalibrationScorer(measure, num_bins)


class ReliabilityDisplay:
    """A reliability diagram of an estimator, made as scikit-learn's `CalibrationDisplay` is, for any number of classes.

    `evaluation` has every measure of the predictions; after `plot`, `ax_` and `figure_` are what was drawn. Needs
    matplotlib: `pip install focalcal[plots]`.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> rows, labels = load_digits(return_X_y=True)
    >>> display = ReliabilityDisplay.from_estimator(GaussianNB().fit(rows[::2], labels[::2]), rows[1::2], labels[1::2])
    >>> round(display.evaluation.ece, 2), display.ax_.get_ylabel()
    (0.21, 'accuracy')
    """

    def __init__(self, evaluation: Evaluation, *, name: str | None = None) -> None:
        self.evaluation, self.name = evaluation, name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        num_bins: int = 15,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw the diagram of a fitted classifier with `predict_proba` on rows that it was not fitted to."""
        probs, labels = _probs_and_labels(estimator, X, y)
        evaluation = evaluate(probs, labels, kind="probs", num_bins=num_bins, sample_weight=sample_weight)
        return cls(evaluation, name=name or type(estimator).__name__).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        probs: Any,
        *,
        classes: Any = None,
        num_bins: int = 15,
        sample_weight: Any = None,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw the diagram of probabilities (N, K), or (N,) of the second class, whose columns are those of `classes`.

        `classes` are the sorted labels of `y` unless given.
        """
        known = np.unique(y) if classes is None else np.asarray(classes)
        evaluation = evaluate(
            np.asarray(probs), _places(y, known), kind="probs", num_bins=num_bins, sample_weight=sample_weight
        )
        return cls(evaluation, name=name).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw it, into the given axes or a new figure."""
        self.ax_ = self.evaluation.plot(ax)
        if self.name is not None:
            self.ax_.set_title(f"{self.name}\n{self.ax_.get_title()}", fontsize=self.ax_.title.get_fontsize())
        self.figure_ = self.ax_.figure
        return self

    def _repr_png_(self) -> bytes | None:
        """What a notebook shows."""
        from focalcal.drawing import bytes_of

        return bytes_of(self.figure_, "png") if hasattr(self, "figure_") else None


def _probs_and_labels(estimator: Any, X: Any, y: Any) -> tuple[Array, Array]:
    """Probabilities (N, K) of a fitted classifier, and the columns (N,) of the labels."""
    has = hasattr(estimator, "predict_proba")
    require(has, "estimator", "must have predict_proba", type(estimator).__name__, "CalibratedModel gives it one.")
    return np.asarray(estimator.predict_proba(X)), _places(y, _classes(estimator))


def _places(y: Any, classes: Any) -> Array:
    """The place of each label among the classes, which may stand in any order."""
    labels, order = np.asarray(y), np.argsort(classes)
    strange = ~np.isin(labels, classes)
    require(not strange.any(), "y", f"must have labels among the classes {classes}", labels[strange][:1])
    return np.asarray(order[np.searchsorted(classes, labels, sorter=order)])


def _named_calibrator(calibrator: Calibrator | str | None) -> Calibrator:
    """A calibrator that is not fitted, like the given one or of the given name; temperature scaling unless given."""
    if calibrator is None:
        return TemperatureScaling()
    return make_calibrator(calibrator) if isinstance(calibrator, str) else copy.deepcopy(calibrator)
