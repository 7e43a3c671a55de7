"""Predictions in files and datasets: read whole, rewritten or streamed in bounded memory, here or on a cluster."""

from focalcal.streams.read import read_predictions
from focalcal.streams.rewrite import rewrite_predictions
from focalcal.streams.stream import PredictionStream
from focalcal.streams.table import Columns, Table
from focalcal.streams.top_k import TopKStream
from focalcal.streams.write import write_predictions

__all__ = [
    "Columns",
    "PredictionStream",
    "Table",
    "TopKStream",
    "read_predictions",
    "rewrite_predictions",
    "write_predictions",
]
