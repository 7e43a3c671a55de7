"""The compiled focal loss against its definition in torch, and both against mpmath."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

import focalcal.kernels.focal_loss as rows_module
from focalcal.errors import InputError
from focalcal.kernels.compiled import compiled_kernels
from focalcal.kernels.focal_loss import focal_rows, value_and_gradient_
from tests import oracles

GAMMAS = [-2.0, -0.7, 0.0, 0.4, 1.0, 3.0, 20.0]
SCALES = [1.0, 30.0, 1e4]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INF = math.inf

needs_compiler = pytest.mark.skipif(compiled_kernels() is None, reason="compares with the compiled kernels")


def random_rows(dtype, scale, num=40, classes=5):
    generator = torch.Generator().manual_seed(int(scale))
    logits = torch.randn(num, classes, generator=generator, dtype=torch.float64) * scale
    return logits.to(dtype), torch.randint(0, classes, (num,), generator=generator)


def defined(*args, **options):
    """The loss and gradient of the definition in torch, of logits in float64."""
    logits, *rest = args
    x = logits.detach().double().requires_grad_()
    options = {name: value.double() if name == "weight" else value for name, value in options.items()}
    options = {"ignore_index": -100, "weight": None, "reduction": "mean"} | options
    loss = rows_module._defined(
        x, *rest, weight=options["weight"], ignore_index=options["ignore_index"], reduction=options["reduction"]
    )
    loss.sum().backward()
    return loss.detach(), x.grad


def assert_agrees(logits, labels, gamma, **options):
    """Loss and gradient agree with the definition in float64, and the gradient has the logits' type."""
    x = logits.detach().requires_grad_()
    loss = focal_rows(x, labels, gamma, **options)
    loss.sum().backward()
    expected, gradient = defined(logits, labels, gamma, **options)
    wide = torch.promote_types(logits.dtype, torch.float32)
    rtol = 1e-12 if logits.dtype is torch.float64 else 2e-6
    assert loss.dtype is wide
    assert x.grad.dtype is logits.dtype
    assert_close(loss.double(), expected, rtol=rtol, atol=float(torch.finfo(wide).tiny))
    # exp(x - best) is as wrong as the difference, which float32 rounds: by 4e-6 if it is 80.
    rtol = max(10 * rtol, torch.finfo(logits.dtype).eps)
    least = 6e-8 if logits.dtype is torch.float16 else float(torch.finfo(logits.dtype).tiny)
    assert_close(x.grad.double(), gradient, rtol=rtol, atol=least)


@functools.cache
def exact_losses(dtype, scale, num, classes, gamma):
    logits, labels = random_rows(dtype, scale, num, classes)
    return [oracles.loss(row, label, gamma) for row, label in zip(logits.tolist(), labels.tolist(), strict=True)]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_every_row_agrees_with_mpmath(kernels, dtype, tolerance, scale, gamma):
    for num, classes in ((40, 5), (5, 70)):
        logits, labels = random_rows(dtype, scale, num, classes)
        values = focal_rows(logits, labels, gamma, reduction="none")
        assert torch.isfinite(values).all()
        least = 1e-300 if dtype is torch.float64 else torch.finfo(dtype).tiny
        for value, exact in zip(values.tolist(), exact_losses(dtype, scale, num, classes, gamma), strict=True):
            assert oracles.relative_error(value, exact, least) <= tolerance


@pytest.mark.parametrize("rest", [1e-1, 1e-5, 1e-12, 2.0**-53, 1e-30, 1e-200])
@pytest.mark.parametrize("gamma", [-2.0, 0.0, 0.5, 1.0])
def test_losses_near_certainty_keep_all_their_digits(kernels, rest, gamma):
    """1 - p would cancel; the loss of p = 1 - 1e-200 is still right."""
    logits = torch.tensor([[0.0, rest]], dtype=torch.float64)
    logits[0, 1].log_()
    value = focal_rows(logits, torch.tensor([0]), gamma, reduction="none").item()
    assert oracles.relative_error(value, oracles.loss(logits[0].tolist(), 0, gamma), 1e-300) <= 1e-12


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 3e-6)])
def test_gradient_agrees_with_mpmath(kernels, dtype, tolerance, gamma):
    for classes in (5, 40):
        logits, labels = random_rows(dtype, 5.0, num=15 if classes == 5 else 3, classes=classes)
        logits.requires_grad_()
        focal_rows(logits, labels, gamma, reduction="sum").backward()
        for row, label, got in zip(logits.tolist(), labels.tolist(), logits.grad.tolist(), strict=True):
            for value, exact in zip(got, oracles.gradient(row, label, gamma), strict=True):
                assert oracles.relative_error(value, exact, 1e-30) <= tolerance


@pytest.mark.parametrize("size", [6e35, 1e30, 1e4])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_loss_and_gradient_are_finite_for_every_finite_input(kernels, size, gamma):
    logits = torch.tensor([[size, -size, 0.0], [-size, size, 0.0], [0.0, 0.0, size]], requires_grad=True)
    loss = focal_rows(logits, torch.tensor([0, 0, 1]), gamma)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", [2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 100, 1000, 2047, 2048, 2049, 6000])
def test_every_number_of_classes_agrees_with_the_definition(kernels, dtype, classes):
    for rows in (1, 7, 16, 37):
        logits, labels = random_rows(dtype, 4.0, rows, classes)
        labels[-1] = classes - 1
        assert_agrees(logits, labels, 3.0)


@needs_compiler
@pytest.mark.parametrize("shape", [(5, 50_000), (3, 100_000)])
def test_rows_of_many_classes_agree_with_float64(shape):
    logits, labels = random_rows(torch.float32, 5.0, *shape)
    logits[0, labels[0]] = 40  # a sure row
    logits[1, labels[1]] = -200  # and one whose label has no probability in float32
    logits[2, -5:] = 60
    assert_agrees(logits, labels, 3.0, reduction="none")
    assert_agrees(logits, labels, 20.0, reduction="none")


LAYOUTS = {
    "contiguous": lambda x: x,
    "columns apart": lambda x: torch.stack([x, x + 1], 2)[:, :, 0],
    "rows apart": lambda x: torch.cat([x, x + 1], 1)[:, : x.shape[1]],
    "transposed": lambda x: x.t().contiguous().t(),
    "the same row again": lambda x: x[:1].expand(x.shape),
    "rows reversed": lambda x: x.flip(0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("classes", [5, 40, 2500])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_layout_of_rows_agrees_with_the_definition(kernels, layout, classes, dtype):
    logits, labels = random_rows(dtype, 3.0, 19, classes)
    assert_agrees(LAYOUTS[layout](logits), labels, -1.0)
    assert_agrees(LAYOUTS[layout](logits), labels.repeat_interleave(2)[::2], -1.0, reduction="none")


@pytest.mark.parametrize("shape", [(2, 21, 5, 7), (3, 4, 16), (5, 40, 1), (1, 3, 100), (2, 2100, 3), (4, 3, 2, 2, 2)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_logits_with_further_dimensions_agree_with_the_definition(kernels, shape, dtype):
    generator = torch.Generator().manual_seed(1)
    logits = (3 * torch.randn(shape, generator=generator)).to(dtype)
    labels = torch.randint(0, shape[1], shape[:1] + shape[2:], generator=generator)
    labels.view(-1)[::5] = -100
    for reduction in ("mean", "sum", "none"):
        assert_agrees(logits, labels, 2.0, reduction=reduction)
    assert_agrees(logits.movedim(1, -1).contiguous().movedim(-1, 1), labels, 2.0)  # channels last
    assert_agrees(torch.stack([logits, -logits], -1)[..., 0], labels, 2.0)


@pytest.mark.parametrize("classes", [5, 40])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [-100, 0, 3])
def test_weights_and_ignored_labels_agree_with_the_definition(kernels, classes, reduction, ignored):
    logits, labels = random_rows(torch.float32, 3.0, 50, classes)
    labels[10:20] = ignored
    weight = torch.linspace(0, 2, classes, dtype=torch.float64)
    for gamma in (2.0, -0.5, torch.linspace(-1, 5, 50, dtype=torch.float64).unsqueeze(1)):
        assert_agrees(logits, labels, gamma, weight=weight, ignore_index=ignored, reduction=reduction)


class Steps:
    """A step function of p that says so."""

    edges = torch.tensor([0.0, 0.1, 0.25, 0.5, 1.0], dtype=torch.float64)
    values = torch.tensor([5.0, -1.0, 3.0, 0.5], dtype=torch.float64)

    def __call__(self, p):
        return self.values[torch.bucketize(p, self.edges[1:-1], right=True)]

    def steps(self):
        return self.edges, self.values


@pytest.mark.parametrize("classes", [5, 40])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_rules_of_p_agree_with_the_definition(kernels, classes, reduction):
    logits, labels = random_rows(torch.float64, 3.0, 100, classes)
    for rule in (Steps(), lambda p: 1 + p, lambda p: torch.full_like(p, 2.0)):
        assert_agrees(logits, labels, rule, reduction=reduction)


def test_p_on_an_edge_has_the_gamma_above_it(kernels):
    half = torch.zeros(1, 2, dtype=torch.float64)
    assert_close(focal_rows(half, torch.tensor([0]), Steps()), torch.tensor(0.5**0.5 * math.log(2)).double())


@pytest.mark.parametrize("classes", [4, 50])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masked_classes_count_nothing_and_masked_labels_are_refused(kernels, dtype, classes):
    logits, labels = random_rows(dtype, 3.0, 20, classes)
    for mask in (-INF, torch.finfo(dtype).min):
        masked = logits.clone()
        masked[3] = mask
        masked[3, labels[3]] = 1.0  # only its label is left
        masked[4, (labels[4] + 1) % classes] = mask
        few = torch.ones(classes, dtype=torch.bool)
        few[(labels[4] + 1) % classes] = False
        x = masked.clone().requires_grad_()
        losses = focal_rows(x, labels, 2.0, reduction="none")
        losses.sum().backward()
        assert losses[3] == 0
        assert not x.grad[3].any()
        assert x.grad[4, ~few] == 0
        alone = focal_rows(logits[4:5, few], (labels[4:5] - ((labels[4] + 1) % classes < labels[4]).long()), 2.0)
        assert_close(losses[4], alone, rtol=1e-6, atol=0)
        masked[7, labels[7]] = masked[9, labels[9]] = mask
        with pytest.raises(InputError, match=f"class {int(labels[7])} is, in row 7"):
            focal_rows(masked, labels, 2.0)
        ignoring = labels.clone()
        ignoring[[7, 9]] = -100
        assert torch.isfinite(focal_rows(masked, ignoring, 2.0))


def test_masks_of_float16_are_no_logits(kernels):
    """At -32752 a class is masked, 16 below the next number, which is a logit."""
    logits = torch.tensor([[-32736.0, -32752.0], [-32736.0, -32720.0]], dtype=torch.float16)
    first, second = focal_rows(logits, torch.tensor([0, 0]), 0.0, reduction="none").tolist()
    assert first <= 2e-7
    assert second == pytest.approx(16)


def test_subnormal_and_tied_logits_agree_with_the_definition(kernels):
    tiny = torch.tensor([[1e-40, -1e-42, 0.0], [0.0, 0.0, 0.0], [7.0, 7.0, 7.0]])
    labels = torch.tensor([0, 1, 2])
    assert_agrees(tiny, labels, 1.0)
    assert_agrees(tiny.double() * 1e-270, labels, 1.0)
    low = torch.tensor([[6e-8, 0.0, -6e-8]], dtype=torch.float16)
    assert_agrees(low, torch.tensor([1]), 1.0)
    values = focal_rows(tiny, labels, 0.0, reduction="none")
    assert_close(values, torch.full((3,), math.log(3)))


@pytest.mark.parametrize("classes", [3, 40])
def test_what_is_no_number_gives_none_but_in_ignored_rows(kernels, classes):
    for bad in (math.nan, INF):
        logits, labels = random_rows(torch.float32, 1.0, 20, classes)
        for place in (slice(None), labels[2], labels[2] - 1, 0, classes - 1):
            rows = logits.clone()
            rows[2, place] = bad
            assert torch.isnan(focal_rows(rows, labels, 2.0))
            ignored = labels.clone()
            ignored[2] = -100
            assert torch.isfinite(focal_rows(rows, ignored, 2.0))


@pytest.mark.parametrize("label", [-1, 5, 2**40])
def test_labels_that_are_no_class_are_refused(kernels, label):
    logits, labels = random_rows(torch.float32, 1.0)
    labels[7] = label
    with pytest.raises(InputError, match=rf"labels: every label must lie in 0..4 .* got {label} at index \(7,\)"):
        focal_rows(logits, labels, 2.0)


def test_a_gamma_for_each_row_must_fit(kernels):
    logits, labels = random_rows(torch.float32, 1.0)
    with pytest.raises((InputError, RuntimeError)):
        focal_rows(logits, labels, lambda p: torch.ones(3))


@needs_compiler
@pytest.mark.parametrize("shape", [(5000, 10), (600, 1000), (9, 40_000), (3, 21, 130, 130)])
def test_the_number_of_threads_changes_no_bit(shape, monkeypatch):
    generator = torch.Generator().manual_seed(2)
    logits = 3 * torch.randn(shape, generator=generator)
    labels = torch.randint(0, shape[1], shape[:1] + shape[2:], generator=generator)
    found = []
    for threads in (1, 2, 4):
        monkeypatch.setattr(rows_module, "threads_for", lambda values, threads=threads: threads)
        x = logits.clone().requires_grad_()
        loss = focal_rows(x, labels, Steps())
        loss.backward()
        found.append((loss.detach(), x.grad))
    for loss, gradient in found[1:]:
        assert torch.equal(loss, found[0][0])
        assert torch.equal(gradient, found[0][1])


def test_adding_a_constant_to_a_row_changes_nothing(kernels):
    logits, labels = random_rows(torch.float64, 3.0)
    assert_close(focal_rows(logits + 1000, labels, 2.0), focal_rows(logits, labels, 2.0), rtol=1e-12, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 2.0, -1.0, Steps()])
@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 2)])
def test_first_and_second_derivatives_pass_gradcheck(kernels, gamma, shape):
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, shape[1], shape[:1] + shape[2:], generator=generator)
    weight = torch.linspace(0.5, 1, shape[1], dtype=torch.float64)
    for reduction in ("mean", "none"):
        options = {"weight": weight, "reduction": reduction}
        assert torch.autograd.gradcheck(lambda x, o=options: focal_rows(x, labels, gamma, **o), logits)
        assert torch.autograd.gradgradcheck(lambda x, o=options: focal_rows(x, labels, gamma, **o), logits)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_second_backward_pass_through_a_retained_graph_gives_the_same_gradient(kernels, dtype):
    logits, labels = random_rows(dtype, 2.0)
    logits.requires_grad_()
    loss = focal_rows(logits, labels, Steps())
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (second,) = torch.autograd.grad(loss, logits)
    assert torch.equal(first, second)


def test_a_factor_reaches_the_gradient(kernels):
    logits, labels = random_rows(torch.float64, 2.0)
    x, y = (logits.clone().requires_grad_() for _ in range(2))
    (3 * focal_rows(x, labels, 3.0)).backward()
    focal_rows(y, labels, 3.0).backward()
    assert_close(x.grad, 3 * y.grad)


def test_float16_gradients_of_a_mean_survive_where_the_loss_is_scaled(kernels):
    logits, labels = random_rows(torch.float16, 2.0, 20_000)
    x, y = logits.clone().requires_grad_(), logits.float().requires_grad_()
    (65536 * focal_rows(x, labels, 3.0)).backward()
    (65536 * focal_rows(y, labels, 3.0)).backward()
    assert_close(x.grad.float(), y.grad, rtol=1e-3, atol=1e-7)


def test_the_input_is_never_modified(kernels):
    for classes in (5, 40):
        logits, labels = random_rows(torch.float64, 2.0, classes=classes)
        before = logits.clone()
        logits.requires_grad_()
        focal_rows(logits, labels, 3.0).backward()
        assert torch.equal(logits.detach(), before)


def test_subclasses_of_tensors_and_negative_views_take_the_definition():
    class Own(torch.Tensor):
        pass

    logits, labels = random_rows(torch.float64, 2.0)
    expected = focal_rows(logits, labels, 3.0)
    assert_close(focal_rows(logits.as_subclass(Own), labels, 3.0).as_subclass(torch.Tensor), expected)
    negative = torch.complex(torch.zeros_like(logits), -logits).conj().imag
    assert negative.is_neg()
    assert_close(focal_rows(negative, labels, 3.0), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", [5, 40])
def test_value_and_gradient_for_fused_layers_are_those_of_autograd(kernels, dtype, classes):
    logits, labels = random_rows(dtype, 2.0, classes=classes)
    x = logits.clone().double().requires_grad_()
    expected = F.cross_entropy(x, labels, reduction="sum")
    expected.backward()
    value, gradient = value_and_gradient_(logits, labels, 0.0, 1.0)
    assert gradient.dtype is dtype
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert_close(gradient.double(), x.grad, rtol=max(1e-6, torch.finfo(dtype).eps), atol=1e-7)
