"""Streaming measures in a LightningModule: what Lightning logs is the measure of all rows, epoch by epoch."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import focalcal as fc
from focalcal.metrics import streaming

pytestmark = pytest.mark.filterwarnings(
    # Lightning's advice for a tiny run on a CPU, and torch's of Lightning's own calls
    "ignore:.*does not have many workers.*",
    "ignore:.*LeafSpec.*",
)

GENERATOR = torch.Generator().manual_seed(0)
INPUTS, LABELS = torch.randn(70, 4, generator=GENERATOR), torch.randint(0, 3, (70,), generator=GENERATOR)


class Module(pl.LightningModule):
    """Logs measures in the two ways of docs/lightning.md."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = nn.Linear(4, 3)
        self.ece, self.ranked = streaming.EqualWidth("ece"), streaming.Ranked("ada_ece")
        self.scores = streaming.Scores("nll", "accuracy")
        self.expected: list[dict[str, float]] = []
        self.logged: list[dict[str, float]] = []

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        logits = self.network(batch[0])
        self.ece(logits, batch[1])
        self.ranked.update(logits, batch[1])
        self.log("ece", self.ece)
        self.log("ada_ece", self.ranked)
        self.scores.update(logits, batch[1])

    def on_validation_epoch_end(self):
        self.log_dict(self.scores.compute())
        self.scores.reset()
        with torch.no_grad():
            everything = fc.evaluate(self.network(INPUTS), LABELS)
        self.expected.append({name: getattr(everything, name) for name in ("ece", "ada_ece", "nll", "accuracy")})

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Keep(pl.Callback):
    def on_validation_end(self, trainer, pl_module):
        names = pl_module.expected[-1]
        pl_module.logged.append({name: float(trainer.callback_metrics[name]) for name in names})


def test_what_is_logged_is_the_measure_of_all_rows_of_the_epoch():
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=16)  # the last batch is smaller
    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    pl.Trainer(max_epochs=3, callbacks=[Keep()], num_sanity_val_steps=0, enable_model_summary=False, **quiet).fit(
        module, loader, loader
    )
    assert len(module.logged) == 3
    assert module.logged[0]["ece"] != module.logged[1]["ece"]
    for logged, expected in zip(module.logged, module.expected, strict=True):
        assert logged == pytest.approx(expected, abs=1e-6)  # Lightning keeps float32
