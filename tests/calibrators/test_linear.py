"""Vector, matrix and Dirichlet scaling against scipy, scikit-learn and finite differences."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

import focalcal.calibrators.linear as linear
from focalcal.calibrators import DirichletCalibration, MatrixScaling, VectorScaling
from focalcal.calibrators.fit_data import data_of_arrays
from focalcal.calibrators.linear import _MatrixCoordinates, _Objective, _VectorCoordinates
from focalcal.calibrators.standardisation import Moments
from focalcal.errors import InputError
from tests.calibrators.cases import close, draw, softmax

FREE = {"off_diagonal": 0.0, "intercept": 0.0}
MAPS = [VectorScaling, lambda: MatrixScaling(**FREE), lambda: MatrixScaling(0.3, 0.1), lambda: DirichletCalibration()]
every_map = pytest.mark.parametrize("make", MAPS, ids=["vector", "matrix", "penalised matrix", "dirichlet"])


def nll(logits, labels):
    logits = logits - logits.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]))


def least(objective, size):
    """The minimum by BFGS with numerical derivatives, polished from where it stopped."""
    point = np.zeros(size)
    for _ in range(3):
        point = minimize(objective, point, method="BFGS", options={"gtol": 1e-9}).x
    return point, objective(point)


def test_the_hessian_of_a_matrix_is_the_sum_over_rows_of_its_definition():
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(30, 4, dtype=torch.float64, generator=generator), torch.linspace(0.1, 2, 30).double()
    p = torch.randn(30, 4, dtype=torch.float64, generator=generator).softmax(1)
    moments = Moments()
    moments.add(x, weight, 1e-16)
    coordinates = _MatrixCoordinates(moments, 0.0, 0.0)
    z = coordinates.features(x)
    bend = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    expected = torch.einsum("n,na,nb,nkl->akbl", weight, z, z, bend).reshape(coordinates.size, -1)
    torch.testing.assert_close(coordinates.hessian(z, p, weight), expected, rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------------------------- the exact minimum


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_vector_scaling_is_the_minimum_that_scipy_finds(classes):
    logits, labels = draw(200, classes)
    point, value = least(lambda t: nll(logits * t[:classes] + t[classes:], labels), 2 * classes)
    calibrator = VectorScaling().fit(logits, labels)
    assert calibrator.report_.after <= value + 1e-14
    assert calibrator.report_.after == pytest.approx(value, abs=1e-11)
    close(calibrator.weight_, point[:classes], 1e-4)
    close(calibrator.bias_, point[classes:] - point[classes:].mean(), 1e-4)
    assert abs(float(calibrator.bias_.mean())) < 1e-15


@pytest.mark.parametrize(("off_diagonal", "intercept"), [(0.3, 0.0), (0.0, 0.7), (0.5, 2.0), (None, None)])
@pytest.mark.parametrize("classes", [2, 3])
def test_matrix_scaling_is_the_minimum_of_nll_and_penalty(classes, off_diagonal, intercept):
    logits, labels = draw(150, classes)
    by_weight = classes * (classes - 1) / 50 if off_diagonal is None else off_diagonal
    by_bias = classes / 50 if intercept is None else intercept
    off = ~np.eye(classes, dtype=bool)

    def objective(theta):
        weight, bias = theta[:-classes].reshape(classes, classes), theta[-classes:]
        penalty = by_weight * np.mean(weight[off] ** 2) + by_bias * np.mean(bias**2)
        return nll(logits @ weight + bias, labels) + penalty

    point, value = least(objective, classes * (classes + 1))
    calibrator = MatrixScaling(off_diagonal, intercept).fit(logits, labels)
    found = np.concatenate([calibrator.weight_.numpy().ravel(), calibrator.bias_.numpy()])
    assert objective(found) <= value + 1e-14
    assert objective(found) == pytest.approx(value, abs=1e-11)
    assert calibrator.report_.after == pytest.approx(nll(calibrator(logits), labels), abs=1e-14)  # no penalty in it
    if by_weight > 0:
        close(calibrator.weight_, point[:-classes].reshape(classes, classes), 1e-4)


@pytest.mark.parametrize("classes", [3, 5])
def test_without_penalty_it_is_logistic_regression(classes):
    logits, labels = draw(400, classes)
    regression = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(logits, labels)
    calibrator = MatrixScaling(**FREE).fit(logits, labels)
    close(calibrator.predict_probs(logits), regression.predict_proba(logits), 1e-5)
    assert calibrator.report_.after <= nll(regression.predict_log_proba(logits), labels) + 1e-14


def test_dirichlet_calibration_is_matrix_scaling_of_log_probabilities():
    logits, labels = draw()
    log_probs = np.log(softmax(logits))
    dirichlet, matrix = (
        DirichletCalibration(0.1, 0.2).fit(logits, labels),
        MatrixScaling(0.1, 0.2).fit(log_probs, labels),
    )
    close(dirichlet.weight_, matrix.weight_, 1e-11)
    close(dirichlet.bias_, matrix.bias_, 1e-11)
    close(dirichlet(logits), matrix(log_probs), 1e-11)
    close(dirichlet(logits + 7.0), dirichlet(logits), 1e-11)


@pytest.mark.parametrize("make", [MatrixScaling, DirichletCalibration])
def test_without_penalty_the_parameters_are_those_of_a_vanishing_one(make):
    logits, labels = draw(600, 3)
    none, little = make(**FREE).fit(logits, labels), make(1e-7, 1e-7).fit(logits, labels)
    close(none.weight_, little.weight_, 1e-4)
    close(none.bias_, little.bias_, 1e-4)
    for calibrator in (none, little, make(0.5, 0.5).fit(logits, labels)):
        weight = calibrator.weight_
        close((weight.sum(1) - weight.diagonal()) / 2, np.zeros(3), 1e-9)
        close(calibrator.bias_.sum(), 0.0, 1e-9)


@pytest.mark.parametrize("strength", [1e2, 1e4, 1e6])
def test_a_strong_penalty_leaves_the_diagonal(strength):
    logits, labels = draw(300, 3)
    weight = MatrixScaling(strength, strength).fit(logits, labels).weight_
    off = weight - weight.diagonal().diag()
    assert float(off.abs().max()) < 10 / strength
    assert float(weight.diagonal().min()) > 0.2


# ----------------------------------------------------------------------------------------------------- the derivatives


def objective_of(kind, classes=3, rows=40):
    logits, labels = draw(rows, classes)
    weight = np.random.default_rng(0).random(rows)
    data = data_of_arrays(logits, labels, "logits", weight)
    moments = Moments(full=kind != "vector")
    for block in data.reduce(list, operator.add):
        moments.add(block.logits, block.weight, 1e-16)
    coordinates = _VectorCoordinates(moments) if kind == "vector" else _MatrixCoordinates(moments, 0.4, 0.3)
    return _Objective(data, lambda logits: logits, coordinates)


@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_gradient_and_hessian_are_finite_differences(kind):
    objective = objective_of(kind)
    size = objective.coordinates.size
    theta = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    here, width = objective.read(theta), 1e-5
    for place in range(size):
        move = torch.zeros(size, dtype=torch.float64)
        move[place] = width
        ahead, behind = objective.read(theta + move), objective.read(theta - move)
        assert (ahead.value - behind.value) / (2 * width) == pytest.approx(float(here.gradient[place]), abs=1e-9)
        close((ahead.gradient - behind.gradient) / (2 * width), here.hessian[place], 1e-8)


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_the_hessian_applied_is_the_hessian_and_the_blocks_are_its_own(kind, each):
    objective = objective_of(kind)
    generator = torch.Generator().manual_seed(0)
    theta, direction = (torch.randn(objective.coordinates.size, generator=generator).double() for _ in range(2))
    hessian = objective.read(theta).hessian
    objective.coordinates.dense, objective.coordinates.block_each = False, each
    bend = objective.read(theta).hessian
    close(bend.apply(direction), hessian @ direction, 1e-12)
    rows = len(theta) // 3
    own = hessian.view(rows, 3, rows, 3).diagonal(dim1=1, dim2=3).permute(2, 0, 1)
    close(bend.blocks, own if each or kind == "vector" else own.mean(0, keepdim=True), 1e-12)


@pytest.mark.parametrize("blocks", [1 << 24, 0])
@every_map
def test_many_parameters_are_fitted_to_the_same_minimum(make, blocks, monkeypatch):
    logits, labels = draw(400, 6)
    expected = make().fit(logits, labels)
    monkeypatch.setattr(linear, "_MOST_OF_VECTOR", 0)
    monkeypatch.setattr(linear, "_MOST_OF_MATRIX", 0)
    monkeypatch.setattr(linear, "_MOST_IN_BLOCKS", blocks)
    calibrator = make().fit(logits, labels)
    assert calibrator.report_.converged
    assert calibrator.report_.after == pytest.approx(expected.report_.after, abs=1e-13)
    close(calibrator.weight_, expected.weight_, 1e-7)
    close(calibrator.bias_, expected.bias_, 1e-7)


@pytest.mark.slow
def test_a_hundred_classes_are_fitted_to_the_minimum():
    logits, labels = draw(2000, 100)
    for calibrator in (VectorScaling(), MatrixScaling(300.0, 3.0)):
        report = calibrator.fit(logits, labels).report_
        assert report.converged
        assert report.after < report.before
    weight, bias = calibrator.weight_, calibrator.bias_
    p = torch.softmax(torch.tensor(logits) @ weight + bias, 1)
    p[torch.arange(2000), torch.tensor(labels)] -= 1
    off = weight - weight.diagonal().diag()
    gradient = torch.tensor(logits).T @ p / 2000 + 2 * 300 / 9900 * off
    assert float(gradient.abs().max()) < 1e-7
    assert float((p.mean(0) + 2 * 3 / 100 * bias).abs().max()) < 1e-8


# ------------------------------------------------------------------------------------------------- rows and their scale


@pytest.mark.parametrize("size", [1, 7, 64])
@every_map
def test_batches_give_the_parameters_of_the_whole(make, size):
    logits, labels = draw(130, 3)
    batches = [(logits[i : i + size], labels[i : i + size]) for i in range(0, len(labels), size)]
    whole, streamed = make().fit(logits, labels), make().fit(lambda: batches)
    close(streamed.weight_, whole.weight_, 1e-10)
    close(streamed.bias_, whole.bias_, 1e-10)


@every_map
def test_whole_weights_and_another_order_give_the_parameters_of_the_repeated_rows(make):
    logits, labels = draw(150, 3)
    generator = np.random.default_rng(0)
    weight = generator.integers(0, 4, len(labels))
    places = generator.permutation(np.repeat(np.arange(len(labels)), weight))
    weighted = make().fit(logits, labels, sample_weight=weight.astype(float))
    repeated = make().fit(logits[places], labels[places])
    close(weighted.weight_, repeated.weight_, 1e-10)
    close(weighted.bias_, repeated.bias_, 1e-10)


@pytest.mark.parametrize("make", MAPS[:2], ids=["vector", "matrix"])
def test_scale_and_place_of_each_logit_do_not_matter(make):
    logits, labels = draw(200, 3)
    scale, shift = np.array([1e-4, 1.0, 1e4]), np.array([100.0, -3.0, 1e4])
    plain, moved = make().fit(logits, labels), make().fit(logits * scale + shift, labels)
    assert moved.report_.after == pytest.approx(plain.report_.after, abs=1e-12)
    close(moved(logits * scale + shift), plain(logits), 1e-8)


@every_map
def test_single_precision_is_summed_in_double(make):
    logits, labels = draw(300, 3)
    single = logits.astype(np.float32)
    of_single, of_double = make().fit(single, labels), make().fit(single.astype(np.float64), labels)
    close(of_single.weight_, of_double.weight_, 1e-11)
    assert of_single.weight_.dtype == torch.float64


# --------------------------------------------------------------------------------------------------------- rough places


@pytest.mark.parametrize("rows", [12, 200])
@every_map
def test_separable_classes_have_no_minimum_and_the_report_says_so(make, rows):
    logits = draw(rows, 3)[0]
    calibrator = make().fit(logits, logits.argmax(1))
    report = calibrator.report_
    assert report.at_boundary
    assert not report.converged
    assert report.after < 1e-6
    assert bool(torch.isfinite(calibrator.weight_).all())
    assert np.isfinite(calibrator(1e4 * logits)).all()


def test_a_class_without_rows_gets_no_probability_to_speak_of():
    logits, labels = draw(200, 3)
    there = labels != 1
    calibrator = VectorScaling().fit(logits[there], labels[there])
    assert calibrator.report_.at_boundary
    assert np.isfinite(calibrator(logits)).all()
    assert calibrator.predict_probs(logits)[:, 1].max() < 1e-6
    others = VectorScaling().fit(logits[there][:, [0, 2]], labels[there] // 2)
    assert calibrator.report_.after == pytest.approx(others.report_.after, abs=1e-10)


def test_a_penalty_on_the_intercept_gives_a_class_without_rows_its_minimum():
    logits, labels = draw(200, 3)
    there = labels != 1
    report = MatrixScaling(1.0, 1.0).fit(logits[there], labels[there]).report_
    assert report.converged
    assert not report.at_boundary


@every_map
def test_what_does_not_vary_has_no_weight(make):
    logits, labels = draw(200, 3)
    logits = np.concatenate([logits, np.full((200, 1), 5.0)], 1)
    calibrator = make().fit(logits, labels)
    frequencies = make().fit(np.tile([4.0, 1.0, -2.0], (200, 1)), labels)
    if not isinstance(calibrator, DirichletCalibration):
        weight = calibrator.weight_
        assert float(weight[3] if weight.dim() == 1 else weight[3].abs().max()) == 0
    expected = np.bincount(labels) / 200
    if not isinstance(calibrator, MatrixScaling) or calibrator.intercept == 0:
        close(frequencies.predict_probs([[4.0, 1.0, -2.0]])[0], expected, 1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_that_depend_on_one_another_do_not_blow_up_the_weights(dtype):
    logits, labels = draw(300, 3)
    centred = (logits - logits.mean(1, keepdims=True)).astype(dtype)  # they sum to 0, up to rounding
    calibrator = MatrixScaling(**FREE).fit(centred, labels)
    assert calibrator.report_.converged
    assert float(calibrator.weight_.abs().max()) < 3
    # Two of the logits say all that there is.
    regression = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(centred[:, :2], labels)
    expected = nll(regression.predict_log_proba(centred[:, :2]), labels)
    assert calibrator.report_.after == pytest.approx(expected, abs=1e-6)


@every_map
def test_two_rows_and_two_classes_are_enough(make):
    for labels in ([0, 1], [0, 0], [1, 0]):
        report = make().fit([[1.0, 0.0], [0.5, 2.0]], labels).report_
        assert np.isfinite(report.after)
        assert report.after <= report.before


@every_map
def test_a_wrong_and_sure_model_is_brought_back(make):
    logits, labels = draw(200, 3)
    calibrator = make().fit(1e4 * logits, labels)
    assert calibrator.report_.before > 100
    assert calibrator.report_.after < 1.2
    assert calibrator.report_.converged


# ---------------------------------------------------------------------------------------------------------- the moments


def test_moments_in_blocks_are_those_of_the_whole():
    generator = np.random.default_rng(0)
    x, weight = generator.standard_normal((100, 4)) @ generator.standard_normal((4, 4)) + 1e6, generator.random(100)
    moments, variances = Moments(), Moments(full=False)
    for part in np.split(np.arange(100), [1, 30, 77]):
        for which in (moments, variances):
            which.add(torch.tensor(x[part]), torch.tensor(weight[part]), 1e-16)
    close(moments.mean, np.average(x, 0, weight), 1e-14)
    close(moments.covariance, np.cov(x.T, aweights=weight, ddof=0), 1e-8)
    close(variances.covariance, moments.covariance.diagonal(), 1e-12)
    directions = moments.directions()
    close(directions.T @ moments.covariance @ directions, np.eye(4), 1e-7)
    bent = moments.directions(2.0)
    close((bent.T @ moments.covariance @ bent).diagonal() + 2 * bent.square().sum(0), np.ones(4), 1e-7)
    some = moments.part([2, 0], centred=False)
    close(some.covariance, (x[:, [2, 0]].T * weight) @ x[:, [2, 0]] / weight.sum(), 1e-12)


@pytest.mark.parametrize("make", [MatrixScaling, DirichletCalibration])
def test_a_matrix_that_memory_cannot_hold_is_refused_before_it_is_allocated(make, monkeypatch):
    monkeypatch.setattr("focalcal.calibrators.linear.machine_memory", lambda: 16 << 30)
    monkeypatch.setattr("focalcal.calibrators.linear.Moments.add", lambda *_: pytest.fail("allocated"))
    few = np.zeros((3, 20_000), dtype=np.float32)
    message = (
        rf"logits: {make.__name__} has 20,000 x 20,000 = 400,000,000 weights, .* 24 numbers of 8 bytes for each: "
        r"71\.5 GiB of memory, and there are 16\.0 GiB\. Take VectorScaling, which has 40,000 weights"
    )
    with pytest.raises(InputError, match=message):
        make().fit(few, [0, 1, 2])
