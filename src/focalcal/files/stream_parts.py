"""The interface of the parts that a stream is read from: files, pieces of datasets, and batches from Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress

from focalcal.files.checks import NoRowsError
from focalcal.files.prediction_table import Columns, PredictionTable


class StreamPart(ABC):
    """Rows that one reader reads in order. Parts with the same `name` are kept or left out together.

    `own_memory` says that nothing writes to the arrays of a table once it is there. Tables of other parts are copied,
    because the next one is asked for before they are used.
    """

    name: str
    own_memory: bool = False

    @abstractmethod
    def tables(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        """The rows in tables of bounded size, unchecked, with the column `by` as their groups."""

    def tables_with_rows(self, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
        """The tables that have rows, which may be none."""
        with suppress(NoRowsError):
            yield from (table for table in self.tables(columns, by) if table.num_rows)

    def first(self, columns: Columns) -> PredictionTable | None:
        """The first table that has rows, if there is one."""
        return next(self.tables_with_rows(columns, None), None)
