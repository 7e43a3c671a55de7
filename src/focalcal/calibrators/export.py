"""The exporter to ONNX: modules as ONNX models, compared with onnxruntime before they are written."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from focalcal.atomic import write_atomically
from focalcal.calibrators.base import Calibrator
from focalcal.core.checks import Array, require
from focalcal.errors import FocalCalError, MissingExtraError
from focalcal.predictions.model_outputs import evaluating

OPSET = 18
"""The operator set that calibrators are translated to, which onnxruntime has read since 1.14."""
# Of probabilities in float32: onnxruntime and torch round differently, by a few units in the last place.
_PARITY = 1e-6
_CHECKED_ROWS = 256


def export_calibrator(calibrator: Calibrator, path: str | Path, num_classes: int | None) -> None:
    """Write an ONNX model of a fitted calibrator; see `Calibrator.to_onnx`."""
    require_packages("to_onnx")
    calibrator.require_fitted()
    classes = calibrator.num_classes_ if num_classes is None else num_classes
    require(classes is not None, "num_classes", "must be given, because this calibrator was not fitted", None)
    assert classes is not None
    calibrator._require_classes(classes)
    examples = [_logits(rows, classes) for rows in (_CHECKED_ROWS, 1)]
    write_onnx("to_onnx", calibrator, path, examples, "logits", ["log_probs"], tolerance=_PARITY, to_probs=np.exp)


@torch.no_grad()
def write_onnx(
    caller: str,
    module: nn.Module,
    path: str | Path,
    examples: Sequence[Tensor],
    input_name: str,
    output_names: list[str],
    *,
    tolerance: float,
    to_probs: Callable[[Array], Array] = np.asarray,
) -> None:
    """Write a module as an ONNX model with any number of rows, in evaluation mode.

    `to_probs` makes probabilities of the first output. Nothing is written if onnxruntime computes others than torch for
    any of the examples. `caller` begins error messages.
    """
    onnx, onnxruntime = require_packages(caller)
    with evaluating(module):
        content = _translate(onnx, module, examples[0], input_name, output_names)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        for inputs in examples:
            got = session.run(None, {input_name: inputs.detach().cpu().numpy()})[0]
            answer = module(inputs)
            expected = (answer if isinstance(answer, Tensor) else answer[0]).float().cpu().numpy()
            difference = float(np.abs(to_probs(got.astype(np.float32)) - to_probs(expected)).max())
            if not difference <= tolerance:
                raise FocalCalError(
                    f"{caller}: onnxruntime differs from torch by {difference:.2g} in a probability, more than "
                    f"{tolerance:g}; nothing was written."
                )
    write_atomically(path, content)


def require_packages(caller: str) -> tuple[Any, Any]:
    """The packages onnx and onnxruntime; raises a MissingExtraError if one that the export needs is not installed."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"{caller} needs {error.name}, which is not installed. Install it with: pip install 'focalcal[onnx]'"
        ) from error
    onnxruntime.set_default_logger_severity(3)
    return onnx, onnxruntime


def _translate(onnx: Any, module: nn.Module, example: Tensor, input_name: str, output_names: list[str]) -> bytes:
    """The module as an ONNX model."""
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
                input_names=[input_name],
                output_names=output_names,
                dynamic_shapes=({0: torch.export.Dim("rows", min=1)},),
                verbose=False,
            )
    finally:
        quiet.setLevel(level)
    assert program is not None
    onnx.checker.check_model(program.model_proto)
    content: bytes = program.model_proto.SerializeToString()
    return content


def _logits(rows: int, num_classes: int) -> Tensor:
    """Rows of all degrees of certainty: logits from 0.01 to 30 apart, and one class that leads by 0 to 100.

    In the last rows of many, all classes but two are masked, and all but one.
    """
    generator = torch.Generator().manual_seed(0)
    half = (rows + 1) // 2
    logits = torch.randn(rows, num_classes, generator=generator)
    logits[:half] *= torch.logspace(-2, 1.5, half).unsqueeze(1)
    logits[half:, 0] += torch.linspace(0, 100, rows - half)
    if rows > 2:
        logits[-2, 2:], logits[-1, 1:] = float("-inf"), float("-inf")
    return logits
