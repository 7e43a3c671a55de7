"""Measuring a trained network: what cannot be fitted is said, and nothing is recorded under its name."""

from __future__ import annotations

import torch

from focalcal_lab.measurement import SplitLogits, measure_all
from focalcal_lab.recipe import Calibration, Measurement


def rows(number: int) -> SplitLogits:
    generator = torch.Generator().manual_seed(number)
    return SplitLogits(torch.randn(number, 3, generator=generator), torch.arange(number) % 3)


def test_what_comes_after_a_calibrator_that_was_refused_is_refused_too():
    plan = Measurement(
        calibrators=[
            Calibration(phase="first", method="platt"),
            Calibration(phase="second", method="focal", options={"gamma": 2.0}, after="first"),
            Calibration(phase="alone", method="focal", options={"gamma": 2.0}),
        ]
    )
    found, fitted, refused = measure_all(rows(6), rows(40), plan)  # Platt is for two classes
    assert set(fitted) == {"alone"}
    assert set(refused) == {"first", "second"}
    assert refused["second"] == "first, which comes before it, was not fitted."
    assert {row.phase for row in found} == {"pre", "alone"}


def test_what_comes_after_a_fitted_calibrator_is_applied_after_it():
    first = Calibration(phase="first", method="temperature", criterion="nll")
    second = Calibration(phase="second", method="focal", options={"gamma": 2.0}, after="first")
    val, test = rows(60), rows(30)
    _, fitted, refused = measure_all(val, test, Measurement(calibrators=[first, second]))
    assert not refused
    expected = fitted["second"].parts[1](fitted["first"](test.logits))
    torch.testing.assert_close(fitted["second"](test.logits), expected)
