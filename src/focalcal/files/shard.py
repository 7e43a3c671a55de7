"""A shard of a set of predictions: one file, or a few that belong together, and its format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from focalcal.errors import FileFormatError
from focalcal.files.checks import no_rows
from focalcal.files.joining import joined
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.source_file import SourceFile
from focalcal.files.stream_parts import StreamPart
from focalcal.files.table import SNIFFED, FileFormat, format_by_bytes, suffix_of

if TYPE_CHECKING:
    from focalcal.files.rewriting import RewriteJob


@dataclass(frozen=True)
class Shard(StreamPart):
    """One file with its format; scores and labels in two .npy are one shard, and so is a directory of named .npy.

    `constants` are the columns that a path such as `split=val/language=en/part-0.parquet` has of its own.

    >>> from focalcal.files.table import CSV
    >>> shard = Shard(CSV, (SourceFile.of("val/part-0.tsv"),))
    >>> shard.name, shard.suffix
    ('val/part-0.tsv', '.tsv')
    """

    format: FileFormat
    sources: tuple[SourceFile, ...]
    constants: Mapping[str, str] = field(default_factory=dict)
    is_folder: bool = False

    @property
    def source(self) -> SourceFile:
        """The file, or the one with the scores."""
        return self.sources[0]

    @property
    def path(self) -> Path:
        """The path of the file, or of the directory."""
        return self.source.path.parent if self.is_folder else self.source.path

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name for messages."""
        return str(self.path) if self.is_folder else self.source.name

    @property
    def own_memory(self) -> bool:  # type: ignore[override]
        """Whether the format gives every table memory of its own."""
        return self.format.own_memory

    @property
    def suffix(self) -> str:
        """The suffix of the file, or the usual one of its format if it has none."""
        own = suffix_of(self.source.path)
        return own if own.startswith(self.format.suffixes) else self.format.suffixes[0]

    def read(self, columns: Columns) -> PredictionTable:
        """All rows, unchecked."""
        with self._lookalike_named():
            if self.format.read is None:
                tables = list(self.format.function("stream")(self, columns, None))
                if not tables:
                    raise no_rows(self.name)
                return joined(tables)
            table: PredictionTable = self.format.function("read")(self, columns)
            return table

    def tables(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        """The rows in tables of bounded size, unchecked, with the column `by` as their groups."""
        with self._lookalike_named():
            yield from self.format.function("stream")(self, columns, by)

    def rewrite(self, job: RewriteJob, out: IO[bytes]) -> None:
        """Write a copy of the file in which a job has replaced the scores."""
        with self._lookalike_named():
            self.format.function("rewrite")(self, job, out)

    @contextmanager
    def _lookalike_named(self) -> Iterator[None]:
        """Say which other format a file looks like by its first bytes, when it cannot be read as its own."""
        try:
            yield
        except FileFormatError as error:
            with self.source.open() as file:
                found = format_by_bytes(file.read(SNIFFED))
            if found is None or found.name == self.format.name:
                raise
            raise FileFormatError(
                f"{self.source.name}: is not a {self.format.name} file; it looks like {found.name}. "
                f"Give it the suffix {found.suffixes[0]}."
            ) from error
