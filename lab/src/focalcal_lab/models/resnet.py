"""Residual networks: the thin ones that He et al. made for CIFAR, and the deep ones of the calibration papers.

[he2016] K. He, X. Zhang, S. Ren, J. Sun: Deep residual learning for image recognition. CVPR 2016.
[he2015] K. He, X. Zhang, S. Ren, J. Sun: Delving deep into rectifiers. ICCV 2015.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn
from torch.nn import functional as F

from focalcal.core.checks import require

Initialisation: TypeAlias = 'Literal["he", "torch"]'
Stem: TypeAlias = 'Literal["3x3", "7x7"]'
Shortcut: TypeAlias = 'Literal["A", "B"]'

# From this size on, images are ImageNet's: a 7x7 stem and a pooling layer make them four times smaller first.
LARGE = 128


def image_shape(facts: Mapping[str, Any], num_classes: int, *, smallest: int = 1) -> tuple[int, int]:
    """Channels and size of the images, of which the network takes none below `smallest` pixels.

    >>> image_shape({"channels": 3, "size": 32}, 10, smallest=8)
    (3, 32)
    """
    require(num_classes >= 2, "num_classes", "must be at least 2", num_classes)
    for name in ("channels", "size"):
        count = facts.get(name)
        fix = "This network takes images (N, channels, size, size); for features take the model mlp."
        require(isinstance(count, int) and count >= 1, f"facts[{name!r}]", "must be a whole number", repr(count), fix)
    fix = "Resize the images, or take a smaller network."
    require(facts["size"] >= smallest, "facts['size']", f"must be at least {smallest} here", facts["size"], fix)
    return facts["channels"], facts["size"]


def initialise(network: nn.Module, how: Initialisation) -> None:
    r"""Draw the convolutions' weights anew, or leave them as torch drew them.

    `he` is $w \sim N(0, 2 / (k^2 c_{out}))$ for a $k \times k$ convolution with $c_{out}$ outputs, which keeps the
    size of gradients on their way back. `torch` is torch's uniform draw of variance $1 / (3 k^2 c_{in})$, a sixth of it
    where channels stay. The last linear layer is torch's in both cases.

    Source: [he2015, Eq. 14], with the released code of [mukhoti2020] for when which is used.
    """
    require(how in ("he", "torch"), "initialisation", "must be he or torch", repr(how))
    if how == "torch":
        return
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def average_pool(maps: Tensor, grid: int = 1) -> Tensor:
    """Average feature maps (N, C, H, W) over a `grid` x `grid` of equal cells: features (N, C * grid * grid).

    >>> import torch
    >>> average_pool(torch.arange(16.0).reshape(1, 1, 4, 4)), average_pool(torch.arange(16.0).reshape(1, 1, 4, 4), 2)
    (tensor([[7.5000]]), tensor([[ 2.5000,  4.5000, 10.5000, 12.5000]]))
    """
    if grid == 1:
        return maps.mean((2, 3))
    # Not torch's adaptive pooling: its gradient is not reproducible on GPUs.
    return F.avg_pool2d(maps, (maps.shape[2] // grid, maps.shape[3] // grid)).flatten(1)


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the image's size, but for its stride, and leaves the bias to a batch normalisation."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class PaddedShortcut(nn.Module):
    """Option A of [he2016, Sec. 4.2]: every second pixel, and zeros for the channels that are new; no parameters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.new, self.stride = outputs - inputs, stride

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (N, C, H, W) to (N, C + new, ceil(H / stride), ceil(W / stride))."""
        return F.pad(maps[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new))


def make_shortcut(inputs: int, outputs: int, stride: int, option: Shortcut) -> nn.Module:
    """The way around a block: the identity where shapes agree, else option A (zeros) or B (a 1x1 convolution)."""
    require(option in ("A", "B"), "shortcut", "must be A (zeros) or B (a 1x1 convolution)", repr(option))
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    if option == "A":
        require(outputs >= inputs, "shortcut", "A cannot drop channels", f"{inputs} to {outputs}", "Use B.")
        return PaddedShortcut(inputs, outputs, stride)
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a way around them. Source: [he2016, Fig. 5 left]."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = convolution(width, width, 3), nn.BatchNorm2d(width)
        self.shortcut = make_shortcut(inputs, width, stride, shortcut)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (N, inputs, H, W) to (N, width, ceil(H / stride), ceil(W / stride))."""
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = self.norm2(self.conv2(out))
        return F.relu(out + self.shortcut(maps), inplace=True)


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 and a 1x1 convolution and a way around them. Source: [he2016, Fig. 5 right].

    Differs: the stride sits at the 3x3 convolution, as in the released code of [mukhoti2020] and in torchvision.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        outputs = self.expansion * width
        self.conv1, self.norm1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.shortcut = make_shortcut(inputs, outputs, stride, shortcut)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (N, inputs, H, W) to (N, 4 * width, ceil(H / stride), ceil(W / stride))."""
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = F.relu(self.norm2(self.conv2(out)), inplace=True)
        out = self.norm3(self.conv3(out))
        return F.relu(out + self.shortcut(maps), inplace=True)


def make_stem(channels: int, width: int, stem: Stem) -> nn.Sequential:
    """The first layers: a 3x3 convolution at full size, or ImageNet's 7x7 one and pooling to a quarter of the size."""
    require(stem in ("3x3", "7x7"), "stem", "must be 3x3 or 7x7", repr(stem))
    if stem == "3x3":
        return nn.Sequential(convolution(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
    first = convolution(channels, width, 7, stride=2)
    return nn.Sequential(first, nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1))


class ResNet(nn.Module):
    """A stem, stages of residual blocks that halve the image from the second stage on, pooling, and the head.

    `blocks` and `widths` have one number a stage; the maps are averaged over `grid` x `grid` cells.
    """

    def __init__(
        self,
        num_classes: int,
        channels: int,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: Sequence[int],
        widths: Sequence[int],
        *,
        stem_width: int,
        stem: Stem = "3x3",
        shortcut: Shortcut = "B",
        grid: int = 1,
        initialisation: Initialisation = "he",
    ) -> None:
        super().__init__()
        for name, counts in {"blocks": blocks, "widths": widths}.items():
            require(min(counts, default=0) >= 1, name, "needs a number above 0 for each stage", list(counts))
        self.grid = grid
        self.stem = make_stem(channels, stem_width, stem)
        stages, inputs = [], stem_width
        for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
            strides = [1 if stage == 0 else 2, *[1] * (count - 1)]
            layers = []
            for stride in strides:
                layers.append(block(inputs, width, stride, shortcut))
                inputs = block.expansion * width
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs * grid**2, num_classes)
        initialise(self, initialisation)

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, channels, H, W) to logits (N, K)."""
        logits: Tensor = self.head(average_pool(self.stages(self.stem(images)), self.grid))
        return logits


def cifar_resnet(
    num_classes: int, facts: Mapping[str, Any], *, depth: int, width: int = 16, shortcut: Shortcut = "A"
) -> ResNet:
    """A thin residual network of 6n + 2 layers: three stages of n basic blocks with 16, 32 and 64 channels.

    Shortcuts are parameter-free (option A) and the weights are drawn as in [he2015]. Source: [he2016, Sec. 4.2].

    >>> network = cifar_resnet(10, {"channels": 3, "size": 32}, depth=20)
    >>> sum(parameter.numel() for parameter in network.parameters())  # 0.27 M in [he2016, Table 6]
    269722
    """
    require(depth >= 8 and depth % 6 == 2, "depth", "must be 6n + 2 with n of at least 1", depth, "Try 8, 20, 44, 110.")
    channels, _ = image_shape(facts, num_classes, smallest=4)
    blocks, widths = [(depth - 2) // 6] * 3, [width, 2 * width, 4 * width]
    return ResNet(num_classes, channels, BasicBlock, blocks, widths, stem_width=width, shortcut=shortcut)


def resnet8(num_classes: int, facts: Mapping[str, Any], **options: Any) -> ResNet:
    """ResNet-8 for small images; options of `cifar_resnet`. Used by [charoenphakdee2021, Sec. 6]."""
    return cifar_resnet(num_classes, facts, depth=8, **options)


def resnet20(num_classes: int, facts: Mapping[str, Any], **options: Any) -> ResNet:
    """ResNet-20 for small images; options of `cifar_resnet`. Used by [charoenphakdee2021, Sec. 6]."""
    return cifar_resnet(num_classes, facts, depth=20, **options)


def resnet44(num_classes: int, facts: Mapping[str, Any], **options: Any) -> ResNet:
    """ResNet-44 for small images; options of `cifar_resnet`. Used by [charoenphakdee2021, Sec. 6]."""
    return cifar_resnet(num_classes, facts, depth=44, **options)


def resnet110(num_classes: int, facts: Mapping[str, Any], **options: Any) -> ResNet:
    """ResNet-110 for small images; options of `cifar_resnet`. Used by [charoenphakdee2021, Sec. 6].

    The ResNet-110 of [mukhoti2020] and [ghosh2022] is another network, `resnet110_bottleneck`.
    """
    return cifar_resnet(num_classes, facts, depth=110, **options)


def deep_resnet(
    num_classes: int,
    facts: Mapping[str, Any],
    *,
    blocks: Sequence[int],
    width: int = 64,
    stem: Stem | None = None,
    grid: int | None = None,
    initialisation: Initialisation | None = None,
) -> ResNet:
    """A residual network of bottleneck blocks in four stages, with 4, 8, 16 and 32 times `width` channels.

    What is None is taken from the images' size, as the networks that were published differ in it:

    - below 64 (CIFAR, SVHN): 3x3 stem, one global average, torch's initialisation;
    - 64 up to 127 (Tiny-ImageNet): 3x3 stem, averages of the four quarters, He's initialisation;
    - 128 and more (ImageNet): 7x7 stem, one global average, He's initialisation.

    Source: [he2016, Table 1] for ImageNet, the released code of [mukhoti2020] for the smaller images.

    >>> network = deep_resnet(10, {"channels": 3, "size": 32}, blocks=[1, 1, 1, 1], width=4)
    >>> network.head
    Linear(in_features=128, out_features=10, bias=True)
    """
    _, size = image_shape(facts, num_classes)
    stem = stem or ("7x7" if size >= LARGE else "3x3")
    grid = grid or (2 if 64 <= size < LARGE else 1)
    initialisation = initialisation or ("he" if size >= 64 else "torch")
    shrink = 8 if stem == "3x3" else 32
    channels, size = image_shape(facts, num_classes, smallest=shrink * grid)
    left = -(-size // shrink)  # each halving rounds up
    require(left % grid == 0, "grid", f"must divide the last maps, {left} x {left} for this size", grid, "Try 1.")
    widths = [width, 2 * width, 4 * width, 8 * width]
    return ResNet(
        num_classes,
        channels,
        Bottleneck,
        blocks,
        widths,
        stem_width=width,
        stem=stem,
        grid=grid,
        initialisation=initialisation,
    )


def resnet50(num_classes: int, facts: Mapping[str, Any], **options: Any) -> ResNet:
    """ResNet-50, for images of any size; options of `deep_resnet`. Used by [mukhoti2020], [ghosh2022]."""
    return deep_resnet(num_classes, facts, **{"blocks": [3, 4, 6, 3], **options})


def resnet110_bottleneck(num_classes: int, facts: Mapping[str, Any], **options: Any) -> ResNet:
    """ResNet-110 as [mukhoti2020] and [ghosh2022] use it: of bottleneck blocks; options of `deep_resnet`.

    110 = 3 * (3 + 4 + 26 + 3) + 2; no relation to the thin ResNet-110 of [he2016].
    """
    return deep_resnet(num_classes, facts, **{"blocks": [3, 4, 26, 3], **options})
