"""Image files: find them in folders and decode them with Pillow, all at once or on demand."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image as images, ImageOps, UnidentifiedImageError
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import Dataset

from focalcal.errors import FileFormatError, InputError
from focalcal_lab.data.dataset import Batch, TensorRows

ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


class EncodedImages(Protocol):
    """Image files by number: a path or the bytes of a file, and what to call it in an error."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Path | bytes: ...

    def name(self, index: int) -> str:
        """What to call an image in an error."""
        ...

    def take(self, rows: Tensor) -> EncodedImages:
        """Only some of the images."""
        ...


class ImagePaths:
    """Image files on disk.

    Their names are one array of bytes: workers that are forked would copy a list of strings bit by bit, just by
    counting references, and ImageNet has 1.3 million.
    """

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self._paths = np.array([os.fsencode(path) for path in paths], dtype=np.bytes_)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Path:
        return Path(os.fsdecode(self._paths[index]))

    def name(self, index: int) -> str:
        """The path."""
        return str(self[index])

    def take(self, rows: Tensor) -> ImagePaths:
        """Only some of the files."""
        taken = ImagePaths([])
        taken._paths = self._paths[rows.numpy()]
        return taken


def open_image(source: Path | bytes, name: str) -> Image:
    """A decoded image; what cannot be decoded is named."""
    try:
        # From memory, since an image of several frames would keep its file open.
        image = images.open(io.BytesIO(source if isinstance(source, bytes) else source.read_bytes()))
        image.load()
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ValueError, and their own
        raise _unreadable(name, error) from error
    return image


def is_grey(source: Path | bytes, name: str) -> bool:
    """Whether an image has no colours, by its header."""
    try:
        with images.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16")
    except Exception as error:  # as above
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> FileFormatError:
    said = "no format that Pillow knows" if isinstance(error, UnidentifiedImageError) else error
    return FileFormatError(f"{name}: is not a readable image ({said}). Remove it, or copy or download it again.")


def to_mode(image: Image, channels: int) -> Image:
    """An image in grey (1 channel) or colours (3)."""
    if image.mode.startswith("I"):  # 16 bits: Pillow would cut them at 255 instead of scaling them
        image = images.fromarray((np.clip(np.asarray(image, dtype=np.int64), 0, 65535) >> 8).astype(np.uint8))
    wanted = "L" if channels == 1 else "RGB"
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == wanted else image.convert(wanted)


class ImageView(Protocol):
    """How a decoded image becomes pixels (C, H, W); `epoch` and `index` decide on what is random."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        ...

    def __call__(self, image: Image, epoch: int, index: int) -> np.ndarray[Any, Any]:
        """The pixels."""
        ...


@dataclass(frozen=True)
class CenterView:
    """The middle square of `size`, after the shorter side was scaled to `resize`; `upright` heeds a camera's tag."""

    size: int
    resize: int
    channels: int = 3
    upright: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.channels, self.size, self.size

    def __call__(self, image: Image, epoch: int = 0, index: int = 0) -> np.ndarray[Any, Any]:
        """The pixels."""
        if self.upright:
            image = ImageOps.exif_transpose(image)
        image = to_mode(image, self.channels)
        scale = self.resize / min(image.size)
        width, height = (max(self.resize, round(side * scale)) for side in image.size)
        if image.size != (width, height):
            image = image.resize((width, height), images.Resampling.BILINEAR)
        left, top = (width - self.size) // 2, (height - self.size) // 2
        return _pixels(image.crop((left, top, left + self.size, top + self.size)))


@dataclass(frozen=True)
class RandomView:
    """A random part of the image, scaled to `size` and mirrored half of the time, as ImageNet's networks are trained.

    The part has 8 % to 100 % of the area and sides of 3:4 to 4:3 (Szegedy et al. 2015). What it is depends only on
    (seed, epoch, index), so any number of workers, and a run that was resumed, see the same pixels.
    """

    size: int
    seed: int
    channels: int = 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.channels, self.size, self.size

    def __call__(self, image: Image, epoch: int, index: int) -> np.ndarray[Any, Any]:
        """The pixels."""
        generator = np.random.default_rng([self.seed, epoch, index])
        image = to_mode(image, self.channels)
        box = random_box(image.width, image.height, generator)
        image = image.resize((self.size, self.size), images.Resampling.BILINEAR, box=box)
        if generator.random() < 0.5:
            image = image.transpose(images.Transpose.FLIP_LEFT_RIGHT)
        return _pixels(image)


def random_box(width: int, height: int, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """A part of an image: left, top, right, bottom.

    >>> random_box(400, 300, np.random.default_rng(0))
    (52, 133, 155, 270)
    """
    low, high = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        area = width * height * generator.uniform(0.08, 1.0)
        ratio = math.exp(generator.uniform(low, high))
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = int(generator.integers(width - wide + 1)), int(generator.integers(height - tall + 1))
            return left, top, left + wide, top + tall
    # Too long an image for ten tries: the middle, as near to its shape as 3:4 to 4:3 allows.
    wide, tall = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - wide) // 2, (height - tall) // 2
    return left, top, left + wide, top + tall


def _pixels(image: Image) -> np.ndarray[Any, Any]:
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


class ImageDataset(Dataset[Any]):
    """Encoded images with class numbers (N,), decoded when they are asked for.

    A runner that trains on them calls `set_epoch` before each epoch; the number lies in shared memory, so workers that
    live on see it too.
    """

    def __init__(self, encoded: EncodedImages, labels: Tensor, view: ImageView) -> None:
        self.encoded, self.labels, self.view = encoded, labels, view
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Which epoch is trained, counted from 0: it decides, with the seed, on every random crop."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.encoded)

    def pixels(self, index: int) -> np.ndarray[Any, Any]:
        """One decoded image."""
        image = open_image(self.encoded[index], self.encoded.name(index))
        return self.view(image, int(self._epoch), index)

    def __getitem__(self, index: int) -> Batch:
        return torch.from_numpy(np.ascontiguousarray(self.pixels(index))), self.labels[index]

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """The rows of `indices` as one batch."""
        batch = torch.empty((len(indices), *self.view.shape), dtype=torch.uint8)
        for place, index in zip(batch.numpy(), indices, strict=True):
            place[...] = self.pixels(int(index))
        return batch, self.labels[torch.as_tensor(indices)]

    def take(self, rows: Tensor, view: ImageView | None = None) -> ImageDataset:
        """Only some of the images, perhaps looked at in another way."""
        return ImageDataset(self.encoded.take(rows), self.labels[rows], view or self.view)

    def fits_in_memory(self) -> bool:
        """Whether all decoded images take less than half of the machine's memory."""
        try:
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):  # a system that does not say
            return True
        return len(self) * math.prod(self.view.shape) < memory / 2

    def rows(self) -> TensorRows:
        """All images, decoded once, by as many threads as there are cores: Pillow decodes side by side."""
        batch = torch.empty((len(self), *self.view.shape), dtype=torch.uint8)
        places = batch.numpy()

        def decode(index: int) -> None:
            places[index] = self.pixels(index)

        with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
            for _ in pool.map(decode, range(len(self))):
                pass
        return TensorRows(batch, self.labels)


def in_memory(pictures: ImageDataset, wanted: bool | None) -> TensorRows | ImageDataset:
    """The images decoded for good if that is wanted; if nothing is said, when they fit."""
    return pictures.rows() if (pictures.fits_in_memory() if wanted is None else wanted) else pictures


# ---------------------------------------------------------------------------------------------------------------------


def class_folders(folder: Path) -> list[str]:
    """The folders that stand for classes, in order: by number if all names are numbers, else by name."""
    names = [entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)


def images_in(folder: Path) -> list[str]:
    """The image files in a folder and in the folders within, in the order of their names."""
    found = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        names = (name for name in sorted(files) if os.path.splitext(name)[1].lower() in ENDINGS)
        found += [os.path.join(place, name) for name in names if not name.startswith(".")]
    return found


def pictures_in(folder: Path, classes: Sequence[str], view: ImageView) -> ImageDataset:
    """The images of a folder of class folders; every class must be one of `classes`, and each folder have an image."""
    paths: list[str] = []
    labels: list[int] = []
    numbers = {name: number for number, name in enumerate(classes)}
    for name in class_folders(folder):
        if name not in numbers:
            raise InputError(f"{folder / name}: is not a class of the training images. Classes: {shown(classes)}.")
        found = images_in(folder / name)
        if not found:
            raise InputError(f"{folder / name}: has no images; looked for {', '.join(sorted(ENDINGS))}.")
        paths += found
        labels += [numbers[name]] * len(found)
    if not paths:
        raise InputError(f"{folder}: has no class folders with images; expected {folder}/<class>/<image>.png.")
    return ImageDataset(ImagePaths(paths), torch.tensor(labels), view)


def shown(names: Sequence[str], most: int = 5) -> str:
    """Names for a message, but not a thousand.

    >>> shown(["cat", "dog", "eel"], most=2)
    'cat, dog and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
