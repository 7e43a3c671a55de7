"""The console script as such: help, exit codes, pipes, terminals, Ctrl-C."""

from __future__ import annotations

import ast
import errno
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import focalcal as fc
from focalcal import cli
from focalcal.atomic import atomic_file
from focalcal.files import write_predictions
from focalcal.kernels.choice import kernels_in_use
from tests.cli.tools import ENVIRONMENT, SCRIPT, call, predictions, run, start

COMMANDS = ("demo", "evaluate", "calibrate", "apply", "compare", "report")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "predictions.npz"
    write_predictions(predictions(), path)
    return path


# ---------------------------------------------------------------------- help and usage


def test_the_process_answers_with_its_version_and_help():
    assert run("--version").out == f"focalcal {fc.__version__}, kernels: {kernels_in_use()}\n"
    assert run("--version", FOCALCAL_KERNELS="torch").out.endswith(", kernels: torch\n")
    wrong = run("--version", FOCALCAL_KERNELS="sse9")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err.startswith("focalcal: FOCALCAL_KERNELS=sse9: must be one of torch, compiled, ")
    shown = call("--help").out
    assert all(command in shown for command in (*COMMANDS, "lab", "claims"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_takes_json_and_quiet(command):
    for option in ("--help", "-h"):
        shown = call(command, option)
        assert shown.code == 0
        assert {"--json", "--quiet"} <= set(re.findall(r"--[a-z-]+", shown.out))


def test_the_help_of_commands_on_files_ends_with_examples():
    for command in ("evaluate", "calibrate", "apply", "compare", "report"):
        assert f"focalcal {command} " in call(command, "--help").out.split("Examples:")[1]


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_answer_without_torch(option):
    code = f"import sys; from focalcal.cli import app; app(['{option}'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    loaded = set(done.stdout.split("\n")[-2].split())
    assert "focalcal.cli.evaluate" in loaded
    assert not loaded & {"torch", "numpy", "pydantic"}


def test_a_completion_script_is_printed():
    shown = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert shown.code == 0
    assert "_FOCALCAL_COMPLETE" in shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("demo", "--seed", "x"),
        ("evaluate",),
        ("evaluate", "a.npz", "--kind", "odds"),
        ("evaluate", "a.npz", "--num-bins", "0"),
        ("apply", "c.json", "a.npz"),
        ("calibrate",),
        ("calibrate", "a.npz", "--method", "magic"),
        ("compare", "a.npz", "--methods", "temperature,magic"),
        ("report", "a.npz", "--figure-format", "gif"),
    ],
)
def test_bad_usage_leaves_with_2_and_no_traceback(arguments):
    answer = call(*arguments)
    assert answer.code == 2
    assert answer.err
    assert answer.out == ""
    assert "Traceback" not in answer.err


def test_the_process_leaves_with_the_exit_code(tmp_path):
    missing = run("evaluate", tmp_path / "missing.npz")
    assert (missing.code, missing.out) == (2, "")
    assert re.fullmatch(r"focalcal: .*missing\.npz.*\n", missing.err)


def test_a_missing_extra_is_named_and_nothing_is_written(file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    answer = call("report", file, "--out", tmp_path / "r.html", "--methods", "none")
    assert answer.code == 1
    assert re.fullmatch(r"focalcal: .*focalcal\[report\].*\n", answer.err)
    assert not (tmp_path / "r.html").exists()


# ---------------------------------------------------------------------- what goes wrong


def test_our_own_errors_become_one_line(monkeypatch, capsys):
    def fail() -> None:
        raise fc.InputError("labels: must be class numbers; got cats.")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == 2
    assert capsys.readouterr().err == "focalcal: labels: must be class numbers; got cats.\n"


def test_warnings_of_the_library_are_lines_on_standard_error(tmp_path):
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.ones(4), size=200).astype(np.float32)
    np.savez(tmp_path / "probs.npz", logits=probs, labels=generator.integers(0, 4, 200))
    answer = call("evaluate", tmp_path / "probs.npz")
    assert answer.code == 0
    assert re.fullmatch(r"focalcal: warning: .*\n", answer.err)
    assert ".py" not in answer.err


# ---------------------------------------------------------------------- pipes and terminals


def test_head_closes_the_pipe_without_a_traceback(file):
    command = f"{shlex.quote(str(SCRIPT))} evaluate {shlex.quote(str(file))} --json | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_a_pipe_gets_no_colours_and_no_progress(file):
    answer = call("compare", file, "--methods", "temperature", "--folds", "3", "--no-nested", TERM="xterm-256color")
    assert answer.code == 0
    assert answer.err == ""
    assert "\x1b" not in answer.out
    assert "╭" not in answer.out


class Terminal:
    """A process whose standard output and standard error are a pseudo-terminal."""

    def __init__(self, *arguments: object, columns: int = 100) -> None:
        self.master, other = pty.openpty()
        size = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "50"}
        self.process = start(
            *arguments, variables=size, stdin=other, stdout=other, stderr=other, start_new_session=True
        )
        os.close(other)
        self.seen = ""

    def wait_for(self, words: str, seconds: float = 120) -> bool:
        """Read until the words are seen; whether they were before the process ended."""
        end = time.monotonic() + seconds
        while words not in self.seen and time.monotonic() < end:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    got = os.read(self.master, 1 << 16)
                except OSError:  # the other end is closed
                    break
                if not got:
                    break
                self.seen += got.decode(errors="replace")
        return words in self.seen

    def finish(self) -> int:
        self.wait_for("never to be seen \0")
        code = self.process.wait(60)
        os.close(self.master)
        return code


def test_a_terminal_sees_a_progress_bar_colours_and_rounded_tables(file):
    terminal = Terminal("compare", file, "--methods", "temperature,isotonic", "--folds", 3, "--no-nested")
    assert terminal.wait_for("━")
    assert terminal.finish() == 0
    assert "isotonic" in terminal.seen
    assert "╭" in terminal.seen
    assert "\x1b[1m" in terminal.seen


def test_no_color_is_honoured_on_a_terminal(file):
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    fast = ("evaluate", file, "--resamples", 100)
    coloured, plain = call(*fast, terminal=100), call(*fast, terminal=100, NO_COLOR="1")
    assert coloured.code == plain.code == 0
    assert colour.search(coloured.out)
    assert "╭" in plain.out
    assert not colour.search(plain.out)


def test_a_narrow_terminal_loses_columns_but_no_digits(file):
    answer = call("compare", file, "--methods", "temperature,platt", "--no-nested", "--folds", 3, terminal=64)
    assert answer.code == 0
    assert "…" not in answer.out
    assert "Left out, as the terminal is narrow" in answer.out


# ---------------------------------------------------------------------- Ctrl-C and SIGTERM

SIGNALS = pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])


def leaves(command, monkeypatch):
    """The exit code of a process whose command is this function; it heeds Ctrl-C also where the tests do not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(cli, "app", command)
    try:
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
    return leaving.value.code


def arrive(sent):
    os.kill(os.getpid(), sent)
    time.sleep(10)


@SIGNALS
def test_a_signal_leaves_no_partial_file(tmp_path, monkeypatch, capsys, sent, code):
    def write():
        with atomic_file(tmp_path / "c.json") as file:
            file.write(b"half")
            arrive(sent)

    assert leaves(write, monkeypatch) == code
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


@SIGNALS
def test_an_error_that_compiled_code_makes_of_a_signal_is_not_shown(monkeypatch, capsys, sent, code):
    def fail():
        try:
            arrive(sent)
        except BaseException:
            raise TypeError("expected a message argument") from None

    assert leaves(fail, monkeypatch) == code
    assert capsys.readouterr().err == ""


def test_an_ignored_signal_stays_ignored(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(cli, "app", lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        cli.main()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_during_imports_prints_no_traceback(monkeypatch, capsys):
    class Interrupted:
        def find_spec(self, name, *rest):
            if name == "focalcal.cli.process":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "focalcal.cli.process")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == 130
    assert capsys.readouterr() == ("", "")
    statements = ast.parse(Path(cli.__file__).read_text()).body
    assert [each.names[0].name for each in statements if isinstance(each, ast.Import)] == ["sys"]
    assert not any(isinstance(each, ast.ImportFrom) for each in statements)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.1, 1.0])
def test_an_interrupt_at_any_moment_prints_no_traceback(file, seconds):
    code = "from focalcal import cli; print('here', flush=True); cli.main()"
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    command = [sys.executable, "-c", code, "compare", str(file)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, preexec_fn=heed
    ) as process:
        assert process.stdout.readline() == "here\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, "")


def test_a_full_disk_names_the_file(file, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    answer = call("calibrate", file, "--allow-same-data", "--out", tmp_path / "c.json")
    assert (answer.code, answer.err) == (1, f"focalcal: {tmp_path / 'c.json'}: No space left on device.\n")
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_standard_output_on_a_full_disk_is_named():
    with open("/dev/full", "w") as full:
        done = subprocess.run([SCRIPT, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "focalcal: standard output: No space left on device.\n")


@SIGNALS
def test_a_signal_during_apply_leaves_no_partial_file_and_the_old_one_as_it_was(tmp_path, sent, code):
    calibrator, file, out = tmp_path / "c.json", tmp_path / "big.csv", tmp_path / "out" / "calibrated.csv"
    out.parent.mkdir()
    out.write_text("old")
    fc.FocalCalibration(1.0).save(calibrator)
    rows = "\n".join("0," + ",".join(f"{(i * j) % 7}.5" for j in range(50)) for i in range(1000)) + "\n"
    file.write_text("label," + ",".join(f"logit_{k}" for k in range(50)) + "\n" + rows * 100)
    process = start("apply", calibrator, file, "--out", out, stderr=subprocess.PIPE, text=True)
    assert _appears(lambda: len(list(out.parent.iterdir())) > 1, process)  # the temporary file beside it
    process.send_signal(sent)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == code
    assert "Traceback" not in said
    assert [path.name for path in out.parent.iterdir()] == ["calibrated.csv"]
    assert out.read_text() == "old"


def test_ctrl_c_during_calibrate_leaves_the_old_calibrator_as_it_was(tmp_path):
    file, out = tmp_path / "big.npz", tmp_path / "out" / "c.json"
    out.parent.mkdir()
    out.write_text("old")
    write_predictions(predictions(20_000, 100), file)
    terminal = Terminal("calibrate", file, "--holdout", 0.1, "--method", "focal-temperature", "--out", out)
    assert terminal.wait_for("fitting focal-temperature")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 130
    assert "Traceback" not in terminal.seen
    assert [path.name for path in out.parent.iterdir()] == ["c.json"]
    assert out.read_text() == "old"


def _appears(there, process, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not there():
        if process.poll() is not None or time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
