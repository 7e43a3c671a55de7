"""What the command line tests share: the installed script as a process, commands in this process, and predictions."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from focalcal import cli
from focalcal.files import PredictionTable

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(sys.executable).with_name("focalcal")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}


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


def run(*arguments: object, folder: Path | None = None, given: bytes | None = None, **variables: str) -> Answer:
    """The installed console script, as a process."""
    done = subprocess.run(
        [SCRIPT, *map(str, arguments)],
        capture_output=True,
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        timeout=300,
        check=False,
        cwd=folder,
        env=ENVIRONMENT | variables,
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def call(*arguments: object) -> Answer:
    """The same in this process, which saves the second that torch takes to be imported."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["focalcal", *map(str, arguments)]
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    finally:
        sys.argv = before
    return Answer(code, out.getvalue(), err.getvalue())


def predictions(
    rows: int = 400, classes: int = 4, *, seed: int = 0, temperature: float = 2.0, **parts: Any
) -> PredictionTable:
    """Logits that are too large by a factor, so that this temperature makes them right."""
    generator = np.random.default_rng(seed)
    truth = 2 * generator.normal(size=(rows, classes))
    labels = (truth + generator.gumbel(size=truth.shape)).argmax(1)
    return PredictionTable("made", (temperature * truth).astype(np.float32), "logits", labels.astype(np.int64), **parts)


def halves(rows: int) -> np.ndarray:
    """A split column: val and test in turn."""
    return np.where(np.arange(rows) % 2 == 0, "val", "test")
