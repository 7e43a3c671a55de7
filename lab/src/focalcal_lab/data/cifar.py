"""CIFAR-10 and CIFAR-100, CIFAR-10 with a tenth of the data, and CIFAR-10-C."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from focalcal.core.checks import require
from focalcal.errors import InputError
from focalcal_lab.data.array_files import read_npy, to_bytes, to_labels
from focalcal_lab.data.augmentation import CropAndFlip
from focalcal_lab.data.cifar_pickles import opened_members, read_batch
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

# The statistics that the released code of mukhoti2020 normalises with.
CIFAR10 = ImageSetFacts(
    title="CIFAR-10",
    folders=("cifar10", "cifar-10", "CIFAR-10"),
    npz=("cifar10.npz", "cifar-10.npz"),
    hub="uoft-cs/cifar10",
    num_classes=10,
    size=32,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    local="cifar-10-batches-py or cifar-10-python.tar.gz",
)
CIFAR100 = ImageSetFacts(
    title="CIFAR-100",
    folders=("cifar100", "cifar-100", "CIFAR-100"),
    npz=("cifar100.npz", "cifar-100.npz", "cifar100_test.npz"),
    hub="uoft-cs/cifar100",
    num_classes=100,
    size=32,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    labels=("fine_label", "fine_labels", "label", "labels"),
    local="cifar-100-python or cifar-100-python.tar.gz",
)

# Where each set's python batches may lie, what they are called, and which key has the class numbers.
_PLACES = {
    "CIFAR-10": ("cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar-10-python.tar"),
    "CIFAR-100": ("cifar-100-python", "cifar-100-python.tar.gz", "cifar-100-python.tar"),
}
_BATCHES = {
    "CIFAR-10": (tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",), "labels"),
    "CIFAR-100": (("train",), ("test",), "fine_labels"),
}

# Standard deviations of CIFAR-10-C's Gaussian noise at levels 1 to 5, of pixels from 0 to 1 [Hendrycks and Dietterich
# 2019, released code]; the published files have 10,000 rows for each level, in this order.
NOISE_LEVELS = (0.04, 0.06, 0.08, 0.09, 0.10)
ROWS_PER_LEVEL = 10_000


def cifar10(
    folder: Path | None,
    *,
    seed: int,
    augment: bool = True,
    only_test: bool = False,
    in_memory: bool | None = None,
    **options: Any,
) -> DataSplits:
    """CIFAR-10: 45,000/5,000/10,000 images of 3 x 32 x 32, split by `seed` [mukhoti2020, App. D; ghosh2022, App. D.1].

    `folder` may have the python batches or their archive, an .npz, Parquet files, a saved `datasets` folder or folders
    of images; without it the set comes from Hugging Face. Further options are those of
    `focalcal_lab.data.splits.SplitSizes`. With fewer training images than 50,000, a tenth of them is validation.
    """
    return _cifar("cifar10", CIFAR10, folder, seed, augment, only_test, in_memory, SplitSizes.read(options))


def cifar10_s(
    folder: Path | None, *, seed: int, augment: bool = True, in_memory: bool | None = None, **options: Any
) -> DataSplits:
    """CIFAR10-s: CIFAR-10 with 10 % of the training images of each class [charoenphakdee2021, Sec. 6.2].

    The paper says no more, so which images they are is ours: 500 of each class, drawn by `seed`, of which a tenth is
    validation unless `num_val` says otherwise.
    """
    split = SplitSizes.read(options, fraction=0.1)
    return _cifar("cifar10-s", CIFAR10, folder, seed, augment, False, in_memory, split)


def cifar100(
    folder: Path | None,
    *,
    seed: int,
    augment: bool = True,
    only_test: bool = False,
    in_memory: bool | None = None,
    **options: Any,
) -> DataSplits:
    """CIFAR-100 with its fine labels, as `cifar10`."""
    return _cifar("cifar100", CIFAR100, folder, seed, augment, only_test, in_memory, SplitSizes.read(options))


def cifar10_c(
    folder: Path | None,
    *,
    seed: int,
    corruption: str = "gaussian_noise",
    level: int = 5,
    generate: bool = False,
    num_test: int | None = None,
) -> DataSplits:
    """CIFAR-10-C at one corruption and level, as out-of-distribution inputs: all three splits are the same rows.

    Level 5 of Gaussian noise is what Table 8 of ghosh2022 uses. `folder` has the published .npy files; with `generate`
    it has CIFAR-10, and the noise is made here, from `seed`, with the published standard deviations.
    """
    whole = isinstance(level, int) and 1 <= level <= len(NOISE_LEVELS)
    require(whole, "level", "must be a whole number from 1 to 5", repr(level))
    found = _generated(folder, corruption, level, seed) if generate else _published(folder, corruption, level)
    facts = dataclasses.replace(CIFAR10, title=f"CIFAR-10-C, {corruption} at level {level},")
    return only_test_data("cifar10-c", found, facts, SplitSizes(num_test=num_test), seed=seed, memory=True)


def _cifar(
    name: str,
    facts: ImageSetFacts,
    folder: Path | None,
    seed: int,
    augment: bool,
    only_test: bool,
    in_memory: bool | None,
    split: SplitSizes,
) -> DataSplits:
    found = _find(folder, facts)
    if only_test:
        return only_test_data(name, found, facts, split, seed=seed, memory=in_memory)
    change = CropAndFlip() if augment else None
    return split_data(name, found, facts, split, seed=seed, augment=change, memory=in_memory)


def _find(folder: Path | None, facts: ImageSetFacts) -> FoundImages:
    if folder is None:
        return find_public(facts)
    folder = home(folder, facts.folders)
    found = _from_batches(folder, facts) or find_images(folder, facts)
    if found is None:
        raise nothing_found(folder, facts)
    return found


def _from_batches(folder: Path, facts: ImageSetFacts) -> FoundImages | None:
    train_names, test_names, labels = _BATCHES[facts.title]
    inside = [folder / name for name in _PLACES[facts.title]]
    alone = folder.is_file() and folder.name.endswith((".tar.gz", ".tgz", ".tar"))
    for place in [folder] if alone else [folder, *inside]:
        # CIFAR-100's files are called train and test, as folders of images are too.
        if (place.is_dir() and (place / train_names[0]).is_file()) or (place.is_file() and (alone or place in inside)):
            with opened_members(place) as read:
                parts = [_batches(read, names, labels, place, facts.num_classes) for names in (train_names, test_names)]
            return FoundImages(parts[0], parts[1], place.name, facts.class_names)
    return None


def _batches(read: Any, names: tuple[str, ...], labels: str, place: Path, num_classes: int) -> TensorRows:
    batches = []
    for name in names:
        content = read(name)
        if content is None:
            raise InputError(f"{place}: must have {', '.join(names)}; it has no {name}. Download it again.")
        batches.append(read_batch(content, f"{place / name}", labels))
    images, numbers = (np.concatenate(each) for each in zip(*batches, strict=True))
    classes = to_labels(numbers, f"{place}: {labels}", len(images), num_classes)
    return TensorRows(torch.from_numpy(images), classes)


def _published(folder: Path | None, corruption: str, level: int) -> FoundImages:
    places = [] if folder is None else [folder, folder / "CIFAR-10-C", folder / "cifar10-c", folder / "cifar-10-c"]
    place = next((each for each in places if (each / "labels.npy").is_file()), None)
    if place is None:
        raise InputError(
            f"cifar10-c: needs the .npy files of CIFAR-10-C.tar, unpacked; found none in {folder}. Download it from "
            "zenodo.org/records/2535967, or say generate: true to make Gaussian noise from CIFAR-10's test images."
        )
    file = place / f"{corruption}.npy"
    there = sorted(each.stem for each in place.glob("*.npy") if each.stem != "labels")
    require(file.is_file(), "corruption", f"must be one of {', '.join(there)}", repr(corruption))
    labels = read_npy(place / "labels.npy")
    # Fewer rows than published keep the layout: five levels of the same images.
    per_level = min(ROWS_PER_LEVEL, len(labels) // len(NOISE_LEVELS))
    rows = slice((level - 1) * per_level, level * per_level)
    images = to_bytes(read_npy(file, rows), str(file), 3, CIFAR10.size)
    numbers = to_labels(labels[rows], f"{place / 'labels.npy'}", len(images), CIFAR10.num_classes)
    return FoundImages(None, TensorRows(images, numbers), f"{file.name}", CIFAR10.class_names)


def _generated(folder: Path | None, corruption: str, level: int, seed: int) -> FoundImages:
    fix = "Give the published .npy files for the others."
    require(
        corruption == "gaussian_noise", "corruption", "must be gaussian_noise to generate it", repr(corruption), fix
    )
    found = _find(folder, CIFAR10)
    if found.test is None:
        raise InputError(f"cifar10-c: needs CIFAR-10's test images; {found.origin} has none.")
    test = found.test.rows() if isinstance(found.test, ImageDataset) else found.test
    images = add_noise(test.inputs.numpy(), NOISE_LEVELS[level - 1], np.random.default_rng([seed, level]))
    origin = f"{found.origin} with noise of standard deviation {NOISE_LEVELS[level - 1]} made with seed {seed}"
    return FoundImages(None, TensorRows(torch.from_numpy(images), test.labels), origin, found.class_names)


def add_noise(images: np.ndarray[Any, Any], std: float, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Bytes with Gaussian noise of `std`, where 255 counts as 1: cut to 0..1, then to whole numbers, as CIFAR-10-C.

    >>> add_noise(np.array([[0, 128, 255]], dtype=np.uint8), 0.1, np.random.default_rng(0))
    array([[  3, 124, 255]], dtype=uint8)
    """
    noisy = np.empty_like(images)
    for start in range(0, len(images), 1000):  # float64 of all images at once would be eight times their size
        part = images[start : start + 1000]
        noisy[start : start + 1000] = np.clip(part / 255 + generator.normal(scale=std, size=part.shape), 0, 1) * 255
    return noisy
