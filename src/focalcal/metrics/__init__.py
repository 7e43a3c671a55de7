"""Every calibration measure, one way to read scores.

Each takes `(scores, labels, *, kind="logits" | "log_probs" | "probs")`, numpy or torch, and gives a float that knows
its definition. `read` reads scores once for many measures, `evaluate` gives all of them, `bootstrap` says how certain
one is, and `focalcal.metrics.streaming` has classes for streams and training loops.

>>> from focalcal import metrics
>>> metrics.ece([[2.0, 0.0], [0.0, 1.0]], [0, 1]).definition
'ECE, top label, 15 equal-width bins, l1'
"""

from importlib import import_module

from focalcal.metrics.beyond import TrainValBins, fpr95, kl_to_posterior, ood_auroc, train_val_bins
from focalcal.metrics.calibration import (
    BrierParts,
    ada_ece,
    brier_decomposition,
    classwise_ece,
    ece,
    ece_debiased,
    ece_sweep,
    mce,
    reliability,
)
from focalcal.metrics.evaluation import Evaluation
from focalcal.metrics.everything import GroupedEvaluation, evaluate
from focalcal.metrics.ranked import (
    RiskCoverage,
    aurc,
    auroc_correctness,
    ks_error,
    mmce,
    risk_coverage_curve,
    smooth_ece,
)
from focalcal.metrics.read import from_pairs, read
from focalcal.metrics.rows import Measured
from focalcal.metrics.scores import (
    Entropies,
    SureShare,
    accuracy,
    brier,
    entropy,
    error,
    mean_confidence,
    nll,
    s99,
    top_k_accuracy,
)
from focalcal.metrics.uncertainty import (
    Comparison,
    ConsistencyBars,
    Interval,
    accuracy_bands,
    bootstrap,
    bootstrap_each,
    compare,
    consistency_bars,
)

__all__ = [
    "BrierParts",
    "Comparison",
    "ConsistencyBars",
    "Entropies",
    "Evaluation",
    "GroupedEvaluation",
    "Interval",
    "Measured",
    "RiskCoverage",
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
    "kl_to_posterior",
    "ks_error",
    "mce",
    "mean_confidence",
    "mmce",
    "nll",
    "ood_auroc",
    "read",
    "reliability",
    "risk_coverage_curve",
    "s99",
    "smooth_ece",
    "top_k_accuracy",
    "train_val_bins",
]


def __getattr__(name: str) -> object:
    if name == "streaming":  # loaded when asked for: it brings in torchmetrics, where that is installed
        return import_module("focalcal.metrics.streaming")
    raise AttributeError(f"module 'focalcal.metrics' has no attribute {name!r}")
