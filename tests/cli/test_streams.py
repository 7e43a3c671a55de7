"""`evaluate` and `calibrate` as streams: the answers of memory, without the bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from focalcal.cli import streams
from focalcal.files import PredictionTable, write_predictions

from .tools import call

RNG = np.random.default_rng(0)
LOGITS = (3 * RNG.normal(size=(2000, 5))).astype(np.float32)
LABELS = (LOGITS / 2 + RNG.gumbel(size=LOGITS.shape)).argmax(1)
SPLITS = np.where(np.arange(2000) % 2 == 0, "val", "test")


@pytest.fixture
def file(tmp_path):
    """All rows in one file, with splits and devices."""
    path = tmp_path / "all.npz"
    np.savez(path, logits=LOGITS, labels=LABELS, split=SPLITS, device=np.arange(2000) % 3)
    return path


@pytest.fixture
def pair(tmp_path):
    """A file to fit to and two shards to score."""
    pytest.importorskip("pyarrow")
    write_predictions(PredictionTable("val", LOGITS[:1000], "logits", LABELS[:1000]), tmp_path / "val.parquet")
    for place, rows in enumerate((slice(1000, 1300), slice(1300, 2000))):
        write_predictions(
            PredictionTable("test", LOGITS[rows], "logits", LABELS[rows]), tmp_path / f"test-{place}.parquet"
        )
    return tmp_path / "val.parquet", f"{tmp_path}/test-*.parquet"


def values(measured):
    return {name: each["value"] for name, each in measured["measures"].items()}


def test_a_stream_is_measured_as_memory_is(file):
    memory, stream = (call("evaluate", file, "--engine", engine, "--json").json() for engine in ("memory", "stream"))
    assert values(stream["before"]) == pytest.approx(values(memory["before"]), abs=1e-12, nan_ok=True)
    assert (memory["engine"], stream["engine"]) == ("memory", "stream")
    assert stream["split"] == memory["split"] == "test"
    assert stream["before"]["direction"] == memory["before"]["direction"] == "overconfident"
    assert stream["num_resamples"] == 0
    gap, wide = stream["before"]["measures"]["gap"], memory["before"]["measures"]["gap"]
    assert gap["low"] < wide["low"] < gap["value"] < wide["high"] < gap["high"]  # not too narrow
    assert stream["before"]["measures"]["ece"]["low"] is None


def test_groups_are_shown_and_told(file):
    answer = call("evaluate", file, "--by", "device", "--split", "val")
    assert answer.code == 0, answer.err
    assert "| device |" in answer.out
    told = call("evaluate", file, "--by", "device", "--split", "val", "--json").json()
    assert list(told["groups"]) == ["0", "1", "2"]
    assert told["by"] == "device"
    refused = call("evaluate", file, "--by", "device")
    assert refused.code == 2
    assert "--split" in refused.err
    refused = call("evaluate", file, "--by", "device", "--engine", "memory")
    assert refused.code == 2
    assert "--by" in refused.err


def test_large_files_are_streamed_of_themselves(file, monkeypatch):
    assert call("evaluate", file, "--json").json()["engine"] == "memory"
    monkeypatch.setattr(streams, "_LARGE", 1000)
    assert streams.engine_for("auto", [str(file)]) == "stream"
    assert streams.engine_for("memory", [str(file)]) == "memory"
    assert streams.engine_for("auto", ["-"]) == "memory"


def test_a_fit_to_a_stream_is_that_to_memory(pair, tmp_path):
    fit, score = pair
    answers = [
        call(
            "calibrate", "--fit", fit, score, "--engine", engine, "--out", tmp_path / f"{engine}.json", "--json"
        ).json()
        for engine in ("memory", "stream")
    ]
    memory, stream = answers
    assert stream["fit"]["parameters"] == memory["fit"]["parameters"]
    assert stream["fit"]["after"] == pytest.approx(memory["fit"]["after"], abs=1e-12)
    assert stream["fit"]["passes"] == 1
    assert values(stream["after"]) == pytest.approx(values(memory["after"]), abs=1e-6, nan_ok=True)
    assert stream["num_score_rows"] == 1000
    both = call("evaluate", score, "--calibrator", tmp_path / "stream.json", "--engine", "stream", "--json").json()
    assert values(both["after"]) == pytest.approx(values(stream["after"]), abs=1e-9, nan_ok=True)


def test_the_rows_of_a_fit_must_be_said(file, pair, tmp_path):
    out = ("--out", tmp_path / "c.json", "--engine", "stream", "--json")
    refused = call("calibrate", file, *out)
    assert refused.code == 2
    assert "--fit" in refused.err
    assert call("calibrate", "--fit", pair[0], pair[0], *out).code == 2
    named = call("calibrate", file, "--fit-split", "val", "--score-split", "test", *out).json()
    assert (named["fit"]["num_rows"], named["num_score_rows"]) == (1000, 1000)
    drawn = call("calibrate", pair[1], "--holdout", 0.5, *out).json()
    assert drawn["fit"]["num_rows"] + drawn["num_score_rows"] == 1000
    assert call("calibrate", pair[1], "--allow-same-data", *out).json()["same_data"]
    assert call("calibrate", "--fit", pair[0], *out).json()["before"] is None


def test_bad_shards_are_named_or_left_out(pair, tmp_path):
    (tmp_path / "test-9.parquet").write_bytes(b"PAR1 cut")
    refused = call("evaluate", pair[1], "--engine", "stream")
    assert refused.code == 2
    assert "test-9.parquet" in refused.err
    answer = call("evaluate", pair[1], "--engine", "stream", "--on-bad-shard", "skip")
    assert answer.code == 0
    assert "left out: " in answer.out
    told = call("evaluate", pair[1], "--engine", "stream", "--on-bad-shard", "skip", "--json").json()
    assert told["num_rows"] == 1000
    assert [name.split("/")[-1] for name in told["skipped"]] == ["test-9.parquet"]
    fitted = call(
        "calibrate", "--fit", pair[0], pair[1], "--engine", "stream", "--on-bad-shard", "skip", "--json",
        "--out", tmp_path / "c.json",
    ).json()  # fmt: skip
    assert len(fitted["skipped"]) == 1
