"""Predictions in files and datasets: read whole, rewritten or streamed in bounded memory, here or on a cluster."""

from focalcal.files.prediction_stream import PredictionStream
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.reading import read_predictions
from focalcal.files.rewriting import rewrite_predictions
from focalcal.files.top_k_stream import TopKStream
from focalcal.files.writing import write_predictions

__all__ = [
    "Columns",
    "PredictionStream",
    "PredictionTable",
    "TopKStream",
    "read_predictions",
    "rewrite_predictions",
    "write_predictions",
]
