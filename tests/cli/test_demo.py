"""`focalcal demo`, as a newcomer runs it: the table, the files, and the commands that it suggests."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from tests.cli.tools import ENVIRONMENT, SCRIPT, run


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, run("demo", "--epochs", "1", folder=folder, OMP_NUM_THREADS="1")


def test_demo_prints_every_loss_with_every_calibrator_and_nothing_else_on_a_pipe(shown):
    folder, answer = shown
    assert (answer.code, answer.err) == (0, "")
    for loss in ("cross-entropy", "FL-3", "FLSD-53", "AdaFocal"):
        assert f"{loss}, " in answer.out
        assert (folder / "focalcal-demo" / f"{loss.lower()}.npz").exists()
    for version in ("|   as it is ", "|   temperature ", "|   focal-temperature "):
        assert answer.out.count(version) == 4
    assert (folder / "focalcal-demo/report.html").stat().st_size < 6e6


@pytest.mark.slow
def test_the_three_suggested_commands_work_as_printed(shown):
    folder, answer = shown
    suggested = [line.strip() for line in answer.out.split("Next, try:\n")[1].splitlines()]
    assert [shlex.split(line)[1] for line in suggested] == ["evaluate", "compare", "calibrate"]
    variables = ENVIRONMENT | {"OMP_NUM_THREADS": "1", "PATH": f"{SCRIPT.parent}:{ENVIRONMENT['PATH']}"}
    for line in suggested:
        done = subprocess.run(
            line, shell=True, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), line
        assert done.stdout
    assert (folder / "focalcal-demo/my-calibrator.json").exists()


@pytest.mark.slow
def test_demo_gives_json(tmp_path):
    result = run(
        "demo", "--epochs", "1", "--seed", "3", "--json", "--out", tmp_path / "here", OMP_NUM_THREADS="1"
    ).json()
    assert (result["seed"], result["epochs"], len(result["rows"])) == (3, 1, 12)
    assert result["report"] == str(tmp_path / "here/report.html")
