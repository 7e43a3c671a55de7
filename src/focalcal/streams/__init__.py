"""Predictions in files: read whole, or rewritten batch by batch in bounded memory."""

from focalcal.streams.read import read_predictions
from focalcal.streams.rewrite import rewrite_predictions
from focalcal.streams.table import Columns, Table
from focalcal.streams.write import write_predictions

__all__ = ["Columns", "Table", "read_predictions", "rewrite_predictions", "write_predictions"]
