"""Calibrators by the names that commands take, and what is said of a fitted one."""

from __future__ import annotations

import pytest

import focalcal as fc
from focalcal.calibrators.table import calibrator_entries
from focalcal.cli.calibrators import methods_of, parameters, right_suffix
from tests.cli.tools import predictions


def test_methods_are_named_as_they_are_shown():
    text = "ETS, focal_temperature, bbq ,PlattScaling,Temperature:ece, focal-temperature:nll:line"
    assert list(methods_of(text)) == [
        "ensemble-temperature",
        "focal-temperature",
        "bbq",
        "platt",
        "temperature:ece",
        "focal-temperature:nll:line",
    ]
    for wrong in ("magic", "temperature:nll:line:more"):
        with pytest.raises(fc.InputError, match="method"):
            methods_of(wrong)
    with pytest.raises(fc.InputError, match="--methods"):
        methods_of(" , ")


@pytest.mark.parametrize("entry", calibrator_entries(), ids=lambda entry: entry.name)
def test_every_method_has_the_suffix_of_its_file_and_says_what_was_fitted(entry, tmp_path):
    table = predictions(100, classes=2 if entry.two_classes else 3)
    calibrator = entry.load()().fit(table.scores, table.labels)
    path = right_suffix(str(tmp_path / "c.json"), calibrator)
    assert path == str(tmp_path / f"c{entry.suffix}")
    calibrator.save(path)
    assert type(fc.load_calibrator(path)) is entry.load()
    assert (parameters(calibrator) == "") == (entry.name == "identity")
