"""The ECE of many columns of confidences that share their correctness, as grids ask for it."""

from __future__ import annotations

import numpy as np
import torch

from focalcal.core.binning import Scheme, bin_norm, bin_predictions, require_a_row_for_each_bin
from focalcal.core.checks import Array
from focalcal.kernels.compiled import kernels_for, threads_for


def binned_gaps(confidence: Array, correct: Array, *, num_bins: int, equal_mass: bool) -> Array:
    """The ECE (P,) of confidences (P, n), all with the same correctness (n,), in bins of equal width or equal mass.

    >>> binned_gaps(np.array([[0.75, 0.25]], dtype=np.float32), np.array([True, False]), num_bins=2, equal_mass=True)
    array([0.25])
    """
    if equal_mass:
        require_a_row_for_each_bin(num_bins, confidence.shape[1])
    kernels = kernels_for(torch.from_numpy(confidence)) if confidence.dtype == np.float32 else None
    if kernels is None:
        edges: Scheme = "equal_mass" if equal_mass else "equal_width"
        bins = (bin_predictions(column, correct, num_bins=num_bins, edges=edges) for column in confidence)
        return np.array([float(bin_norm(each, "l1")) for each in bins])
    confidence, correct = np.ascontiguousarray(confidence), np.ascontiguousarray(correct, dtype=bool)
    found = np.empty(len(confidence))
    sizes = (*confidence.shape, num_bins, equal_mass)
    threads = threads_for(8 * confidence.size)
    kernels.binned_gaps(confidence.ctypes.data, correct.ctypes.data, *sizes, found.ctypes.data, threads)
    return found
