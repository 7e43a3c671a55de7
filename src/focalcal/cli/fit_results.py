"""The JSON answers of `focalcal calibrate` and `focalcal compare`, which report fits and so import the calibrators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from focalcal.calibrators.base import FitReport
from focalcal.cli.results import AssessmentResult, Engine, MeasureDifference
from focalcal.select.result import MethodScore


@dataclass(frozen=True, kw_only=True)
class FitResult(FitReport):
    """What was fitted and what happened in the fit; `before` and `after` are the criterion on the rows of the fit."""

    method: str
    settings: dict[str, Any]
    parameters: str


@dataclass(frozen=True)
class CalibrateResult:
    """The answer of `focalcal calibrate`.

    `before`, `after` and `differences` are measured on `num_score_rows` rows; they are null and empty where there are
    none. `same_data` says that those are the rows of the fit, `num_shared` how many of them also occur among these.
    """

    files: list[str]
    fit_files: list[str]
    split: str
    same_data: bool
    num_shared: int
    num_classes: int
    num_score_rows: int
    fit: FitResult
    num_bins: int
    level: float
    num_resamples: int
    seed: int
    before: AssessmentResult | None
    after: AssessmentResult | None
    differences: list[MeasureDifference]
    out: str
    onnx: str | None
    apply_command: str
    engine: Engine = "memory"
    skipped: dict[str, str] = field(default_factory=dict)
    schema: Literal[1] = 1
    command: Literal["calibrate"] = "calibrate"


@dataclass(frozen=True)
class CompareResult:
    """The answer of `focalcal compare`: methods, best first, what to do in words, and the winner.

    `nested` is the honest score of taking the best method, `chosen` how often each was taken then.
    """

    files: list[str]
    split: str | None
    num_rows: int
    num_classes: int
    criterion: str
    definition: str
    level: float
    num_folds: int
    num_repeats: int
    seed: int
    verdict: str
    winner: str
    parameters: str
    table: list[MethodScore]
    nested: MethodScore | None
    chosen: dict[str, int]
    left_out: dict[str, str]
    out: str | None
    schema: Literal[1] = 1
    command: Literal["compare"] = "compare"
