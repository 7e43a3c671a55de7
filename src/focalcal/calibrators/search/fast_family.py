r"""The focal temperature family in float32, for scans: many gammas at one temperature, right to 3e-6.

$$ p = \Psi^\gamma(\mathrm{softmax}(x / T)), \qquad p_j = h(q_j) / \sum_l h(q_l) $$

A point costs little, because

- of a row only the distances to its largest logit matter, and their order does not depend on T: the few largest classes
  are found once;
- $h(q)/q$ is a smooth function of $q$ and $q \log q$. With the m largest classes aside, the others have q at most
  1 / (m + 1), where a polynomial with ten terms is right to 1e-6. Its ten sums over the classes serve all gammas of one
  T, and an error that is too large for a gamma is noticed when the polynomial is fitted: that gamma is computed class
  by class.

`focalcal.core.focal_map` has the family itself, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from focalcal.calibrators.fit_data import LabelledLogits
from focalcal.core.checks import Array
from focalcal.core.focal import wide_dtype

# Classes of a row that are computed one by one, if it has more than twice as many.
_TOP = 8
# What the family may be off by: the polynomial's error and float32.
SCAN_ERROR = 3e-6
_POLYNOMIAL = 1e-6
# The degree of the polynomial in q and q log q.
_DEGREE = 3
_NO_CLASS = -1e30
# exp is several times slower where it underflows; what is smaller than this counts as 0.
_LOG_TINY, _TINY = -86.0, 1e-37


@dataclass(frozen=True)
class PreparedRows:
    """Rows as distances to their largest logit, float32: (m, n) of the largest classes, (n, C) of the others.

    Others may hold places of classes that are among the largest: their distance is `_NO_CLASS`, as of masked ones.
    """

    top: Tensor
    others: Tensor
    label: Tensor
    correct: Tensor
    weight: Tensor | None


def prepare(block: LabelledLogits) -> PreparedRows:
    """Prepare the rows of a block."""
    ordered, place = block.logits.topk(_count_top(block.logits.shape[1]), dim=1)
    first = ordered[:, :1]
    others = (block.logits - first).float().clamp_(min=_NO_CLASS)
    others = others.scatter_(1, place, _NO_CLASS) if others.shape[1] > place.shape[1] else others[:, :0]
    label = block.logits.gather(1, block.labels.unsqueeze(1)) - first
    correct = place[:, 0] == block.labels
    return PreparedRows(
        (ordered - first).t().float().clamp_(min=_NO_CLASS).contiguous(),
        others,
        label.squeeze(1).float(),
        correct,
        block.weight,
    )


def _count_top(num_classes: int) -> int:
    return _TOP if num_classes > 2 * _TOP else num_classes


def correct_and_weight(rows: PreparedRows) -> tuple[Array, Array]:
    """Whether the largest class of each row is its label, and the weights of the rows."""
    weight = torch.ones_like(rows.label, dtype=torch.float64) if rows.weight is None else rows.weight
    return rows.correct.cpu().numpy(), weight.cpu().numpy()


@dataclass(frozen=True)
class FamilySums:
    """What criteria need of rows at one T, for G gammas: (G, n) each.

    All of h is relative to (1 - q)^-gamma of the largest class, which overflows where that class is all but sure.
    """

    top: Tensor  # h of the largest class
    total: Tensor  # sum of h
    squares: Tensor | None  # sum of h squared, if asked for; in float64, for the range
    log_label: Tensor | None  # log h of the label, if asked for


class Scratch:
    """Memory that is reused: fresh pages cost more than the arithmetic that fills them."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], device: torch.device) -> Tensor:
        """An uninitialised float32 tensor, valid until its name is taken again."""
        size = math.prod(shape)
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = torch.empty(size, device=device)
        return self._held[name][:size].view(*shape)


def family_sums(
    rows: PreparedRows,
    temperature: float,
    gammas: tuple[float, ...],
    scratch: Scratch,
    *,
    label: bool = False,
    squared: bool = False,
) -> FamilySums:
    """The sums of rows at one temperature for some gammas; of the label and of squares where asked for."""
    inverse, device = 1 / temperature, rows.top.device
    log_q, q = (scratch.take(name, rows.others.shape, device) for name in ("log q", "q"))
    torch.mul(rows.others, inverse, out=log_q).clamp_(min=_LOG_TINY)
    torch.threshold_(torch.exp(log_q, out=q), _TINY, 0.0)
    exp_top = torch.exp((rows.top * inverse).clamp_(min=_LOG_TINY))
    rest = exp_top[1:].sum(0) + q.sum(1)
    whole, log_whole = 1 + rest, torch.log1p(rest)
    not_first = rest / whole
    log_not_first = _log_rest(rest, rows.top, inverse) - log_whole
    gamma = torch.tensor(gammas, device=device).view(-1, 1, 1)

    q_top = exp_top.div_(whole)
    not_top = 1 - q_top
    not_top[0] = not_first  # 1 - q would cancel
    ahead = torch.log(not_top) - log_not_first
    ahead[0] = 0
    h_top = _h(q_top, rows.top * inverse - log_whole, not_top, ahead, gamma, scratch)  # (G, m, n)
    squares = h_top.to(wide_dtype(device)).square().sum(1) if squared else None
    total = h_top.sum(1)
    first = h_top[:, 0].clone()
    if rows.others.shape[1]:
        q.div_(whole.unsqueeze(1))
        log_q.sub_(log_whole.unsqueeze(1))
        _add_others(q, log_q, log_not_first, gammas, total, squares, scratch)
    log_label = _log_h_label(rows, inverse, log_whole, not_first, log_not_first, gamma[:, 0]) if label else None
    return FamilySums(first, total, squares, log_label)


def _add_others(
    q: Tensor,
    log_q: Tensor,
    log_not_first: Tensor,
    gammas: tuple[float, ...],
    total: Tensor,
    squares: Tensor | None,
    scratch: Scratch,
) -> None:
    """Add what the classes that are not among the largest have to the sums (G, n) of h and of its square."""
    linear, square, exact = _polynomials(gammas)
    gamma = torch.tensor(gammas, device=q.device).view(-1, 1)
    for g in exact:  # class by class, where the polynomial would not be right
        not_q = 1 - q
        h = _h(q, log_q, not_q, torch.log(not_q) - log_not_first.unsqueeze(1), gamma[g], scratch)
        total[g] += h.sum(1)
        if squares is not None:
            squares[g] += h.to(squares.dtype).square().sum(1)
    degree = _DEGREE if len(exact) < np.count_nonzero(gammas) else 1  # without gamma h is q, and h^2 is q^2
    sums = _monomial_sums(q, log_q, degree, scratch)
    scale = torch.exp((gamma * log_not_first).clamp_(max=80.0))  # the sums are 0 where it would overflow
    total.addcmul_(linear[:, : len(sums)].to(sums) @ sums, scale)
    if squares is not None:
        squares += (square[:, : len(sums)].to(sums) @ sums) * scale.to(squares.dtype).square()


def _log_rest(rest: Tensor, top: Tensor, inverse: float) -> Tensor:
    """log of the sum of all shares but the first, also where they underflow: then the largest ones decide."""
    behind = torch.exp((top[1:] - top[1]) * inverse).sum(0)
    return torch.where(rest > 1e-30, torch.log(rest), top[1] * inverse + torch.log(behind))


def _log_h_label(
    rows: PreparedRows, inverse: float, log_whole: Tensor, not_first: Tensor, log_not_first: Tensor, gamma: Tensor
) -> Tensor:
    log_q = rows.label * inverse - log_whole
    q = torch.exp(log_q)
    not_q = torch.where(rows.correct, not_first, 1 - q)
    ahead = torch.where(rows.correct, 0.0, torch.log(not_q) - log_not_first)
    return log_q - gamma * ahead - torch.log1p(gamma * _r(q, log_q, not_q))


def _h(q: Tensor, log_q: Tensor, not_q: Tensor, ahead: Tensor, gamma: Tensor, scratch: Scratch) -> Tensor:
    """h = q (1 - q)^-gamma / (1 + gamma r); log(1 - q) is given as how far it is ahead of that of the largest class.

    In memory of the scratch.
    """
    shape = torch.broadcast_shapes(q.shape, gamma.shape)
    h, divisor = (scratch.take(name, shape, q.device) for name in ("h", "divisor"))
    torch.sub(log_q, torch.mul(ahead, gamma, out=h), out=h).exp_()
    return h.div_(torch.mul(_r(q, log_q, not_q), gamma, out=divisor).add_(1))


def _r(q: Tensor, log_q: Tensor, not_q: Tensor) -> Tensor:
    """-q log q / (1 - q), which tends to 1 where 1 - q vanishes."""
    return torch.where(not_q > 1e-30, -q * log_q / not_q, 1.0)


def _monomial_sums(q: Tensor, log_q: Tensor, degree: int, scratch: Scratch) -> Tensor:
    """Sums over classes of q times each monomial q^a (q log q)^b up to the degree, in the order of `_monomials`.

    Uses up `log_q`.
    """
    tilted = log_q.mul_(q)  # q log q
    column, product = (scratch.take(name, q.shape, q.device) for name in ("column", "product"))
    sums: list[list[Tensor]] = []
    for power in range(degree + 1):  # column is q (q log q)^power
        if power:
            torch.mul(column if power > 1 else q, tilted, out=column)
        now = column if power else q
        sums.append([now.sum(1)])
        for _ in range(degree - power):
            now = torch.mul(now, q, out=product)
            sums[-1].append(now.sum(1))
    return torch.stack([sums[b][total - b] for total in range(degree + 1) for b in range(total + 1)])


def _monomials(q: Array) -> Array:
    """The monomials (n, 10) by total degree, so that those of a lower degree come first."""
    tilted = q * np.log(q)
    return np.stack([q ** (total - b) * tilted**b for total in range(_DEGREE + 1) for b in range(total + 1)], 1)


@lru_cache(maxsize=64)
def _polynomials(gammas: tuple[float, ...]) -> tuple[Tensor, Tensor, list[int]]:
    """Coefficients (G, 10) of h/q and of h^2/q in the monomials for q up to 1 / (m + 1); and which gammas need more."""
    q, monomials, solve = _least_squares()
    gamma = np.array(gammas)[:, None]
    ratio = np.exp(-gamma * np.log1p(-q)) / (1 - gamma * q * np.log(q) / (1 - q))
    linear, square = ratio[:, ::2] @ solve, (q * ratio**2)[:, ::2] @ solve
    # On all points, half of which the coefficients have not seen.
    error = np.abs(np.stack([linear @ monomials - ratio, square @ monomials - q * ratio**2])).max((0, 2))
    plain, exact = np.flatnonzero(gamma == 0), np.flatnonzero(error > _POLYNOMIAL)
    linear[plain], square[plain] = np.eye(len(solve.T))[:2]  # exactly 1 and q
    linear[exact] = square[exact] = 0
    return torch.from_numpy(linear), torch.from_numpy(square), exact.tolist()


@lru_cache(maxsize=1)
def _least_squares() -> tuple[Array, Array, Array]:
    """Points q, the monomials (10, n) there, and what gives their coefficients from the values at every other point.

    The points crowd at both ends like the zeros of Chebyshev polynomials, where least squares comes near to the least
    largest error; the third power also crowds them at 0, where q log q is steep.
    """
    angle = np.pi * (np.arange(401) + 0.5) / 401
    q = ((1 - np.cos(angle)) / 2) ** 3 / (_TOP + 1)
    monomials = _monomials(q).T
    size = np.abs(monomials).max(1, keepdims=True)
    return q, monomials, np.linalg.pinv(monomials[:, ::2] / size, rcond=1e-14) / size.T


def block_confidences(temperature: float, gammas: tuple[float, ...], rows: PreparedRows, scratch: Scratch) -> Array:
    """The confidence of each row (G, n)."""
    family = family_sums(rows, temperature, gammas, scratch)
    return np.asarray((family.top / family.total).clamp_(max=1.0).cpu().numpy())
