"""Writers of the formats in which image sets are published, a few images each."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Sample:
    """Random images (N, 32, 32, 3), or of another shape, and labels, each class equally often and in mixed order."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def sample(
    num_classes: int = 10,
    per_class: int = 5,
    test_per_class: int = 2,
    seed: int = 0,
    shape: tuple[int, ...] = (32, 32, 3),
) -> Sample:
    generator = np.random.default_rng(seed)

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = generator.permutation(np.repeat(np.arange(num_classes), count))
        return generator.integers(0, 256, (len(labels), *shape), dtype=np.uint8), labels

    return Sample(*part(per_class), *part(test_per_class))


def planes(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def rows_of_bytes(images: np.ndarray) -> np.ndarray:
    return planes(images).reshape(len(images), -1)


def pickle_of_python_2(values: dict[str, Any]) -> bytes:
    """What Python 2 wrote with protocol 2 for a dict of arrays of bytes and of lists of small numbers and of text."""

    def text(value: bytes) -> bytes:
        short = len(value) < 256
        return (b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))) + value

    def whole(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def array(value: np.ndarray) -> bytes:
        kind = b"cnumpy\ndtype\n" + text(b"u1") + whole(0) + whole(1) + b"\x87R"
        kind += b"(" + whole(3) + text(b"|") + b"NNN" + whole(-1) + whole(-1) + whole(0) + b"tb"
        empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + whole(0) + b"\x85" + text(b"b") + b"\x87R"
        shape = b"(" + b"".join(map(whole, value.shape)) + b"t"
        return empty + b"(" + whole(1) + shape + kind + b"\x89" + text(value.tobytes()) + b"tb"

    def any_of(value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            return array(value)
        if isinstance(value, list):
            return b"](" + b"".join(map(any_of, value)) + b"e"
        return whole(value) if isinstance(value, int) else text(value.encode())

    return b"\x80\x02}(" + b"".join(text(key.encode()) + any_of(value) for key, value in values.items()) + b"u."


def cifar10_batches(data: Sample) -> dict[str, bytes]:
    """The six files of the python version: five of training images, written by Python 2 and by each protocol of 3."""
    images, labels = rows_of_bytes(data.train_images), data.train_labels.tolist()
    files = {}
    for number in range(5):
        rows = slice(number * len(labels) // 5, (number + 1) * len(labels) // 5)
        batch = {"data": images[rows], "labels": labels[rows], "batch_label": f"batch {number + 1} of 5"}
        files[f"data_batch_{number + 1}"] = (
            pickle.dumps(batch, protocol=number + 1) if number else pickle_of_python_2(batch)
        )
    files["test_batch"] = pickle.dumps({b"data": rows_of_bytes(data.test_images), b"labels": data.test_labels.tolist()})
    return files


def cifar100_batches(data: Sample) -> dict[str, bytes]:
    parts = {"train": (data.train_images, data.train_labels), "test": (data.test_images, data.test_labels)}
    return {
        name: pickle_of_python_2(
            {"data": rows_of_bytes(images), "fine_labels": labels.tolist(), "coarse_labels": (labels // 5).tolist()}
        )
        for name, (images, labels) in parts.items()
    }


def idx(values: np.ndarray, shape: tuple[int, ...] | None = None, kind: int = 8) -> bytes:
    """An idx file as MNIST's: zero, zero, the kind of the values (8: bytes), the dimensions and their sizes."""
    sizes = values.shape if shape is None else shape
    return bytes([0, 0, kind, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + values.tobytes()


def mnist_files(data: Sample, middle: str = "-", packed: bool = True) -> dict[str, bytes]:
    """The four files of MNIST, of which some copies have a dot in the name; packed files have the same bytes always."""
    parts = {"train": (data.train_images, data.train_labels), "t10k": (data.test_images, data.test_labels)}
    files = {}
    for name, (images, labels) in parts.items():
        files[f"{name}-images-idx3{middle}ubyte"] = idx(images)
        files[f"{name}-labels-idx1{middle}ubyte"] = idx(labels.astype(np.uint8))
    return {f"{name}.gz": gzip.compress(each, mtime=0) for name, each in files.items()} if packed else files


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_tar(path: Path, inside: str, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{inside}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def deltas(images: np.ndarray) -> np.ndarray:
    """The delta form of images, pixel by pixel."""
    out = np.zeros((len(images), 3, *images.shape[1:3]), dtype=np.uint8)
    for number, image in enumerate(images.astype(int)):
        colours = [image[:, :, 1], image[:, :, 0] - image[:, :, 1], image[:, :, 2] - image[:, :, 1]]
        for plane, values in enumerate(colours):
            padded = np.pad(values, ((1, 0), (1, 0)))
            for y in range(values.shape[0]):
                for x in range(values.shape[1]):
                    here = padded[y + 1, x + 1] - padded[y, x + 1] - padded[y + 1, x] + padded[y, x]
                    out[number, plane, y, x] = here % 256
    return out


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def write_class_folders(folder: Path, images: np.ndarray, labels: np.ndarray, names: tuple[str, ...]) -> Path:
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / names[label]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:05d}.png").write_bytes(png(image))
    return folder


def hub_splits(data: Sample, image: str = "img", label: str = "label", names: tuple[str, ...] = NAMES) -> Any:
    """The set as Hugging Face keeps it: encoded images and class labels with names."""
    import datasets

    features = datasets.Features({image: datasets.Image(), label: datasets.ClassLabel(names=list(names))})
    parts = {"train": (data.train_images, data.train_labels), "test": (data.test_images, data.test_labels)}
    return datasets.DatasetDict(
        {
            name: datasets.Dataset.from_dict(
                {image: [{"bytes": png(each), "path": None} for each in images], label: labels.tolist()}, features
            )
            for name, (images, labels) in parts.items()
        }
    )
