"""Lists of the most likely classes in Parquet and Arrow files, as inference servers export them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from focalcal.core.checks import Array
from focalcal.errors import InputError
from focalcal.files.arrow_rows import ArrowRows, pyarrow
from focalcal.files.column_names import ScoreColumns, find_group
from focalcal.files.discovery import find_shards
from focalcal.files.memory_limits import rows_per_batch
from focalcal.files.read_ahead import read_ahead
from focalcal.files.reading import Paths
from focalcal.files.shard import Shard
from focalcal.files.table import known_suffixes
from focalcal.metrics.truncated import TopK

# The expected length of lists, for the number of rows per batch; longer lists only make larger batches.
_EXPECTED = 32


@dataclass(frozen=True)
class TopKStream:
    """Lists in shards, opened anew for every pass: an iterable of `TopK` batches.

    where `paths` is a file, a directory or a glob of .parquet, .arrow or .feather, and `num_classes` the size of the
    vocabulary. `classes` and `log_probs` name the columns of lists, whose lengths may differ from row to row; `labels`
    that of the true tokens, `label_log_probs` that of their log-probabilities, if there is one (null where it is not
    known), and `weights` that of row weights.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> from focalcal.metrics.truncated import evaluate_truncated
    >>> rows = {"top_ids": [[7, 2], [3]], "top_log_probs": [[-0.1, -3.0], [-0.5]], "label": [7, 4]}
    >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
    ...     pq.write_table(pa.table(rows), file.name)
    ...     found = evaluate_truncated(TopKStream(file.name, num_classes=50_257))
    >>> found.num_rows, found.exact["accuracy"]
    (2, 0.5)
    """

    paths: Paths
    num_classes: int
    classes: str = "top_ids"
    log_probs: str = "top_log_probs"
    labels: str = "label"
    label_log_probs: str | None = None
    weights: str | None = None

    def __iter__(self) -> Iterator[TopK]:
        with ExitStack() as stack:
            shards = find_shards(self.paths, stack)
            yield from stack.enter_context(
                read_ahead(lambda: (lists for shard in shards for lists in self._read(shard)))
            )

    def _read(self, shard: Shard) -> Iterator[TopK]:
        name = shard.name
        optional = [each for each in (self.label_log_probs, self.weights) if each is not None]
        wanted = [self.classes, self.log_probs, self.labels, *optional]
        for batch in _record_batches(shard, wanted):
            for column in wanted:
                find_group(name, batch.schema.names, column)
            yield self._lists(ArrowRows(name, ScoreColumns((self.log_probs,), "log_probs")), batch)

    def _lists(self, rows: ArrowRows, batch: Any) -> TopK:
        lists = rows.column(batch, self.classes), rows.column(batch, self.log_probs)
        ids, values = (_padded(rows.name, column, fill) for column, fill in zip(lists, (0, -np.inf), strict=True))
        if ids.shape != values.shape:
            raise InputError(
                f"{rows.name}: the lists of {self.classes} and {self.log_probs} differ in length. Give each class of a "
                "row its log-probability."
            )
        try:
            return TopK(
                ids,
                values,
                rows.plain(batch, self.labels),
                num_classes=self.num_classes,
                label_log_probs=None if self.label_log_probs is None else _numbers(batch, self.label_log_probs),
                sample_weight=None if self.weights is None else rows.plain(batch, self.weights),
            )
        except InputError as error:
            raise InputError(f"{rows.name}: {error}") from error


def _record_batches(shard: Shard, columns: list[str]) -> Iterator[Any]:
    if not shard.format.can("record_batches"):
        raise InputError(
            f"{shard.name}: lists of the most likely classes are read from {known_suffixes('record_batches')} files."
        )
    yield from shard.format.function("record_batches")(shard, columns, rows_per_batch(_EXPECTED))


def _padded(name: str, column: Any, fill: float) -> Array:
    """Convert lists to an array (n, k); shorter ones are padded at the end."""
    types = pyarrow().types
    if not (types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)):
        raise InputError(f"{name}: the most likely classes must be a column of lists; got {column.type}.")
    values = column.flatten().to_numpy(zero_copy_only=False)
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    padded = np.full((len(column), int(lengths.max(initial=1))), fill, dtype=values.dtype)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = values
    return padded


def _numbers(batch: Any, name: str) -> Array:
    """A column of numbers, NaN where it has nulls."""
    column = batch.column(batch.schema.get_field_index(name))
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
