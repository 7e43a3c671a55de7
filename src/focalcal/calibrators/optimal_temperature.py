"""Two numbers from logits and labels: the best temperature, and the training gamma that would have made it 1."""

from __future__ import annotations

import math

from torch import Tensor

from focalcal.core.checks import ArrayLike, require, to_classes, to_tensor
from focalcal.core.masking import require_labels_left, require_scores
from focalcal.core.temperature import ORDER, TemperedSums, nearest_temperature, solve_temperature
from focalcal.kernels.temperature import tempered_sums

# The largest gamma of ghosh2022 (Sec. 6); beyond it a focal loss barely looks at samples with p > 0.2.
_GAMMA_MAX = 20.0


def optimal_temperature(logits: ArrayLike, labels: ArrayLike, *, start: float = 1.0) -> float:
    r"""The temperature that minimises the mean of $-\log \mathrm{softmax}(x/T)_y$.

    where `logits` (N, K) are $x$ and `labels` (N,) are $y$. Newton's method in $\log(1/T)$, kept in T = 0.01..1000;
    a `start` near the answer is faster and gives the same one. `TemperatureScaling` does it with more around it.

    Source: [mukhoti2020, Sec. 5.1].

    >>> round(optimal_temperature([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1]), 4)  # 2 of 3 right: 2 / log 2
    2.8854
    """
    require(0 < start < math.inf, "start", "must be a positive temperature", start)
    x, y = _logits_and_labels(logits, labels, "logits", "labels")

    def read(inverse_temperature: float) -> TemperedSums:
        return tempered_sums(x, y, None, {inverse_temperature: ORDER})[inverse_temperature]

    return solve_temperature(read, start=start).point


def suggest_gamma(val_logits: ArrayLike, val_labels: ArrayLike) -> float:
    r"""The training gamma whose built-in sharpening cancels the overconfidence of a cross-entropy model.

    A model trained with focal loss is calibrated on its training data after $\Psi^\gamma$, which acts like a
    temperature $T_\gamma < 1$; its plain softmax is softer by $1/T_\gamma$. If the cross-entropy model needs the
    temperature $T$ on validation data, the gamma with $T_\gamma = 1/T$ gives that softening from the start:

    $$ \gamma = \text{the root of } \mathrm{nearest\_temperature}(\gamma, K) = 1/T $$

    where $T$ is the optimal temperature of `val_logits` (N, K) at `val_labels` (N,). 0 where the model is not
    overconfident ($T \le 1$), and at most 20. The relation is a worst case over all rows of K logits and weakens with
    K: T = 2 suggests 1.8 for 3 classes, 4.1 for 10 and 16 for 100. Read large suggestions as upper ends of a search.

    Source: [komisarenko2024, Sec. 4.1], made into a rule.

    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = torch.randn(2000, 3, generator=generator)
    >>> labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    >>> round(suggest_gamma(2 * logits, labels), 1)  # too sure by a factor of about 2
    1.7
    """
    from scipy.optimize import brentq

    x, y = _logits_and_labels(val_logits, val_labels, "val_logits", "val_labels")
    inverse = 1 / optimal_temperature(x, y)
    num_classes = x.shape[1]
    if inverse >= 1:
        return 0.0
    if nearest_temperature(_GAMMA_MAX, num_classes) >= inverse:
        return _GAMMA_MAX
    root = brentq(lambda gamma: nearest_temperature(gamma, num_classes) - inverse, 0.0, _GAMMA_MAX, xtol=1e-6)
    return float(root)


def _logits_and_labels(logits: ArrayLike, labels: ArrayLike, first: str, second: str) -> tuple[Tensor, Tensor]:
    x, _ = to_tensor(logits, first)
    require(x.dim() == 2 and x.shape[1] >= 2, first, "must have shape (N, K) with K >= 2", tuple(x.shape))
    require(x.shape[0] >= 1, first, "must have at least one row", tuple(x.shape))
    require_scores(x, first)
    classes = to_classes(labels, x, second)
    require_labels_left(x, classes)
    return x.detach(), classes
