"""Values of the published implementations on predictions of real networks (128 rows, logits doubled, summed)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import focalcal as fc

MODELS = ["lenet-5-cifar-10", "wideresnet-16-4-cifar-10"]

pytestmark = pytest.mark.slow

LOSSES = {
    "cross_entropy": fc.FocalLoss(0.0, reduction="sum"),
    "focal_gamma_1": fc.FocalLoss(1.0, reduction="sum"),
    "focal_gamma_2": fc.FocalLoss(2.0, reduction="sum"),
    "focal_gamma_3": fc.FocalLoss(3.0, reduction="sum"),
    "focal_gamma_5": fc.FocalLoss(5.0, reduction="sum"),
    "flsd_53": fc.FocalLoss("flsd-53", reduction="sum"),
    "brier": fc.BrierLoss(reduction="sum"),
    "label_smoothing_0.05": fc.LabelSmoothingLoss(0.05, reduction="sum"),
    "inverse_focal_gamma_0.5": fc.FocalLoss(-0.5, reduction="sum"),
    "inverse_focal_gamma_1": fc.FocalLoss(-1.0, reduction="sum"),
    "inverse_focal_gamma_2": fc.FocalLoss(-2.0, reduction="sum"),
    "mmce": fc.MMCELoss(weighted=False).mmce,
    "mmce_weighted": fc.MMCELoss(weighted=True).mmce,
}
# The released MMCE has no root, and its weighted form divides by the numbers of pairs twice.
RELEASED_CODE_DIFFERS = {"mmce", "mmce_weighted"}


def batch(predictions, model):
    probs, labels = predictions(model)
    return 2 * torch.log(torch.tensor(probs[:128])), torch.tensor(labels[:128])


def summary(loss, logits, labels):
    x = logits.clone().requires_grad_()
    value = loss(x, labels)
    value.backward()
    return {
        "loss": value.item(),
        "gradient_norm": x.grad.norm().item(),
        "gradient_first_5": x.grad[0, :5].tolist(),
        "gradient_row_1_sum_of_abs": x.grad[1].abs().sum().item(),
        "gradient_sum_of_abs": x.grad.abs().sum().item(),
    }


def assert_same(ours, reference, absolute=0.0):
    for name, value in ours.items():
        np.testing.assert_allclose(value, reference[name], rtol=1e-9, atol=absolute, err_msg=name)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("model", MODELS)
def test_loss_and_gradient_equal_the_definition_and_the_published_code(name, model, golden, golden_predictions):
    entry, *others = golden("losses.json")["models"][model][name]
    ours = summary(LOSSES[name], *batch(golden_predictions, model))
    # Rows that the network is sure of cancel in float64: there 1 - p is right to 1e-16, not to 9 digits. The
    # definitions were computed with 60 digits, except MMCE's.
    assert_same(ours, entry["definition_value"], absolute=1e-15 if "mmce" in name else 0.0)
    if name not in RELEASED_CODE_DIFFERS:
        assert_same(ours, entry["value"], absolute=1e-15)
    assert all(other["value"] != entry["value"] for other in others)  # other conventions, see their notes


@pytest.mark.parametrize("model", MODELS)
def test_released_mmce_is_the_square_of_ours(model, golden, golden_predictions):
    (entry,) = golden("losses.json")["models"][model]["mmce"]
    ours = LOSSES["mmce"](*batch(golden_predictions, model))
    assert ours.item() ** 2 == pytest.approx(entry["value"]["loss"], rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_released_weighted_mmce_divides_by_the_pairs_twice(model, golden, golden_predictions):
    (entry,) = golden("losses.json")["models"][model]["mmce_weighted"]
    released = fc.MMCELoss(as_released=True)
    ours = summary(released.mmce, *batch(golden_predictions, model))
    # it adds 1e-5 to the numbers of pairs, and 1e-10 under the root
    assert ours["loss"] == pytest.approx(entry["value"]["loss"], rel=1e-4)
    assert ours["gradient_norm"] == pytest.approx(entry["value"]["gradient_norm"], rel=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_every_entry_of_the_reference_file_is_compared(model, golden):
    assert set(golden("losses.json")["models"][model]) == set(LOSSES)


@pytest.mark.parametrize("name", [name for name in LOSSES if "mmce" not in name])
@pytest.mark.parametrize("model", MODELS)
def test_single_rows_equal_the_definition(name, model, golden, golden_predictions):
    (entry, *_) = golden("losses.json")["models"][model][name]
    logits, labels = batch(golden_predictions, model)
    ours = [LOSSES[name](logits[i : i + 1], labels[i : i + 1]).item() for i in range(5)]
    np.testing.assert_allclose(ours, entry["definition_value"]["loss_rows_0_to_4"], rtol=1e-9)
