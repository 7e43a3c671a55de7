"""Logits and labels of a model's batches: what a loader gives, and what a model makes of it.

A batch is read in one way wherever a model and a loader are given together (`fc.collect`, `fc.calibrate`, `update_from`
of AdaFocal):

- A **dictionary**, as Hugging Face has them: the labels are its entry "labels" or "label", and the model is called with
  all other entries as keyword arguments.
- A **tuple or list** of two or more: the last one is the labels, and the model is called with all others in order.
- **Anything else**, or other names: `read(batch)` returns `(inputs, labels)` or `(args, kwargs, labels)`. Inputs that
  are a mapping are passed by keyword, a tuple or list by position, and everything else as the only argument.

Tensors are moved to the device of the model. A map-style `Dataset` of torch is read 128 rows at a time.

The model returns its logits, or something that has them: as `.logits`, under "logits", or first in a tuple. Logits of
such named outputs with a time, (batch, time, K), become rows (n, K); their labels are one step ahead for causal
language models, beside their logits otherwise, and rows with the label -100 are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from focalcal.core.checks import require

# A batch as `(inputs, labels)` or `(args, kwargs, labels)`.
Read: TypeAlias = "Callable[[Any], tuple[Any, ...]]"

# The label that Hugging Face pads with.
IGNORED = -100
_LABELS = ("labels", "label")
_ROWS_OF_A_DATASET = 128
# Model outputs with logits (batch, time, classes), by the names of their classes: labels one step ahead, or beside.
_SHIFTED = "CausalLMOutput"
_BESIDE = ("TokenClassifierOutput", "MaskedLMOutput", "Seq2SeqLMOutput")


class BatchForward:
    """Calls a model with batches and gives back their logits and labels; the module's docstring has the rules.

    >>> forward = BatchForward(nn.Identity())
    >>> logits, labels = forward((torch.zeros(2, 3), torch.tensor([0, 2])))
    >>> logits.shape, labels
    (torch.Size([2, 3]), tensor([0, 2]))
    """

    def __init__(self, model: Callable[..., Any], read: Read | None = None, device: torch.device | None = None) -> None:
        require(callable(model), "model", "must be a module or a function of a batch's inputs", type(model).__name__)
        self.model, self.read = model, read
        self.device = device_of(model, device)

    def __call__(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The logits and labels of a batch: (N, K) or (N, K, d1, ...), and (N, ...)."""
        args, kwargs, labels = _parts(batch, self.read)
        outputs = self.model(*self._moved(args), **self._moved(kwargs))
        rule = "must be a tensor"
        require(isinstance(labels, Tensor), "labels", rule, type(labels).__name__, "read= says how a batch is read.")
        logits, near = logits_in(outputs), self._moved(labels)
        if not has_positions(outputs, logits):
            return logits, near
        return _token_rows(logits, near, is_shifted(None, logits, outputs))

    def _moved(self, value: Any) -> Any:
        """The value with all tensors in it on the device of the model."""
        if isinstance(value, Tensor):
            return value if self.device is None else value.to(self.device)
        if isinstance(value, Mapping):
            return {name: self._moved(part) for name, part in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple stays one
            return type(value)(*map(self._moved, value))
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._moved, value))
        return value


def batches_of(loader: Any) -> Iterable[Any]:
    """The batches of a loader, and those that a DataLoader makes of a dataset's rows.

    >>> from torch.utils.data import TensorDataset
    >>> [len(rows) for rows, in batches_of(TensorDataset(torch.zeros(130)))]
    [128, 2]
    """
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        return DataLoader(loader, batch_size=_ROWS_OF_A_DATASET)
    batches: Iterable[Any] = loader
    return batches


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode; afterwards every part of the module is in the mode that it had."""
    modes = {part: part.training for part in model.modules()} if isinstance(model, nn.Module) else {}
    if isinstance(model, nn.Module):
        model.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def logits_in(outputs: Any) -> Tensor:
    """The logits among a model's outputs, which come first where they have no names.

    >>> logits_in({"logits": torch.zeros(2, 3), "loss": 0.5}).shape
    torch.Size([2, 3])
    """
    if isinstance(outputs, Mapping):
        require("logits" in outputs, "outputs", "must have logits", ", ".join(map(str, outputs)))
        outputs = outputs["logits"]
    elif not isinstance(outputs, Tensor) and hasattr(outputs, "logits"):
        outputs = outputs.logits
    while isinstance(outputs, (tuple, list)) and outputs:
        outputs = outputs[0]
    require(isinstance(outputs, Tensor), "outputs", "must be a tensor of logits, or have one", type(outputs).__name__)
    logits: Tensor = outputs
    return logits


def has_positions(outputs: Any, logits: Tensor) -> bool:
    """Whether logits are (batch, time, K), as in the named outputs of Hugging Face, and not (N, K, d1) as in torch.

    >>> has_positions({"logits": torch.zeros(2, 5, 3)}, torch.zeros(2, 5, 3))
    True
    """
    return logits.dim() == 3 and (isinstance(outputs, Mapping) or hasattr(outputs, "logits"))


def is_shifted(shift: bool | None, logits: Tensor, outputs: Any = None) -> bool:
    """Whether labels are one step ahead of logits (batch, time, K), as `shift` or the outputs' class says.

    `outputs` are those of a model, or their class.

    >>> is_shifted(None, torch.zeros(1, 2, 3), type("TokenClassifierOutput", (), {}))
    False
    """
    if logits.dim() == 2:
        require(not shift, "shift", "is for logits (batch, time, K)", f"shape {tuple(logits.shape)}")
        return False
    if shift is not None:
        return shift
    kind = outputs if isinstance(outputs, type) else type(outputs)
    names = [each.__name__ for each in kind.__mro__]
    if any(_SHIFTED in name for name in names):
        return True
    beside = any(known in name for name in names for known in _BESIDE)
    rule = f"must be given for logits (batch, time, K) in {kind.__name__}"
    fix = "shift=True for a causal language model; False where each label stands beside its logits."
    require(beside, "shift", rule, shift, fix)
    return False


def next_labels(labels: Tensor) -> Tensor:
    """The label one step ahead of each position; the last one has none.

    >>> next_labels(torch.tensor([[5, 6, 7]]))
    tensor([[   6,    7, -100]])
    """
    return F.pad(labels[..., 1:], (0, 1), value=IGNORED)


def require_places(labels: Tensor, logits: Tensor) -> None:
    """Refuse labels that are not one for each row of logits (..., K)."""
    place = tuple(logits.shape[:-1])
    require(tuple(labels.shape) == place, "labels", f"must have shape {place}, as the logits", tuple(labels.shape))


def _token_rows(logits: Tensor, labels: Tensor, shift: bool) -> tuple[Tensor, Tensor]:
    """The rows (n, K) and labels (n,) of all positions that have a label."""
    targets = next_labels(labels) if shift else labels
    require_places(targets, logits)
    kept = targets != IGNORED
    return logits[kept], targets[kept]


def _parts(batch: Any, read: Read | None) -> tuple[tuple[Any, ...], Mapping[str, Any], Any]:
    """What the model is called with, by position and by name, and the labels."""
    if read is not None:
        return _told(read(batch))
    if isinstance(batch, Mapping):
        name = next((each for each in _LABELS if each in batch), None)
        fix = "read=lambda batch: (inputs, labels) says where they are."
        require(name is not None, "batch", 'must have "labels" or "label"', ", ".join(map(str, batch)), fix)
        return (), {key: value for key, value in batch.items() if key != name}, batch[name]
    several = isinstance(batch, (tuple, list)) and len(batch) >= 2
    got = f"{type(batch).__name__} of {len(batch)}" if isinstance(batch, (tuple, list)) else type(batch).__name__
    rule, fix = "must be (inputs, ..., labels) or a dictionary", "read=lambda batch: (inputs, labels) reads others."
    require(several, "batch", rule, got, fix)
    return tuple(batch[:-1]), {}, batch[-1]


def _told(parts: Any) -> tuple[tuple[Any, ...], Mapping[str, Any], Any]:
    known = isinstance(parts, (tuple, list)) and len(parts) in (2, 3)
    got = f"{len(parts)} parts" if isinstance(parts, (tuple, list)) else type(parts).__name__
    require(known, "read", "must return (inputs, labels) or (args, kwargs, labels)", got)
    if len(parts) == 3:
        return tuple(parts[0]), parts[1], parts[2]
    inputs, labels = parts
    if isinstance(inputs, Mapping):
        return (), inputs, labels
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}, labels


def device_of(model: Any, otherwise: torch.device | None = None) -> torch.device | None:
    """The device of the first parameter or buffer of a module, or another one where there is none."""
    if not isinstance(model, nn.Module):
        return otherwise
    first = next(itertools.chain(model.parameters(), model.buffers()), None)
    return otherwise if first is None else first.device
