"""AdaFocal's released code on predictions of real networks: tables, gammas, edges and losses after each update."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import focalcal as fc
from tests.golden.test_losses import MODELS, assert_same, batch, summary

pytestmark = pytest.mark.slow


def validation(predictions, model):
    probs, labels = predictions(model)
    return torch.log(torch.tensor(probs[:5000])), torch.tensor(labels[:5000])


def updated(arguments, predictions, model):
    loss = fc.AdaFocalLoss(
        num_bins=arguments["num_bins"],
        lam=arguments["lambda"],
        gamma_init=arguments["gamma_initial"],
        gamma_max=arguments["gamma_max"],
        gamma_min=arguments["gamma_min"],
        switch_at=arguments["switch_pt"],
        reduction="sum",
    )
    for _ in range(arguments["updates"]):
        loss.update(*validation(predictions, model))
    return loss


@pytest.mark.parametrize("series", ["lambda_1", "lambda_20"])
@pytest.mark.parametrize("model", MODELS)
def test_gammas_edges_and_loss_equal_the_definition_after_every_update(series, model, golden, golden_predictions):
    for entry in golden("adafocal.json")["models"][model][series]:
        expected = entry["definition_value"]
        loss = updated(entry["args"], golden_predictions, model)
        np.testing.assert_allclose(loss.gamma, expected["gamma"], rtol=1e-9)
        np.testing.assert_allclose(loss.edges[1:-1], expected["inner_boundaries"], rtol=1e-9)
        logits, labels = batch(golden_predictions, model)
        p = torch.softmax(logits, 1).gather(1, labels[:, None]).squeeze(1)
        np.testing.assert_allclose(loss.gamma_at(p)[:10], expected["gamma_of_row_0_to_9"], rtol=1e-9)
        assert_same(summary(loss, logits, labels), expected)


@pytest.mark.parametrize("model", MODELS)
def test_the_validation_table_equals_the_definition(model, golden, golden_predictions):
    (entry,) = golden("adafocal.json")["models"][model]["validation_table"]
    loss = fc.AdaFocalLoss()
    loss.update(*validation(golden_predictions, model))
    history = {name: values[0].numpy() for name, values in loss.history.items()}
    expected = entry["definition_value"]
    np.testing.assert_allclose(loss.edges, expected["edges"], rtol=1e-9)
    np.testing.assert_array_equal(history["count"], expected["count"])
    np.testing.assert_allclose(history["confidence"] - history["accuracy"], expected["calibration_gap"], atol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_the_released_code_differs_by_the_row_it_drops_and_by_float32(model, golden, golden_predictions):
    """Its first bin is open at the smallest confidence, so one of 5000 rows is in no bin."""
    (entry,) = golden("adafocal.json")["models"][model]["validation_table"]
    released = np.array(entry["value"]["prop_in_bin"]) * 5000
    assert round(released.sum()) < 5000
    loss = fc.AdaFocalLoss()
    loss.update(*validation(golden_predictions, model))
    assert loss.history["count"].sum() == 5000
    last = golden("adafocal.json")["models"][model]["lambda_1"][-1]
    ours = updated(last["args"], golden_predictions, model).gamma.numpy()
    filled = np.array(entry["value"]["prop_in_bin"]) > 0
    np.testing.assert_allclose(ours[filled], np.array(last["value"]["gamma"])[filled], atol=1e-2)
