"""AdaFocal in a LightningModule of your own: one loss, one callback.

python examples/lightning_adafocal.py
"""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import focalcal as fc
from focalcal import noisy_digits
from focalcal.integrations.lightning import AdaFocalCallback


class Classifier(pl.LightningModule):
    """A module as anyone would write it; validation_step also returns its logits and labels, for the callback."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.loss = noisy_digits.make_network(), fc.AdaFocalLoss()

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, batch_idx):
        return self.loss(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(logits, batch[1]))
        return {"logits": logits, "labels": batch[1]}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main(epochs: int = 30) -> fc.AdaFocalLoss:
    """Train, and say what the gammas became."""
    pl.seed_everything(0)
    train, val, test = noisy_digits.load()
    loader = DataLoader(TensorDataset(train.images, train.labels), batch_size=50, shuffle=True)
    val_loader = DataLoader(TensorDataset(val.images, val.labels), batch_size=400)
    module = Classifier()
    trainer = pl.Trainer(
        max_epochs=epochs, callbacks=[AdaFocalCallback()], logger=False, enable_checkpointing=False, accelerator="cpu"
    )
    trainer.fit(module, loader, val_loader)
    with torch.no_grad():
        logits = module.eval()(test.images)
    print("gamma by bin, the least sure first:", [round(gamma, 2) for gamma in module.loss.gamma.tolist()])
    print(f"ECE on test images: {100 * fc.metrics.ece(logits, test.labels):.1f} %")
    return module.loss


if __name__ == "__main__":
    main()
