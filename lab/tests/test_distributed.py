"""Two processes under Lightning's DDP train, update gammas and measure as one process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from focalcal_lab.catalog import find_recipe, recipe_file
from focalcal_lab.recipe import Optimizer

pytestmark = pytest.mark.slow


def run(out: Path, processes: int, method: str, *more: str, recipe: str = "cpu/digits") -> Path:
    """A run by the command line, as a user starts it; Lightning starts the second process."""
    strategy = "ddp" if processes > 1 else "auto"
    command = [sys.executable, "-m", "focalcal", "lab", "run", recipe, "--method", method, "--epochs", "3"]
    command += ["--accelerator", "cpu", "--devices", str(processes), "--strategy", strategy, "--threads", "1"]
    command += ["--out", str(out), "--json", *more]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["runs"]) == 1  # the first process speaks for all
    return out / "cpu/digits" / method / "seed-0"


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


# In double precision, where only the order of sums differs: single precision would add the network's own chaos.
@pytest.mark.parametrize("method", ["adafocal", "adafocal-1"])
def test_two_processes_are_one(tmp_path, method):
    one, two = (run(tmp_path / str(number), number, method, "--precision", "64-true") for number in (1, 2))
    alone, together = (np.load(folder / "predictions.npz") for folder in (one, two))
    assert alone.files == together.files
    np.testing.assert_array_equal(alone["labels"], together["labels"])
    np.testing.assert_allclose(together["logits"], alone["logits"], atol=1e-10)
    if "history_gamma" in alone.files:
        np.testing.assert_array_equal(together["history_count"], alone["history_count"])
        np.testing.assert_allclose(together["history_gamma"], alone["history_gamma"], atol=1e-10)
    for file in ("monitor.json", "results.json"):
        first, second = (dict(numbers(json.loads((folder / file).read_text()))) for folder in (one, two))
        assert first.keys() == second.keys()
        counts = [place for place in first if "count" in place or place.endswith(("rows", "step", "epoch"))]
        assert counts or file == "results.json"
        assert all(first[place] == second[place] for place in counts)
        assert first == pytest.approx(second, abs=1e-9)


def test_single_precision_stays_close(tmp_path):
    """The first gammas to 1e-6; by SGD, because Adam divides gradients that are all rounding by their own size.

    Later ones are those of two networks that rounding has led apart: a row that crosses the edge of a bin moves them.
    """
    digits = find_recipe("cpu/digits")
    training = digits.training.model_copy(update={"optimizer": Optimizer(name="sgd", lr=0.05, momentum=0.9)})
    own = tmp_path / "sgd.yaml"
    own.write_text(recipe_file(digits.model_copy(update={"training": training})))
    one, two = (run(tmp_path / str(number), number, "adafocal", recipe=str(own)) for number in (1, 2))
    alone, together = (np.load(folder / "predictions.npz") for folder in (one, two))
    np.testing.assert_array_equal(together["history_count"], alone["history_count"])
    np.testing.assert_allclose(together["history_gamma"][0], alone["history_gamma"][0], atol=1e-6)


def test_a_distributed_run_can_be_resumed(tmp_path):
    folder = run(tmp_path, 2, "adafocal", "--precision", "64-true")
    expected = np.load(folder / "predictions.npz")["logits"]
    (folder / "results.json").unlink()
    (folder / "predictions.npz").unlink()
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    newest.unlink()  # go on from the end of the epoch before
    command = [sys.executable, "-m", "focalcal", "lab", "resume", str(folder), "--quiet"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(folder)]
    np.testing.assert_array_equal(np.load(folder / "predictions.npz")["logits"], expected)
