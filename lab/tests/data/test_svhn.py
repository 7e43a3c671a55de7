from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data import load_data
from focalcal_lab.data.augmentation import CropAndFlip
from focalcal_lab.data.splits import SplitSizes, divide
from lab.tests.data.formats import hub_splits, planes, sample

DATA = sample()


def _write(path: Path, images: np.ndarray, digits: np.ndarray) -> None:
    numbers = np.where(digits == 0, 10, digits)[:, None].astype(np.uint8)
    savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": numbers}, do_compression=True)


def _folder(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    _write(folder / "train_32x32.mat", DATA.train_images, DATA.train_labels)
    _write(folder / "test_32x32.mat", DATA.test_images, DATA.test_labels)
    return folder


def test_mat_files_give_the_digits_with_ten_as_zero(tmp_path: Path) -> None:
    data = load_data("svhn", _folder(tmp_path), seed=4)
    train, val = divide(torch.from_numpy(DATA.train_labels), SplitSizes(), seed=4)
    for part, rows in ((data.train, train), (data.val, val)):
        np.testing.assert_array_equal(part.inputs, planes(DATA.train_images)[rows.numpy()])
        np.testing.assert_array_equal(part.labels, DATA.train_labels[rows.numpy()])
    np.testing.assert_array_equal(data.test.inputs, planes(DATA.test_images))
    np.testing.assert_array_equal(data.test.labels, DATA.test_labels)
    assert data.class_names == tuple("0123456789")
    assert data.augment is None
    assert load_data("svhn", tmp_path, augment=True).augment == CropAndFlip(4, flip=False)


def test_a_folder_of_several_sets_is_searched_by_name(tmp_path: Path) -> None:
    _folder(tmp_path / "svhn")
    assert len(load_data("svhn", tmp_path).test) == 20


def test_extra_images_are_added_to_training(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    with pytest.raises(InputError, match="extra: needs extra_32x32"):
        load_data("svhn", folder, extra=True)
    more = sample(seed=1)
    _write(folder / "extra_32x32.mat", more.train_images, more.train_labels)
    data = load_data("svhn", folder, extra=True)
    assert (len(data.train), len(data.val), len(data.test)) == (90, 10, 20)
    both = torch.cat([data.train.labels, data.val.labels])
    assert both.bincount().tolist() == [10] * 10
    assert "and the extra images" in data.about
    assert len(load_data("svhn", folder).train) == 45


def test_only_the_test_file_is_enough_for_out_of_distribution(tmp_path: Path) -> None:
    _write(tmp_path / "test_32x32.mat", DATA.test_images, DATA.test_labels)
    assert len(load_data("svhn", tmp_path, only_test=True).test) == 20
    with pytest.raises(InputError, match="svhn: needs training and test images"):
        load_data("svhn", tmp_path)


def test_npz_and_the_hub_s_tables_are_read_too(tmp_path: Path) -> None:
    arrays = {"train_images": DATA.train_images, "train_labels": DATA.train_labels}
    np.savez(tmp_path / "svhn.npz", test_images=DATA.test_images, test_labels=DATA.test_labels, **arrays)
    plain = load_data("svhn", tmp_path)
    folder = tmp_path / "hub" / "cropped_digits"
    folder.mkdir(parents=True)
    for name, split in hub_splits(DATA, image="image", names=tuple("0123456789")).items():
        split.to_parquet(folder / f"{name}-00000-of-00001.parquet")
    table = load_data("svhn", tmp_path / "hub")
    assert torch.equal(plain.train.inputs, table.train.inputs)
    assert torch.equal(plain.val.labels, table.val.labels)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "it has no y"),
        ({"X": np.zeros((2, 32, 32, 3), np.uint8), "y": np.ones((2, 1))}, r"X must be uint8 \(32, 32, 3, N\)"),
        ({"X": np.zeros((32, 32, 3, 2), np.float64), "y": np.ones((2, 1))}, "X must be uint8"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [11]])}, "must lie in 0..10; got 11 at row 1"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1))}, "one for each of the 2 images"),
    ],
)
def test_mat_files_that_are_not_svhn_are_refused(arrays: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    savemat(tmp_path / "train_32x32.mat", arrays)
    with pytest.raises(FileFormatError, match=f"train_32x32.mat: .*{said}"):
        load_data("svhn", tmp_path)


@pytest.mark.parametrize("content", [b"", b"MATLAB", b"\x89HDF\r\n\x1a\n" + bytes(600), bytes(200)])
def test_damaged_mat_files_are_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "train_32x32.mat").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"train_32x32\.mat: "):
        load_data("svhn", tmp_path)
