"""`focalcal lab run` and `focalcal lab resume`, as a user types them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from focalcal.errors import FocalCalError
from focalcal_lab.cli import lab
from focalcal_lab.run_folder import RunFolder
from lab.tests.tiny import QUICK, own
from tests.cli.tools import call, run, start

ONE = ("--threads", "1", "--accelerator", "cpu")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The beginning of a command that runs the quick recipe."""
    file = tmp_path_factory.mktemp("recipe") / "quick.yaml"
    file.write_text(QUICK)
    return ("lab", "run", file, "--epochs", "1", *ONE)


@pytest.fixture(scope="module")
def finished(quick, tmp_path_factory):
    """A folder with a finished run of `fl-2` in it, and what the command said; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, call(*quick, "--method", "fl-2", "--out", folder)


def test_a_run_prints_its_numbers_and_what_to_do_next(finished):
    folder, answer = finished
    assert answer.code == 0, answer.err
    assert "fl-2, seed 0" in answer.out
    assert "psi" in answer.out  # Psi^gamma, for a loss with one gamma
    assert "3 standard normal classes" in answer.out
    line = answer.out.splitlines()[-1].split()
    assert line[1:3] == ["report", str(folder / "quick/fl-2/seed-0/predictions.npz")]


@pytest.mark.slow
def test_what_a_run_suggests_next_can_be_done(finished):
    line = finished[1].out.splitlines()[-1].split()
    assert call(*line[1:]).code == 0
    assert Path(line[-1]).stat().st_size > 100_000


@pytest.mark.slow
def test_started_as_a_module_it_suggests_a_module(quick, tmp_path):
    command = [sys.executable, "-m", "focalcal", *map(str, quick), "--method", "ce", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert f"{sys.executable} -m focalcal report " in done.stdout


def test_seeds_and_methods_give_a_folder_each(quick, tmp_path):
    found = call(*quick, "--method", "ce", "--loss", "adafocal", "--seeds", "2", "--out", tmp_path, "--json").json()
    assert [(each["result"]["method"], each["result"]["seed"]) for each in found["runs"]] == [
        ("ce", 0),
        ("ce", 1),
        ("adafocal", 0),
        ("adafocal", 1),
    ]
    assert {row["phase"] for row in found["runs"][0]["result"]["rows"]} >= {"pre", "post", "ets", "psi"}
    errors = [row["value"] for each in found["runs"] for row in each["result"]["rows"] if row["metric"] == "error"]
    assert len(set(errors)) > 1  # the seed decides
    again = call("lab", "resume", tmp_path, "--json").json()  # everything is finished: the same numbers at once
    assert sorted(each["folder"] for each in again["runs"]) == sorted(each["folder"] for each in found["runs"])
    runs = {each["folder"]: each for each in again["runs"]}
    assert all(runs[each["folder"]] == each for each in found["runs"])
    # resume also begins what had not begun
    last = Path(found["runs"][-1]["folder"])
    for name in ("results.json", "predictions.npz", "monitor.json"):
        (last / name).unlink()
    shutil.rmtree(last / "checkpoints")
    answer = call("lab", "resume", tmp_path, "--quiet")
    assert sorted(answer.out.split()) == sorted(runs)
    assert (last / "results.json").exists()


def test_the_recipe_of_a_run_can_be_run(finished, tmp_path):
    recipe = finished[0] / "quick/fl-2/seed-0/recipe.yaml"
    answer = call("lab", "run", recipe, "--method", "fl-2", "--out", tmp_path, *ONE)
    assert answer.code == 0, answer.err
    one, two = (place / "quick/fl-2/seed-0/results.json" for place in (finished[0], tmp_path))
    assert one.read_text() == two.read_text()


@pytest.mark.slow
def test_a_recipe_can_be_taken_changed_and_run(tmp_path):
    answer = call("lab", "list", "cpu/digits", "--yaml")
    mine = tmp_path / "mine.yaml"
    mine.write_text(answer.out.replace("cpu/digits", "mine").replace("epochs: 60", "epochs: 1"))
    (found,) = call("lab", "run", mine, "--method", "ce", "--out", tmp_path, *ONE, "--json").json()["runs"]
    assert (found["result"]["recipe"], found["result"]["epochs"]) == ("mine", 1)
    assert call("lab", "list", "--yaml").code == 2


def test_a_dry_run_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = call("lab", "run", "cpu/digits", "--method", "all", "--dry-run", "--json").json()
    assert found["parameters"] == 94_304
    assert len(found["losses"]) == 15
    assert found["losses"]["fl-2"] < found["losses"]["fl-1"] < found["losses"]["ce"]
    assert list(tmp_path.iterdir()) == []
    assert "one step, loss" in call("lab", "run", "cpu/digits", "--method", "ce", "--dry-run").out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cpu/digit",), "Nearest: cpu/digits"),
        (("cpu/digits",), "--method: cpu/digits has ce, brier"),
        (("cpu/digits", "--method", "focal"), "got 'focal'"),
        (("cpu/digits", "--method", "ce", "--data", "nowhere"), "--data: nowhere does not exist"),
        (("missing.yaml", "--method", "ce"), "must be a file that exists"),
        (("own", "--loss", "adafocal"), "own"),
        (("cpu/digits", "--method", "ce", "--logger", "paper"), "logger: must be one of csv, tensorboard"),
        (("cpu/digits", "--method", "ce", "--accelerator", "abacus"), "trainer: "),
        (("cpu/digits", "--method", "ce", "--precision", "3"), "trainer: Precision '3' is invalid"),
    ],
)
def test_mistakes_are_said_in_one_line(tmp_path, arguments, says):
    answer = call("lab", "run", *arguments, "--out", tmp_path)
    assert answer.code == 2, answer.out
    assert says in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert list(tmp_path.rglob("run.json")) == []  # nothing was begun


def test_an_unwritable_place_is_said_in_one_line(quick):
    answer = call(*quick, "--method", "ce", "--out", "/proc/runs")  # where not even root may write
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "/proc/runs" in answer.err


def test_resuming_nothing_is_a_mistake(tmp_path):
    answer = call("lab", "resume", tmp_path)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "there is no run in it" in answer.err


def test_the_same_command_again_reads_what_is_finished_and_another_one_is_a_mistake(quick, finished):
    folder, first = finished
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}
    again = call(*quick, "--method", "fl-2", "--out", folder)
    assert (again.code, again.out) == (0, first.out)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")} == written
    answer = call(*quick, "--method", "fl-2", "--epochs", 2, "--out", folder)
    assert answer.code == 2
    assert "holds another run, with another recipe" in answer.err
    # a run of one's own recipe is none of the paper's
    assert call("lab", "table", "mukhoti2020", "1", "--runs", folder, "--json").json()["measured"] == 0


@pytest.mark.slow
def test_runs_side_by_side_find_what_they_find_one_after_another(quick, tmp_path):
    wanted = (*quick, "--method", "ce", "--method", "fl-2", "--threads", 1)
    alone = call(*wanted, "--out", tmp_path / "a", "--json")
    together = call(*wanted, "--out", tmp_path / "b", "--jobs", 2, "--json")
    assert together.err.splitlines()[-1].startswith("focalcal: 2 of 2 runs: ")
    found = [[run["result"] for run in json.loads(answer.out)["runs"]] for answer in (alone, together)]
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_run_that_fails_among_others_is_said(quick, tmp_path):
    wanted = (*quick, "--method", "ce", "--method", "fl-2", "--out", tmp_path)
    assert call(*wanted).code == 0
    folder = next(tmp_path.rglob("fl-2/seed-0"))
    (folder / "results.json").unlink()
    for checkpoint in (folder / "checkpoints").iterdir():
        checkpoint.write_bytes(b"")
    answer = call("lab", "resume", tmp_path, "--jobs", 2)
    assert answer.code == 1
    assert answer.err.startswith(f"focalcal: {folder / 'checkpoints'}/step-")
    assert answer.err.count("\n") == 1
    (folder / "recipe.yaml").write_text("recipe: {}")
    answer = call("lab", "resume", tmp_path, "--jobs", 2)  # said before anything is begun
    assert answer.code == 2
    assert answer.err.startswith(f"focalcal: {folder / 'recipe.yaml'}, ")


def test_the_first_failure_among_runs_side_by_side_stops_what_is_not_begun(tmp_path, monkeypatch, capsys):
    begun = []

    def work(folder: Path, dataset: str | None, processes: lab._Processes) -> str:
        begun.append(folder)
        time.sleep(0 if folder.name == "0" else 0.3)
        return f"{folder}: is broken." if folder.name == "0" else ""

    monkeypatch.setattr(lab, "_in_process", work)
    folders = [tmp_path / str(number) for number in range(9)]
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "results.json").write_text("{}")  # finished before
    with pytest.raises(FocalCalError, match=r"0: is broken\.$"):
        lab._side_by_side(folders, 2, quiet=False)
    assert folders[0] in begun
    assert folders[1] not in begun
    assert len(begun) <= 3
    del begun[:]
    lab._side_by_side(folders[1:4], 2, quiet=False)
    assert sorted(begun) == folders[2:4]
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[2].partition(":")[0].strip() for line in said] == ["1 of 2 runs", "2 of 2 runs"]


def test_what_a_run_in_a_process_of_its_own_says_is_said(tmp_path, monkeypatch, capsys):
    script = "import sys; print('Warning: of a library', file=sys.stderr); print('focalcal: 2 bins.', file=sys.stderr)"
    command = ["-c", f"{script}; sys.exit(CODE)"]
    for code, answer, said in ((0, "", "focalcal: 2 bins.\n"), (1, "2 bins.", "")):
        processes = lab._Processes()
        made = [sys.executable, command[0], command[1].replace("CODE", str(code))]
        monkeypatch.setattr(processes, "run", lambda given, made=made, run=processes.run: run(made))
        assert lab._in_process(tmp_path, None, processes) == answer
        assert capsys.readouterr().err == said


@pytest.mark.slow
def test_ctrl_c_ends_the_runs_side_by_side_and_the_same_command_goes_on(tmp_path):
    wanted = ("lab", "run", "cpu/digits", "--epochs", 8, "--threads", 1, "--accelerator", "cpu", "--method", "ce")
    wanted = [str(each) for each in (*wanted, "--out", tmp_path)]
    folder = tmp_path / "cpu/digits/ce/seed-0"
    # a session of its own: a key that is pressed reaches the command and the processes that it started, as here
    process = start(
        *[*wanted, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        variables={"OMP_NUM_THREADS": "1"},
    )
    try:
        while process.poll() is None and not list(tmp_path.rglob("*.ckpt")):
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, out) == (130, "")
    assert err == "focalcal: interrupted. The same command goes on.\n"
    with pytest.raises(ProcessLookupError):  # nobody is left
        os.killpg(process.pid, 0)
    assert not (folder / "results.json").exists()
    spent = json.loads((folder / "time.json").read_text())["seconds"]
    answer = call(*wanted, "--quiet")
    assert (answer.code, answer.out) == (0, f"{folder}\n")
    assert (folder / "results.json").exists()
    assert json.loads((folder / "time.json").read_text())["seconds"] > spent


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_sigterm_to_the_command_alone_ends_its_runs_and_leaves_nobody(tmp_path, jobs):
    wanted = ("lab", "run", "cpu/digits", "--epochs", 200, "--threads", 1, "--accelerator", "cpu", "--method", "ce")
    wanted = [str(each) for each in (*wanted, "--seeds", jobs, "--jobs", jobs, "--out", tmp_path)]
    process = start(
        *wanted,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        variables={"OMP_NUM_THREADS": "1"},
    )
    folders = [tmp_path / f"cpu/digits/ce/seed-{seed}" for seed in range(jobs)]
    try:
        while process.poll() is None and not all(list(folder.rglob("*.ckpt")) for folder in folders):
            time.sleep(0.05)
        process.terminate()
        out, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, out) == (143, "")
    assert err.startswith("focalcal: interrupted. ")
    assert err.endswith(f" lab resume {folders[0]}\n" if jobs == 1 else "The same command goes on.\n")
    assert err.count("\n") == 1
    with pytest.raises(ProcessLookupError):  # nobody is left
        os.killpg(process.pid, 0)
    for folder in folders:
        assert json.loads((folder / "time.json").read_text())["seconds"] > 0
        assert not (folder / "results.json").exists()
        assert not [path for path in folder.rglob(".*") if path.is_file()]  # nor anything half written
        with RunFolder(folder).locked():
            checkpoint, damaged = RunFolder(folder).newest_checkpoint()
        assert checkpoint is not None
        assert not damaged


def test_a_csv_logger_is_lightning_s(quick, tmp_path):
    call(*quick, "--method", "ce", "--out", tmp_path, "--logger", "csv")
    assert "val_ece" in (tmp_path / "quick/ce/seed-0/logs/metrics.csv").read_text()


def test_help_lists_the_four_commands():
    answer = call("lab", "--help")
    assert all(name in answer.out for name in ("list", "run", "resume", "table"))


@pytest.mark.slow
def test_a_folder_of_images_of_one_s_own(tmp_path):
    """The practitioner's way in: images, one command, a report."""
    own(tmp_path / "images")
    answer = run(
        "lab",
        "run",
        "own",
        "--data",
        "images",
        "--loss",
        "adafocal",
        "--epochs",
        "8",
        folder=tmp_path,
        OMP_NUM_THREADS="1",
    )
    assert answer.code == 0, answer.err
    assert "Open runs/own/report.html in a browser" in answer.out
    assert answer.err == "focalcal: 2 bins instead of 15: there are only 14 validation rows.\n"
    page = (tmp_path / "runs/own/report.html").read_text()
    assert all(name in page for name in ("above", "below", "middle"))
    results = json.loads((tmp_path / "runs/own/adafocal/seed-0/results.json").read_text())
    error = next(row["value"] for row in results["rows"] if row["metric"] == "error")
    assert error < 0.2  # bright stripes are easy
    saved = np.load(tmp_path / "runs/own/adafocal/seed-0/predictions.npz")
    assert saved["class_names"].tolist() == ["above", "below", "middle"]
    assert run("evaluate", "runs/own/adafocal/seed-0/predictions.npz", folder=tmp_path).code == 0
