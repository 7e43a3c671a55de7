"""Callbacks that steer a loss: AdaFocal and CalFocal from validation data, FLSc by the epoch.

They work in any LightningModule: the loss is found among its submodules, and validation steps say their logits and
labels by returning `{"logits": ..., "labels": ...}`, or in any way that `outputs` understands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, final

import lightning.pytorch as pl
import torch

from focalcal.core.checks import require
from focalcal.errors import InputError
from focalcal.integrations.lightning.validation_pass import (
    Forward,
    Outputs,
    evaluating,
    forward_pair,
    logits_and_labels,
    moved,
)
from focalcal.losses import AdaFocalLoss, CalFocalLoss, ScheduledGamma
from focalcal.losses.validation_bins import ValidationBinsLoss

# "epoch", every n batches, or [(from this epoch on, "epoch" or n), ...] as in ghosh2022 Fig. 53.
Every: TypeAlias = 'Literal["epoch"] | int | Sequence[tuple[int, Literal["epoch"] | int]]'

LossT = TypeVar("LossT", bound=ValidationBinsLoss)


class ValidationUpdateCallback(pl.Callback, Generic[LossT]):
    """Feeds a loss of validation bins; `AdaFocalCallback` and `CalFocalCallback` say which one."""

    KIND: type[LossT]

    def __init__(
        self,
        every: Every = "epoch",
        *,
        loss: LossT | None = None,
        outputs: Outputs = logits_and_labels,
        forward: Forward = forward_pair,
    ) -> None:
        self.every = _phases(every)
        self.loss, self.outputs, self.forward = loss, outputs, forward

    def every_at(self, epoch: int) -> Literal["epoch"] | int:
        """How often the loss is updated in an epoch, counted from 0: "epoch", or a number of batches.

        >>> AdaFocalCallback(every=[(0, "epoch"), (25, 100), (40, 1)]).every_at(39)
        100
        """
        return next(how for start, how in reversed(self.every) if epoch >= start)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the loss."""
        if self.loss is None:
            self.loss = _only(self.KIND, pl_module)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Without validation data gammas would stand still, and nobody would notice."""
        self._validation_loader(trainer)
        self._found.expect_updates()  # from here, however long an epoch is

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take in the rows of a validation batch, if this epoch ends with an update."""
        if self._follows_validation(trainer) and dataloader_idx == 0:
            self._found.accumulate(*self.outputs(outputs, batch))

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Update from what the validation loop gave; the loss gathers the rows of all processes by itself."""
        if self._follows_validation(trainer):
            self._found.step()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Every n batches: a pass over the validation data of its own, and an update."""
        n = self.every_at(trainer.current_epoch)
        if n != "epoch" and (batch_idx + 1) % n == 0:
            with evaluating(trainer, pl_module):
                for val_batch in self._validation_loader(trainer):
                    self._found.accumulate(*self.forward(pl_module, moved(val_batch, trainer, pl_module)))
            self._found.step()

    @property
    def _found(self) -> LossT:
        assert self.loss is not None, "Lightning calls setup first"
        return self.loss

    def _follows_validation(self, trainer: pl.Trainer) -> bool:
        fitting = trainer.state.fn == "fit" and not trainer.sanity_checking
        return fitting and self.every_at(trainer.current_epoch) == "epoch"

    def _validation_loader(self, trainer: pl.Trainer) -> Any:
        loaders = trainer.val_dataloaders
        if not trainer.enable_validation or loaders is None:
            raise InputError(f"{type(self).__name__}: needs validation data; the trainer has none. Give it to fit.")
        return loaders[0] if isinstance(loaders, (list, tuple)) else loaders


@final
class AdaFocalCallback(ValidationUpdateCallback[AdaFocalLoss]):
    """Updates the gammas of an `AdaFocalLoss` from the validation loop.

    Args:
        every: "epoch", a number of batches, or a schedule such as `[(0, "epoch"), (25, 100), (40, 1)]`: from epoch 25
            on every 100 batches, from epoch 40 on every batch.
        loss: the loss; without it the only one of the module's submodules.
        outputs: how to read logits and labels from what `validation_step` returned and its batch.
        forward: for updates every n batches, how the module gives logits and labels of a batch; without it a batch is
            `(inputs, labels)` and the module maps inputs to logits.

    Under DDP every process gives its share of rows and all get the same gammas: those of one process that has all rows.
    Lightning's own sampler repeats rows to make shares even; for exactly equal gammas use loaders that do not.

    Source: [ghosh2022, Algorithm 1; App. I; Fig. 53].

    >>> AdaFocalCallback().every_at(0), AdaFocalCallback(every=10).every_at(0)
    ('epoch', 10)
    """

    KIND = AdaFocalLoss


@final
class CalFocalCallback(ValidationUpdateCallback[CalFocalLoss]):
    """Updates a `CalFocalLoss` from the validation loop; the arguments are those of `AdaFocalCallback`.

    Source: [ghosh2022, Eq. 2 and 3].

    >>> CalFocalCallback(every=100).every_at(3)
    100
    """

    KIND = CalFocalLoss


@final
class GammaScheduleCallback(pl.Callback):
    """Tells every scheduled gamma of a module (FLSc-531, FLSc-532) which epoch begins.

    Milestones are shares of the schedule's length (100 and 250 of 350 epochs in mukhoti2020) and stretched to the
    trainer's number of epochs; with `stretch=False` they are epochs.

    Source: [mukhoti2020, App. E].

    >>> GammaScheduleCallback().stretch
    True
    """

    def __init__(self, *, stretch: bool = True) -> None:
        self.stretch = stretch

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Choose the gamma of the epoch."""
        total = trainer.max_epochs if self.stretch and (trainer.max_epochs or 0) > 0 else None
        for module in pl_module.modules():
            if isinstance(module, ScheduledGamma):
                module.set_epoch(trainer.current_epoch, total)

    # A run that resumes in mid-epoch does not start that epoch again.
    on_train_start = on_train_epoch_start


def loss_callbacks(module: torch.nn.Module, every: Every = "epoch") -> list[pl.Callback]:
    """The callbacks that the losses in a module need; most losses need none.

    >>> loss_callbacks(CalFocalLoss())[0].KIND.__name__
    'CalFocalLoss'
    """
    needed: list[pl.Callback] = []
    for part in module.modules():
        if isinstance(part, AdaFocalLoss):
            needed.append(AdaFocalCallback(every, loss=part))
        elif isinstance(part, CalFocalLoss):
            needed.append(CalFocalCallback(every, loss=part))
        elif isinstance(part, ScheduledGamma):
            needed.append(GammaScheduleCallback())
    return needed


def _phases(every: Every) -> list[tuple[int, Literal["epoch"] | int]]:
    phases = [(0, every)] if isinstance(every, (str, int)) else [(start, how) for start, how in every]
    starts = [start for start, _ in phases]
    require(
        bool(phases) and starts[0] == 0 and starts == sorted(set(starts)),
        "every",
        "a schedule must begin at epoch 0 and rise",
        every,
    )
    for _, how in phases:
        whole = isinstance(how, int) and not isinstance(how, bool) and how >= 1
        require(how == "epoch" or whole, "every", 'must be "epoch" or a number of batches from 1', how)
    return phases


def _only(kind: type[LossT], module: pl.LightningModule) -> LossT:
    found = [part for part in module.modules() if isinstance(part, kind)]
    if len(found) != 1:
        how = "no" if not found else str(len(found))
        raise InputError(
            f"loss: {type(module).__name__} has {how} {kind.__name__} among its submodules, and the callback needs "
            "one. Give it to the callback: loss=..."
        )
    return found[0]
