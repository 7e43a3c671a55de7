"""What every calibrator promises: one test for each promise, run over all of them."""

from __future__ import annotations

import copy
import io
import itertools
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import focalcal.calibrators as c
from focalcal import metrics as m
from focalcal.calibrators.table import calibrator_entries
from focalcal.errors import NotFittedError
from tests.calibrators.cases import (
    CASES,
    calibrators_that,
    close,
    every_calibrator,
    every_kind,
    every_variant,
    require_no_worse,
    same,
    softmax,
    state_of,
)

ROWS = 60


def fresh(case, rows=ROWS, dtype=torch.float64):
    """Logits that the calibrator was not fitted to."""
    return torch.tensor(case.data(rows, seed=9)[0], dtype=dtype)


def test_every_calibrator_of_the_contract_is_here():
    assert {entry.load() for entry in calibrator_entries()} | {c.Compose} == {type(case.make()) for case in CASES}


# What a method writes itself. Everything else is the base class's, and is tested on one calibrator of each kind.
OWN = {"__init__", "_fit", "_log_probs", "settings", "FITTED", "PER_CLASS", "BINARY"}
MORE = {
    c.FocalCalibration: {"_reset"},  # a gamma that was given is there before any fit
    c.Compose: {"_reset", "is_fitted", "require_fitted", "_require_classes", "leaves_scores"},  # asks its parts
    c.Identity: {"leaves_scores"},
}
PYTHON = {"__module__", "__doc__", "__annotations__", "__abstractmethods__", "_abc_impl", "__firstlineno__"}
PYTHON |= {"__static_attributes__"}


KINDS = sorted({type(case.make()) for case in CASES}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nobody_overrides_what_the_base_class_does_for_all(kind):
    mine = itertools.takewhile(lambda each: each is not c.Calibrator, kind.__mro__)
    written = {name for each in mine for name in vars(each)}
    inherited = {name for each in c.Calibrator.__mro__ for name in vars(each)}
    assert written & inherited <= OWN | MORE.get(kind, set()) | PYTHON


# ------------------------------------------------------------------------------------------------------- what comes out


@every_kind
def test_it_is_a_module_from_logits_to_log_probs(case):
    calibrator, logits = case.fitted(), fresh(case)
    assert isinstance(calibrator, nn.Module)
    assert list(calibrator.parameters()) == []  # nothing for an optimiser to change
    log_probs = calibrator(logits)
    same(log_probs, calibrator.forward(logits))
    same(calibrator.predict_probs(logits), log_probs.exp())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
@every_calibrator
def test_log_probs_are_finite_and_probabilities_sum_to_one(case, dtype, tolerance):
    for scale in (0.0, 1e-3, 1.0, 30.0, 1e4):
        log_probs = case.fitted()(scale * fresh(case, dtype=dtype))
        assert log_probs.dtype == dtype
        assert bool(torch.isfinite(log_probs).all())
        assert bool((log_probs <= 0).all())
        close(log_probs.exp().sum(1), np.ones(ROWS), tolerance)


@every_calibrator
def test_a_row_does_not_depend_on_its_neighbours(case):
    calibrator, logits = case.fitted(), fresh(case)
    whole = calibrator(logits)
    close(torch.cat([calibrator(row[None]) for row in logits]), whole, 1e-12)
    close(calibrator(logits.flip(0)).flip(0), whole, 1e-12)


@calibrators_that("shift_invariant")
def test_a_constant_added_to_the_logits_changes_nothing(case):
    logits = fresh(case)
    close(case.fitted()(logits + 3.0), case.fitted()(logits))


@calibrators_that("keeps_class")
def test_the_predicted_class_stays(case):
    calibrator = case.fitted()
    for dtype in (torch.float32, torch.float64):
        for scale in (1e-3, 1.0, 30.0):
            logits = scale * fresh(case, 2000, dtype)
            assert torch.equal(calibrator(logits).argmax(1), logits.argmax(1))


@calibrators_that("keeps_class")
def test_the_predicted_class_stays_on_top_when_others_come_close(case):
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        steps = torch.randint(0, 4, (2000, case.classes), generator=generator)
        logits = (1 + steps * torch.finfo(dtype).eps).to(dtype)  # apart by the last bits only
        log_probs = case.fitted()(logits)
        top = log_probs.gather(1, logits.argmax(1, keepdim=True)).squeeze(1)
        # Equal probabilities are allowed: there may be no number left between two.
        assert bool((top >= log_probs.amax(1) - 4 * torch.finfo(dtype).eps).all())


# --------------------------------------------------------------------------------------------------- what may be given


@every_kind
def test_further_dimensions_are_more_rows(case):
    calibrator, logits = case.fitted(), fresh(case, 24)
    flat = calibrator(logits)
    deep = logits.reshape(4, 6, -1).movedim(2, 1)
    deeper = logits.reshape(4, 2, 3, -1).movedim(3, 1)
    assert calibrator(deep).shape == deep.shape
    assert calibrator(deeper).shape == deeper.shape
    close(calibrator(deep).movedim(1, -1).reshape(flat.shape), flat, 1e-12)
    close(calibrator(deeper).movedim(1, -1).reshape(flat.shape), flat, 1e-12)
    close(calibrator.predict_probs(deeper).movedim(1, -1).reshape(flat.shape), flat.exp(), 1e-12)


@every_kind
def test_a_fit_to_further_dimensions_is_a_fit_to_more_rows(case):
    logits, labels = case.data()
    deep = np.moveaxis(logits.reshape(20, 3, 4, -1), 3, 1)
    fitted = case.make().fit(deep, labels.reshape(20, 3, 4))
    assert state_of(fitted) == state_of(case.fitted())


@every_kind
def test_two_classes_may_come_as_one_score_each(case):
    logits, labels = case.binary_data()
    scores = logits[:, 1] - logits[:, 0]
    pairs = np.stack([np.zeros_like(scores), scores], 1)
    one, two = case.make().fit(scores, labels), case.make().fit(pairs, labels)
    assert state_of(one) == state_of(two)
    same(one(scores[:9]), two(pairs[:9]))
    same(one.predict_probs(scores[:9]), np.ascontiguousarray(two.predict_probs(pairs[:9])[:, 1]))
    assert one.predict_probs(scores[:9]).shape == (9,)


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
@every_kind
def test_two_classes_may_come_as_one_probability_each(case, kind):
    logits, labels = case.binary_data()
    probs = softmax(logits)
    pairs = probs if kind == "probs" else np.log(probs)
    one = case.make().fit(pairs[:, 1], labels, kind=kind)
    two = case.make().fit(pairs, labels, kind=kind)
    close(one.predict_probs(pairs, kind=kind), two.predict_probs(pairs, kind=kind), 1e-7)
    fresh_pairs = softmax(case.binary_data(seed=9)[0])
    fresh_pairs = fresh_pairs if kind == "probs" else np.log(fresh_pairs)
    close(two.predict_probs(fresh_pairs[:, 1], kind=kind), two.predict_probs(fresh_pairs, kind=kind)[:, 1], 1e-7)


@every_kind
def test_arrays_give_arrays_and_tensors_give_tensors(case):
    logits, labels = case.data()
    from_tensors = case.make().fit(torch.tensor(logits), torch.tensor(labels))
    from_lists = case.make().fit(logits.tolist(), labels.tolist())
    assert state_of(from_tensors) == state_of(from_lists) == state_of(case.fitted())
    tensor = fresh(case)
    same(from_tensors(tensor.numpy()), from_tensors(tensor).numpy())
    same(from_tensors.predict_probs(tensor.numpy()), from_tensors.predict_probs(tensor).numpy())
    same(from_tensors.predict_probs(tensor.tolist()), from_tensors.predict_probs(tensor))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_kind
def test_half_precision_is_computed_and_answered_in_single(case, dtype):
    calibrator, logits = case.fitted(), fresh(case, dtype=dtype)
    same(calibrator(logits), calibrator(logits.float()))
    same(calibrator.predict_probs(logits), calibrator.predict_probs(logits.float()))
    counts = torch.tensor(np.random.default_rng(0).multinomial(60, softmax(case.data(ROWS)[0])))
    probs = ((counts + 4 / case.classes) / 64).to(dtype)  # the same in every precision
    same(calibrator.predict_probs(probs, kind="probs"), calibrator.predict_probs(probs.float(), kind="probs"))
    data, labels = (torch.tensor(values) for values in case.data())
    halved = case.make().fit(data.to(dtype), labels)
    assert state_of(halved) == state_of(case.make().fit(data.to(dtype).float(), labels))
    if dtype == torch.float16:
        same(calibrator(logits.numpy()), calibrator(logits).numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_kind
def test_probabilities_in_half_precision_may_miss_one_by_their_rounding(case, dtype):
    logits, labels = (torch.tensor(values) for values in case.data())
    probs = logits.softmax(1).to(dtype)
    assert bool(((probs.double().sum(1) - 1).abs() > 1e-4).any())
    calibrator = case.make().fit(probs, labels, kind="probs")
    close(calibrator.predict_probs(probs, kind="probs").sum(1), np.ones(len(labels)), 2e-6)


@every_calibrator
def test_precisions_agree(case):
    calibrator = case.fitted()
    close(calibrator(fresh(case).float()).exp(), calibrator(fresh(case).float().double()).exp(), 2e-6)


@every_kind
def test_the_layout_in_memory_does_not_matter(case):
    logits, labels = case.data()
    wide = np.zeros((2 * len(logits), 2 * case.classes))
    wide[::2, ::2] = logits
    layouts = [np.asfortranarray(logits), wide[::2, ::2], np.ascontiguousarray(logits[::-1, ::-1])[::-1, ::-1]]
    assert not any(layout.flags.c_contiguous for layout in layouts)
    calibrator = case.fitted()
    for layout in layouts:
        assert state_of(case.make().fit(layout, labels)) == state_of(calibrator)
        same(calibrator.predict_probs(layout), calibrator.predict_probs(logits))
    columns = torch.tensor(logits).T.contiguous().T
    assert not columns.is_contiguous()
    close(calibrator(columns), calibrator(torch.tensor(logits)), 1e-12)
    assert state_of(case.make().fit(columns, torch.tensor(labels))) == state_of(calibrator)


@every_kind
def test_read_only_arrays_are_welcome(case):
    logits, labels = case.data()
    assert not logits.flags.writeable
    assert not labels.flags.writeable
    case.make().fit(logits, labels).predict_probs(logits)
    case.fitted()(logits)


@every_kind
def test_no_rows_give_no_rows(case):
    calibrator, none = case.fitted(), np.zeros((0, case.classes))
    assert calibrator(none).shape == none.shape
    assert calibrator.predict_probs(none).shape == none.shape
    assert calibrator.predict_probs(torch.tensor(none), kind="probs").shape == none.shape
    assert calibrator(torch.zeros(0, case.classes, 3)).shape == (0, case.classes, 3)
    if not case.per_class or case.binary:
        assert calibrator.predict_probs(none[:, 0]).shape == (0,)


@every_calibrator
def test_kinds_of_scores_agree(case):
    logits, labels = case.data()
    probs, log_probs = softmax(logits), np.log(softmax(logits))
    of_probs = case.make().fit(probs, labels, kind="probs")
    of_log_probs = case.make().fit(log_probs, labels, kind="log_probs")
    others = softmax(fresh(case).numpy())
    expected = of_probs.predict_probs(others, kind="probs")
    close(of_log_probs.predict_probs(np.log(others), kind="log_probs"), expected, 1e-7)
    close(of_probs.predict_probs(np.log(others), kind="log_probs"), expected)
    close(of_probs(np.log(others)), np.log(expected))  # log-probabilities are logits
    if case.shift_invariant:
        close(case.fitted().predict_probs(fresh(case)), expected, 1e-7)
        close(case.fitted().predict_probs(others, kind="probs"), expected, 1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_calibrator
def test_probabilities_of_exactly_zero_are_welcome(case, dtype):
    probs, labels = softmax(case.data()[0]).astype(dtype), case.data()[1]
    probs[:20] = np.eye(case.classes)[labels[::-1][:20]]  # certain, and some of them wrong
    with np.errstate(divide="ignore"):
        log_probs = np.log(probs)
    for scores, kind in ((probs, "probs"), (log_probs, "log_probs")):
        calibrator = case.make().fit(scores, labels, kind=kind)
        assert math.isfinite(calibrator.report_.before)
        require_no_worse(case, calibrator.report_)
        calibrated = calibrator.predict_probs(scores, kind=kind)
        assert np.isfinite(calibrated).all()
        close(calibrated.sum(1), np.ones(len(probs)), 2e-6)
        close(
            calibrator.predict_probs(probs, kind="probs"), calibrator.predict_probs(log_probs, kind="log_probs"), 1e-4
        )


@every_kind
def test_labels_may_be_any_integers(case):
    logits, labels = case.data()
    for given in (labels.astype(np.int32), labels.astype(np.uint8), torch.tensor(labels, dtype=torch.int32)):
        assert state_of(case.make().fit(logits, given)) == state_of(case.fitted())


# ------------------------------------------------------------------------------------------------------ before the fit


@calibrators_that("not ready")
def test_before_the_fit_every_use_says_so(case, tmp_path):
    calibrator, logits = case.make(), fresh(case)
    assert not calibrator.is_fitted
    uses = {
        "forward": lambda: calibrator(logits),
        "arrays": lambda: calibrator(logits.numpy()),
        "predict_probs": lambda: calibrator.predict_probs(logits),
        "save": lambda: calibrator.save(tmp_path / f"c{case.suffix}"),
        "to_onnx": lambda: calibrator.to_onnx(tmp_path / "c.onnx"),
        "to_onnx of a number of classes": lambda: calibrator.to_onnx(tmp_path / "c.onnx", num_classes=case.classes),
    }
    for use in uses.values():
        with pytest.raises(NotFittedError, match="fit"):
            use()
    for name in calibrator.FITTED:
        assert not hasattr(calibrator, name)
        with pytest.raises(NotFittedError, match=name):
            getattr(calibrator, name)
    assert list(tmp_path.iterdir()) == []
    assert case.fitted().is_fitted


@every_kind
def test_there_is_no_report_before_the_fit(case):
    assert not hasattr(case.make(), "report_")
    with pytest.raises(NotFittedError, match=r"report_.*fit"):
        case.make().report_  # noqa: B018
    assert hasattr(case.fitted(), "report_")


@calibrators_that("ready")
def test_a_fit_of_what_needs_none_only_reports(case):
    fitted, logits = case.make().fit(*case.data()), fresh(case)
    assert not fitted.report_.kept_identity
    same(fitted(logits), case.make()(logits))


@calibrators_that("ready")
def test_what_needs_no_fit_works_without_one(case):
    calibrator, logits = case.make(), fresh(case)
    assert calibrator.is_fitted
    assert all(hasattr(calibrator, name) for name in calibrator.FITTED)
    same(calibrator.predict_probs(logits), calibrator(logits).exp())


@every_kind
def test_an_unknown_attribute_is_an_ordinary_error(case):
    for calibrator in (case.make(), case.fitted()):
        with pytest.raises(AttributeError, match="temprature_") as caught:
            calibrator.temprature_  # noqa: B018
        assert not isinstance(caught.value, NotFittedError)


@every_calibrator
def test_fitted_values_end_in_an_underscore_and_are_finite(case):
    calibrator = case.fitted()
    for part in [calibrator, *getattr(calibrator, "parts", [])]:
        assert part.num_classes_ == case.classes
        assert all(name.endswith("_") for name in part.FITTED)
        for name in part.FITTED:
            value = getattr(part, name)
            assert isinstance(value, (float, torch.Tensor))
            value = torch.as_tensor(value, dtype=torch.float64)
            assert not value.requires_grad
            assert bool(torch.isfinite(value).all())


# ------------------------------------------------------------------------------------------------------------- the fit


def criterion_of(calibrator, log_probs, labels):
    """The criterion of a report, by the public measures."""
    criterion = calibrator.criterion
    if criterion.name == "focal":
        p = np.exp(log_probs[np.arange(len(labels)), labels])
        return float(np.mean(-((1 - p) ** criterion.gamma) * np.log(p)))
    measure = {"ks": m.ks_error}.get(criterion.name) or getattr(m, criterion.name)
    options = {"num_bins": criterion.num_bins} if criterion.name in ("ece", "ada_ece") else {}
    return float(measure(log_probs, labels, kind="log_probs", **options))


@every_variant
def test_the_report_says_what_the_measures_say(case):
    calibrator = case.fitted()
    logits, labels = case.data()
    report = calibrator.report_
    assert report.criterion == calibrator.criterion.name
    before = criterion_of(calibrator, np.log(softmax(logits)), labels)
    after = criterion_of(calibrator, calibrator(logits), labels)
    assert report.before == pytest.approx(before, rel=1e-9)
    assert report.after == pytest.approx(after, rel=1e-9)
    require_no_worse(case, report)


@every_kind
def test_the_report_has_its_fields(case):
    report = case.fitted().report_
    kinds = {
        "criterion": str,
        "before": float,
        "after": float,
        "iterations": int,
        "converged": bool,
        "at_boundary": bool,
        "kept_identity": bool,
        "num_rows": int,
        "passes": int,
    }
    assert {name: type(value) for name, value in report.to_dict().items()} == kinds
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False)) == report.to_dict()
    assert report.num_rows == len(case.data()[0])
    assert report.iterations >= (0 if case.ready else 1)
    assert report.converged


@calibrators_that("not ready")
def test_an_overconfident_model_gains_by_the_fit(case):
    report = case.fitted().report_
    assert not report.kept_identity
    assert report.after < report.before


@calibrators_that("not ready")
def test_where_the_identity_is_kept_it_is_the_identity(case):
    for seed in range(2):
        logits, labels = case.data(40, seed=seed)
        calibrator = case.make().fit(logits / 2.0, labels)
        if calibrator.report_.kept_identity:
            assert calibrator.report_.after == calibrator.report_.before
            same(calibrator(logits), torch.log_softmax(torch.tensor(logits), 1).numpy())
        after = criterion_of(calibrator, calibrator(logits / 2.0), labels)
        assert after <= criterion_of(calibrator, np.log(softmax(logits / 2.0)), labels) + 1e-12


@every_kind
def test_fit_gives_the_calibrator_itself(case):
    calibrator = case.make()
    assert calibrator.fit(*case.data(50)) is calibrator


@every_kind
def test_a_second_fit_replaces_the_first(case):
    other = case.data(100, seed=5)
    assert state_of(case.fitted().fit(*other)) == state_of(case.make().fit(*other)) != state_of(case.fitted())


@calibrators_that("not binary")
def test_a_second_fit_may_have_another_number_of_classes(case):
    other = case.binary_data(100)
    assert state_of(case.fitted().fit(*other)) == state_of(case.make().fit(*other))


@every_calibrator
def test_the_same_fit_twice_is_the_same_to_the_last_bit(case):
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tobytes()  # noqa: NPY002
    assert state_of(case.make().fit(*case.data())) == state_of(case.fitted())
    assert torch.equal(before[0], torch.get_rng_state())  # a fit draws nothing
    assert before[1] == np.random.get_state()[1].tobytes()  # noqa: NPY002


@every_calibrator
def test_the_order_of_rows_does_not_matter(case):
    logits, labels = case.data()
    order = np.random.default_rng(3).permutation(len(labels))
    shuffled = case.make().fit(logits[order], labels[order])
    close(shuffled.predict_probs(fresh(case)), case.fitted().predict_probs(fresh(case)))


@every_variant
def test_whole_weights_are_repeated_rows(case):
    logits, labels = case.data(120)
    weight = np.random.default_rng(4).integers(1, 4, len(labels))
    weighted = case.make().fit(logits, labels, sample_weight=weight)
    repeated = case.make().fit(np.repeat(logits, weight, 0), np.repeat(labels, weight))
    close(weighted.predict_probs(fresh(case)), repeated.predict_probs(fresh(case)))
    close(weighted.report_.before, repeated.report_.before)
    close(weighted.report_.after, repeated.report_.after)
    assert abs(weighted.report_.before - case.make().fit(logits, labels).report_.before) > 1e-6


@every_kind
def test_rows_of_weight_zero_are_left_out(case):
    logits, labels = case.data(120)
    weight = (np.arange(len(labels)) % 3 > 0).astype(float)
    weighted = case.make().fit(logits, labels, sample_weight=weight)
    left = case.make().fit(logits[weight > 0], labels[weight > 0])
    close(weighted.predict_probs(fresh(case)), left.predict_probs(fresh(case)))
    assert weighted.report_.num_rows == left.report_.num_rows


@calibrators_that("not counts_rows")
def test_the_scale_of_the_weights_does_not_matter(case):
    logits, labels = case.data(120)
    weight = np.random.default_rng(4).random(len(labels))
    small = case.make().fit(logits, labels, sample_weight=weight)
    large = case.make().fit(logits, labels, sample_weight=torch.tensor(1024 * weight))
    close(small.predict_probs(fresh(case)), large.predict_probs(fresh(case)))
    close(small.report_.before, large.report_.before)


@every_calibrator
def test_the_input_is_never_modified(case):
    logits, labels = (values.copy() for values in case.data())
    weight = np.ones(len(labels))
    weight[:7] = 0
    probs = softmax(logits)
    kept = [values.tobytes() for values in (logits, labels, weight, probs)]
    calibrator = case.make().fit(logits, labels, sample_weight=weight)
    calibrator(logits)
    calibrator(torch.from_numpy(logits))
    calibrator.predict_probs(logits)
    case.make().fit(probs, labels, kind="probs", sample_weight=weight).predict_probs(probs, kind="probs")
    case.make().fit(torch.from_numpy(logits), torch.from_numpy(labels))
    assert [values.tobytes() for values in (logits, labels, weight, probs)] == kept


@every_kind
def test_a_fit_neither_needs_nor_leaves_gradients(case):
    logits, labels = (torch.tensor(values) for values in case.data())
    logits.requires_grad_()
    calibrator = case.make().fit(logits, labels)
    assert logits.grad is None
    assert not any(buffer.requires_grad for buffer in calibrator.buffers())
    assert not calibrator.predict_probs(logits).requires_grad
    with torch.no_grad():
        assert state_of(case.make().fit(logits, labels)) == state_of(calibrator)
    with torch.inference_mode():
        fitted = case.make().fit(logits.detach(), labels)
    assert state_of(fitted) == state_of(calibrator)
    fitted(logits)


@calibrators_that("differentiable")
def test_the_gradient_flows_to_the_logits(case):
    logits = fresh(case, 3).requires_grad_()
    assert torch.autograd.gradcheck(case.fitted(), (logits,))


# --------------------------------------------------------------------------------------------------- a module like any


@every_kind
def test_a_deep_copy_is_equal_and_apart(case):
    calibrator = case.fitted()
    copied = copy.deepcopy(calibrator)
    assert state_of(copied) == state_of(calibrator)
    same(copied(fresh(case)), calibrator(fresh(case)))
    copied.fit(*case.data(100, seed=5))
    assert state_of(calibrator) == state_of(case.fitted())
    assert copy.deepcopy(case.make()).is_fitted == case.ready


@every_kind
def test_a_state_dict_makes_a_fresh_one_equal(case):
    calibrator, logits = case.fitted(), fresh(case)
    other = case.make()
    assert other.load_state_dict(calibrator.state_dict(), strict=True)
    assert state_of(other) == state_of(calibrator)
    assert other.report_ == calibrator.report_
    same(other(logits), calibrator(logits))
    other.fit(*case.data(100, seed=5))  # the state is a copy
    assert state_of(calibrator) == state_of(case.fitted())
    calibrator.load_state_dict(case.make().state_dict())
    assert state_of(calibrator) == state_of(case.make())


@every_kind
def test_a_checkpoint_of_weights_only_brings_it_back(case):
    model = nn.Sequential(nn.Linear(3, case.classes), case.fitted())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = nn.Sequential(nn.Linear(3, case.classes), case.make())
    other.load_state_dict(torch.load(file, weights_only=True))
    same(other(torch.ones(5, 3)).detach(), model(torch.ones(5, 3)).detach())


@every_kind
def test_a_change_of_precision_keeps_the_fitted_values(case):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        calibrator = case.fitted().to(dtype)
        assert state_of(calibrator) == state_of(case.fitted())
        same(calibrator(fresh(case)), case.fitted()(fresh(case)))
        assert case.make().to(dtype).is_fitted == case.ready
    model = nn.Sequential(nn.Identity(), case.fitted()).half()
    same(model(fresh(case)), case.fitted()(fresh(case)))


@every_calibrator
def test_it_moves_with_its_module(case):
    calibrator = nn.Sequential(case.fitted()).to("meta")
    assert all(buffer.device.type == "meta" for buffer in calibrator.buffers())
    logits = torch.empty(5, case.classes, 3, device="meta")
    assert calibrator(logits).shape == logits.shape
    assert calibrator(logits).device.type == "meta"


@every_kind
def test_training_and_evaluation_are_the_same(case):
    calibrator, logits = case.fitted(), fresh(case)
    assert not calibrator.eval().training
    evaluated = calibrator(logits)
    assert calibrator.train().training
    same(calibrator(logits), evaluated)
    calibrator.zero_grad()


@every_kind
def test_its_repr_names_it_and_says_what_was_fitted(case):
    calibrator = case.fitted()
    assert type(calibrator).__name__ in repr(case.make())
    assert type(calibrator).__name__ in repr(calibrator)
    for name in calibrator.FITTED:
        if isinstance(getattr(calibrator, name), float):
            assert name in repr(calibrator)
            assert case.ready or name not in repr(case.make())


@every_calibrator
def test_its_settings_make_another_like_it(case):
    calibrator = case.fitted()
    settings = calibrator.settings()
    assert settings == case.make().settings()  # a fit changes no setting
    read = json.loads(json.dumps(settings, allow_nan=False))
    assert read == settings
    if isinstance(calibrator, c.Compose):
        return  # its parts have settings of their own
    other = type(calibrator)(**read)
    assert other.settings() == settings
    assert repr(other) == repr(case.make())
    assert state_of(other.fit(*case.data())) == state_of(calibrator)


# ---------------------------------------------------------------------------------------------------------- in a row


@every_kind
def test_compose_and_sequential_agree_on_what_is_fitted(case):
    logits = fresh(case)
    first, last = case.fitted(), c.TemperatureScaling().fit(*case.data(100, seed=5))
    composed = c.Compose(first, last)
    assert composed.is_fitted
    same(composed(logits), nn.Sequential(first, last)(logits))
    same(composed(logits), last(first(logits)))
    same(c.Compose(last, first)(logits), first(last(logits)))
    object.__setattr__(first._report, "kept_identity", True)
    same(composed(logits), last(torch.log_softmax(logits, 1)))


@every_kind
def test_compose_fits_each_to_what_the_one_before_makes_of_the_logits(case):
    logits, labels = case.data()
    composed = c.Compose(case.make(), c.TemperatureScaling()).fit(logits, labels)
    first, last = composed.parts
    assert state_of(first) == state_of(case.fitted())
    assert last.temperature_ == c.TemperatureScaling().fit(first(logits), labels).temperature_
    same(composed(logits), nn.Sequential(first, last)(torch.tensor(logits)).numpy())
    close(composed.report_.before, m.nll(logits, labels))
    close(composed.report_.after, m.nll(composed(logits), labels))
