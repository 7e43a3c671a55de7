"""What the commands answer with `--json`: one dataclass per command, and the JSON Schema documents made of them.

    python -m focalcal.cli.results FOLDER     # writes them again

A field may be added within a schema version; none is renamed, dropped or given another meaning.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from focalcal.metrics.intervals import Estimate

Direction = Literal["overconfident", "underconfident", "both", "calibrated"]
Engine = Literal["memory", "stream", "ray"]


@dataclass(frozen=True)
class AssessmentResult:
    """Predictions measured: the verdict in words, and every measure by its name."""

    verdict: str
    direction: Direction
    measures: dict[str, Estimate]
    warnings: list[str]


@dataclass(frozen=True)
class MeasureDifference:
    """After minus before of a measure on the same rows, its interval, and the p-value of the paired test."""

    measure: str
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None


@dataclass(frozen=True)
class EvaluateResult:
    """The answer of `focalcal evaluate`; `after` and `differences` with `--calibrator` only.

    With `by`, `groups` has every group of rows by its name, measured after the calibrator if there is one. `engine`
    says how rows were read, and `skipped` which shards were left out and why. Rows that were not held in memory are not
    resampled: `num_resamples` is 0, few measures have intervals, and there are no `differences`.
    """

    files: list[str]
    split: str | None
    kind: str
    num_rows: int
    num_classes: int
    weighted: bool
    num_bins: int
    level: float
    num_resamples: int
    seed: int
    before: AssessmentResult
    calibrator: str | None
    after: AssessmentResult | None
    differences: list[MeasureDifference]
    engine: Engine = "memory"
    by: str | None = None
    groups: dict[str, AssessmentResult] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    schema: Literal[1] = 1
    command: Literal["evaluate"] = "evaluate"


@dataclass(frozen=True)
class ApplyResult:
    """The answer of `focalcal apply`."""

    files: list[str]
    calibrator: str
    method: str
    parameters: str
    to: Literal["probs", "log_probs"]
    num_rows: int
    out: str
    schema: Literal[1] = 1
    command: Literal["apply"] = "apply"


@dataclass(frozen=True)
class ReportedVersion:
    """A model as it is, or after one calibrator, in a report."""

    name: str
    settings: str
    verdict: str
    measures: dict[str, Estimate]


@dataclass(frozen=True)
class ReportedModel:
    """One model of a report."""

    name: str
    file: str
    num_rows: int
    num_fit_rows: int
    num_classes: int
    split: str
    same_data: bool
    num_shared: int
    verdict: str
    versions: list[ReportedVersion]


@dataclass(frozen=True)
class ReportResult:
    """The answer of `focalcal report`."""

    title: str
    out: str
    num_bytes: int
    figures: list[str]
    level: float
    num_bins: int
    seed: int
    models: list[ReportedModel]
    schema: Literal[1] = 1
    command: Literal["report"] = "report"


def result_types() -> dict[str, type]:
    """The results of all commands by the commands' names."""
    from focalcal.cli.fit_results import CalibrateResult, CompareResult
    from focalcal.demo import DemoResult

    return {
        "demo": DemoResult,
        "evaluate": EvaluateResult,
        "calibrate": CalibrateResult,
        "apply": ApplyResult,
        "compare": CompareResult,
        "report": ReportResult,
    }


def json_schema(result: type) -> dict[str, Any]:
    """The JSON Schema of a result: every field is there, and no other.

    >>> json_schema(ApplyResult)["properties"]["to"]["enum"]
    ['probs', 'log_probs']
    """
    from pydantic import TypeAdapter

    schema = TypeAdapter(result).json_schema(mode="serialization")
    for part in (schema, *schema.get("$defs", {}).values()):
        if "properties" in part:
            part["properties"] = {name: _nullable(each) for name, each in part["properties"].items()}
            part |= {"required": list(part["properties"]), "additionalProperties": False}
        if "description" in part:
            part["description"] = part["description"].partition("\n\n>>>")[0]  # examples are for readers of the code
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a number also allows null, which stands for an infinite or undefined one."""
    if schema.get("type") != "number":
        return schema
    number = {"type": schema.pop("type")}
    return {"anyOf": [number, {"type": "null"}], **schema}


def write_schemas(folder: str, results: Mapping[str, type]) -> None:
    """Write `<command>.json` for every command, given its result."""
    import json
    from pathlib import Path

    Path(folder).mkdir(parents=True, exist_ok=True)
    for command, result in results.items():
        (Path(folder) / f"{command}.json").write_text(json.dumps(json_schema(result), indent=2) + "\n")


if __name__ == "__main__":
    write_schemas(sys.argv[1], result_types())
