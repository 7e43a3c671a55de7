"""The report of some runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from focalcal.calibrators import load_calibrator
from focalcal.errors import InputError
from focalcal.lab.folder import RunFolder
from focalcal.report.build import ModelInput, build_contents
from focalcal.report.html import write_report
from focalcal.streams import read_predictions


def write_runs_report(runs: Mapping[str, Path], path: str | Path) -> None:
    """Write the report of finished runs by their names: each on its test split, with the calibrators that it fitted."""
    models = [_model(name, RunFolder(folder)) for name, folder in runs.items()]
    title = next(iter(runs.values()))
    recipe, _ = RunFolder(title).read()
    write_report(build_contents(models, methods={}, title=recipe.name), path)


def _model(name: str, folder: RunFolder) -> ModelInput:
    predictions = folder.file("predictions.npz")
    if not predictions.exists():
        raise InputError(f"{folder.path}: has no predictions.npz, so there is nothing to report.")
    table = read_predictions([str(predictions)])
    val, test = table.of_split("val"), table.of_split("test")
    fitted = {path.stem: load_calibrator(path) for path in sorted(folder.file("calibrators").iterdir())}
    split = f"calibrators fitted to {len(val.scores):,} validation rows, measured on {len(test.scores):,} test rows"
    return ModelInput(name=name, score=test, fit=val, split=split, calibrators=fitted)
