"""Passes over validation data in the middle of training, which leave the module and the random state as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor

from focalcal.errors import InputError

# How to read logits and labels from what a step returned and its batch.
Outputs: TypeAlias = "Callable[[Any, Any], tuple[Tensor, Tensor]]"
# How a module gives logits and labels of a batch.
Forward: TypeAlias = "Callable[[pl.LightningModule, Any], tuple[Tensor, Tensor]]"


def logits_and_labels(outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """The logits and labels that a step returned by these names.

    >>> logits_and_labels({"logits": torch.zeros(2, 3), "labels": torch.tensor([0, 2])}, batch=None)[1]
    tensor([0, 2])
    """
    if isinstance(outputs, Mapping) and {"logits", "labels"} <= outputs.keys():
        return outputs["logits"], outputs["labels"]
    got = ", ".join(map(str, outputs)) if isinstance(outputs, Mapping) else type(outputs).__name__
    raise InputError(
        'training_step, validation_step: must return "logits" and "labels" for the callbacks (beside "loss"); '
        f"got {got}. Return them, or give the callback outputs=lambda outputs, batch: (logits, labels)."
    )


def forward_pair(module: pl.LightningModule, batch: Any) -> tuple[Tensor, Tensor]:
    """The logits and labels of a batch `(inputs, labels)`, by calling the module.

    Not by its validation_step or test_step, which may log: an extra pass must leave no trace in the user's curves.
    """
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return module(batch[0]), batch[1]
    raise InputError(
        f"batch: must be (inputs, labels); got {type(batch).__name__}. "
        "Give the callback forward=lambda module, batch: (logits, labels)."
    )


@contextmanager
def evaluating(trainer: pl.Trainer, module: pl.LightningModule) -> Iterator[None]:
    """The module in evaluation mode and the trainer in testing; afterwards both, and all random states, as before."""
    modes = {part: part.training for part in module.modules()}
    stage = trainer.state.stage
    module.eval()
    trainer.testing = True  # what hooks for batches ask before they augment
    try:
        with (
            isolate_rng(include_cuda=torch.cuda.is_available()),
            torch.no_grad(),
            trainer.precision_plugin.test_step_context(),
        ):
            yield
    finally:
        trainer.state.stage = stage
        for part, training in modes.items():
            part.training = training


def moved(batch: Any, trainer: pl.Trainer, module: pl.LightningModule) -> Any:
    """The batch as a step would get it: converted, on the device, and through the module's hooks for batches."""
    batch = trainer.precision_plugin.convert_input(batch)
    batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
    return trainer.strategy.batch_to_device(batch, dataloader_idx=0)
