"""What the valid examples of all formats are made of, and what a format brings along to be fuzzed."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from focalcal.core.checks import Array
from focalcal.files import PredictionTable
from tests.fuzz.readers.of_bytes import Mutation

ROWS, CLASSES = 12, 4
NAMES = ("cat", "dog, tame", "größe", "cow")


Parts = dict[str, Any]


@dataclass(frozen=True)
class Files:
    """What is given to the reader: files by name, as they are listed, or the folder that they lie in."""

    contents: dict[str, bytes]
    as_folder: bool = False


@dataclass(frozen=True)
class FuzzedFormat:
    """A format of prediction files, to be damaged and read.

    `examples` makes small valid files, a few kilobytes each, by the names of its variants; `mutations` damage one of
    them; `read_elsewhere(table, paths)` reads the parts of a table without focalcal.
    """

    examples: Mapping[str, Callable[[], list[Files]]]
    mutations: Sequence[Mutation]
    read_elsewhere: Callable[[PredictionTable, list[Path]], Parts]
    # pyarrow asks for as much memory as a header says, before it finds that less is there; it writes nothing to it, so
    # that of these formats only the memory that is in use is counted.
    may_ask_for_memory: bool = False


def scores_of(kind: str, dtype: Any = np.float32, *, binary: bool = False, seed: int = 0) -> Array:
    """Scores (ROWS, CLASSES) of a kind, or (ROWS,) of a positive class."""
    logits = np.random.default_rng(seed).normal(size=(ROWS, CLASSES))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    probs[0] = np.eye(CLASSES)[1]
    with np.errstate(divide="ignore"):
        scores = {"logits": logits, "probs": probs, "log_probs": np.log(probs)}[kind].astype(dtype)
    return scores[:, 0] if binary else scores


def labels_of(classes: int = CLASSES) -> Array:
    """A label for each row."""
    return np.arange(ROWS) * 7 % classes


def weights_of() -> Array:
    return np.linspace(0, 2, ROWS)


def split_of() -> Array:
    return np.where(np.arange(ROWS) % 3 == 0, "val", "test")


def history_of() -> Array:
    return np.arange(6.0).reshape(2, 3)


def names_of_labels() -> Array:
    return np.array(NAMES)[labels_of()]


def npy(values: Any, version: tuple[int, int] | None = None) -> bytes:
    """An array as an .npy."""
    stream = io.BytesIO()
    npy_format.write_array(stream, np.asarray(values), version=version, allow_pickle=False)
    return stream.getvalue()


def lists(scores: Array, large: bool = False) -> Any:
    import pyarrow as pa

    flat, ends = pa.array(scores.reshape(-1)), np.arange(ROWS + 1) * CLASSES
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(ends, flat)


def dictionary_coded(values: Any) -> Any:
    import pyarrow as pa

    return pa.array(np.asarray(values).tolist()).dictionary_encode()
