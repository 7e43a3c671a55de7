"""From what the caller names (files, directories, patterns, standard input) to the shards of one set."""

from __future__ import annotations

import glob
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from focalcal.errors import InputError
from focalcal.files.npy import open_npy
from focalcal.files.remote import is_address, remote_sources
from focalcal.files.source_file import SourceFile, format_by_bytes, readable_file
from focalcal.predictions.arrays import KINDS

FORMATS = ("npz", "npy", "csv", "tsv", "parquet", "safetensors", "arrow", "feather")
_READ_ONLY = ("arrow", "feather")
FOLDER = "folder"
_KNOWN = ".npz, .npy, .csv, .tsv, .parquet, .arrow, .feather or .safetensors"
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib")
STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Shard:
    """One file with its format; scores and labels in two .npy are one shard, and so is a directory of named .npy.

    `constants` are the columns that a path such as `split=val/language=en/part-0.parquet` has of its own.
    """

    format: str
    sources: tuple[SourceFile, ...]
    constants: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> SourceFile:
        """The file, or the one with the scores."""
        return self.sources[0]

    @property
    def path(self) -> Path:
        """The file, or the directory of a shard that is one."""
        return self.source.path.parent if self.format == FOLDER else self.source.path

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.path) if self.format == FOLDER else self.source.name


def find_shards(paths: str | Path | Sequence[str | Path], stack: ExitStack) -> list[Shard]:
    """The shards that some paths stand for, in order; standard input is kept in a file until `stack` closes."""
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not given:
        raise InputError("paths: must name at least one file; got none.")
    if not all(str(path).strip() for path in given):
        raise InputError("paths: must name a file each; got an empty name. Check for an unset variable.")
    if sum(str(path) == STANDARD_INPUT for path in given) > 1:
        raise InputError("standard input: can be read only once. Name - once.")
    return _in_pairs([shard for path in given for shard in _expand(str(path), stack)])


def names_many(paths: str | Path | Sequence[str | Path]) -> bool:
    """Whether the first path may stand for several files: whether it is a directory or a pattern."""
    first = str(paths if isinstance(paths, (str, Path)) else paths[0])
    return Path(first).is_dir() or _is_pattern(first)


def _is_pattern(path: str) -> bool:
    return any(sign in path for sign in "*?[") and not Path(path).exists()


def _expand(path: str, stack: ExitStack) -> list[Shard]:
    if path == STANDARD_INPUT:
        return [_standard_input(stack)]
    if is_address(path):
        return [_shard(source) for source in remote_sources(path)]
    if _is_pattern(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise InputError(f"{path}: no file matches this pattern. Check it, and that it is quoted in the shell.")
        return [shard for each in found for shard in _expand(each, stack)]
    place = Path(path)
    with readable_file(path):
        exists = place.exists()
        is_folder = place.is_dir()
    if not exists:
        raise InputError(f"{path}: there is no such file. Check the path.")
    return _in_folder(place) if is_folder else [_shard(SourceFile.of(path))]


def _shard(source: SourceFile) -> Shard:
    return Shard(format_of(source.path), (source,), partition_of(source.path))


def partition_of(path: Path) -> dict[str, str]:
    """The columns that the names of folders are, as Hive and Spark write them.

    >>> partition_of(Path("scores/split=val/language=en/part-0.parquet"))
    {'split': 'val', 'language': 'en'}
    """
    pairs = (part.partition("=") for part in path.parts[:-1])
    return {key: unquote(value) for key, sign, value in pairs if key and sign}


def format_of(path: str | Path) -> str:
    """The format that a file's suffix stands for.

    >>> format_of("val.NPZ")
    'npz'
    """
    suffix = Path(path).suffix.lower()
    if suffix[1:] in FORMATS:
        return suffix[1:]
    if suffix in _PICKLES:
        raise InputError(
            f"{path}: is a pickle by its suffix. focalcal never reads pickles, because they can run any code. "
            "Save the arrays with np.savez or safetensors."
        )
    has = f"has the suffix {suffix}" if suffix else "has no suffix"
    raise InputError(f"{path}: {has}, which says no format; known are {_KNOWN}. Save or rename it as one of those.")


def require_writable(name: str | Path, kind: str) -> None:
    """Refuse a format that is read but not written.

    >>> require_writable("val.parquet", "parquet")
    """
    if kind in _READ_ONLY:
        raise InputError(f"{name}: Arrow's own files are read, but not written. Use .parquet, which holds the same.")


def _in_folder(folder: Path) -> list[Shard]:
    with readable_file(str(folder)):
        there = sorted(each for each in folder.iterdir() if each.name[0] not in "._")
        parts = [each for each in there if "=" in each.name and each.is_dir()]
        files = [each for each in there if each.suffix.lower()[1:] in FORMATS and each.is_file()]
    if parts and not files:
        return [shard for part in parts for shard in _in_folder(part)]
    if not files:
        raise InputError(
            f"{folder}: is a directory without prediction files ({_KNOWN}). Name the files, or a pattern such as "
            f"'{folder}/*/*.parquet'."
        )
    formats = Counter(format_of(each) for each in files)
    if len(formats) > 1:
        said = ", ".join(f"{count} .{name}" for name, count in formats.items())
        raise InputError(f"{folder}: holds files of several formats: {said}. Name one with a pattern such as '*.npz'.")
    sources = tuple(SourceFile.of(each) for each in files)
    if any(each.stem in KINDS for each in files) and "npy" in formats:
        return [Shard(FOLDER, sources)]
    return [_shard(each) for each in sources]


def _standard_input(stack: ExitStack) -> Shard:
    """Standard input, copied to a file: archives are read from their end."""
    kept = stack.enter_context(tempfile.NamedTemporaryFile(prefix="focalcal-"))  # noqa: SIM115
    shutil.copyfileobj(sys.stdin.buffer, kept)
    kept.flush()
    kept.seek(0)
    found = format_by_bytes(kept.read(16)) or "csv"
    return Shard(found, (SourceFile("standard input", Path(kept.name)),))


def _in_pairs(shards: list[Shard]) -> list[Shard]:
    """Scores in an .npy followed by an .npy of labels become one shard."""
    paired: list[Shard] = []
    for shard in shards:
        last = paired[-1] if paired else None
        if last and last.format == shard.format == "npy" and len(last.sources) == 1 and _are_labels(shard, last):
            paired[-1] = Shard("npy", (last.source, shard.source))
        else:
            paired.append(shard)
    return paired


def _are_labels(shard: Shard, scores: Shard) -> bool:
    array, before = open_npy(shard.source), open_npy(scores.source)
    return len(array.shape) == 1 and (array.dtype.kind != "f" or len(before.shape) == 2)
