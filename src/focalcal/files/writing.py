"""Writing predictions to a file of any of the formats, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from focalcal.atomic import atomic_file
from focalcal.core.ranking import Array
from focalcal.errors import InputError
from focalcal.files.column_names import HISTORY, PREFIX
from focalcal.files.discovery import format_of, require_writable
from focalcal.files.npy import npy_bytes
from focalcal.files.npz import new_member, write_members
from focalcal.files.parquet import write_parquet
from focalcal.files.prediction_table import PredictionTable
from focalcal.files.safetensors import tag_of, tensors_header


def write_predictions(table: PredictionTable, path: str | Path) -> None:
    """Write a table so that `read_predictions` gives it back; the suffix of `path` says the format.

    The file is complete or not there at all. An .npy holds nothing but the scores, and text cannot hold the record of
    an AdaFocal run.

    >>> import pathlib, tempfile
    >>> from focalcal.files import read_predictions
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "val.npz"
    >>> write_predictions(PredictionTable("val", np.zeros((2, 3)), "logits", labels=np.array([0, 2])), file)
    >>> read_predictions(file).labels
    array([0, 2])
    """
    writers: dict[str, Callable[[PredictionTable, IO[bytes]], None]] = {
        "csv": _write_text,
        "tsv": _write_text,
        "npy": _write_npy,
        "npz": _write_npz,
        "safetensors": _write_tensors,
        "parquet": write_parquet,
    }
    require_writable(path, format_of(path))
    with atomic_output(path) as file:
        writers[format_of(path)](replace(table, name=str(path)), file)


@contextmanager
def atomic_output(path: str | Path) -> Iterator[BinaryIO]:
    """A file as `atomic_file` gives it; a place that cannot be written to is an error of the caller's."""
    with ExitStack() as stack:
        try:
            if Path(path).is_dir():
                raise IsADirectoryError(0, "it is a directory")
            file = stack.enter_context(atomic_file(path))
        except OSError as error:
            raise InputError(
                f"{path}: cannot be written: {error.strerror or error}. Name a file in a directory of yours."
            ) from error
        yield file


def _arrays(table: PredictionTable) -> dict[str, Array]:
    parts = {table.kind: table.scores, "labels": table.labels, "weights": table.weights, "split": table.split}
    arrays = {key: values for key, values in parts.items() if values is not None}
    return {**arrays, **{HISTORY + key: np.asarray(values) for key, values in table.history.items()}}


def _write_npy(table: PredictionTable, file: IO[bytes]) -> None:
    file.write(npy_bytes(table.scores))


def _write_npz(table: PredictionTable, file: IO[bytes]) -> None:
    arrays = _arrays(table)
    if table.class_names is not None:
        arrays["class_names"] = np.array(table.class_names, dtype=str)
    # Scores are nearly noise: packing them takes long and gains little.
    members = ((new_member(key, zipfile.ZIP_STORED), [npy_bytes(values)]) for key, values in arrays.items())
    write_members(file, members)


def _write_tensors(table: PredictionTable, file: IO[bytes]) -> None:
    arrays, metadata = _arrays(table), {}
    if table.class_names is not None:
        metadata["class_names"] = json.dumps(table.class_names)
    if table.split is not None:
        names, arrays["split"] = np.unique(table.split, return_inverse=True)
        metadata["split_names"] = json.dumps(names.tolist())
    arrays = {key: np.ascontiguousarray(values, values.dtype.newbyteorder("<")) for key, values in arrays.items()}
    said = {key: (tag_of(values.dtype), values.shape, values.nbytes) for key, values in arrays.items()}
    file.write(tensors_header(said, metadata))
    for values in arrays.values():
        file.write(values.tobytes())


def _write_text(table: PredictionTable, file: IO[bytes]) -> None:
    if table.history:
        raise InputError(f"{table.name}: text cannot hold the record of an AdaFocal run. Write .npz or .parquet.")
    names = table.class_names
    if names is not None and len(set(names)) < len(names):
        raise InputError(f"{table.name}: two classes share a name, so their columns would too. Write .npz instead.")
    classes = names or [str(k) for k in range(table.num_classes)]
    header = [PREFIX[table.kind][:-1]] if table.scores.ndim == 1 else [PREFIX[table.kind] + each for each in classes]
    columns: list[list[object]] = table.scores.reshape(table.num_rows, -1).T.astype(np.float64).tolist()
    labels = table.labels if names is None or table.labels is None else np.array(names, dtype=str)[table.labels]
    for name, values in (("label", labels), ("weight", table.weights), ("split", table.split)):
        if values is not None:
            header.append(name)
            columns.append(values.tolist())
    stream = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(stream, delimiter="\t" if table.name.lower().endswith(".tsv") else ",", lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    stream.detach()  # flushes, and leaves the file open for who opened it
