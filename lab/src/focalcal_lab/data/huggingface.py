"""Public data sets through Hugging Face's `datasets`, and tables of images: its folders and Parquet files."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
import torch
from torch import Tensor

from focalcal.errors import FileFormatError, InputError

IMAGE_COLUMNS = ("img", "image", "png", "jpg")
BERTS = ("bert-base-uncased", "bert-base-cased", "bert-large-uncased", "bert-large-cased")
"""The pretrained networks that a recipe may have downloaded."""


def load_public(name: str, config: str | None = None, *, instead: str) -> Mapping[str, Any]:
    """The splits of a public data set; `instead` says which local files would do when there is no internet.

    `name` is one of the hub, such as "uoft-cs/cifar10", or a local folder of Parquet or image files that `datasets`
    understands. No code of a data set is run.
    """
    import datasets

    if _is_in_vain(name, datasets.config):
        raise _not_loaded(name, "its server cannot be found, and no copy is cached", instead)
    try:
        return dict(datasets.load_dataset(name, config))
    except Exception as error:  # no internet, no such name, no permission, a full disk: each has errors of its own
        said = str(error).strip().splitlines() or [""]
        raise _not_loaded(name, f"{type(error).__name__}: {said[0][:200]}", instead) from error


def _not_loaded(name: str, why: str, instead: str) -> InputError:
    return InputError(
        f"{name}: could not be loaded from Hugging Face ({why}). Without internet, give a folder: {instead}."
    )


def _is_in_vain(name: str, config: Any) -> bool:
    """Whether there is no internet and no cached copy: then `datasets` would try again for half a minute."""
    cached = Path(config.HF_DATASETS_CACHE) / name.replace("/", "___")
    if Path(name).exists() or cached.exists() or getproxies():
        return False
    try:
        socket.getaddrinfo(urlsplit(config.HF_ENDPOINT).hostname, None)
    except OSError:
        return True
    return False


def pretrained_bert(name: str, what: str) -> str:
    """The name of a pretrained BERT, if it is one that a recipe may name: one of `BERTS`, or a folder on this machine.

    >>> pretrained_bert("someone/else", "checkpoint")
    Traceback (most recent call last):
    focalcal.errors.InputError: checkpoint: must be bert-base-uncased, bert-base-cased, bert-large-uncased, \
bert-large-cased or a folder; got 'someone/else'.
    """
    if name not in BERTS and not Path(name).is_dir():
        raise InputError(f"{what}: must be {', '.join(BERTS)} or a folder; got {name!r}.")
    if (Path(name) / "adapter_config.json").exists():  # it would name another network, to be loaded from anywhere
        raise InputError(f"{what}: must be a whole network; got {name!r}, an adapter of another. Merge and save them.")
    return name


def is_saved(folder: Path) -> bool:
    """Whether `datasets` wrote this folder with `save_to_disk`."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def load_saved(folder: Path) -> Mapping[str, Any]:
    """The splits that `save_to_disk` wrote; one that has no splits is called train."""
    import datasets

    try:
        found = datasets.load_from_disk(str(folder))
    except Exception as error:  # whatever damaged Arrow and JSON files make of the reader
        raise FileFormatError(f"{folder}: cannot be read as a saved data set ({error}). Save it again.") from error
    return dict(found) if isinstance(found, Mapping) else {"train": found}


class EncodedTable:
    """The encoded images of a table's rows, read from it when they are asked for.

    `table` gives a row's image as `datasets` stores it, {"bytes": ..., "path": ...}, by `table[index][column]`.
    """

    def __init__(self, table: Any, column: str, what: str, rows: Tensor | None = None) -> None:
        self._table, self._column, self._what = table, column, what
        self._rows = torch.arange(len(table)) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, index: int) -> str:
        """The row."""
        return f"{self._what}: row {int(self._rows[index])}"

    def __getitem__(self, index: int) -> Path | bytes:
        stored = self._table[int(self._rows[index])][self._column]
        if isinstance(stored, bytes):
            return stored
        if isinstance(stored, Mapping) and isinstance(stored.get("bytes"), bytes):
            return bytes(stored["bytes"])
        if isinstance(stored, Mapping) and isinstance(stored.get("path"), str):
            return Path(stored["path"])
        raise FileFormatError(f"{self.name(index)}: {self._column} has no image but {type(stored).__name__}.")

    def take(self, rows: Tensor) -> EncodedTable:
        """Only some of the rows."""
        return EncodedTable(self._table, self._column, self._what, self._rows[rows])


def encoded_split(
    split: Any, labels: Sequence[str], what: str
) -> tuple[EncodedTable, np.ndarray[Any, Any], tuple[str, ...]]:
    """The encoded images, class numbers and class names of a split of `datasets`; `labels` are the columns to try."""
    import datasets

    image = _column(split.column_names, IMAGE_COLUMNS, what)
    label = _column(split.column_names, labels, what)
    names = tuple(getattr(split.features[label], "names", None) or ())
    try:
        split = split.cast_column(image, datasets.Image(decode=False)).with_format(None)
        numbers = np.asarray(split.select_columns([label])[:][label])
    except Exception as error:  # a column of another type, or files that are gone
        raise FileFormatError(f"{what}: {image} and {label} must be images and class numbers ({error}).") from error
    return EncodedTable(split, image, what), numbers, names


class ParquetImages:
    """Rows of Parquet files with an image column, as Hugging Face ships them."""

    def __init__(self, files: Sequence[Path], labels: Sequence[str]) -> None:
        import pyarrow
        from pyarrow import parquet

        what = ", ".join(file.name for file in files)
        try:
            schema = parquet.read_schema(files[0])
            image, label = _column(schema.names, IMAGE_COLUMNS, what), _column(schema.names, labels, what)
            tables = [parquet.read_table(file, columns=[image, label]) for file in files]
            table = pyarrow.concat_tables(tables)
            self._images = table.column(image)
            self.numbers = np.asarray(table.column(label).to_numpy())
        except FileFormatError:
            raise
        except Exception as error:  # Arrow's own errors
            raise FileFormatError(f"{what}: cannot be read as Parquet ({error}). Download it again.") from error
        self.names = _class_names(schema, label)
        self.encoded = EncodedTable(self, image, what)
        self._image = image

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {self._image: self._images[index].as_py()}


def _column(names: Sequence[str], wanted: Sequence[str], what: str) -> str:
    found = next((name for name in wanted if name in names), None)
    if found is None:
        raise FileFormatError(f"{what}: must have a column {' or '.join(wanted)}; got {', '.join(names)}.")
    return found


def _class_names(schema: Any, label: str) -> tuple[str, ...]:
    """The names of the classes, which `datasets` keeps in a Parquet file's metadata."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return tuple(map(str, features[label]["names"]))
    except (KeyError, TypeError, ValueError):
        return ()
