"""Set up a run before its first step: data, network, loss, optimiser and schedule, as the recipe says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from focalcal.core.checks import require
from focalcal.integrations.lightning import CalibratedClassifier
from focalcal.losses.table import make_loss
from focalcal_lab.data import DataSplits, load_data
from focalcal_lab.data.user_dataset import import_dataset
from focalcal_lab.models import make_model
from focalcal_lab.recipe import Method, Recipe, Training
from focalcal_lab.run_folder import RunSettings
from focalcal_lab.seeded_loader import LabData

# Validation bins of AdaFocal and CalFocal, and how many rows each should have.
USUAL_BINS, ROWS_A_BIN = 15, 5


@dataclass(frozen=True)
class PreparedRun:
    """A run before its first step: the data, the module to train, and how both came about."""

    recipe: Recipe
    settings: RunSettings
    data: DataSplits
    loaders: LabData
    module: CalibratedClassifier


def prepare(
    recipe: Recipe, settings: RunSettings, *, data: DataSplits | None = None, dataset: str | None = None
) -> PreparedRun:
    """The data and the module of a run; the seed fixes the split and the first weights.

    `dataset` is what the user named on the command line: the name in `settings`, which may come from a file, is not
    imported.
    """
    method, training = recipe.methods[settings.method], recipe.training
    data = data or load_for(recipe, settings.data, settings.seed, dataset)
    torch.manual_seed(settings.seed)
    network = make_network(recipe, data)
    loss = make_loss(method.loss, reduction=training.reduction, **method_options(method, len(data.val)))  # type: ignore[arg-type]
    loaders = LabData(
        data,
        batch_size=training.batch_size,
        eval_batch_size=training.eval_batch_size,
        seed=settings.seed,
        workers=training.workers,
    )
    module = CalibratedClassifier(
        network,
        loss,
        optimizer=lambda parameters: make_optimizer(training, parameters),
        schedule=lambda optimizer: make_schedule(training, optimizer, loaders.num_batches),
        every=method.every,
        augment=data.augment,
        prepare=_prepared_images(data) if _has_images(data) else data.prepare,
        num_bins=recipe.measurement.num_bins,
    )
    return PreparedRun(recipe, settings, data, loaders, module)


def method_options(method: Method, num_val: int) -> dict[str, Any]:
    """The options of a loss; one of validation bins gets fewer than the usual 15 where rows are few, five rows each.

    >>> method_options(Method(loss="adafocal"), num_val=30)
    {'num_bins': 6}
    """
    steered = method.loss.startswith(("adafocal", "calfocal"))
    if not steered or "num_bins" in method.options or num_val >= USUAL_BINS * ROWS_A_BIN:
        return method.options
    return {**method.options, "num_bins": max(1, num_val // ROWS_A_BIN)}


def load_for(recipe: Recipe, folder: str | None, seed: int, dataset: str | None = None) -> DataSplits:
    """The data of a recipe; `dataset` is the user's own code, which must have been named on the command line."""
    options = recipe.data.options
    if dataset is not None:
        rule = "is for recipes whose data are `own`"
        require(recipe.data.name == "own", "--dataset", rule, f"{recipe.name} with {recipe.data.name}")
        options = {**options, "dataset": import_dataset(dataset)}
    return load_data(recipe.data.name, folder, seed=seed, **options)


def load_foreign(recipe: Recipe, folder: str | None, seed: int) -> dict[str, DataSplits]:
    """The sets of a recipe that are out of distribution."""
    return {
        wish.name: load_data(wish.data.name, folder, seed=seed, **wish.data.options)
        for wish in recipe.measurement.out_of_distribution
    }


def make_network(recipe: Recipe, data: DataSplits) -> nn.Module:
    """The network of a recipe, with weights drawn from torch's generator."""
    network = make_model(recipe.model.name, data.num_classes, data.facts, **recipe.model.options)
    return network.to(memory_format=torch.channels_last) if _has_images(data) else network  # type: ignore[call-overload]


def _has_images(data: DataSplits) -> bool:
    return "channels" in data.facts


def _prepared_images(data: DataSplits) -> Callable[[Tensor], Tensor]:
    """Images with the channels last in memory: a training step of ResNet-8 takes three quarters of the time."""

    def prepare(images: Tensor) -> Tensor:
        ready: Tensor = images if data.prepare is None else data.prepare(images)
        return ready.contiguous(memory_format=torch.channels_last)

    return prepare


def make_optimizer(training: Training, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The optimiser of a recipe."""
    wish = training.optimizer
    shared: dict[str, Any] = {"lr": wish.lr, "weight_decay": wish.weight_decay}
    match wish.name:
        case "sgd":
            return torch.optim.SGD(parameters, momentum=wish.momentum, **shared)
        case "adagrad":
            return torch.optim.Adagrad(parameters, **shared)
        case "adam":
            return torch.optim.Adam(parameters, betas=wish.betas, **shared)
        case "adamw":
            return torch.optim.AdamW(parameters, betas=wish.betas, **shared)


def make_schedule(training: Training, optimizer: Optimizer, batches: int) -> LambdaLR:
    """The learning rate of every step: `lr_factor` at each milestone after a linear warm-up, or that of Vaswani et al.

    >>> training = Training(epochs=3, batch_size=1, optimizer={"name": "sgd", "lr": 1.0}, milestones=[1, 2], warmup=0.5)
    >>> schedule = make_schedule(training, make_optimizer(training, nn.Linear(1, 1).parameters()), batches=4)
    >>> [round(schedule.lr_lambdas[0](step), 3) for step in (0, 1, 2, 4, 8)]
    [0.5, 1.0, 1.0, 0.1, 0.01]
    """
    warmup = training.warmup_steps or round(training.warmup * batches)

    def steps(step: int) -> float:
        rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
        return float(rise * training.lr_factor ** sum(step >= stone * batches for stone in training.milestones))

    def noam(step: int) -> float:
        return float(min((step + 1) ** -0.5, (step + 1) * max(1, warmup) ** -1.5))

    return LambdaLR(optimizer, noam if training.schedule == "noam" else steps)


def shortened(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe with another number of epochs, its milestones at the same shares; it is another recipe then."""
    share = epochs / recipe.training.epochs
    stones = sorted({round(stone * share) for stone in recipe.training.milestones} - {0, epochs})
    training = recipe.training.model_copy(update={"epochs": epochs, "milestones": stones})
    return recipe.model_copy(update={"training": training})
