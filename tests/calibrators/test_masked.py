"""Calibrators of logits with masked classes: fitted to the classes that are left, which share the probability."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import focalcal as fc
import focalcal.calibrators as c
from focalcal.calibrators.fit_data import data_of_arrays
from focalcal.files import PredictionStream
from tests.calibrators.cases import ALL, draw

every_case = pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
WAYS = [(np.float64, -np.inf), (np.float64, -1e37), (np.float32, np.finfo(np.float32).min), (np.float16, -65504.0)]


def masked_data(classes, rows=240):
    """Rows with masked classes, some of which leave their label only."""
    logits, labels = draw(rows, classes)
    masked = np.random.default_rng(1).random(logits.shape) < 0.3
    masked[::9] = True
    masked[np.arange(rows), labels] = False
    return np.where(masked, -np.inf, logits), labels, masked


def given(logits, dtype, mask):
    return np.where(np.isinf(logits), mask, logits).astype(dtype)


def values(calibrator):
    return [part for part in calibrator.state_dict().values() if isinstance(part, torch.Tensor)]


@every_case
def test_masked_classes_stay_masked_and_the_others_share_the_probability(case):
    logits, labels, masked = masked_data(case.classes)
    half = logits.astype(np.float16)  # so that all dtypes have the same logits
    fits = []
    for dtype, mask in WAYS:
        scores = given(half.astype(np.float64), dtype, mask)
        fitted = case.make().fit(scores, labels)
        assert np.isfinite([fitted.report_.before, fitted.report_.after]).all()
        assert fitted.report_.after <= fitted.report_.before + 1e-12 or fitted.report_.iterations == 0
        probs = fitted.predict_probs(scores)
        near = 1e-12 if dtype is np.float64 else 1e-6
        assert probs.sum(1) == pytest.approx(1, abs=near)
        assert not probs[masked].any()
        assert (probs[masked.sum(1) == case.classes - 1].max(1) == 1).all()
        log_probs = fitted(torch.from_numpy(scores))
        assert bool((log_probs[torch.from_numpy(masked)] == -torch.inf).all())
        assert bool(torch.isfinite(log_probs[torch.from_numpy(~masked)]).all())
        fits.append((fitted, probs))
    assert all(torch.equal(*pair) for pair in zip(values(fits[0][0]), values(fits[1][0]), strict=True))
    assert (fits[0][1] == fits[1][1]).all()
    for _, probs in fits[2:]:
        assert probs == pytest.approx(fits[0][1], abs=2e-4)


# A penalty that is given is divided by the number of all classes.
FREE = [case for case in ALL if not case.binary and not case.id.endswith("regularised")]


@pytest.mark.parametrize("case", FREE, ids=lambda case: case.id)
def test_a_class_that_is_always_masked_changes_nothing(case):
    logits, labels = case.data()
    one_more = np.insert(logits, 2, np.finfo(np.float64).min, axis=1)
    plain = case.make().fit(logits, labels)
    fitted = case.make().fit(one_more, labels + (labels >= 2))
    near = 1e-6 if "ece" in case.id else 1e-8
    assert np.delete(fitted.predict_probs(one_more), 2, axis=1) == pytest.approx(plain.predict_probs(logits), abs=near)
    assert np.isfinite(fitted.predict_probs(draw(20, 5)[0])).all()  # of a class that the fit knows nothing of


@every_case
def test_a_masked_label_is_refused_by_row(case, tmp_path):
    logits, labels, masked = masked_data(case.classes)
    labels = labels.copy()
    labels[9] = np.flatnonzero(masked[9])[0]
    message = f"labels: a label must not be masked; class {labels[9]} is, in row 9"
    with pytest.raises(fc.InputError, match=message):
        case.make().fit(logits, labels)
    np.savez(tmp_path / "rows.npz", logits=logits, labels=labels)
    with pytest.raises(fc.InputError, match=message):
        case.make().fit(PredictionStream(tmp_path / "rows.npz"))
    weight = (np.arange(len(labels)) != 9) * 1.0
    case.make().fit(logits, labels, sample_weight=weight)


@pytest.mark.parametrize("case", [case for case in ALL if case.streams], ids=lambda case: case.id)
def test_a_fit_to_a_stream_is_that_to_the_arrays(case):
    logits, labels, _ = masked_data(case.classes)
    parts = [slice(0, 100), slice(100, 240)]
    streamed = case.make().fit(lambda: ((logits[part], labels[part]) for part in parts))
    assert streamed.predict_probs(logits) == pytest.approx(case.make().fit(logits, labels).predict_probs(logits))


def test_binning_a_long_stream_leaves_out_masked_rows(tmp_path):
    logits, labels, _ = masked_data(4)
    logits[:, 3] = -np.inf
    logits, labels = logits[labels != 3], labels[labels != 3]
    np.savez(tmp_path / "rows.npz", logits=logits, labels=labels)
    streamed = c.HistogramBinning(5).fit(PredictionStream(tmp_path / "rows.npz", memory=0))
    whole = c.HistogramBinning(5).fit(logits, labels)
    assert streamed.predict_probs(logits) == pytest.approx(whole.predict_probs(logits), abs=0.02)


@pytest.mark.parametrize(
    "make", [c.VectorScaling, lambda: c.MatrixScaling(0.3, 0.1), lambda: c.DirichletCalibration(0.3, 0.1)]
)
def test_the_linear_ones_have_the_least_nll_over_the_classes_left(make):
    logits, labels, masked = masked_data(4, 600)
    fitted = make().fit(logits, labels)
    inputs = (
        torch.log_softmax(torch.tensor(logits), 1) if type(fitted) is c.DirichletCalibration else torch.tensor(logits)
    )
    known = inputs.masked_fill(torch.tensor(masked), 0.0)
    full = fitted.weight_.dim() == 2

    def objective(weight, bias):
        mapped = (known @ weight if full else known * weight) + bias
        log_p = torch.log_softmax(mapped.masked_fill(torch.tensor(masked), -torch.inf), 1)
        nll = -log_p.gather(1, torch.tensor(labels)[:, None]).mean()
        if not full:
            return nll
        off_diagonal = weight - torch.diag(weight.diagonal())
        return nll + 0.3 / 12 * off_diagonal.square().sum() + 0.1 / 4 * bias.square().sum()

    point = [fitted.weight_.clone().requires_grad_(), fitted.bias_.clone().requires_grad_()]
    gradients = torch.autograd.grad(objective(*point), point)
    assert max(float(part.abs().max()) for part in gradients) < 1e-8
    assert fitted.report_.converged


@pytest.mark.parametrize("make", [c.PlattScaling, c.BetaCalibration, lambda: c.BetaCalibration("ab")])
def test_rows_that_leave_one_of_two_classes_teach_nothing(make):
    logits, labels, masked = masked_data(2)
    free = ~masked.any(1)
    one, other = make().fit(logits, labels), make().fit(logits[free], labels[free])
    assert [getattr(one, name) for name in one.FITTED] == pytest.approx([getattr(other, name) for name in one.FITTED])
    with pytest.raises(fc.InputError, match="logits: a class is masked in every row"):
        make().fit(logits[~free], labels[~free])


@pytest.mark.parametrize("case", [case for case in ALL if case.differentiable], ids=lambda case: case.id)
def test_gradients_through_a_calibrator_are_finite_and_zero_at_masks(case):
    logits, labels, masked = masked_data(case.classes)
    fitted = case.make().fit(logits, labels)
    x = torch.tensor(logits, requires_grad=True)
    torch.nn.functional.nll_loss(fitted(x), torch.tensor(labels)).backward()
    assert bool(torch.isfinite(x.grad).all())
    assert not bool(x.grad[torch.tensor(masked)].any())


def test_selection_takes_masked_logits():
    logits, labels, masked = masked_data(4)
    selection = fc.select_calibrator(logits, labels, methods=["temperature", "vector"], num_folds=3)
    assert not selection.best.predict_probs(logits)[masked].any()


def test_criteria_read_masked_logits():
    logits, labels, _ = masked_data(4)
    far = np.where(np.isinf(logits), -1e4, logits)
    for name in ("nll", "brier", "ece", "ada_ece", "smooth_ece", "ks"):
        values = [
            c.search.criteria.Criterion(name).of(data_of_arrays(x, labels, "logits", None)) for x in (logits, far)
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert_close(
        fc.FocalCalibration(1.0)(torch.tensor(logits)).exp(), fc.FocalCalibration(1.0)(torch.tensor(far)).exp()
    )
