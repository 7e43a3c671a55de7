"""Calibrators as ONNX models, compared with onnxruntime before they are written."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from focalcal.atomic import write_atomically
from focalcal.calibrators.base import Calibrator
from focalcal.core.checks import require
from focalcal.errors import FocalCalError, MissingExtraError

OPSET = 18
# Of probabilities in float32: onnxruntime and torch round differently, by a few units in the last place.
_PARITY = 1e-6
_CHECKED_ROWS = 256


def export_onnx(calibrator: Calibrator, path: str | Path, num_classes: int | None) -> None:
    """Write an ONNX model of a fitted calibrator; see `Calibrator.to_onnx`."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"to_onnx needs {error.name}, which is not installed. Install it with: pip install 'focalcal[onnx]'"
        ) from error
    calibrator.require_fitted()
    classes = calibrator.num_classes_ if num_classes is None else num_classes
    require(classes is not None, "num_classes", "must be given, because this calibrator was not fitted", None)
    assert classes is not None
    calibrator._require_classes(classes)
    onnxruntime.set_default_logger_severity(3)
    example = _logits(_CHECKED_ROWS, classes)
    model = _translate(calibrator, example)
    onnx.checker.check_model(model)
    content = model.SerializeToString()
    _require_parity(calibrator, onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]), classes)
    write_atomically(path, content)


def _translate(calibrator: Calibrator, example: torch.Tensor) -> Any:
    """The module as an ONNX model with any number of rows."""
    training, quiet = calibrator.training, logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's exporter warns of its own deprecations
            program = torch.onnx.export(
                calibrator.eval(),
                (example,),
                dynamo=True,
                opset_version=OPSET,
                input_names=["logits"],
                output_names=["log_probs"],
                dynamic_shapes=({0: torch.export.Dim("rows", min=1)},),
                verbose=False,
            )
    finally:
        calibrator.train(training)
        quiet.setLevel(level)
    assert program is not None
    return program.model_proto


def _require_parity(calibrator: Calibrator, session: Any, num_classes: int) -> None:
    """Refuse to write a model that does not compute what the calibrator computes."""
    for rows in (1, _CHECKED_ROWS):
        logits = _logits(rows, num_classes)
        (got,) = session.run(None, {"logits": logits.numpy()})
        with torch.no_grad():
            expected = calibrator(logits).numpy()
        difference = float(np.abs(np.exp(got) - np.exp(expected)).max())
        if not difference <= _PARITY:
            raise FocalCalError(
                f"to_onnx: onnxruntime differs from torch by {difference:.2g} in a probability, more than {_PARITY:g}; "
                "nothing was written."
            )


def _logits(rows: int, num_classes: int) -> torch.Tensor:
    """Rows of all degrees of certainty: logits from 0.01 to 30 apart, and one class that leads by 0 to 100."""
    generator = torch.Generator().manual_seed(0)
    half = (rows + 1) // 2
    logits = torch.randn(rows, num_classes, generator=generator)
    logits[:half] *= torch.logspace(-2, 1.5, half).unsqueeze(1)
    logits[half:, 0] += torch.linspace(0, 100, rows - half)
    return logits
