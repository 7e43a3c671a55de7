"""`focalcal compare`: methods ranked by cross-validation."""

from __future__ import annotations

import pytest

import focalcal as fc
from focalcal.files import write_predictions
from focalcal.select import select_calibrator
from tests.cli.tools import call, halves, predictions

TABLE = predictions()
METHODS = "temperature,temperature:ada_ece,vector"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "val.npz"
    write_predictions(TABLE, path)
    return path


def test_the_command_prints_the_verdict_the_ranking_and_the_honest_score(file):
    answer = call("compare", file, "--methods", METHODS)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].startswith("Use temperature: nll ")
    assert [name in answer.out for name in ("| temperature:ada_ece ", "| vector ", "| identity ")] == [True] * 3
    assert "select, then calibrate: what taking the best one is worth" in answer.out


def test_the_json_is_what_select_calibrator_finds_and_the_winner_is_saved(file, tmp_path):
    options = ("--criterion", "brier", "--folds", 4, "--repeats", 2, "--no-nested", "--seed", 5, "--level", 0.9)
    out = tmp_path / "best.safetensors"
    result = call("compare", file, "--methods", METHODS, *options, "--out", out, "--json").json()
    methods = {"a": fc.TemperatureScaling(), "b": fc.TemperatureScaling("ada_ece"), "c": fc.VectorScaling()}
    expected = select_calibrator(
        TABLE.scores,
        TABLE.labels,
        methods=methods,
        criterion="brier",
        num_folds=4,
        num_repeats=2,
        nested=False,
        seed=5,
        level=0.9,
    )
    assert [row["score"] for row in result["table"]] == [row.score for row in expected.table]
    assert [row["p_corrected"] for row in result["table"]] == [row.p_corrected for row in expected.table]
    assert result["winner"] == "temperature"
    assert result["nested"] is None
    assert result["out"] == str(tmp_path / "best.json")  # one number, which JSON holds
    assert fc.load_calibrator(result["out"]).temperature_ == expected.winner.temperature_
    assert not out.exists()


def test_quiet_names_the_winner_and_val_is_the_usual_split(tmp_path):
    path = tmp_path / "split.npz"
    write_predictions(predictions(split=halves(400)), path)
    assert call("compare", path, "--methods", "temperature", "--no-nested", "-q").out == "temperature\n"
    result = call("compare", path, "--methods", "temperature", "--no-nested", "--json").json()
    assert (result["split"], result["num_rows"]) == ("val", 200)


def test_where_nothing_is_better_the_identity_wins_and_is_saved(tmp_path):
    path, out = tmp_path / "right.npz", tmp_path / "best.json"
    write_predictions(predictions(temperature=1.0), path)
    assert call("compare", path, "--methods", "temperature", "--no-nested", "--out", out, "-q").out == "identity\n"
    assert isinstance(fc.load_calibrator(out), fc.Identity)


@pytest.mark.slow
def test_by_default_all_methods_that_suit_the_data_take_part(file):
    result = call("compare", file, "--no-nested", "--folds", 2, "--json").json()
    names = {row["name"] for row in result["table"]}
    assert {"temperature", "focal-temperature:nll:continuous", "spline", "bbq", "identity"} <= names
    assert set(result["left_out"]) == {"platt", "beta"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--criterion", "accuracy"), "criterion"),
        (("--methods", ","), "--methods"),
        (("--methods", "identity"), "identity"),
        (("--methods", "temperature", "--folds", "2"), "folds"),
        (("--methods", "temperature", "--out", "no/where/best.json"), "no/where/best.json"),
    ],
)
def test_wrong_options_are_refused_in_a_line(file, options, words):
    answer = call("compare", file, *options)
    assert answer.code == 2
    assert words in answer.err
    assert len(answer.err.splitlines()) == 1


def test_when_no_method_can_be_fitted_the_exit_code_is_1(file):
    answer = call("compare", file, "--methods", "platt")
    assert answer.code == 1
    assert len(answer.err.splitlines()) == 1
