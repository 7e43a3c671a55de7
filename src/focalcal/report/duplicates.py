"""Rows that occur more than once, within one set of predictions or in two of them."""

from __future__ import annotations

import numpy as np

from focalcal.core.checks import Array
from focalcal.files.prediction_table import PredictionTable

# Numbers that are hashed at once.
_HELD = 1 << 20


def count_duplicates(scores: Array) -> int:
    """How many rows have the scores of an earlier row, value by value.

    >>> count_duplicates(np.array([[0.1, 0.9], [0.2, 0.8], [0.1, 0.9]]))
    1
    """
    return len(scores) - len(np.unique(row_hashes(scores)))


def count_shared(fit: PredictionTable, score: PredictionTable) -> int:
    """How many rows of `score` equal a row of `fit` in scores, rounded to float32, and label.

    It is 0 where most rows of the fit have a twin among themselves, as those of a model with few different outputs do:
    then equal rows are no sign of the same samples.
    """
    known, others = (_labelled_hashes(table) for table in (fit, score))
    distinct = np.unique(known)
    if 2 * len(distinct) < len(known):
        return 0
    return int(np.isin(others, distinct).sum())


def _labelled_hashes(table: PredictionTable) -> Array:
    assert table.labels is not None
    scores = table.scores.astype(np.float32).reshape(table.num_rows, -1)
    return row_hashes(np.column_stack([scores, table.labels.astype(np.float64)]))


def row_hashes(rows: Array) -> Array:
    """A number (N,) of 64 bits for each row (N, ...): equal rows have the same one.

    Of a million different rows two have the same one by chance once in forty million times.
    """
    rows = rows.reshape(len(rows), -1)
    factors = np.random.default_rng(0).integers(0, 2**64, size=rows.shape[1], dtype=np.uint64) | np.uint64(1)
    step = max(1, _HELD // rows.shape[1])
    return np.concatenate([_hashes(rows[start : start + step], factors) for start in range(0, len(rows), step)])


def _hashes(rows: Array, factors: Array) -> Array:
    """The values' bits, mixed, times factors, added up modulo 2^64."""
    bits = (rows.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 is 0.0
    bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(32)
    return np.asarray((bits * factors).sum(1, dtype=np.uint64))
