"""ONNX: a network and its calibrator as one model, from inputs to probabilities.

    export_onnx(network, calibrator, "classifier.onnx", torch.randn(1, 3, 32, 32))

`calibrator.to_onnx` writes the calibrator alone, from logits to log-probabilities.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.export import OPSET, require_packages, write_onnx
from focalcal.core.checks import require
from focalcal.predictions.model_outputs import evaluating

__all__ = ["OPSET", "export_onnx"]


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
    require_packages("export_onnx")
    calibrator.require_fitted()
    require(example.dim() >= 1 and len(example) > 0, "example", "must have at least one row", tuple(example.shape))
    whole = _ProbsAndLogits(network, calibrator)
    with evaluating(whole):
        _require_logits(network(example), len(example))
        whole(example)  # the calibrator says here what does not suit it, before the exporter wraps the words
    examples = [example, example[:1], torch.cat([example, example])]
    write_onnx("export_onnx", whole, path, examples, "inputs", ["probs", "logits"], tolerance=tolerance)


class _ProbsAndLogits(nn.Module):
    """From inputs to probabilities, and the logits that they were made of."""

    def __init__(self, network: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        self.network, self.calibrator = network, calibrator

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(inputs)
        return self.calibrator(logits).exp(), logits


def _require_logits(logits: Any, rows: int) -> None:
    is_logits = isinstance(logits, Tensor) and logits.dim() == 2 and len(logits) == rows
    got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    rule, fix = f"must map {rows} rows of inputs to logits ({rows}, K)", "Wrap it in a module that does."
    require(is_logits, "network", rule, got, fix)
