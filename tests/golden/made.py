"""Synthetic predictions that are the same bit for bit on every machine: the inputs of the recorded values.

Logits are whole multiples of 1/1024, made from a counter by integer arithmetic, so that no library's random stream and
no rounding of a function can change them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

BATCH = 48
"""How many rows, with doubled logits, the losses are recorded on."""


class Made(NamedTuple):
    """Logits (float64) and labels."""

    logits: np.ndarray
    labels: np.ndarray

    @property
    def halves(self) -> tuple[Made, Made]:
        """The rows to calibrate on, and those to evaluate on."""
        half = len(self.labels) // 2
        return Made(self.logits[:half], self.labels[:half]), Made(self.logits[half:], self.labels[half:])


def uniforms(count: int, seed: int) -> np.ndarray:
    """Numbers in [0, 1) by the generator splitmix64."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def make(
    rows: int, classes: int, seed: int, *, spread: float, sharpness: float, noise: float, repeats: int = 1
) -> Made:
    """Logits `sharpness` times as large as the truth; each row occurs `repeats` times, with labels of its own.

    A share `noise` of the labels is any class, so that gaps of confidence and accuracy have both signs.
    """
    distinct = rows // repeats
    normal = uniforms(4 * distinct * classes, seed).reshape(4, distinct, classes).sum(0) - 2  # variance 1/3
    truth = np.tile(np.floor(1024 * spread * normal) / 1024, (repeats, 1))
    odds = np.exp(truth - truth.max(1, keepdims=True)).cumsum(1)
    labels = (odds / odds[:, -1:] < uniforms(rows, seed + 1000)[:, None]).sum(1)
    anything = np.floor(classes * uniforms(rows, seed + 2000)).astype(np.int64)
    labels = np.where(uniforms(rows, seed + 3000) < noise, anything, labels)
    return Made(np.floor(1024 * sharpness * truth) / 1024, labels)


@cache
def models() -> dict[str, Made]:
    """Gaps of both signs with ten classes; very sure, with rows that repeat; underconfident with many classes."""
    return {
        "mixed-10": make(1200, 10, 1, spread=5.0, sharpness=0.75, noise=0.07),
        "sure-4-repeated": make(800, 4, 2, spread=6.0, sharpness=2.5, noise=0.05, repeats=4),
        "underconfident-40": make(600, 40, 3, spread=4.0, sharpness=0.625, noise=0.05),
    }
