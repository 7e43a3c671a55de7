"""The .csv and .tsv formats: separated text with a header line, read and rewritten in blocks of lines."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import IO, TYPE_CHECKING

import numpy as np

from focalcal.core.checks import Array
from focalcal.core.score_kinds import Kind
from focalcal.errors import FileFormatError, InputError
from focalcal.files.checks import NoRowsError, check_scores, of_two
from focalcal.files.column_names import (
    PREFIX,
    ScoreColumns,
    find_parts,
    find_score_columns,
    require_free,
    require_once,
)
from focalcal.files.compression import open_unpacked, packed
from focalcal.files.memory_limits import require_memory, require_short, rows_per_batch
from focalcal.files.messages import listed
from focalcal.files.prediction_table import Columns, PredictionTable
from focalcal.files.source_file import SourceFile
from focalcal.files.table import suffix_of
from focalcal.printable import shown

if TYPE_CHECKING:
    from _csv import Reader

    from focalcal.files.rewriting import RewriteJob
    from focalcal.files.shard import Shard

_BOM = b"\xef\xbb\xbf"
# Enough for the header line of ten thousand classes.
_SAMPLE = 1 << 20
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)\s*", re.I | re.A)


@dataclass(frozen=True)
class LineBlock:
    """A block of rows: their fields, and the number of the line on which each ends."""

    rows: list[list[str]]
    lines: list[int]

    def column(self, place: int) -> list[str]:
        """The fields of one column."""
        return [row[place] for row in self.rows]


@dataclass(frozen=True)
class TextFile:
    """An open text file: its header, its dialect, and which of its columns are scores."""

    name: str
    header: list[str]
    delimiter: str
    newline: str
    bom: bool
    scores: ScoreColumns
    reader: Reader

    @property
    def places(self) -> list[int]:
        """The positions of the score columns."""
        place = {name: k for k, name in enumerate(self.header)}
        return [place[name] for name in self.scores.names]

    def blocks(self) -> Iterator[LineBlock]:
        """The rows, a bounded number at a time; empty lines are left out."""
        size, width = rows_per_batch(len(self.header)), len(self.header)
        block = LineBlock([], [])
        for row in self.reader:
            if len(row) != width and row:
                raise FileFormatError(
                    f"{self.name}: line {self.reader.line_num} has {len(row)} fields and the header {width}. "
                    "Give every line as many, and quote fields that hold the delimiter."
                )
            if row:
                block.rows.append(row)
                block.lines.append(self.reader.line_num)
            if len(block.rows) == size:
                yield block
                block = LineBlock([], [])
        if block.rows:
            yield block

    def read_scores(self, block: LineBlock) -> Array:
        """The scores of a block, checked: (n, K), or (n,) if they are in one column."""
        values = self.read_numbers(block, self.places)

        def where(row: int) -> str:
            return f"line {block.lines[row]}"

        return check_scores(self.name, values[:, 0] if self.scores.single else values, self.scores.kind, where)

    def read_numbers(self, block: LineBlock, places: Sequence[int]) -> Array:
        """Some columns of a block as numbers (n, columns)."""
        pick = itemgetter(*places)
        fields = block.column(places[0]) if len(places) == 1 else list(chain.from_iterable(map(pick, block.rows)))
        text = "".join(fields)
        if self.has_decimal_commas(text):
            fields, text = [field.replace(",", ".") for field in fields], text.replace(",", ".")
        try:
            # float() accepts 1_0 and the digits of all scripts, which no program writes.
            if "_" in text or not text.isascii():
                raise ValueError
            values = np.fromiter(map(float, fields), np.float64, len(fields))
        except ValueError as error:
            raise self._not_a_number(block, places) from error
        return values.reshape(len(block.rows), len(places))

    def has_decimal_commas(self, text: str) -> bool:
        """Whether numbers are written as 0,75, which a comma between fields rules out, and a decimal point, too."""
        return self.delimiter != "," and "," in text and "." not in text

    def _not_a_number(self, block: LineBlock, places: Sequence[int]) -> InputError:
        commas = self.has_decimal_commas("".join(row[place] for row in block.rows for place in places))
        line, place, field = next(
            (line, place, row[place])
            for row, line in zip(block.rows, block.lines, strict=True)
            for place in places
            if not _NUMBER.fullmatch(row[place].replace(",", ".") if commas else row[place])
        )
        what = f"{listed([field])!r} is not a number" if field.strip() else "is empty"
        return InputError(
            f"{self.name}: line {line}, column {listed([self.header[place]])}: {what}. "
            "Write a number such as 0.25 or -1.5e-3, or drop the line."
        )


@contextmanager
def open_text(source: SourceFile, columns: Columns) -> Iterator[TextFile]:
    """Open a text file and read its header."""
    with open_unpacked(source) as file:
        begin = file.read(_SAMPLE)
        _require_text(source, begin)
    with open_unpacked(source) as file:
        stream = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        reader = None
        try:
            delimiter = _delimiter(source, begin)
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            header = [name.lstrip() for name in next(reader, [])]
            _require_header(source, header)
            newline = "\r\n" if b"\r\n" in begin else "\n"
            scores = find_score_columns(source.name, header, columns)
            yield TextFile(source.name, header, delimiter, newline, begin.startswith(_BOM), scores, reader)
        except UnicodeDecodeError as error:
            raise FileFormatError(
                f"{source.name}: line {_undecodable_line(source)} is not UTF-8 text. Save the file as UTF-8."
            ) from error
        except csv.Error as error:
            line = 1 if reader is None else reader.line_num
            said = shown(error)
            raise FileFormatError(f"{source.name}: line {line} cannot be read: {said}. Check its quotes.") from error
        finally:
            stream.detach()


def _require_text(source: SourceFile, begin: bytes) -> None:
    if not begin.strip(_BOM + b" \r\n\t"):
        raise FileFormatError(f"{source.name}: is empty. Give a file with a header line and rows.")
    if b"\0" in begin and begin[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise FileFormatError(f"{source.name}: is not text: it holds null bytes. Save it as UTF-8 text.")


def _delimiter(source: SourceFile, begin: bytes) -> str:
    """The delimiter of the header: a tab in a .tsv, else the one that gives the most fields."""
    if suffix_of(source.path).startswith(".tsv"):
        return "\t"
    text = begin.decode("utf-8-sig", errors="ignore")
    return max(",\t;", key=lambda sign: _num_fields(text, sign))


def _num_fields(text: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)))
    except (csv.Error, StopIteration):
        return 0


def _require_header(source: SourceFile, header: list[str]) -> None:
    if header and all(_NUMBER.fullmatch(name) for name in header):
        raise FileFormatError(
            f"{source.name}: has no header line: line 1 holds only numbers. "
            "Begin with one such as label,logit_0,logit_1."
        )
    require_once(source.name, header)


def _undecodable_line(source: SourceFile) -> int:
    with open_unpacked(source) as file:
        return next((k for k, line in enumerate(file, 1) if "\ufffd" in line.decode(errors="replace")), 1)


def read_text(source: SourceFile, columns: Columns, by: str | None = None) -> PredictionTable:
    """Read a whole text file; its scores are checked here, where line numbers are known."""
    with open_text(source, columns) as file:
        keys = find_parts(source.name, file.header, columns, by)
        places = {part: file.header.index(key) for part, key in keys.items()}
        scores, lines, weights = list[Array](), list[int](), list[Array]()
        fields: dict[str, list[Array]] = {"labels": [], "split": [], "groups": []}
        for block in file.blocks():
            scores.append(file.read_scores(block))
            require_memory(f"{source.name}:", len(scores) * scores[0].nbytes)
            lines.extend(block.lines)
            for part in fields.keys() & places.keys():
                column = block.column(places[part])
                require_short(f"{source.name}: {part}", column)
                fields[part].append(np.array(column, dtype=str))
            if "weights" in places:
                weights.append(file.read_numbers(block, [places["weights"]])[:, 0])
        if not scores:
            raise NoRowsError(f"{source.name}: has a header line but no rows. Give a file that has some.")
        labels = np.concatenate(fields["labels"]) if fields["labels"] else None
        return PredictionTable(
            name=source.name,
            scores=np.concatenate(scores),
            kind=file.scores.kind,
            labels=None if labels is None else _labels(source.name, labels, file.scores, lines, columns),
            weights=np.concatenate(weights) if weights else None,
            split=np.concatenate(fields["split"]) if fields["split"] else None,
            class_names=columns.names_of(source.name, file.scores.class_names),
            groups=np.concatenate(fields["groups"]) if fields["groups"] else None,
        )


def _labels(name: str, labels: Array, scores: ScoreColumns, lines: list[int], columns: Columns) -> Array:
    """Convert labels, which are class numbers or names of score columns, to class numbers."""
    names = columns.names_of(name, scores.class_names) or ()
    num_classes = 2 if scores.single else len(scores.names)
    if columns.positive is not None and not names and num_classes == 2:
        return of_two(name, np.char.strip(labels), columns.positive)
    if not set(np.unique(labels).tolist()) <= set(names):
        labels = np.char.strip(labels)
    values, inverse = np.unique(labels, return_inverse=True)
    # If columns are numbered, but not from 0, a label is the number of a column and never its position.
    are_names = not set(names).isdisjoint(values.tolist()) or (names and all(map(_WHOLE.fullmatch, names)))
    known = names if are_names else [str(k) for k in range(num_classes)]
    number = {each: k for k, each in enumerate(known)}
    if columns.ignore_index is not None:
        number |= {str(columns.ignore_index): columns.ignore_index}
    for wrong in (each for each in values.tolist() if each not in number):
        line = lines[int((labels == wrong).argmax())]
        what = f"is {listed([wrong])!r}" if wrong else "is empty"
        rule = f"one of the classes {listed(names)}" if names else f"a class number from 0 to {num_classes - 1}"
        option = "the class that is scored with --positive" if scores.single else "the classes in order with --classes"
        way = f"Name {option}" if wrong and not names and not _WHOLE.fullmatch(wrong) else "Correct it"
        raise InputError(f"{name}: line {line}: the label {what}; it must be {rule}. {way}, or drop the line.")
    return np.array([number[each] for each in values.tolist()], dtype=np.int64)[inverse]


def text_tables(shard: Shard, columns: Columns, by: str | None) -> Iterator[PredictionTable]:
    """The rows of a text file in one table."""
    yield read_text(shard.source, columns, by)


def write_text(table: PredictionTable, file: IO[bytes]) -> None:
    """Write a table as text, one score column per class; fields are separated by tabs if its name ends in .tsv."""
    if table.history:
        raise InputError(f"{table.name}: text cannot hold the record of an AdaFocal run. Write .npz or .parquet.")
    names = table.class_names if table.scores.ndim == 2 else None  # one column has no place for them
    if names is not None and len(set(names)) < len(names):
        raise InputError(f"{table.name}: two classes share a name, so their columns would too. Write .npz instead.")
    classes = names or [str(k) for k in range(table.num_classes)]
    header = [PREFIX[table.kind][:-1]] if table.scores.ndim == 1 else [PREFIX[table.kind] + each for each in classes]
    columns: list[list[object]] = table.scores.reshape(table.num_rows, len(header)).T.astype(np.float64).tolist()
    labels = table.labels if names is None or table.labels is None else np.array(names, dtype=str)[table.labels]
    for name, values in (("label", labels), ("weight", table.weights), ("split", table.split)):
        if values is not None:
            header.append(name)
            columns.append(values.tolist())
    delimiter = "\t" if suffix_of(table.name).startswith(".tsv") else ","
    with packed(file, table.name) as out:
        stream = io.TextIOWrapper(out, encoding="utf-8", newline="")
        writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*columns, strict=True))
        stream.detach()  # flushes; closing the file is left to the caller


def rewrite_text(shard: Shard, job: RewriteJob, out: IO[bytes]) -> None:
    """Write a copy of a text file with new scores; all other fields stay as they are."""
    with open_text(shard.source, job.columns) as file, packed(out, shard.suffix) as packed_out:
        others = [each for each in file.header if each not in file.scores.names]
        require_free(file.name, file.scores.renamed(job.to), others)
        _rewrite(file, packed_out, job.to, job.calibrated(file.name, file.scores.kind))


def _rewrite(file: TextFile, out: IO[bytes], to: Kind, calibrated: Callable[[Array], Array]) -> None:
    """Write the file with its scores run through `calibrated`, block by block."""
    new = dict(zip(file.scores.names, file.scores.renamed(to), strict=True))
    header, places = [new.get(name, name) for name in file.header], file.places
    stream = io.TextIOWrapper(out, encoding="utf-8-sig" if file.bom else "utf-8", newline="")
    try:
        writer = csv.writer(stream, delimiter=file.delimiter, lineterminator=file.newline)
        writer.writerow(header)
        for block in file.blocks():
            scores = calibrated(file.read_scores(block))
            commas = file.has_decimal_commas("".join(row[place] for row in block.rows for place in places))
            for row, values in zip(block.rows, scores.reshape(len(scores), -1).tolist(), strict=True):
                for place, value in zip(places, values, strict=True):
                    row[place] = str(value).replace(".", ",") if commas else value
            writer.writerows(block.rows)
        stream.flush()
    finally:
        stream.detach()
