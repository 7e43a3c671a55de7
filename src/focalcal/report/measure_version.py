"""A model as it is or after a calibrator, measured: numbers with intervals, diagrams and the risk-coverage curve."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace

import numpy as np
import torch

from focalcal.calibrators.base import Calibrator, FitReport
from focalcal.core.binning import Scheme
from focalcal.files.prediction_table import PredictionTable
from focalcal.metrics import Estimate, accuracy_bands, consistency_bars, risk_coverage_curve
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.predictions.arrays import Predictions
from focalcal.report.classes import labels_of
from focalcal.report.contents import BIN_COUNTS, Curve, Diagram, ModelVersion
from focalcal.report.verdict import MeasureSettings, assess

AS_IT_IS = "as it is"
# Points of a curve, and redrawn labels behind the band of chance: it is as wide as a line with more.
_CURVE_POINTS = 200
_CHANCE_DRAWS = 500
SYMBOLS = {"gamma_": "γ", "temperature_": "T"}


def calibrated(table: PredictionTable, calibrator: Calibrator) -> PredictionTable:
    """The table with a calibrator's rows (N, K) as its scores, made by chunks in the scores' precision.

    They are log-probabilities, unless the calibrator leaves the probabilities as they are.
    """
    predictions, kind = Predictions(table.scores, None, kind=table.kind), table.kind
    wide = np.float64 if table.scores.dtype == np.float64 else np.float32
    scores, filled = np.empty((table.num_rows, table.num_classes), dtype=wide), 0
    with torch.no_grad():
        for chunk in predictions.chunks(check=False):
            rows = slice(filled, filled + len(chunk.scores))
            new, kind = calibrator.calibrate_rows(chunk.scores, table.kind)
            scores[rows] = new.numpy()
            filled = rows.stop
    return replace(table, scores=scores, kind=kind)


def measure_version(
    table: PredictionTable,
    how: MeasureSettings,
    *,
    name: str = AS_IT_IS,
    settings: str = "",
    warnings: Iterable[str] = (),
) -> tuple[ModelVersion, PredictedRows]:
    """Everything that the report says about one version of a model, and its rows."""
    found = assess(
        table.scores,
        labels_of(table),
        kind=table.kind,
        sample_weight=table.weights,
        **asdict(how),
    )
    assert found.rows is not None
    version = ModelVersion(
        name=name,
        settings=settings,
        verdict=found.verdict,
        direction=found.direction,
        numbers={name: _finite(each) for name, each in found.measures().items()},
        diagrams=diagrams(found.rows, how),
        risk_coverage=_risk_coverage(found.rows),
        warnings=[*found.evaluation.warnings, *warnings],
    )
    return version, found.rows


def _finite(estimate: Estimate) -> Estimate:
    value, low, high = (finite(end) for end in (estimate.value, estimate.low, estimate.high))
    return Estimate(value, low, high, estimate.definition)


def finite(value: float | None) -> float | None:
    """A plain number, or None where there is none or it is infinite.

    >>> finite(0.5), finite(float("inf"))
    (0.5, None)
    """
    return None if value is None or not math.isfinite(value) else float(value)


def diagrams(rows: PredictedRows, how: MeasureSettings) -> list[Diagram]:
    """The reliability diagrams of both schemes, for each number of bins that the page offers."""
    schemes: tuple[Scheme, ...] = ("equal_width", "equal_mass")
    return [diagram(rows, scheme, num_bins, how) for scheme in schemes for num_bins in BIN_COUNTS]


def diagram(rows: PredictedRows, scheme: Scheme, num_bins: int, how: MeasureSettings) -> Diagram:
    """One reliability diagram; there are no more bins of equal mass than rows."""
    fewer = rows.most_bins(num_bins) if scheme == "equal_mass" else num_bins
    chance = consistency_bars(
        rows, num_bins=fewer, edges=scheme, level=how.level, num_resamples=_CHANCE_DRAWS, seed=how.seed
    )
    bins = chance.bins
    low, high = accuracy_bands(bins, how.level)
    there = bins.count > 0
    columns = {
        "lower": bins.edges[:-1], "upper": bins.edges[1:], "confidence": bins.confidence, "accuracy": bins.accuracy,
        "low": low, "high": high, "chance_low": chance.low, "chance_high": chance.high,
    }  # fmt: skip
    return Diagram(
        scheme=scheme,
        num_bins=num_bins,
        count=[round(count) for count in bins.count[there].tolist()],
        error=chance.ece,
        chance_error=chance.ece_high,
        **{name: column[there].tolist() for name, column in columns.items()},
    )


def _risk_coverage(rows: PredictedRows) -> Curve:
    """The curve at 200 points that are evenly spread over the coverage, or all of it."""
    curve = risk_coverage_curve(rows)
    keep = np.arange(len(curve.coverage))
    if len(keep) > _CURVE_POINTS:
        keep = np.unique(np.searchsorted(curve.coverage, np.linspace(curve.coverage[0], 1.0, _CURVE_POINTS)))
        keep = keep.clip(max=len(curve.coverage) - 1)
    return Curve(coverage=curve.coverage[keep].tolist(), risk=curve.risk[keep].tolist())


def settings_of(calibrator: Calibrator) -> str:
    """The fitted numbers of a temperature or a focal map, in their symbols; nothing for other methods.

    >>> from focalcal.calibrators import FocalCalibration
    >>> settings_of(FocalCalibration(2.0))
    'γ = 2.00'
    """
    report: FitReport | None = getattr(calibrator, "report_", None)  # what was given has none
    if report is not None and report.kept_identity:
        return "leaves the model as it is"
    shown = [
        f"{symbol} = {getattr(calibrator, name):.2f}" for name, symbol in SYMBOLS.items() if name in calibrator.FITTED
    ]
    return ", ".join(shown)


def fit_warnings(calibrator: Calibrator) -> list[str]:
    """What a reader should know about the fit of a calibrator."""
    report: FitReport | None = getattr(calibrator, "report_", None)
    found: list[str] = []
    if report is None:
        return found
    if report.kept_identity:
        found.append(f"The fit found nothing better than the model as it is by its criterion, {report.criterion}.")
    if report.at_boundary:
        found.append("The fit ended at the end of its range: the best value may lie beyond.")
    if not report.converged:
        found.append("The fit did not converge.")
    return found
