"""A network and a loader: its logits in one call, and the network with its calibrator as one module."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.table import make_calibrator
from focalcal.core.checks import require
from focalcal.predictions.model_outputs import (
    BatchForward,
    Read,
    batches_of,
    device_of,
    evaluating,
    has_positions,
    logits_in,
)
from focalcal.select import select_calibrator

__all__ = ["CalibratedNetwork", "calibrate", "collect"]

_AUTO = "auto"


@torch.no_grad()
def collect(
    model: Callable[..., Any], loader: Iterable[Any], *, read: Read | None = None, progress: bool = True
) -> tuple[Tensor, Tensor]:
    """The logits and labels of all batches of a loader, in its order, as two tensors on the CPU.

    The model runs in evaluation mode and without gradients; afterwards every part of it is in the mode that it had.

    Args:
        model: a module, or a function. It returns logits (N, K) or (N, K, d1, ...), or something that has them: as
            `.logits`, under "logits", or first in a tuple. Positions of Hugging Face's token classifiers and language
            models become rows (n, K), without those whose label is -100.
        loader: batches `(inputs, ..., labels)`, of which the model is called with all but the last one, or dictionaries
            with "labels" or "label", whose other entries are keyword arguments of the model. A `Dataset` of torch is
            read 128 rows at a time.
        read: for any other batch: `read(batch)` returns `(inputs, labels)` or `(args, kwargs, labels)`. Inputs that are
            a mapping are passed by keyword, a tuple by position, all else as the only argument.
        progress: whether to show a bar on standard error, if that is a terminal.

    Tensors of a batch are moved to the device of the model.

    >>> network = nn.Linear(4, 3)
    >>> batches = [(torch.randn(8, 4), torch.arange(8) % 3), (torch.randn(5, 4), torch.arange(5) % 3)]
    >>> logits, labels = collect(network, batches)
    >>> logits.shape, labels.shape
    (torch.Size([13, 3]), torch.Size([13]))
    """
    forward = BatchForward(model, read)
    with evaluating(model):
        found = [tuple(part.cpu() for part in forward(batch)) for batch in _followed(batches_of(loader), progress)]
    require(bool(found), "loader", "must give at least one batch", "none", "A generator can be used once.")
    shapes = {tuple(logits.shape[1:]) for logits, _ in found}
    rule, fix = "must give logits of one shape in all batches", "Collect batches of one size at a time."
    require(len(shapes) == 1, "model", rule, " and ".join(map(str, sorted(shapes))), fix)
    logits, labels = (torch.cat(parts) for parts in zip(*found, strict=True))
    return logits, labels


def calibrate(
    model: nn.Module,
    loader: Iterable[Any],
    method: str | Calibrator | None = "temperature",
    *,
    read: Read | None = None,
    progress: bool = True,
) -> CalibratedNetwork:
    """The network with a calibrator that was fitted to the logits of a validation loader, as one module.

    The loader must have rows that the network was not trained on; it is read as by `collect`. Neither the network nor
    a given calibrator is changed; the network is not copied.

    Args:
        model: the network.
        loader: batches of validation rows.
        method: a calibrator, of which a copy is fitted, or its name, such as "temperature", "vector" or
            "temperature:ada_ece". None or "auto" leave the choice to `select_calibrator`, which takes none where none
            is significantly better than the raw logits.
        read: how a batch is read; see `collect`.
        progress: whether to show a bar on standard error, if that is a terminal.

    >>> network = nn.Linear(4, 3)
    >>> batches = [(torch.randn(60, 4), torch.arange(60) % 3)]
    >>> calibrated = calibrate(network, batches)
    >>> calibrated(torch.randn(2, 4)).shape, calibrated.calibrator.is_fitted
    (torch.Size([2, 3]), True)
    """
    named = method is None or isinstance(method, (str, Calibrator))
    require(named, "method", 'must be a calibrator, its name, or "auto"', type(method).__name__)
    choose = method is None or method == _AUTO
    template = None if choose else make_calibrator(method) if isinstance(method, str) else copy.deepcopy(method)
    fix = "Wrap it in an nn.Module."
    require(isinstance(model, nn.Module), "model", "must be a module, of which one is made", type(model).__name__, fix)
    logits, labels = collect(model, loader, read=read, progress=progress)
    if isinstance(template, Calibrator):
        fitted = template.fit(logits, labels)
    else:
        fitted = select_calibrator(logits, labels).winner
    return CalibratedNetwork(model, fitted.to(device_of(model)))


@final
class CalibratedNetwork(nn.Module):
    r"""A network and its calibrator as one module: inputs in, calibrated log-probabilities out.

    $$ \log p = c(f(x)) $$

    where $f$ is `network`, called with whatever the module is called with, and $c$ is `calibrator`, which maps its
    logits (N, K) or (N, K, d1, ...) to log-probabilities of the same shape; `.exp()` gives the probabilities, and the
    largest one is the prediction. Where the network returns an object with logits, those are calibrated, and what
    comes out is the tensor; logits (batch, time, K) of Hugging Face keep that shape.

    `focalcal.integrations.onnx.export_onnx(calibrated.network, calibrated.calibrator, path, example)` writes both into
    one file. `state_dict()` has both, too; it is loaded into a module that `fc.calibrate` made by the same method.

    >>> import focalcal as fc
    >>> module = CalibratedNetwork(nn.Identity(), fc.TemperatureScaling().fit([[2.0, 0.0]] * 3, [0, 0, 1]))
    >>> module(torch.tensor([[2.0, 0.0]])).exp()  # two of three were right
    tensor([[0.6667, 0.3333]])
    """

    def __init__(self, network: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        calibrator.require_fitted()
        self.network, self.calibrator = network, calibrator

    if TYPE_CHECKING:  # nn.Module says Any

        def __call__(self, *inputs: Any, **named: Any) -> Tensor:
            """What `forward` gives."""
            ...

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Calibrated log-probabilities of the network's logits, in their shape."""
        outputs = self.network(*inputs, **named)
        logits = logits_in(outputs)
        if has_positions(outputs, logits):
            return self.calibrator(logits.movedim(-1, 1)).movedim(1, -1)
        return self.calibrator(logits)


def _followed(batches: Iterable[Any], progress: bool) -> Iterator[Any]:
    """The batches, with a bar on standard error if that is a terminal."""
    if not progress or not sys.stderr.isatty():
        yield from batches
        return
    from rich.console import Console
    from rich.progress import track

    total = len(batches) if isinstance(batches, Sized) else None
    yield from track(batches, "Collecting logits", total, console=Console(stderr=True), transient=True)
