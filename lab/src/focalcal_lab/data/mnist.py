"""MNIST: grey handwritten digits; padded to colour images, they are far from anything that a CIFAR network knows."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.functional import pad

from focalcal.core.checks import require
from focalcal.errors import FileFormatError
from focalcal_lab.data.array_files import Array, read_npz, to_bytes, to_labels
from focalcal_lab.data.augmentation import CropAndFlip
from focalcal_lab.data.dataset import DataSplits, TensorRows
from focalcal_lab.data.image_files import ImageDataset
from focalcal_lab.data.image_sets import (
    FoundImages,
    ImageSetFacts,
    find_images,
    find_public,
    home,
    nothing_found,
    only_test_data,
    split_data,
)
from focalcal_lab.data.splits import SplitSizes

MNIST = ImageSetFacts(
    title="MNIST",
    folders=("mnist", "MNIST"),
    npz=("mnist.npz",),
    hub="ylecun/mnist",
    num_classes=10,
    size=28,
    mean=(0.1307,),
    std=(0.3081,),
    class_names=tuple("0123456789"),
    local="the four idx files (t10k-images-idx3-ubyte.gz, ...)",
)
# Where the idx files may lie, what those of each split begin with, and an .npz of the test images alone.
_PLACES = ("", "raw", "MNIST/raw")
_SPLITS = {"train": "train", "test": "t10k"}
_ONLY_TEST = "mnist_t10k.npz"
# The first bytes of an idx file: zero, zero, unsigned bytes, and the number of dimensions.
_IDX_BYTES = b"\x00\x00\x08"


def mnist(
    folder: Path | None,
    *,
    seed: int,
    channels: int = 1,
    size: int = 28,
    augment: bool = False,
    only_test: bool = False,
    in_memory: bool | None = None,
    **options: Any,
) -> DataSplits:
    """MNIST: 60,000 training images, of which a tenth is validation, and 10,000 test images of 1 x 28 x 28.

    With `channels: 3, size: 32` they are framed in black and given three equal channels, for networks that learnt
    CIFAR-10. `augment` crops at random and never mirrors. `folder` may have the idx files, packed or not, or what
    `cifar10` reads; further options are those of `focalcal_lab.data.splits.SplitSizes`.
    """
    require(isinstance(channels, int) and channels in (1, 3), "channels", "must be 1 or 3", repr(channels))
    require(isinstance(size, int) and 28 <= size <= 256, "size", "must be a whole number from 28 to 256", repr(size))
    found = _find(folder)
    if (channels, size) != (1, 28):
        train, test = (None if part is None else _framed(part, channels, size) for part in (found.train, found.test))
        found = replace(found, train=train, test=test)
    facts = replace(MNIST, size=size, mean=MNIST.mean * channels, std=MNIST.std * channels)
    split = SplitSizes.read(options)
    if only_test:
        return only_test_data("mnist", found, facts, split, seed=seed, memory=in_memory)
    change = CropAndFlip(flip=False) if augment else None
    return split_data("mnist", found, facts, split, seed=seed, augment=change, memory=in_memory)


def _framed(part: TensorRows | ImageDataset, channels: int, size: int) -> TensorRows:
    """Images in the middle of a black square."""
    rows = part.rows() if isinstance(part, ImageDataset) else part
    before = (size - 28) // 2
    after = size - 28 - before
    wide: Tensor = pad(rows.inputs, (before, after, before, after)).expand(-1, channels, -1, -1)
    return TensorRows(wide.contiguous(), rows.labels)


def _find(folder: Path | None) -> FoundImages:
    if folder is None:
        return find_public(MNIST)
    folder = home(folder, MNIST.folders)
    if folder.name == _ONLY_TEST:
        found = _from_test_alone(folder)
    else:
        found = _from_idx(folder) or find_images(folder, MNIST) or _from_test_alone(folder / _ONLY_TEST)
    if found is None:
        raise nothing_found(folder, MNIST)
    return found


def _from_idx(folder: Path) -> FoundImages | None:
    parts: dict[str, TensorRows] = {}
    origin = ""
    for split, beginning in _SPLITS.items():
        images, labels = (_idx_file(folder, f"{beginning}-{rest}") for rest in ("images-idx3", "labels-idx1"))
        if images is None or labels is None:
            continue
        pixels = to_bytes(read_idx(images, 3), str(images), 1, MNIST.size)
        numbers = to_labels(read_idx(labels, 1), str(labels), len(pixels), MNIST.num_classes)
        parts[split], origin = TensorRows(pixels, numbers), images.name
    return FoundImages(parts.get("train"), parts.get("test"), origin, MNIST.class_names) if parts else None


def _idx_file(folder: Path, name: str) -> Path | None:
    """A file as it is published, packed or not, with a hyphen or the dot that some copies have."""
    names = [f"{name}{middle}ubyte{end}" for middle in ("-", ".") for end in ("", ".gz")]
    paths = [folder / place / each for place in _PLACES for each in names]
    return next((path for path in paths if path.is_file()), None)


def read_idx(path: Path, dimensions: int) -> Array:
    """The bytes of an idx file: a head with the size of each dimension, then the values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path}: cannot be read ({error}). Copy or download it again.") from error
    head = 4 + 4 * dimensions
    if len(content) < head or content[:4] != _IDX_BYTES + bytes([dimensions]):
        raise FileFormatError(f"{path}: must be an idx file of bytes in {dimensions} dimensions; it begins otherwise.")
    shape = tuple(np.frombuffer(content[4:head], dtype=">u4").tolist())
    if 0 in shape:
        raise FileFormatError(f"{path}: must hold values; its head says that there are none.")
    expected, got = int(np.prod(shape, dtype=object)), len(content) - head
    if expected != got:
        raise FileFormatError(f"{path}: must hold {expected} values, as its head says; got {got}. Copy it again.")
    values: Array = np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape).copy()
    return values


def _from_test_alone(path: Path) -> FoundImages | None:
    if not path.is_file():
        return None
    arrays = read_npz(path, ("images", "labels"))
    if len(arrays) < 2:
        raise FileFormatError(f"{path}: must have the arrays images and labels.")
    pixels = to_bytes(arrays["images"], f"{path}: images", 1, MNIST.size)
    numbers = to_labels(arrays["labels"], f"{path}: labels", len(pixels), MNIST.num_classes)
    return FoundImages(None, TensorRows(pixels, numbers), path.name, MNIST.class_names)
