"""Writing predictions to a file of any format; the file is complete or not there at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Literal

from focalcal.atomic import atomic_file
from focalcal.errors import InputError
from focalcal.files.prediction_table import PredictionTable
from focalcal.files.table import FileFormat, format_of, known_suffixes


def write_predictions(table: PredictionTable, path: str | Path) -> None:
    """Write a table so that `read_predictions` gives it back; the suffix of `path` says the format.

    The file is complete or not there at all. An .npy holds nothing but the scores, and text cannot hold the record of
    an AdaFocal run.

    >>> import numpy as np, pathlib, tempfile
    >>> from focalcal.files import read_predictions
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "val.npz"
    >>> write_predictions(PredictionTable("val", np.zeros((2, 3)), "logits", labels=np.array([0, 2])), file)
    >>> read_predictions(file).labels
    array([0, 2])
    """
    file_format = format_of(path)
    require_writable(path, file_format, "write")
    with atomic_output(path) as file:
        file_format.function("write")(replace(table, name=str(path)), file)


def require_writable(name: str | Path, file_format: FileFormat, task: Literal["write", "rewrite"]) -> None:
    """Raise an error if a format can only be read.

    >>> require_writable("val.parquet", format_of("val.parquet"), "rewrite")
    """
    if not file_format.can(task):
        raise InputError(
            f"{name}: {file_format.name} files are read, but not written. Use {known_suffixes(task)} instead."
        )


@contextmanager
def atomic_output(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file as `atomic_file` does, with an InputError if the path cannot be written to."""
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
