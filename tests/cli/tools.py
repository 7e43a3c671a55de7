"""What the command line tests share: commands in this process, the console script as a process, and predictions."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from focalcal import cli
from focalcal.files import PredictionTable

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(sys.executable).with_name("focalcal")
# How the tests were started must not matter: no colours are forced or forbidden, and no width is given.
_OF_A_TERMINAL = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "TTY_COMPATIBLE", "TERM", "COLUMNS", "LINES")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in _OF_A_TERMINAL}


@dataclass
class Answer:
    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The result, checked against the published schema of its command."""
        assert self.code == 0, self.err
        result = json.loads(self.out)
        schema = json.loads((ROOT / "docs/schemas" / f"{result['command']}.json").read_text())
        jsonschema.validate(result, schema, cls=jsonschema.Draft202012Validator)
        return result


class _Stream(io.TextIOWrapper):
    """A standard stream in memory, which may claim to be a terminal."""

    def __init__(self, content: bytes = b"", *, terminal: bool = False, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(content), encoding=encoding, newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]


def call(
    *arguments: object, given: bytes = b"", terminal: int | None = None, encoding: str = "utf-8", **variables: str
) -> Answer:
    """The command in this process, with its own standard streams and environment.

    where `given` is what standard input has, `terminal` is the width of the terminal that standard output is, and
    `encoding` that of what is printed.
    """
    shown = terminal is not None
    if shown:
        variables = {"TERM": "xterm-256color", "COLUMNS": str(terminal)} | variables
    out, err = _Stream(terminal=shown, encoding=encoding), _Stream(encoding=encoding)
    err.reconfigure(errors="backslashreplace")  # as Python has it
    with _standard_streams(_Stream(given), out, err), _environment(ENVIRONMENT | variables):
        code = _exit_code(cli.main, ["focalcal", *map(str, arguments)])
    return Answer(code, out.text(), err.text())


def _exit_code(command: Callable[[], None], arguments: list[str]) -> int:
    before, sys.argv = sys.argv, arguments
    try:
        command()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    finally:
        sys.argv = before
    return 0


@contextlib.contextmanager
def _standard_streams(given: _Stream, out: _Stream, err: _Stream):
    before, sys.stdin = sys.stdin, given
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield
    finally:
        sys.stdin = before


@contextlib.contextmanager
def _environment(variables: dict[str, str]):
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run(*arguments: object, folder: Path | None = None, given: bytes = b"", **variables: str) -> Answer:
    """The installed console script, as a process; it takes a second or two, so few tests use it."""
    done = subprocess.run(
        [SCRIPT, *map(str, arguments)],
        capture_output=True,
        input=given,
        timeout=300,
        check=False,
        cwd=folder,
        env=ENVIRONMENT | variables,
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def start(*arguments: object, **options: Any) -> subprocess.Popen:
    """The console script as a process that Ctrl-C interrupts, also where the tests themselves ignore it.

    A shell starts background jobs with SIGINT ignored, and processes inherit that.
    """
    environment = ENVIRONMENT | options.pop("variables", {})
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    return subprocess.Popen([SCRIPT, *map(str, arguments)], env=environment, preexec_fn=heed, **options)


def predictions(
    rows: int = 400, classes: int = 4, *, seed: int = 0, temperature: float = 2.0, **parts: Any
) -> PredictionTable:
    """Logits that are too large by a factor, so that this temperature makes them right."""
    generator = np.random.default_rng(seed)
    truth = 2 * generator.normal(size=(rows, classes))
    labels = (truth + generator.gumbel(size=truth.shape)).argmax(1)
    scores = (temperature * truth).astype(np.float32)
    return PredictionTable("made", scores, "logits", labels.astype(np.int64), **parts)


def halves(rows: int) -> np.ndarray:
    """A split column: val and test in turn."""
    return np.where(np.arange(rows) % 2 == 0, "val", "test")
