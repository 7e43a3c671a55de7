"""Checks at the public entry, and numpy in / numpy out.

A message reads: argument, rule, what came, and the way out. Checks of shapes and dtypes cost nothing; checks of
values read the tensor, so code on a hot path decides when to make them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from focalcal.core.frames import FrameLike, is_frame, numbers_of, read_frame
from focalcal.errors import InputError

Array: TypeAlias = "np.ndarray[Any, Any]"
# What is answered with a tensor, while an array is answered with an array.
TensorLike: TypeAlias = "Tensor | list[Any] | tuple[Any, ...] | float"
ArrayLike: TypeAlias = "Array | TensorLike | FrameLike"
# A function of a tensor or an array that gives the same.
Kept = TypeVar("Kept", Tensor, Array)

# Rows of float32 softmax outputs sum to 1 within about 1e-6; printed and reread ones within 1e-5.
SUM_TOLERANCE = 1e-5


def may_read_values() -> bool:
    """Whether values can be checked: not while `torch.compile` or `torch.func` traces code that has none yet."""
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def require(condition: bool, argument: str, rule: str, got: object, fix: str = "") -> None:
    """Raise an InputError unless `condition` holds.

    >>> require(False, "num_bins", "must be at least 1", 0, "Try 15, as the papers do.")
    Traceback (most recent call last):
    focalcal.errors.InputError: num_bins: must be at least 1; got 0. Try 15, as the papers do.
    """
    if not condition:
        raise InputError(f"{argument}: {rule}; got {got}. {fix}".strip())


def require_whole(value: object, argument: str, least: int, fix: str = "") -> None:
    """Raise an InputError unless a value is a whole number from `least` on.

    >>> require_whole(2.5, "num_bins", 1)
    Traceback (most recent call last):
    focalcal.errors.InputError: num_bins: must be a whole number from 1; got 2.5.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    require(whole and value >= least, argument, f"must be a whole number from {least}", repr(value), fix)  # type: ignore[operator]


def is_number(value: object) -> bool:
    """Whether a value is one real number, of Python or numpy.

    >>> is_number(0.5), is_number("0.5"), is_number(True)
    (True, False, False)
    """
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def require_reduction(reduction: str) -> None:
    """Refuse a reduction that torch does not know either."""
    if reduction not in ("mean", "sum", "none"):
        raise InputError(f"reduction: must be mean, sum or none; got {reduction!r}.")


def require_weight(weight: Tensor | None) -> None:
    """Refuse negative weights; reads the tensor."""
    if weight is not None and may_read_values() and bool((weight < 0).any()):
        raise InputError(f"weight: must not be negative; got {weight.min().item():g} at index {int(weight.argmin())}.")


def to_tensor(values: ArrayLike, argument: str) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """The values as a floating tensor, and the function that gives a result back in the caller's kind.

    Tensors come back as tensors, numpy arrays as arrays; lists and numbers are read as float64 and come back as
    tensors.
    """
    tensor = to_float_tensor(values, argument)
    if isinstance(values, np.ndarray):
        return tensor, lambda result: result.numpy()
    return tensor, lambda result: result


def to_float_tensor(values: ArrayLike, argument: str) -> Tensor:
    """The values as a floating tensor, sharing memory where that is possible; lists and numbers become float64.

    >>> to_float_tensor([0.5, 1.0], "probs")
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    values = own_values(values, argument)
    if isinstance(values, Tensor):
        require_dense(values, argument)
        require(values.is_floating_point(), argument, "must be floating point", values.dtype)
        return values
    if isinstance(values, np.ndarray):
        require(np.issubdtype(values.dtype, np.floating), argument, "must be floating point", values.dtype)
        return from_numpy(values, argument)
    return _of_numbers(values, argument, torch.float64)


def own_values(values: Any, argument: str) -> Any:
    """Data frames, arrays of objects and arrays of other libraries as numpy arrays; all else as it is.

    >>> own_values(np.array([0.5, 1], dtype=object), "probs")
    array([0.5, 1. ])
    """
    if isinstance(values, Tensor):
        return values
    if is_frame(values):
        values = read_frame(values, argument).values
    elif not isinstance(values, (np.ndarray, np.generic)) and hasattr(values, "__array__"):
        values = _foreign_array(values, argument)
    if isinstance(values, np.ndarray) and values.dtype == object:
        return numbers_of(values, argument)
    return values


def _foreign_array(values: Any, argument: str) -> Array:
    try:
        return np.asarray(values)
    except Exception as error:  # whatever the other library says
        raise InputError(
            f"{argument}: this {type(values).__name__} cannot be read as an array. Convert it with np.asarray."
        ) from error


def to_label_tensor(labels: ArrayLike, argument: str) -> Tensor:
    """Labels as a tensor of the type that they came with, sharing memory where that is possible.

    >>> to_label_tensor(np.array([0, 2], dtype=">i4"), "labels")
    tensor([0, 2], dtype=torch.int32)
    """
    labels = own_values(labels, argument)
    if isinstance(labels, Tensor):
        require_dense(labels, argument)
        return labels
    return from_numpy(labels, argument) if isinstance(labels, np.ndarray) else _of_numbers(labels, argument)


def _of_numbers(values: Any, argument: str, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of lists and numbers; the entries of a list may be tensors or arrays."""
    try:
        if isinstance(values, (list, tuple)) and values and _are_arrays(values):
            rows = torch.stack([torch.as_tensor(row).detach().cpu() for row in values])
            return rows if dtype is None else rows.to(dtype)
        return torch.as_tensor(values, dtype=dtype)
    except Exception as error:  # torch raises errors of many kinds
        came, fix = type(values).__name__, ""
        if isinstance(values, (list, tuple)) and _is_ragged(values):
            came, fix = f"a {came} whose rows differ in length", "Give every row one entry for each class."
        raise InputError(
            f"{argument}: must be a tensor, an array, a data frame or numbers; got {came}. {fix}".strip()
        ) from error


def _are_arrays(rows: Sequence[Any]) -> bool:
    return all(isinstance(row, (Tensor, np.ndarray)) for row in rows)


def _is_ragged(rows: Sequence[Any]) -> bool:
    """Whether the rows of a list are lists of different lengths."""
    return all(isinstance(row, (list, tuple)) for row in rows) and len({len(row) for row in rows}) > 1


def from_numpy(values: np.ndarray[Any, Any], argument: str = "array") -> Tensor:
    """A tensor of an array's values, copied only where torch could not share them (read-only or strided backwards)."""
    native = plain_array(values, argument)
    try:
        return torch.from_numpy(np.require(native, requirements=["C", "W"]))
    except TypeError as error:
        raise InputError(f"{argument}: must be an array of numbers; got {values.dtype}.") from error


def plain_array(values: Array, argument: str) -> Array:
    """The array in the byte order of this machine, long doubles as float64; masked values are refused.

    >>> plain_array(np.array([0.5], dtype=">f8"), "probs").dtype.isnative
    True
    """
    if np.ma.is_masked(values):
        raise InputError(f"{argument}: has masked values. Give each a value with .filled(), or leave those rows out.")
    values = np.asarray(values)
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        return values.astype(np.float64)
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def to_array(values: Any, argument: str) -> Array:
    """Values of any kind as an array of this machine, half precision of tensors as float32.

    >>> to_array(torch.tensor([0.5], dtype=torch.bfloat16), "weights")
    array([0.5], dtype=float32)
    """
    if is_frame(values):
        values = read_frame(values, argument).values
    if not isinstance(values, Tensor):
        return plain_array(_any_array(values, argument), argument)
    require_dense(values, argument)
    values = values.detach().cpu()
    narrow = values.is_floating_point() and values.dtype.itemsize < 4
    array: Array = (values.float() if narrow else values).numpy()
    return array


def _any_array(values: Any, argument: str) -> Array:
    try:
        return np.asanyarray(values)
    except Exception as error:  # rows that differ in length, or whatever another library says
        raise InputError(
            f"{argument}: must be a tensor, an array, a data frame or numbers; got {type(values).__name__}. "
            "Give every row equally many entries."
        ) from error


def require_dense(values: Tensor, argument: str) -> None:
    """Refuse sparse and nested tensors."""
    if values.is_nested:
        raise InputError(f"{argument}: must be dense; got a nested tensor. Join its parts with torch.cat.")
    if values.layout is not torch.strided:
        kind = str(values.layout).removeprefix("torch.").lstrip("_").split("_")[0]
        raise InputError(f"{argument}: must be dense; got a {kind} tensor. Convert it with .to_dense().")


def to_classes(labels: ArrayLike, logits: Tensor, argument: str) -> Tensor:
    """Class numbers (N,) for scores (N, K), as int64 and checked; reads the labels."""
    classes = to_label_tensor(labels, argument)
    wrong = classes.is_floating_point() or classes.is_complex() or classes.dtype == torch.bool
    require(not wrong, argument, "must be class numbers", classes.dtype)
    expected = tuple(logits.shape[:1])
    require(tuple(classes.shape) == expected, argument, f"must have shape {expected}", tuple(classes.shape))
    classes = classes.to(logits.device, torch.int64)
    require_label_range(classes, logits.shape[1])
    return classes


def require_finite(values: Tensor, argument: str) -> None:
    """Refuse NaN and infinities, naming the first place."""
    if not may_read_values():
        return
    if values.is_floating_point() and torch.isfinite(values.sum()):  # cheaper than looking at each, and usual
        return
    bad = ~torch.isfinite(values)
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise InputError(
            f"{argument}: every value must be finite; got {values[place].item()} at index {place}. "
            "Find out which input made the model overflow, or drop those rows."
        )


def require_unit_interval(values: Tensor, argument: str) -> None:
    """Refuse anything outside [0, 1], NaN included."""
    require_finite(values, argument)
    if may_read_values() and not bool(((values >= 0) & (values <= 1)).all()):
        raise InputError(f"{argument}: must lie in [0, 1]; got {values.min():.6g}..{values.max():.6g}.")


def require_distribution(probs: Tensor, argument: str, dim: int) -> None:
    """Refuse anything that is not a probability distribution along `dim`."""
    require_finite(probs, argument)
    require(probs.shape[dim] >= 2, argument, "needs at least two classes", f"{probs.shape[dim]} along dim {dim}")
    if not may_read_values():
        return
    rows = probs.movedim(dim, -1).reshape(-1, probs.shape[dim])
    outside = ((rows < 0) | (rows > 1)).any(-1)
    if outside.any():
        row = int(outside.nonzero()[0, 0])
        raise InputError(
            f"{argument}: every entry must lie in [0, 1]; row {row} reaches from {rows[row].min().item():.6g} "
            f"to {rows[row].max().item():.6g}. If these are logits, apply softmax first."
        )
    sums = rows.sum(-1, dtype=torch.float64 if rows.device.type != "mps" else torch.float32)
    # Half precision cannot do better than its own rounding.
    off = (sums - 1).abs() > max(SUM_TOLERANCE, 4 * torch.finfo(probs.dtype).eps)
    if off.any():
        row = int(off.nonzero()[0, 0])
        raise InputError(
            f"{argument}: each row must sum to 1 within {SUM_TOLERANCE:g}; row {row} sums to "
            f"{sums[row].item():.6g}. If these are logits, apply softmax first."
        )


_FLOATS = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})


def is_plain_batch(logits: object, labels: object) -> bool:
    """Whether this is the commonest batch, logits (N, K) and class numbers (N,): then there is nothing more to check.

    >>> is_plain_batch(torch.zeros(2, 3), torch.tensor([0, 1])), is_plain_batch(torch.zeros(2, 3), torch.zeros(2, 3))
    (True, False)
    """
    if not (isinstance(logits, Tensor) and isinstance(labels, Tensor)):
        return False
    if not (logits.layout is labels.layout is torch.strided) or logits.is_nested:
        return False
    shape = logits.shape
    if len(shape) != 2 or shape[0] < 1 or shape[1] < 2:
        return False
    return labels.dtype is torch.int64 and logits.dtype in _FLOATS and labels.shape == shape[:1]


def require_logits(logits: Tensor, argument: str = "logits") -> None:
    """Refuse logits whose dtype or shape cannot be right; looks at no value."""
    if not isinstance(logits, Tensor):
        raise InputError(f"{argument}: must be a tensor; got {type(logits).__name__}. Use torch.as_tensor.")
    require_dense(logits, argument)
    if not logits.is_floating_point():
        raise InputError(f"{argument}: must be floating point; got {logits.dtype}. Convert with .float().")
    if logits.dim() == 0:
        raise InputError(f"{argument}: must have shape (K,), (N, K) or (N, K, d1, ...); got a single number.")
    num_classes = logits.shape[0] if logits.dim() == 1 else logits.shape[1]
    if num_classes < 2:
        raise InputError(
            f"{argument}: needs at least two classes; got shape {tuple(logits.shape)}. "
            "For one score per sample use BinaryFocalLoss or sigmoid_focal_loss."
        )
    if logits.numel() == 0:
        raise InputError(f"{argument}: the batch is empty; got shape {tuple(logits.shape)}. Skip empty batches.")


def require_labels(labels: Tensor, logits: Tensor, argument: str = "labels") -> bool:
    """Refuse labels that do not fit the logits; looks at no value. True if the labels are soft (probabilities)."""
    if not isinstance(labels, Tensor):
        raise InputError(f"{argument}: must be a tensor; got {type(labels).__name__}. Use torch.as_tensor.")
    require_dense(labels, argument)
    if labels.is_floating_point():
        if labels.shape != logits.shape:
            raise InputError(
                f"{argument}: floating-point labels are soft targets and must have the logits' shape "
                f"{tuple(logits.shape)}; got {tuple(labels.shape)} {labels.dtype}. For class numbers use .long()."
            )
        return True
    if labels.dtype == torch.bool or labels.is_complex():
        raise InputError(f"{argument}: must be class numbers; got {labels.dtype}. Convert with .long().")
    if labels.dim() != max(logits.dim() - 1, 0) or labels.shape != logits.shape[:1] + logits.shape[2:]:
        expected = () if logits.dim() == 1 else tuple(logits.shape[:1] + logits.shape[2:])
        if tuple(labels.shape) != expected:
            raise InputError(
                f"{argument}: for logits of shape {tuple(logits.shape)} must have shape {expected}; "
                f"got {tuple(labels.shape)}."
            )
    return False


def require_label_range(labels: Tensor, num_classes: int, ignore_index: int | None = None) -> None:
    """Refuse class numbers outside 0..K-1, naming the first; reads the labels."""
    if not may_read_values():
        return
    bad = (labels < 0) | (labels >= num_classes)
    if ignore_index is not None:
        bad &= labels != ignore_index
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        ignoring = "" if ignore_index is None else f" or be ignore_index={ignore_index}"
        raise InputError(
            f"labels: every label must lie in 0..{num_classes - 1}{ignoring}; got {int(labels[place])} at "
            f"index {place}. Check that labels count from 0 and that the last layer has one output per class."
        )
