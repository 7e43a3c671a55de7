"""Tiny-ImageNet and ImageNet, from the folders in which they are published."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import require
from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data.array_files import to_labels
from focalcal_lab.data.augmentation import CropAndFlip, Standardize
from focalcal_lab.data.dataset import DataSplits
from focalcal_lab.data.huggingface import encoded_split, is_saved, load_public, load_saved
from focalcal_lab.data.image_files import (
    CenterView,
    ImageDataset,
    ImagePaths,
    RandomView,
    class_folders,
    images_in,
    pictures_in,
    shown,
)
from focalcal_lab.data.image_sets import (
    FoundImages,
    ImageSetFacts,
    find_images,
    find_public,
    home,
    nothing_found,
    sizes,
    split_data,
)
from focalcal_lab.data.splits import SplitSizes, first_rows, shuffled

TINY_IMAGENET = ImageSetFacts(
    title="Tiny-ImageNet",
    folders=("tiny-imagenet-200", "tiny-imagenet", "tiny_imagenet"),
    npz=("tiny-imagenet.npz", "tiny_imagenet.npz"),
    hub="zh-plus/tiny-imagenet",
    num_classes=200,
    size=64,
    mean=(0.4802, 0.4481, 0.3975),
    std=(0.2302, 0.2265, 0.2262),
    local="tiny-imagenet-200 with train/<class>/images and val/val_annotations.txt",
)
IMAGENET_HUB = "ILSVRC/imagenet-1k"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Where the labels of ImageNet's validation images are found when they do not lie in class folders.
LABEL_FILES = ("LOC_val_solution.csv", "val_annotations.txt", "val_labels.txt", "val.txt", "labels.txt")


def tiny_imagenet(
    folder: Path | None,
    *,
    seed: int,
    augment: bool = True,
    in_memory: bool | None = None,
    num_classes: int = TINY_IMAGENET.num_classes,
    **options: Any,
) -> DataSplits:
    """Tiny-ImageNet: 90,000/10,000/10,000 images of 3 x 64 x 64 in 200 classes [mukhoti2020, App. D; ghosh2022, D.2].

    Of the 500 training images of each class 50 are validation, drawn by `seed`; the published validation images are
    the test set. They are decoded once and kept as bytes (1.4 GB) when that fits in memory, else whenever they are
    needed; `in_memory` decides otherwise. Further options are those of `focalcal_lab.data.splits.SplitSizes`.
    """
    facts = _with_classes(TINY_IMAGENET, num_classes)
    split = SplitSizes.read(options, stratified=True)
    found = find_public(facts) if folder is None else _find_tiny(folder, facts)
    change = CropAndFlip() if augment else None
    return split_data("tiny-imagenet", found, facts, split, seed=seed, augment=change, memory=in_memory)


def _with_classes(facts: ImageSetFacts, num_classes: int) -> ImageSetFacts:
    require(isinstance(num_classes, int) and num_classes >= 2, "num_classes", "must be at least 2", num_classes)
    return dataclasses.replace(facts, num_classes=num_classes)


def _find_tiny(folder: Path, facts: ImageSetFacts) -> FoundImages:
    folder = home(folder, facts.folders)
    if (folder / "val" / "val_annotations.txt").is_file() and (folder / "train").is_dir():
        return _from_tiny(folder, facts)
    found = find_images(folder, facts)
    if found is None:
        raise nothing_found(folder, facts)
    return found


def _from_tiny(place: Path, facts: ImageSetFacts) -> FoundImages:
    view = CenterView(facts.size, facts.size)
    classes = class_folders(place / "train")
    right = len(classes) == facts.num_classes
    require(right, str(place / "train"), f"must have {facts.num_classes} class folders", len(classes))
    train = pictures_in(place / "train", classes, view)
    test = labelled_pictures(place / "val", place / "val" / "val_annotations.txt", classes, view)
    return FoundImages(train, test, place.name, word_names(place / "words.txt", classes))


def word_names(path: Path, classes: Sequence[str]) -> tuple[str, ...]:
    """The classes by their first word in words.txt (n01443537 <tab> goldfish, ...), else as they are."""
    if not path.is_file():
        return tuple(classes)
    pairs = (line.split("\t", 1) for line in path.read_text(errors="replace").splitlines() if "\t" in line)
    words = {number: text.split(",")[0].strip() for number, text in pairs}
    return tuple(words.get(name) or name for name in classes)


# ---------------------------------------------------------------------------------------------------------------------


def imagenet(
    folder: Path | None,
    *,
    seed: int,
    image_size: int = 224,
    resize: int = 256,
    augment: bool = True,
    num_train: int | None = None,
    num_val: int | None = None,
    num_test: int | None = None,
) -> DataSplits:
    """ImageNet: 1,281,167 training images; the 50,000 validation images are split into 25,000/25,000 [ghosh2022, D.2].

    Images are decoded when they are needed: in training a random part of them, scaled to `image_size` and mirrored
    half of the time; at test the middle `image_size` after the shorter side was scaled to `resize`. `folder` has
    train/<class>/ and val/, which has class folders too or a file of labels. `num_val` and `num_test` keep fewer.
    """
    split = SplitSizes(num_val=num_val, num_train=num_train, num_test=num_test)
    require(1 <= image_size <= resize, "image_size", f"must lie in 1..resize={resize}", image_size)
    center = CenterView(image_size, resize)
    train, held_out, names, origin = _imagenet_parts(folder, center)
    train = train.take(first_rows(len(train), split.num_train, seed=seed))
    if augment:
        train.view = RandomView(image_size, seed)
    val, test = (held_out.take(rows) for rows in halves(held_out.labels, split, seed=seed))
    how = f"the published validation images split with seed {seed}"
    return DataSplits(
        name="imagenet",
        train=train,
        val=val,
        test=test,
        num_classes=len(names),
        class_names=names,
        prepare=Standardize(IMAGENET_MEAN, IMAGENET_STD),
        facts={"channels": 3, "size": image_size},
        about=f"ImageNet from {origin}: {sizes((train, val, test))}, {how}",
    )


def halves(labels: Tensor, split: SplitSizes, *, seed: int) -> tuple[Tensor, Tensor]:
    """The validation and the test half of held-out rows, or fewer of each if `split` says so.

    >>> val, test = halves(torch.zeros(10), SplitSizes(num_test=3), seed=0)
    >>> len(val), len(test), set(val.tolist()) & set(test.tolist())
    (5, 3, set())
    """
    order = shuffled(labels.numpy(), np.random.default_rng(seed), split.stratified)
    middle = len(order) // 2
    require(middle >= 1, "imagenet", "must have at least two validation images", len(order))
    parts = order[:middle][: split.num_val], order[middle:][: split.num_test]
    val, test = (torch.from_numpy(np.sort(part)) for part in parts)
    return val, test


def _imagenet_parts(folder: Path | None, view: CenterView) -> tuple[ImageDataset, ImageDataset, tuple[str, ...], str]:
    instead = "train/<class>/*.JPEG and val/<class>/*.JPEG, or val/*.JPEG with LOC_val_solution.csv"
    if folder is None:
        return _imagenet_splits(load_public(IMAGENET_HUB, instead=instead), f"Hugging Face {IMAGENET_HUB}", view)
    folder = home(folder, ("imagenet", "ImageNet", "imagenet-1k"))
    if is_saved(folder):
        return _imagenet_splits(load_saved(folder), folder.name, view)
    for place in (folder, folder / "Data" / "CLS-LOC", folder / "ILSVRC" / "Data" / "CLS-LOC"):
        if (place / "train").is_dir() and (place / "val").is_dir():
            break
    else:
        raise InputError(f"folder: must have ImageNet; found none in {folder}. It should have {instead}.")
    classes = class_folders(place / "train")
    require(len(classes) >= 2, str(place / "train"), "must have a folder for each class", len(classes))
    train = pictures_in(place / "train", classes, view)
    if class_folders(place / "val"):
        held_out = pictures_in(place / "val", classes, view)
    else:
        held_out = labelled_pictures(place / "val", _label_file(place, folder), classes, view)
    return train, held_out, word_names(place / "words.txt", classes), place.name


def _imagenet_splits(
    splits: Mapping[str, Any], origin: str, view: CenterView
) -> tuple[ImageDataset, ImageDataset, tuple[str, ...], str]:
    parts = []
    names: tuple[str, ...] = ()
    for name in ("train", "validation"):
        if name not in splits:
            raise InputError(f"imagenet: needs the splits train and validation; {origin} has {', '.join(splits)}.")
        encoded, numbers, names = encoded_split(splits[name], ("label", "labels"), f"{origin}, {name}")
        if not names:
            raise FileFormatError(f"{origin}, {name}: its labels must have names (a ClassLabel).")
        parts.append(ImageDataset(encoded, to_labels(numbers, f"{origin}, {name}", len(encoded), len(names)), view))
    return parts[0], parts[1], names, origin


def _label_file(place: Path, folder: Path) -> Path:
    places = [place / "val", place, folder]
    for path in (where / name for where in places for name in LABEL_FILES):
        if path.is_file():
            return path
    raise InputError(
        f"{place / 'val'}: has no class folders, so it needs a file of labels, {' or '.join(LABEL_FILES)}, with "
        "lines of a file name and a class. (ILSVRC2012_validation_ground_truth.txt numbers the classes in another "
        "order and is not enough.)"
    )


def labelled_pictures(folder: Path, labels: Path, classes: Sequence[str], view: CenterView) -> ImageDataset:
    """The images in a folder, with classes from a file of lines "name class ..." or "name,class ...".

    A class is one of `classes` or its number from 0; a name may leave out its ending. Every image needs a line.
    """
    known = _read_labels(labels, classes)
    paths = images_in(folder)
    if not paths:
        raise InputError(f"{folder}: has no images.")
    numbers = []
    for path in map(Path, paths):
        number = known.get(path.name, known.get(path.stem))
        if number is None:
            raise FileFormatError(f"{labels}: has no line for {path.name}.")
        numbers.append(number)
    return ImageDataset(ImagePaths(paths), torch.tensor(numbers), view)


def _read_labels(path: Path, classes: Sequence[str]) -> dict[str, int]:
    by_name = {name: number for number, name in enumerate(classes)}
    by_number = {str(number): number for number in range(len(classes))}
    known: dict[str, int] = {}
    for line, words in enumerate(_lines(path), start=1):
        if not words or words[0] == "ImageId":  # the heading of LOC_val_solution.csv
            continue
        number = by_name.get(words[1], by_number.get(words[1])) if len(words) > 1 else None
        if number is None:
            got = words[1] if len(words) > 1 else "nothing"
            raise FileFormatError(f"{path}, line {line}: must name a class of {shown(classes)}; got {got}.")
        known[words[0]] = number
    return known


def _lines(path: Path) -> list[list[str]]:
    text = path.read_text(errors="replace").splitlines()
    if path.suffix == ".csv":  # ILSVRC2012_val_00048981,n03995372 85 1 499 272
        return [" ".join(row[:2]).split() for row in csv.reader(text)]
    return [line.split() for line in text]
