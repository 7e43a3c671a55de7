"""Predictions of which only the most likely classes are known, measured as stated bounds.

Inference servers give for each token the k most likely ids with their log-probabilities. What the rest of the
vocabulary holds is not said, so what depends on it is an interval here, never one number.

>>> import numpy as np
>>> from focalcal.metrics.truncated import TopK, evaluate_truncated
>>> lists = TopK([[7, 3]], np.log([[0.6, 0.3]]), [3], num_classes=10)
>>> evaluation = evaluate_truncated(lists)
>>> round(evaluation.exact["nll"], 4), [round(bound, 5) for bound in evaluation.bounds["brier"]]
(1.204, [0.85125, 0.86])
"""

from focalcal.metrics.truncated.evaluation import TruncatedEvaluation, TruncatedSummary, evaluate_truncated
from focalcal.metrics.truncated.temperature import TemperatureInterval, temperature_interval, tempered_nll
from focalcal.metrics.truncated.top_k import TopK

__all__ = [
    "TemperatureInterval",
    "TopK",
    "TruncatedEvaluation",
    "TruncatedSummary",
    "evaluate_truncated",
    "temperature_interval",
    "tempered_nll",
]
