"""Lists of the most likely classes, as inference servers export them, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import SUM_TOLERANCE, Array, ArrayLike, require, to_float_tensor, to_label_tensor
from focalcal.errors import InputError
from focalcal.metrics.truncated.listed_rows import ListedRows
from focalcal.predictions.arrays import checked_weight

# Listed values that are taken together: their temporaries stay in the cache.
_CHUNK = 1 << 18
# OpenAI writes it for "not among the 20 most likely", vLLM for minus infinity: nobody can tell which was meant.
_NO_NUMBER = -9999.0
# Two log-probabilities of one token that were printed with four digits, or computed twice, differ by less.
_SAME = 1e-3
# Raises if any row is bad: which ones, the argument, the rule, the values to show one of, and the way out.
_Refuse: TypeAlias = Callable[[Tensor, str, str, Tensor, str], None]


class TopK:
    r"""The k most likely classes of each row and their log-probabilities: not a whole distribution.

    `classes` (N, k) are their numbers in 0..K-1, in any order, `log_probs` (N, k) natural logarithms, `labels` (N,) the
    true classes and `num_classes` is K, the size of the vocabulary. A row that lists fewer has -inf in the places left
    over, with any number beside it. `label_log_probs` (N,) are those of the labels, NaN where they are not known;
    for a label that is listed it has to agree with the list.

    Nothing is assumed but that the list is the top: no class beyond it is more likely than its last one. Where classes
    are exactly equal, the lower number comes first, as in every measure here. Lists that hold the sampled token in
    addition to the top k (vLLM, OpenAI's completions) are not such lists: take it out and, if it is the label, give it
    as `label_log_probs`.

    The probabilities of a row are trusted to add up within `tolerance`, which is 1e-5, or what half precision can do.
    Within it a sum above 1 is divided out, and what may be left for a label beyond the list is that much larger.

    >>> lists = TopK([[4, 0], [1, 3]], np.log([[0.7, 0.2], [0.5, 0.5]]), [4, 3], num_classes=5)
    >>> len(lists), lists.k
    (2, 2)
    """

    def __init__(
        self,
        classes: ArrayLike,
        log_probs: ArrayLike,
        labels: ArrayLike,
        *,
        num_classes: int,
        label_log_probs: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        tolerance: float | None = None,
    ) -> None:
        given = to_float_tensor(log_probs, "log_probs").detach().cpu()
        rule = "must have shape (N, k) with k >= 1"
        require(given.dim() == 2 and given.shape[1] >= 1, "log_probs", rule, tuple(given.shape))
        rows, self.k = given.shape
        self.log_probs = given if given.dtype in (torch.float32, torch.float64) else given.float()
        self.classes = _shaped(_whole_numbers(classes, "classes"), (rows, self.k), "classes")
        self.labels = _shaped(_whole_numbers(labels, "labels"), (rows,), "labels")
        self.label_log_probs: Tensor | None = None
        if label_log_probs is not None:
            own = to_float_tensor(label_log_probs, "label_log_probs").detach().cpu()
            self.label_log_probs = _shaped(own, (rows,), "label_log_probs")
        self.sample_weight = None if sample_weight is None else checked_weight(sample_weight, (rows,))
        self.tolerance = max(SUM_TOLERANCE, 4 * torch.finfo(given.dtype).eps) if tolerance is None else tolerance
        fine = math.isfinite(self.tolerance) and self.tolerance >= 0
        require(fine, "tolerance", "must be finite and not negative", tolerance)
        whole = isinstance(num_classes, int) and num_classes >= 2
        require(whole, "num_classes", "must be a whole number from 2, the size of the vocabulary", num_classes)
        require(num_classes >= self.k, "num_classes", f"must be at least k = {self.k}", num_classes)
        self.num_classes = num_classes
        for start, part in self._parts():
            _check(self._rows(part), start)

    def __len__(self) -> int:
        return len(self.labels)

    def chunks(self) -> Iterator[tuple[ListedRows, Array | None]]:
        """The rows in order with their weights, some at a time, without those of weight 0."""
        for _, part in self._parts():
            if self.sample_weight is None:
                yield self._rows(part), None
                continue
            weight = self.sample_weight[part]
            held = weight > 0
            if held.all():
                yield self._rows(part), weight
            elif held.any():
                yield self._rows(torch.from_numpy(held).nonzero().squeeze(1) + part.start), weight[held]

    def _parts(self) -> Iterator[tuple[int, slice]]:
        step = max(1, _CHUNK // self.k)
        return ((start, slice(start, start + step)) for start in range(0, len(self), step))

    def _rows(self, part: slice | Tensor) -> ListedRows:
        given = None if self.label_log_probs is None else self.label_log_probs[part]
        return ListedRows(
            self.classes[part], self.log_probs[part], self.labels[part], given, self.num_classes, self.tolerance
        )


def _whole_numbers(values: ArrayLike, argument: str) -> Tensor:
    given = to_label_tensor(values, argument)
    wrong = given.is_floating_point() or given.is_complex() or given.dtype == torch.bool
    # What is empty has no wrong value, whatever dtype it came with.
    require(not wrong or not given.numel(), argument, "must be class numbers", given.dtype, "Convert with .long().")
    return given.detach().cpu() if given.dtype in (torch.int32, torch.int64) else given.detach().to("cpu", torch.int64)


def _shaped(values: Tensor, shape: tuple[int, ...], argument: str) -> Tensor:
    require(tuple(values.shape) == shape, argument, f"must have shape {shape}", tuple(values.shape))
    return values


def _check(rows: ListedRows, start: int) -> None:
    """Refuse what cannot be the top k of a distribution, naming the row."""

    def refuse(bad: Tensor, argument: str, rule: str, got: Tensor, fix: str) -> None:
        if bool(bad.any()):
            row = int(bad.nonzero()[0, 0])
            value = got[row] if got.dim() == 1 else got[row][bad[row]][0]
            raise InputError(f"{argument}: {rule}; got {value.item():.7g} in row {start + row}. {fix}")

    _check_log_probs(rows, refuse)
    _check_classes(rows, refuse)
    if rows.given is not None:
        _check_label_log_probs(rows, rows.given, refuse)
    _check_sums(rows, refuse)


def _check_log_probs(rows: ListedRows, refuse: _Refuse) -> None:
    rule, fix = "every log-probability must be at most 0", "Give natural logarithms of probabilities, not logits."
    refuse(~(rows.raw <= math.log1p(rows.tolerance)), "log_probs", rule, rows.raw, fix)
    rule, fix = "-9999 is no log-probability", "Give -inf where the list has no entry."
    refuse(rows.raw == _NO_NUMBER, "log_probs", rule, rows.raw, fix)
    fix = "Leave out rows of which nothing is known."
    refuse(rows.num_listed < 1, "log_probs", "every row must list at least one class", rows.num_listed, fix)


def _check_classes(rows: ListedRows, refuse: _Refuse) -> None:
    ids, labels, most = rows.classes, rows.labels, rows.num_classes - 1
    fix = "Check num_classes, the size of the vocabulary; places left over have the log-probability -inf."
    outside = rows.listed & ((ids < 0) | (ids > most))
    refuse(outside, "classes", f"every listed class must lie in 0..{most}", ids, fix)
    twice, which = _repeated(ids, rows.listed)
    refuse(twice, "classes", "no class may be listed twice in a row", which, "Keep one entry for each class.")
    fix = "Leave out rows without a label."
    refuse((labels < 0) | (labels > most), "labels", f"every label must lie in 0..{most}", labels, fix)


def _check_sums(rows: ListedRows, refuse: _Refuse) -> None:
    total = rows.listed_sum + rows.outside
    rule = f"the probabilities of a row must not exceed 1 by more than {rows.tolerance:g} in sum"
    fix = "Give natural logarithms of probabilities, and a larger tolerance if few digits were kept."
    refuse(total > 1 + rows.tolerance, "log_probs", rule, total, fix)
    room = total + rows.free * rows.raw_cap.exp()
    rule = "no class beyond the list may exceed its smallest probability, but then those of a row cannot sum to 1"
    fix = "Check num_classes; a sampled token that is not among the top k belongs into label_log_probs."
    refuse(room < 1 - rows.tolerance, "log_probs", rule, room, fix)


def _check_label_log_probs(rows: ListedRows, given: Tensor, refuse: _Refuse) -> None:
    name = "label_log_probs"
    rule, fix = "every log-probability must be at most 0, or NaN where it is not known", "Give natural logarithms."
    refuse(given > math.log1p(rows.tolerance), name, rule, given, fix)
    rule, fix = "-9999 is no log-probability", "Give NaN where it is not known, -inf where it is that of 0."
    refuse(given == _NO_NUMBER, name, rule, given, fix)
    same = _SAME * (1 + rows.listed_label.abs().nan_to_num(posinf=0.0))
    rule, fix = "must agree with the list where the label is listed", "Check that both are of the same position."
    refuse(rows.in_list & ((given - rows.listed_label).abs() > same), name, rule, given, fix)
    rule = "a label beyond the list must not be more likely than the classes on it"
    fix = "Check that both are of the same position, and that the list is the top k."
    over = given > rows.raw_cap + _SAME * (1 + rows.raw_cap.abs())
    refuse(~rows.in_list & over, name, rule, given, fix)


def _repeated(ids: Tensor, listed: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that list a class twice, and that class."""
    if not bool(listed.all()):
        places = torch.arange(ids.shape[1], dtype=ids.dtype)
        ids = torch.where(listed, ids, -1 - places)  # each its own number, and none of a class
    ordered = torch.from_numpy(np.sort(ids.numpy(), axis=1))
    same = ordered[:, 1:] == ordered[:, :-1]
    twice = same.any(1)
    which = ordered[:, 0].clone()
    if bool(twice.any()):
        which[twice] = ordered[twice].gather(1, same[twice].int().argmax(1, keepdim=True)).squeeze(1)
    return twice, which
