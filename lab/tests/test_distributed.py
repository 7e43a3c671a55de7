"""Two processes under Lightning's DDP train, update gammas and measure as one process does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lightning.pytorch.utilities import rank_zero_only

from tests.cli.tools import call
from tests.ranks import launched, meeting_point, ranked, run_ranks

pytestmark = [pytest.mark.slow, ranked]


def options(out: Path, processes: int, method: str) -> list[str]:
    """In double precision, where only the order of sums differs: single precision would add the network's own chaos."""
    strategy = "ddp" if processes > 1 else "auto"
    how = ["--accelerator", "cpu", "--devices", str(processes), "--strategy", strategy, "--precision", "64-true"]
    return ["--method", method, "--epochs", "2", *how, "--threads", "1", "--out", str(out), "--json"]


def command(*arguments: str) -> str:
    """What the command prints, run as a user runs it; Lightning starts the second process."""
    done = subprocess.run(
        [sys.executable, "-m", "focalcal", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_rank(rank: int, arguments: tuple[str, ...], port: int, out: Path) -> None:
    variables = launched(rank, 2, port)
    rank_zero_only.rank = rank  # Lightning reads it when it is imported, which was before
    answer = call(*arguments, **variables)
    assert answer.code == 0, answer.err
    (out / f"{rank}.txt").write_text(answer.out)


def forked(out: Path, *arguments: str) -> str:
    """What the command prints in two processes that are there already, as under torchrun."""
    store = meeting_point(2)
    wrong = run_ranks(run_rank, arguments, store.port, out, world=2)
    assert not wrong, wrong
    return "".join((out / f"{rank}.txt").read_text() for rank in range(2))


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The folder of a method's run by two processes, made once; for one method Lightning starts the second process."""
    made: dict[str, Path] = {}

    def folder(method: str) -> Path:
        if method not in made:
            out = tmp_path_factory.mktemp(method)
            arguments = ("lab", "run", "cpu/digits", *options(out, 2, method))
            said = command(*arguments) if method == "adafocal" else forked(out, *arguments)
            (path,) = json.loads(said)["runs"]
            made[method] = out / "cpu/digits" / method / "seed-0"
            assert Path(path["folder"]) == made[method]  # one run: the first process speaks for both
        return made[method]

    return folder


def numbers(value, path=""):
    """Every number of nested lists and dictionaries, by its place."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from numbers(each, f"{path}.{key}")
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from numbers(each, f"{path}[{place}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


@pytest.mark.parametrize("method", ["adafocal", "adafocal-1"])
def test_two_processes_are_one(tmp_path, together, method):
    answer = call("lab", "run", "cpu/digits", *options(tmp_path, 1, method))
    assert answer.code == 0, answer.err
    one, two = tmp_path / "cpu/digits" / method / "seed-0", together(method)
    alone, both = (np.load(folder / "predictions.npz") for folder in (one, two))
    assert alone.files == both.files
    np.testing.assert_array_equal(alone["labels"], both["labels"])
    np.testing.assert_allclose(both["logits"], alone["logits"], atol=1e-10)
    np.testing.assert_array_equal(both["history_count"], alone["history_count"])
    np.testing.assert_allclose(both["history_gamma"], alone["history_gamma"], atol=1e-10)
    for file in ("monitor.json", "results.json"):
        first, second = (dict(numbers(json.loads((folder / file).read_text()))) for folder in (one, two))
        assert first.keys() == second.keys()
        counts = [place for place in first if "count" in place or place.endswith(("rows", "step", "epoch"))]
        assert counts or file == "results.json"
        assert all(first[place] == second[place] for place in counts)
        assert first == pytest.approx(second, abs=1e-9)


def test_a_distributed_run_can_be_resumed(tmp_path, together):
    folder = tmp_path / "run"
    shutil.copytree(together("adafocal"), folder)
    expected = np.load(folder / "predictions.npz")["logits"]
    (folder / "results.json").unlink()
    (folder / "predictions.npz").unlink()
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    newest.unlink()  # go on from the end of the epoch before
    assert forked(tmp_path, "lab", "resume", str(folder), "--quiet").split() == [str(folder)]
    np.testing.assert_array_equal(np.load(folder / "predictions.npz")["logits"], expected)
