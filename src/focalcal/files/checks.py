"""Checks of tables read from files: shapes, labels, weights and values; every message names the file and the row."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from focalcal.core.checks import SUM_TOLERANCE, Array, from_numpy
from focalcal.core.masking import has_masks, mask_limit, unify_masks
from focalcal.core.score_kinds import Kind, rounded_to, rounding_words
from focalcal.errors import InputError, InputWarning
from focalcal.files.messages import listed
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.printable import shown

Where = Callable[[int], str]
_USUAL = Columns()


class NoRowsError(InputError):
    """A file has no rows. Among others it is passed over, as long as one of them has some."""


def no_rows(name: str, num_shards: int = 1) -> NoRowsError:
    """The error for a file or several shards without rows.

    >>> print(no_rows("val.npz"))
    val.npz: has no rows. Give a file that has some.
    """
    what = "has no rows" if num_shards == 1 else f"none of its {num_shards:,} shards has rows"
    return NoRowsError(f"{name}: {what}. Give a file that has some.")


def checked(
    table: PredictionTable,
    *,
    need_labels: bool,
    columns: Columns = _USUAL,
    before: int = 0,
    keep_half: bool = False,
) -> PredictionTable:
    """Check a table and return it with scores in float32 or float64, labels in int64 and weights in float64.

    `before` rows of the file came before these. With `keep_half`, logits of half precision stay as they are, for who
    widens them in the cache. Rows that `columns` says to ignore are left out.
    """
    table = replace(table, class_names=columns.names_of(table.name, table.class_names))
    name = table.name
    check_shape(name, table.scores.shape)
    if need_labels and table.labels is None:
        if name.endswith(".npy"):
            raise InputError(f"{name}: has no labels beside it. Name their file with --labels LABELS.npy.")
        raise InputError(f"{name}: has no labels; looked for labels and label. Name them with --labels KEY.")
    labels = None if table.labels is None else _checked_labels(table, table.labels, before, columns)
    scores = check_scores(name, table.scores, table.kind, lambda row: f"row {before + row}", keep_half=keep_half)
    weights = None if table.weights is None else _checked_weights(table, table.weights, before)
    if table.split is not None:
        _require_rows(table, "split", table.split)
    names = table.class_names
    if names is not None and len(names) != table.num_classes:
        raise InputError(
            f"{name}: has {len(names)} class names for {table.num_classes} classes. Give each class one name."
        )
    fine = replace(table, scores=scores, labels=labels, weights=weights)
    if columns.ignore_index is None or labels is None:
        return fine
    return fine.take(labels != columns.ignore_index)


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Refuse scores without rows or with fewer than two classes."""
    if shape[0] == 0:
        raise no_rows(name)
    check_classes(name, shape)


def check_classes(name: str, shape: tuple[int, ...]) -> None:
    """Refuse scores with fewer than two classes."""
    if len(shape) == 2 and shape[1] < 2:
        raise InputError(
            f"{name}: scores need at least two classes; got shape {shape}. Binary scores of the positive class have "
            "shape (rows,): one column named logit or prob, or scores[:, 0] saved."
        )


def check_scores(name: str, scores: Array, kind: Kind, where: Where, *, keep_half: bool = False) -> Array:
    """Check that every value is possible for its kind and return scores in float32 or float64; `where` names a row."""
    if scores.dtype.kind != "f":
        raise InputError(
            f"{name}: scores must be floating point; got {scores.dtype}. Convert with .astype(np.float32)."
        )
    tolerance = max(SUM_TOLERANCE, 4 * float(np.finfo(scores.dtype).eps))
    half = scores.dtype.itemsize < 4
    if half and not (keep_half and kind == "logits"):
        scores = widened(scores, kind)
    check_shape(name, scores.shape)
    rows = scores.reshape(len(scores), -1)
    if not _surely_finite(rows):
        bad = np.isnan(rows) | (np.isinf(rows) if kind == "probs" else np.isposinf(rows))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise InputError(
                f"{name}: every score must be finite; got {rows[row, column]} in {where(int(row))}, class {column}. "
                "Find out which input made the model overflow, or drop those rows."
            )
    if kind != "logits":
        return _checked_probs(name, scores, kind, where, tolerance, half)
    if scores.ndim > 1 and has_masks(from_numpy(scores)):
        _require_a_class(name, scores, where)
    return scores


def _require_a_class(name: str, scores: Array, where: Where) -> None:
    """Refuse rows in which every class is masked."""
    none = (from_numpy(scores).amax(1) <= mask_limit(from_numpy(scores).dtype)).reshape(len(scores), -1).any(1)
    if none.any():
        row = int(none.nonzero()[0, 0])
        raise InputError(f"{name}: every class is masked in {where(row)}. Leave at least one class, or drop the row.")


def _surely_finite(rows: Array) -> bool:
    """Whether all values are certainly finite; False may also mean that only their sum overflows."""
    if rows.dtype == np.float16:  # numpy sums float16 slowly, so the exponent bits are compared instead
        return bool((rows.view(np.uint16) & 0x7FFF).max() < 0x7C00)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(rows.sum()))


def widened(scores: Array, kind: Kind) -> Array:
    """Half precision converted to float32 by torch, which is 20 times as fast as numpy here; masks become -inf."""
    half = from_numpy(np.ascontiguousarray(scores))
    wide = half.float()
    return (unify_masks(wide, half.dtype) if kind == "logits" else wide).numpy()


def _checked_probs(name: str, scores: Array, kind: Kind, where: Where, tolerance: float, half: bool) -> Array:
    rows = scores.reshape(len(scores), -1)
    with np.errstate(over="ignore"):  # values far above 0 raise an error below
        probs = np.exp(rows) if kind == "log_probs" else rows
    outside = ((probs < 0) | (probs > 1 + tolerance)).any(1)
    if outside.any():
        row = int(outside.argmax())
        worst = rows[row][(probs[row] < 0) | (probs[row] > 1 + tolerance)][0]
        rule = "log_probs must not be above 0" if kind == "log_probs" else "probs must lie in [0, 1]"
        raise InputError(f"{name}: {rule}; got {worst:.6g} in {where(row)}. If these are logits, say --kind logits.")
    if scores.ndim == 1:
        return scores
    sums = probs.sum(1, dtype=np.float64)
    off = np.abs(sums - 1) > tolerance
    if off.any():
        epsilon = 1.0 if half else float(np.finfo(scores.dtype).eps)
        given = torch.from_numpy(probs[off]), torch.from_numpy(sums[off])
        digits = rounded_to(*given, epsilon) if kind == "probs" else None
        if digits is None:
            raise _off(name, kind, where(int(off.argmax())), sums[off][0], tolerance)
        warnings.warn(f"{name}: {rounding_words(digits)}", InputWarning, stacklevel=2)
        return np.where(off[:, None], scores / sums[:, None], scores).astype(scores.dtype)
    if not half:
        return scores
    # Rows of half precision sum to 1 only within its rounding; as float32 they have to sum to 1 more closely.
    widened = scores - np.log(sums)[:, None] if kind == "log_probs" else scores / sums[:, None]
    return np.asarray(widened, dtype=np.float32)


def _off(name: str, kind: Kind, where: str, total: float, tolerance: float) -> InputError:
    fix = "Save the scores of all classes, or divide each row by its sum."
    fix = fix if kind == "probs" else "If these are logits, say --kind logits."
    return InputError(
        f"{name}: the probabilities of each row must sum to 1 within {tolerance:g}; those of {where} sum to "
        f"{total:.6g}. {fix}"
    )


def _require_rows(table: PredictionTable, part: str, values: Array) -> None:
    if values.shape != (table.num_rows,):
        raise InputError(
            f"{table.name}: {part} must have one entry for each of the {table.num_rows:,} rows of scores; got shape "
            f"{values.shape}. Save both from the same rows."
        )


def _checked_labels(table: PredictionTable, labels: Array, before: int, columns: Columns) -> Array:
    name = table.name
    if labels.dtype.kind == "b" and table.num_classes == 2:
        labels = labels.astype(np.int64)
    if labels.dtype.kind in "US":
        labels = _by_name(table, labels, columns.positive)
    if labels.dtype.kind not in "iu":
        raise InputError(
            f"{name}: labels must be whole numbers, the classes from 0; got {labels.dtype}. "
            "Save them with .astype(np.int64)."
        )
    _require_rows(table, "labels", labels)
    bad = (labels < 0) | (labels >= table.num_classes)
    if columns.ignore_index is not None:
        bad &= labels != columns.ignore_index
    if bad.any():
        row = int(bad.argmax())
        binary = " Scores of shape (rows,) are of two classes." if table.scores.ndim == 1 else ""
        raise InputError(
            f"{name}: labels must lie in 0..{table.num_classes - 1}; got {labels[row]} in row {before + row}.{binary} "
            "Check that they count from 0 and that there is a score for each class."
        )
    return labels.astype(np.int64)


def _by_name(table: PredictionTable, labels: Array, positive: str | None) -> Array:
    """Convert labels that are class names to class numbers."""
    if table.class_names is None and positive is not None and table.num_classes == 2:
        return of_two(table.name, as_text(table.name, labels), positive)
    if table.class_names is None:
        way = (
            "the class that is scored with --positive"
            if table.scores.ndim == 1
            else "the classes in order with --classes"
        )
        raise InputError(
            f"{table.name}: labels are text, such as {shown(labels.flat[0])!r}, but the classes have no names. "
            f"Name {way}, or save the labels as class numbers."
        )
    if len(set(table.class_names)) < len(table.class_names):
        raise InputError(f"{table.name}: labels are names, but two classes share one. Save labels as class numbers.")
    return look_up(table.name, labels, table.class_names)


def look_up(name: str, labels: Array, class_names: tuple[str, ...]) -> Array:
    """Look up the numbers of classes by their names."""
    values, inverse = np.unique(as_text(name, labels), return_inverse=True)
    number = {each: k for k, each in enumerate(class_names)}
    unknown = [str(each) for each in values if str(each) not in number]
    if unknown:
        raise InputError(
            f"{name}: label {shown(unknown[0])!r} is not one of the classes {listed(class_names)}. "
            "Use a class's name as its scores have it, or its number."
        )
    codes = np.array([number[str(each)] for each in values], dtype=np.int64)
    return np.asarray(codes[inverse.reshape(labels.shape)])


def as_text(name: str, labels: Array) -> Array:
    """Labels as text, decoded if they are bytes."""
    try:
        return np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels.astype(str)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: labels are not UTF-8 text ({error.reason}). Save them as str, not bytes.") from error


def of_two(name: str, labels: Array, positive: str) -> Array:
    """Labels of two classes as 1 where they name the positive class, and 0 elsewhere.

    >>> of_two("val.csv", np.array(["spam", "ham"]), "spam")
    array([1, 0])
    """
    others = [each for each in np.unique(labels).tolist() if each != positive]
    if len(others) > 1:
        raise InputError(
            f"{name}: --positive {shown(positive)} is for labels of two classes; they are "
            f"{listed([*(each for each in [positive] if each in labels), *others])}. Check the name."
        )
    return np.asarray(labels == positive).astype(np.int64)


def _checked_weights(table: PredictionTable, weights: Array, before: int) -> Array:
    if weights.dtype.kind not in "fiu":
        raise InputError(f"{table.name}: weights must be numbers; got {weights.dtype}. Save them as float64.")
    _require_rows(table, "weights", weights)
    with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite raise an error below
        weights = weights.astype(np.float64)
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"{table.name}: weights must be finite and not negative; got {weights[row]:g} in row {before + row}. "
            "Give rows that do not count the weight 0."
        )
    return weights
