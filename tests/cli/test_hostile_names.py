"""Names of files, classes and groups that would steer a terminal, or that no encoding can show, are shown escaped."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from focalcal.cli.console import progress
from focalcal.files import PredictionTable, write_predictions
from tests.cli.tools import call, halves, predictions

NAMES = {
    "escape": "a\x1b[31mred\x1b]0;title\x07",
    "eight bits": "b\x9b31m",
    "direction": "c\u202egnp",
    "no UTF-8": os.fsdecode(b"caf\xe9\xff"),
}
STEERING = set("\x1b\x07\x9b\u202e")
COMMANDS = {
    "evaluate": ("--engine", "stream"),
    "calibrate": ("--out", "c.json"),
    "compare": ("--methods", "temperature", "--folds", "3", "--no-nested"),
    "report": ("--methods", "none", "--out", "r.html"),
}


@pytest.fixture(params=NAMES.values(), ids=NAMES)
def name(request):
    return request.param


def write(folder, name, suffix=".npz"):
    """Predictions in a file of this name, with classes of such names too."""
    path = folder / f"{name}{suffix}"
    write_predictions(predictions(split=halves(400), class_names=("\x1b[2J", "\x9b", "\u202e", "d")), path)
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_no_name_reaches_the_terminal_as_it_is(tmp_path, monkeypatch, name, command):
    monkeypatch.chdir(tmp_path)
    answer = call(command, write(tmp_path, name), *COMMANDS[command])
    assert answer.code == 0, answer.err
    assert not STEERING & set(answer.out + answer.err)


@pytest.mark.parametrize("name", [NAMES["eight bits"], NAMES["no UTF-8"]])
@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_valid_and_gives_names_back(tmp_path, monkeypatch, name, command):
    monkeypatch.chdir(tmp_path)
    answer = call(command, write(tmp_path, name), "--json", *COMMANDS[command])
    assert answer.code == 0, answer.err
    assert not STEERING & set(answer.out)  # decoded from UTF-8 by `call`
    assert json.dumps(name)[1:-1] in json.dumps(json.loads(answer.out))


def test_apply_writes_to_such_names(tmp_path, name):
    file, calibrator = write(tmp_path, name), tmp_path / f"{name}.json"
    assert call("calibrate", file, "--out", calibrator).code == 0
    for quiet in ((), ("--quiet",)):
        answer = call("apply", calibrator, file, "--out", tmp_path / f"{name}-out.npz", *quiet)
        assert (answer.code, answer.err) == (0, "")
        assert not STEERING & set(answer.out)


def test_errors_show_names_escaped(tmp_path):
    answer = call("evaluate", tmp_path / "a\x1b[31m\udcff.npz".replace("[", ""))
    assert answer.code == 2
    assert r"a\x1b31m\udcff.npz: there is no such file" in answer.err
    assert not STEERING & set(call("demo", "\x1b[31m").err)  # what is no argument


def test_values_of_by_are_shown_escaped(tmp_path):
    pytest.importorskip("pyarrow")
    table = predictions()
    languages = np.where(np.arange(400) % 2 == 0, "\x1b[31mred", "\u202eblue")
    np.savez(tmp_path / "a.npz", logits=table.scores, labels=table.labels, **{"lan\x1bg": languages})
    for terminal in (None, 160):
        answer = call("evaluate", tmp_path / "a.npz", "--by", "lan\x1bg", terminal=terminal, NO_COLOR="1")
        assert answer.code == 0, answer.err
        assert r"\x1b[31mred" in answer.out
        assert r"lan\x1bg" in answer.out
        assert r"\u202eblue" in answer.out
    assert set(call("evaluate", tmp_path / "a.npz", "--by", "lan\x1bg", "--json").json()["groups"]) == set(languages)


def test_warnings_and_progress_show_names_escaped(tmp_path, monkeypatch, capsys):
    write(tmp_path, "b")
    (tmp_path / "\x1b[31mbad.npz").write_bytes(b"PK")
    answer = call("evaluate", tmp_path, "--engine", "stream", "--on-bad-shard", "skip", "--split", "val")
    assert r"\x1b[31mbad.npz" in answer.out
    assert not STEERING & set(answer.out + answer.err)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress() as advance:
        advance(0, 0, "reading \x1b[31mred.npz")
    assert r"reading \x1b[31mred.npz" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_an_encoding_that_lacks_a_sign_is_no_reason_to_fail(tmp_path, encoding):
    file = write(tmp_path, "größe 日本 \udcff")
    answer = call("evaluate", file, encoding=encoding)
    assert (answer.code, answer.err) == (0, "")
    assert r"\u65e5\u672c \udcff.npz" in answer.out
    assert call("evaluate", file, "--json", encoding=encoding).json()["files"] == [str(file)]
    assert call("evaluate", tmp_path / "日本", encoding=encoding).code == 2


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet", ".safetensors"])
def test_every_format_is_read_whatever_the_file_is_called(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    made = predictions()
    path = tmp_path / f"{NAMES['no UTF-8']}{suffix}"
    write_predictions(PredictionTable("t", made.scores, "logits", made.labels), path)
    for engine in ("memory", "stream"):
        answer = call("evaluate", path, "--engine", engine, "-q")
        assert answer.code == 0, answer.err
