"""The table of file formats, which everything that reads or writes prediction files asks.

To add a format, write its functions in a module of its own and enter it here, or call `register_format`. The functions
are given by name and imported on first use, so that the command line can list the formats without loading torch.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from focalcal.errors import InputError

Function: TypeAlias = "str | Callable[..., Any]"
Task: TypeAlias = Literal["stream", "read", "write", "rewrite", "record_batches"]

# What a file may hold beside the scores.
PARTS = ("labels", "weights", "split", "class_names", "history")
# Bytes that are enough to recognise a format.
SNIFFED = 16
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib")
# What may follow the suffix of text.
COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True)
class FileFormat:
    """A format of prediction files: how it is recognised, what it can hold, and the functions that read and write it.

    where `name` is what messages call it, `suffixes` are the endings of its files and `about` describes it in a few
    words. The functions are

    - `stream(shard, columns, by)`, which yields the rows of a `Shard` as `PredictionTable`s of bounded size, with the
      column `by` as their groups; `shard.source.open()` gives the bytes, `shard.name` begins messages;
    - `read(shard, columns)`, which returns all rows; by default what `stream` yields, joined;
    - `write(table, file)`, which writes a `PredictionTable` to a binary file;
    - `rewrite(shard, job, out)`, which copies a shard and puts `job.calibrated(...)` in place of its scores;
    - `record_batches(shard, columns, num_rows)`, which yields some columns as record batches of Arrow.

    Each is a function, or its name as `"package.module:function"`; what is None cannot be done with this format. A file
    has the bytes `magic` at the place `magic_at`, if that is known. `holds` are the parts that a file can have beside
    its scores, `extra` is the extra of focalcal that the format needs, and `is_text` says that it may be written to
    standard output. `by_rows` is False where `stream` reads a whole file at a time. `own_memory` says that no table
    shares memory with the next one; other tables are copied. `compressible` says that its files may be compressed, with
    .gz or .zst behind their suffix.

    >>> FORMATS["parquet"].suffixes, FORMATS["parquet"].extra
    (('.parquet',), 'files')
    >>> FORMATS["arrow"].can("read"), FORMATS["arrow"].can("write")
    (True, False)
    """

    name: str
    suffixes: tuple[str, ...]
    about: str
    stream: Function
    read: Function | None = None
    write: Function | None = None
    rewrite: Function | None = None
    record_batches: Function | None = None
    magic: bytes = b""
    magic_at: int = 0
    holds: tuple[str, ...] = PARTS
    extra: str | None = None
    is_text: bool = False
    by_rows: bool = True
    own_memory: bool = False
    compressible: bool = False

    def can(self, task: Task) -> bool:
        """Whether the format has a function for a task; what can be streamed can be read."""
        return task == "read" or getattr(self, task) is not None

    def function(self, task: Task) -> Callable[..., Any]:
        """The function for a task, imported if it is given by name."""
        given: Function = getattr(self, task)
        return pkgutil.resolve_name(given) if isinstance(given, str) else given

    def sniff(self, begin: bytes) -> bool:
        """Whether a file that begins with these bytes is of this format.

        >>> FORMATS["npz"].sniff(b"PK\\x03\\x04"), FORMATS["csv"].sniff(b"label,prob_0")
        (True, False)
        """
        return bool(self.magic) and begin[self.magic_at :].startswith(self.magic)


NPZ = FileFormat(
    "npz",
    (".npz",),
    "NumPy archive of named arrays",
    stream="focalcal.files.npz:npz_tables",
    read="focalcal.files.npz:read_npz",
    write="focalcal.files.npz:write_npz",
    rewrite="focalcal.files.npz:rewrite_npz",
    magic=b"PK",
    own_memory=True,
)
NPY = FileFormat(
    "npy",
    (".npy",),
    "NumPy arrays, each in a file of its own",
    stream="focalcal.files.npy:npy_tables",
    read="focalcal.files.npy:read_npy",
    write="focalcal.files.npy:write_npy",
    rewrite="focalcal.files.npy:rewrite_npy",
    magic=b"\x93NUMPY",
    holds=(),
    own_memory=True,
)
CSV = FileFormat(
    "csv",
    (".csv", ".tsv"),
    "Comma- or tab-separated text with a header line",
    stream="focalcal.files.csv:text_tables",
    write="focalcal.files.csv:write_text",
    rewrite="focalcal.files.csv:rewrite_text",
    holds=("labels", "weights", "split", "class_names"),
    is_text=True,
    by_rows=False,
    own_memory=True,
    compressible=True,
)
JSONL = FileFormat(
    "jsonl",
    (".jsonl", ".ndjson"),
    "JSON lines: an object for each row, with a list of scores or a number for each class",
    stream="focalcal.files.jsonl:jsonl_tables",
    write="focalcal.files.jsonl:write_jsonl",
    rewrite="focalcal.files.jsonl:rewrite_jsonl",
    holds=("labels", "weights", "split", "class_names"),
    is_text=True,
    own_memory=True,
    compressible=True,
)
PARQUET = FileFormat(
    "parquet",
    (".parquet",),
    "Apache Parquet: a column of lists, or one column per class",
    stream="focalcal.files.parquet:parquet_tables",
    read="focalcal.files.parquet:read_parquet",
    write="focalcal.files.parquet:write_parquet",
    rewrite="focalcal.files.parquet:rewrite_parquet",
    record_batches="focalcal.files.parquet:parquet_batches",
    magic=b"PAR1",
    extra="files",
    own_memory=True,
)
ARROW = FileFormat(
    "arrow",
    (".arrow", ".feather"),
    "Apache Arrow IPC, with the columns of Parquet",
    stream="focalcal.files.arrow_ipc:ipc_tables",
    record_batches="focalcal.files.arrow_ipc:ipc_batches",
    magic=b"ARROW1",
    holds=("labels", "weights", "split", "class_names"),
    extra="files",
    own_memory=True,
)
SAFETENSORS = FileFormat(
    "safetensors",
    (".safetensors",),
    "Named tensors behind a JSON header",
    stream="focalcal.files.safetensors:tensors_tables",
    read="focalcal.files.safetensors:read_tensors",
    write="focalcal.files.safetensors:write_tensors",
    rewrite="focalcal.files.safetensors:rewrite_tensors",
    magic=b"\0{",  # the end of the length of its header, and the header
    magic_at=7,
    own_memory=True,
)

FORMATS: dict[str, FileFormat] = {each.name: each for each in (NPZ, NPY, CSV, JSONL, PARQUET, ARROW, SAFETENSORS)}
"""All formats by name."""


def register_format(file_format: FileFormat) -> None:
    """Add a format of your own: its files are then read, streamed and written like all others, also by the commands.

    `table_from_columns` finds scores, labels and the other parts by their usual names.

    >>> from focalcal.files import read_predictions, table_from_columns
    >>> import json, pathlib, tempfile
    >>> def stream_json(shard, columns, by):
    ...     with shard.source.open() as file:
    ...         yield table_from_columns(shard.name, json.load(file), columns, by)
    >>> register_format(FileFormat("json", (".json",), "One JSON object of lists", stream=stream_json, by_rows=False))
    >>> path = pathlib.Path(tempfile.mkdtemp(), "val.json")
    >>> _ = path.write_text('{"probs": [[0.75, 0.25], [0.5, 0.5]], "labels": [0, 1]}')
    >>> read_predictions(path).labels
    array([0, 1])
    >>> _ = FORMATS.pop("json")
    """
    taken = [each for other in FORMATS.values() for each in other.suffixes]
    wrong = [each for each in file_format.suffixes if not each.startswith(".") or each != each.lower()]
    if file_format.name in FORMATS:
        raise InputError(f"name: there is a format named {file_format.name} already. Choose another name.")
    if wrong or not file_format.suffixes:
        raise InputError(f"suffixes: must be lower-case and begin with a dot; got {', '.join(wrong) or 'none'}.")
    if any(each in taken for each in file_format.suffixes):
        raise InputError(
            f"suffixes: {', '.join(file_format.suffixes)} belong to another format. Choose other suffixes."
        )
    FORMATS[file_format.name] = file_format


def suffix_of(path: str | PurePath) -> str:
    """The suffix of a file in lower case, with that of its compression.

    >>> suffix_of("val.CSV"), suffix_of("val.csv.gz"), suffix_of("val.gz")
    ('.csv', '.csv.gz', '.gz')
    """
    *others, last = ["", *PurePath(path).suffixes]
    return (others[-1] + last if last.lower() in COMPRESSED and others else last).lower()


def _uncompressed(suffix: str) -> str:
    """The suffix without that of a compression.

    >>> _uncompressed(".csv.gz"), _uncompressed(".csv")
    ('.csv', '.csv')
    """
    return next((suffix.removesuffix(each) for each in COMPRESSED if suffix.endswith(each)), suffix)


def format_of(path: str | PurePath) -> FileFormat:
    """The format that a file's suffix stands for.

    >>> format_of("val.NPZ").name
    'npz'
    """
    suffix = suffix_of(path)
    plain = _uncompressed(suffix)
    found = next((each for each in FORMATS.values() if plain in each.suffixes), None)
    if found is not None and suffix != plain and not found.compressible:
        raise InputError(f"{path}: {found.name} files are not read compressed. Unpack it first.")
    if found is not None:
        return found
    if suffix in _PICKLES:
        raise InputError(
            f"{path}: is a pickle by its suffix. focalcal never reads pickles, because they can run any code. "
            "Save the arrays with np.savez or safetensors."
        )
    said = f"unrecognised file suffix {suffix}" if suffix else "has no suffix that says its format"
    raise InputError(f"{path}: {said}; known are {known_suffixes()}. Save or rename it as one of those.")


def is_known(path: str | PurePath) -> bool:
    """Whether a file may hold predictions, by its suffix.

    >>> is_known("val.csv.gz"), is_known("notes.txt")
    (True, False)
    """
    suffix = suffix_of(path)
    plain = _uncompressed(suffix)
    return any(plain in each.suffixes and (each.compressible or suffix == plain) for each in FORMATS.values())


def format_by_bytes(begin: bytes) -> FileFormat | None:
    """The format that a file's first bytes belong to; None for text and for what is not known.

    >>> format_by_bytes(b"PAR1....").name, format_by_bytes(b"label,prob_0")
    ('parquet', None)
    """
    return next((each for each in FORMATS.values() if each.sniff(begin)), None)


def suffixes_that(task: Task) -> tuple[str, ...]:
    """The suffixes of all formats with a function for a task.

    >>> suffixes_that("record_batches")
    ('.parquet', '.arrow', '.feather')
    """
    return tuple(suffix for each in FORMATS.values() if each.can(task) for suffix in each.suffixes)


def known_suffixes(task: Task = "read") -> str:
    """The suffixes of all formats, or of those with a function for a task, as a sentence has them.

    >>> known_suffixes("record_batches")
    '.parquet, .arrow or .feather'
    """
    *others, last = suffixes_that(task)
    return f"{', '.join(others)} or {last}" if others else last
