"""Rewriting prediction files with new scores, in bounded memory and in their own format."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from focalcal.core.checks import Array, require
from focalcal.core.score_kinds import Kind
from focalcal.errors import InputError
from focalcal.files.checks import check_scores, checked, no_rows
from focalcal.files.discovery import find_shards, names_many
from focalcal.files.memory_limits import rows_per_batch
from focalcal.files.npy import rewrite_npy_folder
from focalcal.files.prediction_table import Columns
from focalcal.files.reading import Progress
from focalcal.files.shard import Shard
from focalcal.files.table import format_of, suffix_of
from focalcal.files.writing import atomic_output, require_writable, write_predictions

Calibrate = Callable[[Array, Kind], Array]
OutputKind = Literal["probs", "log_probs"]

STANDARD_OUTPUT = "-"
_USUAL = Columns()


def rewrite_predictions(
    path: str | Path | Sequence[str | Path],
    out: str | Path,
    calibrate: Calibrate,
    columns: Columns = _USUAL,
    *,
    to: OutputKind = "probs",
    progress: Progress | None = None,
) -> int:
    """Write a copy of a prediction file in which `calibrate` has replaced the scores; returns the number of rows.

    where `calibrate(scores, kind)` gets some rows of scores, (n, K) or (n,), in float32 or float64, and what they are,
    and gives as many in the kind that `to` names. Memory is bounded whatever the size of the file, everything else in
    it stays as it is, and `out` is complete or as it was. If `out` has the suffix of another format, the file is read
    whole, and labels, weights, split and class names are all that is kept beside the scores. For a directory, a pattern
    or several files `out` is a directory; `-` writes text to standard output. `progress(rows, total or 0, path)` is
    called after each batch.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "new.csv").write_text("id,logit_0,logit_1\\n7,0.0,0.0\\n")
    >>> def softmax(logits, kind):
    ...     return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    >>> rewrite_predictions(folder / "new.csv", folder / "calibrated.csv", softmax)
    1
    >>> (folder / "calibrated.csv").read_text().splitlines()
    ['id,prob_0,prob_1', '7,0.5,0.5']
    """
    require(to in ("probs", "log_probs"), "to", "must be probs or log_probs", repr(to))
    with ExitStack() as stack:
        shards = find_shards(path, stack)
        are_many = len(shards) > 1 or names_many(path)
        job = RewriteJob(calibrate, columns, to, progress, may_be_empty=len(shards) > 1)
        if not are_many and str(out) != STANDARD_OUTPUT and suffix_of(out) != shards[0].suffix:
            return job.convert(shards[0], Path(out))
        places = _in_folder(shards, Path(out)) if are_many else [_single(shards[0], out)]
        if are_many:
            stack.enter_context(_output_folder(Path(out)))
        for shard, place in zip(shards, places, strict=True):
            job.run(shard, place)
        return job.done


def _single(shard: Shard, out: str | Path) -> Path:
    """The output of a single file in the format of the input."""
    name = shard.source.name
    require_writable(name, shard.format, "rewrite")
    if str(out) == STANDARD_OUTPUT:
        if not shard.format.is_text:
            raise InputError(f"{name}: only text is written to standard output. Name a {shard.suffix} file with --out.")
        return Path(STANDARD_OUTPUT)
    return _not_itself(shard, Path(out))


def _in_folder(shards: list[Shard], out: Path) -> list[Path]:
    """The outputs of several files: in a directory, under their own names."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: must be a directory for several files; it is a file. Name another with --out.")
    if len(shards) == 1 and shards[0].is_folder:
        return [_not_itself(shards[0], out)]
    for shard in shards:
        require_writable(shard.name, shard.format, "rewrite")
    names = [shard.path.name for shard in shards]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{out}: two of the files are named {twice}. Rewrite them one directory at a time.")
    return [_not_itself(shard, out / name) for shard, name in zip(shards, names, strict=True)]


def _not_itself(shard: Shard, place: Path) -> Path:
    taken = [shard.path, *(source.path for source in shard.sources)]
    if place.exists() and any(place.samefile(path) for path in taken):
        raise InputError(f"{place}: is the input itself, which would be lost. Name another output with --out.")
    return place


@dataclass
class RewriteJob:
    """What is done to the scores of each file, and the number of rows to which it has been done.

    >>> job = RewriteJob(lambda scores, kind: scores / scores.sum(1, keepdims=True), Columns(), "probs", None)
    >>> calibrated = job.calibrated("val.npz", "logits")
    >>> calibrated(np.array([[3.0, 1.0]])), job.done
    (array([[0.75, 0.25]]), 1)
    """

    calibrate: Calibrate
    columns: Columns
    to: OutputKind
    progress: Progress | None
    done: int = 0
    may_be_empty: bool = False  # whether a file may have no rows, as one of several may

    def run(self, shard: Shard, place: Path) -> None:
        """Write the new file of one shard."""
        if shard.is_folder:
            place.mkdir(exist_ok=True)
            rewrite_npy_folder(shard, self, lambda name: atomic_output(place / name))
        elif str(place) == STANDARD_OUTPUT:
            shard.rewrite(self, sys.stdout.buffer)
        else:
            with atomic_output(place) as file:
                shard.rewrite(self, file)
                if not (self.done or self.may_be_empty):
                    raise no_rows(shard.name)

    def convert(self, shard: Shard, place: Path) -> int:
        """Write the new file of one shard in the format of another suffix; the number of its rows."""
        new = format_of(_not_itself(shard, place))
        require_writable(place, new, "write")
        table = checked(shard.read(self.columns), need_labels=False, columns=self.columns)
        calibrated = self.calibrated(shard.name, table.kind, table.num_rows)
        rows = rows_per_batch(table.num_classes)
        scores = [calibrated(table.scores[start : start + rows]) for start in range(0, table.num_rows, rows)]
        parts: dict[str, Any] = {} if "history" in new.holds else {"history": {}}
        parts |= {part: None for part in ("labels", "weights", "split", "class_names") if part not in new.holds}
        write_predictions(replace(table, scores=np.concatenate(scores), kind=self.to, **parts), place)
        return self.done

    def calibrated(self, name: str, kind: Kind, total: int = 0) -> Callable[[Array], Array]:
        """A function that checks and calibrates the next rows of a file; `total` is the number of rows, if known."""
        before = self.done

        def calibrated(scores: Array) -> Array:
            first = self.done - before
            scores = check_scores(name, scores, kind, lambda row: f"row {first + row}")
            new = np.asarray(self.calibrate(scores, kind))
            if new.shape != scores.shape:
                raise InputError(f"calibrate: must give scores of shape {scores.shape}; got {new.shape}.")
            self.done += len(scores)
            if self.progress is not None:
                self.progress(self.done - before, total, name)
            return new

        return calibrated


@contextmanager
def _output_folder(folder: Path) -> Iterator[None]:
    """Create a directory if it does not exist, and remove it again if nothing was written to it."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}. Name another directory with --out.") from error
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if is_new:
                folder.rmdir()
        raise
