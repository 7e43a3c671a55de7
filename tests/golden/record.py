"""Record the values of the synthetic predictions: `python -m tests.golden.record` writes values/made.json.

Everything is computed by tests/golden/definitions.py and tests/oracles.py; focalcal is not imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests import oracles
from tests.golden import definitions as d
from tests.golden.made import BATCH, Made, models

FILE = Path(__file__).parent / "values" / "made.json"
GAMMAS = (0.0, 0.5, 1.0, 2.0)
GRID = [i / 20 for i in range(4, 81)]
MAP = [(-0.5, 1.0), (0.5, 2.0), (2.0, 1.0), (5.0, 1.5)]
MAPPED_ROWS = 8


def record(made: Made) -> dict[str, Any]:
    """All values of one set of predictions."""
    calibration, _ = made.halves
    logits, labels = 2 * made.logits[:BATCH], made.labels[:BATCH]
    losses = {name: d.summed(row, logits, labels) for name, row in d.ROW_LOSSES.items()}
    losses |= {
        f"mmce weighted={weighted}": d.mmce_loss(logits, labels, weighted=weighted) for weighted in (False, True)
    }
    found: dict[str, Any] = {
        "measures": d.measures(*made),
        "losses": {name: gradient_summary(*pair) for name, pair in losses.items()},
        "temperature": d.temperature(*calibration),
        "error_grid": {scheme: d.error_grid(*calibration, scheme) for scheme in ("equal_width", "equal_mass")},
        "focal_map": [focal_map(made.logits, *each) for each in MAP],
        "focal_grid": d.focal_grid(*calibration, GAMMAS, GRID),
        "focal_optimum": d.focal_optimum(*calibration),
        "ensemble": {name: d.ensemble(*calibration, criterion=name) for name in ("nll", "brier")},
        "adafocal": {f"{lam:g}": d.adafocal(*calibration, updates=4, lam=lam) for lam in (1.0, 20.0)},
    }
    if made.logits.shape[1] <= 10:  # with more classes than this, half the rows leave it no finite optimum
        found["vector_scaling"] = d.linear(*calibration, matrix=False)
        found["matrix_scaling"] = d.linear(*calibration, matrix=True)
    return found


def gradient_summary(value: float, gradient: np.ndarray) -> dict[str, Any]:
    """The loss, and enough of its gradient to notice any change."""
    return {
        "loss": value,
        "gradient_norm": float(np.sqrt((gradient**2).sum())),
        "gradient_sum_of_abs": float(np.abs(gradient).sum()),
        "gradient_first_4": gradient[0, :4].tolist(),
    }


def focal_map(logits: np.ndarray, gamma: float, temperature: float) -> list[list[float]]:
    """The two largest probabilities of some rows after the focal map, from exact arithmetic."""
    rows = [oracles.probabilities((row / temperature).tolist()) for row in logits[:MAPPED_ROWS]]
    return [sorted((float(v) for v in oracles.focal_map(row, gamma)), reverse=True)[:2] for row in rows]


if __name__ == "__main__":
    values = {name: record(made) for name, made in models().items()}
    FILE.write_text(json.dumps(values, indent=1) + "\n")
