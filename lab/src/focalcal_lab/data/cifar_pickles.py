"""CIFAR's "python version": pickles, read without trusting them.

A pickle is a program that may call anything. The reader here knows the few names that numpy writes for an array,
and answers each with a stand-in of its own that only keeps bytes; every other name ends the reading. So no code but
this file's runs, whatever the pickle says.
"""

from __future__ import annotations

import io
import math
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from focalcal.errors import FileFormatError

# Bytes and whole numbers of one to eight bytes: all that images and labels need.
_DTYPES = frozenset(f"{kind}{size}" for kind in "ui" for size in (1, 2, 4, 8)) | {"b1"}


def read_pickled(content: bytes, name: str) -> Any:
    """The plain values and arrays of a pickle; anything else in it raises FileFormatError, and nothing of it runs.

    >>> import pickle
    >>> read_pickled(pickle.dumps({"data": np.arange(3, dtype=np.uint8), "labels": [1, 2]}, protocol=2), "batch")
    {'data': array([0, 1, 2], dtype=uint8), 'labels': [1, 2]}
    >>> read_pickled(pickle.dumps(len), "batch")
    Traceback (most recent call last):
    focalcal.errors.FileFormatError: batch: its pickle asks for builtins.len, which images do not need. It was not \
run; do not trust this file.
    """
    try:
        return _real(_Reader(content, name).load())
    except FileFormatError:
        raise
    except Exception as error:  # a broken pickle can fail in any way, from EOFError to TypeError
        raise FileFormatError(f"{name}: is not a whole pickle ({error}). Copy or download it again.") from error


class _Reader(pickle.Unpickler):
    """Python 2 wrote the published files, so their text comes as bytes."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._name = name
        self._known = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        """One of our stand-ins, never what the pickle names."""
        key = f"{module.replace('numpy._core', 'numpy.core')}.{name}"
        if key not in self._known:
            raise FileFormatError(
                f"{self._name}: its pickle asks for {module}.{name}, which images do not need. It was not run; "
                "do not trust this file."
            )
        return self._known[key]


class _Stored:
    """What a pickle says about one array."""

    array: np.ndarray[Any, Any] | None = None


def _stand_ins() -> dict[str, Callable[..., Any]]:
    """What answers for numpy's names. Made anew for each file, since a pickle may set attributes of what it gets."""

    class NumberType:
        def __init__(self, code: bytes | str, *_: Any) -> None:
            self.code, self.order = _text(code).lstrip("<>|="), "<"

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            self.order = _text(state[1])

    class Array(_Stored):
        def __setstate__(self, state: tuple[Any, ...]) -> None:
            _, shape, kind, fortran, content = state
            self.array = _array(content, kind.code, kind.order, shape, "F" if fortran else "C")

    def reconstruct(*_: Any) -> Array:
        return Array()

    def from_buffer(content: Any, kind: NumberType, shape: Any, order: Any) -> _Stored:
        stored = _Stored()
        stored.array = _array(content, kind.code, kind.order, shape, _text(order))
        return stored

    def encode(text: str, coding: str) -> bytes:  # how Python 3 keeps bytes in the pickles of Python 2
        if _text(coding) != "latin1" or type(text) is not str:
            raise ValueError(f"bytes in {coding!r}")
        return text.encode("latin1")

    return {
        "numpy.core.multiarray._reconstruct": reconstruct,
        "numpy.core.numeric._frombuffer": from_buffer,
        "numpy.ndarray": Array,
        "numpy.dtype": NumberType,
        "_codecs.encode": encode,
    }


def _array(content: Any, code: str, order: str, shape: Any, layout: str) -> np.ndarray[Any, Any]:
    if code not in _DTYPES or not isinstance(content, bytes | bytearray):
        raise ValueError(f"an array of {code!r}")
    kind = np.dtype(code).newbyteorder(">" if order == ">" else "<")
    shape = tuple(int(side) for side in shape)
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != len(content):
        raise ValueError(f"an array of shape {shape} with {len(content)} bytes")
    values = np.frombuffer(content, kind).reshape(shape, order="F" if layout == "F" else "C")
    native: np.ndarray[Any, Any] = values.astype(kind.newbyteorder("="))
    return native


def _real(value: Any) -> Any:
    """Plain values with arrays in the place of their stand-ins; text is text, however Python 2 kept it."""
    if isinstance(value, _Stored):
        if value.array is None:
            raise ValueError("an array without values")
        return value.array
    if type(value) is dict:
        return {_text(key) if type(key) is bytes else key: _real(each) for key, each in value.items()}
    if type(value) is list:
        return [_real(each) for each in value]
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    raise ValueError(f"a {type(value).__name__}")


def _text(value: bytes | str) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value


# ---------------------------------------------------------------------------------------------------------------------


def read_batch(content: bytes, name: str, labels: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The images (N, 3, 32, 32) and class numbers (N,) of one batch; `labels` is the key that has the latter."""
    batch = read_pickled(content, name)
    if not isinstance(batch, dict) or "data" not in batch or labels not in batch:
        raise FileFormatError(f"{name}: must have data and {labels}, as CIFAR's batches do.")
    data, numbers = batch["data"], batch[labels]
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        said = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise FileFormatError(f"{name}: data must be bytes of shape (N, 3072); got {said}.")
    try:
        classes = np.asarray(numbers, dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{name}: {labels} must be class numbers ({error}).") from error
    if classes.shape != data.shape[:1]:
        raise FileFormatError(f"{name}: {labels} must be one for each of the {len(data)} images; got {classes.shape}.")
    return data.reshape(-1, 3, 32, 32), classes


@contextmanager
def opened_members(path: Path) -> Iterator[Callable[[str], bytes | None]]:
    """A function that reads a file of a folder or of a .tar.gz by its last name; None if it has none of that name.

    Nothing is unpacked to disk, so a member's path does not matter.
    """
    if path.is_dir():
        yield lambda name: (path / name).read_bytes() if (path / name).is_file() else None
        return
    try:
        with tarfile.open(path) as archive:
            members = {member.name.rsplit("/", 1)[-1]: member for member in archive if member.isfile()}

            def read(name: str) -> bytes | None:
                file = archive.extractfile(members[name]) if name in members else None
                return file.read() if file else None

            yield read
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise FileFormatError(f"{path}: is damaged or cut ({error}). Download it again.") from error
