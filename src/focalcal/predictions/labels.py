"""Labels as class numbers, whatever they came as: numbers, booleans, text or categories, in arrays, lists or frames."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import Array, plain_array, require, require_dense
from focalcal.core.frames import FrameValues, is_frame, read_frame
from focalcal.errors import InputError

_KIND_PREFIX = re.compile(r"(?:logits?|log_?probs?|probs?|proba|scores?)[_.:]")
# As many names are listed in a message.
_SHOWN = 8


@dataclass(frozen=True)
class ClassNames:
    """The names of the classes in the order of the scores, and where they came from, for messages."""

    names: tuple[str, ...]
    source: str

    @staticmethod
    def of_columns(names: tuple[str, ...]) -> ClassNames | None:
        """The names of a frame's columns; None where these are 0, 1, 2, ... and say nothing.

        >>> ClassNames.of_columns(("prob_cat", "prob_dog")).names, ClassNames.of_columns(("0", "1"))
        (('cat', 'dog'), None)
        """
        begins = {match.group() if (match := _KIND_PREFIX.match(name)) else "" for name in names}
        if len(begins) == 1:
            names = tuple(name[len(next(iter(begins))) :] for name in names)
        if names == tuple(str(k) for k in range(len(names))):
            return None
        return ClassNames(names, "the columns of the scores")

    @staticmethod
    def of_argument(names: Any, num_classes: int) -> ClassNames:
        """The names that the caller gave."""
        fine = isinstance(names, Sequence) and not isinstance(names, (str, bytes))
        fine = fine and all(isinstance(each, (str, int, np.integer)) for each in names)
        require(fine, "class_names", "must be a list of names, one for each class", type(names).__name__)
        given = tuple(str(each) for each in names)
        require(len(given) == num_classes, "class_names", f"must name each of the {num_classes} classes", len(given))
        require(len(set(given)) == len(given), "class_names", "must differ from one another", listed(given))
        return ClassNames(given, "class_names")

    def number(self, values: Array) -> Array:
        """The class numbers of labels that are names."""
        texts, inverse = np.unique(values.astype(str), return_inverse=True)
        if len(set(self.names)) < len(self.names):
            raise InputError(f"labels: are names, but two of {self.source} share one. Give each class its own name.")
        known = {name: k for k, name in enumerate(self.names)}
        unknown = next((text for text in texts.tolist() if text not in known), None)
        if unknown is not None:
            raise InputError(
                f"labels: every label must be one of {self.source}, {listed(self.names)}; got {unknown!r}. "
                "Name the classes as the labels do, or give class numbers."
            )
        codes = np.array([known[text] for text in texts.tolist()], dtype=np.int64)
        return np.asarray(codes[inverse].reshape(values.shape))


def listed(names: Sequence[str]) -> str:
    """The first few names, as a sentence has them.

    >>> listed(["cat", "dog"])
    'cat, dog'
    """
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def read_labels(
    labels: Any, num_classes: int, names: ClassNames | None, ignore_index: int | None = None
) -> tuple[Tensor, tuple[str, ...] | None]:
    """Labels of any kind as class numbers (int64, on the CPU), and the names of the classes if there are any.

    Whole numbers count from 0, also as floats; booleans are the classes 0 and 1 of two. Text is looked up among
    `names`, if there are any. Else the sorted labels are the names of the classes, of which each must occur. Where the
    names are numbers, such as those of the columns 1, 2 and 3, a label is a name and not a position; `ignore_index` is
    neither.

    >>> read_labels(["dog", "cat", "dog"], 2, None)
    (tensor([1, 0, 1]), ('cat', 'dog'))
    """
    if isinstance(labels, Tensor):
        require_dense(labels, "labels")
        labels = labels.detach().cpu()
        if not labels.is_floating_point() and not labels.is_complex() and labels.dtype != torch.bool and names is None:
            return labels.long(), None
        require(not labels.is_complex(), "labels", "must be class numbers or names", labels.dtype)
        frame = FrameValues((labels.double() if labels.is_floating_point() else labels).numpy())
    else:
        frame = _as_array(labels)
    values = frame.values
    if not values.size:
        return torch.zeros(values.shape, dtype=torch.int64), None
    values = plain_labels(values)
    numbers = _numbers_by_name(values, names, ignore_index)
    if numbers is not None:
        assert names is not None
        return torch.from_numpy(numbers), names.names
    if values.dtype.kind == "U":
        found = names or _sorted_names(values, frame, num_classes)
        if found is not None:
            return torch.from_numpy(found.number(values)), found.names
        values = values.astype(np.int64)
    if values.dtype.kind == "b":
        fix = "Booleans are the classes 0 and 1 of two."
        require(num_classes == 2, "labels", f"must be numbers or names of {num_classes} classes", "booleans", fix)
    whole = np.require(values.astype(np.int64, copy=False), requirements=["C", "W"])
    return torch.from_numpy(whole), None if names is None else names.names


def _as_array(labels: Any) -> FrameValues:
    """Labels as an array of any dtype, and their categories if they are categorical."""
    if is_frame(labels):
        return read_frame(labels, "labels")
    if isinstance(labels, np.ndarray):
        return FrameValues(plain_array(labels, "labels"))
    if isinstance(labels, (list, tuple)) and labels and all(isinstance(each, Tensor) for each in labels):
        labels = [each.detach().cpu().numpy() for each in labels]
    try:
        array = np.array(labels)
    except Exception as error:  # rows that differ in length, or whatever another library says
        raise InputError(
            f"labels: must be class numbers or names in an array, a list or a column; got {type(labels).__name__}. "
            "Give every row one label."
        ) from error
    # numpy writes what is not text as text if some of it is.
    return FrameValues(np.array(labels, dtype=object) if array.dtype.kind in "US" else array)


def plain_labels(values: Array) -> Array:
    """Labels as int, bool or str; refuses what is none of these, and numbers that are not whole.

    >>> plain_labels(np.array([0.0, 2.0]))
    array([0, 2])
    """
    if values.dtype.kind in "iubU":
        return values
    if values.dtype.kind == "S":
        return _decoded(values)
    if values.dtype.kind == "O":
        values = _of_objects(values)
        if values.dtype.kind != "f":
            return values
    if values.dtype.kind != "f":
        fix = "Count the classes from 0, or give their names."
        require(False, "labels", "must be class numbers or names", values.dtype, fix)
    bad = ~(np.isfinite(values) & (values == np.round(values)) & (np.abs(values) < 2.0**53))
    if bad.any():
        place = tuple(int(k) for k in np.argwhere(bad)[0])
        fix = "Labels are one class each: take the argmax of probabilities." if values.ndim > 1 else ""
        fix = "Drop rows without a label." if np.isnan(values[place]) else fix
        require(False, "labels", "must be whole numbers or names", f"{values[place]} at index {place}", fix)
    return values.astype(np.int64)


def _decoded(values: Array) -> Array:
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"labels: must be UTF-8 text; got other bytes ({error.reason}). Give them as str.") from error


def _of_objects(values: Array) -> Array:
    """An array of Python objects that are all text, all booleans or all numbers as an array of that type."""
    flat = values.reshape(-1).tolist()
    if all(isinstance(each, str) for each in flat):
        return values.astype(str)
    if all(isinstance(each, bytes) for each in flat):
        return _decoded(values.astype(bytes))
    if all(isinstance(each, (bool, np.bool_)) for each in flat):
        return values.astype(bool)
    if all(isinstance(each, (int, float, Decimal, np.integer, np.floating)) for each in flat):
        try:
            whole = all(isinstance(each, (int, np.integer)) for each in flat)
            return values.astype(np.int64 if whole else np.float64)
        except OverflowError as error:
            raise InputError("labels: must be class numbers; got one of more than 18 digits. Count from 0.") from error
    missing = next((place for place, each in enumerate(flat) if _is_missing(each)), None)
    if missing is not None:
        raise InputError(f"labels: has a missing value in row {missing}. Drop rows without a label.")
    kinds = sorted({type(each).__name__ for each in flat})
    raise InputError(f"labels: must all be numbers or all be names; got {', '.join(kinds[:3])}. Convert them to one.")


def _is_missing(value: object) -> bool:
    nameless = type(value).__name__ in ("NoneType", "NAType", "NaTType")  # the last two are pandas'
    return nameless or (isinstance(value, (float, np.floating)) and bool(np.isnan(value)))


def _numbers_by_name(values: Array, names: ClassNames | None, ignore_index: int | None) -> Array | None:
    """Numbers and booleans looked up among names that are numbers or booleans themselves; None if they are not."""
    if names is None or values.dtype.kind not in "iub":
        return None
    if values.dtype.kind == "b":
        return names.number(values) if set(names.names) == {"False", "True"} else None
    if not all(re.fullmatch(r"[+-]?[0-9]+", each) for each in names.names):
        return None
    numbers, counted = values.astype(np.int64), values != ignore_index
    numbers[counted] = names.number(values[counted])
    return numbers


def _sorted_names(values: Array, frame: FrameValues, num_classes: int) -> ClassNames | None:
    """The sorted labels as names of the classes; None if they are numbers written as text."""
    texts = tuple(np.unique(values).tolist())
    if texts and all(re.fullmatch(r"[0-9]{1,18}", text) for text in texts):
        return None
    names = texts if frame.categories is None else tuple(sorted(frame.categories))
    if len(names) != num_classes:
        raise InputError(
            f"labels: must name all {num_classes} classes of the scores, as nothing else says which is which; got "
            f"{len(names)} names ({listed(names)}). Give class_names, or scores as a data frame with named columns."
        )
    if frame.ordered and frame.categories is not None and names != frame.categories:
        raise InputError(
            f"labels: their categories are in the order {listed(frame.categories)}, which is not that of the alphabet, "
            "so that it is not known which class is which. Give class_names in the order of the scores."
        )
    return ClassNames(names, "the classes")
