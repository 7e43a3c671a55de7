"""Dividing rows at random into those that calibrators are fitted to and those that are scored."""

from __future__ import annotations

import numpy as np

from focalcal.errors import InputError
from focalcal.files.prediction_table import PredictionTable


def hold_out(table: PredictionTable, share: float, seed: int) -> tuple[PredictionTable, PredictionTable]:
    """The rows to fit to and the rows to score: a random share of every class, at least a row of each part."""
    labels = table.labels
    assert labels is not None
    n = table.num_rows
    order = np.lexsort((np.random.default_rng(seed).random(n), labels))
    # Along the rows in order of their class, every step that completes another 1 / share goes to the scored part.
    steps = np.floor(np.arange(1, n + 1) * share + 1e-9)
    scored = np.zeros(n, dtype=bool)
    scored[order] = np.diff(steps, prepend=0) > 0
    if n < 2 or scored.all() or not scored.any():
        raise InputError(f"{table.name}: has too few rows to hold out a share of {share:g}; it has {n:,}.")
    return table.take(~scored), table.take(scored)


def held_out_words(fit: PredictionTable, score: PredictionTable, share: float, seed: int) -> str:
    """How the rows were divided."""
    drawn = f"a random {100 * share:g} % of the rows ({score.num_rows:,}, seed {seed})"
    return f"fitted to {fit.num_rows:,} rows, scored on {drawn}"
