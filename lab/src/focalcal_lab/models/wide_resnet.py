"""Wide residual networks.

[zagoruyko2016] S. Zagoruyko, N. Komodakis: Wide residual networks. BMVC 2016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from focalcal.core.checks import require
from focalcal_lab.models.resnet import BasicBlock, ResNet, average_pool, convolution, image_shape, initialise


class PreactivationBlock(nn.Module):
    """Normalise, rectify, convolve, twice, with dropout between; the way around is plain where shapes agree.

    Where they do not, a 1x1 convolution takes the rectified maps. Source: [zagoruyko2016, Fig. 1d].
    """

    def __init__(self, inputs: int, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, width, 3, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(width), convolution(width, width, 3)
        self.dropout = nn.Dropout(dropout)
        same = stride == 1 and inputs == width
        self.shortcut = None if same else convolution(inputs, width, 1, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (N, inputs, H, W) to (N, width, ceil(H / stride), ceil(W / stride))."""
        active = F.relu(self.norm1(maps), inplace=True)
        out = F.relu(self.norm2(self.conv1(active)), inplace=True)
        out = self.conv2(self.dropout(out))
        total: Tensor = out + (maps if self.shortcut is None else self.shortcut(active))
        return total


class WideResNet(nn.Module):
    """Three stages of pre-activation blocks, a last normalisation, a global average, and the head."""

    def __init__(
        self, num_classes: int, channels: int, blocks: int, widths: Sequence[int], stem_width: int, dropout: float
    ) -> None:
        super().__init__()
        self.stem = convolution(channels, stem_width, 3)
        stages, inputs = [], stem_width
        for stage, width in enumerate(widths):
            layers = []
            for number in range(blocks):
                stride = 2 if stage > 0 and number == 0 else 1
                layers.append(PreactivationBlock(inputs, width, stride, dropout))
                inputs = width
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(inputs)
        self.head = nn.Linear(inputs, num_classes)
        initialise(self, "he")

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, channels, H, W) to logits (N, K)."""
        maps = F.relu(self.norm(self.stages(self.stem(images))), inplace=True)
        logits: Tensor = self.head(average_pool(maps))
        return logits


def wide_resnet(
    num_classes: int,
    facts: Mapping[str, Any],
    *,
    depth: int = 26,
    width: int = 10,
    dropout: float = 0.0,
    preactivation: bool = True,
    stem_width: int = 16,
) -> nn.Module:
    """A wide residual network: a thin one of 6n + 2 layers whose stages have `width` times the channels.

    With `preactivation` it is [zagoruyko2016]'s, where WRN-26-10 is called WRN-28-10, as they also count the two
    1x1 convolutions that halve the image. Without, it is the network of [mukhoti2020]'s released code: convolution,
    normalisation, rectifier, and a normalisation behind each 1x1 convolution; it has no dropout. Both draw their
    weights as in [he2015].

    >>> network = wide_resnet(10, {"channels": 3, "size": 32}, depth=8, width=2)
    >>> network.head
    Linear(in_features=128, out_features=10, bias=True)
    """
    require(depth >= 8 and depth % 6 == 2, "depth", "must be 6n + 2 with n of at least 1", depth, "Try 26.")
    require(width >= 1, "width", "must be at least 1", width)
    require(0 <= dropout < 1, "dropout", "must lie in [0, 1)", dropout)
    channels, _ = image_shape(facts, num_classes, smallest=4)
    blocks, widths = (depth - 2) // 6, [stem_width * width, 2 * stem_width * width, 4 * stem_width * width]
    if preactivation:
        return WideResNet(num_classes, channels, blocks, widths, stem_width, dropout)
    require(dropout == 0, "dropout", "must be 0 without preactivation", dropout)
    return ResNet(num_classes, channels, BasicBlock, [blocks] * 3, widths, stem_width=stem_width)
