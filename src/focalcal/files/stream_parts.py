"""The parts of a stream, each read by one reader: a file, a piece of a dataset, or batches from Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.shard import Shard


class StreamPart(ABC):
    """Rows that are read by one reader, one after the other. Parts with one `name` stand or fall together."""

    name: str

    @abstractmethod
    def tables(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        """The rows in tables of bounded size, unchecked; with the column `by` as their groups."""

    def first(self, columns: Columns) -> PredictionTable | None:
        """A table with rows, if there is one."""
        return next((table for table in self.tables(columns, None) if table.num_rows), None)


@dataclass(frozen=True)
class FilePart(StreamPart):
    """A file of one of the known formats."""

    shard: Shard

    @property
    def name(self) -> str:  # type: ignore[override]
        """The path of the file."""
        return self.shard.name

    def tables(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        """The rows of the file."""
        return self.shard.tables(columns, by)
