"""`focalcal calibrate`: fitted to some rows, scored on others, and written."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

import focalcal as fc
from focalcal.calibrators.table import find_calibrator
from focalcal.files import read_predictions, write_predictions
from tests.cli.tools import call, halves, predictions

VAL, TEST = predictions(seed=1), predictions(seed=2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with val.npz, test.npz, and both of them in split.npz."""
    monkeypatch.chdir(tmp_path)
    write_predictions(VAL, "val.npz")
    write_predictions(TEST, "test.npz")
    write_predictions(predictions(split=halves(400)), "split.npz")
    return tmp_path


def test_the_command_fits_shows_writes_and_says_how_to_apply(folder):
    answer = call("calibrate", "--fit", "val.npz", "test.npz")
    assert answer.code == 0
    assert answer.err == ""
    lines = answer.out.splitlines()
    temperature = fc.TemperatureScaling().fit(VAL.scores, VAL.labels).temperature_
    assert lines[0].startswith("before: overconfident")
    assert lines[1].startswith("after:  calibrated")
    assert f"temperature: T = {temperature:.4g}" in lines
    assert "Fitted to val.npz (400 rows), scored on test.npz (400 rows)." in lines
    assert "Measured on rows outside the fit" in answer.out
    assert fc.load_calibrator("calibrator.json").temperature_ == temperature
    command = next(line.removeprefix("Apply it: ") for line in lines if line.startswith("Apply it: "))
    program, *arguments = shlex.split(command)
    assert program == "focalcal"
    assert shlex.join(arguments) == "apply calibrator.json test.npz --out test-calibrated.npz"
    assert call(*arguments).code == 0
    expected = fc.load_calibrator("calibrator.json").predict_probs(TEST.scores)
    np.testing.assert_allclose(read_predictions("test-calibrated.npz").scores, expected, atol=1e-6)


def test_the_three_ways_to_say_which_rows_are_fitted(folder):
    files = call("calibrate", "--fit", "val.npz", "test.npz", "--json", "--resamples", 100).json()
    column = call("calibrate", "split.npz", "--json", "--resamples", 100).json()
    named = call(
        "calibrate", "split.npz", "--fit-split", "test", "--score-split", "val", "--json", "--resamples", 100
    ).json()
    drawn = call("calibrate", "val.npz", "--holdout", 0.25, "--seed", 7, "--json", "--resamples", 100).json()
    assert [(each["fit"]["num_rows"], each["num_score_rows"]) for each in (files, column, named, drawn)] == [
        (400, 400),
        (200, 200),
        (200, 200),
        (300, 100),
    ]
    assert column["split"] == "fitted to split val (200 rows), scored on split test (200 rows)"
    assert named["split"] == "fitted to split test (200 rows), scored on split val (200 rows)"
    assert drawn["split"] == "fitted to 300 rows, scored on a random 25 % of the rows (100, seed 7)"
    both = predictions()
    expected = fc.TemperatureScaling().fit(both.scores[::2], both.labels[::2]).report_
    assert column["fit"]["after"] == expected.after
    assert not any(each["same_data"] for each in (files, column, named, drawn))


def test_the_numbers_are_those_of_the_scored_rows(folder):
    result = call("calibrate", "--fit", "val.npz", "test.npz", "--json", "--out", "c.json").json()
    calibrator = fc.load_calibrator("c.json")
    after = calibrator(TEST.scores)
    assert result["before"]["measures"]["nll"]["value"] == fc.evaluate(TEST.scores, TEST.labels).nll
    assert result["after"]["measures"]["nll"]["value"] == pytest.approx(
        fc.evaluate(after, TEST.labels, kind="log_probs").nll
    )
    paired = fc.compare(after, TEST.scores, TEST.labels, metric="ece")
    change = next(each for each in result["differences"] if each["measure"] == "ece")
    assert change["difference"] == pytest.approx(paired.difference, abs=1e-6)
    assert change["p_value"] == paired.p_value


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("val.npz",), "--holdout 0.5"),
        (("--fit", "val.npz", "val.npz"), "every scored row is among the rows of the fit"),
        (("--fit", "val.npz", "copy.csv"), "every scored row is among the rows of the fit"),
        (("split.npz", "--fit-split", "val", "--score-split", "val"), "every scored row is among the rows of the fit"),
        (("split.npz", "--fit-split", "train"), "val (200 rows), test (200 rows)"),
        (("val.npz", "--fit-split", "val"), "needs a split column"),
        (("split.npz", "--holdout", "0.5", "--fit-split", "val"), "--holdout"),
        (("split.npz", "--split", "val", "--fit-split", "val"), "--split"),
        (("--fit", "val.npz", "test.npz", "--holdout", "0.5"), "--holdout"),
        (("val.npz", "--holdout", "1.5"), "between 0 and 1"),
        (("--fit", "val.npz", "three.npz"), "classes must be those of the fit"),
        (("--fit", "val.npz", "probs.npz"), "kind of scores must be those of the fit"),
        (("val.npz", "--holdout", "0.5", "--out", "no/where/c.json"), "no/where/c.json"),
        (("val.npz", "--holdout", "0.5", "--out", "val.npz"), "cannot be written at the same time"),
        (("val.npz", "--holdout", "0.5", "--out", "."), "is a directory"),
        (("val.npz", "--holdout", "0.5", "--method", "vector", "--out", "c.json"), "Name it c.safetensors"),
        (
            ("val.npz", "--holdout", "0.5", "--method", "vector", "--criterion", "nll"),
            "criterion: is not an option of method vector",
        ),
        (("val.npz", "--holdout", "0.5", "--search", "line"), "search: is not an option of method temperature"),
        (("val.npz", "--holdout", "0.5", "--gamma", "1"), "--gamma"),
        (("val.npz", "--holdout", "0.5", "--criterion", "magic"), "criterion"),
        (("val.npz", "--holdout", "0.5", "--method", "platt"), "val.npz"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(folder, arguments, words):
    write_predictions(VAL, "copy.csv")
    write_predictions(predictions(classes=3), "three.npz")
    np.savez("probs.npz", probs=np.full((4, 4), 0.25), labels=np.arange(4))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    answer = call("calibrate", *arguments)
    assert answer.code == 2
    assert len(answer.err.splitlines()) == 1
    assert words in answer.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_same_rows_are_allowed_when_asked_for_and_said_everywhere(folder):
    ways = [("--fit", "val.npz", "val.npz"), ("val.npz",), ("split.npz", "--fit-split", "val", "--score-split", "val")]
    for way in ways:
        shown = call("calibrate", *way, "--allow-same-data", "--resamples", 100).out
        assert shown.startswith("before, on the rows of the fit: overconfident")
        assert "warning: Fitted to and scored on the same rows" in shown
        assert "Measured on the rows of the fit" in shown
        assert "outside the fit" not in shown
        assert call("calibrate", *way, "--allow-same-data", "--json", "--resamples", 100).json()["same_data"] is True
    assert (
        call("calibrate", "--fit", "val.npz", "test.npz", "--allow-same-data", "--json", "--resamples", 100).json()[
            "same_data"
        ]
        is False
    )


def test_some_shared_rows_are_counted_in_a_warning(folder):
    some = np.concatenate([VAL.scores[:30], TEST.scores]), np.concatenate([VAL.labels[:30], TEST.labels])
    np.savez("some.npz", logits=some[0], labels=some[1])
    assert call("calibrate", "--fit", "val.npz", "some.npz", "--json", "--resamples", 100).json()["num_shared"] == 30
    shown = call("calibrate", "--fit", "val.npz", "some.npz").out
    assert "warning: 30 of 430 scored rows equal a row of the fit" in shown


def test_equal_rows_of_a_model_with_few_outputs_are_no_sign_of_the_same_samples(folder):
    np.savez("few.npz", logits=np.array([[4.0, 0.0], [0.0, 4.0]] * 60), labels=np.array([0, 1, 0, 1, 0, 0] * 20))
    result = call("calibrate", "few.npz", "--holdout", 0.5, "--json", "--resamples", 100).json()
    assert (result["num_shared"], result["same_data"]) == (0, False)


def test_a_fit_alone_is_written_and_says_that_nothing_was_measured(folder):
    shown = call("calibrate", "--fit", "val.npz").out
    assert "nothing was measured on other rows" in shown
    assert "before" not in shown
    result = call("calibrate", "--fit", "val.npz", "--json", "--resamples", 100).json()
    assert result["before"] is result["after"] is None
    assert fc.load_calibrator("calibrator.json").temperature_ == pytest.approx(2.0, rel=0.2)


def test_the_command_that_applies_it_works_for_pairs_shards_and_named_keys(folder):
    np.save("x.npy", VAL.scores)
    np.save("y.npy", VAL.labels)
    np.savez("own.npz", z=VAL.scores, labels=VAL.labels)
    (folder / "shards").mkdir()
    for place, rows in enumerate(np.array_split(np.arange(400), 2)):
        write_predictions(VAL.take(rows), f"shards/{place}.csv")
    given = (
        ("x.npy", "y.npy", "--kind", "logits"),
        ("own.npz", "--scores", "z", "--kind", "logits"),
        ("shards",),
        ("shards/0.csv", "shards/1.csv"),
    )
    for words in given:
        result = call("calibrate", *words, "--holdout", 0.5, "--json", "--resamples", 100).json()
        answer = call(*shlex.split(result["apply_command"])[1:])
        assert answer.code == 0, (result["apply_command"], answer.err)


def test_quiet_prints_the_path_only(folder):
    assert call("calibrate", "split.npz", "--quiet", "--out", "c.json").out == "c.json\n"


@pytest.mark.parametrize("method", ["temperature:ada_ece", "vector", "isotonic", "focal-temperature:nll:continuous"])
def test_a_method_is_fitted_and_can_be_loaded(folder, method):
    result = call("calibrate", "split.npz", "--method", method, "--json", "--resamples", 100).json()
    entry = find_calibrator(method.partition(":")[0])
    assert type(fc.load_calibrator(result["out"])) is entry.load()
    assert result["out"] == f"calibrator{entry.suffix}"
    assert result["fit"]["method"] == method


@pytest.mark.parametrize("method", ["platt", "BetaCalibration"])
def test_binary_methods_take_scores_of_the_positive_class(folder, method):
    generator = np.random.default_rng(0)
    logits = 2 * generator.normal(size=300)
    labels = (generator.random(300) < 1 / (1 + np.exp(-logits / 2))).astype(int)
    np.savez("binary.npz", logits=logits, labels=labels)
    result = call("calibrate", "binary.npz", "--holdout", 0.5, "--method", method, "--json", "--resamples", 100).json()
    assert result["out"] == "calibrator.json"
    assert result["fit"]["parameters"].startswith("a = ")


def test_options_of_the_fit_reach_the_method(folder):
    call(
        "calibrate", "split.npz", "--method", "FocalTemperatureScaling", "--criterion", "nll", "--search", "line", "-q"
    )
    fitted = fc.load_calibrator("calibrator.json")
    assert (fitted.criterion.name, fitted.search) == ("nll", "line")
    call("calibrate", "split.npz", "--method", "focal", "--gamma", 1.5, "--resamples", 100, "-q")
    assert fc.load_calibrator("calibrator.json").gamma_ == 1.5
    call("calibrate", "split.npz", "--criterion", "focal", "--loss-gamma", 2, "--resamples", 100, "-q")
    assert fc.load_calibrator("calibrator.json").criterion.gamma == 2


def test_a_fit_that_changes_nothing_says_so(folder):
    table = predictions(4000, temperature=1.0, seed=5)
    np.savez("right.npz", logits=table.scores, labels=table.labels)
    shown = call("calibrate", "right.npz", "--holdout", 0.5, "--method", "identity").out
    assert "identity" in shown.splitlines()[3]
    assert "before: calibrated" in shown
