"""Whether a table that came out of a damaged file is right: by rules, and by another reader of the same bytes."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from focalcal.core.checks import Array
from focalcal.files import PredictionTable
from tests.fuzz.readers.examples import Parts

_TOLERANCE = 1e-4
PREFIXES = {"logits": ("logit", "logits"), "probs": ("prob", "probs")}
PREFIXES["log_probs"] = ("log_prob", "log_probs", "logprob", "logprobs")


def judge(
    table: PredictionTable, paths: list[Path], read_elsewhere: Callable[[PredictionTable, list[Path]], Parts]
) -> None:
    """Require that the table is sound and as another reader has it."""
    wrong = _unsound(table)
    assert not wrong, f"the table is not sound: {wrong}"
    try:
        theirs = read_elsewhere(table, paths)
    except Exception as error:  # whatever damaged files make of it
        # A dtype that the library does not know may be that of a tensor which nobody asks for.
        known = "unknown variant" in str(error)
        assert known, f"another reader refuses the file: {traceback.format_exc()}"
        return
    theirs["scores"] = _unrounded(np.asarray(theirs["scores"]), table.kind)
    for part, values in theirs.items():
        ours = getattr(table, part)
        assert _same(ours, values), f"{part} differ: {ours!r} here, {values!r} by another reader"


def _unrounded(scores: Array, kind: str) -> Array:
    """Probabilities that were rounded are divided by their sums where these are off."""
    if kind != "probs" or scores.ndim != 2 or scores.dtype == np.float16:
        return scores
    sums = scores.sum(1, dtype=np.float64)[:, None]
    return np.where(abs(sums - 1) > 1e-5, scores / sums, scores).astype(scores.dtype)


def _unsound(table: PredictionTable) -> str:
    """The first rule that a table breaks, or nothing."""
    scores, labels, weights, split, names = table.scores, table.labels, table.weights, table.split, table.class_names
    rows, classes = len(scores), 2 if scores.ndim == 1 else scores.shape[-1]
    rules = {
        "scores are float32 or float64": scores.dtype in (np.float32, np.float64),
        "scores have one or two dimensions": scores.ndim in (1, 2),
        "there are rows and two classes": rows > 0 and classes >= 2,
        "scores are what their kind says": _are_of_kind(scores.astype(np.float64), table.kind),
        "labels are int64, one for each row": labels is not None
        and (labels.dtype, labels.shape) == (np.int64, (rows,)),
        "labels are classes": labels is not None and bool(((labels >= 0) & (labels < classes)).all()),
        "weights are finite": weights is None
        or (weights.shape == (rows,) and bool(np.isfinite(weights).all() and (weights >= 0).all())),
        "the split is text": split is None or (split.shape == (rows,) and all(map(_is_text, split.tolist()))),
        "classes have a name each": names is None or (len(names) == classes and all(map(_is_text, names))),
    }
    return next((rule for rule, holds in rules.items() if not holds), "")


def _are_of_kind(scores: Array, kind: str) -> bool:
    if kind == "logits":  # -inf masks a class
        masked = scores == -np.inf
        left = np.isfinite(scores).all() if scores.ndim == 1 else not masked.all(1).any()
        return bool(left and (np.isfinite(scores) | masked).all())
    probs = np.exp(scores) if kind == "log_probs" else scores
    inside = bool(((probs >= 0) & (probs <= 1 + _TOLERANCE)).all())  # which no NaN is
    return inside and (probs.ndim == 1 or bool((abs(probs.sum(1) - 1) < _TOLERANCE).all()))


def _is_text(value: Any) -> bool:
    """Whether something is a string that can be written down: one without halves of signs."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _same(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_same(ours[key], theirs[key]) for key in theirs)
    theirs = np.asarray(theirs)
    ours = np.asarray(ours)
    return bool(np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == theirs.dtype.kind == "f"))


def matters(key: str, scores: tuple[str, ...]) -> bool:
    """Whether a key is one that is read; others may hold what nobody can read."""
    return key in (*scores, "labels", "label", "weights", "weight", "split", "class_names") or key[:8] == "history_"


def parts_of(table: PredictionTable, arrays: dict[str, Array], metadata: dict[str, str] | None = None) -> Parts:
    """What the arrays of a file mean: scores widened, labels as numbers of classes, text as text."""
    metadata = metadata or {}
    history = {key: np.array(json.loads(text), float) for key, text in metadata.items() if key.startswith("history_")}
    history |= {key: values for key, values in arrays.items() if key.startswith("history_")}
    names = json.loads(metadata["class_names"]) if "class_names" in metadata else None
    names = _texts(arrays["class_names"]) if "class_names" in arrays else names
    return {
        "scores": widened(arrays[table.kind], table.kind),
        "labels": _numbers(arrays.get("labels", arrays.get("label")), names),
        "weights": arrays.get("weights", arrays.get("weight")),
        "split": _texts(arrays["split"]) if "split" in arrays else None,
        "class_names": names,
        "history": {key.removeprefix("history_"): values for key, values in history.items()},
    }


def widened(scores: Array, kind: str) -> Array:
    """Scores of half precision in float32, where their rows sum to 1 again."""
    if scores.dtype != np.float16:
        return scores
    scores = scores.astype(np.float32)
    if kind == "logits" or scores.ndim == 1:
        return scores
    probs = scores if kind == "probs" else np.exp(scores)
    sums = probs.sum(1, dtype=np.float64, keepdims=True)
    return (scores / sums if kind == "probs" else scores - np.log(sums)).astype(np.float32)


def _texts(values: Array) -> list[str]:
    return [each.decode() if isinstance(each, bytes) else str(each) for each in values.tolist()]


def _numbers(labels: Any, names: list[str] | None) -> list[int]:
    """Labels as numbers, whether they are that or names of classes."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else labels
    by_name = {name: k for k, name in enumerate(names or [])}
    values = [each.decode() if isinstance(each, bytes) else each for each in values]
    return [by_name[each] if isinstance(each, str) else each for each in values]


def parts_of_arrow(table: PredictionTable, file: Any) -> Parts:
    """What an Arrow table says."""
    pairs = (file.schema.metadata or {}).items()
    said = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in pairs}
    columns = {name: file.column(name).to_pylist() for name in file.column_names}
    parts = parts_of_columns(table, columns, said)
    kinds = {str(field.type) for field in file.schema if field.name.startswith(PREFIXES[table.kind])}
    if all("halffloat" in kind for kind in kinds):
        parts["scores"] = widened(np.array(parts["scores"], np.float16), table.kind)
    return parts


def parts_of_columns(table: PredictionTable, columns: dict[str, list[Any]], metadata: dict[str, str]) -> Parts:
    """What the columns of a table mean; the names of its classes are those of its columns, or metadata."""
    prefixes = PREFIXES[table.kind]
    whole = next((columns[prefix] for prefix in prefixes if prefix in columns), None)
    names = list(table.class_names or map(str, range(table.num_classes)))
    if whole is None:
        found = {name: [columns[key] for key in _keys_of(prefixes, name) if key in columns] for name in names}
        assert all(len(each) == 1 for each in found.values())
        assert sum(
            key.startswith(tuple(f"{each}{sign}" for each in prefixes for sign in "_.:[")) for key in columns
        ) == len(names)
        whole = list(zip(*(found[name][0] for name in names), strict=True))
    labels = columns.get("labels", columns.get("label"))
    weights = columns.get("weights", columns.get("weight"))
    said = json.loads(metadata["class_names"]) if "class_names" in metadata else table.class_names
    history = {key: np.array(json.loads(text), float) for key, text in metadata.items() if key.startswith("history_")}
    return {
        "scores": np.array(whole, dtype=float),
        "labels": [_number(each, table.class_names) for each in labels or []],
        "weights": None if weights is None else np.array(weights, dtype=float),
        "split": columns.get("split"),
        "class_names": said,
        "history": {key.removeprefix("history_"): values for key, values in history.items()},
    }


def _keys_of(prefixes: tuple[str, ...], name: str) -> list[str]:
    """The names that the column of a class may have."""
    return [form.format(prefix, name) for prefix in prefixes for form in ("{}_{}", "{}.{}", "{}:{}", "{}[{}]")]


def _number(label: Any, names: tuple[str, ...] | None) -> int:
    """The number of a class that is given as that, or by a name, which may be a number too."""
    for each in (str(label), str(label).strip()):
        if names and each in names:
            return names.index(each)
    return int(label)
