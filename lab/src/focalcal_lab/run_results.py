"""The results of a finished run: one number per row, named as in `published_results.csv`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from focalcal.atomic import write_atomically
from focalcal.errors import FileFormatError

SCHEMA = 1


@dataclass(frozen=True)
class MeasuredNumber:
    """One number, on the test split.

    `phase` is "pre" before any calibrator, else the phase of the recipe's calibrator ("post", "ets", "spline", "fts",
    ...); `metric` is named as in `published_results.csv` but in our units: fractions, not percent. `against` names the
    set that is out of distribution.
    """

    phase: str
    metric: str
    value: float
    temperature: float | None = None
    gamma_ev: float | None = None
    against: str = ""


@dataclass(frozen=True)
class RunResult:
    """A finished run: which recipe, method and seed, and what was measured."""

    recipe: str
    method: str
    seed: int
    epochs: int
    digest: str
    data: str
    num_train: int
    num_val: int
    num_test: int
    rows: list[MeasuredNumber]
    extra: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA


@dataclass(frozen=True)
class FinishedRun:
    """A finished run and its folder."""

    folder: str
    result: RunResult


@dataclass(frozen=True)
class RunsResult:
    """The answer of `focalcal lab run` and `focalcal lab resume`; `report` is the page that shows them, if there is."""

    runs: list[FinishedRun]
    report: str | None
    schema: Literal[1] = 1
    command: Literal["lab-run"] = "lab-run"


@dataclass(frozen=True)
class DryRunResult:
    """The answer of `focalcal lab run --dry-run`: the loss of the first batch of each method."""

    recipe: str
    data: str
    model: str
    parameters: int
    losses: dict[str, float]
    schema: Literal[1] = 1
    command: Literal["lab-dry-run"] = "lab-dry-run"


def write_result(result: RunResult, path: str | Path) -> None:
    """Write a result as JSON."""
    write_atomically(path, (json.dumps(asdict(result), indent=1, allow_nan=False) + "\n").encode())


def read_result(path: str | Path) -> RunResult:
    """Read a result, refusing what is not one."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
        if fields["schema"] != SCHEMA:
            raise FileFormatError(f"{path}: it has schema {fields['schema']}; this version reads {SCHEMA}.")
        return RunResult(**{**fields, "rows": [MeasuredNumber(**row) for row in fields["rows"]]})
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path}: it is not the result of a run: {error}.") from error
