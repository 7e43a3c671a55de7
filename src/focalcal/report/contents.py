"""The data of a report as plain values: `build.py` makes them, `page/report.js` and the static figures draw them.

Every name here is a name in the page's data. Lists are columns, so that the file stays small; None is "undefined".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from focalcal.metrics.intervals import Estimate
from focalcal.metrics.table import MEASURES

SCHEMA = 1
# Bin counts that the report's control offers; 15 is the papers'.
BIN_COUNTS = (5, 10, 15, 20, 30, 50)


@dataclass(frozen=True)
class Diagram:
    """The bins of a reliability diagram, empty ones left out.

    `low`, `high`: the Clopper-Pearson band of each accuracy. `chance_low`, `chance_high`: where the accuracy of a
    perfectly calibrated model with these confidences lies. `error` is the ECE of these bins, `chance_error` what such a
    model would show at most.
    """

    scheme: str  # "equal_width" or "equal_mass"
    num_bins: int
    lower: list[float]
    upper: list[float]
    count: list[int]
    confidence: list[float]
    accuracy: list[float]
    low: list[float]
    high: list[float]
    chance_low: list[float]
    chance_high: list[float]
    error: float
    chance_error: float


@dataclass(frozen=True)
class Curve:
    """A risk-coverage curve, thinned to at most 200 points; AURC is among the numbers."""

    coverage: list[float]
    risk: list[float]


@dataclass(frozen=True)
class ModelVersion:
    """A model as it is, or after one calibrator, measured on the rows that nothing was fitted to."""

    name: str  # "as it is", or the method as the command line names it
    settings: str  # "T = 2.58", "γ = 0.5, T = 1.90"; empty for the model as it is
    verdict: str
    direction: str  # "overconfident", "underconfident", "both" or "calibrated"
    numbers: dict[str, Estimate]  # every measure by its name
    diagrams: list[Diagram]  # one for each of BIN_COUNTS and both schemes
    risk_coverage: Curve
    warnings: list[str]


@dataclass(frozen=True)
class ClassTable:
    """One entry per class, worst first: by the classwise ECE of the model as it is.

    `frequency` is the share of rows with the label, `mean_probability` what the model says it is; `gap` is their
    difference; `recall` the share of the class's rows that are predicted right (None where there are no rows).
    With very many classes only the worst ones are listed; `num_classes` says how many there are.
    """

    num_classes: int
    name: list[str]
    count: list[int]
    frequency: list[float]
    mean_probability: list[float]
    gap: list[float]
    ece: list[float]
    recall: list[float | None]


@dataclass(frozen=True)
class Confusions:
    """Pairs of true and predicted class among confident errors, most frequent first.

    Confident is a confidence of at least `threshold`: that which the surest half of all rows reaches, but no less than
    0.5 and no more than 0.9. `total` counts all confident errors.
    """

    threshold: float
    total: int
    true: list[str]
    predicted: list[str]
    count: list[int]
    mean_confidence: list[float]


@dataclass(frozen=True)
class CriterionPoint:
    """A point of the focal temperature family, and the criterion there."""

    gamma: float
    temperature: float
    value: float


@dataclass(frozen=True)
class Landscape:
    """A criterion over (gamma_ev, T) on the rows of the fit: `values[i][j]` at `gammas[i]`, `temperatures[j]`.

    `best_temperature` is the optimum with gamma 0, `best_focal` that of both; `line` are points (gamma, T) of the line
    that komisarenko2024 searches, through the best temperatures of gamma 0 and 1.
    """

    criterion: str  # "nll" or "ada_ece"
    gammas: list[float]
    temperatures: list[float]
    values: list[list[float]]
    best_temperature: CriterionPoint
    best_focal: CriterionPoint
    line: list[list[float]]


@dataclass(frozen=True)
class Explorer:
    """A seeded sample of the scored rows, from which the page computes ECE, AdaECE and NLL at any (gamma_ev, T).

    Arrays are base64 of little-endian numbers. Of a row: `scores` are its `width` largest logits minus the largest of
    all, falling (float32); `label` is the place of the true class among them (uint16), which is always kept; `correct`
    is 1 where the model predicts it (uint8). Where there are more classes than `width`, the others are gathered in
    `groups` groups of nearly equal logits: `tail_scores` are the logits of the groups (float32), `tail_counts` how many
    classes each has (uint16; 0 for an empty group). `weights` (float32) only where rows are weighted.
    """

    num_rows: int
    out_of: int
    seed: int
    num_classes: int
    width: int
    groups: int
    scores: str
    label: str
    correct: str
    tail_scores: str
    tail_counts: str
    weights: str | None
    temperature: float  # of the best temperature by NLL, where the sliders start for "best T"
    focal_gamma: float  # of the best focal temperature; the explorer starts here
    focal_temperature: float


@dataclass(frozen=True)
class Dynamics:
    """The history of AdaFocal's gammas: `gamma[u][b]` after update u in bin b, and the last edges of the bins."""

    gamma: list[list[float]]
    lower: list[float]
    upper: list[float]


@dataclass(frozen=True)
class Model:
    """One set of predictions: facts about the data, and everything measured."""

    name: str
    num_rows: int  # scored
    num_fit_rows: int
    num_classes: int
    kind: str
    weighted: bool
    split: str  # in words: which rows calibrators were fitted to, and which were measured
    same_data: bool  # calibrators were fitted to the rows that are measured
    missing_classes: list[str]  # at most 20 names
    num_missing: int
    num_duplicates: int  # scored rows whose scores equal those of an earlier row
    verdict: str
    versions: list[ModelVersion]  # the first is the model as it is
    classes: ClassTable
    confusions: Confusions
    landscapes: list[Landscape]
    explorer: Explorer | None
    dynamics: Dynamics | None


@dataclass(frozen=True)
class MeasureLabel:
    """What the page calls a measure, and its unit: "%" or none."""

    label: str
    unit: str


def measure_labels() -> dict[str, MeasureLabel]:
    """The labels and units of all measures.

    >>> measure_labels()["ada_ece"]
    MeasureLabel(label='AdaECE', unit='%')
    """
    return {name: MeasureLabel(measure.label, measure.unit) for name, measure in MEASURES.items()}


@dataclass(frozen=True)
class Contents:
    """The whole report."""

    title: str
    version: str  # of focalcal
    level: float  # of all intervals
    num_bins: int
    seed: int
    models: list[Model]
    measures: dict[str, MeasureLabel] = field(default_factory=measure_labels)
    bin_counts: list[int] = field(default_factory=lambda: list(BIN_COUNTS))
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        return asdict(self)
