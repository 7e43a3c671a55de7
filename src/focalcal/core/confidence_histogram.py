r"""Confidences in bounded memory: a histogram so fine that it can stand for the order of the rows.

Cells have equal width in the log-odds of the confidence, so that they are as fine near 0 and 1 as in the middle; the
confidences 0 and 1 have cells of their own. A cell keeps its rows, the sum of their confidences and the correct ones.
Two histograms merge by addition, so that neither the order of batches nor that of processes matters.
"""

from __future__ import annotations

import numpy as np

from focalcal.core.checks import Array
from focalcal.core.ranking import Ranking

# 65,536 cells of 5.2e-4 in log-odds over +-17, where float32 ends: 1.5 MB.
CELLS = 1 << 16
_REACH = 17.0


def cell_of(confidence: Array) -> Array:
    """The cell of each confidence.

    >>> cell_of(np.array([0.0, 0.5, 1.0]))
    array([    0, 32768, 65535])
    """
    value = confidence.astype(np.float64)
    with np.errstate(divide="ignore"):
        odds = np.log(value) - np.log1p(-value)
    inner = np.floor((odds + _REACH) / (2 * _REACH) * (CELLS - 2))
    cell = 1 + np.clip(inner, 0, CELLS - 3)
    return np.where(value <= 0, 0, np.where(value >= 1, CELLS - 1, cell)).astype(np.int64)


def histogram(confidence: Array, correct: Array, weight: Array | None = None) -> Array:
    """Mass, sum of confidences and correct mass (3, CELLS) of each cell; with weights also the rows (4, CELLS).

    >>> histogram(np.array([0.5, 0.5]), np.array([True, False]))[:, 32768]
    array([2., 1., 1.])
    """
    cell, mass = cell_of(confidence), np.ones(len(confidence)) if weight is None else weight
    terms = (mass, mass * confidence, mass * correct, *([] if weight is None else [None]))
    return np.stack([np.bincount(cell, weights=term, minlength=CELLS).astype(np.float64) for term in terms])


def ranking_of_cells(mass: Array, confidence: Array, right: Array, count: Array | None = None) -> Ranking:
    """The ranking in which all rows of a cell have their mean confidence.

    >>> mass = np.zeros(CELLS)
    >>> mass[[10, 20]] = 2, 3
    >>> ranking_of_cells(mass, 0.5 * mass, mass).mass
    array([2., 3.])
    """
    held = mass > 0
    size = mass[held]
    return Ranking(confidence[held] / size, size if count is None else count[held], size, right[held])


def cut_error(count: Array, num_bins: int) -> float:
    r"""How far an equal-mass ECE of the histogram can be from that of the rows.

    A cut through a cell of m rows shares its correct rows in proportion; in truth up to m/4 more or fewer could lie on
    one side, and the same share of the cell's width w in confidence, at most 1.3e-4. That moves two bins, so

    $$ |\mathrm{ECE} - \mathrm{ECE}_{\text{rows}}| \le \sum_{\text{cuts}} \frac{m}{2N} (1 + w). $$

    Rows in the cells of exactly 0 and 1 are equal: sharing among them is no error.

    >>> count = np.zeros(CELLS)
    >>> count[100:200] = 10
    >>> round(cut_error(count, num_bins=3), 6)
    0.010001
    """
    total, reached = count.sum(), np.cumsum(count)
    if not total:
        return 0.0
    cuts = np.ceil(np.arange(1, num_bins) * total / num_bins)
    cell = np.searchsorted(reached, cuts)
    inside = reached[cell] > cuts  # a cut at the end of a cell divides nothing
    unequal = (cell > 0) & (cell < CELLS - 1)
    return float((count[cell] * inside * unequal).sum() / (2 * total) * (1 + _REACH / (2 * (CELLS - 2))))
