"""MNIST from idx files, an .npz or the test images alone, and as a foreign set for networks that learnt CIFAR."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from focalcal.errors import FileFormatError, InputError
from focalcal.metrics import ood_auroc
from focalcal_lab.catalog import find_recipe
from focalcal_lab.data import load_data
from focalcal_lab.data.augmentation import CropAndFlip
from focalcal_lab.data.mnist import read_idx
from focalcal_lab.data.splits import SplitSizes, divide
from focalcal_lab.run import begin, resume
from focalcal_lab.run_folder import RunSettings
from focalcal_lab.training_setup import load_foreign, shortened
from lab.tests.data.formats import hub_splits, idx, mnist_files, sample, write_files
from lab.tests.tiny import write_data
from tests.conftest import SHARED

DATA = sample(shape=(28, 28))
DIGITS = tuple("0123456789")
CIFAR = {"channels": 3, "size": 32}


def _idx(folder: Path) -> Path:
    return write_files(folder, mnist_files(DATA, packed=False))


def _idx_packed(folder: Path) -> Path:
    return write_files(folder, mnist_files(DATA))


def _idx_with_a_dot(folder: Path) -> Path:
    return write_files(folder, mnist_files(DATA, middle=".", packed=False))


def _idx_with_a_dot_packed(folder: Path) -> Path:
    return write_files(folder, mnist_files(DATA, middle="."))


def _idx_as_torchvision_keeps_it(folder: Path) -> Path:
    write_files(folder / "MNIST" / "raw", mnist_files(DATA, packed=False))
    return folder


def _idx_in_raw(folder: Path) -> Path:
    write_files(folder / "raw", mnist_files(DATA))
    return folder


def _npz_keras(folder: Path) -> Path:
    folder.mkdir()
    images = {"x_train": DATA.train_images, "x_test": DATA.test_images}
    labels = {"y_train": DATA.train_labels.astype(np.uint8), "y_test": DATA.test_labels.astype(np.uint8)}
    np.savez_compressed(folder / "mnist.npz", **images, **labels)
    _test_alone(folder)  # the whole set goes first
    return folder


def _npz_keras_alone(folder: Path) -> Path:
    return _npz_keras(folder) / "mnist.npz"


def _table(folder: Path) -> Path:
    (folder / "mnist").mkdir(parents=True)
    for name, split in hub_splits(DATA, image="image", names=DIGITS).items():
        split.to_parquet(folder / "mnist" / f"{name}-00000-of-00001.parquet")
    return folder


def _test_alone(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    np.savez_compressed(folder / "mnist_t10k.npz", images=DATA.test_images, labels=DATA.test_labels.astype(np.uint8))
    return folder


EXACT = [
    _idx,
    _idx_packed,
    _idx_with_a_dot,
    _idx_with_a_dot_packed,
    _idx_in_raw,
    _idx_as_torchvision_keeps_it,
    _npz_keras,
    _npz_keras_alone,
    _table,
]


@pytest.mark.parametrize("write", EXACT)
def test_every_format_gives_the_same_images_in_the_same_splits(write: Callable[[Path], Path], tmp_path: Path) -> None:
    data = load_data("mnist", write(tmp_path / "data"), seed=3)
    train, val = divide(torch.from_numpy(DATA.train_labels), SplitSizes(), seed=3)
    for part, rows in ((data.train, train), (data.val, val)):
        np.testing.assert_array_equal(part.inputs, DATA.train_images[rows.numpy(), None])
        np.testing.assert_array_equal(part.labels, DATA.train_labels[rows.numpy()])
    np.testing.assert_array_equal(data.test.inputs, DATA.test_images[:, None])
    np.testing.assert_array_equal(data.test.labels, DATA.test_labels)
    assert (data.test.inputs.dtype, data.test.labels.dtype) == (torch.uint8, torch.int64)
    assert (data.num_classes, data.class_names, dict(data.facts)) == (10, DIGITS, {"channels": 1, "size": 28})
    assert "45/5/20 for training/validation/test, split with seed 3" in data.about
    assert data.augment is None


def test_digits_are_cropped_at_random_and_never_mirrored(tmp_path: Path) -> None:
    assert load_data("mnist", _idx(tmp_path), augment=True).augment == CropAndFlip(4, flip=False)


# A frame for networks that learnt CIFAR ------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [_idx, _table])
def test_framed_images_have_their_pixels_in_the_middle_and_black_around(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    data = load_data("mnist", write(tmp_path / "data"), seed=3, **CIFAR)
    whole = np.pad(DATA.test_images, ((0, 0), (2, 2), (2, 2)))
    np.testing.assert_array_equal(data.test.inputs, np.stack([whole] * 3, axis=1))
    assert dict(data.facts) == CIFAR
    train, _ = divide(torch.from_numpy(DATA.train_labels), SplitSizes(), seed=3)
    np.testing.assert_array_equal(data.train.inputs[:, 1, 2:-2, 2:-2], DATA.train_images[train.numpy()])
    np.testing.assert_array_equal(data.train.labels, DATA.train_labels[train.numpy()])


def test_of_an_odd_frame_the_wider_side_is_below_and_to_the_right(tmp_path: Path) -> None:
    data = load_data("mnist", _idx(tmp_path), size=31)
    assert data.test.inputs.shape == (20, 1, 31, 31)
    np.testing.assert_array_equal(data.test.inputs[:, 0, 1:29, 1:29], DATA.test_images)
    assert int(data.test.inputs.long().sum()) == int(DATA.test_images.astype(int).sum())  # the rest is black


@pytest.mark.parametrize("channels", [1, 3])
def test_every_channel_is_standardised_alike(channels: int, tmp_path: Path) -> None:
    data = load_data("mnist", _idx(tmp_path), channels=channels)
    prepared = data.prepare(data.test.inputs)
    expected = (data.test.inputs.double() / 255 - 0.1307) / 0.3081  # the usual statistics of MNIST
    torch.testing.assert_close(prepared.double(), expected, atol=1e-6, rtol=0)
    assert prepared.shape == (20, channels, 28, 28)


# Only the test images ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lone", [False, True])
def test_the_test_images_alone_are_enough_if_that_is_said(lone: bool, tmp_path: Path) -> None:
    folder = _test_alone(tmp_path)
    place = folder / "mnist_t10k.npz" if lone else folder
    with pytest.raises(InputError, match=r"mnist: .*mnist_t10k\.npz has no training images.*only_test: true"):
        load_data("mnist", place)
    data = load_data("mnist", place, only_test=True)
    np.testing.assert_array_equal(data.test.inputs, DATA.test_images[:, None])
    np.testing.assert_array_equal(data.test.labels, DATA.test_labels)
    assert data.train is data.val is data.test
    assert "mnist_t10k.npz" in data.about
    assert "only the test images" in data.about
    assert len(load_data("mnist", place, only_test=True, num_test=7, **CIFAR).test) == 7


def test_idx_files_of_one_split_are_told_from_the_whole(tmp_path: Path) -> None:
    files = mnist_files(DATA)
    test = write_files(tmp_path / "test", {name: each for name, each in files.items() if name.startswith("t10k")})
    assert len(load_data("mnist", test, only_test=True).test) == 20
    with pytest.raises(InputError, match=r"t10k-images-idx3-ubyte\.gz has no training images"):
        load_data("mnist", test)
    train = write_files(tmp_path / "train", {name: each for name, each in files.items() if name.startswith("train")})
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz has no test images"):
        load_data("mnist", train)
    with pytest.raises(InputError, match=r"mnist: needs test images; train-images-idx3-ubyte\.gz has none"):
        load_data("mnist", train, only_test=True)


# What is wrong is said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"channels": 2}, "channels: must be 1 or 3; got 2"),
        ({"channels": 3.0}, "channels: must be 1 or 3; got 3.0"),
        ({"channels": "3"}, "channels: must be 1 or 3; got '3'"),
        ({"size": 27}, "size: must be a whole number from 28 to 256; got 27"),
        ({"size": 257}, "size: must be a whole number from 28 to 256; got 257"),
        ({"size": 32.0}, "size: must be a whole number from 28 to 256; got 32.0"),
        ({"num_vals": 5}, "num_vals: is not an option of this data set; those that split it are num_val, "),
        ({"num_test": 0}, "num_test: must be a whole number of at least 1; got 0"),
        ({"num_val": 50}, "num_val: must leave something to train on, of 50 rows; got 50"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        load_data("mnist", _idx(tmp_path), **options)
    assert str(refusal.value).startswith(said)


def test_a_folder_without_the_set_is_told_what_it_should_have(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must have MNIST; found none in .*t10k-images-idx3-ubyte\.gz.*mnist\.npz"):
        load_data("mnist", tmp_path)
    for nowhere in ("nowhere", "mnist_t10k.npz"):
        with pytest.raises(InputError, match=f"folder: must exist; got .*{nowhere}"):
            load_data("mnist", tmp_path / nowhere)


IMAGES = idx(DATA.test_images)
DAMAGED = {
    "nothing in it": (b"", "must be an idx file of bytes in 3 dimensions; it begins otherwise"),
    "a head cut short": (IMAGES[:15], "must be an idx file of bytes in 3 dimensions"),
    "another kind of values": (idx(DATA.test_images, kind=9), "must be an idx file of bytes in 3 dimensions"),
    "another kind of file": (b"\x89PNG" + bytes(100), "must be an idx file of bytes in 3 dimensions"),
    "labels instead of images": (idx(np.zeros(20, np.uint8)), "must be an idx file of bytes in 3 dimensions"),
    "too few values": (IMAGES[:-1], "must hold 15680 values, as its head says; got 15679"),
    "too many values": (IMAGES + b"\0", "must hold 15680 values, as its head says; got 15681"),
    "2**32 values promised": (idx(DATA.test_images, (2**16, 2**16, 1)), "must hold 4294967296 values"),
    "2**96 values promised": (
        idx(DATA.test_images, (2**32 - 1,) * 3),
        "must hold 79228162458924105385300197375 values",
    ),
    "no images": (idx(np.zeros(0, np.uint8), (0, 28, 28)), "must hold values; its head says that there are none"),
    "no images of any size": (idx(np.zeros(0, np.uint8), (0, 2**32 - 1, 2**32 - 1)), "there are none"),
    "images of another size": (idx(DATA.test_images, (20, 14, 56)), "images must be 1x28x28; got 1x14x56"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_idx_file_is_named_with_what_is_wrong(damage: str, packed: bool, tmp_path: Path) -> None:
    content, said = DAMAGED[damage]
    name = "t10k-images-idx3-ubyte" + (".gz" if packed else "")
    files = {**mnist_files(DATA, packed=packed), name: gzip.compress(content) if packed else content}
    with pytest.raises(FileFormatError) as refusal:
        load_data("mnist", write_files(tmp_path, files), only_test=True)
    assert str(refusal.value).startswith(f"{tmp_path / name}: ")
    assert said in str(refusal.value)


PACKED = gzip.compress(IMAGES, mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        *(PACKED[:cut] for cut in (1, 9, 12, len(PACKED) // 2, len(PACKED) - 8, len(PACKED) - 1)),
        PACKED[:-6] + bytes([PACKED[-6] ^ 1]) + PACKED[-5:],  # the sum over the content
        PACKED[:500] + bytes(100) + PACKED[600:],
        PACKED[:10] + b"\xff" * 100,  # a block of no known kind
        PACKED + b"more",
        IMAGES,  # not packed, though its name says so
    ],
    ids=lambda content: f"{len(content)} bytes",
)
def test_a_damaged_gz_file_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"t10k-images-idx3-ubyte\.gz: cannot be read .* Copy or download it"):
        read_idx(path, 3)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (DATA.test_labels + 1, "must lie in 0..9; got 10 at row"),
        (DATA.test_labels[1:], "must be one for each of the 20 images; got shape (19,)"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: np.ndarray, said: str, tmp_path: Path) -> None:
    numbers = labels.astype(np.uint8)
    files = write_files(tmp_path / "idx", {**mnist_files(DATA, packed=False), "t10k-labels-idx1-ubyte": idx(numbers)})
    (tmp_path / "npz").mkdir()
    np.savez(tmp_path / "npz" / "mnist_t10k.npz", images=DATA.test_images, labels=numbers)
    for folder, name in ((files, "t10k-labels-idx1-ubyte"), (tmp_path / "npz", "mnist_t10k.npz: labels")):
        with pytest.raises(FileFormatError) as refusal:
            load_data("mnist", folder, only_test=True)
        assert f"{name}: {said}" in str(refusal.value)


def test_an_npz_that_is_not_mnist_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mnist_t10k.npz"
    for arrays, said in (
        ({"images": DATA.test_images}, "must have the arrays images and labels"),
        ({"images": DATA.test_images[:, :14], "labels": DATA.test_labels}, "images must be 1x28x28; got 1x14x28"),
        ({"images": DATA.test_images / 255, "labels": DATA.test_labels}, "must be bytes, uint8; got float64"),
        ({"images": DATA.test_images, "labels": np.array([{}] * 20)}, "cannot be read"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(FileFormatError) as refusal:
            load_data("mnist", tmp_path, only_test=True)
        assert str(path) in str(refusal.value)
        assert said in str(refusal.value)


# Out of distribution -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cifar_network_is_asked_about_digits(tmp_path: Path) -> None:
    """A run of a small network on CIFAR-10 with the foreign sets of the recipe, from files to the numbers."""
    for name in ("cifar10", "cifar100", "mnist"):
        write_data(name, tmp_path / "data" / name)
    recipe = shortened(find_recipe("cpu/cifar10-resnet8"), 1)
    one = recipe.measurement.model_copy(update={"calibrators": recipe.measurement.calibrators[:1]})
    recipe = recipe.model_copy(update={"measurement": one})
    foreign = load_foreign(recipe, str(tmp_path / "data"), 0)
    assert dict(foreign["mnist"].facts) == CIFAR
    assert "made with seed 0" in foreign["cifar10-noise"].about
    settings = RunSettings("ce", 0, recipe.digest("ce"), str(tmp_path / "data"), 1, None, {"accelerator": "cpu"})
    place = begin(recipe, tmp_path / "run", settings)
    result = resume(place.path)
    known = np.load(place.file("predictions.npz"))
    test = known["logits"][known["split"] == "test"].astype(float)
    measured = {row.against: row.value for row in result.rows if (row.phase, row.metric) == ("pre", "auroc")}
    assert set(measured) == {"cifar100", "mnist", "cifar10-noise"}
    for name, value in measured.items():
        logits = np.load(place.file("out_of_distribution", f"{name}.npz"))["logits"]
        assert len(logits) == len(foreign[name].test)
        assert value == pytest.approx(float(ood_auroc(test, logits.astype(float))), abs=1e-9)


@pytest.mark.slow
def test_real_digits_are_read_and_framed() -> None:
    path = SHARED / "data" / "mnist_t10k.npz"
    if not path.exists():
        pytest.skip("reference material data/mnist_t10k.npz is not beside the project; this test reads it")
    data = load_data("mnist", path.parent, only_test=True, **CIFAR)
    images, labels = data.test.inputs, data.test.labels
    assert images.shape == (10_000, 3, 32, 32)
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    inner = images[:, 0, 2:-2, 2:-2].float() / 255
    assert float(inner.mean()) == pytest.approx(0.1325, abs=5e-4)  # the training images' is 0.1307
    assert int(images.long().sum()) == 3 * int(images[:, 0, 2:-2, 2:-2].long().sum())  # the frame is black
    # A digit is drawn in the middle: its centre of mass was put there.
    centre = (inner.sum((0, 1)) * torch.arange(28)).sum() / inner.sum()
    assert float(centre) == pytest.approx(14, abs=0.5)
