"""Predictions to report on."""

from __future__ import annotations

from typing import Any

import numpy as np

from focalcal.files.prediction_table import PredictionTable
from focalcal.report.build import ModelInput


def sharp_table(
    n: int = 600, num_classes: int = 4, *, sharp: float = 2.0, seed: int = 0, **parts: Any
) -> PredictionTable:
    """Labels drawn from a softmax, and logits that are `sharp` times too large."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(n, num_classes)) * 2
    noise = generator.gumbel(size=logits.shape)
    labels = (logits + noise).argmax(1)
    return PredictionTable("made", (logits * sharp).astype(np.float32), "logits", labels=labels, **parts)


def model_of(
    score: PredictionTable, fit: PredictionTable | None = None, name: str = "made", **parts: Any
) -> ModelInput:
    return ModelInput(name, score, fit, "fitted to some rows, measured on others", **parts)
