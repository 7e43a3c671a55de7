"""Who has what: the table of docs/comparison.md, each cell with the names that show it.

A name is that of a class or function in the distribution's own files, which a test looks up where the distribution is
installed. Nothing is imported for it: torch-uncertainty cannot be without torchvision.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.metadata import files
from pathlib import Path

LIBRARIES = ("focalcal", "torchmetrics", "netcal", "torch-uncertainty", "probmetrics", "scikit-learn")
RELEASED = "papers' code"


@dataclass(frozen=True)
class Cell:
    """What a library has: `words` with the `names` that show it, or nothing, where no name matches `lacks`."""

    words: str
    names: tuple[str, ...] = ()
    lacks: str = ""


def has(*names: str, words: str = "yes") -> Cell:
    return Cell(words, names=names)


def no(pattern: str) -> Cell:
    return Cell("no", lacks=pattern)


FOCAL, FTS = r"(?i)focal", r"(?i)focal.*temperature"
MULTI = r"(?i)^(vector|matrix|dirichlet)"
AFTER = r"(?i)temperature_?scal"
BINNED = r"(?i)(isotonic|histogram_?binning|BBQ)"
BOOT, ONNX = r"(?i)bootstrap", r"(?i)(to|export)_?onnx"
STREAM = r"(?i)parquet|PredictionStream"
REPORT = r"(?i)html_?report|report_?html|write_report"
SMOOTH, DEBIASED = r"(?i)smooth_?(ece|calib)", r"(?i)debias"
AURC = r"(?i)aurc|risk_?coverage"
CONFORMAL, DETECT = r"(?i)conformal", r"(?i)detection_?calib|BetaCalibrationDependent"
BAYES = r"(?i)(bayesian_?(linear|conv)|mc_?dropout|deep_?ensemble|swag)"
OOD = r"(?i)^ood|fpr95"
MAPS = r"(?i)(focal_map|gamma_star)"

# One row a feature, one cell a library in the order of LIBRARIES, then the papers' released code in words.
FEATURES: dict[str, tuple[list[Cell], str]] = {
    "focal loss of many classes": (
        [has("FocalLoss"), no(FOCAL), no(FOCAL), has("FocalLoss"), no(FOCAL), no(FOCAL)],
        "yes",
    ),
    "gamma by sample or by validation bin (FLSD, AdaFocal, CalFocal), inverse focal": (
        [
            has("StepGamma", "AdaFocalLoss", "CalFocalLoss"),
            no(FOCAL),
            no(FOCAL),
            no(r"(?i)flsd|adafocal|adaptive_?gamma"),
            no(FOCAL),
            no(FOCAL),
        ],
        "FLSD, AdaFocal",
    ),
    "MMCE as a loss": (
        [has("MMCELoss"), no("(?i)mmce"), has("MMCEPenalty"), no("(?i)mmce"), no("(?i)mmce"), no("(?i)mmce")],
        "yes",
    ),
    "losses of very large vocabularies without their logits": (
        [has("LinearFocalLoss"), *[no(r"(?i)linear_?(focal|cross)") for _ in range(5)]],
        "no",
    ),
    "temperature scaling": (
        [
            has("TemperatureScaling"),
            no(AFTER),
            has("TemperatureScaling"),
            has("TemperatureScaler"),
            has("TemperatureScalingCalibrator"),
            has("CalibratedClassifierCV", "_TemperatureScaling"),
        ],
        "yes",
    ),
    "focal calibration, focal temperature scaling": (
        [has("FocalCalibration", "FocalTemperatureScaling"), *[no(FTS) for _ in range(5)]],
        "yes",
    ),
    "vector, matrix and Dirichlet scaling": (
        [
            has("VectorScaling", "MatrixScaling", "DirichletCalibration"),
            no(MULTI),
            no(MULTI),
            has("VectorScaler", "MatrixScaler", "DirichletScaler"),
            has("VectorScalingCalibrator", "MatrixScalingCalibrator", "DirichletCalibrator"),
            no(r"(?i)^(vector|matrix)_?scal"),
        ],
        "Dirichlet",
    ),
    "histogram binning, isotonic regression, BBQ": (
        [
            has("HistogramBinning", "IsotonicCalibration", "BayesianBinning"),
            no(BINNED),
            has("HistogramBinning", "IsotonicRegression", "BBQ"),
            has("HistogramBinningScaler", "IsotonicRegressionScaler", "BBQScaler"),
            has("BinaryHistogramBinningCalibrator", "NetcalBBQCalibrator"),
            has("IsotonicRegression", words="isotonic"),
        ],
        "no",
    ),
    "ensemble temperature scaling, splines": (
        [
            has("EnsembleTemperatureScaling", "SplineCalibration"),
            no("(?i)^ETS|spline_?cal"),
            no("(?i)^ETS|spline"),
            no("(?i)^ETS|spline_?(cal|scal)"),
            has("ETSCalibrator", "CDFSplineCalibrator"),
            no("(?i)^ETS|spline_?cal"),
        ],
        "no",
    ),
    "Venn-Abers, trees and regularised structured scaling as calibrators": (
        [
            no("(?i)venn"),
            no("(?i)venn"),
            no("(?i)venn"),
            no("(?i)venn"),
            has("VennAbersCalibrator", "SMSCalibrator", "XGBoostCalibrator"),
            no("(?i)venn"),
        ],
        "no",
    ),
    "a classifier and its calibrator fitted together by cross-validation": (
        [
            has("CalibratedModel"),
            no("(?i)calibrated_?(model|classifier)"),
            no("(?i)calibrated_?(model|classifier)"),
            no("(?i)calibrated_?(model|classifier)"),
            no("(?i)^calibrated_?(model|classifier)"),
            has("CalibratedClassifierCV"),
        ],
        "no",
    ),
    "which calibrator, by nested cross-validation": (
        [has("select_calibrator"), *[no("(?i)select_?calibrator") for _ in range(5)]],
        "no",
    ),
    "ECE, equal width": (
        [
            has("ece"),
            has("multiclass_calibration_error"),
            has("ECE"),
            has("CalibrationError"),
            has("CalibrationError"),
            Cell("curve only", names=("calibration_curve",), lacks="(?i)^ece$|calibration_error"),
        ],
        "yes",
    ),
    "adaptive (equal-mass) ECE": (
        [
            has("ada_ece"),
            no("(?i)adaptive_?cal"),
            has("ECE", words="`equal_intervals=False`"),
            has("AdaptiveCalibrationError"),
            no("(?i)adaptive_?cal"),
            no("(?i)adaptive_?cal"),
        ],
        "yes",
    ),
    "debiased ECE": (
        [has("ece_debiased"), no(DEBIASED), no(DEBIASED), no(DEBIASED), no(DEBIASED), no(DEBIASED)],
        "no",
    ),
    "smooth ECE": (
        [
            has("smooth_ece"),
            no(SMOOTH),
            no(SMOOTH),
            has("SmoothCalibrationError"),
            has("SmoothCalibrationError"),
            no(SMOOTH),
        ],
        "no",
    ),
    "intervals by the bootstrap": (
        [has("bootstrap"), has("BootStrapper"), no(BOOT), no(BOOT), no(BOOT), no(r"(?i)^bootstrap(per)?$")],
        "no",
    ),
    "paired comparison of two models": (
        [has("compare"), *[no(r"(?i)^(compare|paired_?bootstrap)$") for _ in range(5)]],
        "no",
    ),
    "AURC": ([has("aurc"), no(AURC), no(AURC), has("AURC", "AUGRC"), no(AURC), no(AURC)], "no"),
    "out-of-distribution scores": (
        [has("ood_auroc", "fpr95"), no(OOD), no(OOD), has("FPR95", "EnergyCriterion"), no(OOD), no(OOD)],
        "AUROC",
    ),
    "measures that take batches and add up between processes": (
        [
            has("Everything", words="yes, exact"),
            has("MulticlassCalibrationError"),
            no(r"^update$"),
            has("CalibrationError"),
            no(r"^update$"),
            no(r"(?i)^multiclass_?calib"),
        ],
        "no",
    ),
    "prediction files past memory; a cluster": (
        [has("PredictionStream"), *[no(STREAM) for _ in range(4)], no("PredictionStream")],
        "no",
    ),
    "command line for predictions": (
        [
            has("main", words="evaluate, compare, calibrate, apply, report"),
            no("(?i)typer|argument_?parser"),
            no("(?i)typer|argument_?parser"),
            has("TULightningCLI", words="for training"),
            no("(?i)typer|argument_?parser"),
            no("(?i)typer"),
        ],
        "training scripts",
    ),
    "HTML report": ([has("build_contents", "render"), *[no(REPORT) for _ in range(5)]], "no"),
    "reliability diagram": (
        [
            has("reliability_diagram"),
            no("(?i)reliability|calibration_?(display|curve)"),
            has("ReliabilityDiagram"),
            has("reliability_chart"),
            no("(?i)reliability_?(diagram|chart)"),
            has("CalibrationDisplay"),
        ],
        "yes",
    ),
    "calibrators as ONNX": ([has("to_onnx"), *[no(ONNX) for _ in range(5)]], "no"),
    "the focal map, its inverse, the exact thresholds": (
        [has("focal_map", "gamma_star"), *[no(MAPS) for _ in range(5)]],
        "the map",
    ),
    "regression": (
        [
            no("(?i)regression_?(metric|cal)"),
            has("MeanSquaredError", words="measures"),
            has("VarianceScaling"),
            has("BetaNLL", words="losses, measures"),
            has("CRPS", words="measures"),
            has("LinearRegression", words="models"),
        ],
        "no",
    ),
    "calibration of object detectors": (
        [
            no(DETECT),
            no(DETECT),
            has("BetaCalibrationDependent", "LogisticCalibrationDependent"),
            no(DETECT),
            no(DETECT),
            no(DETECT),
        ],
        "no",
    ),
    "ensembles, Bayesian layers, MC dropout": (
        [no(BAYES), no(BAYES), no(BAYES), has("mc_dropout", "BayesLinear"), no(BAYES), no(BAYES)],
        "no",
    ),
    "conformal prediction": (
        [no(CONFORMAL), no(CONFORMAL), no(CONFORMAL), has("ConformalClsAPS"), no(CONFORMAL), no(CONFORMAL)],
        "no",
    ),
    "refinement error by recalibration": (
        [
            Cell("by bins", names=("brier_decomposition",)),
            no("(?i)refinement"),
            no("(?i)refinement"),
            no("(?i)refinement_?error"),
            has("MetricsWithCalibration"),
            no("(?i)refinement"),
        ],
        "no",
    ),
}


def defined_names(paths: list[Path]) -> set[str]:
    """The classes and functions in Python files."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in other people's docstrings
        trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)}


@cache
def names_of(distribution: str) -> frozenset[str]:
    """The classes and functions of an installed distribution, its tests left out; PackageNotFoundError if it is not."""
    paths = [Path(str(path.locate())) for path in files(distribution) or [] if path.suffix == ".py"]
    return frozenset(defined_names([path for path in paths if path.exists() and "tests" not in path.parts]))


def wrong(cell: Cell, names: frozenset[str]) -> list[str]:
    """What speaks against a cell."""
    missing = [name for name in cell.names if name not in names]
    return missing + [name for name in sorted(names) if cell.lacks and re.search(cell.lacks, name)]
