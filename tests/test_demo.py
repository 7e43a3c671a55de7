"""The demo: the same numbers for the same seed, files that say what the table says."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

import focalcal as fc
from focalcal import noisy_digits
from focalcal.demo import CALIBRATORS, run_demo
from focalcal.files import read_predictions

pytestmark = pytest.mark.slow

LOSSES = ["cross-entropy", "AdaFocal"]


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Two of the four losses, few resamples and coarse maps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noisy_digits, "LOSSES", {name: noisy_digits.LOSSES[name] for name in LOSSES})
        patch.setattr("focalcal.demo._NUM_RESAMPLES", 40)
        patch.setattr("focalcal.report.criterion_landscape._NUM_TEMPERATURES", 5)
        patch.setattr("focalcal.report.criterion_landscape._ROUNDS", 1)
        patch.setattr("focalcal.report.measure_version._CHANCE_DRAWS", 100)
        yield


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    steps = []
    found = run_demo(tmp_path_factory.mktemp("demo"), epochs=2, progress=lambda *step: steps.append(step))
    return found, steps


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(demo, tmp_path):
    again = run_demo(tmp_path, epochs=2)
    assert [asdict(row) for row in again.rows] == [asdict(row) for row in demo[0].rows]
    assert (tmp_path / "report.html").read_bytes() == Path(demo[0].report).read_bytes()


def test_every_network_is_shown_as_it_is_and_after_each_calibrator(demo):
    shown = [(row.loss, row.calibrator) for row in demo[0].rows]
    assert shown == [(loss, calibrator) for loss in LOSSES for calibrator in ("as it is", *CALIBRATORS)]
    for row in demo[0].rows:
        for number in (row.accuracy, row.nll, row.temperature):
            assert number.low <= number.value <= number.high


def test_the_numbers_follow_from_the_files(demo):
    folder = Path(demo[0].folder)
    for row in demo[0].rows:
        test = read_predictions(folder / f"{row.loss.lower()}.npz").of_split("test")
        scores = torch.from_numpy(test.scores)
        if row.calibrator != "as it is":
            calibrator = fc.load_calibrator(folder / f"{row.loss.lower()}.{row.calibrator}.json")
            scores = calibrator(scores)
        found = fc.evaluate(scores, test.labels)
        assert (row.accuracy.value, row.ece.value) == pytest.approx((found.accuracy, found.ece), abs=1e-6)
        assert (row.ada_ece.value, row.nll.value) == pytest.approx((found.ada_ece, found.nll), abs=1e-6)
        assert row.temperature.value == pytest.approx(fc.optimal_temperature(scores, test.labels))


def test_the_files_hold_both_splits_and_adafocal_its_history(demo):
    table = read_predictions(Path(demo[0].folder) / "adafocal.npz")
    assert table.splits() == {"val": noisy_digits.NUM_VAL, "test": 897}
    assert table.history["gamma"].shape == (2, 15)
    assert table.class_names == tuple("0123456789")
    assert np.isfinite(table.scores).all()


def test_progress_goes_up_to_the_end(demo):
    done = [step[0] for step in demo[1]]
    assert done == sorted(done)
    assert demo[1][-1][0] == demo[1][-1][1]
    assert {what for _, _, what in demo[1]} >= {f"training with {loss}" for loss in LOSSES}


@pytest.mark.slow
def test_without_plotly_everything_but_the_report_is_there(tmp_path, monkeypatch):
    def missing(contents, path):
        raise fc.MissingExtraError("The report needs plotly: pip install 'focalcal[report]'.")

    monkeypatch.setattr("focalcal.demo.write_report", missing)
    found = run_demo(tmp_path, epochs=1)
    assert found.report is None
    assert len(found.files) == 6
    assert all(Path(file).exists() for file in found.files)
    assert not (tmp_path / "report.html").exists()
    json.dumps(asdict(found))
