"""Runs: train a network by a recipe, a method and a seed, then predict, calibrate and measure."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from focalcal.calibrators.files import file_suffix
from focalcal.errors import FileFormatError, InputError, MissingExtraError
from focalcal.files import PredictionTable, write_predictions
from focalcal.losses.validation_bins import ValidationBinsLoss
from focalcal.predictions.distributed import gather_rows
from focalcal.threads import torch_threads
from focalcal_lab.callbacks import Collector, RunCheckpoint, StepSeed, WholeCheckpoints, refused_checkpoint
from focalcal_lab.data import DataSplits
from focalcal_lab.measurement import SplitLogits, measure_all
from focalcal_lab.monitor import MonitorCallback
from focalcal_lab.out_of_distribution import ood_table
from focalcal_lab.recipe import Recipe, require_method
from focalcal_lab.run_folder import RunFolder, RunSettings, TrainerOption
from focalcal_lab.run_results import MeasuredNumber, RunResult, write_result
from focalcal_lab.training_setup import USUAL_BINS, PreparedRun, load_foreign, prepare

Say = Callable[[str], object]
# Lightning's loggers by short names.
LOGGERS = {"csv": "CSVLogger", "tensorboard": "TensorBoardLogger"}


def begin(recipe: Recipe, folder: str | Path, settings: RunSettings) -> RunFolder:
    """Write down what a run is, in a new folder or in that of the same run; `resume` takes it to its end.

    Of several processes the first writes, and the others wait for it.
    """
    require_method(recipe, settings.method)
    place = RunFolder(folder)
    if is_first():
        # sums depend on the number of threads in their last bits
        threads = settings.threads or torch.get_num_threads()
        with place.locked():
            place.begin(recipe, replace(settings, threads=threads))
    for _ in range(600):
        if place.begun:
            break
        time.sleep(0.1)
    return place


def resume(
    folder: str | Path,
    *,
    data: DataSplits | None = None,
    dataset: str | None = None,
    progress_bar: bool = False,
    say: Say = print,
) -> RunResult:
    """Take a run from its last checkpoint, or from its start, to its end; a finished one is only read.

    `data` are those of the run, if they have been loaded already. `dataset` is the user's own code that gives them; a
    run that was begun with it wants it named again, since its folder may come from someone else. The result is
    bit-identical to that of a run that was never interrupted, on the same machine and versions.
    """
    place = RunFolder(folder)
    recipe, settings = place.read()
    if place.finished:
        return place.result()
    check_dataset(place, dataset)
    check_trainer(settings.trainer)
    alone = (place.locked(), place.timed()) if is_first() else ()
    with ExitStack() as stack:
        for context in (*alone, torch_threads(settings.threads or torch.get_num_threads()), _quiet_lightning()):
            stack.enter_context(context)
        prepared = prepare(recipe, settings, data=data, dataset=dataset)
        return _carry_on(place, prepared, progress_bar, say)


def check_dataset(place: RunFolder, dataset: str | None) -> None:
    """Refuse to go on with an unfinished run unless the user names the code that its data come from, and no other."""
    recorded = place.read()[1].dataset
    if place.finished or recorded == dataset:
        return
    if recorded is None:
        raise InputError(f"{place.path}: was begun without --dataset; got {dataset}. Leave the option out.")
    given = "to go on runs it" if dataset is None else f"got {dataset} instead"
    raise InputError(
        f"{place.path}: its data come from the Python code {recorded}; {given}. If you know and trust that code, add "
        f"--dataset {recorded}"
    )


def dry_run(
    recipe: Recipe, method: str, *, seed: int = 0, data: DataSplits | None = None, folder: str | None = None
) -> float:
    """Build the model, take one batch and make one step; returns the loss of the batch."""
    require_method(recipe, method)
    prepared = prepare(recipe, RunSettings(method, seed, recipe.digest(method), data=folder), data=data)
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


def _carry_on(place: RunFolder, prepared: PreparedRun, progress_bar: bool, say: Say) -> RunResult:
    """Train from the last checkpoint, or from the start, and conclude."""
    recipe, settings = prepared.recipe, prepared.settings
    if settings.trainer.get("precision", recipe.training.precision) == "64-true":
        prepared.module.double()  # Lightning would restore the weights in single precision, and widen them then
    bins = getattr(prepared.module.loss, "num_bins", USUAL_BINS)
    if bins < USUAL_BINS and "num_bins" not in recipe.methods[settings.method].options:
        rows = len(prepared.data.val)  # type: ignore[arg-type]
        say(f"{bins} bins instead of {USUAL_BINS}: there are only {rows} validation rows.")
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


def _trainer(prepared: PreparedRun, place: RunFolder, saver: RunCheckpoint, progress_bar: bool) -> pl.Trainer:
    recipe, settings = prepared.recipe, prepared.settings
    callbacks: list[pl.Callback] = [StepSeed(settings.seed), Collector(), saver]
    if recipe.monitor:
        callbacks.append(_monitor(prepared, place))
    options: dict[str, Any] = {str(name): value for name, value in settings.trainer.items()}
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


def _monitor(prepared: PreparedRun, place: RunFolder) -> MonitorCallback:
    """What the papers plot; samples are grouped by the eighths of training in which they were learned."""
    loaders, epochs = prepared.loaders, prepared.recipe.training.epochs
    learned = sorted({0, epochs // 8, epochs // 4, epochs // 2}) if prepared.data.one_row_a_sample else None
    return MonitorCallback(
        place.file("monitor.json"),
        test_loader=loaders.test_dataloader,
        every=int(prepared.recipe.monitor),
        num_bins=prepared.recipe.measurement.num_bins,
        learned=learned,
        index=lambda outputs, batch: torch.tensor(loaders.rows),
    )


def check_trainer(options: Mapping[TrainerOption, int | str]) -> None:
    """Refuse options that Lightning refuses, or a logger that there is not, before anything is written."""
    given: dict[str, Any] = {str(name): value for name, value in options.items()}
    if (name := given.pop("logger", None)) not in (None, *LOGGERS):
        raise InputError(f"logger: must be one of {', '.join(LOGGERS)}; got {name!r}.")
    try:
        with _quiet_lightning():
            pl.Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, **given)
    except (MisconfigurationException, ValueError, TypeError) as error:
        raise InputError(f"trainer: {' '.join(str(error).split())}") from error


def _logger(name: str | None, place: RunFolder) -> Any:
    """One of Lightning's loggers by its name, writing below the run's folder."""
    if name is None:
        return False
    try:
        return getattr(pl.loggers, LOGGERS[name])(str(place.path), name=place.file("logs").name, version="")
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"The {name} logger needs a package of its own: pip install {name}.") from error


def _fit(trainer: pl.Trainer, prepared: PreparedRun, checkpoint: Path | None) -> None:
    try:
        trainer.fit(prepared.module, datamodule=prepared.loaders, ckpt_path=checkpoint)
    except SystemExit as error:
        if error.code == 1:  # what Lightning makes of Ctrl-C
            raise KeyboardInterrupt from error
        raise  # SIGTERM
    except (OSError, MemoryError, FileFormatError):
        raise
    except Exception as error:
        # Until the first batch is asked for, what a checkpoint holds is given back: other weights, missing fields.
        if checkpoint is None or prepared.loaders.started:
            raise
        raise refused_checkpoint(checkpoint, str(error) or type(error).__name__) from error


def _conclude(
    prepared: PreparedRun, place: RunFolder, trainer: pl.Trainer, foreign: dict[str, DataSplits]
) -> RunResult:
    """Predict, calibrate, measure; every file of the run but its result."""
    recipe, settings, data = prepared.recipe, prepared.settings, prepared.data
    rows: list[MeasuredNumber] = []
    extra: dict[str, Any] = {}
    if recipe.task == "translation":
        if trainer.is_global_zero:  # beam search is not shared among processes
            from focalcal_lab.translation.measurement import conclude_translation

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
                calibrator.save(place.file("calibrators", f"{phase}{file_suffix(calibrator)}"))
        rows += _out_of_distribution(prepared, place, trainer, test, rows, foreign)
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


def predict(prepared: PreparedRun, trainer: pl.Trainer, split: Any) -> SplitLogits:
    """The logits and labels of a split in its order, on the CPU, from all processes."""
    loader = prepared.loaders.loader(split, prepared.recipe.training.eval_batch_size)
    trainer.test(prepared.module, loader, verbose=False)
    seen = next(callback for callback in trainer.callbacks if isinstance(callback, Collector))  # type: ignore[attr-defined]
    logits, labels = torch.cat(seen.logits), torch.cat(seen.labels)
    order = gather_rows(torch.tensor([row for rows in loader.batches for row in rows])).argsort()
    return SplitLogits(gather_rows(logits)[order], gather_rows(labels)[order])


def _write_predictions(prepared: PreparedRun, val: SplitLogits, test: SplitLogits, place: RunFolder) -> None:
    loss = prepared.module.loss
    history = loss.history if isinstance(loss, ValidationBinsLoss) else {}
    table = PredictionTable(
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
    prepared: PreparedRun,
    place: RunFolder,
    trainer: pl.Trainer,
    test: SplitLogits,
    rows: list[MeasuredNumber],
    foreign: dict[str, DataSplits],
) -> list[MeasuredNumber]:
    """AUROC of telling the test rows from each set that is out of distribution, at T = 1 and at the fitted T.

    The logits are kept, for `focalcal_lab.out_of_distribution.roc_curve`.
    """
    if not foreign:
        return []
    temperature = next((row.temperature for row in rows if row.phase == "post" and row.temperature), 1.0)
    others = {name: predict(prepared, trainer, data.test).logits for name, data in foreign.items()}
    if trainer.is_global_zero:
        place.file("out_of_distribution").mkdir(exist_ok=True)
        for name, logits in others.items():
            table = PredictionTable(name=name, scores=logits.numpy(), kind="logits", labels=None)
            write_predictions(table, place.file("out_of_distribution", f"{name}.npz"))
    return list(ood_table(test.logits, others, temperature))


def is_first() -> bool:
    """Whether this is the first process, or the one that starts the others."""
    return not getattr(rank_zero_only, "rank", 0)  # Lightning reads it from the environment: torchrun, SLURM, its own


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
