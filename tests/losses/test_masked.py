"""Losses of logits with masked classes: those of the classes that are left."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

import focalcal as fc
import focalcal.kernels.focal_loss as rows_module
from tests import oracles
from tests.losses.test_contract import LOSSES, every_loss

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
INF = math.inf
# Classes that are masked in each row, and its label: only the label left, some left, none masked.
MASKED = [[0, 1, 3, 4], [1, 2, 3, 4], [0, 4], [2], []]
LABELS = torch.tensor([2, 0, 1, 4, 3])

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def masks(dtype):
    """How people mask: minus infinity, the lowest number, and in the wide dtypes -1e37."""
    return [-INF, torch.finfo(dtype).min, *([] if dtype is torch.float16 else [-1e37])]


def batch(dtype, mask=-INF):
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(5, 5, generator=generator)).to(dtype)
    for row, masked in enumerate(MASKED):
        logits[row, masked] = mask
    return logits


def left(row):
    return [k for k in range(5) if k not in MASKED[row]]


def exact(logits, gamma):
    """Loss and gradient of each row of the classes that are left."""
    values, gradients = [], []
    for row, (x, label) in enumerate(zip(logits.double().tolist(), LABELS.tolist(), strict=True)):
        kept, gradient = left(row), [0.0] * 5
        alone = len(kept) == 1
        values.append(0.0 if alone else oracles.loss([x[k] for k in kept], kept.index(label), gamma))
        some = [0.0] if alone else oracles.gradient([x[k] for k in kept], kept.index(label), gamma)
        for k, value in zip(kept, some, strict=True):
            gradient[k] = value
        gradients.append(gradient)
    as_floats = torch.tensor([float(v) for v in values]), torch.tensor([[float(v) for v in g] for g in gradients])
    return tuple(part.double() for part in as_floats)


# As it comes; lanes along classes where usually there are too few of them; and the definition in torch.
WAYS = {"few classes": {}, "many classes": {"_MANY_CLASSES": 2}, "defined": {"kernels_for": lambda scores: None}}


@pytest.mark.parametrize("gamma", [-1.5, 0.0, 0.4, 3.0])
@pytest.mark.parametrize("way", WAYS)
@every_dtype
def test_focal_loss_and_its_gradient_are_those_of_the_classes_left(dtype, way, gamma, monkeypatch):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(rows_module, name, value)
    for mask in masks(dtype):
        logits = batch(dtype, mask).requires_grad_()
        losses = fc.focal_loss(logits, LABELS, gamma=gamma, reduction="none")
        losses.sum().backward()
        values, gradients = exact(logits.detach(), gamma)
        assert_close(losses.double(), values, rtol=3e-6, atol=0)
        rounding = 4 * torch.finfo(dtype).eps
        assert_close(logits.grad.double(), gradients, rtol=max(rounding, 3e-6), atol=torch.finfo(dtype).tiny)
        assert losses[:2].tolist() == [0, 0]
        assert not logits.grad[:2].any()
        assert all(not logits.grad[row, masked].any() for row, masked in enumerate(MASKED))


@pytest.mark.parametrize("gamma", [torch.tensor([-1.0, 0.0, 2.0, 0.5, -0.3]), "flsd-53"], ids=["mixed", "policy"])
@every_dtype
def test_a_gamma_for_each_row_makes_no_difference_to_rows_that_are_sure(dtype, gamma):
    logits = batch(dtype).requires_grad_()
    made = fc.FocalLoss(gamma, reduction="none") if isinstance(gamma, str) else fc.FocalLoss(0.0, reduction="none")
    losses = made(logits, LABELS) if isinstance(gamma, str) else made(logits, LABELS, gamma=gamma)
    losses.sum().backward()
    assert losses[:2].tolist() == [0, 0]
    assert torch.isfinite(losses).all()
    assert torch.isfinite(logits.grad).all()
    assert not logits.grad[:2].any()


@every_loss
@every_dtype
def test_every_loss_is_finite_and_that_of_minus_infinity(dtype, make):
    expected = None
    for mask in masks(dtype):
        logits = batch(dtype, mask).requires_grad_()
        loss = make()(logits, LABELS)
        loss.backward()
        got = loss.detach(), logits.grad
        expected = expected or got
        assert torch.isfinite(got[0])
        assert torch.isfinite(got[1]).all()
        assert_close(got, expected, rtol=0, atol=0)
        assert all(not logits.grad[row, masked].any() for row, masked in enumerate(MASKED))
    single = make()(batch(dtype).float(), LABELS)
    assert_close(loss.float(), single, rtol=1e-6, atol=1e-7)


TRACED = [name for name in LOSSES if not name.startswith("mmce")]  # which counts rows that are not ignored


@pytest.mark.parametrize("name", TRACED)
@every_dtype
def test_traced_code_agrees(dtype, name):
    loss = LOSSES[name]()
    for mask in masks(dtype):
        eager = batch(dtype, mask).requires_grad_()
        loss(eager, LABELS).backward()
        gradient, value = torch.func.grad_and_value(lambda x: loss(x, LABELS))(batch(dtype, mask))
        assert_close(value, loss(eager, LABELS).detach(), rtol=1e-5, atol=1e-7)
        assert_close(gradient, eager.grad, rtol=max(1e-4, 8 * torch.finfo(dtype).eps), atol=1e-6)
        assert all(not gradient[row, masked].any() for row, masked in enumerate(MASKED))


@pytest.mark.slow  # starts torch's compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["inverse-focal", "adafocal", "label-smoothing"])
def test_compiled_code_agrees(name):
    dtype, loss = torch.bfloat16, LOSSES[name]()
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True)
    for mask in (-INF, torch.finfo(dtype).min):
        eager, fast = batch(dtype, mask).requires_grad_(), batch(dtype, mask).requires_grad_()
        loss(eager, LABELS).backward()
        value = compiled(fast, LABELS)
        value.backward()
        assert_close(value, loss(eager, LABELS), rtol=1e-5, atol=1e-7)
        assert_close(fast.grad, eager.grad, rtol=max(1e-4, 8 * torch.finfo(dtype).eps), atol=1e-6)


def masked_label(dtype, mask):
    logits = batch(dtype, mask)
    logits[3, 4] = mask  # the label of row 3
    return logits


@every_loss
@every_dtype
def test_a_masked_label_is_refused_by_row_and_class(dtype, make):
    for mask in masks(dtype):
        with pytest.raises(fc.InputError, match="labels: a label must not be masked; class 4 is, in row 3"):
            make()(masked_label(dtype, mask), LABELS)
        nothing = batch(dtype)
        nothing[1] = mask
        with pytest.raises(fc.InputError, match="class 0 is, in row 1"):
            make()(nothing, LABELS)


@pytest.mark.parametrize("way", WAYS)
def test_a_masked_label_is_refused_in_batches_of_all_sizes_and_shapes(way, monkeypatch):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(rows_module, name, value)
    logits = masked_label(torch.float32, -INF)
    with pytest.raises(fc.InputError, match="class 4 is, in row 3"):
        fc.focal_loss(logits, LABELS, gamma=2.0)
    images = logits.t().reshape(1, 5, 5)  # (N, K, d)
    with pytest.raises(fc.InputError, match=r"class 4 is, in index \(0, 3\)"):
        fc.focal_loss(images, LABELS[None], gamma=2.0)
    with pytest.raises(fc.InputError, match="class 4 is, in row 0"):
        fc.focal_loss(logits[3], LABELS[3], gamma=2.0)
    with pytest.raises(fc.InputError, match="class 2 is, in row 3"):
        fc.focal_loss(logits, torch.eye(5)[[2, 0, 1, 2, 3]], gamma=2.0)


@pytest.mark.parametrize("name", [name for name in TRACED if name != "brier"])  # whose loss of probability 0 is finite
def test_traced_code_gives_a_masked_label_an_infinite_loss(name):
    loss = LOSSES[name]()
    for mask in masks(torch.float32):
        value = torch.func.vmap(lambda x: loss(x, LABELS))(masked_label(torch.float32, mask)[None])
        assert value.item() == INF
        nothing = batch(torch.float32)
        nothing[1] = mask
        assert torch.func.vmap(lambda x: loss(x, LABELS))(nothing[None]).item() == INF


IGNORING = {
    "focal": lambda index: fc.FocalLoss(2.0, ignore_index=index),
    "inverse": lambda index: fc.FocalLoss(-1.0, ignore_index=index),
    "smoothed": lambda index: fc.FocalLoss(2.0, ignore_index=index, label_smoothing=0.1),
    "brier": lambda index: fc.BrierLoss(ignore_index=index),
    "label smoothing": lambda index: fc.LabelSmoothingLoss(ignore_index=index),
    "mmce": lambda index: fc.MMCELoss(ignore_index=index),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", IGNORING)
@every_dtype
def test_ignored_rows_may_be_masked_altogether(dtype, name, way, monkeypatch):
    for constant, value in WAYS[way].items():
        monkeypatch.setattr(rows_module, constant, value)
    logits, labels = masked_label(dtype, -INF), LABELS.clone()
    logits[1] = -INF
    labels[[1, 3]] = -100
    kept = torch.tensor([0, 2, 4])
    loss = IGNORING[name](-100)
    x = logits.clone().requires_grad_()
    value = loss(x, labels)
    value.backward()
    assert_close(value, loss(logits[kept], labels[kept]), rtol=1e-6, atol=1e-9)
    assert torch.isfinite(x.grad).all()
    assert not x.grad[[1, 3]].any()
    if name != "mmce":
        gradient, traced = torch.func.grad_and_value(lambda x: loss(x, labels))(logits)
        assert_close(traced, value.detach(), rtol=1e-5, atol=1e-7)
        assert torch.isfinite(gradient).all()
        assert not gradient[[1, 3]].any()


@pytest.mark.parametrize("gamma", [0.0, 2.0, -1.0])
@every_dtype
def test_smoothed_and_soft_labels_spread_over_the_classes_left(dtype, gamma):
    for mask in masks(dtype):
        logits = batch(dtype, mask).requires_grad_()
        smoothed = fc.focal_loss(logits, LABELS, gamma=gamma, label_smoothing=0.1, reduction="none")
        smoothed.sum().backward()
        gradient, logits.grad = logits.grad, None
        targets = torch.zeros(5, 5, dtype=torch.float64)
        for row, label in enumerate(LABELS.tolist()):
            kept = left(row)
            targets[row, kept] = 0.1 / len(kept)
            targets[row, label] += 0.9
            few = logits.detach()[row, kept].double()[None]
            if len(kept) > 1:
                expected = fc.focal_loss(few, targets[row, kept][None], gamma=gamma)
                assert_close(smoothed[row].double(), expected, rtol=1e-6, atol=0)
        assert smoothed[:2].tolist() == [0, 0]
        assert all(not gradient[row, masked].any() for row, masked in enumerate(MASKED))
        soft = fc.focal_loss(logits, targets.to(dtype), gamma=gamma, reduction="none")
        soft.sum().backward()
        assert_close(soft, smoothed.detach(), rtol=8 * torch.finfo(dtype).eps, atol=0)
        assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_label_smoothing_loss_is_that_of_the_classes_left(reduction):
    logits = batch(torch.float64)
    loss = fc.LabelSmoothingLoss(0.1, reduction="none")
    expected = []
    for row, label in enumerate(LABELS.tolist()):
        kept = left(row)
        alone = len(kept) == 1
        one = torch.zeros(1) if alone else loss(logits[row, kept][None], torch.tensor([kept.index(label)]))
        expected.append(one.double())
    rows = torch.cat(expected)
    targets = torch.tensor([0.025] * 3 + [0.9, 0.025], dtype=torch.float64)
    assert float(rows[4]) == pytest.approx(float(-(logits[4].log_softmax(0) * targets).sum()), rel=1e-14)
    summed = {"mean": rows.mean(), "sum": rows.sum(), "none": rows}[reduction]
    assert_close(fc.LabelSmoothingLoss(0.1, reduction=reduction)(logits, LABELS), summed)


@pytest.mark.parametrize("gamma", [2.0, "flsd-53", -1.0])
def test_a_linear_layer_may_mask_classes_by_its_bias(gamma):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(6, 3, generator=generator), torch.randn(4, 3, generator=generator)
    labels = torch.tensor([0, 2, 0, -100, 2, 0])
    for bias in (torch.tensor([0.1, -INF, 0.3, -INF]), torch.tensor([0.1, -INF, -INF, -INF])):
        y = labels if math.isfinite(bias[2]) else labels.clamp(max=0)
        inputs = [part.clone().requires_grad_() for part in (hidden, weight, bias)]
        loss = fc.LinearFocalLoss(gamma)(inputs[0], inputs[1], y, inputs[2])
        loss.backward()
        others = [part.clone().requires_grad_() for part in (hidden, weight, bias)]
        plain = fc.FocalLoss(gamma)(others[0] @ others[1].T + others[2], y)
        plain.backward()
        assert_close(loss, plain)
        for one, other in zip(inputs, others, strict=True):
            assert_close(one.grad, other.grad)
    with pytest.raises(fc.InputError, match="class 2 is, in row 4"):  # row 3 is ignored
        fc.LinearFocalLoss(gamma)(hidden, weight, torch.tensor([0, 0, 0, -100, 2, 0]), bias)


@pytest.mark.parametrize("gamma", [0.0, 2.0, -1.0])
@every_dtype
def test_an_answer_that_cannot_be_positive_costs_nothing(dtype, gamma):
    for mask in masks(dtype):
        for labels in (torch.tensor([1, 0, 0]), torch.tensor([0.7, 0.0, 0.0], dtype=dtype)):
            logits = torch.tensor([0.5, mask, mask], dtype=dtype, requires_grad=True)
            losses = fc.sigmoid_focal_loss(logits, labels, gamma=gamma, reduction="none")
            losses.sum().backward()
            assert losses[1:].tolist() == [0, 0]
            assert not logits.grad[1:].any()
            assert torch.isfinite(logits.grad).all()
            traced = torch.func.vmap(lambda x, y=labels: fc.sigmoid_focal_loss(x, y, gamma=gamma))
            assert_close(traced(logits.detach()[None])[0], losses.mean().detach())
            with pytest.raises(fc.InputError, match=r"labels: must be 0 where the logit is masked; .* \(2,\)"):
                fc.sigmoid_focal_loss(logits, labels.flip(0), gamma=gamma)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0])
def test_the_proper_part_takes_probabilities_of_exactly_zero(gamma):
    losses = fc.proper_focal_loss([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], [0, 1, 0], gamma, reduction="none")
    assert losses[0] == 0
    assert losses[2] == INF
    few = fc.proper_focal_loss([[0.3, 0.0, 0.7]], [0], gamma)
    assert_close(few, fc.proper_focal_loss([[0.3, 0.7]], [0], gamma), rtol=1e-9, atol=0)


@every_dtype
def test_second_derivatives_are_finite(dtype):
    logits = batch(dtype).requires_grad_()
    (gradient,) = torch.autograd.grad(fc.focal_loss(logits, LABELS, gamma=2.0), logits, create_graph=True)
    finite = torch.where(torch.isfinite(logits), logits, 0.0)
    (second,) = torch.autograd.grad((gradient * finite.detach()).sum(), logits)
    assert torch.isfinite(second).all()


def test_validation_rows_may_have_masked_classes():
    for mask in masks(torch.float32):
        masked, plain = fc.AdaFocalLoss(num_bins=2), fc.AdaFocalLoss(num_bins=2)
        logits = batch(torch.float32, mask)
        masked.update(logits, LABELS)
        plain.update(logits.clamp(min=-1000.0), LABELS)
        assert torch.equal(masked.gamma, plain.gamma)
    with pytest.raises(fc.InputError, match="val_logits: every class is masked at row 2"):
        fc.AdaFocalLoss(num_bins=2).update(logits.index_fill(0, torch.tensor([2]), -INF), LABELS)


def test_validate_takes_masks_and_refuses_other_infinities():
    logits = batch(torch.float32)
    assert torch.isfinite(fc.FocalLoss(2.0, validate=True)(logits, LABELS))
    for value in (INF, math.nan):
        logits[4, 0] = value
        with pytest.raises(fc.InputError, match=r"logits: every value must be finite; got .* at index \(4, 0\)"):
            fc.FocalLoss(2.0, validate=True)(logits, LABELS)


def test_a_low_logit_is_a_mask_in_float16_only():
    low = torch.tensor([[0.0, -65504.0]])
    label = torch.tensor([1])
    assert fc.focal_loss(low, label, gamma=0.0).item() == 65504
    assert fc.focal_loss(low.bfloat16(), label, gamma=0.0).item() == 65536
    with pytest.raises(fc.InputError, match="class 1 is, in row 0"):
        fc.focal_loss(low.half(), label, gamma=0.0)
