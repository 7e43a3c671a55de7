"""Images and class numbers from arrays in files: .npz, .npy and MATLAB's .mat."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.errors import FileFormatError
from focalcal_lab.data.dataset import TensorRows

Array: TypeAlias = "np.ndarray[Any, Any]"

# What arrays of images and of class numbers are called, ours first, then Keras'.
IMAGE_KEYS = ("{split}_images", "x_{split}")
LABEL_KEYS = ("{split}_labels", "y_{split}")
_DAMAGE = (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error)


def npz_keys(path: Path) -> list[str]:
    """The names of an .npz file's arrays."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return list(file.files)
    except (*_DAMAGE, AttributeError) as error:  # a lone array has no `files`
        raise _damaged(path, error) from error


def read_npz(path: Path, keys: Iterable[str]) -> dict[str, Array]:
    """Those of an .npz file's arrays that are wanted and there; pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in keys if key in file.files}
    except _DAMAGE as error:
        raise _damaged(path, error) from error


def read_npy(path: Path, rows: slice = slice(None)) -> Array:
    """Rows of an .npy file; the others are not read."""
    try:
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False)[rows])
    except (*_DAMAGE, IndexError) as error:
        raise _damaged(path, error) from error


def read_mat(path: Path, keys: Iterable[str]) -> dict[str, Array]:
    """Arrays of a MATLAB file, version 5 as SVHN's are."""
    from scipy.io import loadmat

    keys = list(keys)
    try:
        found = loadmat(path, variable_names=keys)
    except Exception as error:  # scipy raises its own errors, NotImplementedError for HDF5, and those of a bad offset
        raise _damaged(path, error) from error
    missing = [key for key in keys if not isinstance(found.get(key), np.ndarray)]
    if missing:
        raise FileFormatError(f"{path}: must have the arrays {', '.join(keys)}; it has no {missing[0]}.")
    return {key: found[key] for key in keys}


def _damaged(path: Path, error: BaseException) -> FileFormatError:
    return FileFormatError(f"{path}: cannot be read ({error}). Copy or download it again.")


def decode_deltas(stored: Array) -> Array:
    """Images (N, 3, H, W) from their delta form, all modulo 256.

    The planes hold green, red minus green and blue minus green; each value is the difference from its left neighbour
    of the difference from the row above. So sums along rows and columns, then adding green, give red, green, blue.

    >>> decode_deltas(np.array([[[[10]], [[250]], [[1]]]], dtype=np.uint8)).ravel()
    array([ 4, 10, 11], dtype=uint8)
    """
    # torch sums bytes six times as fast as numpy does.
    green, red, blue = torch.from_numpy(stored).cumsum(2, dtype=torch.uint8).cumsum(3, dtype=torch.uint8).unbind(1)
    images: Array = torch.stack([red + green, green, blue + green], dim=1).numpy()
    return images


def to_pixels(images: Array, what: str) -> Tensor:
    """Images as (N, C, H, W), from (N, H, W), (N, H, W, C) or (N, C, H, W) with one or three channels.

    >>> to_pixels(np.zeros((5, 32, 32, 3), dtype=np.uint8), "images").shape
    torch.Size([5, 3, 32, 32])
    """
    if images.ndim == 3:
        images = images[:, None]
    first, last = (images.ndim == 4 and images.shape[axis] in (1, 3) for axis in (1, 3))
    if first == last:
        unclear = "could be two of them" if first else "is none of them"
        raise FileFormatError(
            f"{what}: must have shape (N, H, W), (N, H, W, C) or (N, C, H, W) with C of 1 or 3; "
            f"{images.shape} {unclear}."
        )
    return torch.from_numpy(np.ascontiguousarray(images if first else images.transpose(0, 3, 1, 2)))


def to_bytes(images: Array, what: str, channels: int, size: int) -> Tensor:
    """Images as bytes (N, C, H, W) of a known size."""
    if images.dtype != np.uint8:
        raise FileFormatError(f"{what}: must be bytes, uint8; got {images.dtype}.")
    if images.ndim == 2 and images.shape[1] == channels * size * size:
        images = images.reshape(-1, channels, size, size)
    pixels = to_pixels(images, what)
    if pixels.shape[1:] != (channels, size, size):
        got = "x".join(map(str, pixels.shape[1:]))
        raise FileFormatError(f"{what}: images must be {channels}x{size}x{size}; got {got}.")
    return pixels


def to_labels(labels: Array, what: str, num_rows: int, num_classes: int) -> Tensor:
    """Class numbers (N,) as int64, checked against the number of rows and of classes."""
    numbers = np.asarray(labels)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if not np.issubdtype(numbers.dtype, np.integer):
        raise FileFormatError(f"{what}: must be class numbers; got {numbers.dtype}.")
    if numbers.shape != (num_rows,):
        raise FileFormatError(f"{what}: must be one for each of the {num_rows} images; got shape {numbers.shape}.")
    bad = np.flatnonzero((numbers < 0) | (numbers >= num_classes))
    if len(bad):
        raise FileFormatError(
            f"{what}: must lie in 0..{num_classes - 1}; got {numbers[bad[0]]} at row {bad[0]}. Is it another data set?"
        )
    return torch.from_numpy(numbers.astype(np.int64))


def npz_rows(path: Path, split: str, *, num_classes: int, channels: int, size: int) -> TensorRows | None:
    """A split of an .npz file of images, plain or in delta form; None if it has no such split."""
    images = [key.format(split=split) for key in IMAGE_KEYS]
    labels = [key.format(split=split) for key in LABEL_KEYS]
    stored = f"{split}_enc"
    found = read_npz(path, [*images, stored, *labels])
    numbers = _first(found, labels)
    pixels = decode_deltas(_planes(found[stored], path)) if stored in found else _first(found, images)
    if pixels is None:
        return None
    if numbers is None:
        raise FileFormatError(f"{path}: has images but no labels for {split}; they are called {' or '.join(labels)}.")
    inputs = to_bytes(pixels, f"{path}: the images of {split}", channels, size)
    return TensorRows(inputs, to_labels(numbers, f"{path}: the labels of {split}", len(inputs), num_classes))


def _first(found: Mapping[str, Array], names: Iterable[str]) -> Array | None:
    return next((found[name] for name in names if name in found), None)


def _planes(stored: Array, path: Path) -> Array:
    if stored.dtype != np.uint8 or stored.ndim != 4 or stored.shape[1] != 3:
        raise FileFormatError(f"{path}: the delta form must be uint8 (N, 3, H, W); got {stored.dtype} {stored.shape}.")
    return stored
