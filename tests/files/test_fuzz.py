"""Damaged files never crash the process, never hang it and never take its memory: they are read right, or refused.

Each file is made from a seed, and read in a process that is watched from here. What a failure prints does it again.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.files.fuzz.formats import VARIANTS
from tests.files.fuzz.worker import ENVIRONMENT

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

ROOT = Path(__file__).resolve().parents[2]
# Until a file counts as hanging, on a busy machine; the time of the processor is held to much less.
PATIENCE = 60.0
_SHOWN = 5


class Worker:
    """A process that reads files, begun again after each one that it does not survive."""

    def __init__(self) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process: subprocess.Popen[bytes] | None = None
        self.answered = b""

    def ask(self, name: str, seed: int, patience: float = PATIENCE) -> dict[str, Any]:
        """How reading the file of a seed went, whatever became of the process."""
        process = self.process or self._started()
        assert process.stdin is not None
        process.stdin.write(f"{name} {seed}\n".encode())
        process.stdin.flush()
        return self._answer(process, patience)

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def _started(self) -> subprocess.Popen[bytes]:
        self.errors.seek(0)
        self.errors.truncate()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.files.fuzz"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=os.environ | ENVIRONMENT,
        )
        first = self._answer(self.process, patience=600)
        assert first.get("ready"), first["why"]
        return self.process

    def _answer(self, process: subprocess.Popen[bytes], patience: float) -> dict[str, Any]:
        """The next line of the process; if there is none, what its end says."""
        assert process.stdout is not None
        end = time.monotonic() + patience
        while b"\n" not in self.answered:
            if not select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                process.send_signal(signal.SIGABRT)  # it then says where it is
                return self._end(process, f"no answer within {patience:g} s")
            new = os.read(process.stdout.fileno(), 1 << 16)
            if not new:
                return self._end(process, "the process ended")
            self.answered += new
        line, _, self.answered = self.answered.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self, process: subprocess.Popen[bytes], what: str) -> dict[str, Any]:
        process.communicate()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace")
        self.process, self.answered = None, b""
        return {
            "result": "failed",
            "why": f"{what}, status {process.returncode}\n{said[-3000:]}",
            "grown": 0,
            "seconds": 0,
        }


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.stop()
    worker.errors.close()


def require_in_order(worker: Worker, name: str, seeds: Iterable[int]) -> None:
    """Every file is read right or refused, and there are some of both."""
    results, failures = Counter[str](), []
    for seed in seeds:
        answer = worker.ask(name, seed)
        results[answer["result"]] += 1
        if answer["result"] == "failed":
            failures.append(f"{name} {seed}: {answer['why']}\nAgain: python -m tests.files.fuzz {name} {seed}")
    assert not failures, f"{len(failures)} of {results.total()} files:\n\n" + "\n\n".join(failures[:_SHOWN])
    assert results["read"] > 0
    assert results["refused"] > results["read"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_hundred_damaged_files_are_read_right_or_refused(worker, name):
    require_in_order(worker, name, range(100))


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_four_hundred_more_damaged_files_are_read_right_or_refused(worker, name):
    require_in_order(worker, name, range(100, 500))


@pytest.mark.slow
def test_a_crash_and_a_hang_are_seen(worker):
    crash, hang = worker.ask("crash", 0), worker.ask("hang", 0, patience=1)
    assert "status -11" in crash["why"]
    assert "in _crash" in crash["why"]
    assert "no answer within 1 s" in hang["why"]
    assert "in _hang" in hang["why"]
    assert worker.ask("npz", 0)["result"] in ("read", "refused")
