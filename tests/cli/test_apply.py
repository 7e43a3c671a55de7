"""`focalcal apply`: the same file with calibrated scores, in every format, with or without labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import focalcal as fc
from focalcal.files import Columns, read_predictions, write_predictions
from tests.cli.tools import call, predictions, run

TABLE = predictions()


@pytest.fixture
def calibrator(tmp_path):
    path = tmp_path / "temperature.json"
    fc.TemperatureScaling().fit(TABLE.scores, TABLE.labels).save(path)
    return path


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv", "tsv", "parquet", "safetensors"])
def test_every_format_is_calibrated_without_labels(tmp_path, calibrator, suffix):
    file, out = tmp_path / f"new.{suffix}", tmp_path / f"out.{suffix}"
    write_predictions(replace(TABLE, labels=None), file)
    kind = ("--kind", "logits") if suffix == "npy" else ()
    answer = call("apply", calibrator, file, "--out", out, *kind)
    assert answer.code == 0, answer.err
    assert answer.out.startswith(f"Written: {out}: 400 rows as probs, calibrated by temperature (T = ")
    columns = Columns(kind="probs") if suffix == "npy" else Columns()
    found = read_predictions(out, columns, need_labels=False)
    assert found.kind == "probs"
    np.testing.assert_allclose(found.scores, fc.load_calibrator(calibrator).predict_probs(TABLE.scores), atol=1e-6)


def test_log_probs_json_and_quiet(tmp_path, calibrator):
    file, out = tmp_path / "new.npz", tmp_path / "out.npz"
    write_predictions(TABLE, file)
    result = call("apply", calibrator, file, "--out", out, "--to", "log_probs", "--json").json()
    assert (result["num_rows"], result["to"], result["method"]) == (400, "log_probs", "temperature")
    found = read_predictions(out)
    np.testing.assert_allclose(found.scores, fc.load_calibrator(calibrator)(TABLE.scores), atol=1e-6)
    np.testing.assert_array_equal(found.labels, TABLE.labels)
    answer = call("apply", calibrator, file, "--out", out, "--quiet")
    assert (answer.code, answer.out, answer.err) == (0, f"{out}\n", "")


def test_standard_input_to_standard_output_is_text(tmp_path, calibrator):
    write_predictions(TABLE, tmp_path / "new.csv")
    answer = run("apply", calibrator, "-", "--out", "-", given=(tmp_path / "new.csv").read_bytes())
    assert answer.code == 0, answer.err
    (tmp_path / "out.csv").write_text(answer.out)
    expected = fc.load_calibrator(calibrator).predict_probs(TABLE.scores)
    np.testing.assert_allclose(read_predictions(tmp_path / "out.csv").scores, expected, atol=1e-6)


def test_a_directory_of_shards_becomes_a_directory(tmp_path, calibrator):
    (tmp_path / "shards").mkdir()
    for name, rows in (("a", slice(0, 150)), ("b", slice(150, 400))):
        write_predictions(TABLE.take(np.arange(400)[rows]), tmp_path / f"shards/{name}.parquet")
    assert call("apply", calibrator, tmp_path / "shards", "--out", tmp_path / "done").code == 0
    assert sorted(path.name for path in (tmp_path / "done").iterdir()) == ["a.parquet", "b.parquet"]
    expected = fc.load_calibrator(calibrator).predict_probs(TABLE.scores)
    np.testing.assert_allclose(read_predictions(tmp_path / "done").scores, expected, atol=1e-6)


def test_binary_scores_keep_their_shape(tmp_path):
    generator = np.random.default_rng(0)
    logits = generator.normal(size=200)
    labels = (generator.random(200) < 1 / (1 + np.exp(-logits / 2))).astype(int)
    platt = fc.PlattScaling().fit(logits, labels)
    platt.save(tmp_path / "platt.json")
    np.savez(tmp_path / "binary.npz", logits=logits, labels=labels)
    assert call("apply", tmp_path / "platt.json", tmp_path / "binary.npz", "--out", tmp_path / "out.npz").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["probs"], platt.predict_probs(logits), atol=1e-9)


def test_other_classes_a_wrong_suffix_a_missing_folder_and_the_input_itself_are_refused(tmp_path, calibrator):
    three, four = tmp_path / "three.npz", tmp_path / "four.npz"
    write_predictions(predictions(classes=3), three)
    write_predictions(TABLE, four)
    content = four.read_bytes()
    wrong = {
        "was fitted to 4 classes": (three, tmp_path / "out.npz"),
        "out.xls": (four, tmp_path / "out.xls"),
        "no directory": (four, tmp_path / "no/where/out.npz"),
        "four.npz": (four, four),
    }
    for words, (file, out) in wrong.items():
        answer = call("apply", calibrator, file, "--out", out)
        assert answer.code == 2
        assert len(answer.err.splitlines()) == 1
        assert words in answer.err
    assert four.read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["four.npz", "temperature.json", "three.npz"]
