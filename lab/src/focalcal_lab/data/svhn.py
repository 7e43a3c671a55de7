"""Street View House Numbers, cropped to one digit each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data.array_files import read_mat, to_labels
from focalcal_lab.data.augmentation import CropAndFlip
from focalcal_lab.data.dataset import DataSplits, TensorRows
from focalcal_lab.data.image_files import ImageDataset
from focalcal_lab.data.image_sets import (
    FoundImages,
    ImageSetFacts,
    find_images,
    find_public,
    home,
    joined,
    nothing_found,
    only_test_data,
    split_data,
)
from focalcal_lab.data.splits import SplitSizes

SVHN = ImageSetFacts(
    title="SVHN",
    folders=("svhn", "SVHN"),
    npz=("svhn.npz",),
    hub="ufldl-stanford/svhn",
    config="cropped_digits",
    num_classes=10,
    size=32,
    mean=(0.4377, 0.4438, 0.4728),
    std=(0.1980, 0.2010, 0.1970),
    class_names=tuple("0123456789"),
    local="train_32x32.mat and test_32x32.mat",
)


def svhn(
    folder: Path | None,
    *,
    seed: int,
    extra: bool = False,
    augment: bool = False,
    only_test: bool = False,
    in_memory: bool | None = None,
    **options: Any,
) -> DataSplits:
    """SVHN: 73,257 training images, of which a tenth is validation, and 26,032 test images of 3 x 32 x 32.

    `extra` adds the 531,131 easier images to the training images. `augment` crops at random but never mirrors, since
    a mirrored digit is none; it is off, as the papers that train on SVHN [charoenphakdee2021, Sec. 6; ghosh2022,
    App. O.13] name no augmentation. `folder` may have the .mat files or what `cifar10` reads; further options are those
    of `focalcal_lab.data.splits.SplitSizes`.
    """
    split = SplitSizes.read(options)
    found = _find(folder, extra)
    found = _with_extra(found) if extra else found
    if only_test:
        return only_test_data("svhn", found, SVHN, split, seed=seed, memory=in_memory)
    change = CropAndFlip(flip=False) if augment else None
    return split_data("svhn", found, SVHN, split, seed=seed, augment=change, memory=in_memory)


def _find(folder: Path | None, extra: bool) -> FoundImages:
    if folder is None:
        return find_public(SVHN)
    folder = home(folder, SVHN.folders)
    found = _from_mat(folder, extra) or find_images(folder, SVHN)
    if found is None:
        raise nothing_found(folder, SVHN)
    return found


def _with_extra(found: FoundImages) -> FoundImages:
    if found.extra is None or found.train is None:
        raise InputError(f"extra: needs extra_32x32.mat beside the others; {found.origin} has no extra images.")
    train, more = (part.rows() if isinstance(part, ImageDataset) else part for part in (found.train, found.extra))
    return FoundImages(joined(train, more), found.test, f"{found.origin} and the extra images", found.class_names)


def _from_mat(folder: Path, extra: bool) -> FoundImages | None:
    paths = {name: folder / f"{name}_32x32.mat" for name in ("train", "test", "extra")}
    if not paths["train"].is_file() and not paths["test"].is_file():
        return None
    wanted = ("train", "test", "extra") if extra else ("train", "test")
    parts = {name: _read(paths[name]) for name in wanted if paths[name].is_file()}
    origin = " and ".join(paths[name].name for name in ("train", "test") if name in parts)
    return FoundImages(parts.get("train"), parts.get("test"), origin, SVHN.class_names, parts.get("extra"))


def _read(path: Path) -> TensorRows:
    """A .mat file: X (32, 32, 3, N) and y (N, 1), where 10 stands for the digit 0."""
    arrays = read_mat(path, ("X", "y"))
    images, numbers = arrays["X"], arrays["y"]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise FileFormatError(f"{path}: X must be uint8 (32, 32, 3, N); got {images.dtype} {images.shape}.")
    if np.issubdtype(numbers.dtype, np.floating):  # MATLAB's numbers are doubles unless told otherwise
        numbers = numbers.astype(np.int64)
    labels = to_labels(numbers, f"{path}: y", images.shape[3], 11) % 10
    return TensorRows(torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1))), labels)
