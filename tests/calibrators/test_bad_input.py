"""What every calibrator refuses, with the argument's name in the message, and what a failed fit leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import focalcal.calibrators as c
from focalcal.errors import InputError, InputWarning
from focalcal.predictions.stream import Batches
from tests.calibrators.cases import calibrators_that, every_kind, same, softmax, state_of

N = 60


def data(case):
    logits, labels = case.data(N)
    return logits.copy(), labels.copy()


def changed(values, place, value):
    values = values.copy()
    values[place] = value
    return values


def refused(argument, call, *given, also="", **options):
    """The call raises an InputError whose message begins with the argument's name."""
    with pytest.raises(InputError) as caught:
        call(*given, **options)
    message = str(caught.value)
    assert message.startswith(f"{argument}:"), message
    assert also in message


# --------------------------------------------------------------------------------------------------------- of the fit


@pytest.mark.parametrize("value", [np.nan, np.inf])
@every_kind
def test_scores_that_are_not_finite_are_refused(case, value):
    logits, labels = data(case)
    fit = case.make().fit
    refused("logits", fit, changed(logits, (7, 1), value), labels, also="row 7")
    refused("logits", fit, changed(logits, (N - 1, 0), value).astype(np.float32), labels)
    refused("logits", fit, changed(case.binary_data(N)[0][:, 0], 7, value), labels % 2)
    probs = softmax(logits)
    refused("logits", fit, changed(probs, (7, 1), value), labels, kind="probs")
    refused("logits", fit, changed(np.log(probs), (7, 1), value), labels, kind="log_probs")


@every_kind
def test_shapes_that_do_not_match_are_refused(case):
    logits, labels = data(case)
    fit = case.make().fit
    refused("labels", fit, logits, labels[:-1])
    refused("labels", fit, logits[:-1], labels)
    refused("labels", fit, logits, labels[:, None])
    refused("labels", fit, logits, 1)
    refused("labels", fit, np.moveaxis(logits.reshape(10, 6, -1), 2, 1), labels)
    refused("logits", fit, 1.0, labels)
    refused("sample_weight", fit, logits, labels, sample_weight=np.ones(N - 1))
    refused("sample_weight", fit, logits, labels, sample_weight=np.ones((N, 1)))


@pytest.mark.parametrize("label", [-100, -1, 4, 7])
@every_kind
def test_labels_outside_the_classes_are_refused(case, label):
    logits, labels = data(case)
    refused("labels", case.make().fit, logits, changed(labels, 5, label), also=str(label))


@every_kind
def test_labels_that_are_not_class_numbers_are_refused(case):
    logits, labels = data(case)
    fit = case.make().fit
    refused("labels", fit, logits, labels + 0.5)
    refused("labels", fit, logits, torch.tensor(labels) + 0.5)
    refused("labels", fit, logits, [float(label) + 0.25 for label in labels])
    refused("labels", fit, logits, np.eye(case.classes)[labels])


@every_kind
def test_scores_that_are_not_floating_point_are_refused(case):
    logits, labels = data(case)
    refused("logits", case.make().fit, logits.astype(int), labels)
    refused("logits", case.make().fit, torch.tensor(logits).long(), labels)
    refused("logits", case.make().fit, [["a", "b"]] * N, labels)
    refused("logits", case.make().fit, None, labels)


@every_kind
def test_a_wrong_kind_is_refused(case):
    logits, labels = data(case)
    refused("kind", case.make().fit, logits, labels, kind="logit")
    refused("kind", case.make().fit, logits, labels, kind=None)
    refused("logits", case.make().fit, logits, labels, kind="probs", also='kind="logits"')
    refused("logits", case.make().fit, logits, labels, kind="log_probs", also='kind="logits"')


@every_kind
def test_probabilities_taken_for_logits_are_warned_of(case):
    logits, labels = data(case)
    with pytest.warns(InputWarning, match="kind"):
        case.make().fit(softmax(logits), labels)


@every_kind
def test_probabilities_that_are_none_are_refused_by_row(case):
    logits, labels = data(case)
    probs, fit = softmax(logits), case.make().fit
    refused("logits", fit, changed(probs, 7, probs[7] * 0.9), labels, kind="probs", also="row 7")
    outside = np.zeros(case.classes)
    outside[:2] = 1.2, -0.2
    refused("logits", fit, changed(probs, 9, outside), labels, kind="probs", also="row 9")
    refused("logits", fit, changed(np.log(probs), 11, np.log(probs[11]) - 0.1), labels, kind="log_probs", also="row 11")


@every_kind
def test_bad_weights_are_refused(case):
    logits, labels = data(case)
    ones = np.ones(N)
    for weight in (changed(ones, 3, -0.5), changed(ones, 3, np.nan), changed(ones, 3, np.inf), 0 * ones):
        refused("sample_weight", case.make().fit, logits, labels, sample_weight=weight)


@every_kind
def test_one_class_of_scores_is_refused(case):
    logits, labels = data(case)
    refused("logits", case.make().fit, logits[:, :1], 0 * labels, also="two classes")
    refused("logits", case.fitted(), logits[:, :1], also="two classes")
    refused("logits", case.fitted().predict_probs, logits[:, :1], also="two classes")


@every_kind
def test_fewer_than_two_rows_are_refused(case):
    logits, labels = data(case)
    fit = case.make().fit
    refused("logits", fit, logits[:0], labels[:0])
    refused("logits", fit, logits[:1], labels[:1], also="at least 2 rows")
    one = changed(np.zeros(N), 4, 1.0)
    refused("logits", fit, logits, labels, sample_weight=one, also="at least 2 rows")
    case.make().fit(logits[:2], labels[:2])


@calibrators_that("binary")
def test_two_classes_are_all_that_a_binary_calibrator_takes(case):
    logits = np.random.default_rng(0).standard_normal((N, 3))
    refused("logits", case.make().fit, logits, np.arange(N) % 3, also="3")
    refused("logits", case.fitted(), logits, also="3")
    refused("logits", case.fitted().predict_probs, logits, also="3")


# ----------------------------------------------------------------------------------------------------------- of the use


@calibrators_that("per_class")
def test_another_number_of_classes_than_that_of_the_fit_is_refused(case):
    logits = np.random.default_rng(0).standard_normal((N, case.classes + 1))
    refused("logits", case.fitted(), logits, also=f"{case.classes} classes")
    refused("logits", case.fitted(), torch.tensor(logits)[..., None], also=f"{case.classes} classes")
    refused("logits", case.fitted().predict_probs, logits, also=f"{case.classes} classes")
    if not case.binary:
        refused("logits", case.fitted(), logits[:, 0], also=f"{case.classes} classes")


@calibrators_that("not per_class")
def test_any_number_of_classes_is_taken_where_the_fit_is_not_tied_to_one(case):
    logits = np.random.default_rng(0).standard_normal((N, 7))
    assert case.fitted()(logits).shape == (N, 7)


@every_kind
def test_what_is_no_tensor_of_floats_is_refused(case):
    logits, _ = data(case)
    calibrator = case.fitted()
    refused("logits", calibrator, logits.astype(int))
    refused("logits", calibrator, torch.tensor(logits).long())
    refused("logits", calibrator, logits.tolist())
    refused("logits", calibrator, torch.tensor(1.0))
    refused("logits", calibrator, None)
    refused("logits", calibrator.predict_probs, [["a", "b"]])
    refused("logits", calibrator.predict_probs, torch.tensor(logits).long())


@every_kind
def test_predict_probs_refuses_what_fit_refuses(case):
    logits, _ = data(case)
    predict, probs = case.fitted().predict_probs, softmax(logits)
    for value in (np.nan, np.inf):
        refused("logits", predict, changed(logits, (7, 1), value), also="row 7")
    refused("kind", predict, logits, kind="logit")
    refused("logits", predict, logits, kind="probs")
    refused("logits", predict, logits, kind="log_probs")
    refused("logits", predict, changed(probs, 7, probs[7] * 0.9), kind="probs", also="row 7")


# --------------------------------------------------------------------------------------------------- after a failed fit


def failing_fits(case):
    """Fits that fail before, in and after the first look at the values."""
    logits, labels = data(case)
    several = [(logits, labels), (logits[:, :1], labels)]
    fits = {
        "shapes": lambda calibrator: calibrator.fit(logits, labels[:-1]),
        "values": lambda calibrator: calibrator.fit(changed(logits, (N - 1, 0), np.nan), labels),
        "rows": lambda calibrator: calibrator.fit(logits[:1], labels[:1]),
    }
    if case.streams:
        fits["batches"] = lambda calibrator: calibrator.fit(lambda: several)
    if case.streams and not case.one_pass:
        passes = iter([[(logits, labels)], []])
        fits["passes"] = lambda calibrator: calibrator.fit(Batches(lambda: next(passes), "logits", memory=0))
    return fits


@every_kind
def test_a_failed_fit_leaves_an_unfitted_calibrator_unfitted(case):
    for name, fit in failing_fits(case).items():
        calibrator = case.make()
        with pytest.raises(InputError):
            fit(calibrator)
        assert state_of(calibrator) == state_of(case.make()), name
        assert calibrator.is_fitted == case.ready
        assert not hasattr(calibrator, "report_")


@every_kind
def test_a_failed_fit_leaves_a_fitted_calibrator_as_it_was_or_as_new(case):
    allowed = state_of(case.fitted()), state_of(case.make())
    for name, fit in failing_fits(case).items():
        calibrator = case.fitted()
        with pytest.raises(InputError):
            fit(calibrator)
        assert state_of(calibrator) in allowed, name
        calibrator.fit(*case.data())
        assert state_of(calibrator) == state_of(case.fitted())
        same(calibrator(data(case)[0]), case.fitted()(data(case)[0]))


@every_kind
def test_an_interrupted_fit_leaves_nothing_half_fitted(case, monkeypatch):
    calibrator = case.fitted()
    last = type(calibrator.parts[-1] if isinstance(calibrator, c.Compose) else calibrator)
    fit = last._fit

    def at_once(*_):
        raise KeyboardInterrupt

    def at_the_end(*given):
        fit(*given)
        raise KeyboardInterrupt

    for interrupted in (at_once, at_the_end):
        with monkeypatch.context() as patch:
            patch.setattr(last, "_fit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                calibrator.fit(*case.data(100, seed=5))
        assert state_of(calibrator) in (state_of(case.fitted()), state_of(case.make()))


# ------------------------------------------------------------------------------------------------------ of the settings

# The argument to blame, and a call that must be refused: by the constructor, before any data is seen.
SETTINGS = [
    ("criterion", lambda: c.TemperatureScaling("mse")),
    ("criterion", lambda: c.TemperatureScaling(None)),
    ("gamma", lambda: c.TemperatureScaling("focal")),
    ("gamma", lambda: c.TemperatureScaling("nll", gamma=2.0)),
    ("gamma", lambda: c.TemperatureScaling("focal", gamma=-1.0)),
    ("gamma", lambda: c.TemperatureScaling("focal", gamma=float("nan"))),
    ("gamma", lambda: c.TemperatureScaling("focal", gamma=float("inf"))),
    ("num_bins", lambda: c.TemperatureScaling("ece", num_bins=0)),
    ("bounds", lambda: c.TemperatureScaling(bounds=(0.0, 10.0))),
    ("bounds", lambda: c.TemperatureScaling(bounds=(-1.0, 10.0))),
    ("bounds", lambda: c.TemperatureScaling(bounds=(2.0, 1.0))),
    ("bounds", lambda: c.TemperatureScaling(bounds=(1.0, 1.0))),
    ("bounds", lambda: c.TemperatureScaling(bounds=(0.1, float("inf")))),
    ("bounds", lambda: c.TemperatureScaling(bounds=(0.1, float("nan")))),
    ("bounds", lambda: c.TemperatureScaling(bounds=(float("nan"), 1.0))),
    ("bounds", lambda: c.TemperatureScaling(bounds=())),
    ("bounds", lambda: c.TemperatureScaling(bounds=(0.1, 1.0, 10.0))),
    ("grid", lambda: c.TemperatureScaling(grid=[])),
    ("grid", lambda: c.TemperatureScaling(grid=[1.0, 0.0])),
    ("grid", lambda: c.TemperatureScaling(grid=[-1.0, 1.0])),
    ("grid", lambda: c.TemperatureScaling(grid=[1.0, float("nan")])),
    ("grid", lambda: c.TemperatureScaling(grid=[1.0, float("inf")])),
    ("grid", lambda: c.TemperatureScaling(grid=np.array([]))),
    ("grid", lambda: c.TemperatureScaling(grid="mukhoti")),
    ("gamma", lambda: c.FocalCalibration(-1.0)),
    ("gamma", lambda: c.FocalCalibration(-3)),
    ("gamma", lambda: c.FocalCalibration(float("nan"))),
    ("gamma", lambda: c.FocalCalibration(float("inf"))),
    ("criterion", lambda: c.FocalCalibration(criterion="mse")),
    ("criterion", lambda: c.FocalTemperatureScaling("mse")),
    ("search", lambda: c.FocalTemperatureScaling(search="random")),
    ("gammas", lambda: c.FocalTemperatureScaling(gammas=[])),
    ("gammas", lambda: c.FocalTemperatureScaling(gammas=[0.0, -1.0])),
    ("gammas", lambda: c.FocalTemperatureScaling(gammas=[float("nan")])),
    ("gammas", lambda: c.FocalTemperatureScaling(gammas=[float("inf")])),
    ("grid", lambda: c.FocalTemperatureScaling(grid=[])),
    ("grid", lambda: c.FocalTemperatureScaling(grid=[0.0])),
    ("grid", lambda: c.FocalTemperatureScaling(grid=[-2.0])),
    ("grid", lambda: c.FocalTemperatureScaling(grid="komisarenko")),
    ("criterion", lambda: c.EnsembleTemperatureScaling("mse")),
    ("criterion", lambda: c.EnsembleTemperatureScaling("ece")),
    ("num_knots", lambda: c.SplineCalibration(num_knots=0)),
    ("num_knots", lambda: c.SplineCalibration(num_knots=-1)),
    ("off_diagonal", lambda: c.MatrixScaling(off_diagonal=-1.0)),
    ("off_diagonal", lambda: c.MatrixScaling(off_diagonal=float("nan"))),
    ("intercept", lambda: c.MatrixScaling(intercept=-1.0)),
    ("intercept", lambda: c.MatrixScaling(intercept=float("inf"))),
    ("off_diagonal", lambda: c.DirichletCalibration(off_diagonal=-1.0)),
    ("intercept", lambda: c.DirichletCalibration(intercept=-1.0)),
    ("num_bins", lambda: c.HistogramBinning(num_bins=0)),
    ("num_bins", lambda: c.HistogramBinning(num_bins=-3)),
    ("calibrators", lambda: c.Compose()),
    ("calibrators", lambda: c.Compose(torch.nn.Identity())),
    ("calibrators", lambda: c.Compose(c.TemperatureScaling)),
]


@pytest.mark.parametrize(("argument", "make"), SETTINGS, ids=[f"{i} {name}" for i, (name, _) in enumerate(SETTINGS)])
def test_settings_that_mean_nothing_are_refused(argument, make):
    refused(argument, make)


def test_a_grid_of_one_temperature_is_enough():
    logits, labels = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]), [0, 0, 1]
    assert c.TemperatureScaling(grid=[3.0]).fit(logits, labels).temperature_ == 3.0
