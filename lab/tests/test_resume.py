"""A run that is killed anywhere and resumed is the run that was never interrupted; what goes wrong loses nothing."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from focalcal.errors import FileFormatError, FocalCalError, InputError
from focalcal.integrations.lightning import CalibratedClassifier
from focalcal_lab.catalog import read_recipes
from focalcal_lab.monitor import read_monitor
from focalcal_lab.recipe import Recipe
from focalcal_lab.run import begin, resume
from focalcal_lab.run_folder import RunFolder, RunSettings
from focalcal_lab.training_setup import shortened
from lab.tests.tiny import QUICK
from tests.ranks import fork_server, ranked

EPOCHS, BATCHES = 3, 10


def recipe(**training) -> Recipe:
    base = read_recipes(QUICK)["quick"]
    return base.model_copy(update={"training": base.training.model_copy(update=training)})


def start(
    folder: Path, method: str = "adafocal", every: int | None = 3, wanted: Recipe | None = None, **trainer: str
) -> RunFolder:
    wanted = wanted or recipe()
    trainer = {"accelerator": "cpu", "devices": 1, **trainer}
    return begin(wanted, folder, RunSettings(method, 0, wanted.digest(method), None, 1, every, trainer))


def crash_after(monkeypatch, steps: int) -> None:
    """Make the training step after this many raise, which is as good as a power cut to what lies on the disk."""
    original, taken = CalibratedClassifier.training_step, [0]

    def step(self, batch, batch_idx):
        if taken[0] == steps:
            raise RuntimeError("power cut")
        taken[0] += 1
        return original(self, batch, batch_idx)

    monkeypatch.setattr(CalibratedClassifier, "training_step", step)


def outcome(folder: Path) -> dict[str, object]:
    """Everything that must not depend on interruptions."""
    state = torch.load(RunFolder(folder).checkpoints[0], weights_only=True)["state_dict"]
    return {
        "weights": {name: value.numpy().tobytes() for name, value in state.items() if torch.is_tensor(value)},
        "monitor": (folder / "monitor.json").read_bytes(),
        "results": (folder / "results.json").read_bytes(),
        "predictions": hashlib.sha256((folder / "predictions.npz").read_bytes()).hexdigest(),
        "calibrators": {path.name: path.read_bytes() for path in sorted((folder / "calibrators").iterdir())},
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folders = {}

    def run(method: str) -> dict[str, object]:
        if method not in folders:
            folders[method] = tmp_path_factory.mktemp("whole") / "run"
            resume(start(folders[method], method).path)
        return outcome(folders[method])

    return run


# Before the first checkpoint, between two, at one, at the end of an epoch, in the next, in the last.
@pytest.mark.parametrize(
    ("method", "steps"),
    [
        ("adafocal", 3),
        ("adafocal", 14),
        *(pytest.param("adafocal", steps, marks=pytest.mark.slow) for steps in (2, 10)),
        *(pytest.param(each, 14, marks=pytest.mark.slow) for each in ("flsc-531", "adafocal-1", "mmce")),
    ],
)
def test_a_resumed_run_is_bit_identical(tmp_path, monkeypatch, uninterrupted, method, steps):
    expected = uninterrupted(method)
    place = start(tmp_path / "run", method)
    with monkeypatch.context() as patch:
        crash_after(patch, steps)
        with pytest.raises(RuntimeError, match="power cut"):
            resume(place.path)
    assert not place.finished
    resume(place.path)
    assert outcome(place.path) == expected


def test_the_best_epoch_is_kept_over_an_interruption(tmp_path, monkeypatch):
    best = recipe(select="best")
    resume(start(tmp_path / "whole", wanted=best).path)
    place = start(tmp_path / "cut", wanted=best)
    with monkeypatch.context() as patch:
        crash_after(patch, 15)
        with pytest.raises(RuntimeError, match="power cut"):
            resume(place.path)
    resume(place.path)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")
    assert (tmp_path / "cut/best.safetensors").read_bytes() == (tmp_path / "whole/best.safetensors").read_bytes()


@pytest.mark.slow
def test_double_precision_survives_an_interruption(tmp_path, monkeypatch):
    resume(start(tmp_path / "whole", precision="64-true").path)
    place = start(tmp_path / "cut", precision="64-true")
    with monkeypatch.context() as patch:
        crash_after(patch, 14)
        with pytest.raises(RuntimeError, match="power cut"):
            resume(place.path)
    resume(place.path)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_the_monitor_records_every_so_many_epochs_and_the_last_one(tmp_path, monkeypatch):
    """As MonitorCallback(every=3) says; interrupted in an epoch that is recorded, the file is the same."""
    wanted = shortened(recipe(), 4).model_copy(update={"monitor": 3})
    resume(start(tmp_path / "whole", wanted=wanted).path)
    records = read_monitor(tmp_path / "whole/monitor.json")
    assert [(record["epoch"], record["step"]) for record in records] == [(2, 3 * BATCHES), (3, 4 * BATCHES)]
    place = start(tmp_path / "cut", wanted=wanted)
    with monkeypatch.context() as patch:
        crash_after(patch, 2 * BATCHES + 5)
        with pytest.raises(RuntimeError, match="power cut"):
            resume(place.path)
    assert not place.file("monitor.json").exists()
    resume(place.path)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_without_a_monitor_there_is_no_file(tmp_path):
    wanted = recipe().model_copy(update={"monitor": False})
    place = start(tmp_path / "run", wanted=wanted)
    resume(place.path)
    assert not place.file("monitor.json").exists()


def test_the_seconds_of_a_run_are_those_of_all_its_parts(tmp_path):
    place = start(tmp_path / "run")
    assert place.seconds == 0
    for part in (1, 2, 3):
        before = place.seconds
        with contextlib.suppress(RuntimeError), place.timed():
            time.sleep(0.11)
            if part == 2:
                raise RuntimeError("power cut")
        assert before + 0.09 < place.seconds < before + 60  # written in tenths
    assert json.loads(place.file("time.json").read_text()) == {"seconds": place.seconds}
    place.file("time.json").write_text("{")
    assert place.seconds == 0.0  # the run is worth more than its time


WORKER = "import sys; from focalcal_lab.run import resume; resume(sys.argv[1]); print('finished')"


@pytest.fixture(scope="module")
def workers():
    """Processes that a kill can hit anywhere: while they train, validate, write, calibrate or measure.

    They are forked from one that has imported everything: what is killed is a run, not seconds of imports.
    """
    return fork_server()


def run_worker(workers, folder: Path, seconds: float | None) -> bool:
    """Resume in a process of its own, killed after some seconds; whether it finished."""
    process = workers.Process(target=resume, args=(folder,))
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


@pytest.mark.slow
@ranked
def test_kill_at_ten_random_moments(tmp_path, uninterrupted, workers):
    expected = uninterrupted("adafocal")
    for name in ("warm", "timed"):  # the first one waits for the imports
        began = time.monotonic()
        assert run_worker(workers, start(tmp_path / name).path, None)
        whole = time.monotonic() - began
    draw, kills = random.Random(0), 0
    for number in range(5):
        place = start(tmp_path / f"run-{number}")
        for _ in range(2):
            kills += not run_worker(workers, place.path, draw.uniform(0.05, 0.9) * whole)
        assert run_worker(workers, place.path, None)
        assert outcome(place.path) == expected, number
        shutil.rmtree(place.path)
    assert kills >= 5


def test_a_second_writer_is_refused(tmp_path):
    place = start(tmp_path / "run")
    with place.locked(), pytest.raises(FocalCalError, match=f"is being written by process {os.getpid()} on"):
        resume(place.path)
    # the lock is the system's: a file that a dead process left behind holds nobody up
    with open(place.file("lock"), "w") as lock:
        lock.write("process 1 on a machine that is gone\n")
    with place.locked(), open(place.file("lock")) as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_another_run_in_the_same_folder_is_refused_and_the_same_one_goes_on(tmp_path):
    place = start(tmp_path / "run")
    before = {path: path.read_bytes() for path in place.path.iterdir() if path.name != "lock"}
    longer = shortened(recipe(), EPOCHS + 1)
    for other, difference in (
        ({"method": "ce"}, "method, recipe"),
        ({"wanted": longer}, "recipe"),
        ({"every": 5}, "checkpoint_every"),
        ({"precision": "64-true"}, "trainer"),
    ):
        with pytest.raises(InputError, match=f"holds another run, with another {difference}[.] Name another --out"):
            start(tmp_path / "run", **other)
    # what does not decide the run may differ
    start(tmp_path / "run", wanted=recipe().model_copy(update={"about": "other words", "minutes": 99.0}))
    resume(place.path)
    after = (place.path / "results.json").read_bytes()
    start(tmp_path / "run")
    assert all(path.read_bytes() == content for path, content in before.items())
    assert (place.path / "results.json").read_bytes() == after
    assert resume(place.path) == place.result()  # a finished run is read, not run again


def test_a_folder_with_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="must be a new or empty folder"):
        start(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "lock") == ["thesis.tex"]


def test_a_changed_recipe_is_refused(tmp_path):
    place = start(tmp_path / "run")
    text = place.file("recipe.yaml").read_text()
    place.file("recipe.yaml").write_text(text.replace("lr: 0.01", "lr: 0.02", 1))
    with pytest.raises(InputError, match="was changed since the run began"):
        resume(place.path)
    for broken in (text + "\nspeed: fast\n", "[: broken", ""):
        place.file("recipe.yaml").write_text(broken)
        with pytest.raises(InputError, match=r"recipe.yaml: "):
            resume(place.path)
    place.file("recipe.yaml").write_text(text)
    assert resume(place.path).epochs == EPOCHS


@pytest.mark.parametrize("content", ["", "[]", '{"method": "ce"}', '{"method": 1, "speed": 2}'])
def test_a_broken_run_file_is_refused(tmp_path, content):
    place = start(tmp_path / "run")
    place.file("run.json").write_text(content)
    with pytest.raises(FileFormatError, match=r"run.json: it is not what a run writes"):
        resume(place.path)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="must be the folder of a run"):
        resume(tmp_path)


class Evil:
    def __reduce__(self):
        return Path.touch, (Path("EVIL"),)


def _without(state, *names):
    return {name: value for name, value in state.items() if name not in names}


FORGED = {
    "a pickle": lambda state: pickle.dumps(Evil()),
    "code in it": lambda state: _saved({**state, "epoch": Evil()}),
    "no archive": lambda state: b"PK\x03\x04 but nothing more",
    "half": lambda state: _saved(state)[:2000],
    "empty": lambda state: b"",
    "a tensor": lambda state: _saved(torch.zeros(3)),
    "no weights": lambda state: _saved(_without(state, "state_dict")),
    "no loops": lambda state: _saved(_without(state, "loops")),
    "no optimiser": lambda state: _saved(_without(state, "optimizer_states")),
    "weights of another network": lambda state: _saved(_changed(state, "network.1.weight", torch.zeros(9, 2))),
    "a weight more": lambda state: _saved(_changed(state, "network.other", torch.zeros(1))),
    "gammas that are not numbers": lambda state: _saved(_changed(state, "loss.gamma", torch.full((5,), torch.nan))),
    "another optimiser": lambda state: _saved(_with_momentum(state)),
    "no place in the data": lambda state: _saved({**state, "LabData": {"train": {}}}),
}


def _saved(state) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _changed(state, name, value):
    assert name.endswith("other") or name in state["state_dict"], list(state["state_dict"])
    return {**state, "state_dict": {**state["state_dict"], name: value}}


def _with_momentum(state):
    (optimizer,) = state["optimizer_states"]
    moved = {number: {**each, "exp_avg": torch.zeros(99)} for number, each in optimizer["state"].items()}
    return {**state, "optimizer_states": [{**optimizer, "state": moved}]}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run that was cut after a checkpoint."""
    place = start(tmp_path_factory.mktemp("interrupted") / "run")
    with pytest.MonkeyPatch.context() as patch:
        crash_after(patch, 5)
        with pytest.raises(RuntimeError, match="power cut"):
            resume(place.path)
    return place


@pytest.mark.parametrize("how", FORGED)
def test_a_checkpoint_that_is_no_checkpoint_of_the_run_is_refused(tmp_path, monkeypatch, interrupted, how):
    monkeypatch.chdir(tmp_path)
    place = RunFolder(shutil.copytree(interrupted.path, tmp_path / "run"))
    (path,) = place.checkpoints
    content = FORGED[how](torch.load(path, weights_only=True))
    path.unlink()
    forged = place.file("checkpoints", f"step-0000000003-{hashlib.sha256(content).hexdigest()[:16]}.ckpt")
    forged.write_bytes(content)
    with pytest.raises(FileFormatError) as refused:
        resume(place.path)
    assert str(refused.value).startswith(f"{forged}: is not a checkpoint of this run: ")
    assert str(refused.value).endswith(
        "remove it: the run then goes on from the one before, or from its start, and the seed makes it the same."
    )
    assert not Path("EVIL").exists()


@pytest.mark.parametrize(
    "damage", ["changed", *(pytest.param(each, marks=pytest.mark.slow) for each in ("cut", "empty"))]
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, monkeypatch, uninterrupted, damage):
    place = start(tmp_path / "run")
    with monkeypatch.context() as patch:
        crash_after(patch, 14)
        with pytest.raises(RuntimeError, match="power cut"):
            resume(place.path)
    newest, older = place.checkpoints
    content = newest.read_bytes()
    middle = len(content) // 2
    newest.write_bytes(
        {"cut": content[:middle], "changed": content[:middle] + b"?" + content[middle + 1 :], "empty": b""}[damage]
    )
    said: list[str] = []
    resume(place.path, say=said.append)
    assert said == [f"{newest} is damaged; going on from {older}."]
    assert outcome(place.path) == uninterrupted("adafocal")


@pytest.mark.slow
def test_without_a_whole_checkpoint_the_way_out_is_said(tmp_path, monkeypatch, uninterrupted):
    place = start(tmp_path / "run")
    with monkeypatch.context() as patch:
        crash_after(patch, 14)
        with pytest.raises(RuntimeError, match="power cut"):
            resume(place.path)
    for path in place.checkpoints:
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(FileFormatError, match="remove the folder checkpoints to begin the run again"):
        resume(place.path)
    shutil.rmtree(place.file("checkpoints"))
    resume(place.path)
    assert outcome(place.path) == uninterrupted("adafocal")


@pytest.mark.slow
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, uninterrupted):
    """A limit on file sizes in a process of its own: writes fail half-way, as on a full disk."""
    place = start(tmp_path / "run")
    limit = 8_000  # a checkpoint has more than twice this
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {resource.RLIM_INFINITY})); {WORKER}"
    failed = subprocess.run(
        [sys.executable, "-c", code, str(place.path)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert failed.returncode != 0
    assert "File too large" in failed.stderr
    left = [path for path in place.path.rglob("*") if path.is_file() and path.stat().st_size >= limit]
    assert left == []
    assert not list(place.path.rglob(".*"))  # nothing half-written remains
    resume(place.path)
    assert outcome(place.path) == uninterrupted("adafocal")


def test_a_folder_below_a_file_is_an_error_of_the_system(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        start(tmp_path / "file" / "run")


def test_a_run_leaves_what_it_promises(tmp_path):
    place = start(tmp_path / "run")
    result = resume(place.path)
    names = {str(path.relative_to(place.path)) for path in place.path.rglob("*") if path.is_file()}
    promised = {
        "recipe.yaml",
        "run.json",
        "environment.json",
        "lock",
        "monitor.json",
        "predictions.npz",
        "results.json",
        "time.json",
    }
    assert promised <= names
    assert place.seconds > 0
    assert {Path(name).parts[0] for name in names - promised} == {"checkpoints", "calibrators"}
    assert len(place.checkpoints) == 2
    assert json.loads(place.file("environment.json").read_text())["torch"] == torch.__version__
    assert result == place.result()
    assert {row.phase for row in result.rows} >= {"pre", "post"}
