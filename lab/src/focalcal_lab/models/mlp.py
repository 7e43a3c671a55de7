"""Small networks: linear, fully connected, and the demo's convolutional one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from focalcal.core.checks import require
from focalcal.noisy_digits import network_layers
from focalcal_lab.models.resnet import image_shape

Activation: TypeAlias = 'Literal["relu", "tanh"]'

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def count_features(facts: Mapping[str, Any], num_classes: int) -> int:
    """How many numbers a row has: `features`, or all pixels of an image.

    >>> count_features({"features": 2}, 3), count_features({"channels": 1, "size": 8}, 10)
    (2, 64)
    """
    if "features" not in facts:
        channels, size = image_shape(facts, num_classes)
        return channels * size**2
    require(num_classes >= 2, "num_classes", "must be at least 2", num_classes)
    features = facts["features"]
    fix = "This network takes rows (N, features)."
    require(isinstance(features, int) and features >= 1, "facts['features']", "must be a whole number", features, fix)
    return int(features)


class Layers(nn.Sequential):
    """Layers one after the other, the last of which is the head."""

    @property
    def head(self) -> nn.Linear:
        """The last linear layer."""
        last = self[-1]
        assert isinstance(last, nn.Linear)
        return last


class OneLogit(nn.Module):
    """Two classes by one score: logits (0, s), whose softmax is the logistic function of s."""

    def __init__(self, features: int, *, bias: bool) -> None:
        super().__init__()
        self.head = nn.Linear(features, 1, bias=bias)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (N, ...) to logits (N, 2)."""
        score = self.head(rows.flatten(1))
        return torch.cat([torch.zeros_like(score), score], dim=1)


def linear(
    num_classes: int, facts: Mapping[str, Any], *, bias: bool | None = None, one_logit: bool = False
) -> Layers | OneLogit:
    r"""A linear model.

    With `one_logit` it is the logistic regression $f_w(x) = \sigma(w^T x)$ of [mukhoti2020, App. B], as logits
    $(0, w^T x)$, and has no bias unless asked for; else it has one score per class, and a bias.

    >>> linear(2, {"features": 2}, one_logit=True).head
    Linear(in_features=2, out_features=1, bias=False)
    >>> linear(3, {"features": 2}).head
    Linear(in_features=2, out_features=3, bias=True)
    """
    features = count_features(facts, num_classes)
    if one_logit:
        require(num_classes == 2, "one_logit", "needs exactly two classes", f"{num_classes} classes")
        return OneLogit(features, bias=bool(bias))
    return Layers(nn.Flatten(), nn.Linear(features, num_classes, bias=bias is None or bias))


def mlp(
    num_classes: int, facts: Mapping[str, Any], *, hidden: Sequence[int] = (64, 64), activation: Activation = "relu"
) -> Layers:
    """A fully connected network, with torch's initialisation.

    >>> mlp(3, {"features": 1}, hidden=[16], activation="tanh")
    Layers(
      (0): Flatten(start_dim=1, end_dim=-1)
      (1): Linear(in_features=1, out_features=16, bias=True)
      (2): Tanh()
      (3): Linear(in_features=16, out_features=3, bias=True)
    )
    """
    require(activation in _ACTIVATIONS, "activation", f"must be one of {', '.join(_ACTIVATIONS)}", repr(activation))
    require(min(hidden, default=1) >= 1, "hidden", "every layer needs at least one unit", list(hidden))
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = count_features(facts, num_classes)
    for width in hidden:
        layers += [nn.Linear(inputs, width), _ACTIVATIONS[activation]()]
        inputs = width
    return Layers(*layers, nn.Linear(inputs, num_classes))


def digits_cnn(num_classes: int, facts: Mapping[str, Any], *, width: int = 32, hidden: int = 162) -> Layers:
    """The demo's network: two 3x3 convolutions, pooling, one hidden layer; for images of 8 pixels 94,304 weights.

    >>> network = digits_cnn(10, {"channels": 1, "size": 8})
    >>> sum(parameter.numel() for parameter in network.parameters())
    94304
    """
    channels, size = image_shape(facts, num_classes, smallest=2)
    return Layers(*network_layers(num_classes, channels=channels, size=size, width=width, hidden=hidden))
