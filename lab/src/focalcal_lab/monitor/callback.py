"""A callback that records, epoch by epoch, what the papers plot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

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
from focalcal.predictions.distributed import is_distributed
from focalcal_lab.monitor.accumulators import IGNORED, LearnedEpochs, NormHistogram, PredictionTally, Record, number
from focalcal_lab.monitor.file import SCHEMA, write_monitor
from focalcal_lab.monitor.records import correspondence_record, gamma_record, split_record

Head: TypeAlias = "nn.Linear | str | Callable[[pl.LightningModule], nn.Linear]"
_SUFFIXES = (".json", ".parquet")


@final
class MonitorCallback(pl.Callback):
    r"""Records per epoch what the papers plot, in memory (`records`) and in a file.

    For training (running over the epoch's steps), validation (the validation loop) and test (a pass of its own): NLL
    and entropy of all, correct and wrong rows, error, the ECE family and the mean norm of the last layer's inputs. Then
    the norm of the last layer's weights, a histogram of its gradient norms per training sample, training against
    validation confidence per bin, gammas with their edges, and largest logits by learned epoch. `read_monitor` reads
    the file.

    The gradient of one sample's loss by the last layer $W h + b$ is $\delta_i [h_i, 1]^\top$, where $\delta_i$ is its
    gradient by the logits, so its norm is $\|\delta_i\| \sqrt{\|h_i\|^2 + 1}$: no second backward pass.

    Args:
        path: where to write after every recorded epoch, `.json` or `.parquet`; None keeps records in memory only.
        test_loader: test batches, or a function that gives them.
        every: record every so many epochs, and the last one.
        num_bins: bins of the calibration errors and of the correspondence.
        gradient_norms: whether to record gradients of the last layer.
        learned: epochs at which groups of learned epochs begin, such as `(0, 50, 100, 200)`; needs `index`.
        outputs: how to read logits and labels from what a step returned and its batch; without it the step returns
            `{"logits": ..., "labels": ...}`.
        forward: how the module gives logits and labels of a test batch; without it a batch is `(inputs, labels)` and
            the module maps inputs to logits.
        head: the last layer: itself, its name, or a function of the module. Without it `network.head` or `head` of the
            module, else its last `nn.Linear` in the order of registration.
        index: how to read the training samples' numbers from what a step returned and its batch; without it the step
            returns them as `"index"`.
        reduction: how the loss puts samples together, which decides the scale of one sample's gradient; without it
            `reduction` of the module's `loss`, else mean.

    The state is part of Lightning's checkpoints, also within an epoch: a resumed run ends with the same file. Under DDP
    rows of all processes count, and the first one writes.

    Source: [mukhoti2020, Fig. 1-4 and 10; ghosh2022, Fig. 2, 3, 5, 8-14 and 34].

    >>> MonitorCallback(every=5).records
    []
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        test_loader: Iterable[Any] | Callable[[], Iterable[Any]] | None = None,
        every: int = 1,
        num_bins: int = 15,
        gradient_norms: bool = True,
        learned: Sequence[int] | None = None,
        outputs: Outputs = logits_and_labels,
        forward: Forward = forward_pair,
        head: Head | None = None,
        index: Callable[[Any, Any], Tensor] | None = None,
        reduction: Literal["mean", "sum"] | None = None,
    ) -> None:
        named = path is None or Path(path).suffix in _SUFFIXES
        require(named, "path", "must end in .json or .parquet", path)
        require(isinstance(every, int) and every >= 1, "every", "must be a number of epochs from 1", every)
        require(num_bins >= 1, "num_bins", "must be at least 1", num_bins, "The papers use 15.")
        require(reduction in (None, "mean", "sum"), "reduction", "must be mean or sum", reduction)
        self.path, self.test_loader, self.every, self.num_bins = path, test_loader, every, num_bins
        self.gradient_norms, self.forward, self.head = gradient_norms, forward, head
        self.outputs = outputs
        self.index, self.reduction = index, reduction
        self.records: list[Record] = []
        self._tallies = {"train": PredictionTally(num_bins), "val": PredictionTally(num_bins)}
        self._norms = {"train": NormHistogram(), "val": NormHistogram(), "gradient": NormHistogram()}
        self._learned = None if learned is None else LearnedEpochs(learned)
        self._used: Record | None = None  # the gammas of the epoch's first step
        self._noted = False  # whether they were looked for
        self._epoch: int | None = None  # the epoch that is under way
        self._loss_scale = 1.0
        self._watch = _HeadWatch()

    # What happens when.

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Watch the last layer."""
        self._watch.attach(find_head(pl_module, self.head), self.gradient_norms)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the last layer alone."""
        self._watch.detach()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Leave the last layer alone also after an error."""
        self._watch.detach()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin with nothing; records of this epoch and later ones belong to an earlier run."""
        self.records = [record for record in self.records if record["epoch"] < trainer.current_epoch]
        self._begin(trainer.current_epoch)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note the gammas that the epoch begins with.

        A run resumed from a checkpoint of an epoch's last batch does not finish that epoch: Lightning goes on in the
        next one, without saying that it starts. Then it is recorded here, without the validation that never was.
        """
        if self._epoch is not None and self._epoch < trainer.current_epoch:
            self._close(trainer, pl_module, self._epoch)
            self._begin(trainer.current_epoch)
        if self._is_recorded(trainer, trainer.current_epoch):
            if not self._noted:
                self._used, self._noted = gamma_record(pl_module), True
            self._watch.begin("train")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take in a training batch; a step that was skipped gives none."""
        features, gradients = self._watch.end()
        if outputs is None or (isinstance(outputs, Mapping) and not outputs):
            return
        recorded = self._is_recorded(trainer, trainer.current_epoch)
        if not recorded and self._learned is None:
            return
        logits, labels = self.outputs(outputs, batch)
        if self._learned is not None:
            self._learned.add(self._index(outputs, batch), logits, labels)
        if recorded:
            self._tallies["train"].add(logits, labels)
            self._norms["train"].add(_counted(features, labels))
            scale = _sample_scale(trainer, pl_module, labels, self.reduction) / self._loss_scale
            self._norms["gradient"].add(_counted(gradients, labels, scale))

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the scale against underflow in float16, which the optimiser's step may change."""
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._loss_scale = 1.0 if scaler is None else float(scaler.get_scale())

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Of several validations in an epoch the last one counts."""
        if self._is_validating(trainer):
            self._tallies["val"].reset()
            self._norms["val"].reset()

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Watch the last layer."""
        if self._is_validating(trainer) and dataloader_idx == 0:
            self._watch.begin("val")

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take in a batch of the first validation loader."""
        features, _ = self._watch.end()
        if self._is_validating(trainer) and dataloader_idx == 0:
            logits, labels = self.outputs(outputs, batch)
            self._tallies["val"].add(logits, labels)
            self._norms["val"].add(_counted(features, labels))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the epoch and write all records; an epoch that a checkpoint has recorded already stays as it is."""
        if self._epoch is not None:
            self._close(trainer, pl_module, self._epoch)
            self._begin(None)

    # The record.

    def _close(self, trainer: pl.Trainer, pl_module: pl.LightningModule, epoch: int) -> None:
        if self._learned is not None:
            self._learned.close(epoch)
        if self._is_recorded(trainer, epoch):
            self.records.append(self._record(trainer, pl_module, epoch))
            if self.path is not None and trainer.is_global_zero:
                write_monitor(self.path, self.records)

    def _begin(self, epoch: int | None) -> None:
        parts: list[PredictionTally | NormHistogram] = [*self._tallies.values(), *self._norms.values()]
        for part in parts:
            part.reset()
        if self._learned is not None:
            self._learned.reset()
        self._used, self._noted, self._epoch = None, False, epoch

    def _record(self, trainer: pl.Trainer, pl_module: pl.LightningModule, epoch: int) -> Record:
        train, val = (self._tallies[name].seen() for name in ("train", "val"))
        features = {name: self._norms[name].record() for name in ("train", "val")}
        layer = find_head(pl_module, self.head)
        return {
            "epoch": epoch,
            "step": trainer.global_step,
            "train": split_record(train, features["train"], num_bins=self.num_bins),
            "val": split_record(val, features["val"], num_bins=self.num_bins),
            "test": self._test_record(trainer, pl_module),
            "head": None if layer is None else _layer_record(layer),
            "gradient": self._norms["gradient"].record(),
            "correspondence": correspondence_record(train, val, num_bins=self.num_bins),
            "gamma": _gammas(self._used, gamma_record(pl_module)),
            "learned": None if self._learned is None else self._learned.record(),
        }

    def _test_record(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> Record | None:
        if self.test_loader is None:
            return None
        tally, norms = PredictionTally(self.num_bins), NormHistogram()
        with evaluating(trainer, pl_module):
            loader: Iterable[Any] = self.test_loader() if callable(self.test_loader) else self.test_loader
            for batch in _share(loader, trainer):
                self._watch.begin("test")
                logits, labels = self.forward(pl_module, moved(batch, trainer, pl_module))
                features, _ = self._watch.end()
                tally.add(logits, labels)
                norms.add(_counted(features, labels))
            return split_record(tally.seen(), norms.record(), num_bins=self.num_bins)

    def _index(self, outputs: Any, batch: Any) -> Tensor:
        if self.index is not None:
            return self.index(outputs, batch)
        if isinstance(outputs, Mapping) and "index" in outputs:
            return torch.as_tensor(outputs["index"])
        raise InputError(
            'learned: needs the number of each training sample; training_step returned no "index". '
            "Return it, or give index=lambda outputs, batch: ..."
        )

    def _is_recorded(self, trainer: pl.Trainer, epoch: int) -> bool:
        return (epoch + 1) % self.every == 0 or epoch + 1 == trainer.max_epochs

    def _is_validating(self, trainer: pl.Trainer) -> bool:
        """Whether this is the validation of an epoch that is recorded, and not one before training or without it."""
        fitting = trainer.state.fn == "fit" and not trainer.sanity_checking
        return fitting and self._epoch is not None and self._is_recorded(trainer, self._epoch)

    # The state.

    def state_dict(self) -> dict[str, Any]:
        """Records, and everything of the epoch that is under way, as tensors and plain values.

        Within an epoch all processes must call it together, as they do when Lightning saves a checkpoint.
        """
        state: dict[str, Any] = {"schema": SCHEMA, "records": list(self.records), "open": None}
        state["learned"] = None if self._learned is None else self._learned.state()
        if self._epoch is not None:
            state["open"] = {
                "epoch": self._epoch,
                "tallies": {name: part.state(reduce=False) for name, part in self._tallies.items()},
                "norms": {name: part.state(reduce=False) for name, part in self._norms.items()},
                "learned": None if self._learned is None else self._learned.rows_state(),
                "used": self._used,
            }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint. Rows that all processes had together are given to the first one."""
        known = state_dict.get("schema") == SCHEMA
        require(known, "checkpoint", f"must have a monitor of schema {SCHEMA}", state_dict.get("schema"))
        self._begin(None)
        self.records = list(state_dict["records"])
        under_way = state_dict["open"]
        mine = under_way is not None and (not is_distributed() or torch.distributed.get_rank() == 0)
        if self._learned is not None and state_dict["learned"] is not None:
            self._learned.load(state_dict["learned"], under_way["learned"] if mine else None)
        if under_way is not None:
            self._epoch, self._used, self._noted = under_way["epoch"], under_way["used"], True
        if mine:
            for parts, name in ((self._tallies, "tallies"), (self._norms, "norms")):
                for key, part in parts.items():
                    part.load(under_way[name][key])


class _HeadWatch:
    """Norms of what goes into a linear layer, and of each row's gradient by its parameters.

    Only between `begin` and `end`; in training only where gradients are taken, so that another callback's evaluation
    pass does not count.
    """

    def __init__(self) -> None:
        self._hook: Any = None
        self._phase = ""
        self._gradients_wanted = False
        self._features: list[Tensor] = []
        self._gradients: list[Tensor] = []

    def attach(self, layer: nn.Linear | None, gradients: bool) -> None:
        self.detach()
        self._gradients_wanted = gradients
        if layer is not None:
            self._hook = layer.register_forward_hook(self._see, with_kwargs=True)

    def detach(self) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook, self._phase = None, ""

    def begin(self, phase: str) -> None:
        self._phase, self._features, self._gradients = phase, [], []

    def end(self) -> tuple[Tensor, Tensor]:
        """NormHistogram (n,) of features, and of gradients as they came."""
        found = tuple(torch.cat(parts) if parts else torch.empty(0) for parts in (self._features, self._gradients))
        self.begin("")
        return found[0], found[1]

    def _see(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        if not self._phase or (self._phase == "train" and not torch.is_grad_enabled()):
            return
        features = (args[0] if args else kwargs["input"]).detach()
        norms = _row_norms(features)
        self._features.append(norms)
        if self._phase == "train" and self._gradients_wanted and output.requires_grad:
            reach = norms if layer.bias is None else torch.sqrt(norms.square() + 1)
            output.register_hook(partial(self._see_gradient, reach))

    def _see_gradient(self, reach: Tensor, gradient: Tensor) -> None:
        self._gradients.append(_row_norms(gradient.detach()) * reach)


def _row_norms(rows: Tensor) -> Tensor:
    """The L2 norms of the last dimension, one per row; half precision would overflow at 256."""
    wide = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    norms: Tensor = torch.linalg.vector_norm(wide.reshape(-1, wide.shape[-1]), dim=1)
    return norms


def _counted(norms: Tensor, labels: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """The norms, scaled, with -1 for ignored rows where there is a norm for every label."""
    norms = norms * scale
    flat = labels.reshape(-1)
    return torch.where(flat.to(norms.device) == IGNORED, -1.0, norms) if len(flat) == len(norms) else norms


def find_head(module: nn.Module, head: Head | None = None) -> nn.Linear | None:
    """The last layer of a module: the one that is named, `network.head`, `head`, or the last linear one; None without.

    >>> find_head(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    Linear(in_features=3, out_features=2, bias=True)
    """
    if head is not None:
        given: Any = module.get_submodule(head) if isinstance(head, str) else head
        given = given if isinstance(given, nn.Module) else given(module)
        require(isinstance(given, nn.Linear), "head", "must be an nn.Linear", type(given).__name__)
        layer: nn.Linear = given
        return layer
    for owner in (getattr(module, "network", None), module):
        named = getattr(owner, "head", None)
        if isinstance(named, nn.Linear):
            return named
    return next((part for part in reversed(list(module.modules())) if isinstance(part, nn.Linear)), None)


def _layer_record(layer: nn.Linear) -> Record:
    return {
        "weight_norm": number(layer.weight.detach().cpu().double().norm()),
        "bias_norm": None if layer.bias is None else number(layer.bias.detach().cpu().double().norm()),
    }


def _gammas(used: Record | None, now: Record | None) -> Record | None:
    return None if used is None and now is None else {"used": used, "next": now}


def _sample_scale(
    trainer: pl.Trainer, module: pl.LightningModule, labels: Tensor, reduction: str | None
) -> Tensor | float:
    """What a row's part of the gradient is multiplied by to be the gradient of its own loss.

    Undoes, in turn, the mean over the batch, the split of an optimiser step into several batches, and the weight that
    `CalibratedClassifier` gives the share of a process.
    """
    loss = getattr(module, "loss", None)
    summed = getattr(loss, "reduction", "mean") == "sum" or bool(getattr(loss, "batch_scale", False))
    reduction = reduction or ("sum" if summed else "mean")
    scale: Any = (labels != IGNORED).sum() if reduction == "mean" else 1.0
    if module.automatic_optimization:
        scale = scale * trainer.accumulate_grad_batches
    found: Tensor | float = scale / getattr(module, "share", 1.0)
    return found


def _share(loader: Iterable[Any], trainer: pl.Trainer) -> Iterable[Any]:
    """This process's part of the batches: all that its loader gives if that has been split already, else every n-th."""
    if trainer.world_size == 1 or _is_split(loader):
        return loader
    return islice(loader, trainer.global_rank, None, trainer.world_size)


def _is_split(loader: Any) -> bool:
    samplers = [getattr(loader, name, None) for name in ("sampler", "batch_sampler")]
    samplers += [getattr(sampler, "sampler", None) for sampler in samplers]
    return any(max(getattr(each, "num_replicas", 1), getattr(each, "world", 1)) > 1 for each in samplers)
