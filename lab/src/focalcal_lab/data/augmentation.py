"""Batches of images as tensors: random crops and flips, and bytes to normalised pixels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def crop_and_flip(images: Tensor, tops: Tensor, lefts: Tensor, flipped: Tensor, padding: int) -> Tensor:
    """Each image, padded with zeros, cropped to its old size at its own place, and mirrored where `flipped`.

    `images` is (N, C, H, W) of any dtype; `tops` and `lefts` (N,) count from the padded image's corner, so both equal
    to `padding` leave an image as it is. One gather does the whole batch.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> one, two = torch.tensor([1]), torch.tensor([2])
    >>> crop_and_flip(image, one, two, torch.tensor([False]), padding=1)
    tensor([[[[2, 0],
              [4, 0]]]])
    >>> crop_and_flip(image, one, one, torch.tensor([True]), padding=1)
    tensor([[[[2, 1],
              [4, 3]]]])
    """
    num, channels, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    columns = torch.arange(width, device=images.device)
    columns = torch.where(flipped[:, None], columns.flip(0), columns) + lefts[:, None]
    rows = torch.arange(height, device=images.device) + tops[:, None]
    places = rows[:, :, None] * padded.shape[3] + columns[:, None, :]  # (N, H, W), the same for every channel
    places = places.view(num, 1, -1).expand(num, channels, -1)
    return padded.flatten(2).gather(2, places).view_as(images)


@dataclass(frozen=True)
class CropAndFlip:
    """Random crops after padding with zeros and, if `flip`, mirror images half of the time.

    As the papers augment CIFAR [mukhoti2020, App. D; ghosh2022, App. D.2]; that the padding is 4 is in the released
    code. It pads bytes, before they are normalised, so that the border is black. Chance is torch's global generator.

    >>> _ = torch.manual_seed(0)
    >>> CropAndFlip(padding=1)(torch.ones(2, 3, 8, 8, dtype=torch.uint8)).shape
    torch.Size([2, 3, 8, 8])
    """

    padding: int = 4
    flip: bool = True

    def __call__(self, images: Tensor) -> Tensor:
        """A changed copy of the batch."""
        num, device = len(images), images.device
        tops, lefts = torch.randint(2 * self.padding + 1, (2, num), device=device)
        flipped = torch.rand(num, device=device) < (0.5 if self.flip else 0.0)
        return crop_and_flip(images, tops, lefts, flipped, self.padding)


@dataclass(frozen=True)
class Standardize:
    """Floats with mean 0 and standard deviation 1 for each channel (N, C, ...); bytes count as 0 to 1.

    >>> Standardize(mean=(0.5,), std=(0.25,))(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[-2.,  2.]]]])
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, inputs: Tensor) -> Tensor:
        """The batch as float32."""
        shape = (-1,) + (1,) * (inputs.dim() - 2)
        mean, std = (torch.tensor(each, device=inputs.device).view(shape) for each in (self.mean, self.std))
        values = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()
        return (values - mean) / std


def standardize_like(inputs: Tensor) -> Standardize:
    """The standardisation that gives these inputs mean 0 and standard deviation 1; constant channels are only centred.

    >>> standardize_like(torch.tensor([[0.0, 7.0], [2.0, 7.0]]))
    Standardize(mean=(1.0, 7.0), std=(1.0, 1.0))
    """
    channels = inputs.shape[1]
    total, squares = torch.zeros(2, channels, dtype=torch.float64)
    count = 0
    for chunk in inputs.split(4096):  # float64 of all images at once would be eight times their size
        values = chunk.transpose(0, 1).reshape(channels, -1).double()
        total += values.sum(1)
        squares += values.square().sum(1)
        count += values.shape[1]
    scale = 255 if inputs.dtype == torch.uint8 else 1
    mean = total / count
    std = (squares / count - mean.square()).clamp(min=0).sqrt()
    # The difference of squares keeps half of float64's digits; what is below that is no spread at all.
    std = torch.where(std > 1e-7 * mean.abs().clamp(min=1e-7), std / scale, torch.ones_like(std))
    return Standardize(tuple((mean / scale).tolist()), tuple(std.tolist()))
