"""Whole distributions that have given lists, by brute force: what bounds of truncated predictions have to hold for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np


def in_order(probs: np.ndarray) -> np.ndarray:
    """Class numbers by falling probability, equal ones by their number."""
    return np.argsort(-probs, kind="stable")


def cut(probs: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k most likely classes of each row, and their probabilities."""
    classes = np.stack([in_order(row)[:k] for row in probs])
    return classes, np.take_along_axis(probs, classes, 1)


def filled(mass: float, cap: float, count: int) -> np.ndarray:
    """One class after the other, up to the cap."""
    shares = np.zeros(count)
    for place in range(count):
        shares[place] = min(cap, max(mass - shares.sum(), 0.0))
    return shares


def grid(mass: float, cap: float, count: int, steps: int) -> Iterator[np.ndarray]:
    """All shares (count,) in multiples of mass / steps that keep to the cap; in any order of classes."""
    unit, most = mass / steps, int(np.floor(cap / mass * steps + 1e-9)) if mass else steps
    for head in itertools.product(range(min(most, steps) + 1), repeat=count - 1):
        last = steps - sum(head)
        if 0 <= last <= most:
            yield unit * np.array([*head, last], dtype=np.float64)


def drawn(mass: float, cap: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Shares at random: even, lopsided, or of a few levels, capped and what is over given to the others."""
    if rng.random() < 0.3:
        low, some = rng.random() * mass / count, rng.integers(0, count + 1)
        shares = np.where(np.arange(count) < some, cap, low)
    else:
        shares = rng.dirichlet(np.full(count, 10.0 ** rng.uniform(-2, 2)))
    shares = np.minimum(shares * mass / max(shares.sum(), 1e-300), cap)
    for _ in range(100):
        missing = mass - shares.sum()
        room = cap - shares
        if missing <= 1e-15 or room.sum() <= 0:
            break
        shares = np.minimum(shares + room * min(1.0, missing / room.sum()), cap)
    return rng.permutation(shares)


def completed(classes: np.ndarray, probs: np.ndarray, shares: np.ndarray, num_classes: int) -> np.ndarray:
    """The row with the given probabilities at the listed classes, and the shares at the others in order."""
    row = np.zeros(num_classes)
    row[classes] = probs
    row[np.setdiff1d(np.arange(num_classes), classes)] = shares
    return row
