"""Predictions sorted into bins of confidence: by compiled loops where edges are known or few values decide them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from focalcal.core import binning
from focalcal.core.binning import Bins, Scheme, equal_width_edges, interpolated_edges, prediction_columns
from focalcal.core.checks import Array, require
from focalcal.core.ranking import is_fractional, pack, unpack, whole_numbers
from focalcal.kernels.compiled import compiled_kernels, threads_for


def bin_predictions(
    confidence: Tensor | Array,
    correct: Tensor | Array,
    *,
    num_bins: int = 15,
    edges: Scheme | Tensor = "equal_width",
    weight: Tensor | Array | None = None,
) -> Bins:
    """Sort predictions into bins of confidence, as `focalcal.core.binning.bin_predictions` defines them.

    >>> bin_predictions(torch.tensor([0.55, 0.65, 0.95]), torch.tensor([1, 0, 1]), num_bins=2).count
    tensor([0., 3.], dtype=torch.float64)
    """
    kernels = compiled_kernels()
    compiled = isinstance(edges, Tensor) or edges == "equal_width" or (edges == "interpolated" and weight is None)
    if kernels is None or not compiled:
        return binning.bin_predictions(confidence, correct, num_bins=num_bins, edges=edges, weight=weight)
    given, right, share = prediction_columns(confidence, correct, weight)
    if is_fractional(right):
        return binning.bin_predictions(given, right, num_bins=num_bins, edges=edges, weight=share)
    require(num_bins >= 1, "num_bins", "must be at least 1", num_bins, "The papers use 15.")
    if edges == "interpolated":  # in order: their sums then do not depend on the order in which they came
        keys = pack(np.ascontiguousarray(given), right)
        scratch = np.empty_like(keys)
        kernels.sort_keys(keys.ctypes.data, keys.dtype.itemsize, scratch.ctypes.data, len(keys), 1)
        given, right = unpack(keys)
    given, right = np.ascontiguousarray(given), np.ascontiguousarray(right.astype(bool, copy=False))
    share = None if share is None else np.ascontiguousarray(share)
    cut = _edges(given, num_bins, edges)
    inner, num_bins = cut[1:-1].astype(given.dtype), len(cut) - 1
    sums = np.zeros((num_bins, 2, 3))  # of the wrong and of the correct rows: rows, mass, mass times confidence
    kernels.bins(
        given.ctypes.data,
        int(given.dtype == np.float64),
        len(given),
        right.ctypes.data,
        0 if share is None else share.ctypes.data,
        inner.ctypes.data,
        num_bins,
        sums.ctypes.data,
        threads_for(4 * len(given)),
    )
    rows, mass, total = torch.from_numpy(sums).permute(2, 0, 1)
    count = mass if share is not None and whole_numbers(share) else rows
    return Bins.of_sums(torch.from_numpy(cut), count.sum(1), mass.sum(1), total.sum(1), mass[:, 1])


def _edges(confidence: Array, num_bins: int, edges: Scheme | Tensor) -> Array:
    """The edges of bins that are fixed, or of those that interpolate between sorted confidences."""
    if isinstance(edges, Tensor):
        return np.asarray(edges.to("cpu", torch.float64).numpy())
    if edges == "equal_width":
        return np.asarray(equal_width_edges(num_bins).numpy())
    return interpolated_edges(confidence.astype(np.float64, copy=False).take, len(confidence), num_bins)
