"""Runs: a recipe, a method and a seed become a trained network, its predictions, calibrators and numbers."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from focalcal.calibrators.files import file_suffix
from focalcal.core.gather import gather_rows
from focalcal.errors import InputError
from focalcal.integrations.lightning import CalibratedClassifier, MonitorCallback
from focalcal.lab.callbacks import Collector, RunCheckpoint, StepSeed, WholeCheckpoints
from focalcal.lab.data import Data, load_data
from focalcal.lab.folder import RunFolder, Settings
from focalcal.lab.loader import LabData
from focalcal.lab.measure import Rows, measure_all
from focalcal.lab.models import make_model
from focalcal.lab.ood import ood_table
from focalcal.lab.recipe import Method, Recipe, Training
from focalcal.lab.results import Measured, RunResult, write_result
from focalcal.losses.named import make_loss
from focalcal.losses.validation_bins import ValidationBinsLoss
from focalcal.streams import Table, write_predictions

Say = Callable[[str], object]


@dataclass(frozen=True)
class Prepared:
    """A run before its first step: the data, the module to train, and how both came about."""

    recipe: Recipe
    settings: Settings
    data: Data
    loaders: LabData
    module: CalibratedClassifier


def begin(recipe: Recipe, folder: str | Path, settings: Settings) -> RunFolder:
    """Write down what a run is, in a new folder; `resume` takes it to its end.

    Only the first of several processes writes.
    """
    require_method(recipe, settings.method)
    place = RunFolder(folder)
    if is_first():
        with place.locked():
            place.begin(recipe, settings)
    return place


def resume(folder: str | Path, *, progress_bar: bool = False, say: Say = print) -> RunResult:
    """Take a run from its last checkpoint, or from its start, to its end; a finished one is only read.

    The result is bit-identical to that of a run that was never interrupted, on the same machine and versions.
    """
    place = RunFolder(folder)
    recipe, settings = place.read()
    if place.finished:
        return place.result()
    with place.locked() if is_first() else nullcontext():
        return _carry_on(place, recipe, settings, progress_bar, say)


def dry_run(
    recipe: Recipe, method: str, *, seed: int = 0, data: Data | None = None, folder: str | None = None
) -> float:
    """Build the model, take one batch and make one step; returns the loss of the batch."""
    require_method(recipe, method)
    prepared = prepare(recipe, Settings(method, seed, recipe.digest(), data=folder), data=data)
    module = prepared.module.train()
    batch = next(iter(prepared.loaders.train_dataloader()))
    optimizer = module.make_optimizer(module.parameters())
    torch.manual_seed(seed)
    loss: Tensor = module.training_step(batch, 0)["loss"]
    loss.backward()
    if recipe.training.clip_norm:
        torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.training.clip_norm)
    optimizer.step()
    value = float(loss.detach())
    if not math.isfinite(value):
        raise InputError(f"{recipe.name}: the loss of the first batch is {value}.")
    return value


def prepare(recipe: Recipe, settings: Settings, *, data: Data | None = None) -> Prepared:
    """The data and the module of a run; the seed fixes the split and the first weights."""
    method, training = recipe.methods[settings.method], recipe.training
    data = data or load_for(recipe, settings.data, settings.seed)
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
    return Prepared(recipe, settings, data, loaders, module)


def method_options(method: Method, num_val: int) -> dict[str, Any]:
    """The options of a loss; one of validation bins gets fewer than the usual 15 where rows are few, five rows each.

    >>> method_options(Method(loss="adafocal"), num_val=30)
    {'num_bins': 6}
    """
    steered = method.loss.startswith(("adafocal", "calfocal"))
    if not steered or "num_bins" in method.options or num_val >= 5 * 15:
        return method.options
    return {**method.options, "num_bins": max(1, num_val // 5)}


def load_for(recipe: Recipe, folder: str | None, seed: int) -> Data:
    """The data of a recipe."""
    return load_data(recipe.data.name, folder, seed=seed, **recipe.data.options)


def load_foreign(recipe: Recipe, folder: str | None, seed: int) -> dict[str, Data]:
    """The sets of a recipe that are out of distribution."""
    return {
        wish.name: load_data(wish.data.name, folder, seed=seed, **wish.data.options)
        for wish in recipe.measurement.out_of_distribution
    }


def make_network(recipe: Recipe, data: Data) -> nn.Module:
    """The network of a recipe, with weights drawn from torch's generator."""
    network = make_model(recipe.model.name, data.num_classes, data.facts, **recipe.model.options)
    return network.to(memory_format=torch.channels_last) if _has_images(data) else network  # type: ignore[call-overload]


def _has_images(data: Data) -> bool:
    return "channels" in data.facts


def _prepared_images(data: Data) -> Callable[[Tensor], Tensor]:
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


def _carry_on(place: RunFolder, recipe: Recipe, settings: Settings, progress_bar: bool, say: Say) -> RunResult:
    """Train from the last checkpoint, or from the start, and conclude."""
    method = recipe.methods[settings.method]
    with _threads(settings.threads), _quiet_lightning():
        prepared = prepare(recipe, settings)
        if (bins := getattr(prepared.module.loss, "num_bins", 15)) < 15 and "num_bins" not in method.options:
            say(f"{bins} bins instead of 15: there are only {len(prepared.data.val)} validation rows.")  # type: ignore[arg-type]
        foreign = load_foreign(recipe, settings.data, settings.seed)  # what is missing is said before hours of training
        checkpoint, damaged = place.newest_checkpoint()
        for path in damaged:
            say(f"{path} is damaged; going on from {checkpoint}.")
        saver = RunCheckpoint(place, every=settings.checkpoint_every, keep_best=recipe.training.select == "best")
        trainer = _trainer(prepared, place, saver, progress_bar)
        _fit(trainer, prepared, checkpoint)
        if saver.keep_best:
            saver.restore_best(prepared.module)
        result = _conclude(prepared, place, trainer, foreign)
    if trainer.is_global_zero:
        write_result(result, place.file("results.json"))
    return result


def _trainer(prepared: Prepared, place: RunFolder, saver: RunCheckpoint, progress_bar: bool) -> pl.Trainer:
    recipe, settings = prepared.recipe, prepared.settings
    callbacks: list[pl.Callback] = [StepSeed(settings.seed), Collector(), saver]
    if recipe.monitor:
        callbacks.append(_monitor(prepared, place))
    options = dict(settings.trainer)
    if progress_bar:
        from lightning.pytorch.callbacks import RichProgressBar

        callbacks.append(RichProgressBar(console_kwargs={"stderr": True}))
    return pl.Trainer(
        default_root_dir=place.path,
        max_epochs=recipe.training.epochs,
        gradient_clip_val=recipe.training.clip_norm,
        callbacks=callbacks,
        plugins=[WholeCheckpoints(place)],
        logger=_logger(options.pop("logger", None), place),
        use_distributed_sampler=False,  # the loaders share rows among processes, and repeat none
        num_sanity_val_steps=0,
        enable_model_summary=False,
        enable_progress_bar=progress_bar,
        **{"accelerator": "auto", "precision": recipe.training.precision, **options},
    )


def _monitor(prepared: Prepared, place: RunFolder) -> MonitorCallback:
    """What the papers plot; samples are grouped by the eighths of training in which they were learned."""
    loaders, epochs = prepared.loaders, prepared.recipe.training.epochs
    learned = sorted({0, epochs // 8, epochs // 4, epochs // 2}) if prepared.data.one_row_a_sample else None
    return MonitorCallback(
        place.file("monitor.json"),
        test_loader=loaders.test_dataloader,
        num_bins=prepared.recipe.measurement.num_bins,
        learned=learned,
        index=lambda outputs, batch: torch.tensor(loaders.rows),
    )


def _logger(name: str | None, place: RunFolder) -> Any:
    """One of Lightning's loggers by its name, writing below the run's folder."""
    from lightning.pytorch import loggers

    kinds = {"csv": loggers.CSVLogger, "tensorboard": loggers.TensorBoardLogger}
    if name is None:
        return False
    if name not in kinds:
        raise InputError(f"logger: must be one of {', '.join(kinds)}; got {name!r}.")
    return kinds[name](str(place.path), name="logs", version="")


def _fit(trainer: pl.Trainer, prepared: Prepared, checkpoint: Path | None) -> None:
    try:
        trainer.fit(prepared.module, datamodule=prepared.loaders, ckpt_path=checkpoint, weights_only=True)
    except SystemExit as error:  # what Lightning makes of Ctrl-C
        raise KeyboardInterrupt from error


def _conclude(prepared: Prepared, place: RunFolder, trainer: pl.Trainer, foreign: dict[str, Data]) -> RunResult:
    """Predict, calibrate, measure; every file of the run but its result."""
    recipe, settings, data = prepared.recipe, prepared.settings, prepared.data
    rows: list[Measured] = []
    extra: dict[str, Any] = {}
    if recipe.task == "translation":
        if trainer.is_global_zero:  # beam search is not shared among processes
            from focalcal.lab.translation.measure import conclude_translation

            device = trainer.strategy.root_device  # Lightning leaves the network on the CPU
            rows, extra = conclude_translation(prepared.module.network.to(device), data, recipe, place.path, device)
    else:
        val, test = (predict(prepared, trainer, split) for split in (data.val, data.test))
        rows, fitted, refused = measure_all(val, test, recipe.measurement, prepared.module.loss)
        extra = {"not_fitted": refused} if refused else {}
        if trainer.is_global_zero:
            _write_predictions(prepared, val, test, place)
            place.file("calibrators").mkdir(exist_ok=True)
            for phase, calibrator in fitted.items():
                calibrator.save(place.file("calibrators") / f"{phase}{file_suffix(calibrator)}")
        rows += _out_of_distribution(prepared, trainer, test, rows, foreign)
    return RunResult(
        recipe=recipe.name,
        method=settings.method,
        seed=settings.seed,
        epochs=recipe.training.epochs,
        digest=settings.digest,
        data=data.about,
        num_train=getattr(data.train, "num_pairs", len(data.train)),  # type: ignore[arg-type]
        num_val=len(data.val),  # type: ignore[arg-type]
        num_test=len(data.test),  # type: ignore[arg-type]
        rows=rows,
        extra=extra,
    )


def predict(prepared: Prepared, trainer: pl.Trainer, split: Any) -> Rows:
    """The logits and labels of a split in its order, on the CPU, from all processes."""
    loader = prepared.loaders.loader(split, prepared.recipe.training.eval_batch_size)
    trainer.test(prepared.module, loader, verbose=False)
    seen = next(callback for callback in trainer.callbacks if isinstance(callback, Collector))  # type: ignore[attr-defined]
    logits, labels = torch.cat(seen.logits), torch.cat(seen.labels)
    order = gather_rows(torch.tensor([row for rows in loader.batches for row in rows])).argsort()
    return Rows(gather_rows(logits)[order], gather_rows(labels)[order])


def _write_predictions(prepared: Prepared, val: Rows, test: Rows, place: RunFolder) -> None:
    loss = prepared.module.loss
    history = loss.history if isinstance(loss, ValidationBinsLoss) else {}
    table = Table(
        name=f"{prepared.recipe.name}, {prepared.settings.method}",
        scores=torch.cat([val.logits, test.logits]).numpy(),
        kind="logits",
        labels=torch.cat([val.labels, test.labels]).numpy(),
        split=np.repeat(["val", "test"], [len(val.labels), len(test.labels)]),
        class_names=prepared.data.class_names,
        history={name: values.numpy() for name, values in history.items()},
    )
    write_predictions(table, place.file("predictions.npz"))


def _out_of_distribution(
    prepared: Prepared, trainer: pl.Trainer, test: Rows, rows: list[Measured], foreign: dict[str, Data]
) -> list[Measured]:
    """AUROC of telling the test rows from each set that is out of distribution, at T = 1 and at the fitted T."""
    if not foreign:
        return []
    temperature = next((row.temperature for row in rows if row.phase == "post" and row.temperature), 1.0)
    others = {name: predict(prepared, trainer, data.test).logits for name, data in foreign.items()}
    return list(ood_table(test.logits, others, temperature))


def shortened(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe with another number of epochs, its milestones at the same shares; it is another recipe then."""
    share = epochs / recipe.training.epochs
    stones = sorted({round(stone * share) for stone in recipe.training.milestones} - {0, epochs})
    training = recipe.training.model_copy(update={"epochs": epochs, "milestones": stones})
    return recipe.model_copy(update={"training": training})


def require_method(recipe: Recipe, method: str) -> None:
    """Refuse a method that the recipe does not have."""
    if method not in recipe.methods:
        raise InputError(f"method: {recipe.name} has {', '.join(recipe.methods)}; got {method!r}.")


def is_first() -> bool:
    """Whether this is the first process, or the one that starts the others."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """A fixed number of threads: sums depend on it in their last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Without Lightning's advice, which is for those who wrote the loop."""
    names = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
