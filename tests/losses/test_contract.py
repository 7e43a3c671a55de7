"""What every training loss promises; one list, so that a new loss joins by one line."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.testing import assert_close

import focalcal as fc

LOSSES = {
    "cross-entropy": lambda: fc.FocalLoss(0.0),
    "fl-3": lambda: fc.FocalLoss(3.0),
    "inverse-focal": lambda: fc.FocalLoss(-1.0),
    "flsd-53": lambda: fc.FocalLoss("flsd-53"),
    "flsc-531": lambda: fc.FocalLoss("flsc-531"),
    "lambert": lambda: fc.FocalLoss(fc.StepGamma.lambert()),
    "adafocal": fc.AdaFocalLoss,
    "calfocal": fc.CalFocalLoss,
    "calfocal-per-sample": lambda: fc.CalFocalLoss(per_sample=True),
    "brier": fc.BrierLoss,
    "label-smoothing": fc.LabelSmoothingLoss,
    "mmce": lambda: fc.MMCELoss(weighted=False),
    "mmce-weighted": fc.MMCELoss,
}

every_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES.keys())


def batch(dtype=torch.float64, scale=2.0):
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(12, 4, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(0, 4, (12,), generator=generator)


@every_loss
def test_gradient_passes_gradcheck(make):
    logits, labels = batch()
    loss = make()
    if getattr(loss, "per_sample", False):  # gamma moves with p but carries no gradient, by design
        gamma = loss.gamma_at(torch.softmax(logits, 1).gather(1, labels[:, None]).squeeze(1))
        loss = fc.FocalLoss(1.0)
        loss.forward = lambda x, y: fc.focal_loss(x, y, gamma=gamma)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), logits.requires_grad_())


@every_loss
@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_loss_and_gradient_are_finite_at_huge_logits(make, scale):
    logits, labels = batch(torch.float32, scale)
    logits.requires_grad_()
    loss = make()(logits, labels)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()


@every_loss
def test_adding_a_constant_to_a_row_changes_nothing(make):
    logits, labels = batch()
    assert_close(make()(logits + 50, labels), make()(logits, labels), rtol=1e-10, atol=1e-12)


@every_loss
def test_float32_is_close_to_float64(make):
    single, double = (make()(*batch(dtype)) for dtype in (torch.float32, torch.float64))
    assert single.dtype == torch.float32
    assert_close(single.double(), double, rtol=1e-6, atol=1e-7)


@every_loss
def test_the_order_of_rows_does_not_matter(make):
    logits, labels = batch()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    assert_close(make()(logits[order], labels[order]), make()(logits, labels), rtol=1e-12, atol=0)


@every_loss
def test_perfect_predictions_cost_next_to_nothing_beside_wrong_ones(make):
    labels = torch.tensor([0, 1, 2])
    logits = 30 * torch.eye(4, dtype=torch.float64)[:3]
    right, wrong = make()(logits, labels), make()(logits, labels.roll(1))
    assert right < 0.1 * wrong


@every_loss
def test_state_is_saved_and_restored(make):
    logits, labels = batch()
    loss, other = make(), make()
    if hasattr(loss, "update"):
        loss.update(logits.repeat(3, 1), labels.repeat(3))
    other.load_state_dict(copy.deepcopy(loss.state_dict()))
    assert torch.equal(loss(logits, labels), other(logits, labels))


@every_loss
@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda x, y: (x[:, :1], y), "logits: needs at least two classes"),
        (lambda x, y: (x[:0], y[:0]), "logits: the batch is empty"),
        (lambda x, y: (x.long(), y), "logits: must be floating point"),
        (lambda x, y: (x, y[:-1]), "labels: for logits of shape"),
        (lambda x, y: (x, y.double()), "labels: "),
        (lambda x, y: (x, y + 4), "labels: every label must lie in"),
    ],
    ids=["one-class", "empty", "integer-logits", "short-labels", "float-labels", "label-too-large"],
)
def test_bad_batches_are_refused(make, spoil, match):
    with pytest.raises(fc.InputError, match=match):
        make()(*spoil(*batch()))


@every_loss
def test_it_trains_a_linear_model(make):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    inputs = torch.eye(3)[labels] + 0.3 * torch.randn(90, 3, generator=generator)
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(3, 3), make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    first = None
    for _ in range(300):
        optimizer.zero_grad()
        value = loss(model(inputs), labels)
        value.backward()
        optimizer.step()
        first = value.item() if first is None else first
    assert value.item() < 0.9 * first
    assert (model(inputs).argmax(1) == labels).float().mean() > 0.75
