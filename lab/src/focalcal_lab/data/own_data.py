"""Your own data: folders of images, an .npz file, or any torch data set that the command line names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from focalcal.core.checks import require, require_finite
from focalcal.errors import InputError
from focalcal_lab.data.array_files import npz_keys, read_npz, to_pixels
from focalcal_lab.data.augmentation import CropAndFlip, standardize_like
from focalcal_lab.data.dataset import Batch, DataSplits, TensorRows
from focalcal_lab.data.image_files import (
    CenterView,
    ImageDataset,
    class_folders,
    in_memory,
    is_grey,
    pictures_in,
    shown,
)
from focalcal_lab.data.image_sets import sizes
from focalcal_lab.data.splits import shuffled
from focalcal_lab.data.user_dataset import UserDataset

_SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation", "dev"), "test": ("test", "testing")}
_INPUTS = ("images", "inputs", "features", "x", "X")
_LABELS = ("labels", "label", "targets", "y")


def own(
    folder: Path | None,
    *,
    seed: int,
    image_size: int = 32,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    dataset: UserDataset | None = None,
    augment: bool = True,
    flip: bool = True,
    in_memory: bool | None = None,
    num_classes: int | None = None,
) -> DataSplits:
    """Your own data, from one of three places.

    1. A folder with a folder of images for each class, or such folders within train, val and test. Images are scaled
       so that the shorter side is `image_size`, and the middle square is taken.
    2. An .npz file (or a folder with one) of `images` or `inputs`, `labels` and perhaps `split` ("train", "val" or
       "test" for each row). Two-dimensional inputs are features.
    3. `dataset=import_dataset("package.module:name")`, which is `--dataset` of the command line: a torch data set of
       (input, label) pairs, or a function, called with `folder` if there is one, that returns such a set, or train,
       val and test sets as a tuple or a dict. A recipe cannot name it.

    What is not split already is split by `seed`, every class in proportion. `augment` crops images at random, by an
    eighth of their size, and mirrors them (unless `flip` is false). Inputs are standardised by the training split;
    those of a data set of yours are left as they are.
    """
    for name, share in (("val_fraction", val_fraction), ("test_fraction", test_fraction)):
        require(isinstance(share, int | float) and 0 < share < 1, name, "must lie in (0, 1)", repr(share))
    total = val_fraction + test_fraction
    require(total <= 0.5, "val_fraction + test_fraction", "must be at most 0.5", f"{total:g}", "Train on half or more.")
    shares = {"val": float(val_fraction), "test": float(test_fraction)}
    if dataset is not None:
        code = "must be what import_dataset gives, as --dataset does"
        require(isinstance(dataset, UserDataset), "dataset", code, type(dataset).__name__)
        return _imported(dataset, folder, shares, seed, num_classes)
    require(num_classes is None, "num_classes", "is only for --dataset; the files say it", num_classes)
    if folder is None or not folder.exists():
        raise InputError(f"folder: your own data must be a folder or an .npz file; got {folder}. Give --data DIR.")
    npz = _npz_in(folder)
    if npz is not None:
        parts, names, how = _from_npz(npz, shares, seed)
    else:
        require(isinstance(image_size, int) and image_size >= 1, "image_size", "must be at least 1", repr(image_size))
        parts, names, how = _from_folder(folder, image_size, shares, seed, in_memory)
    return _as_data(parts, names, f"own data from {folder.name}: {sizes(list(parts.values()))}, {how}", augment, flip)


def _as_data(
    parts: Mapping[str, TensorRows | ImageDataset], names: tuple[str, ...], about: str, augment: bool, flip: bool
) -> DataSplits:
    sample, _ = parts["train"].__getitems__(range(min(len(parts["train"]), 2000)))
    facts = _facts(sample)
    change = CropAndFlip(max(1, facts["size"] // 8), flip) if augment and "size" in facts else None
    train = parts["train"]
    # Images that stay in files are standardised by a sample of them.
    prepare = standardize_like(train.inputs if isinstance(train, TensorRows) else sample)
    return DataSplits(
        "own", parts["train"], parts["val"], parts["test"], len(names), names, change, prepare, facts, about
    )


def _facts(inputs: Tensor) -> dict[str, Any]:
    if inputs.dim() == 2:
        return {"features": inputs.shape[1]}
    if inputs.dim() == 4 and inputs.shape[2] == inputs.shape[3]:
        return {"channels": inputs.shape[1], "size": inputs.shape[2]}
    raise InputError(
        f"own: inputs must be features (N, D) or square images (N, C, H, H); got {tuple(inputs.shape)}. "
        "Crop or pad the images, or make a data set of your own and name it by --dataset."
    )


def split_three(labels: Tensor, shares: Mapping[str, float], *, seed: int) -> dict[str, Tensor]:
    """Rows for train and for each of `shares`, every class in proportion, at least one row for each share.

    >>> {name: len(rows) for name, rows in split_three(torch.arange(40) % 2, {"val": 0.1, "test": 0.2}, seed=0).items()}
    {'train': 28, 'val': 4, 'test': 8}
    """
    order = shuffled(labels.numpy(), np.random.default_rng(seed), stratified=True)
    rows: dict[str, Tensor] = {"train": torch.empty(0)}  # first in the order of the names
    start = 0
    for name, share in shares.items():
        end = start + max(1, round(share * len(order)))
        rows[name], start = torch.from_numpy(np.sort(order[start:end])), end
    rows["train"] = torch.from_numpy(np.sort(order[start:]))
    return rows


def _require_classes(labels: Tensor, names: Sequence[str], what: str, at_least: int) -> None:
    """Refuse what cannot be learned or split: one class, or a class with too few rows."""
    require(len(names) >= 2, what, "must have at least two classes", len(names))
    counts = torch.bincount(labels, minlength=len(names))
    few = int(counts.argmin())
    enough = int(counts[few]) >= at_least
    reason = f"must have at least {at_least} rows of each class" + (" to split them" if at_least > 1 else "")
    require(enough, what, reason, f"{int(counts[few])} of {names[few]}")


# Folders of images ---------------------------------------------------------------------------------------------------


def _from_folder(
    folder: Path, size: int, shares: Mapping[str, float], seed: int, memory: bool | None
) -> tuple[dict[str, TensorRows | ImageDataset], tuple[str, ...], str]:
    places = _split_folders(folder)
    train_folder = places["train"] or folder
    classes = class_folders(train_folder)
    what = str(train_folder)
    require(bool(classes), what, "must have a folder of images for each class", "no folders", "Or give an .npz file.")
    parts = {"train": pictures_in(train_folder, classes, CenterView(size, size, upright=True))}
    given = [name for name in ("val", "test") if places["train"] and places[name]]
    missing = {name: share for name, share in shares.items() if name not in given}
    _require_classes(parts["train"].labels, classes, what, at_least=2 if missing else 1)
    for name in given:
        parts[name] = pictures_in(places[name] or folder, classes, parts["train"].view)
    view = CenterView(size, size, channels=1 if _all_grey(parts.values()) else 3, upright=True)
    for part in parts.values():
        part.view = view
    if missing:
        whole = parts["train"]
        rows = split_three(whole.labels, missing, seed=seed)
        parts.update({name: whole.take(rows[name]) for name in rows})
    how = f"{' and '.join(missing)} drawn with seed {seed}" if missing else "as the folders say"
    ready = {name: in_memory(parts[name], memory) for name in ("train", "val", "test")}
    return ready, tuple(classes), how


def _split_folders(folder: Path) -> dict[str, Path | None]:
    """The folders of the splits, if there are only such: a class may be called train, as locomotives are."""
    inside = class_folders(folder)
    if not set(inside) <= {name for names in _SPLITS.values() for name in names}:
        inside = []
    return {split: next((folder / name for name in names if name in inside), None) for split, names in _SPLITS.items()}


def _all_grey(parts: Iterable[ImageDataset]) -> bool:
    return all(is_grey(part.encoded[row], part.encoded.name(row)) for part in parts for row in range(len(part)))


# Arrays --------------------------------------------------------------------------------------------------------------


def _npz_in(folder: Path) -> Path | None:
    if folder.is_file():
        require(folder.suffix == ".npz", "folder", "must be a folder or an .npz file", folder.name)
        return folder
    found = sorted(folder.glob("*.npz"))
    if len(found) > 1:
        raise InputError(f"{folder}: has {len(found)} .npz files ({shown([f.name for f in found])}). Name one of them.")
    return found[0] if found else None


def _from_npz(
    path: Path, shares: Mapping[str, float], seed: int
) -> tuple[dict[str, TensorRows | ImageDataset], tuple[str, ...], str]:
    keys = npz_keys(path)
    inputs, labels = (next((key for key in wanted if key in keys), None) for wanted in (_INPUTS, _LABELS))
    if inputs is None or labels is None:
        raise InputError(
            f"{path}: must have inputs ({' or '.join(_INPUTS[:3])}) and labels; it has {shown(keys) or 'nothing'}."
        )
    arrays = read_npz(path, [inputs, labels, "split", "class_names"])
    values = _to_inputs(arrays[inputs], f"{path}: {inputs}")
    numbers, names = _to_classes(arrays[labels], len(values), arrays.get("class_names"), f"{path}: {labels}")
    if "split" in arrays:
        rows, how = _given_rows(arrays["split"], numbers, f"{path}: split"), "as the column split says"
        _require_classes(numbers[rows["train"]], names, f"{path}: the training rows", at_least=1)
    else:
        _require_classes(numbers, names, str(path), at_least=2)
        rows, how = split_three(numbers, shares, seed=seed), f"val and test drawn with seed {seed}"
    return {name: TensorRows(values[each], numbers[each]) for name, each in rows.items()}, names, how


def _to_inputs(values: np.ndarray[Any, Any], what: str) -> Tensor:
    """Bytes as images; other numbers as float32 images or features."""
    if values.dtype == object or values.dtype.kind not in "uifb":
        raise InputError(f"{what}: must be numbers; got {values.dtype}.")
    if values.ndim == 2:
        values = values.astype(np.float32)
    elif values.dtype != np.uint8:
        values = values.astype(np.float32, copy=False)
    require(values.ndim in (2, 3, 4), what, "must be features (N, D) or images", f"shape {values.shape}")
    inputs = torch.from_numpy(values) if values.ndim == 2 else to_pixels(values, what)
    require_finite(inputs, what)
    return inputs


def _to_classes(
    labels: np.ndarray[Any, Any], num_rows: int, names: np.ndarray[Any, Any] | None, what: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Class numbers, from numbers without gaps or from names."""
    require(labels.shape == (num_rows,), what, f"must have shape ({num_rows},)", labels.shape)
    if labels.dtype.kind in "US":
        classes, numbers = np.unique(labels.astype(str), return_inverse=True)
        return torch.from_numpy(numbers.astype(np.int64)), tuple(map(str, classes))
    require(labels.dtype.kind in "iu", what, "must be class numbers or names", labels.dtype)
    seen = np.unique(labels)
    whole = len(seen) > 0 and seen[0] == 0 and seen[-1] == len(seen) - 1
    fix = "Number the classes anew, or give their names."
    require(whole, what, "must count from 0 without gaps", f"the classes {shown(list(map(str, seen)))}", fix)
    said = tuple(map(str, names if names is not None and len(names) == len(seen) else seen))
    return torch.from_numpy(labels.astype(np.int64)), said


def _given_rows(split: np.ndarray[Any, Any], labels: Tensor, what: str) -> dict[str, Tensor]:
    require(split.shape == tuple(labels.shape), what, f"must have shape {tuple(labels.shape)}", split.shape)
    if split.dtype.kind in "iu":
        codes = {0: "train", 1: "val", 2: "test"}
        said = np.array([codes.get(int(code), str(code)) for code in split])
    else:
        said = split.astype(str)
    rows = {name: torch.from_numpy(np.flatnonzero(np.isin(said, known))) for name, known in _SPLITS.items()}
    unknown = sorted(set(said) - {word for known in _SPLITS.values() for word in known})
    require(not unknown, what, "must be train, val or test (or 0, 1, 2)", shown(unknown))
    empty = [name for name, each in rows.items() if len(each) == 0]
    require(not empty, what, "must have rows of train, val and test", f"none of {', '.join(empty)}")
    return rows


# Data sets of the user's own code -----------------------------------------------------------------------------------


class Collated(Dataset[Any]):
    """Rows of anybody's data set of (input, label) pairs, as whole batches."""

    def __init__(self, base: Any, rows: Tensor | None = None, what: str = "dataset") -> None:
        self.base, self.what = base, what
        self.indices = torch.arange(len(base)) if rows is None else rows

    def __len__(self) -> int:
        return len(self.indices)

    def set_epoch(self, epoch: int) -> None:
        """Passed on, if the data set wants to know."""
        if hasattr(self.base, "set_epoch"):
            self.base.set_epoch(epoch)

    def __getitem__(self, index: int) -> Batch:
        sample: Batch = self.base[int(self.indices[index])]
        return sample

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The rows of `indices` as one batch, by the data set's own `__getitems__` if it has one."""
        rows = self.indices[torch.as_tensor(indices)].tolist()
        many = getattr(self.base, "__getitems__", None)
        samples = many(rows) if many is not None else [self.base[row] for row in rows]
        # torch wants a list of samples of `__getitems__`; ours gives the batch itself.
        batch = default_collate(samples) if isinstance(samples, list) else samples
        if not (isinstance(batch, tuple | list) and len(batch) == 2):
            raise InputError(f"{self.what}: must give (input, label) pairs; got {_kind(samples)}.")
        inputs, labels = batch
        labels = torch.as_tensor(labels)
        whole = labels.dim() == 1 and not labels.is_floating_point() and labels.dtype != torch.bool
        require(whole, self.what, "labels must be class numbers", f"{labels.dtype} {tuple(labels.shape)}")
        return inputs, labels.long()


def _kind(samples: Any) -> str:
    first = samples[0] if isinstance(samples, list) and samples else samples
    keys = f" with {', '.join(map(str, first))}" if isinstance(first, Mapping) else ""
    return f"{type(first).__name__}{keys}"


def _imported(
    dataset: UserDataset, folder: Path | None, shares: Mapping[str, float], seed: int, num_classes: int | None
) -> DataSplits:
    path = dataset.name
    sets = _as_splits(dataset.found, folder, path)
    bases = {name: Collated(base, what=path) for name, base in sets.items()}
    for name, part in bases.items():
        require(len(part) >= 1, path, f"{name} must not be empty", "no rows")
    count, names = _num_classes(bases["train"], num_classes, path)
    missing = {name: share for name, share in shares.items() if name not in bases}
    if missing:
        whole = bases["train"]
        require(len(whole) >= 2 + len(missing), path, "must have enough rows to split", len(whole))
        rows = split_three(_known_labels(whole), missing, seed=seed)
        bases.update({name: Collated(whole.base, each, path) for name, each in rows.items()})
    inputs, _ = bases["train"].__getitems__([0])
    facts: dict[str, Any] = {}
    if isinstance(inputs, Tensor) and (inputs.dim() == 2 or (inputs.dim() == 4 and inputs.shape[2] == inputs.shape[3])):
        facts = _facts(inputs)
    how = f"{' and '.join(missing)} drawn with seed {seed}" if missing else "as it says"
    train, val, test = (bases[name] for name in ("train", "val", "test"))
    about = f"own data from {path}: {sizes((train, val, test))}, {how}"
    return DataSplits("own", train, val, test, count, names, facts=facts, about=about)


def _as_splits(found: Any, folder: Path | None, path: str) -> dict[str, Any]:
    """The data sets by split, from a set, a function that makes one, or several of them."""
    if isinstance(found, type) or (callable(found) and not isinstance(found, Dataset)):
        found = found() if folder is None else found(folder)
    if isinstance(found, Mapping):
        known = {
            split: next((found[name] for name in names if name in found), None) for split, names in _SPLITS.items()
        }
        sets = {split: base for split, base in known.items() if base is not None}
    elif isinstance(found, tuple | list):
        require(len(found) in (2, 3), path, "must be a set, or train, val and test", f"{len(found)} of them")
        sets = dict(zip(("train", "val", "test") if len(found) == 3 else ("train", "test"), found, strict=True))
    else:
        sets = {"train": found}
    require(
        "train" in sets, path, "must have a training set", shown([str(key) for key in found]) if not sets else "none"
    )
    for name, base in sets.items():
        sized = hasattr(base, "__getitem__") and hasattr(base, "__len__")
        require(sized, path, f"{name} must be a data set with __len__ and __getitem__", type(base).__name__)
    return sets


def _num_classes(train: Collated, given: int | None, path: str) -> tuple[int, tuple[str, ...]]:
    """How many classes there are: as given, as the set says, or by looking at every label."""
    names = tuple(map(str, getattr(train.base, "classes", None) or ()))
    known = given or len(names) or getattr(train.base, "num_classes", None)
    if known is None:
        targets = getattr(train.base, "targets", None)
        known = 1 + int(max(targets if targets is not None else (train[row][1] for row in range(len(train)))))
    require(int(known) >= 2, path, "must have at least two classes", known)
    return int(known), names if len(names) == int(known) else ()


def _known_labels(whole: Collated) -> Tensor:
    """The labels if the set has them at hand as `targets`, as torchvision's do; else one class, not to read all."""
    targets = getattr(whole.base, "targets", None)
    if targets is None or len(targets) != len(whole):
        return torch.zeros(len(whole), dtype=torch.int64)
    return torch.as_tensor(targets).long()
