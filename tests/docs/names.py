"""Names that snippets of pages take for granted: `<!-- setup from tests.docs.names import logits, labels -->`."""

from __future__ import annotations

import torch
from scipy.special import softmax
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.cli.tools import predictions

CLASSES = 10


def _read(rows: int, seed: int, temperature: float = 2.0):
    table = predictions(rows, CLASSES, seed=seed, temperature=temperature)
    return table.scores, table.labels


# Logits twice as large as they should be, as numpy arrays.
val_logits, val_labels = _read(1000, seed=0)
test_logits, test_labels = _read(1000, seed=1)
logits, labels = test_logits, test_labels
probs = softmax(logits, 1)
# For calls that fit every method many times.
_few = predictions(150, 3)
few_logits, few_labels = _few.scores, _few.labels
logits_a, logits_b = logits, _read(1000, seed=1, temperature=1.0)[0]


def make_network() -> nn.Module:
    """Ten classes from 8 inputs; not yet trained."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def make_loader(rows: int = 64, *, shuffle: bool = False) -> DataLoader:
    """Rows for `make_network`, in batches of 32."""
    inputs = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))
    classes = (inputs @ torch.ones(8, CLASSES).cumsum(1)).argmax(1)
    return DataLoader(TensorDataset(inputs, classes), 32, shuffle=shuffle)


network = make_network()
train_loader, val_loader, test_loader = make_loader(64), make_loader(96), make_loader(128)
