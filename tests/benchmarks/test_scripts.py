"""The scripts run from end to end, small and once; what they write has all that the page asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import speed

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def run_quick(name: str, results: Path) -> dict:
    environment = os.environ | {"BENCH_QUICK": "1", "BENCH_RESULTS": str(results)}
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")], capture_output=True, text=True, env=environment, cwd=results
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((results / f"{name}.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), [("losses", speed.of_losses), ("training", speed.of_lab)])
def test_a_quick_run_writes_what_the_page_reads(name, make, tmp_path):
    found = run_quick(name, tmp_path)
    ratios = list(make(found))
    assert len(ratios) >= 4
    assert all(ratio.value > 0 for ratio in ratios)
    assert set(found["environment"]) >= {"date", "focalcal", "torch", "threads", "peers"}
    assert "torchmetrics" in found["environment"]["peers"]


def test_a_quick_run_writes_nothing_unless_asked(monkeypatch, capsys, tmp_path):
    import harness

    monkeypatch.setattr(harness, "QUICK", True)
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.delenv("BENCH_RESULTS", raising=False)
    harness.save("losses", {})
    assert "nothing written" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_turns_are_one_in_a_quick_run_and_at_most_what_was_asked(monkeypatch):
    import harness

    monkeypatch.delenv("BENCH_REPEATS", raising=False)
    monkeypatch.setattr(harness, "QUICK", False)
    assert harness.turns(7) == 7
    monkeypatch.setenv("BENCH_REPEATS", "3")
    assert (harness.turns(7), harness.turns(2)) == (3, 2)
    monkeypatch.setattr(harness, "QUICK", True)
    assert harness.turns(7) == 1
