"""The .jsonl format: one JSON object per line, with a list of scores or a number for each class."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from focalcal.core.checks import Array
from focalcal.errors import FileFormatError, InputError
from focalcal.files.arrow_rows import are_numbers
from focalcal.files.checks import check_scores, look_up, no_rows
from focalcal.files.column_names import PREFIX, ScoreColumns, find_parts, find_score_columns, require_free
from focalcal.files.compression import open_unpacked, packed
from focalcal.files.memory_limits import require_short, rows_per_batch
from focalcal.files.messages import is_text
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.source_file import SourceFile
from focalcal.printable import shown

if TYPE_CHECKING:
    from focalcal.files.rewriting import RewriteJob
    from focalcal.files.shard import Shard

_BOM = b"\xef\xbb\xbf"
# A line is as long as the scores of a million classes need at most.
_LONGEST_LINE = 32 << 20

Row = dict[str, Any]


@dataclass(frozen=True)
class RowBlock:
    """Some rows and the number of the line that each stands on; `name` begins messages."""

    name: str
    rows: list[Row]
    lines: list[int]

    def column(self, key: str) -> list[Any]:
        """The values of a key, which every row must have."""
        for row, line in zip(self.rows, self.lines, strict=True):
            if row.get(key) is None:
                raise InputError(
                    f"{self.name}: line {line} has no {shown(key)}. Give every line the same keys, or drop the line."
                )
        return [row[key] for row in self.rows]

    def scores(self, found: ScoreColumns) -> Array:
        """The scores, checked: (n, K), or (n,) if there is one number per row."""
        columns = [self.column(key) for key in found.names]
        values = self._numbers(columns[0] if found.single else list(zip(*columns, strict=True)))
        return check_scores(self.name, values, found.kind, lambda row: f"line {self.lines[row]}")

    def _numbers(self, rows: list[Any]) -> Array:
        """Rows of numbers, all of the same length, as an array."""
        first = len(rows[0]) if isinstance(rows[0], (list, tuple)) else None
        for row, line in zip(rows, self.lines, strict=True):
            length = len(row) if isinstance(row, (list, tuple)) else None
            if length != first:
                raise InputError(
                    f"{self.name}: line {line} has another number of scores than line {self.lines[0]}. "
                    "Give every line one score for each class."
                )
            wrong = next((each for each in (row if length is not None else [row]) if not _is_number(each)), None)
            if wrong is not None:
                raise InputError(
                    f"{self.name}: line {line}: {shown(repr(wrong))} is not a number. Write scores as numbers, such "
                    "as 0.25."
                )
        return np.array(rows, dtype=np.float64)

    def labels(self, key: str) -> Array:
        """Class numbers or names."""
        values = self.column(key)
        kinds = {type(each) for each in values}
        if kinds == {int} and all(abs(each) < 2**62 for each in values):
            return np.array(values, dtype=np.int64)
        if kinds == {str}:
            return self.texts(key)
        line = next(line for each, line in zip(values, self.lines, strict=True) if type(each) is not type(values[0]))
        raise InputError(f"{self.name}: line {line}: labels must be all class numbers or all names. Write one of both.")

    def weights(self, key: str) -> Array:
        """Numbers, one for each row."""
        weights = self._numbers(self.column(key))
        if weights.ndim != 1:
            raise InputError(f"{self.name}: {shown(key)} must be a number in every line; got lists.")
        return weights

    def texts(self, key: str) -> Array:
        """Strings; numbers are written as such."""
        values = [each if isinstance(each, str) else json.dumps(each) for each in self.column(key)]
        require_short(f"{self.name}: {key}", values)
        if not all(map(is_text, values)):
            raise FileFormatError(f"{self.name}: {key} holds characters that do not exist. Write it again.")
        return np.array(values, dtype=str)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**1000)


@contextmanager
def open_rows(source: SourceFile) -> Iterator[Iterator[tuple[int, Row]]]:
    """Open a file and give its rows with the numbers of their lines; empty lines are left out."""
    with open_unpacked(source) as file:
        yield _rows(source.name, file)


def _rows(name: str, file: IO[bytes]) -> Iterator[tuple[int, Row]]:
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise FileFormatError(f"{name}: line {number} has more than {_LONGEST_LINE:,} bytes. Write a row per line.")
        text = line.removeprefix(_BOM) if number == 1 else line
        if text.strip():
            yield number, _parsed(name, number, text)


def _parsed(name: str, number: int, line: bytes) -> Row:
    try:
        row = json.loads(line.decode("utf-8"), object_pairs_hook=_without_doubles)
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name}: line {number} is not UTF-8 text. Save the file as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        said = shown(str(error), longest=200)
        raise FileFormatError(f"{name}: line {number} is not JSON ({said}). Write one object per line.") from error
    if not isinstance(row, dict):
        raise FileFormatError(
            f"{name}: line {number} is not a JSON object, such as {{...}}. Write one object per line."
        )
    return row


def _without_doubles(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key stands there twice")
    return row


def _blocks(name: str, rows: Iterator[tuple[int, Row]], found: ScoreColumns) -> Iterator[RowBlock]:
    """The rows, a bounded number at a time."""
    block, size = RowBlock(name, [], []), 1
    for line, row in rows:
        if not block.rows:
            first = row.get(found.names[0])
            size = rows_per_batch(len(first) if isinstance(first, list) else len(found.names))
        block.rows.append(row)
        block.lines.append(line)
        if len(block.rows) >= size:
            yield block
            block = RowBlock(name, [], [])
    if block.rows:
        yield block


def _keys(source: SourceFile) -> list[str]:
    """The keys of the first row; none if there is no row."""
    with open_rows(source) as rows:
        return list(next(rows, (0, {}))[1])


def jsonl_tables(shard: Shard, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
    """The rows in tables of bounded size; the keys of the first line are those of all."""
    name, there = shard.name, _keys(shard.source)
    if not there:
        raise no_rows(name)
    found = find_score_columns(name, there, columns)
    keys = find_parts(name, [*there, *shard.constants], columns, by)
    with open_rows(shard.source) as rows:
        for block in _blocks(name, rows, found):
            parts = {part: _part(block, part, key, shard) for part, key in keys.items()}
            labels = parts.get("labels")
            if labels is not None and labels.dtype.kind == "i" and are_numbers(found.class_names):
                parts["labels"] = look_up(name, labels, found.class_names or ())
            scores = block.scores(found)
            yield PredictionTable(name, scores, found.kind, class_names=found.class_names, **parts)  # type: ignore[arg-type]


def _part(block: RowBlock, part: str, key: str, shard: Shard) -> Array:
    if key in shard.constants:
        return np.full(len(block.rows), shard.constants[key])
    return {"labels": block.labels, "weights": block.weights}.get(part, block.texts)(key)


def write_jsonl(table: PredictionTable, file: IO[bytes]) -> None:
    """Write a table: a list of scores per row, or a number for each class if the classes have names."""
    if table.history:
        raise InputError(f"{table.name}: JSON lines cannot hold the record of an AdaFocal run. Write .npz or .parquet.")
    names = table.class_names
    if names is not None and len(set(names)) < len(names):
        raise InputError(f"{table.name}: two classes share a name, so their keys would too. Write .npz instead.")
    by_class, labels = names is not None and table.scores.ndim == 2, table.labels
    if by_class and labels is not None:
        labels = np.array(names, dtype=str)[labels]
    given = {"label": labels, "weight": table.weights, "split": table.split}
    columns = {key: values.tolist() for key, values in given.items() if values is not None}
    scores = table.scores.astype(np.float64).tolist()
    with packed(file, table.name) as out:
        for place, row in enumerate(scores):
            new: Row = {table.kind: row}
            if by_class:
                new = _by_class(table.kind, names or (), row)
            _write_row(out, {**new, **{key: values[place] for key, values in columns.items()}})


def _by_class(kind: Any, names: Sequence[str], row: list[float]) -> Row:
    return {PREFIX[kind] + name: score for name, score in zip(names, row, strict=True)}


def _write_row(out: IO[bytes], row: Row) -> None:
    out.write(json.dumps(row, ensure_ascii=False).encode("utf-8", errors="backslashreplace") + b"\n")


def rewrite_jsonl(shard: Shard, job: RewriteJob, out: IO[bytes]) -> None:
    """Write a copy of a file with new scores; all other keys stay as they are."""
    there = _keys(shard.source)
    if not there:  # among other files, one may be empty
        return
    found = find_score_columns(shard.name, there, job.columns)
    new = dict(zip(found.names, found.renamed(job.to), strict=True))
    require_free(shard.name, tuple(new.values()), [each for each in there if each not in found.names])
    calibrated = job.calibrated(shard.name, found.kind)
    with open_rows(shard.source) as rows, packed(out, shard.suffix) as file:
        for block in _blocks(shard.name, rows, found):
            scores = calibrated(block.scores(found)).tolist()
            for row, values in zip(block.rows, scores, strict=True):
                by_key = dict(zip(found.names, [values] if found.single else values, strict=True))
                _write_row(file, {new.get(key, key): by_key.get(key, value) for key, value in row.items()})
