"""Measured numbers as the tables show them."""

from __future__ import annotations

from focalcal.cli.measure_tables import interval, number


def test_numbers_have_their_units():
    assert number("accuracy", 0.9) == "90.00 %"
    assert number("ece", -0.012, "+") == "-1.20 %"
    assert number("nll", float("inf")) == "inf"
    assert number("s99", None) == number("nll", float("nan")) == "-"
    assert interval("nll", 0.1, 0.2) == "[0.1000, 0.2000]"
    assert interval("ece", float("nan"), float("nan")) == interval("ece", None, None) == ""
