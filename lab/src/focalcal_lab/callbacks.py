"""Lightning callbacks of a run: the seed of every step, collected predictions, and checkpoints."""

from __future__ import annotations

import pickle
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from safetensors.torch import load, save
from torch import Tensor, nn

from focalcal.atomic import write_atomically
from focalcal.errors import FileFormatError
from focalcal_lab.run_folder import RunFolder


class StepSeed(pl.Callback):
    """Seeds every training step by the run's seed, the epoch, the batch and the process.

    So dropout and augmentation of a step depend on nothing that happened before it, and there is no random state to
    save: a resumed run draws the same numbers.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seed torch's generators."""
        place = [self.seed, trainer.current_epoch, batch_idx, trainer.global_rank]
        torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1))


class Collector(pl.Callback):
    """Keeps the logits and labels of a pass of `trainer.test`, on the CPU.

    Not `trainer.predict`, which takes loaders apart to follow their indices.
    """

    def __init__(self) -> None:
        self.logits: list[Tensor] = []
        self.labels: list[Tensor] = []

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin with nothing."""
        self.logits, self.labels = [], []

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take in a batch."""
        logits = outputs["logits"].cpu()
        half = logits.dtype in (torch.float16, torch.bfloat16)  # which no file of predictions has
        self.logits.append(logits.float() if half else logits)
        self.labels.append(outputs["labels"].cpu())


class RunCheckpoint(Checkpoint):
    """A checkpoint after every epoch, and every n batches if asked; keeps the network of the best epoch if asked."""

    def __init__(self, folder: RunFolder, *, every: int | None = None, keep_best: bool = False) -> None:
        self.folder, self.every, self.keep_best = folder, every, keep_best
        self.best_epoch, self.best_error = -1, float("inf")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse what an optimiser was given back for weights of other shapes, which torch would notice at the step."""
        for optimizer in trainer.optimizers:
            for parameter, kept in optimizer.state.items():
                for name, value in kept.items():
                    if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                        shapes = f"{tuple(value.shape)} for weights of {tuple(parameter.shape)}"
                        raise refused_checkpoint(trainer.ckpt_path, f"the optimiser's {name} has the shape {shapes}")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save in mid-epoch; after the last batch the end of the epoch does it, with the validation in it."""
        if self.every and (batch_idx + 1) % self.every == 0 and batch_idx + 1 < trainer.num_training_batches:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save, with the best network so far if that is what counts."""
        if self.keep_best:
            error = float(trainer.callback_metrics["val_error"])
            if error < self.best_error:
                self.best_epoch, self.best_error = trainer.current_epoch, error
                self._write_best(trainer, pl_module)
        self._save(trainer)

    def restore_best(self, pl_module: pl.LightningModule) -> None:
        """Put the best epoch's network in place."""
        path = self.folder.file("best.safetensors")
        try:
            network_of(pl_module).load_state_dict(load(path.read_bytes()))
        except OSError:
            raise
        except Exception as error:
            raise FileFormatError(f"{path}: is not the network of this run: {error}.") from error

    def state_dict(self) -> dict[str, Any]:
        """The best epoch so far."""
        return {"best_epoch": self.best_epoch, "best_error": self.best_error}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self.best_epoch, self.best_error = state_dict["best_epoch"], state_dict["best_error"]

    def _write_best(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            # a copy of each: tied weights share memory, and images' filters lie with their channels last
            weights = {
                name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
                for name, value in network_of(pl_module).state_dict().items()
            }
            write_atomically(self.folder.file("best.safetensors"), save(weights))

    def _save(self, trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(self.folder.file("checkpoints", f"step-{trainer.global_step}.ckpt"))


def network_of(pl_module: pl.LightningModule) -> nn.Module:
    """The network that a module trains."""
    network: nn.Module = pl_module.network  # type: ignore[assignment]
    return network


# What Lightning keeps of a run's state.
_STATE = ("epoch", "global_step", "state_dict", "loops", "callbacks", "optimizer_states", "lr_schedulers")


class WholeCheckpoints(TorchCheckpointIO):
    """Lightning's checkpoints, written by the run's folder and read without unpickling anything but tensors."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write it whole or not at all."""
        self.folder.write_checkpoint(int(checkpoint["global_step"]), checkpoint)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        """Read tensors and plain values only."""
        try:
            state: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True)
        except (OSError, MemoryError):
            raise
        except pickle.UnpicklingError as error:
            raise refused_checkpoint(path, "it holds more than tensors and plain values; nothing was run") from error
        except Exception as error:  # a file that is cut or forged can fail in any way
            raise refused_checkpoint(path, f"it cannot be read: {error or type(error).__name__}") from error
        missing = [name for name in _STATE if not isinstance(state, dict) or name not in state]
        if missing:  # Lightning passes over some of them, and would begin again with the weights of the middle
            raise refused_checkpoint(path, f"it has no {', '.join(missing)}")
        return state


def refused_checkpoint(path: Any, why: str) -> FileFormatError:
    """The error that says why a checkpoint is not loaded, in one line, and how to go on without it."""
    first = " ".join(why.split())[:300].rstrip(". ")
    return FileFormatError(
        f"{path}: is not a checkpoint of this run: {first}. Restore it from a copy, or remove it: the run then goes on "
        "from the one before, or from its start, and the seed makes it the same."
    )
