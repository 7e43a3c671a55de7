"""Finding the files of a set of predictions: paths, directories, patterns, addresses and standard input."""

from __future__ import annotations

import glob
import itertools
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path, PurePath
from urllib.parse import unquote

from focalcal.atomic import names_full_disk
from focalcal.core.score_kinds import KINDS
from focalcal.errors import InputError
from focalcal.files.compression import open_unpacked
from focalcal.files.npy import open_npy
from focalcal.files.remote import is_address, remote_sources
from focalcal.files.shard import Shard
from focalcal.files.source_file import SourceFile, readable_file
from focalcal.files.table import (
    CSV,
    JSONL,
    NPY,
    SNIFFED,
    FileFormat,
    format_by_bytes,
    format_of,
    is_known,
    known_suffixes,
    suffix_of,
)
from focalcal.printable import shown

STANDARD_INPUT = "-"
_SIGNS = "*?["


def find_shards(paths: str | Path | Sequence[str | Path], stack: ExitStack) -> list[Shard]:
    """Find the shards that paths refer to, in order; standard input is kept in a file until `stack` closes."""
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not given:
        raise InputError("paths: must name at least one file; got none.")
    if not all(str(path).strip() for path in given):
        raise InputError("paths: must name a file each; got an empty name. Check for an unset variable.")
    if sum(str(path) == STANDARD_INPUT for path in given) > 1:
        raise InputError("standard input: can be read only once. Name - once.")
    return _in_pairs([shard for path in given for shard in _expand(str(path), stack)])


def names_many(paths: str | Path | Sequence[str | Path]) -> bool:
    """Whether the first path may refer to several files, as a directory or a pattern does."""
    first = str(paths if isinstance(paths, (str, Path)) else paths[0])
    return Path(first).is_dir() or _is_pattern(first)


def _is_pattern(path: str) -> bool:
    return any(sign in path for sign in _SIGNS) and not Path(path).exists()


def _expand(path: str, stack: ExitStack) -> list[Shard]:
    if path == STANDARD_INPUT:
        return [_standard_input(stack)]
    if is_address(path):
        sources, root = remote_sources(path)
        return [_shard(source, root) for source in sources]
    if _is_pattern(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise InputError(f"{path}: no file matches this pattern. Check it, and that it is quoted in the shell.")
        return [shard for each in found for shard in _at(each, _before_wildcards(path))]
    return _at(path, Path(path))


def _before_wildcards(pattern: str) -> Path:
    """The folder that a pattern names: what stands before its first wildcard.

    >>> _before_wildcards("runs/split=val/*/part-?.parquet").as_posix(), _before_wildcards("*.npz").as_posix()
    ('runs/split=val', '.')
    """
    return Path(*itertools.takewhile(lambda part: not any(sign in part for sign in _SIGNS), Path(pattern).parts))


def _at(path: str, root: Path) -> list[Shard]:
    """The shard at a path, or those in a directory."""
    place = Path(path)
    with readable_file(path):
        exists = place.exists()
        is_folder = place.is_dir()
    if not exists:
        raise InputError(f"{path}: there is no such file. Check the path.")
    return _in_folder(place, root) if is_folder else [_shard(SourceFile.of(path), root)]


def _shard(source: SourceFile, root: Path) -> Shard:
    """A file as a shard; folders between it and `root`, the one that the caller named, may be columns."""
    return Shard(format_of(source.path), (source,), partition_of(source.name, source.path.relative_to(root)))


def partition_of(name: str, path: PurePath) -> dict[str, str]:
    """The columns encoded in the names of folders, as Hive and Spark write them; `name` begins messages.

    >>> partition_of("part-0", PurePath("split=val/language=en/part-0.parquet"))
    {'split': 'val', 'language': 'en'}
    """
    columns: dict[str, str] = {}
    for folder in path.parts[:-1]:
        key, sign, value = folder.partition("=")
        if key in columns and sign:
            both = f"{shown(key)}={shown(columns[key])} and {shown(folder)}"
            raise InputError(f"{name}: lies in two folders for one column, {both}. Rename one of them.")
        if key and sign:
            columns[key] = unquote(value)
    return columns


def _in_folder(folder: Path, root: Path) -> list[Shard]:
    with readable_file(str(folder)):
        there = sorted(each for each in folder.iterdir() if each.name[0] not in "._")
        parts = [each for each in there if "=" in each.name and each.is_dir()]
        files = [each for each in there if is_known(each) and each.is_file()]
    if parts and not files:
        return [shard for part in parts for shard in _in_folder(part, root)]
    if not files:
        raise InputError(
            f"{folder}: is a directory without prediction files ({known_suffixes()}). Name the files, "
            f"or a pattern such as '{folder}/*/*.parquet'."
        )
    suffixes = Counter(suffix_of(each) for each in files)
    if len(suffixes) > 1:
        said = ", ".join(f"{count} {suffix}" for suffix, count in suffixes.items())
        raise InputError(f"{folder}: holds files of several formats: {said}. Name one with a pattern such as '*.npz'.")
    sources = tuple(SourceFile.of(each) for each in files)
    if any(each.stem in KINDS for each in files) and format_of(files[0]) is NPY:
        return [Shard(NPY, sources, is_folder=True)]
    return [_shard(each, root) for each in sources]


def _standard_input(stack: ExitStack) -> Shard:
    """Copy standard input to a temporary file, because archives are read from their end."""
    kept = stack.enter_context(tempfile.NamedTemporaryFile(prefix="focalcal-"))  # noqa: SIM115
    with names_full_disk(kept.name):
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
    source = SourceFile("standard input", Path(kept.name))
    kept.seek(0)
    found = format_by_bytes(kept.read(SNIFFED))
    return Shard(found or _text_format(source), (source,))


def _text_format(source: SourceFile) -> FileFormat:
    """The format of text: JSON lines begin with an object."""
    with open_unpacked(source) as file:
        return JSONL if file.read(SNIFFED).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{") else CSV


def _in_pairs(shards: list[Shard]) -> list[Shard]:
    """Combine an .npy of scores and the .npy of labels that follows it into one shard."""
    paired: list[Shard] = []
    for shard in shards:
        last = paired[-1] if paired else None
        if (
            last
            and last.format is shard.format is NPY
            and _is_single(last)
            and _is_single(shard)
            and _are_labels(shard, last)
        ):
            paired[-1] = Shard(NPY, (last.source, shard.source))
        else:
            paired.append(shard)
    return paired


def _is_single(shard: Shard) -> bool:
    return len(shard.sources) == 1 and not shard.is_folder


def _are_labels(shard: Shard, scores: Shard) -> bool:
    array, before = open_npy(shard.source), open_npy(scores.source)
    return len(array.shape) == 1 and (array.dtype.kind != "f" or len(before.shape) == 2)
