"""Finished runs on noisy digits, trained once for all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from focalcal_lab.catalog import find_recipe
from focalcal_lab.recipe import Recipe
from focalcal_lab.run import begin, resume
from focalcal_lab.run_folder import RunFolder, RunSettings
from focalcal_lab.training_setup import shortened


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    """Digits with three epochs and the quick calibrators."""
    shipped = shortened(find_recipe("cpu/digits"), 3)
    quick = [wish for wish in shipped.measurement.calibrators if wish.phase in ("post", "ts-nll", "psi")]
    return shipped.model_copy(update={"measurement": shipped.measurement.model_copy(update={"calibrators": quick})})


@pytest.fixture(scope="session")
def start(recipe: Recipe) -> Callable[..., RunFolder]:
    """Begin a run in a folder."""

    def begun(folder: Path, method: str, recipe: Recipe = recipe) -> RunFolder:
        trainer = {"accelerator": "cpu", "devices": 1}
        return begin(recipe, folder, RunSettings(method, 0, recipe.digest(method), None, 1, None, trainer))

    return begun


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, start: Callable[..., RunFolder]) -> Path:
    """Two finished runs, and one that has only begun."""
    root = tmp_path_factory.mktemp("runs") / "digits"
    for method in ("fl-2", "ce"):
        resume(start(root / method / "seed-0", method).path, say=lambda line: None)
    start(root / "brier" / "seed-0", "brier")
    return root
