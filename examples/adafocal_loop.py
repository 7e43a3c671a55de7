"""AdaFocal in a plain PyTorch loop: one update per epoch, or every few batches.

    python examples/adafocal_loop.py

The only lines that differ from a loop with cross-entropy are marked with (*).
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

import focalcal as fc
from focalcal import noisy_digits

UPDATE_EVERY = None  # batches between updates, or None for one update per epoch


def main(epochs: int = 20) -> fc.AdaFocalLoss:
    """Train on noisy digits and print how the gammas move."""
    torch.manual_seed(0)
    train, val, _ = noisy_digits.load()
    train_loader = DataLoader(TensorDataset(train.images, train.labels), batch_size=50, shuffle=True)
    val_loader = DataLoader(TensorDataset(val.images, val.labels), batch_size=200)
    model = noisy_digits.make_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss = fc.AdaFocalLoss()  # (*) instead of nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for step, (images, labels) in enumerate(train_loader, start=1):
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()
            if UPDATE_EVERY and step % UPDATE_EVERY == 0:
                loss.update_from(val_loader, model)  # (*)
        if not UPDATE_EVERY:
            loss.update_from(val_loader, model)  # (*)
        print(f"epoch {epoch:2d}: gamma of the least and most confident bin {loss.gamma[0]:.2f} {loss.gamma[-1]:.2f}")
    torch.save({"model": model.state_dict(), "loss": loss.state_dict()}, "checkpoint.pt")  # (*) the gammas too
    return loss


if __name__ == "__main__":
    main()
