"""What AdaFocal and CalFocal share: equal-mass bins of validation confidence that steer the training loss."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, equal_width_edges
from focalcal.core.checks import Array, may_read_values, require, require_label_range, require_labels, require_logits
from focalcal.core.focal import lookup, wide_dtype
from focalcal.core.masking import require_scores
from focalcal.errors import InputWarning
from focalcal.kernels.bins import bin_predictions
from focalcal.kernels.focal_loss import to_rows
from focalcal.kernels.rows import read_rows
from focalcal.losses.focal import LossOptions, SoftmaxFocalLoss
from focalcal.predictions.distributed import agree_on, gather_rows, is_distributed
from focalcal.predictions.model_outputs import BatchForward, Read, batches_of, evaluating

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ANOTHER = "Load another checkpoint."
# The columns of `history`, per update and bin.
HISTORY_FIELDS = ("gamma", "lower_edge", "upper_edge", "confidence", "accuracy", "count")
# Steps after which a loss without an update has most likely been forgotten: an epoch of CIFAR-10 in batches of 128 has
# 352 to 391 of them.
WARN_AFTER = 500


class _BinRule:
    """The gamma rule of a loss, as `focal_loss` wants it."""

    def __init__(self, loss: ValidationBinsLoss) -> None:
        self.loss = loss

    def __call__(self, p: Any) -> Any:
        return self.loss.gamma_at(p)

    def steps(self) -> tuple[Tensor, Tensor] | None:
        return self.loss.steps()


class _UpdateReminder:
    """Counts the training steps before the first update, and warns once when there are too many.

    It is no module, because assigning an attribute of a module takes as long as the rest of a step's bookkeeping.
    """

    def __init__(self, after: int | None) -> None:
        self.after, self.steps = after, 0

    def count(self, loss: ValidationBinsLoss) -> None:
        """Count a step, unless it is one of evaluation, or of a compiler that would count in the graph."""
        if self.after is None or not torch.is_grad_enabled() or not may_read_values():
            return
        self.steps += 1
        if self.steps <= self.after:
            return
        steps, self.after, name = self.after, None, type(loss).__name__
        warnings.warn(
            f"{name} has made {steps:,} training steps without an update, so that its gammas are still where they "
            "started. Call loss.update_from(val_loader, model) after every epoch, or use the callback of your "
            f"trainer. If the first epoch is not over yet, make the loss with {name}(warn_after=len(train_loader)).",
            InputWarning,
            stacklevel=5,  # the line of the training loop, behind forward and the two calls of a module
        )


class ValidationBinsLoss(SoftmaxFocalLoss):
    """A focal loss whose gamma depends on the validation bin in which a training sample's probability lies.

    Give it validation predictions from time to time: all at once with `update`, or batch by batch with `accumulate` and
    then `step`, or with `update_from`. Under `torch.distributed` every rank gives its share and all get the same bins,
    those of the union; a batch that one rank refuses, or settings that differ, are the same error on all of them. The
    state is in buffers: saved, moved, resumed.

    Without updates it is a plain focal loss, which nobody would notice: after `warn_after` training steps (calls with
    gradients enabled) before the first update, it warns once.
    """

    edges: Tensor
    settings: tuple[str, ...] = (
        "num_bins",
        "lam",
        "ignore_index",
        "label_smoothing",
        "reduction",
    )  # alike on all ranks

    def __init__(self, num_bins: int, lam: float, warn_after: int | None, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        require(isinstance(num_bins, int) and num_bins >= 1, "num_bins", "must be a whole number from 1", num_bins)
        require(lam > 0, "lam", "must be positive", lam, "ghosh2022 uses 1 for AdaFocal.")
        fine = warn_after is None or (isinstance(warn_after, int) and warn_after >= 1)
        require(fine, "warn_after", "must be a number of steps from 1, or None for no warning", warn_after)
        self.num_bins, self.lam = num_bins, lam
        # Algorithm 1, lines 2-3 of ghosh2022: equal-width bins before the first update.
        self.register_buffer("edges", equal_width_edges(num_bins))
        self._pending: list[Tensor] = []
        self._history: list[Tensor] = []
        self._failure: Exception | None = None
        self._rule = _BinRule(self)
        self._reminder = _UpdateReminder(warn_after)

    @abstractmethod
    def gamma_at(self, p: Any) -> Any:
        """The gamma of a training sample whose true class has probability `p`, for a tensor or an array of them."""

    @abstractmethod
    def steps(self) -> tuple[Tensor, Tensor] | None:
        """The edges of the bins and the gamma of each, or None if gamma changes within bins."""

    @abstractmethod
    def _learn(self, bins: Bins) -> Tensor:
        """Take in new validation statistics and return the gamma of each bin."""

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
            """What `forward` gives."""
            ...

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a training batch; shapes as in `focal_loss`."""
        self._reminder.count(self)
        return self._loss(logits, labels, self._rule)

    def at(self, p: Any, values: Tensor) -> Any:
        """The value of the bin in which `p` lies, [lower, upper); beyond the outer edges, that of the outer bin."""
        return lookup(p, self.edges, values)

    @torch.no_grad()
    def accumulate(self, val_logits: Tensor, val_labels: Tensor) -> None:
        """Take in a batch of validation logits (N, K) or (N, K, d1, ...) and class numbers; `step` uses them.

        Under `torch.distributed`, what is wrong with the batch is raised by `step`, on all ranks.
        """
        with self._failure_kept():
            self._pending.append(self._confidences(val_logits, val_labels))

    def _confidences(self, val_logits: Tensor, val_labels: Tensor) -> Tensor:
        """The confidence of each row, and whether it is correct."""
        require_logits(val_logits, "val_logits")
        soft = require_labels(val_labels, val_logits, "val_labels")
        require(not soft, "val_labels", "must be class numbers", val_labels.dtype)
        require(val_logits.dim() > 1, "val_logits", "must have shape (N, K) or (N, K, d1, ...)", val_logits.shape)
        require_label_range(val_labels, val_logits.shape[1], self.ignore_index)
        rows, labels = to_rows(val_logits.detach()), val_labels.reshape(-1).long()
        keep = labels != self.ignore_index
        if not keep.all():
            rows, labels = rows[keep], labels[keep]
        found = read_rows(rows, labels, "logits", ("top_confidence", "correct"))
        confidence = found["top_confidence"]
        if not math.isfinite(confidence.sum()):  # there is a row without a confidence
            require_scores(val_logits, "val_logits")
        pairs = np.empty((len(confidence), 2))
        pairs[:, 0], pairs[:, 1] = confidence, found["correct"]
        return torch.from_numpy(pairs)

    @contextmanager
    def _failure_kept(self) -> Iterator[None]:
        """Keep an exception for `step`, where the other ranks wait for this one; a single process raises it at once."""
        try:
            yield
        except Exception as error:
            if not is_distributed():
                raise
            self._failure = self._failure or error

    @torch.no_grad()
    def step(self) -> None:
        """Recompute the bins and gammas from what `accumulate` took in since the last step."""
        failure, self._failure = self._failure, None
        alike = {name: getattr(self, name) for name in self.settings}
        agree_on({"loss": type(self).__name__, **alike, "updates": len(self._history)}, failure)
        mine = self._pending[0] if len(self._pending) == 1 else torch.cat([torch.empty(0, 2).double(), *self._pending])
        everyone = gather_rows(mine, self.edges.device).numpy()
        require(
            len(everyone) >= self.num_bins,
            "val_logits",
            f"an update needs at least as many validation rows as bins ({self.num_bins})",
            len(everyone),
            "Give it more rows, or use fewer bins.",
        )
        self._pending = []
        bins = validation_bins(everyone[:, 0], everyone[:, 1] > 0, self.num_bins)
        gamma = self._learn(bins)
        self.edges.copy_(bins.edges)
        kept = gamma.to("cpu", torch.float64)
        record = kept, bins.edges[:-1], bins.edges[1:], bins.confidence, bins.accuracy, bins.count
        self._history.append(torch.stack(record, 1))
        self.expect_updates()

    def update(self, val_logits: Tensor, val_labels: Tensor) -> None:
        """One update from validation logits (N, K) and labels (N,), forgetting what was accumulated before.

        After bad input the loss is as it was before the call.
        """
        before, self._pending = self._pending, []
        try:
            self.accumulate(val_logits, val_labels)
            self.step()
        except BaseException:
            self._pending, self._failure = before, None
            raise

    @torch.no_grad()
    def update_from(self, loader: Iterable[Any], model: Callable[..., Any], read: Read | None = None) -> None:
        """One update from the batches of a validation loader, with the model in evaluation mode.

        A batch is `(inputs, ..., labels)` or a dictionary with "labels" or "label", whose other entries are keyword
        arguments of the model; `read(batch)` returns `(inputs, labels)` or `(args, kwargs, labels)` of any other. All
        are moved to the device of the model, which returns logits or an object that has `logits`
        (`focalcal.predictions.model_outputs` has the rules).
        """
        forward = BatchForward(model, read, self.edges.device)
        before, self._pending = self._pending, []
        try:
            with evaluating(model), self._failure_kept():
                for batch in batches_of(loader):
                    self.accumulate(*forward(batch))
            self.step()
        except BaseException:
            self._pending, self._failure = before, None
            raise

    def expect_updates(self) -> None:
        """Warn of missing updates no longer, because there was one, or because a callback sees to them."""
        self._reminder.after = None

    @property
    def history(self) -> dict[str, Tensor]:
        """Every update so far: gamma, lower_edge, upper_edge, confidence, accuracy and count, each (updates, bins)."""
        table = self.get_extra_state()
        return {name: table[:, :, column] for column, name in enumerate(HISTORY_FIELDS)}

    def get_extra_state(self) -> Tensor:
        """The history as one tensor (updates, bins, fields), which any safe file format can hold."""
        if not self._history:
            return torch.empty(0, self.num_bins, len(HISTORY_FIELDS), dtype=torch.float64)
        return torch.stack(self._history)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the history from a checkpoint."""
        self._history = list(state.to("cpu", torch.float64).unbind(0))
        if self._history:
            self.expect_updates()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Refuse a state that is none of this loss, before any of it is taken: it would spoil training silently."""
        own = {name: buffer.shape for name, buffer in self.named_buffers(recurse=False) if name != "weight"}
        for name, shape in own.items():
            if prefix + name in state_dict:
                self._check_state(state_dict[prefix + name], tuple(shape), prefix + name)
        history = state_dict.get(f"{prefix}_extra_state")
        if history is not None:
            rows = len(history) if isinstance(history, Tensor) and history.dim() else 0
            self._check_state(history, (rows, self.num_bins, len(HISTORY_FIELDS)), f"{prefix}_extra_state")
        edges = state_dict.get(f"{prefix}edges")
        if edges is not None and not edges.is_meta:
            inside = bool((edges.diff() >= 0).all()) and float(edges[0]) >= 0 and float(edges[-1]) <= 1
            require(inside, f"{prefix}edges", "must rise from bin to bin, within [0, 1]", edges.tolist(), _ANOTHER)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _check_state(self, value: Any, shape: tuple[int, ...], name: str) -> None:
        said = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        right = f"must have the shape {shape}, as num_bins is {self.num_bins}"
        require(said == shape, name, right, said, "Make the loss with the num_bins that it was saved with.")
        finite = value.is_meta or bool(torch.isfinite(value).all())
        require(finite, name, "every saved value must be finite", "NaN or infinity", _ANOTHER)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ValidationBinsLoss:
        """Follow the model to its device, but never to its precision: a gamma in bfloat16 would stand still."""
        kept = {name: buffer for name, buffer in self.named_buffers(recurse=False) if buffer.is_floating_point()}
        for name, buffer in kept.items():
            self._buffers[name] = buffer.float()  # what `fn` may see: Apple GPUs refuse float64
        super()._apply(fn, recurse)
        for name, buffer in kept.items():
            device = self._buffers[name].device  # type: ignore[union-attr]
            self._buffers[name] = buffer.to(device, wide_dtype(device))
        return self


def validation_bins(confidence: Array, correct: Array, num_bins: int) -> Bins:
    """Equal-mass bins by interpolated edges, where a bin of zero width has the statistics of the rows at its value.

    Late in training many float32 confidences are exactly 1.0 and several edges coincide there. The released code leaves
    such bins empty, so the gammas that sure training samples look up would never be updated again.
    """
    bins = bin_predictions(confidence, correct, num_bins=num_bins, edges="interpolated")
    if bins.count.all():
        return bins
    point = bins.edges[1:]
    here = torch.from_numpy(confidence[:, None] == point.numpy())
    right = (here & torch.from_numpy(correct)[:, None]).sum(0) / here.sum(0).clamp_min(1)
    empty = bins.count == 0
    return Bins(
        edges=bins.edges,
        count=bins.count,
        confidence=torch.where(empty, point, bins.confidence),
        accuracy=torch.where(empty, right, bins.accuracy),
        mass=bins.mass,
    )
