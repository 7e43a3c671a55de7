from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from focalcal_lab.data.augmentation import CropAndFlip, Standardize, crop_and_flip, standardize_like


def slow_crop_and_flip(images: Tensor, tops: Tensor, lefts: Tensor, flipped: Tensor, padding: int) -> Tensor:
    """One pixel at a time."""
    num, channels, height, width = images.shape
    out = torch.zeros_like(images)
    for n in range(num):
        for c in range(channels):
            for y in range(height):
                for x in range(width):
                    row = y + int(tops[n]) - padding
                    column = (width - 1 - x if flipped[n] else x) + int(lefts[n]) - padding
                    if 0 <= row < height and 0 <= column < width:
                        out[n, c, y, x] = images[n, c, row, column]
    return out


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize(("channels", "height", "width", "padding"), [(3, 8, 8, 4), (1, 5, 7, 2), (2, 3, 9, 1)])
def test_cropping_and_flipping_a_batch_is_doing_it_pixel_by_pixel(
    dtype: torch.dtype, channels: int, height: int, width: int, padding: int
) -> None:
    generator = torch.Generator().manual_seed(height)
    images = torch.randint(1, 256, (12, channels, height, width), generator=generator).to(dtype)
    tops, lefts = torch.randint(2 * padding + 1, (2, 12), generator=generator)
    flipped = torch.rand(12, generator=generator) < 0.5
    before = images.clone()
    result = crop_and_flip(images, tops, lefts, flipped, padding)
    assert torch.equal(result, slow_crop_and_flip(images, tops, lefts, flipped, padding))
    assert result.dtype == dtype
    assert torch.equal(images, before)


def test_all_crops_and_flips_come_up_equally_often_and_only_by_torch_s_generator() -> None:
    # Every pixel is its own place, so the pixel in the middle of a result tells where it was cut and whether mirrored.
    side, num = 16, 20_000
    place = torch.arange(side * side, dtype=torch.int32).view(1, 1, side, side).expand(num, 1, side, side)
    torch.manual_seed(3)
    result = CropAndFlip()(place)
    torch.manual_seed(3)
    assert torch.equal(result, CropAndFlip()(place))
    assert not torch.equal(result, CropAndFlip()(place))
    middle, right = result[:, 0, 8, 8], result[:, 0, 8, 9]
    flipped = right < middle
    tops = middle // side - 8 + 4
    lefts = torch.where(flipped, middle % side - 7, middle % side - 8) + 4
    counts = torch.zeros(9, 9, 2)
    counts.index_put_((tops.long(), lefts.long(), flipped.long()), torch.ones(num), accumulate=True)
    expected = num / counts.numel()
    # Chi-squared with 161 degrees of freedom has mean 161 and standard deviation 18.
    assert ((counts - expected).square() / expected).sum() < 161 + 5 * 18


def test_digits_are_never_mirrored_when_flip_is_off() -> None:
    place = torch.arange(16, dtype=torch.uint8).expand(500, 1, 16, 16)
    result = CropAndFlip(padding=2, flip=False)(place)
    assert (result[:, 0, 8, 8] < result[:, 0, 8, 9]).all()


def test_standardize_is_the_textbook_formula() -> None:
    images = torch.randint(0, 256, (4, 3, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    result = Standardize(mean, std)(images)
    exact = (images.numpy() / 255 - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    np.testing.assert_allclose(result.numpy(), exact, rtol=1e-6, atol=1e-6)
    assert result.dtype == torch.float32
    features = torch.tensor([[1.0, 10.0]])
    assert torch.equal(Standardize((1.0, 0.0), (1.0, 5.0))(features), torch.tensor([[0.0, 2.0]]))


@pytest.mark.parametrize("shape", [(5000, 3, 2, 2), (50, 1, 4, 4), (5000, 6)])
def test_what_is_standardised_has_mean_zero_and_deviation_one(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(shape, generator=generator) * 3 + 100
    if len(shape) == 4:
        inputs = inputs.clamp(0, 255).to(torch.uint8)
    result = standardize_like(inputs)(inputs).transpose(0, 1).flatten(1).double()
    torch.testing.assert_close(result.mean(1), torch.zeros(shape[1], dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(
        result.std(1, correction=0), torch.ones(shape[1], dtype=torch.float64), rtol=1e-4, atol=0
    )


def test_a_constant_channel_is_only_centred() -> None:
    inputs = torch.cat([torch.full((10, 1, 2, 2), 77), torch.arange(40).view(10, 1, 2, 2)], 1).to(torch.uint8)
    result = standardize_like(inputs)(inputs)
    assert result.isfinite().all()
    assert result[:, 0].abs().max() < 1e-6
