"""Find a public image data set in one of its usual formats, and split it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from focalcal.errors import InputError
from focalcal_lab.data.array_files import npz_rows, to_labels
from focalcal_lab.data.augmentation import CropAndFlip, Standardize
from focalcal_lab.data.dataset import DataSplits, TensorRows
from focalcal_lab.data.huggingface import ParquetImages, encoded_split, is_saved, load_public, load_saved
from focalcal_lab.data.image_files import CenterView, ImageDataset, class_folders, in_memory, pictures_in, shown
from focalcal_lab.data.splits import SplitSizes, divide, first_rows

TEST_NAMES = ("test", "valid", "val", "validation")


@dataclass(frozen=True)
class ImageSetFacts:
    """What is known of a published set: names for humans and files, the hub's, sizes, and the pixels' statistics."""

    title: str
    folders: tuple[str, ...]
    npz: tuple[str, ...]
    hub: str
    num_classes: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    labels: tuple[str, ...] = ("label", "labels")
    config: str | None = None
    class_names: tuple[str, ...] = ()
    local: str = ""

    @property
    def instead(self) -> str:
        """Which local files would do."""
        return f"{self.local}, {self.npz[0]}, Parquet files, or folders train/<class>/ and test/<class>/ of images"


@dataclass(frozen=True)
class FoundImages:
    """Images before they are split, and where they were found."""

    train: TensorRows | ImageDataset | None
    test: TensorRows | ImageDataset | None
    origin: str
    class_names: tuple[str, ...] = ()
    extra: TensorRows | ImageDataset | None = None


def home(folder: Path, names: Sequence[str]) -> Path:
    """Where a set lies in a folder that has several: in a folder of its name, if there is one."""
    return next((folder / name for name in names if (folder / name).is_dir()), folder)


def find_images(folder: Path, facts: ImageSetFacts) -> FoundImages | None:
    """A set in a local folder (or file) in one of the formats that every set may have; None if there is none."""
    npz = [folder] if folder.suffix == ".npz" else [folder / name for name in facts.npz]
    for path in npz:
        if path.is_file():
            return _from_npz(path, facts)
    if folder.is_dir() and is_saved(folder):
        return _from_splits(load_saved(folder), str(folder.name), facts)
    parquet = _parquet_files(folder, facts)
    if parquet:
        return _from_parquet(parquet, facts)
    if (folder / "train").is_dir() or _test_folder(folder):
        return _from_folders(folder, facts)
    return None


def find_public(facts: ImageSetFacts) -> FoundImages:
    """A set from Hugging Face."""
    splits = load_public(facts.hub, facts.config, instead=facts.instead)
    return _from_splits(splits, f"Hugging Face {facts.hub}", facts)


def nothing_found(folder: Path, facts: ImageSetFacts) -> InputError:
    """What to say when a folder has no known format."""
    if not folder.exists():
        return InputError(f"folder: must exist; got {folder}. It should have {facts.instead}.")
    return InputError(f"folder: must have {facts.title}; found none in {folder}. It should have {facts.instead}.")


def _from_npz(path: Path, facts: ImageSetFacts) -> FoundImages:
    channels = len(facts.mean)
    train, test = (
        npz_rows(path, split, num_classes=facts.num_classes, channels=channels, size=facts.size)
        for split in ("train", "test")
    )
    if train is None and test is None:
        raise InputError(
            f"{path}: has no images under a known name: train_images, train_labels, test_images, test_labels."
        )
    return FoundImages(train, test, path.name, facts.class_names)


def _from_splits(splits: Any, origin: str, facts: ImageSetFacts) -> FoundImages:
    found: dict[str, ImageDataset] = {}
    names: tuple[str, ...] = ()
    for name, split in splits.items():
        if name in ("train", "extra", *TEST_NAMES):
            encoded, numbers, names = encoded_split(split, facts.labels, f"{origin}, {name}")
            labels = to_labels(numbers, f"{origin}, {name}: labels", len(encoded), facts.num_classes)
            found[name] = ImageDataset(encoded, labels, _view(facts))
    test = next((found[name] for name in TEST_NAMES if name in found), None)
    return FoundImages(found.get("train"), test, origin, _class_names(names, facts, origin), found.get("extra"))


def _from_parquet(paths: Sequence[Path], facts: ImageSetFacts) -> FoundImages:
    # A file's split is the beginning of its name (train-00000-of-00001.parquet), or the folder that it lies in.
    train = [path for path in paths if _starts(path, ("train",))]
    test = next((files for name in TEST_NAMES if (files := [path for path in paths if _starts(path, (name,))])), [])
    if not train and not test:
        raise InputError(
            f"{paths[0].parent}: Parquet files must be called train-... and test-...; got {paths[0].name}."
        )
    parts: list[ImageDataset | None] = []
    names: tuple[str, ...] = ()
    for files in (train, test):
        table = ParquetImages(files, facts.labels) if files else None
        parts.append(None if table is None else _parquet_pictures(table, files, facts))
        names = table.names if table else names
    origin = shown_files([*train, *test])
    return FoundImages(parts[0], parts[1], origin, _class_names(names, facts, str(paths[0].parent)))


def _parquet_pictures(table: ParquetImages, files: Sequence[Path], facts: ImageSetFacts) -> ImageDataset:
    labels = to_labels(table.numbers, f"{files[0]}: labels", len(table), facts.num_classes)
    return ImageDataset(table.encoded, labels, _view(facts))


def _parquet_files(folder: Path, facts: ImageSetFacts) -> list[Path]:
    """The Parquet files of a folder laid out as the hub's; other folders may have those of another set."""
    if folder.is_file():
        return [folder] if folder.suffix == ".parquet" else []
    if facts.config is not None and (folder / facts.config).is_dir():
        folder = folder / facts.config
    inside = ("", "data/", "plain_text/", "cifar100/", "default/")
    places = [place + split for place in inside for split in ("", "train/", *(f"{name}/" for name in TEST_NAMES))]
    return [path for place in places for path in sorted(folder.glob(f"{place}*.parquet"))]


def _class_names(names: tuple[str, ...], facts: ImageSetFacts, what: str) -> tuple[str, ...]:
    """The names that a file gives its classes, which must be the published ones where those are known."""
    if names and facts.class_names and names != facts.class_names:
        raise InputError(f"{what}: is not {facts.title}; its classes are {shown(names)}.")
    return names or facts.class_names


def _starts(path: Path, names: tuple[str, ...]) -> bool:
    stem = path.name.split("-")[0].split(".")[0]
    return stem in names or (stem.isdecimal() and path.parent.name in names)


def shown_files(files: Sequence[Path]) -> str:
    """The names of files, but not of a hundred."""
    names = [path.name for path in files]
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} to {names[-1]}"


def _test_folder(folder: Path) -> Path | None:
    return next((folder / name for name in TEST_NAMES if (folder / name).is_dir()), None)


def _from_folders(folder: Path, facts: ImageSetFacts) -> FoundImages:
    test = _test_folder(folder)
    train = folder / "train" if (folder / "train").is_dir() else None
    classes = class_folders(train or test or folder)
    if len(classes) != facts.num_classes:
        where = train or test
        raise InputError(f"{where}: must have a folder for each of {facts.num_classes} classes; got {len(classes)}.")
    parts = [pictures_in(part, classes, _view(facts)) if part else None for part in (train, test)]
    # The published order of CIFAR's classes is that of their names, so the folders' order is the same.
    numbered = all(name.isdecimal() for name in classes) and facts.class_names
    return FoundImages(
        parts[0], parts[1], f"image folders of {folder.name}", facts.class_names if numbered else tuple(classes)
    )


def _view(facts: ImageSetFacts) -> CenterView:
    return CenterView(facts.size, facts.size, channels=len(facts.mean))


# ---------------------------------------------------------------------------------------------------------------------


def take(part: TensorRows | ImageDataset, rows: Tensor) -> TensorRows | ImageDataset:
    """Only some rows of a part."""
    return part.take(rows) if isinstance(part, ImageDataset) else TensorRows(part.inputs[rows], part.labels[rows])


def split_data(
    name: str,
    found: FoundImages,
    facts: ImageSetFacts,
    split: SplitSizes,
    *,
    seed: int,
    augment: CropAndFlip | None,
    memory: bool | None,
) -> DataSplits:
    """A set, split into training and validation by the seed; the published test images stay the test set."""
    if found.train is None or found.test is None:
        missing = "training" if found.train is None else "test"
        raise InputError(
            f"{name}: needs training and test images; {found.origin} has no {missing} images. Give the whole set, or "
            "only_test: true to use only its test images, as out-of-distribution inputs."
        )
    train, val = divide(found.train.labels, split, seed=seed)
    test = first_rows(len(found.test), split.num_test, seed=seed)
    parts = [take(found.train, train), take(found.train, val), take(found.test, test)]
    return as_data(name, found, facts, parts, f"split with seed {seed}", augment=augment, memory=memory)


def only_test_data(
    name: str, found: FoundImages, facts: ImageSetFacts, split: SplitSizes, *, seed: int, memory: bool | None
) -> DataSplits:
    """A set of which only the test images are used: all three splits are these."""
    if found.test is None:
        raise InputError(f"{name}: needs test images; {found.origin} has none.")
    part = take(found.test, first_rows(len(found.test), split.num_test, seed=seed))
    part = in_memory(part, memory) if isinstance(part, ImageDataset) else part
    return as_data(name, found, facts, [part] * 3, "only the test images, in all three splits", memory=memory)


def as_data(
    name: str,
    found: FoundImages,
    facts: ImageSetFacts,
    parts: Sequence[TensorRows | ImageDataset],
    how: str,
    *,
    augment: CropAndFlip | None = None,
    memory: bool | None = None,
) -> DataSplits:
    """Three parts as `DataSplits`, decoded for good when they fit in memory."""
    train, val, test = (in_memory(part, memory) if isinstance(part, ImageDataset) else part for part in parts)
    return DataSplits(
        name=name,
        train=train,
        val=val,
        test=test,
        num_classes=facts.num_classes,
        class_names=found.class_names,
        augment=augment,
        prepare=Standardize(facts.mean, facts.std),
        facts={"channels": len(facts.mean), "size": facts.size},
        about=f"{facts.title} from {found.origin}: {sizes(parts)}, {how}",
    )


def sizes(parts: Sequence[Any]) -> str:
    """The sizes of the three splits, for `Data.about`.

    >>> sizes([range(45_000), range(5_000), range(10_000)])
    '45,000/5,000/10,000 for training/validation/test'
    """
    return "/".join(f"{len(part):,}" for part in parts) + " for training/validation/test"


def joined(first: TensorRows, second: TensorRows) -> TensorRows:
    """The rows of both."""
    return TensorRows(torch.cat([first.inputs, second.inputs]), torch.cat([first.labels, second.labels]))
