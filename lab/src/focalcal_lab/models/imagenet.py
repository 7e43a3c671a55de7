"""Networks for ImageNet and other large images, from timm or torchvision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

from focalcal.core.checks import require
from focalcal.errors import InputError, MissingExtraError
from focalcal_lab.models.resnet import image_shape

Library: TypeAlias = 'Literal["timm", "torchvision"]'
_LIBRARIES: tuple[Library, ...] = ("timm", "torchvision")


class Borrowed(nn.Module):
    """A network of another library, and where in it the last linear layer is.

    A wrapper, as timm's networks already have a `head`, which may hold pooling and more.
    """

    def __init__(self, network: nn.Module, head_name: str) -> None:
        super().__init__()
        self.network, self.head_name = network, head_name

    @property
    def head(self) -> nn.Linear:
        """The last linear layer."""
        head = self.network.get_submodule(self.head_name)
        assert isinstance(head, nn.Linear)
        return head

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, channels, H, W) to logits (N, K)."""
        logits: Tensor = self.network(images)
        return logits


def find_head(network: nn.Module) -> str:
    """The name of the last linear layer, or of the one that the network (of timm) calls its classifier.

    >>> find_head(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 10)))
    '2'
    """
    linear: dict[str, nn.Linear] = {
        name: module for name, module in network.named_modules() if isinstance(module, nn.Linear)
    }
    kind, fix = type(network).__name__, "Take another architecture."
    require(bool(linear), "architecture", "must end with a linear layer", f"none in {kind}", fix)
    # Inception and GoogLeNet of torchvision give three sets of logits while they train.
    require(not getattr(network, "aux_logits", False), "architecture", "must give one set of logits", kind, fix)
    ask: Any = getattr(network, "get_classifier", None)
    classifier = ask() if ask else None
    named = [name for name, module in linear.items() if module is classifier]
    return (named or list(linear))[-1]


def imagenet_model(
    num_classes: int,
    facts: Mapping[str, Any],
    *,
    architecture: str,
    pretrained: bool = False,
    library: Library | None = None,
) -> Borrowed:
    """A network by its name in timm or torchvision: in the first of them that is installed and has it.

    `pretrained` starts from that library's weights for ImageNet, with a fresh head if `num_classes` is not theirs.
    For ResNet-50, ResNet-110 and DenseNet-121 of [ghosh2022, Sec. 6] neither library is needed: `resnet50`,
    `resnet110-bottleneck` and `densenet121` take large images too.
    """
    channels, _ = image_shape(facts, num_classes)
    if library is not None:
        require(library in _LIBRARIES, "library", f"must be {' or '.join(_LIBRARIES)}", repr(library))
    installed = _installed([library] if library else _LIBRARIES)
    for name, module in installed.items():
        if _has(name, module, architecture):
            make = _from_timm if name == "timm" else _from_torchvision
            network = make(module, architecture, num_classes, channels, pretrained)
            borrowed = Borrowed(network, find_head(network))
            outputs = f"{borrowed.head.out_features} outputs for {num_classes} classes"
            fits = borrowed.head.out_features == num_classes
            require(fits, "architecture", "its last linear layer must give the logits", outputs, "Take another one.")
            return borrowed
    raise InputError(
        f"architecture: must be a network of {' or '.join(installed)}; got {architecture!r}. "
        "Their list_models() shows which there are."
    )


def _import(library: Library) -> ModuleType | None:
    try:
        return import_module("torchvision.models" if library == "torchvision" else library)
    except ImportError:
        return None


def _installed(wanted: Sequence[Library]) -> dict[Library, ModuleType]:
    found = {name: module for name in wanted if (module := _import(name))}
    if not found:
        raise MissingExtraError(f"This model needs {' or '.join(wanted)}: pip install {wanted[0]}.")
    return found


def _has(library: Library, module: ModuleType, architecture: str) -> bool:
    if library == "timm":
        return bool(module.is_model(architecture))
    return architecture in module.list_models(module=module)  # without segmentation, detection and video


def _from_timm(timm: ModuleType, architecture: str, num_classes: int, channels: int, pretrained: bool) -> nn.Module:
    network: nn.Module = timm.create_model(
        architecture, pretrained=pretrained, num_classes=num_classes, in_chans=channels
    )
    return network


def _from_torchvision(
    models: ModuleType, architecture: str, num_classes: int, channels: int, pretrained: bool
) -> nn.Module:
    fix = "timm's networks take any number: pip install timm."
    require(channels == 3, "facts['channels']", "must be 3 for torchvision's networks", channels, fix)
    if not pretrained:
        fresh: nn.Module = models.get_model(architecture, weights=None, num_classes=num_classes)
        return fresh
    # The weights come with a head for their own classes; torchvision refuses them for any other number.
    network: nn.Module = models.get_model(architecture, weights="DEFAULT")
    name = find_head(network)
    head = network.get_submodule(name)
    assert isinstance(head, nn.Linear)
    if head.out_features != num_classes:
        parent, _, child = name.rpartition(".")
        replacement = nn.Linear(head.in_features, num_classes, bias=head.bias is not None)
        setattr(network.get_submodule(parent), child, replacement)
    return network
