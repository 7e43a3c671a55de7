"""`focalcal report`: one HTML file of one or more models."""

from __future__ import annotations

import numpy as np
import pytest

import focalcal as fc
from focalcal.files import write_predictions
from focalcal.report.verdict import assess
from tests.cli.tools import call, halves, predictions

pytest.importorskip("plotly")

TABLE = predictions()
FAST = ("--methods", "temperature", "--resamples", 100)


@pytest.fixture(scope="module", autouse=True)
def _coarse():
    """Maps of few temperatures and bands of few draws: tests of the report look at their values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("focalcal.report.criterion_landscape._NUM_TEMPERATURES", 5)
        patch.setattr("focalcal.report.criterion_landscape._ROUNDS", 1)
        patch.setattr("focalcal.report.measure_version._CHANCE_DRAWS", 100)
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_predictions(TABLE, "model.npz")
    write_predictions(predictions(split=halves(400)), "split.npz")
    write_predictions(predictions(seed=3, temperature=3.0), "other.npz")
    return tmp_path


def test_the_command_writes_the_page_and_prints_the_verdicts(folder):
    answer = call("report", "split.npz")
    assert answer.code == 0, answer.err
    assert answer.err == ""
    rows = halves(400) == "test"
    scores, labels = TABLE.scores[rows], TABLE.labels[rows]
    lines = answer.out.splitlines()
    assert lines[0] == f"split: {assess(scores, labels).verdict}"
    for line, method in ((lines[1], fc.TemperatureScaling()), (lines[2], fc.FocalTemperatureScaling())):
        method.fit(TABLE.scores[~rows], TABLE.labels[~rows])
        said = f"T = {method.temperature_:.2f}): {assess(method(scores), labels, kind='log_probs').verdict}"
        assert line.endswith(said)
    assert lines[1].startswith("  temperature (T = ")
    assert lines[2].startswith(f"  focal-temperature (γ = {method.gamma_:.2f}, T = ")
    assert "  fitted to split val (200 rows), scored on split test (200 rows)" in lines
    assert "Written: report.html (" in answer.out
    assert (folder / "report.html").read_text().lower().startswith("<!doctype html>")


def test_without_a_word_about_rows_half_of_them_are_held_out_and_the_page_says_so(folder):
    result = call("report", "model.npz", *FAST, "--json").json()
    model = result["models"][0]
    assert (model["num_rows"], model["num_fit_rows"]) == (200, 200)
    assert "a random 50 % of the rows (200, seed 0)" in model["split"]
    assert "a random 50 % of the rows" in (folder / "report.html").read_text()
    assert result["num_bytes"] == (folder / "report.html").stat().st_size


def test_each_file_is_a_model_and_shards_are_one(folder):
    (folder / "shards").mkdir()
    for place, rows in enumerate(np.array_split(np.arange(400), 2)):
        write_predictions(TABLE.take(rows), folder / f"shards/{place}.npz")
    result = call("report", "other.npz", "shards", *FAST, "--title", "Two <models>", "--json").json()
    assert [model["name"] for model in result["models"]] == ["other", "shards"]
    assert [model["num_rows"] for model in result["models"]] == [200, 200]
    assert "<title>Two &lt;models&gt;" in (folder / "report.html").read_text()


def test_files_of_the_same_name_are_told_apart(folder):
    for name in ("a", "b"):
        (folder / name).mkdir()
        write_predictions(TABLE, folder / name / "test.npz")
    result = call("report", "a/test.npz", "b/test.npz", *FAST, "--json").json()
    assert [model["name"] for model in result["models"]] == ["a/test", "b/test"]


def test_rows_of_the_fit_come_from_the_file_of_each_model(folder):
    result = call("report", "model.npz", "--fit", "other.npz", *FAST, "--json").json()
    assert "fitted to other.npz (400 rows), scored on model.npz (400 rows)" in result["models"][0]["split"]
    assert call("report", "model.npz", "other.npz", "--fit", "other.npz").code == 2
    assert call("report", "model.npz", "--fit", "model.npz").code == 2
    same = call("report", "model.npz", "--fit", "model.npz", "--allow-same-data", *FAST, "--json").json()
    assert same["models"][0]["same_data"] is True


def test_given_calibrators_are_shown_and_nothing_is_fitted_when_asked_not_to(folder):
    fc.TemperatureScaling().fit(TABLE.scores, TABLE.labels).save("mine.json")
    result = call("report", "model.npz", "--methods", "none", "--calibrator", "mine.json", "--json").json()
    model = result["models"][0]
    assert [version["name"] for version in model["versions"]] == ["as it is", "mine"]
    assert (model["num_rows"], model["num_fit_rows"]) == (400, 0)
    fc.TemperatureScaling().fit([[1.0, 0.0]] * 4, [0, 0, 1, 0]).save("two.json")
    assert call("report", "model.npz", "--calibrator", "two.json").code == 2


def test_figures_are_written_in_the_formats_asked_for(folder):
    pytest.importorskip("matplotlib")
    fast = ("--methods", "none", "--resamples", 100)
    result = call("report", "model.npz", *fast, "--figures", "figures", "--figure-format", "svg", "--json").json()
    assert result["figures"]
    assert all((folder / figure).stat().st_size > 0 and figure.endswith(".svg") for figure in result["figures"])


def test_quiet_prints_the_path_only(folder):
    assert call("report", "model.npz", *FAST, "-q", "--out", "r.html").out == "r.html\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--out", "no/where/r.html"), "no/where/r.html"),
        (("--out", "model.npz"), "cannot be written at the same time"),
        (("--methods", "magic"), "magic"),
        (("--figure-format", "gif"), "--figure-format"),
        (("--calibrator", "none.json"), "none.json"),
        (("--figures", "no/where/figures"), "no/where/figures"),
    ],
)
def test_wrong_options_are_refused_in_a_line_and_nothing_is_written(folder, options, words):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    answer = call("report", "model.npz", *options)
    assert answer.code == 2
    assert words in answer.err
    assert len(answer.err.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
