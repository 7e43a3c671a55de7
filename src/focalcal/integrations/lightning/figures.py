"""A callback that logs the reliability diagram of every validation to TensorBoard, Weights & Biases or MLflow."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias, final

import lightning.pytorch as pl
import numpy as np

from focalcal.core.checks import Array, require
from focalcal.drawing import require_matplotlib
from focalcal.errors import InputWarning
from focalcal.integrations.lightning.validation_pass import Outputs, logits_and_labels
from focalcal.metrics import streaming

_IGNORED = -100


@final
class ReliabilityFigureCallback(pl.Callback):
    """Logs the reliability diagram of the validation rows, over all processes, to every logger that can show it.

    These are TensorBoard (among the images), Weights & Biases (among the media) and MLflow (among the artifacts, a file
    for each step). Loggers that cannot show figures, such as `CSVLogger`, are left out; if no logger can, it warns.
    Rows with the label -100 are left out, and so is the sanity check before training. Needs matplotlib:
    `pip install focalcal[plots]`.

    Args:
        name: what the figure is called.
        every: log it after every so many epochs; the first one is always logged.
        num_bins: bins of the diagram.
        outputs: how to read logits and labels from what `validation_step` returned and its batch.

    >>> ReliabilityFigureCallback(every=5).name
    'val/reliability'
    """

    def __init__(
        self,
        name: str = "val/reliability",
        *,
        every: int = 1,
        num_bins: int = 15,
        outputs: Outputs = logits_and_labels,
    ) -> None:
        require(every >= 1, "every", "must be a number of epochs from 1", every)
        self.name, self.every, self.num_bins, self.outputs = name, every, num_bins, outputs
        self._rows: streaming.Everything | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Say before training what would be missing after it."""
        require_matplotlib()
        if stage == "fit" and not any(_way_of(logger) for logger in trainer.loggers):
            said = ", ".join(type(logger).__name__ for logger in trainer.loggers) or "none"
            warnings.warn(
                f"{type(self).__name__}: no logger of the trainer can show figures; it has {said}. Use those of "
                "TensorBoard, Weights & Biases or MLflow.",
                InputWarning,
                stacklevel=2,
            )

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take in the rows of a validation batch."""
        if not self._is_due(trainer) or dataloader_idx > 0:
            return
        logits, labels = self.outputs(outputs, batch)
        if self._rows is None:
            made = streaming.Everything(num_classes=logits.shape[1], num_bins=self.num_bins, ignore_index=_IGNORED)
            self._rows = made.to(logits.device)
        self._rows.update(logits.detach(), labels)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw and log the figure."""
        if self._rows is None or not self._is_due(trainer):
            return
        evaluation, self._rows = self._rows.evaluation(), None
        if trainer.is_global_zero:
            figure = evaluation.plot().figure
            for logger in trainer.loggers:
                way = _way_of(logger)
                if way is not None:
                    way(logger, self.name, figure, trainer.global_step)

    def _is_due(self, trainer: pl.Trainer) -> bool:
        return not trainer.sanity_checking and trainer.current_epoch % self.every == 0


# Logs a matplotlib figure: (logger, name, figure, step).
_Way: TypeAlias = "Callable[[Any, str, Any, int], object]"


def _way_of(logger: Any) -> _Way | None:
    """How a logger takes figures, by what it and its experiment can do; None if it takes none."""
    experiment = logger.experiment
    if hasattr(experiment, "add_figure"):
        return _to_tensorboard
    if hasattr(logger, "log_image"):
        return _to_wandb
    return _to_mlflow if hasattr(experiment, "log_figure") and hasattr(logger, "run_id") else None


def _to_tensorboard(logger: Any, name: str, figure: Any, step: int) -> None:
    logger.experiment.add_figure(name, figure, global_step=step)


def _to_wandb(logger: Any, name: str, figure: Any, step: int) -> None:
    logger.log_image(key=name, images=[_pixels(figure)], step=step)


def _to_mlflow(logger: Any, name: str, figure: Any, step: int) -> None:
    logger.experiment.log_figure(logger.run_id, figure, f"{name}/step_{step:08d}.png")


def _pixels(figure: Any) -> Array:
    """The figure as an image (height, width, 3) of whole numbers from 0 to 255."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels: Array = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    return pixels
