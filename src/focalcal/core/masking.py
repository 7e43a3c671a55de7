r"""Masked classes: logits which say that a class is impossible in a row.

A class is masked by the logit `-inf`, by the lowest number of the logits' dtype (`torch.finfo(dtype).min`), or by any
other number that no model means as a score: at or below

| logits given in | masked |
|---|---|
| float16 | -32752, half of its lowest number |
| bfloat16, float32, float64 | -6.6e35, that is -2^119 |

so that a mask survives being added to a logit, rounded, or widened from float32 to float64. The dtype is the one in
which the logits are given: -65504 is a mask in float16 and a logit in float32.

A row with masked classes is a row of its other classes. A masked class has the probability 0, its logit enters nothing,
and it stays masked after calibration. In particular,

- a row that leaves only its label has the loss 0 and the gradient 0, and a masked class has the gradient 0;
- label smoothing and uniform predictions spread over the classes that are left;
- a label that is masked has an infinite NLL: losses and fits refuse the row, measures report the infinity. Compiled
  code and accelerators cannot refuse it: there the loss is infinite;
- a row in which every class is masked is an error.

`unify_masks` is the one place that decides what is masked: whatever comes after it reads `-inf`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focalcal.core.checks import may_read_values
from focalcal.errors import InputError

# Far below any logit, and above what float32 masks become by rounding to bfloat16 or by division by a temperature. A
# power of two is the same number in every dtype: -1e36 would be a mask in float64, and rounded to float32 a logit.
_MASKED = -(2.0**119)


def mask_limit(dtype: torch.dtype) -> float:
    """The number at or below which logits given in this dtype are masked.

    >>> mask_limit(torch.float16), mask_limit(torch.float32)
    (-32752.0, -6.64613997892458e+35)
    """
    return max(torch.finfo(dtype).min / 2, _MASKED)


def has_masks(logits: Tensor, given: torch.dtype | None = None) -> bool:
    """Whether any class is masked in logits that came in the dtype `given`, if not in their own; reads the tensor.

    >>> has_masks(torch.tensor([1.0, -3e38])), has_masks(torch.tensor([1.0, -3e4]))
    (True, False)
    """
    return logits.numel() > 0 and float(logits.detach().amin()) <= mask_limit(given or logits.dtype)


def unify_masks(logits: Tensor, given: torch.dtype | None = None) -> Tensor:
    """The logits with `-inf` at every masked class; the same tensor if none is masked otherwise.

    `given` is the dtype that the logits came in, if they have been converted since. No gradient reaches a masked class.

    >>> unify_masks(torch.tensor([1.0, -3e38, 0.0]))
    tensor([1., -inf, 0.])
    """
    if may_read_values() and logits.is_cpu and not has_masks(logits, given):
        return logits
    return torch.where(logits <= mask_limit(given or logits.dtype), float("-inf"), logits)


def is_masked(logits: Tensor) -> Tensor:
    """Where a class is masked in logits whose masks are unified.

    >>> is_masked(torch.tensor([1.0, float("-inf")]))
    tensor([False,  True])
    """
    return logits == float("-inf")


def without_masks(values: Tensor, masked: Tensor) -> Tensor:
    """The values with 0 at masked classes, for sums in which those must not appear: 0 times infinity is no number."""
    return torch.where(masked, 0.0, values)


def masked_log_softmax(values: Tensor, masked: Tensor) -> Tensor:
    """Log-probabilities (n, K) of the classes that are left, and `-inf` at masked ones.

    >>> masked_log_softmax(torch.zeros(1, 3), torch.tensor([[False, True, False]])).exp()
    tensor([[0.5000, 0.0000, 0.5000]])
    """
    return torch.log_softmax(torch.where(masked, float("-inf"), values), 1)


def require_values(logits: Tensor, argument: str) -> None:
    """Refuse NaN and plus infinity; reads the tensor."""
    if not may_read_values() or bool(torch.isfinite(logits.sum())):  # cheaper than looking at each, and usual
        return
    bad = torch.isnan(logits) | (logits == float("inf"))
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise InputError(
            f"{argument}: every value must be finite; got {logits[place].item()} at index "
            f"{place}. Find out which input made the model overflow, or drop those rows. (-inf masks a class.)"
        )


def require_scores(logits: Tensor, argument: str, classes_at: int = 1) -> None:
    """Refuse NaN, plus infinity and rows in which every class is masked; reads the tensor."""
    require_values(logits, argument)
    if may_read_values() and (none := logits.amax(classes_at) <= mask_limit(logits.dtype)).any():
        place = tuple(none.nonzero()[0].tolist())
        raise InputError(
            f"{argument}: every class is masked at {_named(place)}. Leave at least one class, or drop the row."
        )


class MaskedLabelError(InputError):
    """The label of a row is masked; `row` counts the rows that were given.

    >>> MaskedLabelError(3, 1)
    MaskedLabelError('labels: a label must not be masked; class 1 is, in row 3. Unmask the class, or drop the row.')
    """

    def __init__(self, row: int, label: int, place: tuple[int, ...] = ()) -> None:
        self.row, self.label = row, label
        where = _named(place or (row,))
        super().__init__(
            f"labels: a label must not be masked; class {label} is, in {where}. Unmask the class, or drop the row."
        )

    def at(self, place: tuple[int, ...]) -> MaskedLabelError:
        """The same error for a row that the caller knows by another number, or by an index."""
        return MaskedLabelError(self.row, self.label, place)


def _named(place: tuple[int, ...]) -> str:
    return f"row {place[0]}" if len(place) == 1 else f"index {place}"


def require_labels_left(logits: Tensor, labels: Tensor, counted: Tensor | None = None) -> None:
    """Refuse rows (n, K) whose label (n,) is masked, unless they are not `counted` (n,); reads the labels' logits."""
    masked = logits.detach().gather(1, labels.unsqueeze(1)).squeeze(1) <= mask_limit(logits.dtype)
    masked = masked if counted is None else masked & counted
    if bool(masked.any()):
        row = int(masked.nonzero()[0, 0])
        raise MaskedLabelError(row, int(labels[row]))
