"""The results of a finished run: one number per row, named as in `published_results.csv`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

from focalcal.atomic import write_atomically
from focalcal.errors import FileFormatError

SCHEMA = 1
T = TypeVar("T")
# What is read from a file has the fields that are named here, and their types.
_CHECKED = ConfigDict(extra="forbid", strict=True)
_FIELDS = TypeAdapter(dict[str, Any])
_REASONS = TypeAdapter(dict[str, str])


def _with_reasons(extra: dict[str, Any]) -> dict[str, Any]:
    _REASONS.validate_python(extra.get("not_fitted", {}))
    return extra


@dataclass(frozen=True)
class MeasuredNumber:
    """One number, on the test split.

    `phase` is "pre" before any calibrator, else the phase of the recipe's calibrator ("post", "ets", "spline", "fts",
    ...); `metric` is named as in `published_results.csv` but in our units: fractions, not percent. `against` names the
    set that is out of distribution.
    """

    __pydantic_config__ = _CHECKED

    phase: str
    metric: str
    value: float
    temperature: float | None = None
    gamma_ev: float | None = None
    against: str = ""


@dataclass(frozen=True)
class RunResult:
    """A finished run: which recipe, method and seed, and what was measured."""

    __pydantic_config__ = _CHECKED

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
    extra: Annotated[dict[str, Any], AfterValidator(_with_reasons)] = field(default_factory=dict)
    schema: int = SCHEMA


_RESULT = TypeAdapter(RunResult)


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
    content, what = Path(path).read_bytes(), "the result of a run"
    schema = checked(content, _FIELDS, path, what).get("schema")
    if isinstance(schema, int) and schema != SCHEMA:
        raise FileFormatError(f"{path}: it has schema {schema}; this version reads {SCHEMA}.")
    return checked(content, _RESULT, path, what)


def checked(content: bytes, kind: TypeAdapter[T], path: str | Path, what: str) -> T:
    """What the JSON text of a file says, if it has the fields and types of its kind; `what` is what it should be."""
    try:
        return kind.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise FileFormatError(f"{path}: it is not {what}: {where}{first['msg']}.") from None
