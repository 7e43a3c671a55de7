"""Shared by all tests: the golden values, where the predictions behind them lie, and one thread per worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

# Beside the project lie predictions of real networks, which are not ours to copy.
SHARED = Path(__file__).resolve().parents[2] / "shared"
VALUES = Path(__file__).parent / "golden" / "values"

torch.set_num_threads(1)
# The same examples every time, and no stop-watch: the machine may be busy.
settings.register_profile("focalcal", deadline=None, derandomize=True)
settings.load_profile("focalcal")


def _need(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{'/'.join(parts)} is not beside the project; tests/golden/test_made.py needs no such file")
    return path


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """Reads a file of reference values."""
    return lambda name: json.loads((VALUES / name).read_text())


@pytest.fixture(scope="session")
def golden_predictions() -> Callable[[str], tuple[np.ndarray, np.ndarray]]:
    """The probabilities and labels of a model named as in the reference values, or skips."""
    files = {
        "lenet-5-cifar-10": "cifar10_lenet5.npz",
        "wideresnet-16-4-cifar-10": "cifar10_wideresnet16_4.npz",
        "lenet-5-cifar-100": "cifar100_lenet5.npz",
        "wideresnet-16-4-cifar-100": "cifar100_wideresnet16_4.npz",
    }

    def read(model: str) -> tuple[np.ndarray, np.ndarray]:
        with np.load(_need("data", "predictions", files[model])) as file:
            return file["probs"].astype(np.float64), file["labels"].astype(np.int64)

    return read
