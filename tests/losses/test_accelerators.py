"""On an accelerator no value may be read: that would wait for the device.

Tensors of torch's meta device have shapes but no values, and refuse every attempt to read one.
"""

from __future__ import annotations

import pytest
import torch

import focalcal as fc

LOSSES = {
    "focal": lambda: fc.FocalLoss(3.0),
    "inverse": lambda: fc.FocalLoss(-1.0),
    "weighted": lambda: fc.FocalLoss(2.0, weight=torch.ones(5)),
    "smoothed": lambda: fc.FocalLoss(2.0, label_smoothing=0.1),
    "per class": lambda: fc.FocalLoss(torch.ones(5)),
    "none": lambda: fc.FocalLoss(2.0, reduction="none"),
    "flsd-53": lambda: fc.FocalLoss("flsd-53"),
    "adafocal": fc.AdaFocalLoss,
    "calfocal": fc.CalFocalLoss,
    "brier": fc.BrierLoss,
    "label smoothing": fc.LabelSmoothingLoss,
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_loss_reads_a_value_on_its_way(name, dtype):
    logits = torch.empty(8, 5, device="meta", dtype=dtype, requires_grad=True)
    labels = torch.empty(8, device="meta", dtype=torch.long)
    loss = LOSSES[name]().to("meta")(logits, labels)
    loss.sum().backward()
    assert loss.shape == ((8,) if name == "none" else ())
    assert loss.dtype == torch.float32
    assert logits.grad.shape == (8, 5)


def test_soft_and_binary_labels_are_not_read_either():
    logits = torch.empty(8, 5, device="meta", requires_grad=True)
    fc.FocalLoss(2.0)(logits, torch.empty(8, 5, device="meta")).backward()
    fc.BinaryFocalLoss(2.0)(logits, torch.empty(8, 5, device="meta", dtype=torch.long)).backward()
    assert logits.grad.shape == (8, 5)


def test_the_chunked_layer_does_not_read_either():
    hidden, weight = (torch.empty(*shape, device="meta", requires_grad=True) for shape in ((8, 3), (5, 3)))
    fc.LinearFocalLoss(2.0)(hidden, weight, torch.empty(8, device="meta", dtype=torch.long)).backward()
    assert hidden.grad.shape == (8, 3)
    assert weight.grad.shape == (5, 3)


def test_validate_reads_values_on_request():
    logits, labels = torch.empty(8, 5, device="meta"), torch.empty(8, device="meta", dtype=torch.long)
    with pytest.raises((NotImplementedError, RuntimeError)):
        fc.FocalLoss(2.0, validate=True)(logits, labels)
