"""Rewriting prediction files with other scores, in bounded memory, and in the format that they have."""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Literal

import numpy as np

from focalcal.core.checks import require
from focalcal.core.ranking import Array
from focalcal.errors import InputError
from focalcal.files.checks import check_scores, check_shape
from focalcal.files.column_names import require_free
from focalcal.files.csv import open_text, rewrite_text
from focalcal.files.discovery import FOLDER, Shard, find_shards, names_many, require_writable
from focalcal.files.named_arrays import ArrayFile, StoredArray
from focalcal.files.npy import npy_header
from focalcal.files.npz import NpzArchive, chunks_of, copied_member, new_member, open_npz, write_members
from focalcal.files.parquet import open_parquet, rewrite_parquet
from focalcal.files.prediction_table import Columns
from focalcal.files.reading import Progress, open_arrays
from focalcal.files.safetensors import open_tensors, tag_of, tensors_header
from focalcal.files.writing import atomic_output
from focalcal.predictions.arrays import Kind

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
    """Write a copy of a prediction file in which `calibrate` has replaced the scores; gives the number of rows.

    where `calibrate(scores, kind)` gets some rows of scores, (n, K) or (n,), in float32 or float64, and what they are,
    and gives as many in the kind that `to` names. Memory is bounded whatever the size of the file, everything else in
    it stays as it is, and `out` is complete or as it was. For a directory, a pattern or several files `out` is a
    directory; `-` writes text to standard output. `progress(rows, total or 0, path)` is called after each batch.

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
        places = _in_folder(shards, Path(out)) if are_many else [_single(shards[0], out)]
        job = _Job(calibrate, columns, to, progress)
        if are_many:
            stack.enter_context(_output_folder(Path(out)))
        for shard, place in zip(shards, places, strict=True):
            job.run(shard, place)
        return job.done


def _single(shard: Shard, out: str | Path) -> Path:
    """Where one file goes, if that has its format."""
    name, is_text = shard.source.name, shard.format in ("csv", "tsv")
    require_writable(name, shard.format)
    if str(out) == STANDARD_OUTPUT:
        if not is_text:
            raise InputError(
                f"{name}: only text is written to standard output. Name a .{shard.format} file with --out."
            )
        return Path(STANDARD_OUTPUT)
    if Path(out).suffix.lower() != f".{shard.format}":
        raise InputError(f"{out}: the output has the format of the input, {name}. Give it the suffix .{shard.format}.")
    return _not_itself(shard, Path(out))


def _in_folder(shards: list[Shard], out: Path) -> list[Path]:
    """Where several files go: into a directory, under their own names."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: must be a directory for several files; it is a file. Name another with --out.")
    if len(shards) == 1 and shards[0].format == FOLDER:
        return [_not_itself(shards[0], out)]
    for shard in shards:
        require_writable(shard.name, shard.format)
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
class _Job:
    """What is to be done to each file, and how many rows it has been done to."""

    calibrate: Calibrate
    columns: Columns
    to: OutputKind
    progress: Progress | None
    done: int = 0

    def run(self, shard: Shard, place: Path) -> None:
        """Write the new file of one shard."""
        if shard.format == FOLDER:
            place.mkdir(exist_ok=True)
            self._folder(shard, place)
        elif str(place) == STANDARD_OUTPUT:
            self._write(shard, sys.stdout.buffer)
        else:
            with atomic_output(place) as file:
                self._write(shard, file)

    def _write(self, shard: Shard, out: IO[bytes]) -> None:
        if shard.format in ("csv", "tsv"):
            self._text(shard, out)
        elif shard.format == "parquet":
            self._parquet(shard, out)
        elif shard.format == "npz":
            self._npz(shard, out)
        elif shard.format == "safetensors":
            self._tensors(shard, out)
        else:
            with open_arrays(shard, self.columns) as (file, columns):
                _, chunks = self._npy(file, columns)
                out.writelines(chunks)

    def _text(self, shard: Shard, out: IO[bytes]) -> None:
        with open_text(shard.source, self.columns) as file:
            require_free(file.name, file.scores.renamed(self.to), _without(file.header, file.scores.names))
            rewrite_text(file, out, self.to, self._calibrated(file.name, file.scores.kind))

    def _parquet(self, shard: Shard, out: IO[bytes]) -> None:
        with open_parquet(shard.source, self.columns) as file:
            require_free(file.name, file.scores.renamed(self.to), _without(file.schema.names, file.scores.names))
            rewrite_parquet(file, out, self.to, self._calibrated(file.name, file.scores.kind, file.num_rows))

    def _npz(self, shard: Shard, out: IO[bytes]) -> None:
        with open_npz(shard.source) as archive:
            key, chunks = self._npy(archive.file(), self.columns)
            write_members(out, self._members(archive, f"{key}.npy", chunks))

    def _members(
        self, archive: NpzArchive, scores: str, chunks: Iterable[bytes]
    ) -> Iterator[tuple[zipfile.ZipInfo, Iterable[bytes]]]:
        for name, info in archive.members.items():
            if name == scores:
                yield new_member(self.to, info.compress_type), chunks
            else:
                yield copied_member(info), archive.chunks(info)

    def _tensors(self, shard: Shard, out: IO[bytes]) -> None:
        file, header = open_tensors(shard.source)
        key, stored, dtype, batches = self._scores(file, self.columns)
        said = {each: (what["dtype"], what["shape"], file.arrays[each].num_bytes) for each, what in header.items()}
        said[key] = (tag_of(dtype), stored.shape, math.prod(stored.shape) * dtype.itemsize)
        new = {self.to if each == key else each: what for each, what in said.items()}
        out.write(tensors_header(new, file.metadata))
        for each, array in file.arrays.items():
            out.writelines((batch.tobytes() for batch in batches) if each == key else array.chunks())

    def _folder(self, shard: Shard, place: Path) -> None:
        with open_arrays(shard, self.columns) as (file, columns):
            key, chunks = self._npy(file, columns)
            for source in shard.sources:
                is_scores = source.path.stem == key
                with atomic_output(place / (f"{self.to}.npy" if is_scores else source.path.name)) as out:
                    if is_scores:
                        out.writelines(chunks)
                    else:
                        with source.open() as stream:
                            out.writelines(chunks_of(stream))

    def _npy(self, file: ArrayFile, columns: Columns) -> tuple[str, Iterable[bytes]]:
        """The key of the scores, and the new ones as an .npy."""
        key, stored, dtype, batches = self._scores(file, columns)
        return key, chain([npy_header(dtype, stored.shape)], (batch.tobytes() for batch in batches))

    def _scores(self, file: ArrayFile, columns: Columns) -> tuple[str, StoredArray, np.dtype, Iterator[Array]]:
        """The scores of a file of arrays, and the new ones, batch by batch, in the same precision."""
        key, stored, kind = file.scores(columns)
        check_shape(file.name, stored.shape)
        require_free(file.name, [self.to], _without(list(file.arrays), [key]))
        dtype = stored.value_dtype if stored.bfloat16 else stored.dtype
        calibrated = self._calibrated(file.name, kind, stored.shape[0])
        return key, stored, dtype, (calibrated(batch).astype(dtype) for batch in stored.batches())

    def _calibrated(self, name: str, kind: Kind, total: int = 0) -> Callable[[Array], Array]:
        """A function that checks and calibrates the next rows of a file, of which `total` are expected."""
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


def _without(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    return [name for name in names if name not in taken]


@contextmanager
def _output_folder(folder: Path) -> Iterator[None]:
    """A directory that is made if it is not there, and taken away again if nothing gets into it."""
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
