"""Run folders that version 0.1.0.dev0 wrote are read, reported and resumed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import focalcal as fc
from focalcal_lab.monitor import read_monitor
from focalcal_lab.published_table import read_runs
from focalcal_lab.run import resume
from focalcal_lab.run_folder import RunFolder
from focalcal_lab.run_report import write_runs_report

OLD = Path(__file__).parent / "written_by_0_1_0_dev0"


def test_a_finished_run_is_read_with_everything_in_its_folder():
    folder = RunFolder(OLD / "finished")
    recipe, settings = folder.read()
    assert (recipe.name, settings.method, settings.seed) == ("tiny", "adafocal", 0)
    assert recipe.digest("adafocal") == settings.digest  # an old recipe means what it meant
    assert resume(folder.path) == folder.result()
    assert [(Path(run.folder).name, run.result.method) for run in read_runs(OLD)] == [("finished", "adafocal")]
    numbers = {(row.phase, row.metric): row for row in folder.result().rows}
    assert numbers["pre", "error"].value == pytest.approx(38 / 60)
    assert numbers["post", "nll"].temperature == pytest.approx(2.66, abs=0.01)
    assert [record["epoch"] for record in read_monitor(folder.file("monitor.json"))] == [0, 1, 2]
    calibrators = {path.stem: fc.load_calibrator(path) for path in folder.file("calibrators").iterdir()}
    assert sorted(calibrators) == ["ets", "fts", "post"]
    assert float(calibrators["post"].temperature_) == numbers["post", "nll"].temperature


@pytest.mark.slow
def test_a_finished_run_is_reported(tmp_path):
    write_runs_report({"old": OLD / "finished"}, tmp_path / "report.html")
    assert "focal-temperature" in (tmp_path / "report.html").read_text()


def test_an_interrupted_run_comes_to_the_result_that_it_would_have_had(tmp_path):
    shutil.copytree(OLD / "interrupted", tmp_path / "run")
    result = resume(tmp_path / "run", say=lambda line: None)
    expected = RunFolder(OLD / "finished").result()
    assert [(row.phase, row.metric) for row in result.rows] == [(row.phase, row.metric) for row in expected.rows]
    assert [row.value for row in result.rows] == pytest.approx([row.value for row in expected.rows], abs=1e-5)
    assert len(read_monitor(tmp_path / "run" / "monitor.json")) == 3
