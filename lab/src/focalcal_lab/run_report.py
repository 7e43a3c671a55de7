"""The report of some runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from focalcal.calibrators import Calibrator, load_calibrator
from focalcal.calibrators.table import find_calibrator
from focalcal.errors import InputError
from focalcal.files import read_predictions
from focalcal.report.build import ModelInput, build_contents
from focalcal.report.html import write_report
from focalcal_lab.recipe import Recipe
from focalcal_lab.run_folder import RunFolder


def write_runs_report(runs: Mapping[str, Path], path: str | Path) -> None:
    """Write the report of finished runs by their names: each on its test split, with the calibrators that it fitted."""
    folders = {name: RunFolder(folder) for name, folder in runs.items()}
    first = next(iter(folders.values()))
    recipe, _ = first.read()
    title = first.result().data.partition(":")[0] if recipe.data.name == "own" else recipe.name
    models = [_model(name, folder, recipe) for name, folder in folders.items()]
    write_report(build_contents(models, methods={}, title=title, num_bins=recipe.measurement.num_bins), path)


def _model(name: str, folder: RunFolder, recipe: Recipe) -> ModelInput:
    predictions = folder.file("predictions.npz")
    if not predictions.exists():
        raise InputError(f"{folder.path}: has no predictions.npz, so there is nothing to report.")
    table = read_predictions([str(predictions)])
    val, test = table.of_split("val"), table.of_split("test")
    split = f"calibrators fitted to {len(val.scores):,} validation rows, measured on {len(test.scores):,} test rows"
    return ModelInput(name=name, score=test, fit=val, split=split, calibrators=_calibrators(folder, recipe))


def _calibrators(folder: RunFolder, recipe: Recipe) -> dict[str, Calibrator]:
    """The run's calibrators by their methods' names, which say more than the phases of the papers' tables."""
    names = {
        stem: ":".join(part for part in (find_calibrator(wish.method).name, wish.criterion) if part is not None)
        for wish in recipe.measurement.calibrators
        for stem in (wish.phase, f"{wish.phase}-{wish.criterion}")
        if wish.after is None
    }
    return {names.get(path.stem, path.stem): load_calibrator(path) for path in folder.files("calibrators")}
