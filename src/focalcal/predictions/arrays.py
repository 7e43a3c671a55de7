"""Scores and labels as arrays: checked, and read in chunks of rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import (
    SUM_TOLERANCE,
    Array,
    ArrayLike,
    own_values,
    plain_array,
    require,
    require_label_range,
    require_whole,
    to_array,
    to_float_tensor,
)
from focalcal.core.frames import is_frame, read_frame
from focalcal.core.masking import MaskedLabelError, mask_limit, unify_masks
from focalcal.core.score_kinds import (
    GivenKind,
    Kind,
    plain_kind,
    rounded_to,
    rounding_of_sums,
    rounding_words,
    with_unit_sums,
)
from focalcal.errors import InputError, InputWarning
from focalcal.kernels.class_bins import ClassBinSums
from focalcal.kernels.compiled import compiled_kernels
from focalcal.kernels.extremes import extremes, largest_sum_error
from focalcal.kernels.rows import read_rows
from focalcal.predictions.labels import ClassNames, read_labels

Target = Literal["top_label", "positive", "classwise"] | int

# Scores that are taken together: small enough for the cache, large enough that calls cost nothing. The compiled kernels
# have blocks of their own and make no temporaries.
CHUNK_VALUES = 1 << 19
_CHUNK = {"cpu": CHUNK_VALUES if compiled_kernels() is None else 1 << 23}
_CHUNK_ON_ACCELERATORS = 1 << 25


@dataclass(frozen=True)
class Chunk:
    """Some rows of the input: scores (n, K), labels (n,), and weights (n,) or None.

    Logits are as they were given, in any precision and with any mask; probabilities sum to 1. The labels are empty
    where there are none.
    """

    given: Tensor
    labels: Tensor
    weight: Array | None
    kind: Kind = "logits"

    @cached_property
    def scores(self) -> Tensor:
        """The scores in float32 or float64, with -inf at masked classes."""
        return plain_scores(self.given, self.kind)

    def columns(
        self, names: Sequence[str], target: int | None = None, class_sums: ClassBinSums | None = None
    ) -> dict[str, Array]:
        """The named columns of these rows, as `read_rows` gives them; adds to the sums of every class on the way."""
        labels = self.labels if len(self.labels) else None
        options: dict[str, Any] = {"target": target, "class_sums": class_sums, "weight": self.weight}
        return read_rows(self.given, labels, self.kind, names, **options)

    def take(self, rows: Tensor) -> Chunk:
        """Some of the rows, by their numbers."""
        weight = None if self.weight is None else self.weight[rows.cpu().numpy()]
        return Chunk(self.given[rows], self.labels[rows], weight, self.kind)


def plain_scores(given: Tensor, kind: Kind) -> Tensor:
    """Scores in float32 or float64, with -inf at masked classes.

    >>> plain_scores(torch.tensor([[1.0, -60000.0]], dtype=torch.float16), "logits")
    tensor([[1., -inf]])
    """
    scores = given if given.dtype in (torch.float32, torch.float64) else given.float()
    return scores if kind == "probs" else unify_masks(scores, given.dtype)


class Predictions:
    """Scores and labels as the caller gave them, checked; read in chunks, so that nothing is copied as a whole.

    Scores are (N, K), (N,) of the positive class of two, or (N, K, d1, ...) with the classes along `class_axis`, for
    example -1 for tokens (B, T, K). They may be data frames, whose columns are the classes. Labels are read as by
    `read_labels`, and `class_names` are the names of the classes, if these are known.

    >>> predictions = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> predictions.num_classes, len(list(predictions.chunks()))
    (2, 1)
    """

    def __init__(
        self,
        scores: ArrayLike,
        labels: ArrayLike | None,
        *,
        kind: GivenKind = "logits",
        sample_weight: ArrayLike | None = None,
        ignore_index: int | None = None,
        class_axis: int = 1,
        class_names: Sequence[str] | None = None,
        argument: str = "scores",
        may_be_empty: bool = False,
    ) -> None:
        self.kind: Kind = plain_kind(kind)
        if ignore_index is not None:
            require_whole(ignore_index, "ignore_index", -(2**63))
        self.ignore_index, self.argument, self._may_be_empty = ignore_index, argument, may_be_empty
        self._scores, columns = _read_scores(scores, argument)
        given = self._scores.dtype
        # Half precision cannot do better than its own rounding, also after it was widened.
        self._epsilon = torch.finfo(given).eps if isinstance(given, torch.dtype) else float(np.finfo(given).eps)
        self._tolerance = max(SUM_TOLERANCE, 4 * self._epsilon)
        self.given_shape = tuple(self._scores.shape)
        self.class_axis = _checked_axis(class_axis, len(self.given_shape), argument)
        if self.class_axis != 1 and len(self.given_shape) > 1:
            self._scores = _moved(self._scores, self.class_axis, 1)
        shape = tuple(self._scores.shape)
        empty = 0 in (shape[1:] if may_be_empty else shape)
        require(not empty, argument, "must have at least one row", f"shape {self.given_shape}")
        self.binary = len(shape) == 1
        self.num_classes = 2 if self.binary else shape[1]
        fix = "Binary scores of the positive class have shape (N,)."
        require(self.num_classes >= 2, argument, "needs at least two classes", f"shape {self.given_shape}", fix)
        self.place = shape[:1] if self.binary else shape[:1] + shape[2:]
        self.num_rows = int(np.prod(self.place))
        self._told_of_rounding = False
        names = None if columns is None or len(shape) != 2 else ClassNames.of_columns(columns)
        names = names if class_names is None else ClassNames.of_argument(class_names, self.num_classes)
        self.class_names = None if names is None else names.names
        self._labels = None if labels is None else self._checked_labels(labels, names)
        self._weight = None if sample_weight is None else checked_weight(sample_weight, self.place)
        some = self._weight is None or may_be_empty or bool(self._weight.any())
        require(some, "sample_weight", "must have a positive entry", "only zeros")

    def _checked_labels(self, labels: ArrayLike, names: ClassNames | None) -> Tensor:
        given, self.class_names = read_labels(labels, self.num_classes, names, self.ignore_index)
        came = tuple(given.shape)
        if came != self.place:
            raise InputError(f"labels: must have shape {self.place}; got {came}.{self._transposed(came)}")
        if given.numel() and (int(given.min()) < 0 or int(given.max()) >= self.num_classes):
            require_label_range(given, self.num_classes, self.ignore_index)
        return given

    def _transposed(self, came: tuple[int, ...]) -> str:
        """The axis of the classes that labels of this shape belong to, if another one does."""
        shape = self.given_shape
        if came == shape:
            return " They have a value for every class: take their argmax along the classes."
        fits = [axis for axis in range(1, len(shape)) if shape[:axis] + shape[axis + 1 :] == came]
        if len(shape) < 3 or not fits:
            return ""
        axis = -1 if fits[-1] == len(shape) - 1 else fits[-1]
        return (
            f" The classes are read along axis {self.class_axis} of {self.argument} {shape}. If they are along axis "
            f"{axis}, pass class_axis={axis}; else transpose the labels."
        )

    def chunks(self, *, check: bool = True, masked_labels: bool = True) -> Iterator[Chunk]:
        """The rows in order, flattened to (n, K), without ignored ones; checks every value on the way.

        A second pass over the same rows may leave out the checks. Classes that are masked have the logit -inf, however
        they were given; a fit has no use for rows whose label is masked and refuses `masked_labels`.
        """
        elements = _CHUNK.get(
            self._scores.device.type if isinstance(self._scores, Tensor) else "cpu", _CHUNK_ON_ACCELERATORS
        )
        per_row = 2 if self.binary else int(np.prod(self._scores.shape[1:]))
        step, found = max(1, elements // per_row), False
        for start in range(0, self._scores.shape[0], step):
            part = slice(start, start + step)
            scores = self._flat(to_float_tensor(self._scores[part], self.argument))
            labels = None if self._labels is None else self._labels[part].reshape(-1)
            weight = None if self._weight is None else self._weight[part].reshape(-1)
            keep = self._kept(labels, weight)
            if keep is not None:
                scores, labels = scores[keep.to(scores.device)], None if labels is None else labels[keep]
                weight = None if weight is None else weight[keep.numpy()]
            if not len(scores):
                continue
            if check:
                self._check(scores, start * (per_row // self.num_classes), keep)
            if self.kind == "logits" and labels is not None and not masked_labels:
                self._check_labels(scores, labels, start * (per_row // self.num_classes), keep)
            if check and not found and self.kind == "logits":
                self._warn_of_probabilities(scores)
            found = True
            labels = scores.new_empty(0, dtype=torch.int64) if labels is None else labels.to(scores.device)
            yield Chunk(self._with_unit_sums(scores), labels, weight, self.kind)
        rule = "must have a row that is not ignored and has a weight"
        require(found or self._may_be_empty, "labels", rule, f"ignore_index={self.ignore_index} or weight 0 everywhere")

    def take(self, rows: Array) -> Predictions:
        """Some of the rows of scores (N, K) or (N,): a mask, or their numbers."""
        place = torch.from_numpy(rows)
        part = copy(self)
        part._scores = self._scores[place if isinstance(self._scores, Tensor) else rows]
        part._labels = None if self._labels is None else self._labels[place]
        part._weight = None if self._weight is None else self._weight[rows]
        part.num_rows = len(part._scores)
        part.place = (part.num_rows,)
        part._may_be_empty = True
        return part

    def counted(self) -> Array:
        """Which of all rows, flattened, count: those that are not ignored and have a weight."""
        labels = None if self._labels is None else self._labels.reshape(-1)
        keep = self._kept(labels, None if self._weight is None else self._weight.reshape(-1))
        return np.ones(self.num_rows, dtype=bool) if keep is None else keep.numpy()

    def _kept(self, labels: Tensor | None, weight: Array | None) -> Tensor | None:
        """Which rows count: those that are not ignored and have a weight. None if that is all of them."""
        keep = None
        if self.ignore_index is not None and labels is not None:
            keep = labels != self.ignore_index
        if weight is not None and not weight.all():
            some = torch.from_numpy(weight > 0)
            keep = some if keep is None else keep & some
        return keep

    def _flat(self, scores: Tensor) -> Tensor:
        """Rows (n, K) of scores of any shape, as they were given."""
        scores = scores.detach()
        if not self.binary:
            # Row-major, because torch adds up the columns of other layouts in another order for larger batches.
            return scores.contiguous() if scores.dim() == 2 else scores.movedim(1, -1).reshape(-1, self.num_classes)
        scores = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
        if self.kind == "logits":
            other = torch.zeros_like(scores)
        elif self.kind == "probs":
            other = 1 - scores
        else:
            other = torch.log(-torch.expm1(scores))
        return torch.stack([other, scores], 1)

    def _with_unit_sums(self, scores: Tensor) -> Tensor:
        """Probabilities in float32 or float64 whose rows sum to 1; logits as they are."""
        if self.kind == "logits":
            return scores
        scores = plain_scores(scores, self.kind)
        fine = largest_sum_error(scores, self.kind) <= rounding_of_sums(self.num_classes, self._epsilon)
        return scores if fine else with_unit_sums(scores, self.kind, self._epsilon)

    def _warn_of_probabilities(self, scores: Tensor) -> None:
        """Warn once if the values given as logits look like probabilities; they are read as logits all the same."""
        column = scores[:, 1:] if self.binary else scores
        lowest, highest, _ = extremes(column)
        if lowest < 0 or highest > 1:
            return
        if self.binary:
            suspicious = len(column) >= 10 and bool((column != column[0]).any())
        else:
            suspicious = bool(((scores.sum(1) - 1).abs() < 1e-3).all()) and bool(((scores > 0) & (scores < 1)).any())
        if suspicious:
            warnings.warn(
                f'{self.argument}: these values look like probabilities but are taken as logits; pass kind="probs".',
                InputWarning,
                stacklevel=6,
            )

    def _check(self, scores: Tensor, start: int, keep: Tensor | None) -> None:
        """Refuse values that are no scores of this kind, naming the row."""
        if not self._is_suspicious(scores):
            return
        scores = plain_scores(scores, self.kind)

        def row(bad: Tensor) -> int:
            return _given_row(int(bad.nonzero()[0, 0]), start, keep)

        if not bool(torch.isfinite(scores.sum())):  # cheap; overflow and -inf are told apart below
            # Minus infinity is the logarithm of 0, or masks a class.
            bad = torch.isnan(scores) | (scores == float("inf"))
            if bad.any():
                raise InputError(
                    f"{self.argument}: every value must be finite; got {scores[bad][0].item()} in row "
                    f"{row(bad.any(1))}. Find out which input made the model overflow, or drop those rows."
                )
            none = scores.amax(1) == float("-inf")
            if self.kind == "logits" and none.any():
                raise InputError(
                    f"{self.argument}: every class is masked in row {row(none)}. Leave at least one class, or drop "
                    "the row."
                )
        if self.kind == "logits":
            return
        probs = scores if self.kind == "probs" else scores.exp()
        outside = ((probs < 0) | (probs > 1 + self._tolerance)).any(1)
        if outside.any():
            raise InputError(
                f"{self.argument}: every probability must lie in [0, 1]; row {row(outside)} does not. "
                'If these are logits, pass kind="logits".'
            )
        sums = probs.sum(1)
        off = (sums - 1).abs() > self._tolerance
        digits = rounded_to(probs[off], sums[off], self._epsilon) if self.kind == "probs" else None
        if digits is not None:
            self._warn_of_rounding(digits)
        elif off.any():
            fix = "Give the probabilities of all classes, or divide each row by its sum."
            fix = fix if self.kind == "probs" else 'If these are logits, pass kind="logits".'
            raise InputError(
                f"{self.argument}: each row must sum to 1 within {self._tolerance:g}; row {row(off)} sums to "
                f"{sums[off][0].item():.6g}. {fix}"
            )

    def _warn_of_rounding(self, digits: int) -> None:
        """Warn once that rows do not sum to 1 because their probabilities were rounded."""
        if not self._told_of_rounding:
            self._told_of_rounding = True
            warnings.warn(f"{self.argument}: {rounding_words(digits)}", InputWarning, stacklevel=7)

    def _is_suspicious(self, scores: Tensor) -> bool:
        """Whether a closer look is needed: a few numbers say of most batches that nothing is wrong with them."""
        lowest, highest, has_nan = extremes(scores)
        if has_nan or highest == math.inf:
            return True
        if self.kind == "logits":
            return lowest <= mask_limit(scores.dtype)
        outside = self.kind == "probs" and (lowest < 0 or highest > 1 + self._tolerance)
        return outside or not largest_sum_error(scores, self.kind) <= self._tolerance

    def _check_labels(self, scores: Tensor, labels: Tensor, start: int, keep: Tensor | None) -> None:
        """Refuse a label that is masked in its row, naming the row."""
        of_label = scores.gather(1, labels.to(scores.device).unsqueeze(1)).squeeze(1)
        masked = of_label <= mask_limit(scores.dtype)
        if masked.any():
            place = int(masked.nonzero()[0, 0])
            raise MaskedLabelError(_given_row(place, start, keep), int(labels[place]))


def _given_row(place: int, start: int, keep: Tensor | None) -> int:
    """The number of a row as the caller counts, from its place among those that are kept of the rows from `start`."""
    return start + (place if keep is None else int(keep.nonzero()[place, 0]))


def checked_weight(weight: ArrayLike, place: tuple[int, ...]) -> Array:
    """Sample weights in float64, of the shape that labels have."""
    given = to_array(weight, "sample_weight")
    require(given.dtype.kind in "fiub", "sample_weight", "must be numbers", given.dtype)
    require(given.shape == place, "sample_weight", f"must have shape {place}", given.shape)
    given = given.astype(np.float64)
    require(bool(np.isfinite(given).all()), "sample_weight", "must be finite", "NaN or infinity")
    if (given < 0).any():
        raise InputError(
            f"sample_weight: must not be negative; got {given.min():g} at index {int(given.reshape(-1).argmin())}."
        )
    return given


def _read_scores(scores: ArrayLike, argument: str) -> tuple[Tensor | Array, tuple[str, ...] | None]:
    """Scores as a tensor or an array of floating point, and the names of the columns if they are a data frame."""
    columns = None
    if is_frame(scores):
        frame = read_frame(scores, argument)
        scores, columns = frame.values, frame.names
    values = own_values(scores, argument)
    read = plain_array(values, argument) if isinstance(values, np.ndarray) else to_float_tensor(values, argument)
    floating = isinstance(read, Tensor) or np.issubdtype(read.dtype, np.floating)
    require(floating, argument, "must be floating point", read.dtype, "Convert with .astype(float).")
    shape = "must have shape (N, K), (N,) or (N, K, d1, ...)"
    require(len(read.shape) >= 1, argument, shape, "a single number")
    return read, columns


def _checked_axis(class_axis: int, dimensions: int, argument: str) -> int:
    """The axis of the classes, counted from 0; scores (N,) have none."""
    whole = isinstance(class_axis, (int, np.integer)) and not isinstance(class_axis, bool)
    rule = "must be the number of the axis that has the classes"
    require(whole, "class_axis", rule, repr(class_axis), "It is 1 for scores (N, K, ...) and -1 for (B, T, K).")
    if dimensions == 1:
        return 1
    axis = class_axis + dimensions if class_axis < 0 else class_axis
    fix = f"{argument} have {dimensions} dimensions, of which the first are the samples."
    require(1 <= axis < dimensions, "class_axis", f"must lie in 1..{dimensions - 1}, or be negative", class_axis, fix)
    return int(axis)


def _moved(scores: Tensor | Array, axis: int, to: int) -> Tensor | Array:
    return scores.movedim(axis, to) if isinstance(scores, Tensor) else np.moveaxis(scores, axis, to)
