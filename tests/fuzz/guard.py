"""A process that checks the cases of guarded targets, so that crashes and hangs can be seen from outside.

Run as a program it is that process: it answers each case, a line of JSON, with the outcome or what went wrong.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.fuzz.limits import ENVIRONMENT
from tests.fuzz.table import find_target
from tests.fuzz.target import Case

ROOT = Path(__file__).resolve().parents[2]
# Until a case counts as hanging, on a busy machine; the time of the processor is held to much less.
PATIENCE = 60.0
_START = 600.0


class Guard:
    """A process that checks cases, begun again after each one that it does not survive."""

    def __init__(self) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process: subprocess.Popen[bytes] | None = None
        self.answered = b""

    def check(self, name: str, case: Case, patience: float = PATIENCE) -> str:
        """The outcome of a case; AssertionError if it went wrong, whatever became of the process."""
        process = self.process or self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps([name, case]).encode() + b"\n")
        process.stdin.flush()
        answer = self._answer(process, patience)
        assert "wrong" not in answer, answer["wrong"]
        return str(answer["outcome"])

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
        self.errors.close()

    def _started(self) -> subprocess.Popen[bytes]:
        self.errors.seek(0)
        self.errors.truncate()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.guard"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=os.environ | ENVIRONMENT,
        )
        first = self._answer(self.process, _START)
        assert first.get("outcome") == "ready", first
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
        return {"wrong": f"{what}, status {process.returncode}\n{said[-3000:]}"}


def _main() -> None:
    faulthandler.enable()
    warnings.simplefilter("error")
    _say({"outcome": "ready"})
    for line in sys.stdin:
        name, case = json.loads(line)
        _say(_answer_to(name, case))


def _answer_to(name: str, case: Case) -> dict[str, str]:
    try:
        return {"outcome": _TRIALS[name]() if name in _TRIALS else find_target(name).check(case)}
    except Exception:
        return {"wrong": traceback.format_exc()}


def _say(content: dict[str, str]) -> None:
    print(json.dumps(content), flush=True)


def _crash() -> str:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def _hang() -> str:
    time.sleep(1e6)
    raise AssertionError


# What a test asks for to see that the guard sees it.
_TRIALS = {"crash": _crash, "hang": _hang}


if __name__ == "__main__":
    _main()
