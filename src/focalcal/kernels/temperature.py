r"""The NLL of $\mathrm{softmax}(\beta x)$ with its derivatives in $\beta$: for each row, and summed over rows.

`tempered_sums` and `tempered_columns` read the rows once for any number of inverse temperatures. The functions that are
called `defined_...` say in torch what they give; cpp/temperature.h computes the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.focal import wide_dtype
from focalcal.core.masking import mask_limit, unify_masks
from focalcal.core.temperature import TemperedSums
from focalcal.kernels.compiled import kernels_for, row_layout, threads_for, with_adjacent_classes

# exp is 0 from here on in every precision, and the number is finite, so that 0 times it is 0.
_VANISHED = -1e4
# What a value costs at one temperature, compared with reading it.
_WORK = 4


def tempered_sums(
    logits: Tensor, labels: Tensor, weight: Tensor | None, orders: Mapping[float, int]
) -> dict[float, TemperedSums]:
    r"""The sums over rows at some inverse temperatures: `orders` says how many derivatives each gets, 8 at most.

    `logits` (n, K) may be in half precision, and masked classes have any logit that masks in their dtype. `labels` (n,)
    are class numbers in int64, and `weight` (n,) is in float64 or None. NaN, plus infinity, a row in which every class
    is masked, and a label that is masked make the sums NaN or infinite.

    >>> sums = tempered_sums(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), None, {1.0: 3, 0.5: 0})
    >>> sums[1.0].derivatives.round(4)
    array([ 0.1269, -0.2384,  0.42  , -0.6397])
    """
    kernels = kernels_for(logits)
    if kernels is None or not len(logits):
        return defined_tempered_sums(logits, labels, weight, orders)
    return _compiled(kernels, logits, labels, weight, orders)


def defined_tempered_sums(
    logits: Tensor, labels: Tensor, weight: Tensor | None, orders: Mapping[float, int]
) -> dict[float, TemperedSums]:
    """The definition of `tempered_sums`: the columns of `defined_tempered_columns`, weighted and added up.

    >>> defined_tempered_sums(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), None, {1.0: 1})[1.0].derivatives.round(4)
    array([ 0.1269, -0.2384])
    """
    behind, label = _distances(logits, labels)
    weight = torch.ones_like(label) if weight is None else weight
    mass, all_right = float(weight.sum()), not bool(label.any())
    sums = {}
    for inverse, order in orders.items():
        columns = _columns(behind, label, inverse, order)
        added = [float(weight @ column) / inverse**n for n, column in enumerate(columns)]
        sums[inverse] = TemperedSums(mass, np.array(added), all_right)
    return sums


def tempered_columns(logits: Tensor, labels: Tensor, inverse_temperatures: Sequence[float], order: int) -> Tensor:
    r"""The NLL of each row at some $\beta$ with its derivatives, of which the n-th is times $\beta^n$.

    The shape is (inverse temperatures, order + 1, rows), in float64; what is given is as for `tempered_sums`.

    >>> tempered_columns(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), [1.0, 0.5], 1)[..., 0]
    tensor([[ 0.1269, -0.2384],
            [ 0.3133, -0.2689]], dtype=torch.float64)
    """
    kernels = kernels_for(logits)
    if kernels is None or not len(logits):
        return defined_tempered_columns(logits, labels, inverse_temperatures, order)
    logits, labels = with_adjacent_classes(logits.detach()), labels.contiguous()
    columns = torch.empty(len(inverse_temperatures), order + 1, len(logits), dtype=torch.float64)
    threads = threads_for(_WORK * len(inverse_temperatures) * logits.numel())
    kernels.tempered_columns(
        *row_layout(logits),
        labels.data_ptr(),
        mask_limit(logits.dtype),
        list(inverse_temperatures),
        order,
        columns.data_ptr(),
        threads,
    )
    return columns


def defined_tempered_columns(
    logits: Tensor, labels: Tensor, inverse_temperatures: Sequence[float], order: int
) -> Tensor:
    r"""The definition of `tempered_columns`: derivatives of the NLL are cumulants of x under the softmax.

    $$ \frac{\partial}{\partial \beta} = \kappa_1 - x_y, \qquad \frac{\partial^n}{\partial \beta^n} = \kappa_n, \qquad
       \kappa_n = m_n - \sum_{j=1}^{n-1} \binom{n-1}{j-1} \kappa_j m_{n-j}, \qquad m_n = \sum_k p_k x_k^n $$

    where `logits` (n, K) are $x$. They are taken from the largest of each row and times $\beta$, so that nothing
    overflows.

    >>> defined_tempered_columns(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), [1.0], 1)[0, :, 0]
    tensor([ 0.1269, -0.2384], dtype=torch.float64)
    """
    behind, label = _distances(logits, labels)
    return torch.stack([torch.stack(_columns(behind, label, inverse, order)) for inverse in inverse_temperatures])


def _distances(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """How far the logits (n, K) and those of the labels (n,) are behind the largest of their rows."""
    x = unify_masks(logits if logits.dtype in (torch.float32, torch.float64) else logits.float(), logits.dtype)
    behind = x - x.amax(1, keepdim=True)
    return behind, behind.gather(1, labels.unsqueeze(1)).squeeze(1).to(wide_dtype(logits.device))


def _columns(behind: Tensor, label: Tensor, inverse: float, order: int) -> list[Tensor]:
    """The NLL of each row, and the derivatives times powers of the inverse temperature."""
    scaled = (behind * inverse).clamp(min=_VANISHED)
    shares = torch.exp(scaled)
    total = shares.sum(1).to(label.dtype)
    moments = [(shares := shares * scaled).sum(1).to(label.dtype) / total for _ in range(order)]
    columns = [torch.log(total), *_cumulants(moments)]
    return [column - inverse * label for column in columns[:2]] + columns[2:]


def _cumulants(moments: list[Tensor]) -> list[Tensor]:
    """Cumulants from raw moments, both from the first one on."""
    cumulants: list[Tensor] = []
    for n, moment in enumerate(moments, start=1):
        known = (math.comb(n - 1, j) * cumulants[j] * moments[n - 2 - j] for j in range(n - 1))
        cumulants.append(functools.reduce(torch.sub, known, moment))
    return cumulants


def _compiled(
    kernels: Any, logits: Tensor, labels: Tensor, weight: Tensor | None, orders: Mapping[float, int]
) -> dict[float, TemperedSums]:
    logits, labels = with_adjacent_classes(logits.detach()), labels.contiguous()
    assert labels.dtype == torch.int64
    assert len(labels) == len(logits)
    weights = None if weight is None else weight.to(torch.float64).contiguous()
    mass, all_right, sums = kernels.tempered_sums(
        *row_layout(logits),
        labels.data_ptr(),
        0 if weights is None else weights.data_ptr(),
        mask_limit(logits.dtype),
        list(orders.items()),
        threads_for(_WORK * len(orders) * logits.numel()),
    )
    sums, found, start = np.array(sums), {}, 0
    for inverse, order in orders.items():
        found[inverse] = TemperedSums(mass, sums[start : start + order + 1], all_right)
        start += order + 1
    return found
