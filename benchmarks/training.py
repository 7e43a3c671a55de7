"""What AdaFocal costs in training: its step against cross-entropy's, and the update of its gammas.

    python benchmarks/training.py            # prints ratios and goals, writes benchmarks/results/training.json

A step is ResNet-8 on a batch of 128 images of 32 x 32, forward, backward and SGD, as the lab trains it. The update is
`AdaFocalLoss.update` from 5,000 x 100 validation logits, without the forward pass that made them; ghosh2022 App. J
reports 8 ms on a GPU. Unlike AdaFocal's, cross-entropy here is torch's own.
"""

from __future__ import annotations

import torch
from harness import QUICK, best_times, save, settle_allocator
from torch import nn

import focalcal as fc
from focalcal.losses.table import make_loss
from focalcal_lab.models import make_model

BATCH, ROWS, CLASSES = 16 if QUICK else 128, 5_000, 100
MOST_STEP, MOST_UPDATE = 1.03, 2.0
LOSSES = {
    "cross-entropy": nn.CrossEntropyLoss,
    "AdaFocal": fc.AdaFocalLoss,
    "FLSD-53": lambda: make_loss("flsd-53"),
    "MMCE": lambda: make_loss("mmce"),
}


def make_step(loss: nn.Module):
    """One training step of a fresh ResNet-8; every loss gets the same network and batch."""
    torch.manual_seed(0)
    network = make_model("resnet8", 10, {"channels": 3, "size": 32}).to(memory_format=torch.channels_last)
    images = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    if isinstance(loss, fc.AdaFocalLoss):  # gammas and edges as in the middle of training
        loss.update(2 * torch.randn(1000, 10), torch.randint(10, (1000,)))

    def step() -> None:
        optimizer.zero_grad()
        loss(network(images), labels).backward()
        optimizer.step()

    return step


def make_loss_alone(loss: nn.Module):
    """Forward and backward pass of the loss without the network: what differs between two steps."""
    torch.manual_seed(0)
    logits, labels = torch.randn(BATCH, 10, requires_grad=True), torch.randint(10, (BATCH,))

    def run() -> None:
        logits.grad = None
        loss(logits, labels).backward()

    return run


def make_update():
    """One update of the gammas."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(ROWS, CLASSES, generator=generator)
    labels = torch.randint(CLASSES, (ROWS,), generator=generator)
    loss = fc.AdaFocalLoss()
    return lambda: loss.update(logits, labels)


def measure(repeats: int = 60) -> dict[str, float]:
    """Seconds of an update, and of a step with each loss."""
    settle_allocator()
    update = best_times({"update": make_update()}, repeats=5 * repeats, calls=1)
    alone = {f"{name} alone": make_loss_alone(make()) for name, make in LOSSES.items()}
    steps = {name: make_step(make()) for name, make in LOSSES.items()}
    return (
        update
        | best_times(alone, repeats=repeats, calls=1 if QUICK else 50)
        | best_times(steps, repeats=repeats, calls=1)
    )


def main() -> None:
    seconds = measure()
    for name in LOSSES:
        alone = 1e3 * seconds[f"{name} alone"]
        ratio = seconds[name] / seconds["cross-entropy"]
        print(f"  {name:14s} {1e3 * seconds[name]:7.1f} ms a step, {ratio:.3f} x cross-entropy; alone {alone:.3f} ms")
    print(f"  update of the gammas {1e3 * seconds['update']:.2f} ms   goal {MOST_UPDATE:.0f} ms")
    save("training", {"seconds": seconds, "goals": {"step": MOST_STEP, "update_ms": MOST_UPDATE}})


if __name__ == "__main__":
    main()
