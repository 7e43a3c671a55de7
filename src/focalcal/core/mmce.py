r"""Kernel sums over all pairs of samples, without visiting the pairs."""

from __future__ import annotations

import torch
from torch import Tensor

# The width of the Laplacian kernel in Kumar et al. (2018), which mukhoti2020 follows.
MMCE_WIDTH = 0.4


def laplacian_pair_sum(values: Tensor, coefficients: Tensor, width: float = MMCE_WIDTH) -> Tensor:
    r"""$\sum_{ij} a_i a_j \exp(-|r_i - r_j| / w)$ in O(n log n), differentiable.

    where `values` (n,) are $r$, `coefficients` (n,) are $a$ and `width` is $w$. After sorting, the kernel of two rows
    is $e^{-r_j/w} e^{r_i/w}$ with $i$ before $j$, so a running sum over $i$ serves every $j$. Equal values are taken
    together: the kernel has a kink there, whose slope counts as 0 as in torch's `abs`, whatever the order of the rows.
    Exact to rounding as long as the values span less than 700 widths.

    >>> laplacian_pair_sum(torch.tensor([0.0, 0.4]), torch.tensor([1.0, 1.0]))  # 2 + 2/e
    tensor(2.7358)
    """
    r, order = torch.sort(values)
    first_equal = torch.searchsorted(r.detach(), r.detach())
    pairs, _ = pairs_in_order(r, coefficients[order], width, origin=r[:1].detach(), first_equal=first_equal)
    return pairs


def pairs_in_order(
    r: Tensor,
    a: Tensor,
    width: float,
    *,
    origin: Tensor | float = 0.0,
    before: Tensor | float = 0.0,
    first_equal: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""The pair sum of sorted values, and what a block of larger ones has to know of them: $\sum_i a_i e^{r_i/w}$.

    `origin` is taken off the values against overflow, the same for all blocks; `before` is what earlier blocks left;
    `first_equal` says of each value where the first one equal to it stands, and is left out where all are different.

    >>> r, a = torch.tensor([0.0, 0.4]), torch.ones(2)
    >>> first, left = pairs_in_order(r[:1], a[:1], 0.4)
    >>> first + pairs_in_order(r[1:], a[1:], 0.4, before=left)[0]
    tensor(2.7358)
    """
    growth = (r - origin) / width
    rising, falling = a * torch.exp(growth), a * torch.exp(-growth)
    reached = torch.cumsum(rising, 0) + before
    below, together = reached - rising, a
    if first_equal is not None:
        below, together = below[first_equal], torch.zeros_like(a).scatter_add(0, first_equal, a)
    return (together * together).sum() + 2 * (falling * below).sum(), reached[-1]


def mmce_squared(
    confidence: Tensor,
    correct: Tensor,
    *,
    doubt: Tensor | None = None,
    weighted: bool = False,
    pairs_twice: bool = False,
    width: float = MMCE_WIDTH,
) -> Tensor:
    r"""The square of the maximum mean calibration error of a batch.

    $$ \mathrm{MMCE}^2 = \sum_{ij} \frac{(c_i - r_i)(c_j - r_j)\, k(r_i, r_j)}{n^2} $$

    where `confidence` (n,) are $r$ and `correct` (n,) are $c$; `doubt` is $1 - r$ where the caller knows it without
    cancellation. The weighted form divides each residual by the number of correct or of wrong rows instead of n, so
    that both count alike. `pairs_twice` divides by these numbers once more, as mukhoti2020's released code does.

    Source: [kumar2018, Eq. 4 and Sec. 3.2].

    >>> mmce_squared(torch.tensor([0.9, 0.9]), torch.tensor([1, 1]))  # everyone is 0.1 too modest
    tensor(0.0100)
    """
    correct = correct.bool()
    residual = torch.where(correct, 1 - confidence if doubt is None else doubt, -confidence)
    size: Tensor | int = len(confidence)
    if weighted:
        right = correct.sum()
        size = torch.where(correct, right, len(confidence) - right)
    return laplacian_pair_sum(confidence, residual / size / (size if pairs_twice else 1), width)
