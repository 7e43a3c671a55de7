from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

import focalcal as fc


def batch(*shape, classes=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    rows, *rest = shape
    logits = 2 * torch.randn(rows, classes, *rest, generator=generator, dtype=dtype)
    return logits, torch.randint(0, classes, shape, generator=generator)


def soft_targets(logits):
    return torch.softmax(torch.randn(logits.shape, generator=torch.Generator().manual_seed(9)).to(logits), 1)


def plain_focal(logits, targets, gamma):
    """App. A of mukhoti2020, written down: -sum q (1-p)^gamma log p."""
    log_p = torch.log_softmax(logits, 1)
    return -(targets * (1 - log_p.exp()) ** gamma * log_p).sum(1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(12,), (4, 3), (2, 3, 4)])
@pytest.mark.parametrize("soft", [False, True])
def test_gamma_zero_is_cross_entropy_in_every_option(reduction, smoothing, weighted, shape, soft):
    logits, labels = batch(*shape)
    labels = soft_targets(logits) if soft else labels
    if not soft:
        labels.view(-1)[1] = -100
    weight = torch.linspace(0.5, 2, 5, dtype=torch.float64) if weighted else None
    options = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
    x, y = (logits.clone().requires_grad_() for _ in range(2))
    ours, theirs = fc.focal_loss(x, labels, gamma=0.0, **options), F.cross_entropy(y, labels, **options)
    assert_close(ours, theirs, rtol=1e-13, atol=1e-15)
    ours.sum().backward()
    theirs.sum().backward()
    assert_close(x.grad, y.grad, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
def test_soft_targets_follow_the_general_form_and_its_closed_gradient(gamma):
    logits, _ = batch(6)
    targets = soft_targets(logits)
    logits.requires_grad_()
    loss = fc.focal_loss(logits, targets, gamma=gamma, reduction="none")
    assert_close(loss, plain_focal(logits, targets, gamma), rtol=1e-12, atol=0)
    loss.sum().backward()
    p = torch.softmax(logits.detach(), 1)
    g = fc.gradient_ratio(p, gamma)
    assert_close(logits.grad, p * (targets * g).sum(1, keepdim=True) - targets * g, rtol=1e-11, atol=1e-14)


def test_p_is_the_plain_probability_under_weights_and_smoothing():
    """A common mistake is to take p = exp(-loss) from a weighted or smoothed cross-entropy."""
    logits, labels = batch(8)
    weight = torch.linspace(0.5, 2, 5, dtype=torch.float64)
    p = torch.softmax(logits, 1).gather(1, labels[:, None]).squeeze(1)
    expected = -weight[labels] * (1 - p) ** 2 * p.log()
    assert_close(fc.focal_loss(logits, labels, gamma=2.0, weight=weight, reduction="none"), expected)
    targets = 0.9 * F.one_hot(labels, 5) + 0.1 / 5
    smoothed = fc.focal_loss(logits, labels, gamma=2.0, label_smoothing=0.1, reduction="none")
    assert_close(smoothed, plain_focal(logits, targets, 2.0))


def test_a_gamma_per_sample_equals_each_sample_alone():
    logits, labels = batch(3, 4)
    gamma = torch.linspace(-1.5, 5, 12, dtype=torch.float64).reshape(3, 4)
    losses = fc.focal_loss(logits, labels, gamma=gamma, reduction="none")
    for i in range(3):
        for j in range(4):
            alone = fc.focal_loss(logits[i, :, j], labels[i, j], gamma=float(gamma[i, j]))
            assert_close(losses[i, j], alone, rtol=1e-13, atol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_gamma_per_class_is_that_of_the_label(smoothing):
    logits, labels = batch(9)
    gamma = torch.tensor([0.0, 1.0, 2.0, 3.0, -1.0], dtype=torch.float64)
    loss = fc.FocalLoss(gamma, reduction="none", label_smoothing=smoothing)(logits, labels)
    targets = (1 - smoothing) * F.one_hot(labels, 5).double() + smoothing / 5
    columns = [
        fc.focal_loss(logits, torch.full_like(labels, k), gamma=float(gamma[k]), reduction="none") for k in range(5)
    ]
    assert_close(loss, (targets * torch.stack(columns, 1)).sum(1), rtol=1e-12, atol=0)


def test_a_gamma_given_to_the_call_holds_for_that_call():
    logits, labels = batch(5)
    loss = fc.FocalLoss(3.0)
    assert_close(loss(logits, labels, gamma=0.0), F.cross_entropy(logits, labels))
    assert_close(loss(logits, labels), fc.focal_loss(logits, labels, gamma=3.0))


def test_ignored_labels_change_nothing_but_the_count():
    logits, labels = batch(10)
    kept = fc.focal_loss(logits[3:], labels[3:], gamma=2.0)
    for ignore in (-100, -1, 4):
        marked = labels.clone()
        marked[marked == 4] = 3
        expected = fc.focal_loss(logits[3:], marked[3:], gamma=2.0)
        marked[:3] = ignore
        x = logits.clone().requires_grad_()
        loss = fc.focal_loss(x, marked, gamma=2.0, ignore_index=ignore)
        loss.backward()
        assert_close(loss.detach(), expected, rtol=1e-13, atol=0)
        assert (x.grad[:3] == 0).all()
    assert kept > 0


@pytest.mark.parametrize("gamma", [0.0, 2.0, -1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_batch_with_all_labels_ignored_costs_nothing(gamma, smoothing):
    logits = torch.randn(4, 3, requires_grad=True)
    loss = fc.focal_loss(logits, torch.full((4,), -100), gamma=gamma, label_smoothing=smoothing)
    loss.backward()
    assert loss == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    logits, labels = batch(16, dtype=torch.float32)
    low = logits.to(dtype).requires_grad_()
    loss = fc.focal_loss(low, labels, gamma=3.0)
    loss.backward()
    x = low.detach().float().requires_grad_()
    expected = fc.focal_loss(x, labels, gamma=3.0)
    expected.backward()
    assert loss.dtype == torch.float32
    assert_close(loss.detach(), expected.detach())
    assert low.grad.dtype == dtype
    assert_close(low.grad, x.grad.to(dtype))


def test_under_autocast_the_loss_stays_in_float32():
    logits, labels = batch(16, dtype=torch.float32)
    layer = torch.nn.Linear(5, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = layer(logits)
        loss = fc.FocalLoss("flsd-53")(outputs, labels)
    assert outputs.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    loss.backward()
    assert torch.isfinite(layer.weight.grad).all()


@pytest.mark.parametrize("labels_dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_labels_of_any_integer_type_will_do(labels_dtype):
    logits, labels = batch(6)
    assert_close(fc.focal_loss(logits, labels.to(labels_dtype), gamma=1.0), fc.focal_loss(logits, labels, gamma=1.0))


@pytest.mark.parametrize("gamma", [0.0, 2.0, "flsd-53"])
def test_vmap_over_the_batch_equals_the_batch(gamma):
    logits, labels = batch(7)
    loss = fc.FocalLoss(gamma)
    rows = torch.func.vmap(loss)(logits, labels)
    assert_close(rows, torch.stack([loss(x, y) for x, y in zip(logits, labels, strict=True)]), rtol=1e-12, atol=0)
    per_sample = torch.func.vmap(torch.func.grad(loss))(logits, labels)
    x = logits.clone().requires_grad_()
    fc.FocalLoss(gamma, reduction="sum")(x, labels).backward()
    assert_close(per_sample, x.grad, rtol=1e-10, atol=1e-14)


def test_deterministic_mode_gives_the_same_bits_twice():
    logits, labels = batch(64, dtype=torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        results = []
        for _ in range(2):
            x = logits.clone().requires_grad_()
            loss = fc.FocalLoss("flsd-53")(x, labels)
            loss.backward()
            results.append((loss.detach(), x.grad))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler calls torch's deprecated parts
@pytest.mark.parametrize("make", [lambda: fc.FocalLoss(3.0), lambda: fc.FocalLoss("flsd-53"), fc.AdaFocalLoss])
def test_torch_compile_gives_the_eager_loss_and_gradient(make):
    logits, labels = batch(32, dtype=torch.float32)
    loss = make()
    compiled = torch.compile(loss, fullgraph=True)
    x, y = (logits.clone().requires_grad_() for _ in range(2))
    eager, fast = loss(x, labels), compiled(y, labels)
    eager.backward()
    fast.backward()
    assert_close(fast, eager, rtol=1e-5, atol=1e-7)
    assert_close(y.grad, x.grad, rtol=1e-4, atol=1e-7)


def test_a_module_passes_every_option_on_and_has_gamma_3_unless_told_otherwise():
    logits, labels = batch(8)
    options = {"weight": torch.linspace(0.5, 2, 5, dtype=torch.float64), "ignore_index": int(labels[0])}
    options |= {"label_smoothing": 0.1, "reduction": "sum"}
    expected = fc.focal_loss(logits, labels, gamma=3.0, **options)
    assert_close(fc.FocalLoss(**options)(logits, labels), expected, rtol=0, atol=0)
    assert fc.LinearFocalLoss().gamma == 3.0


def test_values_are_not_looked_at():
    logits, labels = batch(4)
    assert torch.isnan(fc.focal_loss(logits * math.nan, labels, gamma=2.0))


def test_a_tensor_with_one_gamma_is_a_number_and_one_with_more_has_a_gamma_for_each_class():
    logits, labels = batch(6)
    labels[1] = -100
    assert fc.FocalLoss(torch.tensor(2.0)).gamma == 2.0
    gamma = torch.arange(5.0)
    expected = fc.focal_loss(logits, labels, gamma=gamma[labels.clamp(min=0)])
    assert_close(fc.FocalLoss(gamma)(logits, labels), expected)


def test_a_module_is_saved_with_its_weights_and_class_gammas():
    loss = fc.FocalLoss(torch.tensor([1.0, 2.0]), weight=torch.tensor([0.5, 1.5]))
    other = fc.FocalLoss(torch.zeros(2), weight=torch.ones(2))
    other.load_state_dict(loss.state_dict())
    logits, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([1])
    assert torch.equal(other(logits, labels), loss(logits, labels))


BAD_CALLS = [
    (lambda x, y: fc.focal_loss(x.long(), y, gamma=1.0), "logits: must be floating point; got torch.int64"),
    (lambda x, y: fc.focal_loss(x.tolist(), y, gamma=1.0), "logits: must be a tensor; got list"),
    (
        lambda x, y: fc.focal_loss(x[:, :1], y, gamma=1.0),
        "logits: needs at least two classes.*BinaryFocalLoss",
    ),
    (lambda x, y: fc.focal_loss(x[:0], y[:0], gamma=1.0), "logits: the batch is empty"),
    (lambda x, y: fc.focal_loss(x[0, 0], y, gamma=1.0), "logits: must have shape .* got a single number"),
    (
        lambda x, y: fc.focal_loss(x, y[:-1], gamma=1.0),
        r"labels: for logits of shape \(4, 3\) must have shape \(4,\)",
    ),
    (lambda x, y: fc.focal_loss(x, y.float(), gamma=1.0), "labels: floating-point labels are soft targets"),
    (lambda x, y: fc.focal_loss(x, y > 0, gamma=1.0), "labels: must be class numbers; got torch.bool"),
    (lambda x, y: fc.focal_loss(x, y.tolist(), gamma=1.0), "labels: must be a tensor; got list"),
    (
        lambda x, y: fc.focal_loss(x, y + 1, gamma=1.0),
        r"labels: every label must lie in 0\.\.2 .*got 3 at index \(2,\)",
    ),
    (
        lambda x, y: fc.focal_loss(x, y - 1, gamma=1.0),
        r"labels: every label must lie in 0\.\.2 .*got -1 at index \(0,\)",
    ),
    (
        lambda x, y: fc.focal_loss(x, y + 1, gamma=1.0, label_smoothing=0.1),
        r"labels: every label must lie in 0\.\.2 or be ignore_index=-100; got 3",
    ),
    (lambda x, y: fc.focal_loss(x, y, gamma=math.inf), "gamma: must be finite; got inf"),
    (
        lambda x, y: fc.focal_loss(x, y, gamma=torch.ones(3)),
        r"gamma: as a tensor must have one value per sample, shape \(4,\)",
    ),
    (
        lambda x, y: fc.focal_loss(x, y, gamma=1.0, weight=torch.ones(2)),
        r"weight: must have shape \(3,\); got \(2,\)",
    ),
    (
        lambda x, y: fc.focal_loss(x, y, gamma=1.0, weight=torch.tensor([1.0, -1, 1])),
        "weight: must not be negative",
    ),
    (
        lambda x, y: fc.focal_loss(x, y, gamma=1.0, reduction="avg"),
        "reduction: must be mean, sum or none; got 'avg'",
    ),
    (
        lambda x, y: fc.focal_loss(x, y, gamma=1.0, label_smoothing=1.5),
        r"label_smoothing: must lie in \[0, 1\]",
    ),
    (lambda x, y: fc.focal_loss(x / 0, y, gamma=1.0, validate=True), "logits: every value must be finite"),
    (lambda x, y: fc.FocalLoss("flsd-5")(x, y), "gamma: must be a number, a policy or one of flsd-53"),
    (lambda x, y: fc.FocalLoss(math.nan), "gamma: must be finite"),
    (lambda x, y: fc.FocalLoss(torch.ones(2, 2)), r"gamma: as a tensor must hold one value per class"),
    (lambda x, y: fc.FocalLoss(torch.ones(2))(x, y), r"gamma: must have shape \(3,\); got 2"),
    (lambda x, y: fc.FocalLoss(1.0, weight=-torch.ones(3)), "weight: must not be negative"),
    (lambda x, y: fc.FocalLoss(1.0, reduction="all"), "reduction: must be"),
    (lambda x, y: fc.FocalLoss(1.0, label_smoothing=-0.1), "label_smoothing: must lie"),
]


@pytest.mark.parametrize(("call", "match"), BAD_CALLS, ids=[str(k) for k in range(len(BAD_CALLS))])
def test_bad_input_is_refused_with_its_name_rule_and_way_out(call, match):
    logits, labels = torch.zeros(4, 3), torch.tensor([0, 1, 2, 2])
    with pytest.raises(fc.InputError, match=match):
        call(logits, labels)


def test_a_gamma_with_the_wrong_gradient_is_announced():
    with pytest.warns(UserWarning, match=r"gamma=-4: inverse focal loss with \|gamma\| above 3.59"):
        fc.FocalLoss(-4.0)
    with pytest.warns(UserWarning, match="gamma=-4"):
        fc.focal_loss(torch.zeros(1, 2), torch.tensor([0]), gamma=-4.0)
