"""Confidence and correctness of any number of rows: every one of them while there is room, a histogram beyond."""

from __future__ import annotations

import numpy as np

from focalcal.core.ranking import Array, Ranked, pack, unpack, whole_numbers
from focalcal.core.sketch import cut_error, histogram, ranking_of_cells


class Confidences:
    """Rows that are added batch by batch and merged; `most_rows` is where the histogram takes over, if ever.

    The state is `keys`, the packed rows (4 bytes each, 8 for float64), with 8 bytes more for weights; or the cells of
    the histogram.

    >>> confidences = Confidences(most_rows=3)
    >>> confidences.add(np.array([0.9, 0.5]), np.array([True, False]))
    >>> confidences.exact, confidences.ranked().value
    (True, array([0.5, 0.9]))
    >>> confidences.add(np.array([0.8, 0.7]), np.array([True, False]))
    >>> confidences.exact, confidences.num_rows, len(confidences.ranked().value)
    (False, 4, 4)
    """

    def __init__(self, most_rows: int | None = None) -> None:
        self.most_rows, self.num_rows = most_rows, 0
        self._keys, self._weights = _Column(np.uint32), _Column(np.float64)
        self._cells: Array | None = None
        self._whole = True  # whether all weights are numbers of repeated rows

    @staticmethod
    def of_keys(*keys: Array) -> Confidences:
        """Rows that were packed before."""
        confidences = Confidences()
        for part in keys:
            confidences._keep(part, None)
        return confidences

    @property
    def keys(self) -> Array:
        """The packed rows that are kept."""
        return self._keys.values

    @property
    def exact(self) -> bool:
        """Whether every row is still there."""
        return self._cells is None

    def add(self, confidence: Array, correct: Array, weight: Array | None = None) -> None:
        """Take in rows (n,)."""
        self._whole = self._whole and (weight is None or whole_numbers(weight))
        self._keep(pack(confidence, correct), weight)

    def merge(self, other: Confidences) -> Confidences:
        """The rows of both."""
        merged = Confidences(self.most_rows)
        merged._whole = self._whole and other._whole
        for part in (self, other):
            if part._cells is not None:
                merged._cells = _added(part._cells, merged._cells)
                merged.num_rows += part.num_rows
        for part in (self, other):
            if part._cells is None:
                merged._keep(part.keys, part._weights.values if len(part._weights) else None)
        return merged

    def _keep(self, keys: Array, weight: Array | None) -> None:
        """Take in packed rows, into the histogram where they would be too many."""
        self.num_rows += len(keys)
        if self.most_rows is not None and self.num_rows > self.most_rows and self._cells is None:
            weights = self._weights.values if len(self._weights) else None
            self._cells = histogram(*unpack(self.keys), weights)
            self._keys, self._weights = _Column(np.uint32), _Column(np.float64)
        if self._cells is not None:
            self._cells = _added(histogram(*unpack(keys), weight), self._cells)
            return
        if weight is not None or len(self._weights):
            self._weights.extend(np.ones(len(self.keys) - len(self._weights)))  # rows that came without
            self._weights.extend(np.ones(len(keys)) if weight is None else weight)
        self._keys.widen(keys.dtype)
        self._keys.extend(_widened(keys, self._keys.values.dtype))

    def ranked(self) -> Ranked:
        """All rows in order of confidence; in the histogram those of a cell are equal."""
        if self._cells is not None:
            return ranking_of_cells(*(self._cells[:3] if self._whole else self._cells))
        if len(self._weights):
            return Ranked.of_rows(*unpack(self.keys), self._weights.values)
        # Sorted where they are, unless they are another process's.
        return Ranked.of_keys(self.keys if self.keys.flags.writeable else self.keys.copy())

    def error_bound(self, num_bins: int) -> float:
        """How far an equal-mass ECE can be from that of all rows: 0 if they are there."""
        return 0.0 if self._cells is None else cut_error(self._cells[0], num_bins)


class _Column:
    """An array that grows at its end by doubling: many small pieces between large temporaries tear the heap apart."""

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
