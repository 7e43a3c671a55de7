from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import focalcal as fc
import focalcal.losses.linear as linear_module


def layer(rows=50, width=6, classes=11, dtype=torch.float64):
    generator = torch.Generator().manual_seed(7)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((rows, width), (classes, width), (classes,))
    )
    return hidden, weight, bias, torch.randint(0, classes, (rows,), generator=generator)


@pytest.mark.parametrize("gamma", [0.0, 3.0, "flsd-53", -1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_chunks_give_the_loss_and_gradients_of_the_whole(gamma, reduction, with_bias, monkeypatch):
    monkeypatch.setattr(linear_module, "_CHUNK_LOGITS", 11 * 7)  # 7 rows at a time
    hidden, weight, bias, labels = layer()
    labels[3:9] = -100
    parameters = (hidden, weight, bias) if with_bias else (hidden, weight)
    chunked = fc.LinearFocalLoss(gamma, reduction=reduction)(hidden, weight, labels, bias if with_bias else None)
    logits = hidden @ weight.T + (bias if with_bias else 0)
    whole = fc.FocalLoss(gamma, reduction=reduction)(logits, labels)
    assert_close(chunked, whole, rtol=1e-12, atol=0)
    for ours, theirs in zip(
        torch.autograd.grad(2 * chunked, parameters), torch.autograd.grad(2 * whole, parameters), strict=True
    ):
        assert_close(ours, theirs, rtol=1e-10, atol=1e-13)


def test_sequences_are_rows():
    hidden, weight, _, labels = layer()
    flat = fc.LinearFocalLoss()(hidden, weight, labels)
    assert_close(fc.LinearFocalLoss()(hidden.reshape(5, 10, 6), weight, labels.reshape(5, 10)), flat)


def test_under_autocast_it_computes_like_a_linear_layer():
    hidden, weight, bias, labels = layer(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = fc.LinearFocalLoss()(hidden, weight, labels, 4 * bias)
    loss.backward()
    assert loss.dtype == torch.float32
    assert weight.grad.dtype == torch.float32
    assert_close(loss, fc.FocalLoss()(hidden @ weight.T + 4 * bias, labels), rtol=3e-2, atol=1e-2)


def test_float16_gradients_of_a_mean_over_many_rows_do_not_vanish():
    """With the loss scaled up as a gradient scaler does, they are those of float32."""
    hidden, weight, _, labels = layer(rows=20_000, width=4, classes=300, dtype=torch.float32)
    low = [x.detach().half().requires_grad_() for x in (hidden, weight)]
    (65536 * fc.LinearFocalLoss(2.0)(*low, labels)).backward()
    (65536 * fc.LinearFocalLoss(2.0)(hidden, weight, labels)).backward()
    assert low[0].grad.dtype == torch.float16
    assert_close(low[0].grad.float(), hidden.grad, rtol=0.05, atol=0.02)
    assert (low[0].grad != 0).float().mean() > 0.99


def test_all_labels_ignored_costs_nothing():
    hidden, weight, _, labels = layer()
    loss = fc.LinearFocalLoss()(hidden, weight, torch.full_like(labels, -100))
    loss.backward()
    assert loss == 0
    assert (weight.grad == 0).all()


def test_a_second_derivative_is_refused_with_the_way_out():
    hidden, weight, _, labels = layer()
    loss = fc.LinearFocalLoss()(hidden, weight, labels)
    with pytest.raises(RuntimeError, match=r"LinearFocalLoss has no second derivative.*FocalLoss"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_a_second_backward_pass_is_refused_not_wrong():
    hidden, weight, _, labels = layer()
    loss = fc.LinearFocalLoss()(hidden, weight, labels)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once per forward pass"):
        loss.backward()


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda h, w, y: (h, w[:, :3], y), r"weight: must have shape \(V, D\) with hidden's D = 6"),
        (lambda h, w, y: (h, w, y[:4]), r"labels: must be class numbers of shape \(50,\)"),
        (lambda h, w, y: (h, w, y + 11), r"labels: every label must lie in 0\.\.10"),
        (lambda h, w, y: (h[:0], w, y[:0]), "hidden: the batch is empty"),
        (lambda h, w, y: (h, w[:1], y * 0), "weight: needs at least two classes"),
    ],
)
def test_bad_input_is_refused(spoil, match):
    hidden, weight, _, labels = layer()
    with pytest.raises(fc.InputError, match=match):
        fc.LinearFocalLoss()(*spoil(hidden, weight, labels))


def test_the_logits_are_never_held_at_once(monkeypatch):
    """No tensor of more than a chunk's logits is made, seen from the row kernel."""
    monkeypatch.setattr(linear_module, "_CHUNK_LOGITS", 11 * 7)
    seen = []
    kernel = linear_module.value_and_gradient_
    monkeypatch.setattr(
        linear_module,
        "value_and_gradient_",
        lambda x, *rest: (seen.append(tuple(x.shape)), kernel(x, *rest))[1],
    )
    hidden, weight, _, labels = layer()
    fc.LinearFocalLoss()(hidden, weight, labels)
    assert seen == [(7, 11)] * 7 + [(1, 11)]
