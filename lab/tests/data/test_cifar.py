from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data import DataSplits, cifar as cifar_module, load_data
from focalcal_lab.data.array_files import decode_deltas, to_pixels
from focalcal_lab.data.augmentation import CropAndFlip
from focalcal_lab.data.cifar import CIFAR10, NOISE_LEVELS
from focalcal_lab.data.huggingface import encoded_split
from focalcal_lab.data.splits import SplitSizes, divide
from lab.tests.data.formats import (
    NAMES,
    Sample,
    cifar10_batches,
    cifar100_batches,
    deltas,
    hub_splits,
    planes,
    png,
    sample,
    write_class_folders,
    write_files,
    write_tar,
)
from tests.conftest import SHARED

DATA = sample()


def _npz(path: Path, **arrays: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


def _plain(data: Sample, change: Callable[[np.ndarray], np.ndarray] = lambda images: images) -> dict[str, np.ndarray]:
    return {
        "train_images": change(data.train_images),
        "train_labels": data.train_labels,
        "test_images": change(data.test_images),
        "test_labels": data.test_labels,
    }


def _batches(folder: Path) -> Path:
    return write_files(folder, cifar10_batches(DATA))


def _batches_inside(folder: Path) -> Path:
    write_files(folder / "cifar-10-batches-py", cifar10_batches(DATA))
    return folder


def _tar(folder: Path) -> Path:
    write_tar(folder / "cifar-10-python.tar.gz", "cifar-10-batches-py", cifar10_batches(DATA))
    return folder


def _tar_alone(folder: Path) -> Path:
    return write_tar(folder / "anything.tar.gz", "cifar-10-batches-py", cifar10_batches(DATA))


def _npz_pixels_last(folder: Path) -> Path:
    _npz(folder / "cifar10.npz", **_plain(DATA))
    return folder


def _npz_planes(folder: Path) -> Path:
    return _npz(folder / "mine.npz", **_plain(DATA, planes))


def _npz_flat(folder: Path) -> Path:
    return _npz(folder / "mine.npz", **_plain(DATA, lambda images: planes(images).reshape(len(images), -1)))


def _npz_keras(folder: Path) -> Path:
    return _npz(
        folder / "cifar-10.npz",
        x_train=DATA.train_images,
        y_train=DATA.train_labels[:, None].astype(np.uint8),
        x_test=DATA.test_images,
        y_test=DATA.test_labels[:, None].astype(np.uint8),
    ).parent


def _npz_deltas(folder: Path) -> Path:
    plain = _plain(DATA, deltas)
    plain = {key.replace("_images", "_enc"): value for key, value in plain.items()}
    return _npz(folder / "cifar10.npz", **plain).parent


def _parquet(folder: Path) -> Path:
    (folder / "plain_text").mkdir(parents=True)
    for name, split in hub_splits(DATA).items():
        half = len(split) // 2
        for number, rows in enumerate((range(half), range(half, len(split)))):
            split.select(rows).to_parquet(folder / "plain_text" / f"{name}-0000{number}-of-00002.parquet")
    return folder


def _saved(folder: Path) -> Path:
    hub_splits(DATA).save_to_disk(str(folder))
    return folder


def _saved_and_shuffled(folder: Path) -> Path:
    # Rows in another order on disk than in the set: an index lies between them.
    back = {
        name: np.argsort(np.random.default_rng(0).permutation(len(split))) for name, split in hub_splits(DATA).items()
    }
    mixed = {name: split.select(np.argsort(back[name])) for name, split in hub_splits(DATA).items()}
    import datasets

    datasets.DatasetDict({name: split.select(back[name]) for name, split in mixed.items()}).save_to_disk(str(folder))
    return folder


def _set_of_several(folder: Path) -> Path:
    write_files(folder / "cifar10", cifar10_batches(DATA))
    return folder


EXACT = [
    _batches,
    _batches_inside,
    _tar,
    _tar_alone,
    _npz_pixels_last,
    _npz_planes,
    _npz_flat,
    _npz_keras,
    _npz_deltas,
    _parquet,
    _saved,
    _saved_and_shuffled,
    _set_of_several,
]


def _check_equal(data: DataSplits, expected: Sample = DATA, seed: int = 5) -> None:
    """The splits hold the sample's images, split as the seed says."""
    labels = torch.from_numpy(expected.train_labels)
    rows = (*divide(labels, SplitSizes(), seed=seed), torch.arange(len(expected.test_labels)))
    images = torch.from_numpy(planes(expected.train_images))
    wholes = (
        (images, labels),
        (images, labels),
        (torch.from_numpy(planes(expected.test_images)), torch.from_numpy(expected.test_labels)),
    )
    for part, index, (pixels, numbers) in zip((data.train, data.val, data.test), rows, wholes, strict=True):
        inputs, classes = part.__getitems__(range(len(index)))
        assert torch.equal(inputs, pixels[index])
        assert inputs.dtype == torch.uint8
        assert torch.equal(classes, numbers[index])
        assert classes.dtype == torch.int64


@pytest.mark.parametrize("write", EXACT)
def test_every_format_gives_the_same_images_in_the_same_splits(write: Callable[[Path], Path], tmp_path: Path) -> None:
    data = load_data("cifar10", write(tmp_path / "data"), seed=5)
    _check_equal(data)
    assert data.class_names == NAMES
    assert (data.num_classes, dict(data.facts)) == (10, {"channels": 3, "size": 32})
    assert "45/5/20 for training/validation/test, split with seed 5" in data.about
    assert data.augment == CropAndFlip(4)


def test_folders_of_images_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for names in (NAMES, tuple("0123456789")):
        folder = tmp_path / names[0]
        write_class_folders(folder / "train", DATA.train_images, DATA.train_labels, names)
        write_class_folders(folder / "test", DATA.test_images, DATA.test_labels, names)
        order, test_order = (np.argsort(each, kind="stable") for each in (DATA.train_labels, DATA.test_labels))
        expected = Sample(
            DATA.train_images[order],
            DATA.train_labels[order],
            DATA.test_images[test_order],
            DATA.test_labels[test_order],
        )
        _check_equal(load_data("cifar10", folder, seed=5), expected)
        _check_equal(load_data("cifar10", folder, seed=5, in_memory=False), expected)
        assert load_data("cifar10", folder).class_names == NAMES


def test_the_hub_is_read_as_a_local_copy_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(cifar_module, "CIFAR10", dataclasses.replace(CIFAR10, hub=str(_parquet(tmp_path / "hub"))))
    datasets.disable_progress_bars()
    try:
        _check_equal(load_data("cifar10", seed=5))
    finally:
        datasets.enable_progress_bars()


def test_without_internet_the_error_says_at_once_which_files_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    def nobody(*_: Any, **__: Any) -> None:
        raise socket.gaierror("Name or service not known")

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)  # between attempts that cannot succeed
    for name, said in [("cifar10", "cifar-10-batches-py"), ("svhn", "train_32x32.mat"), ("imagenet", "train/<class>")]:
        with pytest.raises(InputError, match=f"could not be loaded from Hugging Face .* give a folder: .*{said}"):
            load_data(name)
    assert sum(waits) == 0


def test_an_error_of_the_hub_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def gated(*_: Any) -> None:
        raise datasets.exceptions.DatasetNotFoundError("is a gated dataset\nand more")

    monkeypatch.setattr("focalcal_lab.data.huggingface._is_in_vain", lambda *_: False)
    monkeypatch.setattr(datasets, "load_dataset", gated)
    with pytest.raises(InputError, match=r"\(DatasetNotFoundError: is a gated dataset\)\. Without internet, give"):
        load_data("cifar10")


def test_cifar100_uses_the_fine_labels(tmp_path: Path) -> None:
    data = sample(num_classes=100, per_class=2, test_per_class=1)
    _check_equal(load_data("cifar100", write_files(tmp_path, cifar100_batches(data)), seed=5), data)
    write_tar(tmp_path / "tar" / "cifar-100-python.tar.gz", "cifar-100-python", cifar100_batches(data))
    _check_equal(load_data("cifar100", tmp_path / "tar", seed=5), data)
    names = tuple(f"class {number:02d}" for number in range(100))
    folder = tmp_path / "parquet"
    folder.mkdir()
    for name, split in hub_splits(data, label="fine_label", names=names).items():
        coarse = split.add_column("coarse_label", [0] * len(split))
        coarse.to_parquet(folder / f"{name}-00000-of-00001.parquet")
    loaded = load_data("cifar100", folder, seed=5)
    _check_equal(loaded, data)
    assert loaded.class_names == names


def test_cifar10_s_has_a_tenth_of_each_class(tmp_path: Path) -> None:
    data = sample(per_class=40)
    folder = _npz(tmp_path / "cifar10.npz", **_plain(data)).parent
    small = load_data("cifar10-s", folder, seed=1)
    both = torch.cat([small.train.labels, small.val.labels])
    assert both.bincount().tolist() == [4] * 10
    assert (len(small.train), len(small.val), len(small.test)) == (36, 4, 20)
    assert len(load_data("cifar10-s", folder, seed=1, num_val=10).val) == 10


def test_options_choose_sizes_and_augmentation(tmp_path: Path) -> None:
    folder = _npz_pixels_last(tmp_path)
    data = load_data("cifar10", folder, num_val=10, num_train=20, num_test=7, stratified=True, augment=False)
    assert (len(data.train), len(data.val), len(data.test)) == (20, 10, 7)
    assert data.augment is None
    assert set(data.train.labels.bincount().tolist()) == {2}
    with pytest.raises(InputError, match="num_validation: is not an option"):
        load_data("cifar10", folder, num_validation=15)


def test_a_set_without_training_images_needs_to_be_told_so(tmp_path: Path) -> None:
    folder = _npz(tmp_path / "cifar10.npz", test_images=DATA.test_images, test_labels=DATA.test_labels).parent
    with pytest.raises(InputError, match=r"cifar10\.npz has no training images.*only_test: true"):
        load_data("cifar10", folder)
    data = load_data("cifar10", folder, only_test=True, num_test=5)
    assert len(data.test) == 5
    assert data.train is data.test
    assert "only the test images" in data.about


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, r"folder: must have CIFAR-10; found none in .*cifar-10-batches-py"),
        ({"cifar10.npz": b"no zip"}, "cifar10.npz: cannot be read"),
        ({"data_batch_1": b"no pickle"}, "data_batch_1: is not a whole pickle"),
        ({"cifar-10-python.tar.gz": b"no archive"}, "cifar-10-python.tar.gz: is damaged or cut"),
        ({"train-0.parquet": b"no table"}, "train-0.parquet: cannot be read as Parquet"),
        ({"dataset_dict.json": b"{"}, "cannot be read as a saved data set"),
        ({"rows-0.parquet": b""}, "Parquet files must be called train-"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(files: dict[str, bytes], said: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, FileFormatError), match=said):
        load_data("cifar10", write_files(tmp_path / "data", files))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"folder: must exist; got .*nowhere"):
        load_data("cifar10", tmp_path / "nowhere")


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    files = cifar10_batches(DATA)
    del files["data_batch_4"]
    with pytest.raises(InputError, match="it has no data_batch_4"):
        load_data("cifar10", write_files(tmp_path, files))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train_labels": DATA.train_labels + 1}, "labels of train: must lie in 0..9; got 10 at row"),
        ({"train_labels": DATA.train_labels[1:]}, "one for each of the 50 images"),
        ({"train_labels": DATA.train_labels * 1.0}, "must be class numbers; got float64"),
        ({"train_images": DATA.train_images.astype(np.float32)}, "must be bytes, uint8; got float32"),
        ({"train_images": DATA.train_images[:, :28, :28]}, "must be 3x32x32; got 3x28x28"),
        ({"train_images": DATA.train_images[..., :2]}, "is none of them"),
        ({"train_labels": np.array([{}] * 50)}, "cannot be read"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, np.ndarray], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "cifar10.npz", **{**_plain(DATA), **change})
    with pytest.raises(FileFormatError, match=f"cifar10.npz: .*{said}"):
        load_data("cifar10", tmp_path)


def test_another_set_s_table_is_not_taken_for_cifar(tmp_path: Path) -> None:
    hub_splits(DATA, names=tuple("0123456789")).save_to_disk(str(tmp_path / "digits"))
    with pytest.raises(InputError, match="is not CIFAR-10; its classes are 0, 1, 2"):
        load_data("cifar10", tmp_path / "digits")


def test_rows_taken_twice_from_a_table_are_the_right_ones() -> None:
    encoded, numbers, _ = encoded_split(hub_splits(DATA)["train"], ["label"], "table")
    once = encoded.take(torch.tensor([9, 4, 7]))
    twice = once.take(torch.tensor([2, 0]))
    assert [twice[0], twice[1]] == [png(DATA.train_images[7]), png(DATA.train_images[9])]
    assert twice.name(1) == "table: row 9"
    assert numbers.tolist() == DATA.train_labels.tolist()


def test_a_damaged_image_in_a_table_is_named(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    images = [{"bytes": png(image), "path": None} for image in DATA.train_images]
    images[17]["bytes"] = images[17]["bytes"][:60]
    for name in ("train", "test"):
        parquet.write_table(pyarrow.table({"img": images, "label": DATA.train_labels}), tmp_path / f"{name}.parquet")
    with pytest.raises(FileFormatError, match=r"\.parquet: row 17: is not a readable image"):
        load_data("cifar10", tmp_path)


def test_ambiguous_layouts_are_not_guessed() -> None:
    with pytest.raises(FileFormatError, match="could be two of them"):
        to_pixels(np.zeros((5, 3, 32, 3), np.uint8), "images")


def test_deltas_decode_to_what_was_encoded() -> None:
    images = np.random.default_rng(4).integers(0, 256, (3, 6, 5, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decode_deltas(deltas(images)), planes(images))


# CIFAR-10-C ----------------------------------------------------------------------------------------------------------


def test_cifar10_c_takes_the_rows_of_the_level(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    noisy = generator.integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
    labels = np.tile(np.arange(10, dtype=np.uint8), 5)
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "gaussian_noise.npy", noisy)
    np.save(folder / "fog.npy", noisy[::-1])
    np.save(folder / "labels.npy", labels)
    for level in range(1, 6):
        data = load_data("cifar10-c", tmp_path, level=level)
        inputs, classes = data.test.__getitems__(range(10))
        assert len(data.test) == 10
        np.testing.assert_array_equal(inputs.numpy(), planes(noisy[(level - 1) * 10 : level * 10]))
        assert classes.tolist() == list(range(10))
    assert data.train is data.test is data.val
    assert "gaussian_noise at level 5" in data.about
    fog = load_data("cifar10-c", folder, corruption="fog", num_test=3)
    assert len(fog.test) == 3
    with pytest.raises(InputError, match="corruption: must be one of fog, gaussian_noise; got 'snow'"):
        load_data("cifar10-c", tmp_path, corruption="snow")
    for level in (0, 6, 2.5):
        with pytest.raises(InputError, match="level: must be a whole number from 1 to 5"):
            load_data("cifar10-c", tmp_path, level=level)


def test_generated_noise_has_the_published_deviation(tmp_path: Path) -> None:
    grey = np.full((40, 32, 32, 3), 128, np.uint8)
    np.savez(tmp_path / "cifar10.npz", test_images=grey, test_labels=np.arange(40) % 10)
    for level, std in enumerate(NOISE_LEVELS, start=1):
        data = load_data("cifar10-c", tmp_path, generate=True, level=level, seed=2)
        inputs, labels = data.test.__getitems__(range(40))
        assert inputs.float().std() / 255 == pytest.approx(std, rel=0.01)
        # Whole numbers by cutting, as the published files: half a step below.
        assert inputs.float().mean() == pytest.approx(127.5, abs=0.3)
        assert labels.tolist() == (np.arange(40) % 10).tolist()
        again = load_data("cifar10-c", tmp_path, generate=True, level=level, seed=2)
        other = load_data("cifar10-c", tmp_path, generate=True, level=level, seed=3)
        assert torch.equal(again.test.inputs, inputs)
        assert not torch.equal(other.test.inputs, inputs)
    assert "made with seed 3" in other.about
    with pytest.raises(InputError, match="must be gaussian_noise to generate it"):
        load_data("cifar10-c", tmp_path, generate=True, corruption="fog")
    with pytest.raises(InputError, match=r"needs the \.npy files.*generate: true"):
        load_data("cifar10-c", tmp_path)


# The real images -----------------------------------------------------------------------------------------------------


def _real(name: str) -> Path:
    path = SHARED / "data" / name
    if not path.exists():
        pytest.skip(f"reference material data/{name} is not beside the project; this test reads it")
    return path.parent


@pytest.mark.slow
def test_real_cifar10_is_read_and_its_statistics_are_the_published_ones() -> None:
    folder = _real("cifar10.npz")
    data = load_data("cifar10", folder, seed=0)
    assert (len(data.train), len(data.val), len(data.test)) == (22_500, 2_500, 10_000)
    images = data.train.inputs[:5000].float() / 255
    np.testing.assert_allclose(images.mean((0, 2, 3)), CIFAR10.mean, atol=0.005)
    # The code that was released takes the mean of the images' own deviations, not the deviation of all pixels.
    np.testing.assert_allclose(images.std((2, 3)).mean(0), CIFAR10.std, atol=0.005)
    # Neighbouring pixels of photographs are alike; those of wrongly decoded bytes are not.
    assert (images[..., 1:] - images[..., :-1]).abs().mean() < 0.06
    assert data.test.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    prepared = data.prepare(data.train.inputs[:2000])
    assert prepared.mean().abs() < 0.05


@pytest.mark.slow
def test_real_cifar100_can_be_an_out_of_distribution_set() -> None:
    data = load_data("cifar100", _real("cifar100_test.npz"), only_test=True)
    assert len(data.test) == 10_000
    assert data.test.labels.bincount().tolist() == [100] * 100
