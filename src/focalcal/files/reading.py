"""Reading prediction files whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from focalcal.files.arrow_ipc import ipc_tables
from focalcal.files.checks import checked, join, joined
from focalcal.files.csv import read_text
from focalcal.files.discovery import FOLDER, Shard, find_shards
from focalcal.files.named_arrays import ArrayFile, read_arrays
from focalcal.files.npy import npy_files, npy_folder
from focalcal.files.npz import open_npz
from focalcal.files.parquet import read_parquet
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.safetensors import open_tensors

Paths: TypeAlias = "str | Path | Sequence[str | Path]"
Progress: TypeAlias = "Callable[[int, int, str], object]"

_USUAL = Columns()


def read_predictions(
    paths: Paths, columns: Columns = _USUAL, *, need_labels: bool = True, progress: Progress | None = None
) -> PredictionTable:
    """Read predictions: scores, and the labels, weights, split and class names beside them.

    where `paths` is a file (.npz, .npy, .csv, .tsv, .parquet, .safetensors), a directory or a glob of shards, `-` for
    standard input, or several of these, joined in order; two .npy in a row are scores and labels. Everything is checked
    and nothing is guessed; what is wrong raises an error that names the file. `progress(rows, total or 0, path)` is
    called after each file.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "val.csv"
    >>> _ = file.write_text("label,prob_cat,prob_dog\\ncat,0.75,0.25\\ndog,0.5,0.5\\n")
    >>> table = read_predictions(file)
    >>> table.kind, table.class_names, table.labels
    ('probs', ('cat', 'dog'), array([0, 1]))
    """
    with ExitStack() as stack:
        shards = find_shards(paths, stack)
        tables, rows = [], 0
        for shard in shards:
            tables.append(checked(_read(shard, columns), need_labels=need_labels))
            rows += tables[-1].num_rows
            if progress is not None:
                progress(rows, rows if len(tables) == len(shards) else 0, shard.name)
    return join(tables, _name(paths, tables))


def _name(paths: Paths, tables: list[PredictionTable]) -> str:
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if len(given) > 1 and len(tables) > 1:
        return f"{given[0]} and {len(given) - 1} more"
    return tables[0].name if len(tables) == 1 else str(given[0])


def _read(shard: Shard, columns: Columns) -> PredictionTable:
    if shard.format in ("csv", "tsv"):
        return read_text(shard.source, columns)
    if shard.format == "parquet":
        return read_parquet(shard.source, columns, shard.constants)
    if shard.format in ("arrow", "feather"):
        return joined(list(ipc_tables(shard.source, columns, constants=shard.constants)))
    with open_arrays(shard, columns) as (file, names):
        return read_arrays(file, names)


@contextmanager
def open_arrays(shard: Shard, columns: Columns) -> Iterator[tuple[ArrayFile, Columns]]:
    """The named arrays of a shard, and the names to look for: those of an .npy are given by its place."""
    if shard.format == "npz":
        with open_npz(shard.source) as archive:
            yield archive.file(), columns
    elif shard.format == "safetensors":
        yield open_tensors(shard.source)[0], columns
    elif shard.format == FOLDER:
        yield npy_folder(shard.sources), columns
    else:
        yield npy_files(shard.sources, columns), Columns(kind=columns.kind)
