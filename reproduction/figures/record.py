"""What figures need of monitored runs, and of a problem that takes seconds to solve, as small files that ship.

    focalcal lab run RECIPE --method ce --out RUNS --data DIR    # and so on
    python -m reproduction.figures.record FOLDER RUNS [RUNS ...]

Below each `RUNS` are finished runs of one recipe. `FOLDER/RUNS.json`, named after the end of the path, is a result
file like those of `python -m reproduction.collect`, with what those leave out in each run's `extra`:

- `train`: the training split's series, as long as `dynamics["epoch"]`;
- `train_bins`: at every record, the training rows in each bin of confidence, and the share of them that is right;
- `gradient`: at every record, the training rows by the norm of their gradient, between `gradient_edges`;
- `roc`: for each set out of distribution, before ("pre") and after temperature scaling ("post"), the share of known
  inputs that pass at each of the unknown ones' shares `roc_at`, and the AUROC.

`FOLDER/linear.json` is the linear problem of `focalcal_lab.problems`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.atomic import write_atomically
from focalcal.errors import InputError
from focalcal.files import PredictionTable, read_predictions
from focalcal_lab.monitor import read_monitor
from focalcal_lab.monitor.accumulators import gradient_edges
from focalcal_lab.out_of_distribution import roc_curve
from focalcal_lab.problems import LinearProblem, linear_problem
from focalcal_lab.run_folder import RunFolder
from focalcal_lab.run_results import RunResult
from reproduction.figures.recorded import LINEAR
from reproduction.result_files import Evidence, RunEvidence, shortened, write_evidence
from reproduction.training_series import dynamics

# The series of the training split, which result files have in part.
TRAIN = ("error", "nll", "nll_correct", "nll_wrong", "entropy_correct", "entropy_wrong", "feature_norm")
# Where ROC curves are read off.
ROC_AT = [each / 100 for each in range(101)]


def record_runs(folder: str | Path) -> Evidence:
    """What the finished runs of one recipe below a folder found, for figures."""
    places = [RunFolder(path.parent) for path in sorted(Path(folder).rglob("results.json"))]
    if not places:
        raise InputError(f"{folder}: has no finished run in it. `focalcal lab run` makes some.")
    recipe, settings = places[0].read()
    if odd := [place.path for place in places if place.read()[0] != recipe]:
        raise InputError(f"{odd[0]}: is a run of another recipe than {places[0].path}. Record them one by one.")
    first = places[0].result()
    order = list(recipe.methods)
    runs = sorted(map(_run, places), key=lambda run: (order.index(run.method), run.seed))
    return Evidence(
        recipe=recipe.model_dump(mode="json", exclude_defaults=True),
        environment=json.loads(places[0].file("environment.json").read_text(encoding="utf-8")),
        threads=settings.threads or 0,
        data=first.data,
        sizes=[first.num_train, first.num_val, first.num_test],
        runs=runs,
    )


def _run(place: RunFolder) -> RunEvidence:
    result, records = place.result(), read_monitor(place.file("monitor.json"))
    temperature = _temperature(result)
    return RunEvidence(
        method=result.method,
        seed=result.seed,
        seconds=place.seconds,
        phases=_phases(result),
        fits={"post": {"temperature": temperature}},
        dynamics=dynamics(records),
        extra={
            "train": {name: [record["train"][name] for record in records] for name in TRAIN},
            "train_bins": [
                {name: record["train"]["bins"][name] for name in ("count", "accuracy")} for record in records
            ],
            "gradient_edges": gradient_edges().tolist(),
            "gradient": [record["gradient"]["count"] for record in records],
            "roc_at": ROC_AT,
            "roc": _roc(place, temperature),
        },
    )


def _temperature(result: RunResult) -> float:
    """That of the calibrator called "post"; 1 if there is none."""
    return next((row.temperature for row in result.rows if row.phase == "post" and row.temperature), 1.0)


def _phases(result: RunResult) -> dict[str, dict[str, list[float | None]]]:
    found: dict[str, dict[str, list[float | None]]] = {}
    for row in result.rows:
        if not row.against:
            found.setdefault(row.phase, {})[row.metric] = [row.value, None, None]
    return found


def _roc(place: RunFolder, temperature: float) -> dict[str, Any]:
    """The ROC curve by entropy of each set whose logits the run kept."""
    known = _logits(_test(place))
    found: dict[str, Any] = {}
    for path in place.files("out_of_distribution", "*.npz"):
        unknown = _logits(read_predictions([str(path)], need_labels=False))
        for phase, divisor in (("pre", 1.0), ("post", temperature)):
            curve = roc_curve(known / divisor, unknown / divisor)
            passed = np.interp(ROC_AT, curve.false_positive_rate, curve.true_positive_rate)
            found.setdefault(path.stem, {})[phase] = {"passed": passed.tolist(), "auroc": curve.auroc}
    return found


def _test(place: RunFolder) -> PredictionTable:
    return read_predictions([str(place.file("predictions.npz"))]).of_split("test")


def _logits(table: PredictionTable) -> Tensor:
    """In float64: in float32 many of the surest rows have a confidence of exactly 1, and would be tied."""
    return torch.from_numpy(np.ascontiguousarray(table.scores)).double()


def linear_file(problem: LinearProblem) -> bytes:
    """The linear problem as JSON, its test points to four digits."""
    fields = {name: getattr(problem, name) for name in ("seed", "epochs", "flip", "scale", "bayes_error")}
    fields["runs"] = [shortened(asdict(run), 6) for run in problem.runs]
    fields["inputs"] = [[round(each, 4) for each in point] for point in problem.test.inputs.tolist()]
    fields["labels"] = problem.test.labels.tolist()
    return (json.dumps(fields, allow_nan=False) + "\n").encode()


def write_records(folder: str | Path, runs: Sequence[str | Path]) -> Iterator[Path]:
    """Write the files of a folder; gives their paths."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for each in runs:
        path = place / f"{Path(each).name}.json"
        write_evidence(record_runs(each), path)
        yield path
    write_atomically(place / LINEAR, linear_file(linear_problem()))
    yield place / LINEAR


def main(arguments: Sequence[str]) -> int:
    """Write to the folder named first what the runs in the others found; 2 if there are too few arguments."""
    if len(arguments) < 2:
        print("usage: python -m reproduction.figures.record FOLDER RUNS [RUNS ...]", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    for path in write_records(arguments[0], arguments[1:]):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
