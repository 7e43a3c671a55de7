"""The installed console script, run as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import focalcal as fc
from focalcal import cli

SCRIPT = Path(sys.executable).with_name("focalcal")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_help_and_version_answer():
    assert "demo" in run("--help").stdout
    assert run("--version").stdout == f"focalcal {fc.__version__}\n"


def test_demo_prints_a_row_for_every_loss_and_nothing_else_on_a_pipe():
    result = run("demo", "--epochs", "1")
    assert result.returncode == 0
    assert result.stderr == ""
    for name in ("cross-entropy", "FL-3", "FLSD-53", "AdaFocal"):
        assert name in result.stdout


def test_demo_gives_json():
    result = run("demo", "--epochs", "1", "--json")
    rows = json.loads(result.stdout)
    assert [row["loss"] for row in rows] == ["cross-entropy", "FL-3", "FLSD-53", "AdaFocal"]
    assert all(0 < row["accuracy"] < 1 and row["temperature"] > 0 for row in rows)


@pytest.mark.parametrize("arguments", [("demo", "--epochs", "0"), ("demo", "--seed", "x"), ("nonsense",)])
def test_bad_usage_leaves_with_2_and_no_traceback(arguments):
    result = run(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_our_own_errors_become_one_line(monkeypatch, capsys):
    def fail() -> None:
        raise fc.InputError("labels: must be class numbers; got cats.")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == 2
    assert capsys.readouterr().err == "focalcal: labels: must be class numbers; got cats.\n"
