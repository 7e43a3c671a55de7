"""Malformed input on the command line: exit code 2, one line that names the file, and nothing written or lost."""

from __future__ import annotations

import json
import re

import pytest

import focalcal as fc
from tests.cli.tools import Answer, call
from tests.files.malformed import Case, make_all

# Options under which a column of a case is named, by the field of `Columns`.
OPTIONS = {"scores": "--scores", "labels": "--labels", "weights": "--weights", "split": "--split-key"}
OPTIONS |= {"class_names": "--class-names", "kind": "--kind"}
OLD = b"what was there before"


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> list[Case]:
    return make_all(tmp_path_factory.mktemp("malformed"))


def arguments(case: Case) -> list[str]:
    named = {option: getattr(case.columns, name) for name, option in OPTIONS.items()}
    return [*map(str, case.paths), *(word for pair in named.items() if pair[1] is not None for word in pair)]


def problems(case: Case, answer: Answer) -> list[str]:
    """What is wrong with an answer to malformed input."""
    found = []
    if answer.code != 2:
        found.append(f"exit code {answer.code}")
    if answer.out:
        found.append(f"output {answer.out[:80]!r}")
    if not re.fullmatch(r"focalcal: [^\n]+\n", answer.err):
        found.append(f"not one line: {answer.err!r}")
    if case.begins_with not in answer.err or case.words not in answer.err:
        found.append(f"does not say what is wrong: {answer.err!r}")
    return found


def test_every_malformed_input_is_refused_by_evaluate(cases):
    assert len(cases) >= 60
    wrong = {case.name: problems(case, call("evaluate", *arguments(case), "--json")) for case in cases}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_malformed_input_is_refused_by_calibrate_and_leaves_the_old_output_alone(cases, tmp_path):
    out = tmp_path / "calibrator.json"
    out.write_bytes(OLD)
    options = ("--holdout", "0.5", "--out", out)
    wrong = {case.name: problems(case, call("calibrate", *arguments(case), *options)) for case in cases[::5]}
    assert {name: found for name, found in wrong.items() if found} == {}
    assert out.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [out]


def test_apply_leaves_the_old_output_alone_whatever_it_is_given(cases, tmp_path):
    calibrator = tmp_path / "temperature.json"
    fc.FocalCalibration(1.0).save(calibrator)
    folder = tmp_path / "out"
    folder.mkdir()
    refused = 0
    for case in cases[::2]:
        out = folder / f"old{case.paths[0].suffix}"
        if len(case.paths) > 1 or not case.paths[0].suffix or case.paths[0].is_dir():
            continue
        out.write_bytes(OLD)
        columns = [word for word in arguments(case)[1:] if "-key" not in word and "weights" not in word]
        answer = call("apply", calibrator, case.paths[0], "--out", out, *_known(columns))
        assert "Traceback" not in answer.err
        assert answer.code in (0, 2), (case.name, answer.err)  # labels, weights and splits are not looked at
        if answer.code == 2:
            refused += 1
            assert len(answer.err.splitlines()) == 1
            assert out.read_bytes() == OLD
        out.unlink()
        assert list(folder.iterdir()) == []
    assert refused >= 20


def _known(words: list[str]) -> list[str]:
    """The options that apply has, with their values."""
    pairs = zip(words[::2], words[1::2], strict=False)
    return [word for pair in pairs if pair[0] in ("--scores", "--labels", "--kind") for word in pair]


def test_calibrators_that_are_none_are_refused(tmp_path, cases):
    file = tmp_path / "good.csv"
    file.write_text("label,logit_0,logit_1\n" + "0,1.5,0.5\n1,0.25,1.0\n" * 20)
    (tmp_path / "text.json").write_text("not JSON")
    (tmp_path / "other.json").write_text(json.dumps({"format": "something else"}))
    (tmp_path / "pickle.json").write_bytes(b"\x80\x04K\x01.")
    for name in ("text.json", "other.json", "pickle.json", "missing.json", "."):
        for command in (("evaluate", file, "--calibrator", tmp_path / name), ("apply", tmp_path / name, file)):
            out = ("--out", tmp_path / "out.csv") if command[0] == "apply" else ()
            answer = call(*command, *out)
            assert answer.code == 2
            assert re.fullmatch(r"focalcal: [^\n]+\n", answer.err)
            assert str(tmp_path / name) in answer.err
    assert not (tmp_path / "out.csv").exists()
