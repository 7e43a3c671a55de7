"""`focalcal demo`, as a newcomer runs it: the table, the files, and the commands that it suggests."""

from __future__ import annotations

import re
import shlex

import pytest

from focalcal.calibrators.table import make_calibrator
from focalcal.demo import DemoResult, DemoRow
from focalcal.metrics import Estimate
from tests.cli.tools import call

LOSSES = ("cross-entropy", "FL-3", "FLSD-53", "AdaFocal")


@pytest.fixture
def found(monkeypatch):
    """A result in the place of the demo's own, which takes seconds."""

    def row(loss, calibrator, ece):
        share, plain = Estimate(ece, ece - 0.01, ece + 0.02), Estimate(1.25, 1.125, 1.5)
        return DemoRow(loss, calibrator, Estimate(0.9, 0.88, 0.92), share, share, plain, plain)

    rows = [row("FL-3", "as it is", 0.159), row("FL-3", "temperature", 0.031)]
    result = DemoResult(7, 3, rows, {"FL-3": "overconfident: a bit"}, "here", ["here/fl-3.npz"], "here/report.html")
    asked = []
    monkeypatch.setattr("focalcal.demo.run_demo", lambda out, **options: asked.append((str(out), options)) or result)
    return asked


def test_the_table_has_a_row_for_every_version_and_the_next_commands_follow(found):
    answer = call("demo", "--out", "there", "--seed", 7, "--epochs", 3)
    assert (answer.code, answer.err) == (0, "")
    out, options = found[0]
    assert (out, options["seed"], options["epochs"]) == ("there", 7, 3)
    assert "| FL-3, 90.0 % " in answer.out
    assert "|   as it is     | 15.9 [14.9, 17.9] | 15.9 [14.9, 17.9] | 1.250 [1.125, 1.500] |" in answer.out
    assert re.search(r"\|   temperature +\| +3\.1 \[2\.1, 5\.1\] \|", answer.out)
    assert "Trained with FL-3, the network is overconfident: a bit." in answer.out
    assert "Most truthful here: FL-3, temperature." in answer.out
    assert "focalcal evaluate here/cross-entropy.npz --calibrator here/cross-entropy.temperature.json" in answer.out


def test_on_a_narrow_terminal_intervals_stand_under_their_values(found):
    shown = call("demo", terminal=60).out
    assert "15.9 [14.9" not in shown
    assert "[14.9, 17.9]" in shown


def test_json_and_quiet(found):
    result = call("demo", "--json").json()
    assert (result["seed"], result["epochs"], len(result["rows"])) == (7, 3, 2)
    assert result["rows"][1]["ece"]["low"] == pytest.approx(0.021)
    assert call("demo", "-q").out == "here/report.html\n"


@pytest.mark.slow
def test_the_three_commands_that_it_suggests_work_as_printed(tmp_path, monkeypatch):
    monkeypatch.setattr("focalcal.demo._NUM_RESAMPLES", 20)
    monkeypatch.setattr("focalcal.report.measure_version._CHANCE_DRAWS", 100)
    # Of all methods, which tests/cli/test_compare.py has, two that take no time.
    few = {name: make_calibrator(name) for name in ("temperature", "vector")}
    monkeypatch.setattr("focalcal.select.methods.suitable_methods", lambda *_: (few, {}))
    monkeypatch.chdir(tmp_path)
    answer = call("demo", "--epochs", "1")
    assert (answer.code, answer.err) == (0, "")
    for loss in LOSSES:
        assert f"{loss}, " in answer.out
        assert (tmp_path / "focalcal-demo" / f"{loss.lower()}.npz").exists()
    for version in ("|   as it is ", "|   temperature ", "|   focal-temperature "):
        assert answer.out.count(version) == 4
    assert (tmp_path / "focalcal-demo/report.html").stat().st_size < 6e6
    suggested = [line.strip() for line in answer.out.split("Next, try:\n")[1].splitlines()]
    assert [shlex.split(line)[1] for line in suggested] == ["evaluate", "compare", "calibrate"]
    for line in suggested:
        done = call(*shlex.split(line)[1:])
        assert (done.code, done.err) == (0, ""), line
        assert done.out
    assert (tmp_path / "focalcal-demo/my-calibrator.json").exists()
