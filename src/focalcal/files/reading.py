"""Reading prediction files whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from focalcal.errors import InputError
from focalcal.files.checks import NoRowsError, checked, no_rows
from focalcal.files.discovery import find_shards
from focalcal.files.joining import join, require_agreement
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.shard import Shard

Paths: TypeAlias = "str | Path | Sequence[str | Path]"
Progress: TypeAlias = "Callable[[int, int, str], object]"

_USUAL = Columns()


def read_predictions(
    paths: Paths,
    columns: Columns = _USUAL,
    *,
    need_labels: bool = True,
    progress: Progress | None = None,
    skipped: dict[str, str] | None = None,
) -> PredictionTable:
    """Read predictions: scores with their labels, weights, split and class names.

    where `paths` is a file of one of the formats in `FORMATS`, a directory or a glob of shards, `-` for standard input,
    or several of these, joined in order; two .npy in a row are scores and labels. Everything is checked and nothing is
    guessed; what is wrong raises an error that names the file. With a dictionary `skipped`, files that cannot be read,
    or do not belong to the first one, are left out and listed in it with the reason. `progress(rows, total or 0, path)`
    is called after each file.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "val.csv"
    >>> _ = file.write_text("label,prob_cat,prob_dog\\ncat,0.75,0.25\\ndog,0.5,0.5\\n")
    >>> table = read_predictions(file)
    >>> table.kind, table.class_names, table.labels
    ('probs', ('cat', 'dog'), array([0, 1]))
    """
    with ExitStack() as stack:
        shards = find_shards(paths, stack)
        name, tables, rows = _name(paths, shards), list[PredictionTable](), 0
        for place, shard in enumerate(shards, 1):
            try:
                table = checked(shard.read(columns), need_labels=need_labels, columns=columns)
                if not table.num_rows:
                    raise no_rows(shard.name)
                if tables:
                    require_agreement(tables[0], table)
            except NoRowsError:
                if len(shards) == 1:
                    raise
                continue
            except InputError as error:
                if skipped is None or len(shards) == 1:
                    raise
                skipped[shard.name] = str(error)
                continue
            tables.append(table)
            rows += tables[-1].num_rows
            if progress is not None:
                progress(rows, rows if place == len(shards) else 0, shard.name)
    if not tables and skipped:
        raise InputError(f"{name}: no shard can be read. {next(iter(skipped.values()))}")
    if not tables:
        raise no_rows(name, len(shards))
    return join(tables, name)


def _name(paths: Paths, shards: list[Shard]) -> str:
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if len(given) > 1 and len(shards) > 1:
        return f"{given[0]} and {len(given) - 1} more"
    return shards[0].name if len(shards) == 1 else str(given[0])
