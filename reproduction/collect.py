"""Measure the finished runs of a recipe and write one small result file.

    python -m reproduction.collect runs/cpu/cifar10-s-resnet8 --human cifar10h.npz --out cifar10-s-resnet8.json

The file has intervals and paired comparisons of calibrators, but no logits, and is small enough for version control.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from focalcal.calibrators import Calibrator, FocalCalibration
from focalcal.calibrators.fit_data import data_of_arrays
from focalcal.calibrators.optimal_temperature import suggest_gamma
from focalcal.calibrators.search import GRIDS, Criterion, search_grid
from focalcal.errors import FocalCalError, InputError
from focalcal.files import PredictionTable, read_predictions
from focalcal.losses.table import make_loss
from focalcal_lab.catalog import catalog
from focalcal_lab.measurement import SplitLogits, measure_all
from focalcal_lab.monitor import read_monitor
from focalcal_lab.recipe import Recipe
from focalcal_lab.run_folder import RunFolder, RunSettings
from focalcal_lab.run_results import MeasuredNumber, RunResult
from reproduction.measure import NUM_RESAMPLES, CalibratedLogProbs, HumanAnswers, measure_human, measure_phases
from reproduction.result_files import Evidence, RunEvidence, file_name, write_evidence
from reproduction.training_series import dynamics

Progress = Callable[[int, int, str], object]

# The gammas of the line that the best temperatures lie on [komisarenko2024, Fig. 8].
LINE_GAMMAS = (-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)


@dataclass(frozen=True)
class MeasurementPlan:
    """How runs are measured: bootstrap resamples, and people's answers about the test rows, if there are some."""

    num_resamples: int = NUM_RESAMPLES
    human: HumanAnswers | None = None


def collect(folder: str | Path, plan: MeasurementPlan | None = None, *, progress: Progress | None = None) -> Evidence:
    """What the finished runs of one recipe found, from the predictions in their folders below `folder`.

    Calibrators are fitted anew, by the recipe as it ships if it trains as the runs were trained: one that was added
    later needs no training. Runs that are not finished are left out; runs of two recipes are refused.
    """
    plan = plan or MeasurementPlan()
    places = [RunFolder(path.parent) for path in sorted(Path(folder).rglob("results.json"))]
    if not places:
        raise InputError(f"{folder}: has no finished run in it. `focalcal lab run` makes some.")
    recipe = _one_recipe(places)
    runs = []
    for done, place in enumerate(places):
        if progress is not None:
            progress(done, len(places), str(place.path))
        runs.append(_run(place, recipe, plan))
    first = places[0].result()
    return Evidence(
        recipe=recipe.model_dump(mode="json", exclude_defaults=True),
        environment=json.loads(places[0].file("environment.json").read_text(encoding="utf-8")),
        threads=places[0].read()[1].threads or 0,
        data=first.data,
        sizes=[first.num_train, first.num_val, first.num_test],
        runs=_in_order(runs, recipe),
    )


def _one_recipe(places: Sequence[RunFolder]) -> Recipe:
    """The recipe by which all runs were trained: as it ships, or else one of the versions that lie beside the runs."""
    found = [place.read() for place in places]
    versions = sorted((recipe for recipe, _ in found), key=lambda each: -len(each.methods))
    shipped = catalog().get(versions[0].name)
    for recipe in [*([] if shipped is None else [shipped]), *versions]:
        if all(_trains_as(recipe, own, settings) for own, settings in found):
            return recipe
    odd = next(
        place
        for place, (own, settings) in zip(places, found, strict=True)
        if not _trains_as(versions[0], own, settings)
    )
    raise InputError(f"{odd.path}: is a run of another recipe than the others. Collect them one by one.")


def _trains_as(recipe: Recipe, own: Recipe, settings: RunSettings) -> bool:
    """Whether `recipe` trains as the run of these settings was trained by its `own`, however it is measured."""
    if settings.method not in recipe.methods:
        return False
    return recipe.model_copy(update={"measurement": own.measurement}).digest(settings.method) == settings.digest


def _in_order(runs: Sequence[RunEvidence], recipe: Recipe) -> list[RunEvidence]:
    order = list(recipe.methods)
    return sorted(runs, key=lambda run: (order.index(run.method), run.seed))


def _run(place: RunFolder, recipe: Recipe, plan: MeasurementPlan) -> RunEvidence:
    result = place.result()
    if recipe.task == "translation":
        return _translation(place, result)
    table = read_predictions([str(place.file("predictions.npz"))])
    val, test = (_rows(table.of_split(split)) for split in ("val", "test"))
    loss = make_loss(recipe.methods[result.method].loss, **recipe.methods[result.method].options)
    monitor = place.file("monitor.json")
    return RunEvidence(
        method=result.method,
        seed=result.seed,
        seconds=place.seconds,
        foreign=_foreign(result.rows),
        dynamics=dynamics(read_monitor(monitor)) if monitor.exists() else {},
        extra=_extra(result.method, val),
        **_measured(val, test, recipe, plan, loss),
    )


def collect_network(
    name: str, val: SplitLogits, test: SplitLogits, recipe: Recipe, plan: MeasurementPlan
) -> RunEvidence:
    """What the calibrators of a recipe do for a network that was trained elsewhere."""
    return RunEvidence(name, 0, 0.0, extra=_extra("ce", val), **_measured(val, test, recipe, plan))


def _measured(
    val: SplitLogits, test: SplitLogits, recipe: Recipe, plan: MeasurementPlan, loss: nn.Module | None = None
) -> dict[str, Any]:
    rows, fitted, _ = measure_all(val, test, recipe.measurement, loss)
    after = CalibratedLogProbs.of(test, {phase: each for phase, each in fitted.items() if not _changes_nothing(each)})
    bins = recipe.measurement.num_bins
    phases, pairs = measure_phases(after, num_bins=bins, num_resamples=plan.num_resamples)
    human = {} if plan.human is None else measure_human(after, plan.human, bins)
    return {"phases": phases, "pairs": pairs, "human": human, "fits": _fits(rows)}


def _changes_nothing(calibrator: Calibrator) -> bool:
    """Whether it is the focal map of gamma 0, after a cross-entropy run."""
    last = list(getattr(calibrator, "parts", [calibrator]))[-1]
    return isinstance(last, FocalCalibration) and last.gamma_ == 0


def _rows(table: PredictionTable) -> SplitLogits:
    logits, labels = (torch.from_numpy(np.ascontiguousarray(each)) for each in (table.scores, table.labels))
    return SplitLogits(logits, labels.long())


def _fits(rows: Sequence[MeasuredNumber]) -> dict[str, dict[str, float]]:
    """The fitted temperature and gamma of each phase."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        values = {"temperature": row.temperature, "gamma": row.gamma_ev}
        there = {name: value for name, value in values.items() if value is not None and not row.against}
        if there:
            found.setdefault(row.phase, {}).update(there)
    return found


def _foreign(rows: Sequence[MeasuredNumber]) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        if row.against:
            found.setdefault(row.against, {}).setdefault(row.phase, {})[row.metric] = row.value
    return found


def _extra(method: str, val: SplitLogits) -> dict[str, Any]:
    """The gamma that a cross-entropy run suggests; of runs with a fixed gamma, the best temperature at each gamma."""
    found: dict[str, Any] = {"suggested_gamma": suggest_gamma(val.logits, val.labels)} if method == "ce" else {}
    if method == "ce" or method.startswith("fl-"):
        found["best_temperatures"] = list(_best_temperatures(val))
    return found


def _best_temperatures(val: SplitLogits) -> Iterator[list[float]]:
    data = data_of_arrays(val.logits, val.labels, "logits", None)
    for gamma in LINE_GAMMAS:
        best = search_grid(data, Criterion("ada_ece"), [gamma], GRIDS["mukhoti2020"], refine=True)
        yield [gamma, best.point.temperature]


def _translation(place: RunFolder, result: RunResult) -> RunEvidence:
    phases: dict[str, dict[str, list[float | None]]] = {}
    for row in result.rows:
        phases.setdefault(row.phase, {})[row.metric] = [row.value, None, None]
    return RunEvidence(
        method=result.method,
        seed=result.seed,
        seconds=place.seconds,
        phases=phases,
        fits=_fits(result.rows),
        extra=result.extra,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect the runs below a folder; returns 2 if the input is wrong."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.collect", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder below which the runs of one recipe lie")
    parser.add_argument("--out", type=Path, help="the result file (default: RECIPE.json in the current folder)")
    parser.add_argument("--human", type=Path, help="an .npz with counts (N, K): how often people chose each class")
    parser.add_argument("--resamples", type=int, default=NUM_RESAMPLES, help="bootstrap resamples of each interval")
    given = parser.parse_args(arguments)
    try:
        human = None if given.human is None else HumanAnswers.read(given.human)
        evidence = collect(given.folder, MeasurementPlan(given.resamples, human), progress=_say)
    except (FocalCalError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    place = given.out or Path(file_name(evidence.name))
    write_evidence(evidence, place)
    print(f"{place}: {len(evidence.runs)} runs of {evidence.name}")
    return 0


def _say(done: int, total: int, path: str) -> None:
    print(f"{done + 1} of {total}: {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
