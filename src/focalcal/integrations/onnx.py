"""ONNX: a network and its calibrator as one model, from inputs to probabilities.

    export_onnx(network, calibrator, "classifier.onnx", torch.randn(1, 3, 32, 32))

`calibrator.to_onnx` writes the calibrator alone, from logits to log-probabilities.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from focalcal.atomic import write_atomically
from focalcal.calibrators.base import Calibrator
from focalcal.core.checks import require
from focalcal.errors import FocalCalError, MissingExtraError

__all__ = ["OPSET", "export_onnx"]

OPSET = 18
"""The operator set that calibrators are translated to, which onnxruntime has read since 1.14."""


@torch.no_grad()
def export_onnx(
    network: nn.Module, calibrator: Calibrator, path: str | Path, example: Tensor, *, tolerance: float = 1e-5
) -> None:
    """Write one ONNX model that maps inputs to calibrated probabilities.

    Its input is called `inputs` and may have any number of rows; its outputs are `probs` (N, K), and `logits` (N, K) as
    the network gives them. Before it is written, onnxruntime computes the probabilities of `example`, of its first row,
    and of the example twice: a model that differs from torch is refused.

    Args:
        network: maps inputs (N, ...) to logits (N, K). It is exported in evaluation mode, and comes back in its own.
        calibrator: fitted to logits of this network.
        path: where the model goes, whole or not at all.
        example: inputs (N, ...) such as the network expects; rows of real data make the best check.
        tolerance: how far a probability may be off. Networks add up in other orders in onnxruntime; 1e-5 is generous
            in float32, and half precision needs more.

    >>> import onnxruntime, tempfile
    >>> import focalcal as fc
    >>> network = nn.Linear(4, 3)
    >>> inputs, labels = torch.randn(60, 4), torch.arange(60) % 3
    >>> calibrator = fc.TemperatureScaling().fit(network(inputs).detach(), labels)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(network, calibrator, f"{folder}/classifier.onnx", inputs[:2])
    ...     session = onnxruntime.InferenceSession(f"{folder}/classifier.onnx")
    >>> [output.name for output in session.get_outputs()]
    ['probs', 'logits']
    """
    onnx, onnxruntime = _packages()
    calibrator.require_fitted()
    require(example.dim() >= 1 and len(example) > 0, "example", "must have at least one row", tuple(example.shape))
    with _evaluating(network, calibrator):
        whole = _Calibrated(network, calibrator)
        _require_logits(network(example), len(example))
        whole(example)  # the calibrator says here what does not suit it, before the exporter wraps the words
        content = _translate(onnx, whole, example)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        for inputs in (example, example[:1], torch.cat([example, example])):
            _require_parity(whole, session, inputs, tolerance)
    write_atomically(path, content)


class _Calibrated(nn.Module):
    """From inputs to probabilities, and the logits that they were made of."""

    def __init__(self, network: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        self.network, self.calibrator = network, calibrator

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(inputs)
        return self.calibrator(logits).exp(), logits


def _packages() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"export_onnx needs {error.name}, which is not installed. Install it with: pip install 'focalcal[onnx]'"
        ) from error
    onnxruntime.set_default_logger_severity(3)
    return onnx, onnxruntime


@contextmanager
def _evaluating(*modules: nn.Module) -> Iterator[None]:
    """In evaluation mode meanwhile; every part of them comes back in the mode it had."""
    modes = {part: part.training for module in modules for part in module.modules()}
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def _require_logits(logits: Any, rows: int) -> None:
    is_logits = isinstance(logits, Tensor) and logits.dim() == 2 and len(logits) == rows
    got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    rule, fix = f"must map {rows} rows of inputs to logits ({rows}, K)", "Wrap it in a module that does."
    require(is_logits, "network", rule, got, fix)


def _translate(onnx: Any, module: nn.Module, example: Tensor) -> bytes:
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    # The exporter takes a size of 1 for a constant.
    rows = example if len(example) > 1 else torch.cat([example, example])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's exporter warns of its own deprecations
            program = torch.onnx.export(
                module,
                (rows,),
                dynamo=True,
                opset_version=OPSET,
                input_names=["inputs"],
                output_names=["probs", "logits"],
                dynamic_shapes=({0: torch.export.Dim("rows", min=1)},),
                verbose=False,
            )
    finally:
        quiet.setLevel(level)
    assert program is not None
    onnx.checker.check_model(program.model_proto)
    content: bytes = program.model_proto.SerializeToString()
    return content


def _require_parity(module: nn.Module, session: Any, inputs: Tensor, tolerance: float) -> None:
    """Refuse a model whose probabilities are not those of torch."""
    got, _ = session.run(None, {"inputs": inputs.detach().cpu().numpy()})
    expected = module(inputs)[0].float().cpu().numpy()
    difference = float(np.abs(got.astype(np.float32) - expected).max())
    if not difference <= tolerance:
        raise FocalCalError(
            f"export_onnx: onnxruntime differs from torch by {difference:.2g} in a probability, more than "
            f"{tolerance:g}; nothing was written."
        )
