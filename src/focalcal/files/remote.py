"""Remote files, such as s3://bucket/scores/*.parquet, through the file systems of pyarrow and fsspec."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from focalcal.errors import InputError, MissingExtraError
from focalcal.files.arrow_rows import pyarrow
from focalcal.files.source_file import SourceFile, readable_file

_ADDRESS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://(.*)", re.DOTALL)
_SIGNS = "*?["


def is_address(path: str) -> bool:
    """Whether a path is an address of another file system.

    >>> is_address("s3://bucket/part-0.parquet"), is_address("scores/part-0.parquet")
    (True, False)
    """
    return _ADDRESS.fullmatch(path) is not None


def remote_sources(address: str) -> tuple[list[SourceFile], Path]:
    """The files that an address refers to: one, all below a directory, or all that match a pattern.

    The path beside them is that of the file or directory, or of the directory before the first wildcard.
    """
    base, pattern = _parted(address)
    filesystem, root = _filesystem(base)
    found = _ADDRESS.fullmatch(address)
    assert found is not None
    scheme = found[1]
    with readable_file(address):
        files = _files(filesystem, root)
    if pattern:
        wanted = re.compile(_translated(pattern), re.DOTALL)
        files = [each for each in files if wanted.fullmatch(each[len(root) :].lstrip("/"))]
    if not files:
        what = "no file matches this pattern" if pattern else "there is no such file or directory"
        raise InputError(f"{address}: {what}. Check the address, and that it is quoted in the shell.")
    sources = [SourceFile(f"{scheme}://{each.lstrip('/')}", Path(each), filesystem) for each in sorted(files)]
    return sources, Path(root)


def _parted(address: str) -> tuple[str, str]:
    """Split an address into the folder before the first wildcard and the pattern after it.

    >>> _parted("s3://bucket/run=*/part-?.parquet"), _parted("s3://bucket/a.parquet")
    (('s3://bucket', 'run=*/part-?.parquet'), ('s3://bucket/a.parquet', ''))
    """
    places = [place for sign in _SIGNS if (place := address.find(sign)) >= 0]
    if not places:
        return address, ""
    base, _, _ = address[: min(places)].rpartition("/")
    return base, address[len(base) + 1 :]


def _filesystem(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    pa = pyarrow()
    from pyarrow import fs

    try:
        filesystem, path = fs.FileSystem.from_uri(address)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # not a scheme that pyarrow knows
        return _of_fsspec(address)
    except OSError as error:
        raise InputError(f"{address}: cannot be reached ({error}). Check the address and your credentials.") from error
    return filesystem, path


def _of_fsspec(address: str) -> tuple[Any, str]:
    from pyarrow import fs

    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(
            f"{address}: needs fsspec and the package for its scheme: pip install fsspec."
        ) from error
    try:
        filesystem, path = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError, OSError) as error:
        raise InputError(f"{address}: cannot be opened ({error}). Check the scheme of the address.") from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def _files(filesystem: Any, root: str) -> list[str]:
    """The file at a path, or all files below it that are not hidden."""
    from pyarrow import fs

    info = filesystem.get_file_info(root)
    if info.type == fs.FileType.File:
        return [info.path]
    if info.type == fs.FileType.NotFound:
        return []
    below = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    names = [each.path for each in below if each.type == fs.FileType.File]
    return [name for name in names if PurePosixPath(name).name[0] not in "._"]


def _translated(pattern: str) -> str:
    """Translate a pattern of paths to a regular expression: ** crosses folders, * and ? do not.

    >>> _translated("run=*/**/part-?.parquet")
    'run=[^/]*/(?:.*/)?part\\\\-[^/]\\\\.parquet'
    """
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]*\])", pattern)
    return "".join(words.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)
