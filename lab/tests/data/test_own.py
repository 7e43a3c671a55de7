from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data import DataSplits, load_data
from focalcal_lab.data.augmentation import CropAndFlip
from focalcal_lab.data.dataset import TensorRows
from focalcal_lab.data.image_files import ImageDataset
from focalcal_lab.data.own_data import Collated, split_three
from focalcal_lab.data.user_dataset import import_dataset

CLASSES = ("cat", "dog", "eel")
_FORMATS = itertools.cycle(["png", "jpg", "bmp", "gif", "webp", "tif"])


def _write(folder: Path, count: int, classes: tuple[str, ...] = CLASSES, mode: str = "RGB", side: int = 20) -> Path:
    """Images of one colour each, which tells the class, in all formats and with all shapes."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for each in range(count):
            colour = (60 + 60 * number, 30, 200) if mode == "RGB" else 60 + 60 * number
            image = Image.new(mode, (side + each % 3, side + each % 2), colour)
            image.save(folder / name / f"{each}.{next(_FORMATS)}")
    return folder


def _sizes(data: DataSplits) -> tuple[int, int, int]:
    return len(data.train), len(data.val), len(data.test)


def _check_batches(data: DataSplits) -> torch.Tensor:
    """Every split gives whole batches that the data's own functions take; returns the prepared training batch."""
    for part in (data.train, data.val, data.test):
        inputs, labels = part.__getitems__(list(range(len(part))))
        assert labels.dtype == torch.int64
        assert labels.shape == (len(part),)
        assert 0 <= int(labels.min()) <= int(labels.max()) < data.num_classes
    inputs, _ = data.train.__getitems__(list(range(len(data.train))))
    inputs = data.augment(inputs) if data.augment else inputs
    return data.prepare(inputs) if data.prepare else inputs


# Folders -------------------------------------------------------------------------------------------------------------


def test_a_folder_of_images_per_class_is_split_in_proportion(tmp_path: Path) -> None:
    folder = _write(tmp_path, 20)
    (folder / "cat" / "notes.txt").write_text("no image")
    (folder / ".cache").mkdir()
    (folder / "readme.md").write_text("no class")
    data = load_data("own", folder, seed=1, image_size=16)
    assert _sizes(data) == (48, 6, 6)
    assert data.class_names == CLASSES
    assert dict(data.facts) == {"channels": 3, "size": 16}
    assert data.augment == CropAndFlip(2)
    for part, each in ((data.train, 16), (data.val, 2), (data.test, 2)):
        inputs, labels = part.__getitems__(range(len(part)))
        assert labels.bincount().tolist() == [each] * 3
        assert inputs.dtype == torch.uint8
        # The colour tells the class; JPEG and WebP keep it nearly.
        assert (inputs[:, 0, 8, 8].int() - (60 + 60 * labels)).abs().max() <= 4
    assert _check_batches(data).isfinite().all()
    assert "48/6/6 for training/validation/test, val and test drawn with seed 1" in data.about
    again, other = load_data("own", folder, seed=1, image_size=16), load_data("own", folder, seed=2, image_size=16)
    assert torch.equal(again.val.inputs, data.val.inputs)
    assert not torch.equal(other.train.inputs, data.train.inputs)


def test_inputs_are_standardised_by_the_training_split(tmp_path: Path) -> None:
    data = load_data("own", _write(tmp_path, 10), augment=False)
    values = data.prepare(data.train.inputs)
    assert data.augment is None
    torch.testing.assert_close(values[:, 0].mean(), torch.tensor(0.0), atol=1e-4, rtol=0)
    torch.testing.assert_close(values[:, 0].std(correction=0), torch.tensor(1.0), atol=1e-4, rtol=0)


def test_grey_images_have_one_channel_unless_one_is_coloured(tmp_path: Path) -> None:
    folder = _write(tmp_path, 6, mode="L")
    for path in list(folder.rglob("*.webp")) + list(folder.rglob("*.gif")):  # these formats have no grey
        path.unlink()
    data = load_data("own", folder)
    assert data.facts["channels"] == 1
    assert data.train.inputs.shape[1] == 1
    assert not load_data("own", folder, flip=False).augment.flip
    Image.new("RGB", (9, 9), (255, 0, 0)).save(folder / "cat" / "red.png")
    assert load_data("own", folder).facts["channels"] == 3


def test_split_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    _write(tmp_path / "train", 6)
    _write(tmp_path / "valid", 2)
    _write(tmp_path / "test", 3, classes=CLASSES[:2])
    data = load_data("own", tmp_path)
    assert _sizes(data) == (18, 6, 6)
    assert "as the folders say" in data.about
    assert data.test.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_missing_split_folders_are_drawn_from_training(tmp_path: Path) -> None:
    _write(tmp_path / "train", 10)
    _write(tmp_path / "test", 2)
    data = load_data("own", tmp_path, seed=4)
    assert _sizes(data) == (27, 3, 6)
    assert "val drawn with seed 4" in data.about


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    data = load_data("own", _write(tmp_path, 10, classes=("bus", "train")))
    assert data.class_names == ("bus", "train")


def test_numbered_classes_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    data = load_data("own", _write(tmp_path, 2, classes=tuple(map(str, range(11)))))
    assert data.class_names == tuple(map(str, range(11)))


def test_large_folders_stay_in_files(tmp_path: Path) -> None:
    folder = _write(tmp_path, 10)
    lazy, once = load_data("own", folder, in_memory=False), load_data("own", folder)
    assert isinstance(lazy.train, ImageDataset)
    assert torch.equal(lazy.val.__getitems__(range(3))[0], once.val.inputs)
    assert lazy.prepare == once.prepare


def test_a_camera_s_orientation_is_heeded(tmp_path: Path) -> None:
    folder = _write(tmp_path, 3)
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8] = 255  # white above, but the tag says that it was turned upside down
    tag = Image.Exif()
    tag[0x0112] = 3
    for name in CLASSES:
        Image.fromarray(pixels).save(folder / name / "turned.png", exif=tag)
    data = load_data("own", folder, image_size=16)
    images = torch.cat([data.train.inputs, data.val.inputs, data.test.inputs])
    turned = images[(images[:, :, 12, 8] == 255).all(1)]
    assert len(turned) == 3
    assert (turned[:, :, 3] == 0).all()


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda folder: folder.mkdir(), "must have a folder of images for each class; got no folders"),
        (lambda folder: (folder / "cat").mkdir(parents=True), "cat: has no images; looked for"),
        (lambda folder: _write(folder, 5, classes=("cat",)), "must have at least two classes; got 1"),
        (lambda folder: _write(folder, 1), "must have at least 2 rows of each class to split them; got 1 of cat"),
        (lambda folder: None, "your own data must be a folder or an .npz file"),
        (
            lambda folder: (_write(folder / "train", 4), _write(folder / "val", 2, ("fox",))),
            "fox: is not a class",
        ),
        (lambda folder: [(folder.mkdir()), np.savez(folder / "a.npz"), np.savez(folder / "b.npz")], "has 2 .npz files"),
        (lambda folder: folder.write_text("text"), "must be a folder or an .npz file"),
    ],
)
def test_folders_that_cannot_be_learned_are_refused(write: Any, said: str, tmp_path: Path) -> None:
    write(tmp_path / "mine")
    with pytest.raises(InputError, match=said):
        load_data("own", tmp_path / "mine")


@pytest.mark.parametrize("content", [b"", b"no image at all", b"\x89PNG\r\n\x1a\n" + bytes(30)])
def test_an_unreadable_image_is_named(content: bytes, tmp_path: Path) -> None:
    folder = _write(tmp_path, 5)
    (folder / "dog" / "broken.png").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"dog/broken\.png: is not a readable image"):
        load_data("own", folder)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"val_fraction": 0}, "val_fraction: must lie in"),
        ({"test_fraction": 1.0}, "test_fraction: must lie in"),
        ({"val_fraction": 0.3, "test_fraction": 0.3}, r"must be at most 0\.5; got 0\.6"),
        ({"image_size": 0}, "image_size: must be at least 1"),
        ({"num_classes": 3}, "num_classes: is only for --dataset"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        load_data("own", _write(tmp_path, 5), **options)


def test_every_class_stays_in_training_however_small() -> None:
    labels = torch.tensor([0] * 2 + [1] * 2 + [2] * 50 + [3] * 7)
    for seed in range(30):
        rows = split_three(labels, {"val": 0.2, "test": 0.2}, seed=seed)
        assert labels[rows["train"]].unique().tolist() == [0, 1, 2, 3]
        assert torch.cat(list(rows.values())).sort().values.tolist() == list(range(61))


# Arrays --------------------------------------------------------------------------------------------------------------


def _arrays(shape: tuple[int, ...], dtype: Any = np.uint8, num_classes: int = 3) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, shape).astype(dtype)
    return {"inputs": inputs, "labels": np.arange(shape[0]) % num_classes}


@pytest.mark.parametrize(
    ("shape", "dtype", "facts"),
    [
        ((60, 16, 16, 3), np.uint8, {"channels": 3, "size": 16}),
        ((60, 3, 16, 16), np.uint8, {"channels": 3, "size": 16}),
        ((60, 16, 16), np.uint8, {"channels": 1, "size": 16}),
        ((60, 16, 16, 1), np.float64, {"channels": 1, "size": 16}),
        ((60, 7), np.float32, {"features": 7}),
        ((60, 7), np.int32, {"features": 7}),
        ((60, 7), np.uint8, {"features": 7}),
    ],
)
def test_npz_files_are_images_or_features_by_their_shape(
    shape: tuple[int, ...], dtype: Any, facts: dict[str, int], tmp_path: Path
) -> None:
    np.savez(tmp_path / "mine.npz", **_arrays(shape, dtype))
    for folder in (tmp_path, tmp_path / "mine.npz"):
        data = load_data("own", folder)
        assert dict(data.facts) == facts
        assert _sizes(data) == (48, 6, 6)
        assert isinstance(data.train, TensorRows)
        assert (data.augment is None) == ("features" in facts)
        values = _check_batches(data)
        assert values.dtype == torch.float32
        whole = data.prepare(data.train.inputs)
        assert whole.mean().abs() < 1e-4
        assert whole.std(correction=0) == pytest.approx(1, abs=1e-3)


def test_a_split_column_decides(tmp_path: Path) -> None:
    arrays = _arrays((30, 4), np.float32)
    rows = np.repeat([0, 1, 2], 10)
    for split in (rows, np.array(["train", "val", "test"])[rows], np.array(["training", "dev", "test"])[rows]):
        np.savez(tmp_path / "mine.npz", split=split, **arrays)
        data = load_data("own", tmp_path / "mine.npz")
        np.testing.assert_array_equal(data.val.inputs, arrays["inputs"][10:20])
        np.testing.assert_array_equal(data.test.labels, arrays["labels"][20:])
        assert "as the column split says" in data.about


def test_labels_may_be_names(tmp_path: Path) -> None:
    arrays = _arrays((30, 4), np.float32)
    np.savez(tmp_path / "mine.npz", x=arrays["inputs"], y=np.array(["eel", "cat", "dog"])[arrays["labels"]])
    data = load_data("own", tmp_path)
    assert data.class_names == CLASSES
    assert torch.cat([data.train.labels, data.val.labels, data.test.labels]).bincount().tolist() == [10] * 3
    np.savez(tmp_path / "mine.npz", class_names=np.array(CLASSES), **arrays)
    assert load_data("own", tmp_path).class_names == CLASSES


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": None}, "must have inputs .* and labels; it has inputs"),
        ({"labels": np.arange(60) % 3 + 1}, "must count from 0 without gaps; got the classes 1, 2, 3"),
        ({"labels": np.arange(60) % 3 * 2}, "must count from 0 without gaps; got the classes 0, 2, 4"),
        ({"labels": np.zeros(60, int)}, "must have at least two classes; got 1"),
        ({"labels": np.array([0] * 59 + [1])}, "at least 2 rows of each class to split them; got 1 of 1"),
        ({"labels": np.arange(59) % 3}, r"must have shape \(60,\); got \(59,\)"),
        ({"labels": np.arange(60) % 3 * 0.5}, "must be class numbers or names; got float64"),
        ({"inputs": np.full((60, 4), np.nan)}, "every value must be finite"),
        ({"inputs": np.zeros((60, 16, 12, 3))}, r"square images .* got \(48, 3, 16, 12\)"),
        ({"inputs": np.zeros((60, 16, 16, 5))}, "is none of them"),
        ({"inputs": np.zeros(60)}, r"must be features \(N, D\) or images; got shape \(60,\)"),
        ({"inputs": np.array(["text"] * 60)}, "must be numbers"),
        ({"inputs": np.array([None] * 60)}, "cannot be read"),
        ({"split": np.array(["train"] * 59 + ["tets"])}, "must be train, val or test .*; got tets"),
        ({"split": np.array(["train"] * 30 + ["test"] * 30)}, "must have rows of train, val and test; got none of val"),
        ({"split": np.array([0] * 5)}, r"must have shape \(60,\)"),
    ],
)
def test_arrays_that_cannot_be_learned_are_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    arrays = {**_arrays((60, 4), np.float32), **change}
    np.savez(tmp_path / "mine.npz", **{key: value for key, value in arrays.items() if value is not None})
    with pytest.raises((InputError, FileFormatError), match=said):
        load_data("own", tmp_path)


# Data sets by import path --------------------------------------------------------------------------------------------

GENERATOR = torch.Generator().manual_seed(0)
PAIRS = TensorDataset(torch.randn(50, 3, 8, 8, generator=GENERATOR), torch.arange(50) % 5)


class Plain:
    """Only `__len__` and `__getitem__`, numpy in and plain numbers as labels."""

    def __init__(self, folder: Path | None = None, count: int = 40) -> None:
        self.folder, self.count, self.epoch = folder, count, -1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full(6, index, np.float32), index % 4

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class WithClasses(Plain):
    classes = ("a", "b", "c", "d")
    targets = tuple(index % 4 for index in range(40))


class Lists(Dataset[Any]):
    """`__getitems__` as torch describes it: a list of samples."""

    num_classes = 2

    def __len__(self) -> int:
        return 20

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        return [(torch.tensor([float(index)]), index % 2) for index in indices]

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("whole batches are asked for")


class Dicts(Plain):
    def __getitem__(self, index: int) -> Any:
        return {"image": torch.zeros(2), "label": 1}


class SoftLabels(Plain):
    classes = ("a", "b")

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(2), 0.5


def three(folder: Path | None = None) -> tuple[Plain, Plain, Plain]:
    return Plain(folder, 30), Plain(folder, 8), Plain(folder, 12)


def by_name(folder: Path | None = None) -> dict[str, Plain]:
    return {"training": Plain(folder, 30), "validation": Plain(folder, 8)}


def no_training() -> dict[str, Plain]:
    return {"test": Plain()}


NUMBER = 7


def _path(name: str) -> str:
    return f"{__name__}:{name}"


@pytest.mark.parametrize(
    ("name", "sizes", "num_classes", "facts"),
    [
        ("PAIRS", (40, 5, 5), 5, {"channels": 3, "size": 8}),
        ("Plain", (32, 4, 4), 4, {"features": 6}),
        ("WithClasses", (32, 4, 4), 4, {"features": 6}),
        ("Lists", (16, 2, 2), 2, {"features": 1}),
        ("three", (30, 8, 12), 4, {"features": 6}),
        ("by_name", (27, 8, 3), 4, {"features": 6}),
    ],
)
def test_any_data_set_is_wrapped_by_its_import_path(
    name: str, sizes: tuple[int, int, int], num_classes: int, facts: dict[str, int]
) -> None:
    data = load_data("own", dataset=import_dataset(_path(name)), seed=3)
    assert _sizes(data) == sizes
    assert data.num_classes == num_classes
    assert dict(data.facts) == facts
    _check_batches(data)
    inputs, labels = next(iter(DataLoader(data.train, batch_size=4, collate_fn=lambda batch: batch)))
    assert len(inputs) == len(labels) == 4
    assert name in data.about


def test_splits_of_one_data_set_do_not_share_rows() -> None:
    data = load_data("own", dataset=import_dataset(_path("Plain")), seed=3)
    seen = [int(part[row][0][0]) for part in (data.train, data.val, data.test) for row in range(len(part))]
    assert sorted(seen) == list(range(40))
    inputs, labels = data.val.__getitems__([1, 0])
    assert labels.tolist() == [int(value) % 4 for value in inputs[:, 0]]


def test_known_labels_are_split_in_proportion_and_named() -> None:
    data = load_data("own", dataset=import_dataset(_path("WithClasses")))
    assert data.class_names == ("a", "b", "c", "d")
    assert sorted(data.val.__getitems__(range(4))[1].tolist()) == [0, 1, 2, 3]


def test_the_folder_and_the_epoch_are_passed_on(tmp_path: Path) -> None:
    data = load_data("own", tmp_path, dataset=import_dataset(_path("Plain")))
    assert data.train.base.folder == tmp_path
    data.train.set_epoch(4)
    assert data.train.base.epoch == 4


def test_a_script_in_this_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_pairs.py").write_text(
        "import torch\nrows = torch.utils.data.TensorDataset(torch.zeros(20, 3), torch.arange(20) % 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert _sizes(load_data("own", dataset=import_dataset("my_pairs:rows"))) == (16, 2, 2)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no_colon", 'dataset: must be "package.module:name"'),
        ("no.such.module:name", "cannot be imported"),
        (_path("nothing"), "cannot be imported"),
        (_path("NUMBER"), "must be a data set with __len__ and __getitem__; got int"),
        (_path("no_training"), "must have a training set"),
        (_path("Dicts"), r"must give \(input, label\) pairs; got dict with image, label"),
        (_path("SoftLabels"), "labels must be class numbers; got torch.float64"),
    ],
)
def test_what_is_no_data_set_is_refused(path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_data("own", dataset=import_dataset(path), num_classes=2 if "Dicts" in path else None)


def test_a_ready_batch_is_passed_through() -> None:
    rows = TensorRows(torch.arange(12.0).view(6, 2), torch.arange(6))
    wrapped = Collated(rows, torch.tensor([5, 3, 1]))
    inputs, labels = wrapped.__getitems__([0, 2])
    assert torch.equal(inputs, rows.inputs[[5, 1]])
    assert labels.tolist() == [5, 1]
