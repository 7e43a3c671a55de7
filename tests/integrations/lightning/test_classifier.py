"""The Lightning classifier and the callbacks that steer losses, with the real trainer."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import focalcal as fc
from focalcal.errors import InputError
from focalcal.integrations.lightning import (
    AdaFocalCallback,
    CalFocalCallback,
    CalibratedClassifier,
    GammaScheduleCallback,
)

# Advice of Lightning's that a tiny run on a CPU cannot follow, and what torch says of Lightning's own calls.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*GPU available but not used.*"),
]


def make_data(number: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(number, 4, generator=generator)
    labels = (inputs[:, :3] + torch.randn(number, 3, generator=generator)).argmax(1)
    return TensorDataset(inputs, labels)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def fit(module: pl.LightningModule, *callbacks: pl.Callback, epochs: int = 3) -> pl.Trainer:
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        num_sanity_val_steps=2,  # sanity checks must not update anything
    )
    trainer.fit(module, DataLoader(make_data(60, 1), batch_size=20), DataLoader(make_data(45, 2), batch_size=15))
    return trainer


def plain_loop(loss: nn.Module, epochs: int = 3, every: int | None = None) -> nn.Module:
    """The same training by hand: the oracle."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    val = make_data(45, 2).tensors
    for _ in range(epochs):
        for number, (inputs, labels) in enumerate(DataLoader(make_data(60, 1), batch_size=20), 1):
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()
            if every and number % every == 0:
                loss.update(model(val[0]).detach(), val[1])
        if every is None:
            loss.update(model(val[0]).detach(), val[1])
    return model


@pytest.mark.parametrize(
    ("kind", "every"), [("adafocal", "epoch"), ("adafocal", 2), ("calfocal", 1), ("calfocal-sample", "epoch")]
)
def test_training_is_that_of_a_plain_loop(kind, every):
    from focalcal.losses.table import make_loss

    module = CalibratedClassifier(network(), make_loss(kind, num_bins=5), every=every)
    fit(module)
    expected = make_loss(kind, num_bins=5)
    model = plain_loop(expected, every=None if every == "epoch" else every)
    assert len(module.loss.history["gamma"]) == {"epoch": 3, 1: 9, 2: 3}[every]
    torch.testing.assert_close(module.loss.history["gamma"], expected.history["gamma"])
    for mine, theirs in zip(module.network.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_schedule_of_updates_follows_the_epochs():
    callback = AdaFocalCallback(every=[(0, "epoch"), (1, 3), (2, 1)])
    module = CalibratedClassifier(network(), fc.AdaFocalLoss(num_bins=5))
    fit(module, callback)
    assert len(module.loss.history["gamma"]) == 1 + 1 + 3  # per epoch; every 3 of 3 batches; every batch
    assert [callback.every_at(epoch) for epoch in (0, 1, 2, 9)] == ["epoch", 3, 1, 1]


def test_callbacks_of_the_trainer_are_not_doubled():
    module = CalibratedClassifier(network(), fc.AdaFocalLoss(num_bins=5), every=1)
    trainer = fit(module, AdaFocalCallback(every="epoch"))
    assert len(module.loss.history["gamma"]) == 3
    assert sum(isinstance(each, AdaFocalCallback) for each in trainer.callbacks) == 1


def test_validation_logs_the_measures_of_all_rows():
    module = CalibratedClassifier(network(), "flsd-53", num_bins=10)
    logged = fit(module).callback_metrics
    inputs, labels = make_data(45, 2).tensors
    logits = module(inputs).detach()
    assert float(logged["val_nll"]) == pytest.approx(float(fc.metrics.nll(logits, labels)), abs=1e-6)
    assert float(logged["val_error"]) == pytest.approx(float(fc.metrics.error(logits, labels)))
    assert float(logged["val_ece"]) == pytest.approx(float(fc.metrics.ece(logits, labels, num_bins=10)), abs=1e-6)
    assert float(logged["val_ada_ece"]) == pytest.approx(
        float(fc.metrics.ada_ece(logits, labels, num_bins=10)), abs=1e-6
    )


def test_scheduled_gammas_follow_the_epochs():
    class Seen(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            gammas.append(pl_module.loss.gamma.gamma)

    gammas: list[float] = []
    fit(CalibratedClassifier(network(), "flsc-531"), Seen(), epochs=7)
    assert gammas[::3] == [5.0, 5.0, 3.0, 3.0, 3.0, 1.0, 1.0]  # 100 and 250 of 350 epochs
    gammas.clear()
    fit(CalibratedClassifier(network(), "flsc-531"), GammaScheduleCallback(stretch=False), Seen(), epochs=3)
    assert set(gammas) == {5.0}


class Own(pl.LightningModule):
    """A user's module: another name for everything."""

    def __init__(self, says: bool = True) -> None:
        super().__init__()
        self.model, self.criterion, self.says = network(), fc.AdaFocalLoss(num_bins=5), says

    def forward(self, inputs):
        return self.model(inputs)

    def training_step(self, batch, batch_idx):
        return self.criterion(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        return {"logits": logits, "labels": batch[1]} if self.says else logits

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


@pytest.mark.parametrize("every", ["epoch", 2])
def test_the_callback_works_in_a_module_of_one_s_own(every):
    module = Own()
    fit(module, AdaFocalCallback(every))
    expected = fc.AdaFocalLoss(num_bins=5)
    plain_loop(expected, every=None if every == "epoch" else every)
    torch.testing.assert_close(module.criterion.gamma, expected.gamma)


def test_other_outputs_are_read_as_told_and_refused_untold():
    module = Own(says=False)
    fit(module, AdaFocalCallback(outputs=lambda outputs, batch: (outputs, batch[1])))
    assert len(module.criterion.history["gamma"]) == 3
    with pytest.raises(InputError, match=r"must return .logits. and .labels. for the callbacks"):
        fit(Own(says=False), AdaFocalCallback())


def test_an_update_in_mid_epoch_leaves_no_trace():
    """Dropout, batch norm and the random state go on as if the pass had not been."""

    def train(every):
        torch.manual_seed(3)
        layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
        module = CalibratedClassifier(layers, fc.AdaFocalLoss(num_bins=5, lam=1e-12), every=every)
        torch.manual_seed(4)
        fit(module, epochs=1)
        return module

    once, often = train("epoch"), train(1)
    assert len(often.loss.history["gamma"]) == 3
    for mine, theirs in zip(once.network.state_dict().values(), often.network.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("every", "rule"),
    [
        (0, "number of batches"),
        ("epochs", "number of batches"),
        ([(1, 2)], "begin at epoch 0"),
        ([(0, 1), (0, 2)], "rise"),
        ([], "begin"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(every, rule):
    with pytest.raises(InputError, match=rule):
        AdaFocalCallback(every)


def test_a_module_without_the_loss_is_refused():
    with pytest.raises(InputError, match="has no CalFocalLoss among its submodules"):
        fit(Own(), CalFocalCallback())


@pytest.mark.filterwarnings("ignore:.*no `val_dataloader`.*")
@pytest.mark.parametrize("every", ["epoch", 1])
def test_updates_need_validation_data(every):
    module = CalibratedClassifier(network(), fc.AdaFocalLoss(num_bins=5), every=every)
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with pytest.raises(InputError, match="needs validation data"):
        trainer.fit(module, DataLoader(make_data(60, 1), batch_size=20))


def test_inputs_are_augmented_in_training_and_prepared_always():
    seen = []

    def augment(inputs):
        seen.append("augment")
        return inputs

    def prepare(inputs):
        seen.append("prepare")
        return inputs

    fit(CalibratedClassifier(network(), "ce", augment=augment, prepare=prepare), epochs=1)
    assert seen == ["prepare"] * 2 + ["augment", "prepare"] * 3 + ["prepare"] * 3  # sanity checks, training, validation
