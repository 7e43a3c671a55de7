"""How far ECE is off on average: a simulation whose true calibration error is known [ghosh2022, App. F]."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from focalcal.core.binning import bin_predictions

# Confidences are 0.1 + 0.9 Beta(a, b): nearly all of them next to 1, as of networks trained to the end; or spread out.
SURE, SPREAD = (2.77, 0.04), (5.0, 1.0)


def ece_bias(
    shape: tuple[float, float],
    edges: Literal["equal_width", "equal_mass"],
    *,
    num_rows: int = 1000,
    draws: int = 200,
    seed: int = 0,
) -> float:
    """The mean ECE (15 bins) of predictions that are calibrated, so that the true error is 0 and the mean is the bias.

    >>> ece_bias(SURE, "equal_mass", draws=20) < ece_bias(SURE, "equal_width", draws=20)
    True
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        confidence = 0.1 + 0.9 * rng.beta(*shape, num_rows)
        correct = (rng.random(num_rows) < confidence).astype(float)
        bins = bin_predictions(torch.tensor(confidence), torch.tensor(correct), edges=edges)
        found.append(float((bins.count * bins.gap.abs()).sum() / num_rows))
    return float(np.mean(found))
