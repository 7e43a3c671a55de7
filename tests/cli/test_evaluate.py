"""`focalcal evaluate`: the verdict first, the measures after it, from every format."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import focalcal as fc
from focalcal.files import write_predictions
from focalcal.report.verdict import assess
from tests.cli.tools import call, halves, predictions

TABLE = predictions()
VERDICT = assess(TABLE.scores, TABLE.labels).verdict


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "predictions.npz"
    write_predictions(TABLE, path)
    return path


def test_the_command_prints_the_verdict_first_and_then_the_table(file):
    answer = call("evaluate", file)
    assert answer.code == 0
    assert answer.err == ""
    lines = answer.out.splitlines()
    assert lines[0] == VERDICT
    assert VERDICT.startswith("overconfident")
    assert f"{file}: 400 rows, 4 classes, logits" in lines
    expected = fc.evaluate(TABLE.scores, TABLE.labels)
    assert re.search(rf"\| ECE +\| +{100 * expected.ece:.2f} % \| +\[[\d.]+, [\d.]+\] \| ECE, top label", answer.out)
    assert re.search(rf"\| NLL +\| +{expected.nll:.4f} \|", answer.out)
    assert any(line.startswith("warning: ") for line in lines)


def test_nothing_heavy_is_imported_that_is_not_needed(file):
    code = f"""
import sys
from focalcal.cli import main
sys.argv = ["focalcal", "evaluate", {str(file)!r}, "--json"]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "torch" in loaded
    heavy = {"sklearn", "pandas", "matplotlib", "plotly", "pyarrow", "scipy.stats", "scipy.optimize", "rich.progress"}
    heavy |= {"focalcal.calibrators.base", "focalcal.select", "focalcal.report.build"}
    assert heavy & loaded == set()


@pytest.mark.parametrize("suffix", ["npz", "csv", "tsv", "parquet", "safetensors"])
def test_every_format_gives_the_same_verdict(tmp_path, suffix):
    write_predictions(TABLE, tmp_path / f"predictions.{suffix}")
    assert call("evaluate", tmp_path / f"predictions.{suffix}", "--quiet").out == f"{VERDICT}\n"


def test_a_pair_of_npy_shards_and_globs_give_the_same_verdict(tmp_path):
    np.save(tmp_path / "x.npy", TABLE.scores)
    np.save(tmp_path / "y.npy", TABLE.labels)
    (tmp_path / "shards").mkdir()
    for place, rows in enumerate(np.array_split(np.arange(400), 3)):
        write_predictions(TABLE.take(rows), tmp_path / f"shards/{place}.csv")
    given = {
        "pair": (tmp_path / "x.npy", tmp_path / "y.npy", "--kind", "logits"),
        "named pair": (tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--kind", "logits"),
        "directory": (tmp_path / "shards",),
        "glob": (tmp_path / "shards/*.csv",),
        "several": tuple(sorted((tmp_path / "shards").iterdir())),
    }
    assert {name: call("evaluate", *words, "-q").out for name, words in given.items()} == dict.fromkeys(
        given, f"{VERDICT}\n"
    )


def test_standard_input_gives_the_same_verdict(file):
    answer = call("evaluate", "-", "--quiet", given=file.read_bytes())
    assert answer.out == f"{VERDICT}\n"


def test_the_json_has_every_measure_and_follows_its_schema(file):
    result = call("evaluate", file, "--json", "--level", 0.9, "--resamples", 200, "--seed", 3).json()
    expected = assess(TABLE.scores, TABLE.labels, level=0.9, num_resamples=200, seed=3)
    assert result["before"]["verdict"] == expected.verdict
    assert result["before"]["measures"]["nll"]["value"] == expected.evaluation.nll
    interval = expected.intervals["ece"]
    ece = result["before"]["measures"]["ece"]
    assert (ece["low"], ece["high"], ece["value"]) == (interval.low, interval.high, interval.value)
    assert result["before"]["measures"]["top_5_accuracy"]["value"] is None  # four classes
    assert result["after"] is None
    assert (result["level"], result["num_resamples"], result["seed"]) == (0.9, 200, 3)


def test_an_infinite_nll_is_null_in_json_and_named_in_the_table(tmp_path):
    probs = np.array([[1.0, 0.0], [0.5, 0.5]] * 30)
    np.savez(tmp_path / "zeros.npz", probs=probs, labels=np.array([1, 0] * 30))
    result = call("evaluate", tmp_path / "zeros.npz", "--json").json()
    assert result["before"]["measures"]["nll"]["value"] is None
    assert any("infinite" in warning for warning in result["before"]["warnings"])
    assert re.search(r"\| NLL +\| +inf", call("evaluate", tmp_path / "zeros.npz").out)


def test_a_calibrator_is_shown_before_and_after(file, tmp_path):
    calibrator = fc.TemperatureScaling().fit(TABLE.scores, TABLE.labels)
    calibrator.save(tmp_path / "c.json")
    shown = call("evaluate", file, "--calibrator", tmp_path / "c.json").out
    assert shown.splitlines()[0] == f"before: {VERDICT}"
    assert shown.splitlines()[1].startswith("after:  calibrated")
    result = call("evaluate", file, "--calibrator", tmp_path / "c.json", "--json").json()
    after = fc.evaluate(calibrator.predict_probs(TABLE.scores), TABLE.labels, kind="probs")
    assert result["after"]["measures"]["ece"]["value"] == pytest.approx(after.ece, abs=1e-6)
    paired = fc.compare(calibrator(TABLE.scores), TABLE.scores, TABLE.labels, metric="nll")
    assert result["differences"][0]["difference"] == pytest.approx(paired.difference, abs=1e-6)
    assert call("evaluate", file, "--calibrator", tmp_path / "c.json", "-q").out.startswith("calibrated")


def test_a_calibrator_of_other_classes_is_refused(file, tmp_path):
    fc.TemperatureScaling().fit([[1.0, 0.0]] * 4, [0, 0, 1, 0]).save(tmp_path / "two.json")
    answer = call("evaluate", file, "--calibrator", tmp_path / "two.json")
    assert answer.code == 2
    assert "was fitted to 2 classes" in answer.err
    assert str(file) in answer.err


# ---------------------------------------------------------------------- splits and columns


def test_of_several_splits_test_is_taken_or_the_one_that_is_named(tmp_path):
    path = tmp_path / "split.npz"
    write_predictions(predictions(split=halves(400)), path)
    test, val = (
        assess(TABLE.scores[halves(400) == name], TABLE.labels[halves(400) == name]).verdict for name in ("test", "val")
    )
    assert call("evaluate", path, "-q").out == f"{test}\n"
    assert call("evaluate", path, "-q", "--split", "val").out == f"{val}\n"
    assert ", split test\n" in call("evaluate", path).out
    assert call("evaluate", path, "--json").json()["split"] == "test"
    wrong = call("evaluate", path, "--split", "tset")
    assert wrong.code == 2
    assert "val (200 rows), test (200 rows)" in wrong.err


def test_of_splits_without_test_one_must_be_named(tmp_path):
    path = tmp_path / "split.npz"
    write_predictions(predictions(split=np.where(np.arange(400) < 9, "first", "second")), path)
    answer = call("evaluate", path)
    assert answer.code == 2
    assert "first, second" in answer.err
    assert "--split" in answer.err


def test_keys_can_be_named(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, z=TABLE.scores, y=TABLE.labels, w=np.ones(400), part=halves(400))
    named = ("--scores", "z", "--kind", "logits", "--labels", "y")
    assert call("evaluate", path, *named, "-q").out == f"{VERDICT}\n"
    result = call("evaluate", path, *named, "--weights", "w", "--split-key", "part", "--json").json()
    assert result["weighted"]
    assert result["num_rows"] == 200
    assert call("evaluate", path).code == 2


def test_binary_scores_of_the_positive_class_are_two_classes(tmp_path):
    generator = np.random.default_rng(0)
    logits = 2 * generator.normal(size=300)
    labels = (generator.random(300) < 1 / (1 + np.exp(-logits / 2))).astype(int)
    np.savez(tmp_path / "binary.npz", logits=logits, labels=labels)
    fc.PlattScaling().fit(logits, labels).save(tmp_path / "platt.json")
    result = call("evaluate", tmp_path / "binary.npz", "--calibrator", tmp_path / "platt.json", "--json").json()
    assert result["num_classes"] == 2
    assert result["after"]["direction"] == "calibrated"
