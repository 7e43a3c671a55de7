"""Confidence and correctness of any number of rows: exact up to a limit, a histogram beyond it."""

from __future__ import annotations

import numpy as np

from focalcal.core.checks import Array
from focalcal.core.confidence_histogram import cut_error, histogram, ranking_of_cells
from focalcal.core.ranking import Ranking, pack, unpack, whole_numbers
from focalcal.kernels.ranking import ranked_keys, ranked_rows

# Rows that go into the histogram together: fewer would cost more for its cells than for themselves.
_TOGETHER = 1 << 18


class ConfidenceSummary:
    """Confidences that are added batch by batch and merged; beyond `most_rows` rows, if given, a histogram takes over.

    The state is `keys`, the packed rows (4 bytes each, 8 for float64), with 8 bytes more for weights; or the cells of
    the histogram.

    >>> confidences = ConfidenceSummary(most_rows=3)
    >>> confidences.add(np.array([0.9, 0.5]), np.array([True, False]))
    >>> confidences.exact, confidences.ranked().value
    (True, array([0.5, 0.9]))
    >>> confidences.add(np.array([0.8, 0.7]), np.array([True, False]))
    >>> confidences.exact, confidences.num_rows, len(confidences.ranked().value)
    (False, 4, 4)
    """

    def __init__(self, most_rows: int | None = None) -> None:
        self.most_rows, self.num_rows, self._mass = most_rows, 0, 0.0
        self._keys, self._weights = _GrowingArray(np.uint32), _GrowingArray(np.float64)
        self._cells: Array | None = None
        self._whole = True  # whether all weights are numbers of repeated rows

    @staticmethod
    def of_keys(*keys: Array) -> ConfidenceSummary:
        """A summary of rows that are already packed."""
        confidences = ConfidenceSummary()
        for part in keys:
            confidences._keep(part, None)
        return confidences

    @staticmethod
    def of_cells(cells: Array) -> ConfidenceSummary:
        """A summary of rows of which only the histogram is known."""
        confidences = ConfidenceSummary(most_rows=0)
        confidences.num_rows, confidences._cells = int(cells[-1 if len(cells) == 4 else 0].sum()), cells
        confidences._mass = float(cells[0].sum())
        return confidences

    @property
    def num_counted(self) -> int:
        """The number of rows, as often as whole-number weights repeat them."""
        return round(self._mass) if self._whole else self.num_rows

    @property
    def keys(self) -> Array:
        """The packed rows that are kept."""
        return self._keys.values

    @property
    def exact(self) -> bool:
        """Whether every row is kept."""
        return self._cells is None and (self.most_rows is None or self.num_rows <= self.most_rows)

    def add(self, confidence: Array, correct: Array, weight: Array | None = None) -> None:
        """Take in rows (n,)."""
        self._whole = self._whole and (weight is None or whole_numbers(weight))
        self._keep(pack(confidence, correct), weight)

    def merge(self, other: ConfidenceSummary) -> ConfidenceSummary:
        """The rows of both."""
        merged = ConfidenceSummary(self.most_rows)
        merged._whole = self._whole and other._whole
        for part in (self, other):
            if part._cells is not None:
                merged._cells = _added(part._cells, merged._cells)
                merged.num_rows += part.num_rows - len(part.keys)
                merged._mass += float(part._cells[0].sum())
        for part in (self, other):
            merged._keep(part.keys, part._weights.values if len(part._weights) else None)
        return merged

    def _keep(self, keys: Array, weight: Array | None) -> None:
        """Take in packed rows, into the histogram where they would be too many."""
        self.num_rows += len(keys)
        self._mass += float(len(keys) if weight is None else weight.sum())
        if weight is not None or len(self._weights):
            self._weights.extend(np.ones(len(self.keys) - len(self._weights)))  # rows that came without
            self._weights.extend(np.ones(len(keys)) if weight is None else weight)
        self._keys.widen(keys.dtype)
        self._keys.extend(_widened(keys, self._keys.values.dtype))
        too_many = self.most_rows is not None and self.num_rows > self.most_rows
        if too_many and (self._cells is None or len(self.keys) >= _TOGETHER):
            self._forget()

    def _forget(self) -> None:
        """Put the kept rows into the histogram."""
        cells = self._cells
        for start in range(0, len(self.keys), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            weight = self._weights.values[part] if len(self._weights) else None
            cells = _added(histogram(*unpack(self.keys[part]), weight), cells)
        self._cells = cells
        self._keys, self._weights = _GrowingArray(np.uint32), _GrowingArray(np.float64)

    def ranked(self) -> Ranking:
        """All rows in order of confidence; in the histogram those of a cell are equal."""
        if not self.exact:
            return ranking_of_cells(*(self.cells()[:3] if self._whole else self.cells()))
        if len(self._weights):
            return ranked_rows(*unpack(self.keys), self._weights.values)
        # Sorted where they are, unless they are another process's.
        return ranked_keys(self.keys if self.keys.flags.writeable else self.keys.copy())

    def error_bound(self, num_bins: int) -> float:
        """How far an equal-mass ECE can be from that of all rows: 0 if all are kept."""
        return 0.0 if self.exact else cut_error(self.cells()[0], num_bins)

    def cells(self) -> Array:
        """The histogram of all rows, for a summary that is not `exact`."""
        if len(self.keys):
            self._forget()
        assert self._cells is not None
        return self._cells


class _GrowingArray:
    """An array that grows by doubling, because many small pieces between large temporaries fragment the heap."""

    def __init__(self, dtype: type) -> None:
        self._held: Array = np.empty(0, dtype=dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> Array:
        held: Array = self._held[: self._size]
        return held

    def extend(self, more: Array) -> None:
        size = self._size + len(more)
        if size > len(self._held):
            held = np.empty(max(size, 2 * len(self._held)), dtype=self._held.dtype)
            held[: self._size] = self.values
            self._held = held
        self._held[self._size : size] = more
        self._size = size

    def widen(self, dtype: np.dtype) -> None:
        """Packed rows of float32 scores become those of float64 ones."""
        if dtype.itemsize > self._held.dtype.itemsize:
            self._held = _widened(self.values, dtype)


def _widened(keys: Array, dtype: np.dtype) -> Array:
    if keys.dtype == dtype:
        return keys
    confidence, correct = unpack(keys)
    return pack(confidence.astype(np.float64), correct)


def _added(cells: Array, more: Array | None) -> Array:
    """Two histograms together; rows of one without weights have the mass 1."""
    if more is None or len(cells) == len(more):
        return cells if more is None else cells + more
    wide, narrow = (cells, more) if len(cells) > len(more) else (more, cells)
    return np.asarray(wide + np.concatenate([narrow, narrow[:1]]))
