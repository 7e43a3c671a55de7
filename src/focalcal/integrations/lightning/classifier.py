"""A classifier for Lightning: any network, any loss of focalcal, and validation that says how truthful it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from focalcal.integrations.lightning.callbacks import (
    Every,
    GammaScheduleCallback,
    ValidationUpdateCallback,
    loss_callbacks,
)
from focalcal.losses.table import make_loss
from focalcal.metrics import streaming
from focalcal.predictions.distributed import is_distributed, sum_over_ranks

MakeOptimizer: TypeAlias = "Callable[[Iterable[nn.Parameter]], Optimizer]"
MakeSchedule: TypeAlias = "Callable[[Optimizer], LRScheduler]"


class CalibratedClassifier(pl.LightningModule):
    """Trains a network with a loss and logs how truthful it is.

    Batches are `(inputs, labels)`. Every validation logs `val_error`, `val_nll`, `val_ece` and `val_ada_ece`, over the
    rows of all processes. What the loss needs (AdaFocal and CalFocal their validation data, FLSc the epoch) it gets
    from callbacks that are added unless the trainer has them already.

    Args:
        network: maps inputs to logits (N, K) or (N, K, d1, ...).
        loss: a loss, or its name in the papers' tables: "adafocal", "flsd-53", "fl-3", "ce", ...
        optimizer: makes the optimiser from the parameters; Adam with `learning_rate` if none is given.
        schedule: makes a learning-rate schedule that is stepped after every batch.
        every: how often AdaFocal and CalFocal are updated; see `AdaFocalCallback`.
        augment: changes the inputs of training batches.
        prepare: changes the inputs of all batches, after `augment` has.
        num_bins: bins of the calibration errors.

    Under DDP a summed loss is the sum over all processes, and a mean the mean over all rows, as in one process.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    >>> CalibratedClassifier(network, "adafocal").loss
    AdaFocalLoss(num_bins=15, lam=1.0, gamma=-2.0..20.0, switch_at=0.2, updates=0)
    """

    def __init__(
        self,
        network: nn.Module,
        loss: nn.Module | str = "adafocal",
        *,
        optimizer: MakeOptimizer | None = None,
        schedule: MakeSchedule | None = None,
        learning_rate: float = 1e-3,
        every: Every = "epoch",
        augment: Callable[[Any], Any] | None = None,
        prepare: Callable[[Any], Any] | None = None,
        num_bins: int = 15,
    ) -> None:
        super().__init__()
        self.network = network
        self.loss = make_loss(loss) if isinstance(loss, str) else loss
        self.make_optimizer = optimizer or (lambda parameters: torch.optim.Adam(parameters, lr=learning_rate))
        self.make_schedule = schedule
        self.every = every
        self.augment, self.prepare = augment, prepare
        self.share = 1.0  # what this process's loss was multiplied by in the last step
        # A plain dictionary: what is measured is no part of the module's state.
        self.measures = {
            "error": streaming.Scores("error", ignore_index=-100),
            "nll": streaming.Scores("nll", ignore_index=-100),
            "ece": streaming.EqualWidth("ece", num_bins=num_bins, ignore_index=-100),
            "ada_ece": streaming.Ranked("ada_ece", num_bins=num_bins, ignore_index=-100),
        }

    def forward(self, inputs: Any) -> Tensor:
        """The logits of a batch's inputs."""
        logits: Tensor = self.network(inputs if self.prepare is None else self.prepare(inputs))
        return logits

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """The loss of a batch; logits and labels go to the callbacks."""
        inputs, labels = batch
        logits = self(inputs if self.augment is None else self.augment(inputs))
        self.share = self._share(labels)
        loss = self.loss(logits, labels) * self.share
        return {"loss": loss, "logits": logits.detach(), "labels": labels}

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """The logits and labels of a batch, which the measures and callbacks read."""
        outputs = self.predict_step(batch, batch_idx)
        for measure in self.measures.values():
            measure.update(outputs["logits"], outputs["labels"])
        return outputs

    def predict_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """The logits and labels of a batch."""
        inputs, labels = batch
        return {"logits": self(inputs), "labels": labels}

    test_step = predict_step

    def on_validation_epoch_end(self) -> None:
        """Log the measures of the validation split."""
        for name, measure in self.measures.items():
            self.log(f"val_{name}", float(measure.compute()), prog_bar=True)
            measure.reset()

    def configure_optimizers(self) -> Any:
        """The optimiser of all parameters, and the schedule, stepped by the batch."""
        optimizer = self.make_optimizer(self.parameters())
        if self.make_schedule is None:
            return optimizer
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": self.make_schedule(optimizer), "interval": "step"},
        }

    def configure_callbacks(self) -> list[pl.Callback]:
        """What the loss needs, unless the trainer was given it."""
        given = self.trainer.callbacks  # type: ignore[attr-defined]
        if any(isinstance(callback, (ValidationUpdateCallback, GammaScheduleCallback)) for callback in given):
            return []
        return loss_callbacks(self.loss, self.every)

    def _share(self, labels: Tensor) -> float:
        """What this process's loss must be multiplied by, so that DDP's average over processes is the loss of all rows.

        A summed loss counts each process's rows once, so the average must be multiplied by their number; means are
        weighted by their rows.
        """
        if not is_distributed():
            return 1.0
        world = torch.distributed.get_world_size()
        if getattr(self.loss, "reduction", "mean") == "sum" or getattr(self.loss, "batch_scale", False):
            return float(world)
        rows = torch.tensor(float((labels != -100).sum()))
        return float(rows * world / sum_over_ranks(rows).clamp_min(1))
