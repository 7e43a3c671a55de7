from .batches import table_from_columns as table_from_columns
from .prediction_stream import PredictionStream as PredictionStream
from .prediction_table import Columns as Columns, PredictionTable as PredictionTable
from .reading import read_predictions as read_predictions
from .rewriting import RewriteJob as RewriteJob, rewrite_predictions as rewrite_predictions
from .shard import Shard as Shard
from .table import FileFormat as FileFormat, register_format as register_format
from .top_k_stream import TopKStream as TopKStream
from .writing import write_predictions as write_predictions
