"""Hugging Face `Trainer`: losses of focalcal, large vocabularies without their logits, and calibration measures.

    metrics = CalibrationMetrics()
    Trainer(
        model,
        compute_loss_func=compute_loss_func("flsd-53"),
        compute_metrics=metrics.compute_metrics,
        preprocess_logits_for_metrics=metrics.preprocess_logits_for_metrics,
        ...
    )

Nothing here imports transformers: `Trainer` calls these objects, and what it gives them are tensors.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from focalcal.core.checks import Array, require
from focalcal.core.focal import wide_dtype
from focalcal.losses.brier import BrierLoss
from focalcal.losses.focal import FocalLoss
from focalcal.losses.gamma import ScheduledGamma
from focalcal.losses.linear import LinearFocalLoss
from focalcal.losses.mmce import MMCELoss
from focalcal.losses.table import make_loss
from focalcal.losses.validation_bins import ValidationBinsLoss
from focalcal.metrics import MEASURES, read
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.metrics.prediction_set import COLUMNS
from focalcal.predictions.model_outputs import IGNORED, Read, is_shifted, logits_in, next_labels, require_places

__all__ = ["CalibrationMetrics", "LossUpdateCallback", "TrainerLoss", "compute_loss_func"]

# What makes a causal language model give its hidden states and next to no logits.
_HIDDEN_STATES = {"output_hidden_states": True, "logits_to_keep": 1, "return_dict": True}
# The measures that are reported unless others are named.
_USUAL = ("accuracy", "nll", "brier", "ece", "ada_ece", "smooth_ece")
# bfloat16 rounds at 0.4 %; the scales and softcaps of published models change logits by far more.
_ROUNDING = 0.03


def compute_loss_func(
    loss: str | nn.Module = "fl-3", *, shift: bool | None = None, model: nn.Module | None = None, **options: Any
) -> TrainerLoss:
    r"""A loss for `Trainer(compute_loss_func=...)`.

    $$ \frac{1}{M} \sum_n \ell(x_n, y_n) $$

    where $x_n$ are the rows of logits (N, K) or (batch, time, K) whose label is not -100, and $M$ is the
    `num_items_in_batch` that `Trainer` counts over all steps of gradient accumulation and all devices. So neither
    changes the loss or its gradient. Where none is given, $M$ is the number of rows.

    Args:
        loss: a name of `focalcal.losses.table` with its `options`, or a module with `reduction="sum"`. Class weights
            are not divided out. MMCE belongs to a batch: with several per step it is their mean, weighted by rows.
        shift: whether the labels of logits (batch, time, K) are one step ahead. None goes by the class of the model's
            output: causal language models (`...CausalLMOutput...`) are shifted; token classifiers, masked and
            encoder-decoder language models are not; any other is refused until you say.
        model: for `LinearFocalLoss` only, the causal language model that `Trainer` trains: see below.

    `compute_loss_func(LinearFocalLoss(1.0, reduction="sum"), model=model)` trains without ever holding the logits of
    all tokens. A hook on the model makes every forward pass in training mode without `labels` ask for the last
    position's logits only (`logits_to_keep=1`) and for its hidden states, from which the loss goes through the output
    layer chunk by chunk. Evaluation, `generate` and `save_pretrained` are as ever; `remove` takes the hook off. The
    output layer must be all that is between the last hidden states and the logits; a few tokens are sent through
    the model to make sure. It works under DDP, but not where weights are split over devices (FSDP, ZeRO-3).

    >>> outputs = {"logits": torch.tensor([[2.0, 0.0], [0.0, 3.0]])}
    >>> compute_loss_func("fl-3")(outputs, torch.tensor([0, -100]), num_items_in_batch=4)
    tensor(5.3747e-05)
    """
    made = _summed_loss(loss, options)
    if not isinstance(made, LinearFocalLoss):
        require(model is None, "model", "is for LinearFocalLoss only", type(made).__name__)
        return TrainerLoss(made, shift)
    fix = "Pass model=model, the one that Trainer trains."
    require(model is not None, "model", "must be given for LinearFocalLoss, which needs its output layer", "None", fix)
    assert model is not None
    return _HiddenStatesLoss(made, shift, model)


class TrainerLoss:
    """A loss as `Trainer` calls it; made by `compute_loss_func`. `loss` is the module inside.

    >>> loss = compute_loss_func("fl-3")
    >>> isinstance(loss, TrainerLoss), loss.loss
    (True, FocalLoss(gamma=3.0, reduction='sum'))
    >>> loss({"logits": torch.tensor([[2.0, 0.0]])}, torch.tensor([0]))
    tensor(0.0002)
    """

    def __init__(self, loss: nn.Module, shift: bool | None) -> None:
        self.loss, self.shift = loss, shift

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of a batch: a sum over its rows, divided by the items of all batches of the step."""
        logits = _logits_of(outputs)
        targets = _targets(labels, logits, is_shifted(self.shift, logits, outputs))
        total = self._total(outputs, logits, targets)
        items = (targets != IGNORED).sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
        # Under DataParallel the count comes once for each device, which by Trainer's arithmetic calls for their sum.
        return total / items.sum().to(total.device).clamp_min(1)

    def _total(self, outputs: Any, logits: Tensor, targets: Tensor) -> Tensor:
        """The sum of the rows' losses."""
        return _of_rows(self.loss, logits, targets)

    def remove(self) -> None:
        """Leave the model as it was before; only `LinearFocalLoss` has something to undo."""


@final
class _HiddenStatesLoss(TrainerLoss):
    """The loss through the output layer; see `compute_loss_func`."""

    def __init__(self, loss: LinearFocalLoss, shift: bool | None, model: Any) -> None:
        super().__init__(loss, shift)
        _require_plain_head(model)
        assert loss.gamma is not None  # only a loss with a gamma for each class has none
        self._model = model
        # Outside training the model gives its logits; the policy is shared, so that set_epoch reaches both.
        self._of_logits = FocalLoss(loss.gamma, reduction="sum")
        self._hook = model.register_forward_pre_hook(_ask_for_hidden_states, with_kwargs=True)

    def _total(self, outputs: Any, logits: Tensor, targets: Tensor) -> Tensor:
        if not self._model.training:
            return _of_rows(self._of_logits, logits, targets)
        states = outputs.get("hidden_states")
        fix = "Make the loss with the model that Trainer trains; after remove, make it again."
        require(states is not None, "model", "must give its hidden states", "none", fix)
        head = self._model.get_output_embeddings()
        # Trainer turns half-precision outputs into float32, whatever the layer has.
        total: Tensor = self.loss(states[-1].to(head.weight.dtype), head.weight, targets, head.bias)
        return total

    def remove(self) -> None:
        self._hook.remove()


def _ask_for_hidden_states(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """A model's forward pre-hook; a caller who gives labels wants the model's own loss, which takes all logits."""
    if not module.training or kwargs.get("labels") is not None:
        return None
    return args, {**kwargs, **_HIDDEN_STATES}


@torch.no_grad()
def _require_plain_head(model: Any) -> None:
    """Refuse a model whose logits are anything but a linear layer of its last hidden states."""
    fix = 'Use compute_loss_func("fl-1"), which takes the logits as the model gives them.'
    name = type(model).__name__
    head: Any = model.get_output_embeddings() if hasattr(model, "config") else None
    rule = "must be a causal language model whose get_output_embeddings() is a plain nn.Linear"
    plain = type(head) is nn.Linear and not getattr(model.config, "is_encoder_decoder", False)
    require(plain, "model", rule, f"{name} with {type(head).__name__}", fix)
    states, entered, logits = _look_at_head(model, head)
    rule = "must give the output layer of its last hidden states as logits, and of one position if asked for one"
    plain = _agree(states[:, -1:], entered) and _agree(logits, head(_probe_like(entered)))
    require(plain, "model", rule, f"other logits from {name}", fix)


def _look_at_head(model: Any, head: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
    """Of some tokens: the last hidden states, what enters the output layer, and the logits if `_probe_like` does."""
    entered: list[Tensor] = []

    def exchange(_: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        entered.append(args[0])
        return _probe_like(args[0])

    tokens = torch.arange(min(8, head.out_features), device=head.weight.device).unsqueeze(0)
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        with head.register_forward_pre_hook(exchange):
            outputs = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), **_HIDDEN_STATES)
    finally:
        for part, training in modes.items():
            part.training = training
    return outputs["hidden_states"][-1], entered[-1], outputs["logits"]


def _probe_like(states: Tensor) -> Tensor:
    """Hidden states that lead to logits so large that a softcap, which leaves small ones alone, shows itself."""
    return torch.linspace(-1000, 1000, states.shape[-1]).to(states).expand_as(states)


def _agree(found: Tensor, expected: Tensor) -> bool:
    """Whether they are the same up to the rounding of half precision."""
    if found.shape != expected.shape:
        return False
    found, expected = found.float(), expected.float()
    return float((found - expected).abs().max()) <= _ROUNDING * float(expected.abs().max())


def _summed_loss(loss: str | nn.Module, options: Mapping[str, Any]) -> nn.Module:
    """A loss that is a sum over rows, and that nobody has to steer if nobody can."""
    if isinstance(loss, str):
        # By its name it would be a mean, as in the released code.
        brier = loss.lower() == "brier"
        made = BrierLoss(reduction="sum", **options) if brier else make_loss(loss, reduction="sum", **options)
        steered = isinstance(made, ValidationBinsLoss) or _schedule(made) is not None
        fix = "Pass the module with reduction='sum', and callbacks=[LossUpdateCallback(loss)] to Trainer."
        require(not steered, "loss", "must not need validation data or the epoch, which a loss is not told", loss, fix)
    else:
        require(not options, "options", "are for a loss given by its name", ", ".join(options))
        made = loss
    fix = "It is divided by the items that Trainer counts over all steps of gradient accumulation."
    require(_sums_rows(made), "loss", 'must have reduction="sum" (MMCELoss: batch_scale=True)', made, fix)
    index = getattr(made, "ignore_index", IGNORED)
    require(index == IGNORED, "ignore_index", f"must be {IGNORED}, which Trainer does not count", index)
    return made


def _sums_rows(loss: nn.Module) -> bool:
    if isinstance(loss, MMCELoss):
        return loss.batch_scale and _sums_rows(loss.base)
    return getattr(loss, "reduction", None) == "sum"


def _logits_of(outputs: Any) -> Tensor:
    """The logits among a model's outputs, in a shape that Trainer has."""
    logits = logits_in(outputs)
    shape = tuple(logits.shape)
    require(len(shape) in (2, 3), "logits", "must have shape (N, K) or (batch, time, K)", shape)
    return logits


def _targets(labels: Any, logits: Tensor, shift: bool) -> Tensor:
    """The label of each position; of the last one there is none if they are one step ahead."""
    given, fix = isinstance(labels, Tensor) and not labels.is_floating_point(), 'The collator must give "labels".'
    got = getattr(labels, "dtype", type(labels).__name__)
    require(given, "labels", "must be a tensor of class numbers", got, fix)
    near: Tensor = labels.to(logits.device)
    return next_labels(near) if shift else near


def _of_rows(loss: nn.Module, logits: Tensor, targets: Tensor) -> Tensor:
    require_places(targets, logits)
    total: Tensor = loss(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
    return total


@final
class CalibrationMetrics:
    """Calibration measures for the evaluation of `Trainer`, which never gathers logits.

    Give it both methods, `preprocess_logits_for_metrics` and `compute_metrics`. The first reduces the logits of a batch
    to six numbers a row, from which the second gets the values of `focalcal.evaluate` on all logits. These numbers are
    what `Trainer` keeps and exchanges between processes, and where it drops rows that only filled up the last batch.

    Args:
        measures: what to report, by any names: functions of rows as `focalcal.metrics.read` gives them, such as those
            of `focalcal.metrics`. Accuracy, NLL, Brier score, ECE, adaptive and smooth ECE unless given.
        shift: whether labels of logits (batch, time, K) are one step ahead: True for causal language models, False for
            token classifiers. None goes by the class of the model's output, as `compute_loss_func` does.
        model: the model, which says what it returns. Trainer gives the metrics only a tensor, so without the model such
            logits are refused until you say `shift`.

    >>> from focalcal.metrics import accuracy, ece
    >>> metrics = CalibrationMetrics({"accuracy": accuracy, "ece": ece})
    >>> rows = metrics.preprocess_logits_for_metrics(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0]))
    >>> rows.shape
    torch.Size([2, 6])
    >>> from types import SimpleNamespace
    >>> values = metrics.compute_metrics(SimpleNamespace(predictions=rows.numpy()))  # Trainer gives an EvalPrediction
    >>> values["accuracy"], round(values["ece"], 4)
    (0.5, 0.5359)
    """

    def __init__(
        self,
        measures: Mapping[str, Callable[[PredictedRows], float]] | None = None,
        *,
        shift: bool | None = None,
        model: nn.Module | None = None,
    ) -> None:
        self.measures = {name: MEASURES[name].of for name in _USUAL} if measures is None else dict(measures)
        self.shift, self._outputs = shift, None if model is None else _outputs_of(model)
        self._preprocessed, self._num_classes, self._precision = False, 0, np.dtype(np.float32)
        self._parts: list[Array] = []

    @torch.no_grad()
    def preprocess_logits_for_metrics(self, logits: Any, labels: Tensor | None) -> Any:
        """What the measures need of each row: (N, 6) or (batch, time, 6), filled with -100 where there is no label.

        Without labels there is nothing to measure, and the logits stay.
        """
        if labels is None:
            return logits
        scores = _logits_of(logits)
        outputs = logits if self._outputs is None else self._outputs
        targets = _targets(labels, scores, is_shifted(self.shift, scores, outputs))
        require_places(targets, scores)
        rows = scores.new_full((*targets.shape, len(COLUMNS)), IGNORED, dtype=wide_dtype(scores.device))
        kept, self._preprocessed = targets != IGNORED, True
        if kept.any():
            found = read(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1), ignore_index=IGNORED)
            assert isinstance(found, PredictedRows)
            self._num_classes, self._precision = found.num_classes, found.column("confidence").dtype
            columns = np.stack([found.column(name).astype(np.float64) for name in COLUMNS], 1)
            rows[kept] = torch.from_numpy(columns).to(rows)
        return rows

    def compute_metrics(self, prediction: Any, compute_result: bool = True) -> dict[str, float]:
        """The measures of all rows since the last result; under `batch_eval_metrics` none before the last batch."""
        parts = prediction.predictions
        # With eval_do_concat_batches=False there is an array for each batch.
        self._parts += [self._labelled(part) for part in (parts if isinstance(parts, list) else [parts])]
        if not compute_result:
            return {}
        together, self._parts = np.concatenate(self._parts), []
        require(len(together) > 0, "labels", f"must have one that is not {IGNORED}", "none")
        columns = dict(zip(COLUMNS, together.T, strict=True))
        columns["confidence"] = columns["confidence"].astype(self._precision)
        columns["correct"] = columns["correct"].astype(bool)
        rows = PredictedRows(columns, num_classes=self._num_classes)
        return {name: float(measure(rows)) for name, measure in self.measures.items()}

    def _labelled(self, part: Any) -> Array:
        """The rows (n, 6) that have a label, of what was preprocessed and perhaps padded."""
        shaped = isinstance(part, (Tensor, np.ndarray)) and part.shape[-1] == len(COLUMNS)
        fix = "Give Trainer preprocess_logits_for_metrics of the same object."
        require(self._preprocessed and shaped, "predictions", "must be preprocessed", type(part).__name__, fix)
        rows: Array = torch.as_tensor(part).cpu().numpy().reshape(-1, len(COLUMNS))
        labelled: Array = rows[rows[:, 0] != IGNORED]
        return labelled


def _outputs_of(model: nn.Module) -> type | None:
    """The class of a model's outputs, as the annotation of its `forward` says; None if that says nothing.

    Models of transformers return a tuple or an output, and their annotations name both.
    """
    whole: Any = model
    inner = whole.get_base_model() if hasattr(whole, "get_base_model") else whole  # the model in an adapter
    said = inspect.signature(inner.forward).return_annotation
    names = re.findall(r"\w+Output\w*", said if isinstance(said, str) else repr(said))
    return type(names[-1], (), {}) if names else None


class LossUpdateCallback:
    """Updates AdaFocal or CalFocal in `Trainer(callbacks=[...])`, and tells FLSc the epoch.

    Without `loader`, every evaluation of `Trainer` ends with an update from its rows, so that
    `TrainingArguments(eval_strategy="epoch")` updates once per epoch, and `eval_strategy="steps"` as often as you say.
    With a `loader` of its own there is an update from it after every epoch, and evaluations may use other rows.

    Each update is a pass of the model over the rows, in evaluation mode. Under several processes each gives its share,
    and all get the same gammas; rows that accelerate repeats to make shares even count twice.

    Args:
        loss: the loss, or the `TrainerLoss` that `compute_loss_func` made of it.
        loader: batches to update from.
        read: how a batch is read, if it is no dictionary with "labels": see `focalcal.collect`.

    >>> import focalcal as fc
    >>> loss = compute_loss_func(fc.AdaFocalLoss(reduction="sum"))
    >>> LossUpdateCallback(loss).loss
    AdaFocalLoss(num_bins=15, lam=1.0, gamma=-2.0..20.0, switch_at=0.2, updates=0)
    """

    def __init__(
        self, loss: nn.Module | TrainerLoss, loader: Iterable[Any] | None = None, *, read: Read | None = None
    ) -> None:
        made = loss.loss if isinstance(loss, TrainerLoss) else loss
        steered = isinstance(made, ValidationBinsLoss) or _schedule(made) is not None
        rule = "must be AdaFocal, CalFocal or a loss with a scheduled gamma"
        require(steered, "loss", rule, type(made).__name__, "Other losses need no callback.")
        self.loss, self.loader, self.read = made, loader, read

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Refuse a run without updates, which would be one of plain focal loss."""
        if isinstance(self.loss, ValidationBinsLoss):
            evaluates = self.loader is not None or getattr(args.eval_strategy, "value", args.eval_strategy) != "no"
            fix = 'TrainingArguments(eval_strategy="epoch") evaluates, or give the callback a loader.'
            require(evaluates, "loader", "must be given where Trainer does not evaluate", "none", fix)
            self.loss.expect_updates()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Tell a scheduled gamma which epoch begins, with its milestones stretched to the length of training."""
        schedule = _schedule(self.loss)
        if schedule is not None:
            schedule.set_epoch(int((state.epoch or 0) + 1e-6), state.num_train_epochs)

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **given: Any) -> None:
        """Update from the loader of the callback, if it has one."""
        if self.loader is not None and isinstance(self.loss, ValidationBinsLoss):
            self.loss.update_from(self.loader, model, self.read)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, model: Any = None, eval_dataloader: Any = None, **given: Any
    ) -> None:
        """Update from the rows of an evaluation, unless the callback has a loader."""
        if self.loader is None and isinstance(self.loss, ValidationBinsLoss):
            self.loss.update_from(eval_dataloader, model, self.read)

    def __getattr__(self, name: str) -> Any:
        """Trainer calls every event of a callback; those that are not above do nothing."""
        if name.startswith("on_"):
            return lambda *args, **given: None
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _schedule(loss: nn.Module) -> ScheduledGamma | None:
    """The scheduled gamma of a loss, if it has one."""
    gamma = getattr(loss, "gamma", None)
    return gamma if isinstance(gamma, ScheduledGamma) else None
