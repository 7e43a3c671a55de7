"""The demo's experiment: small networks on noisy digits, with four losses.

scikit-learn ships 1,797 digits of 8 x 8 pixels. With Gaussian noise on the pixels and 500 training images a network
learns its training set by heart, and cross-entropy becomes far too sure of itself: the papers' point in a minute.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from focalcal.losses import AdaFocalLoss, FocalLoss

NOISE = 0.35
NUM_TRAIN, NUM_VAL = 500, 400
EPOCHS, BATCH_SIZE, LEARNING_RATE = 60, 50, 1e-3

LOSSES: dict[str, Callable[[], nn.Module]] = {
    "cross-entropy": lambda: FocalLoss(0.0),
    "FL-3": lambda: FocalLoss(3.0),
    "FLSD-53": lambda: FocalLoss("flsd-53"),
    "AdaFocal": AdaFocalLoss,
}


@dataclass(frozen=True)
class DigitsSplit:
    """Images (N, 1, 8, 8) and labels (N,)."""

    images: Tensor
    labels: Tensor


def load(seed: int = 0) -> tuple[DigitsSplit, DigitsSplit, DigitsSplit]:
    """Train, validation and test splits of the noisy digits: 500, 400 and 897 images.

    >>> [len(split.labels) for split in load()]
    [500, 400, 897]
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    generator = np.random.default_rng(seed)
    pixels = digits.images / 16 + generator.normal(scale=NOISE, size=digits.images.shape)
    order = generator.permutation(len(pixels))
    images = torch.tensor(pixels[order], dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target[order])
    cuts = (0, NUM_TRAIN, NUM_TRAIN + NUM_VAL, len(labels))
    train, val, test = (DigitsSplit(images[a:b], labels[a:b]) for a, b in itertools.pairwise(cuts))
    return train, val, test


def make_network() -> nn.Sequential:
    """A small convolutional network, 94,304 weights.

    >>> sum(parameter.numel() for parameter in make_network().parameters())
    94304
    """
    return nn.Sequential(*network_layers())


def network_layers(
    num_classes: int = 10, *, channels: int = 1, size: int = 8, width: int = 32, hidden: int = 162
) -> list[nn.Module]:
    """The network's layers: two 3x3 convolutions, pooling, and one hidden layer."""
    return [
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(width * (size // 2) ** 2, hidden),
        nn.ReLU(),
        nn.Linear(hidden, num_classes),
    ]


def train(
    loss: nn.Module, train_split: DigitsSplit, val_split: DigitsSplit, *, seed: int = 0, epochs: int = EPOCHS
) -> Iterator[nn.Module]:
    """Train a fresh network with a loss, yielding it after every epoch.

    AdaFocal is updated from the validation split at the end of each epoch.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make_network()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    for _ in range(epochs):
        for batch in torch.randperm(len(train_split.labels), generator=generator).split(BATCH_SIZE):
            optimizer.zero_grad()
            loss(network(train_split.images[batch]), train_split.labels[batch]).backward()
            optimizer.step()
        if isinstance(loss, AdaFocalLoss):
            loss.update(predict(network, val_split), val_split.labels)
        yield network


@torch.no_grad()
def predict(network: nn.Module, split: DigitsSplit) -> Tensor:
    """The logits (N, 10) of a split."""
    logits: Tensor = network(split.images)
    return logits
