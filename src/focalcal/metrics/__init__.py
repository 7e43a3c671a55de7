"""Every calibration measure, one way to read scores.

Each measure takes `(scores, labels, *, kind="logits" | "log_probs" | "probs")`, numpy or torch, and returns a float
that knows its definition. `read` reads scores once for many measures, `evaluate` computes all of them, `bootstrap`
says how certain one is, `register_measure` adds one of your own, and `focalcal.metrics.streaming` has classes for
streams and training loops.

>>> from focalcal import metrics
>>> metrics.ece([[2.0, 0.0], [0.0, 1.0]], [0, 1]).definition
'ECE, top label, 15 equal-width bins, l1'
"""

from importlib import import_module

from focalcal.metrics.accuracy import SureShare, accuracy, error, gap, mean_confidence, s99, top_k_accuracy
from focalcal.metrics.bin_free_errors import ks_error, mmce, smooth_ece
from focalcal.metrics.calibration_error import ada_ece, classwise_ece, ece, ece_debiased, ece_sweep, mce
from focalcal.metrics.entropy import Entropies, entropy, kl_to_posterior
from focalcal.metrics.evaluation import Evaluation, GroupedEvaluation, evaluate
from focalcal.metrics.intervals import Comparison, Estimate, Interval, bootstrap, bootstrap_each, compare
from focalcal.metrics.out_of_distribution import fpr95, ood_auroc
from focalcal.metrics.prediction_set import Measured, RowMean
from focalcal.metrics.proper_scores import BrierParts, brier, brier_decomposition, nll
from focalcal.metrics.read_scores import from_pairs, read
from focalcal.metrics.reliability import (
    ConsistencyBars,
    TrainValBins,
    accuracy_bands,
    consistency_bars,
    reliability,
    train_val_bins,
)
from focalcal.metrics.selective_prediction import RiskCoverage, aurc, auroc_correctness, risk_coverage_curve
from focalcal.metrics.table import MEASURES, Measure, register_measure

__all__ = [
    "MEASURES",
    "BrierParts",
    "Comparison",
    "ConsistencyBars",
    "Entropies",
    "Estimate",
    "Evaluation",
    "GroupedEvaluation",
    "Interval",
    "Measure",
    "Measured",
    "RiskCoverage",
    "RowMean",
    "SureShare",
    "TrainValBins",
    "accuracy",
    "accuracy_bands",
    "ada_ece",
    "aurc",
    "auroc_correctness",
    "bootstrap",
    "bootstrap_each",
    "brier",
    "brier_decomposition",
    "classwise_ece",
    "compare",
    "consistency_bars",
    "ece",
    "ece_debiased",
    "ece_sweep",
    "entropy",
    "error",
    "evaluate",
    "fpr95",
    "from_pairs",
    "gap",
    "kl_to_posterior",
    "ks_error",
    "mce",
    "mean_confidence",
    "mmce",
    "nll",
    "ood_auroc",
    "read",
    "register_measure",
    "reliability",
    "risk_coverage_curve",
    "s99",
    "smooth_ece",
    "top_k_accuracy",
    "train_val_bins",
]


def __getattr__(name: str) -> object:
    if name == "streaming":  # loaded when asked for: it needs torchmetrics
        return import_module("focalcal.metrics.streaming")
    raise AttributeError(f"module 'focalcal.metrics' has no attribute {name!r}")
