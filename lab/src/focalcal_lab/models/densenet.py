"""Densely connected networks.

[huang2017] G. Huang, Z. Liu, L. van der Maaten, K. Weinberger: Densely connected convolutional networks. CVPR 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from focalcal.core.checks import require
from focalcal_lab.models.resnet import (
    LARGE,
    Initialisation,
    Stem,
    average_pool,
    convolution,
    image_shape,
    initialise,
    make_stem,
)


class DenseLayer(nn.Module):
    """Adds `growth` maps to those that came in: a 1x1 convolution to 4 `growth` maps, then a 3x3 one.

    Source: [huang2017, Sec. 3, bottleneck layers].
    """

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, 4 * growth, 1)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), convolution(4 * growth, growth, 3)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (N, inputs, H, W) to (N, inputs + growth, H, W)."""
        new = self.conv1(F.relu(self.norm1(maps), inplace=True))
        new = self.conv2(F.relu(self.norm2(new), inplace=True))
        return torch.cat([maps, new], dim=1)


class Transition(nn.Module):
    """Between two dense blocks: fewer maps by a 1x1 convolution, then half the size by averages of 2 x 2 pixels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), convolution(inputs, outputs, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (N, inputs, H, W) to (N, outputs, H // 2, W // 2)."""
        return F.avg_pool2d(self.conv(F.relu(self.norm(maps), inplace=True)), 2)


class DenseNet(nn.Module):
    """A stem of 2 `growth` maps, dense blocks with transitions between, a last normalisation, and the head."""

    def __init__(
        self, num_classes: int, channels: int, blocks: Sequence[int], growth: int, compression: float, stem: Stem
    ) -> None:
        super().__init__()
        maps = 2 * growth
        # For small images the first convolution stands alone: the first dense layer begins with a normalisation.
        small = stem == "3x3"
        self.stem: nn.Module = convolution(channels, maps, 3) if small else make_stem(channels, maps, stem)
        layers: list[nn.Module] = []
        for number, count in enumerate(blocks):
            if number > 0:
                kept = int(maps * compression)
                layers.append(Transition(maps, kept))
                maps = kept
            layers.extend(DenseLayer(maps + growth * layer, growth) for layer in range(count))
            maps += growth * count
        self.blocks = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(maps)
        self.head = nn.Linear(maps, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, channels, H, W) to logits (N, K)."""
        maps = F.relu(self.norm(self.blocks(self.stem(images))), inplace=True)
        logits: Tensor = self.head(average_pool(maps))
        return logits


def densenet121(
    num_classes: int,
    facts: Mapping[str, Any],
    *,
    blocks: Sequence[int] = (6, 12, 24, 16),
    growth: int = 32,
    compression: float = 0.5,
    stem: Stem | None = None,
    initialisation: Initialisation | None = None,
) -> DenseNet:
    """DenseNet-121: 121 = 2 * (6 + 12 + 24 + 16) + 5 layers that each see the maps of all before them.

    What is None is taken from the images' size: below 128 the 3x3 stem and torch's initialisation of the released code
    of [mukhoti2020]; from there on the 7x7 stem and He's initialisation of [huang2017, Table 1].

    >>> network = densenet121(10, {"channels": 3, "size": 32}, blocks=[2, 2], growth=4)
    >>> network.head
    Linear(in_features=16, out_features=10, bias=True)
    """
    require(min(blocks, default=0) >= 1, "blocks", "needs a number above 0 for each block", list(blocks))
    require(growth >= 1, "growth", "must be at least 1", growth)
    require(0 < compression <= 1, "compression", "must lie in (0, 1]", compression)
    _, size = image_shape(facts, num_classes)
    stem = stem or ("7x7" if size >= LARGE else "3x3")
    halvings = len(blocks) - 1 + (2 if stem == "7x7" else 0)
    channels, size = image_shape(facts, num_classes, smallest=2**halvings)
    network = DenseNet(num_classes, channels, blocks, growth, compression, stem)
    initialise(network, initialisation or ("he" if size >= LARGE else "torch"))
    return network
