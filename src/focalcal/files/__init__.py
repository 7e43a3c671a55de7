"""Predictions in files and datasets: read whole, rewritten or streamed in bounded memory, here or on a cluster."""

from focalcal.files.read import read_predictions
from focalcal.files.rewrite import rewrite_predictions
from focalcal.files.stream import PredictionStream
from focalcal.files.table import Columns, Table
from focalcal.files.top_k import TopKStream
from focalcal.files.write import write_predictions

__all__ = [
    "Columns",
    "PredictionStream",
    "Table",
    "TopKStream",
    "read_predictions",
    "rewrite_predictions",
    "write_predictions",
]
