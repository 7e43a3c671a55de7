r"""Rows at many points of the focal temperature family, for grids: confidences, and sums of the smooth criteria.

$$ p = \Psi^\gamma(\mathrm{softmax}(x / T)), \qquad p_j = h(q_j) / \sum_l h(q_l), \qquad
   h(q) = \frac{q\,(1-q)^{-\gamma}}{1 + \gamma r}, \qquad r = \frac{-q \log q}{1-q} $$

Rows are prepared once; then every T is asked for several gammas, which share what does not depend on gamma. All of h is
relative to $(1-q)^{-\gamma}$ of the largest class, which overflows where that class is all but sure.
`focalcal.core.focal_map` has the family in float64.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import Array
from focalcal.core.focal import wide_dtype
from focalcal.kernels.compiled import kernels_for, row_layout, threads_for, with_adjacent_classes

Lines: TypeAlias = Sequence[tuple[float, tuple[float, ...]]]  # temperatures with some gammas each
Smooth: TypeAlias = Literal["nll", "brier", "focal"]

# What confidences and means may be off by: the polynomial's error and float32.
SCAN_ERROR = 3e-6
_POLYNOMIAL = 1e-6
# Where the polynomial is used: of the classes beyond the eighth none has more.
_MOST_SMALL = 1 / 9
# The degree of the polynomial in q and q log q.
_DEGREE = 3
# The distance of a class that is masked.
_NO_CLASS = -1e30
_LANES = 16


def prepare_rows(logits: Tensor, labels: Tensor) -> GridRows:
    """Prepare logits (n, K) and labels (n,) for points of the family.

    >>> rows = prepare_rows(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    >>> rows.confidences([(2.0, (0.0, 1.0))])  # of one T and two gammas
    tensor([[0.7311],
            [0.8555]])
    """
    kernels = kernels_for(logits) if logits.shape[1] > 1 else None
    return DefinedGridRows(logits, labels) if kernels is None else CompiledGridRows(kernels, logits, labels)


class GridRows(ABC):
    """Rows prepared for points of the family; `correct` (n,) says whether the largest class is the label."""

    correct: Tensor

    @abstractmethod
    def confidences(self, lines: Lines) -> Tensor:
        """The probability of the largest class (P, n) in float32, at all points one after the other."""

    @abstractmethod
    def sums(self, lines: Lines, criterion: Smooth, loss_gamma: float = 0.0, weight: Tensor | None = None) -> Array:
        """The weighted sum (P,) of a smooth criterion over the rows; `loss_gamma` is that of the focal loss."""


# ---------------------------------------------------------------------- the definition


class DefinedGridRows(GridRows):
    """The definition, class by class, on any device and in any precision."""

    def __init__(self, logits: Tensor, labels: Tensor, dtype: torch.dtype = torch.float32) -> None:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        first, self._top = logits.max(1, keepdim=True)
        self._distance = (logits - first).clamp(min=_NO_CLASS).to(dtype)
        self._label = labels.unsqueeze(1)
        self.correct = self._top.squeeze(1) == labels

    def confidences(self, lines: Lines) -> Tensor:
        """The probability of the largest class."""
        columns = (torch.exp(log_h.gather(1, self._top) - total) for log_h, total in self._points(lines))
        return torch.cat(list(columns), 1).t().contiguous()

    def sums(self, lines: Lines, criterion: Smooth, loss_gamma: float = 0.0, weight: Tensor | None = None) -> Array:
        """Sums of -log p, of (1 - p)^loss_gamma times that, or of |p - e|^2."""
        found = []
        for log_h, total in self._points(lines):
            nll = (total - log_h.gather(1, self._label)).squeeze(1)
            if criterion == "brier":
                column = torch.exp(2 * (log_h - total)).sum(1) - 2 * torch.exp(-nll) + 1
            else:
                column = torch.pow(-torch.expm1(-nll), loss_gamma) * nll
            column = column.to(wide_dtype(column.device))
            found.append(float(column.sum() if weight is None else column @ weight))
        return np.array(found)

    def _points(self, lines: Lines) -> Any:
        """log h (n, K) and the log of its sum (n, 1) at each point."""
        for temperature, gammas in lines:
            u = (self._distance / temperature).clamp(min=_NO_CLASS)
            log_rest = torch.logsumexp(u.scatter(1, self._top, -math.inf), 1, keepdim=True)
            rest = torch.exp(log_rest)
            log_whole = torch.log1p(rest)
            log_q = u - log_whole
            q = torch.exp(log_q).scatter(1, self._top, 0.0)  # the largest class goes by the sum of the others
            ahead = (torch.log1p(-q) - (log_rest - log_whole)).scatter(1, self._top, 0.0)
            r_first = torch.where(rest > 1e-30, log_whole / rest, 1.0)
            r = (-q * log_q / (1 - q)).scatter(1, self._top, r_first)
            for gamma in gammas:
                log_h = log_q - gamma * ahead - torch.log1p(gamma * r) if gamma else log_q
                yield log_h, torch.logsumexp(log_h, 1, keepdim=True)


# ---------------------------------------------------------------------- the compiled kernel


class CompiledGridRows(GridRows):
    """Rows in the layout of `cpp/focal_grid.h`."""

    def __init__(self, kernels: Any, logits: Tensor, labels: Tensor) -> None:
        logits, labels = with_adjacent_classes(logits.detach()), labels.contiguous().long()
        self._kernels, (self._rows, self._classes) = kernels, logits.shape
        self._prepared = torch.empty(-(-self._rows // _LANES), self._classes, _LANES)
        self.correct = torch.empty(self._rows, dtype=torch.bool)
        kernels.prepare_grid(
            *row_layout(logits),
            labels.data_ptr(),
            self._prepared.data_ptr(),
            self.correct.data_ptr(),
            threads_for(8 * logits.numel()),
        )

    def confidences(self, lines: Lines) -> Tensor:
        """The probability of the largest class."""
        passed = _PassedLines(lines)
        found = torch.empty(len(passed.gammas), self._rows)
        self._kernels.grid_confidences(
            self._prepared.data_ptr(),
            self._rows,
            self._classes,
            *passed.addresses(),
            found.data_ptr(),
            self._rows,
            self._threads(lines),
        )
        return found

    def sums(self, lines: Lines, criterion: Smooth, loss_gamma: float = 0.0, weight: Tensor | None = None) -> Array:
        """The sums of the criterion."""
        passed = _PassedLines(lines)
        weight = None if weight is None else weight.contiguous().double()
        found = np.zeros(len(passed.gammas))
        self._kernels.grid_sums(
            self._prepared.data_ptr(),
            self._rows,
            self._classes,
            *passed.addresses(),
            self.correct.data_ptr(),
            0 if weight is None else weight.data_ptr(),
            criterion == "brier",
            loss_gamma,
            found.ctypes.data,
            self._threads(lines),
        )
        return found

    def _threads(self, lines: Lines) -> int:
        return threads_for(self._prepared.numel() * len(lines))


class _PassedLines:
    """Lines as arrays: 1 / T and the number of gammas of each, all gammas, and the coefficients of each."""

    def __init__(self, lines: Lines) -> None:
        gammas = tuple(itertools.chain.from_iterable(gammas for _, gammas in lines))
        self._inverse = np.array([1 / temperature for temperature, _ in lines], dtype=np.float32)
        self._sizes = np.array([len(gammas) for _, gammas in lines], dtype=np.int64)
        self.gammas = np.array(gammas, dtype=np.float32)
        self._linear, self._square = polynomials(gammas)

    def addresses(self) -> tuple[int, ...]:
        arrays = (self._inverse, self._sizes, self.gammas, self._linear, self._square)
        return len(self._sizes), *(array.ctypes.data for array in arrays)


class Polynomials(NamedTuple):
    """Coefficients (P, 10) of h/q and of h^2/q in the monomials; all zero where they would not be right."""

    linear: Array
    square: Array


@lru_cache(maxsize=16)
def polynomials(gammas: tuple[float, ...]) -> Polynomials:
    """The polynomials of some gammas, for q up to 1/9.

    The square has no constant term: h^2/q vanishes with q, also where it is divided by q.

    >>> polynomials((0.0,)).linear[0, :3]
    array([1., 0., 0.], dtype=float32)
    """
    q, monomials, solve, solve_square = _least_squares()
    distinct, place = np.unique(np.array(gammas, dtype=np.float32), return_inverse=True)
    gamma = distinct.astype(np.float64)[:, None]
    ratio = np.exp(-gamma * np.log1p(-q)) / (1 - gamma * q * np.log(q) / (1 - q))
    linear, square = ratio[:, ::2] @ solve, (q * ratio**2)[:, ::2] @ solve_square
    # On all points, half of which the coefficients have not seen.
    error = np.abs(np.stack([linear @ monomials - ratio, square @ monomials - q * ratio**2])).max((0, 2))
    linear[gamma[:, 0] == 0], square[gamma[:, 0] == 0] = np.eye(len(monomials))[:2]  # exactly 1 and q
    linear[error > _POLYNOMIAL] = 0
    return Polynomials(*(array[place.reshape(-1)].astype(np.float32) for array in (linear, square)))


@lru_cache(maxsize=1)
def _least_squares() -> tuple[Array, Array, Array, Array]:
    """Points q, the monomials (10, n) there, and what gives coefficients from the values at every other point.

    The points crowd at both ends like the zeros of Chebyshev polynomials, where least squares comes near to the least
    largest error; the third power also crowds them at 0, where q log q is steep.
    """
    angle = np.pi * (np.arange(401) + 0.5) / 401
    q = ((1 - np.cos(angle)) / 2) ** 3 * _MOST_SMALL
    all_monomials = monomials(q).T
    size = np.abs(all_monomials).max(1, keepdims=True)
    some = all_monomials[:, ::2] / size
    solve = np.linalg.pinv(some, rcond=1e-14) / size.T
    solve_square = np.pad(np.linalg.pinv(some[1:], rcond=1e-14) / size[1:].T, ((0, 0), (1, 0)))
    return q, all_monomials, solve, solve_square


def monomials(q: Array) -> Array:
    """The monomials (n, 10) in q and q log q by total degree.

    >>> monomials(np.array([1.0]))
    array([[1., 1., 0., 1., 0., 0., 1., 0., 0., 0.]])
    """
    tilted = q * np.log(q)
    return np.stack([q ** (total - b) * tilted**b for total in range(_DEGREE + 1) for b in range(total + 1)], 1)
