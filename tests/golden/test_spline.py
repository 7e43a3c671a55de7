"""Spline calibration on predictions of real networks: the published code's values, and what they should be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import focalcal.calibrators as c
from focalcal.core.binning import bin_norm, bin_predictions
from focalcal.core.ranking import Ranking
from tests.golden.test_losses import MODELS

pytestmark = pytest.mark.slow

HALF = 5000


def mapped(predictions, model):
    """The calibrated confidences of the evaluation half, in the order of the rows, and whether rows are correct."""
    probs, labels = predictions(model)
    logits, labels = torch.log(torch.tensor(probs)), torch.tensor(labels)
    calibrator = c.SplineCalibration().fit(logits[:HALF], labels[:HALF])
    assert not calibrator.report_.kept_identity
    top = logits.argmax(1, keepdim=True)
    confidence = calibrator(logits[HALF:]).gather(1, top[HALF:]).exp().squeeze(1)
    return confidence.numpy(), (top.squeeze(1) == labels)[HALF:].numpy()


def summary(confidence, correct):
    return {
        "first_10": confidence[:10],
        "mean": confidence.mean(),
        "sum_of_squares": (confidence**2).sum(),
        "ks_error": Ranking.of_rows(confidence, correct).largest_drift(),
        "ece_equal_width_15": float(bin_norm(bin_predictions(confidence, correct, num_bins=15), "l1")),
        "ece_equal_width_25": float(bin_norm(bin_predictions(confidence, correct, num_bins=25), "l1")),
    }


@pytest.mark.parametrize("model", MODELS)
def test_mapped_confidences_equal_the_definition(model, golden, golden_predictions):
    got = summary(*mapped(golden_predictions, model))
    for entry in golden("calibrators.json")["models"][model]["spline_top_label"]:
        for name, expected in entry["definition_value"].items():
            np.testing.assert_allclose(got[name], expected, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("model", MODELS)
def test_the_released_code_differs_as_its_exchanged_weights_do(model, golden, golden_predictions):
    released = golden("calibrators.json")["models"][model]["spline_top_label"][0]
    confidence, _ = mapped(golden_predictions, model)
    difference = np.abs(confidence[:10] - released["value"]["first_10"]).max()
    assert 1e-5 < difference < released["max_abs_difference"] + 1e-5
