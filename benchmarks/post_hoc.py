"""Every calibrator on the predictions of real networks: fitted to one half of the rows, measured on the other.

    python benchmarks/post_hoc.py            # reads ../shared/data beside the project
    python benchmarks/post_hoc.py --quick    # 600 rows of one model, writes nothing
    python benchmarks/post_hoc.py DATA       # a folder with predictions/*.npz and logits/*.npz

Writes benchmarks/results/post_hoc.json, from which `pages.py` makes the tables of docs/results/post_hoc.md. A file of
`predictions` has `probs` (N, K) and `labels` (N,), and is cut in the middle; a file of `logits` has `val_logits`,
`val_labels`, `test_logits` and `test_labels`: the calibrators are fitted to val. Files without rows of all classes
(`top1_*`) or without labels (`ood_*`) are passed over. Everything is computed in float64 and nothing is drawn at random
but the resamples of the intervals, whose seed is fixed: another run gives the same numbers.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from harness import QUICK, RESULTS, environment

import focalcal as fc
from focalcal import calibrators, metrics
from focalcal.calibrators.identity import Identity
from focalcal.calibrators.table import CalibratorEntry, calibrator_entries

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"

IDENTITY = "identity"
FITTED_BY = ("nll", "ada_ece")
MEASURES = {"ece": "ECE, %", "ada_ece": "AdaECE, %", "nll": "NLL"}
# A smaller family that is solved exactly and a larger one may differ by rounding in the last digits.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Model:
    """The predictions of one network, in two parts."""

    name: str
    fit_logits: np.ndarray
    fit_labels: np.ndarray
    logits: np.ndarray
    labels: np.ndarray

    @property
    def num_classes(self) -> int:
        return self.logits.shape[1]


def read_models(data: Path) -> Iterator[Model]:
    """The models of all files that have what it takes."""
    for path in sorted([*data.glob("predictions/*.npz"), *data.glob("logits/*.npz")]):
        with np.load(path) as file:
            if "probs" in file:
                logits, labels, half = (
                    np.log(file["probs"].astype(np.float64)),
                    file["labels"],
                    len(file["labels"]) // 2,
                )
                parts = logits[:half], labels[:half], logits[half:], labels[half:]
            elif "val_labels" in file:
                parts = tuple(file[key] for key in ("val_logits", "val_labels", "test_logits", "test_labels"))
            else:
                print(f"{path.name}: passed over, it has no rows of all classes or no labels")
                continue
        model = Model(path.stem, parts[0].astype(np.float64), parts[1], parts[2].astype(np.float64), parts[3])
        seen = [len(np.unique(part)) for part in (model.fit_labels, model.labels)]
        if seen == [model.num_classes] * 2:
            yield model
        else:
            print(f"{path.name}: passed over, its parts have labels of {seen} of {model.num_classes} classes")


def cut(model: Model, rows: int = 600) -> Model:
    """The first rows of both parts."""
    first = (model.fit_logits, model.fit_labels, model.logits, model.labels)
    return Model(model.name, *(part[:rows] for part in first))


def label(entry: CalibratorEntry, calibrator: calibrators.Calibrator) -> str:
    """The class, with the criterion where a class takes part more than once."""
    return entry.class_name if len(entry.tried) == 1 else f"{entry.class_name}, {calibrator.criterion.name}"


def contestants(model: Model) -> dict[str, calibrators.Calibrator]:
    """The identity and every calibrator of the table that suits the model."""
    found: dict[str, calibrators.Calibrator] = {IDENTITY: Identity()}
    for entry in calibrator_entries():
        if entry.two_classes and model.num_classes != 2:
            continue
        if not entry.square or model.num_classes * (model.num_classes + 1) <= len(model.fit_labels):
            for settings in entry.tried:
                calibrator = entry.load()(**settings)
                found[label(entry, calibrator)] = calibrator
    return found


def measure(model: Model, calibrator: calibrators.Calibrator) -> dict[str, Any]:
    """What a fitted calibrator makes of the other part: each measure with its 95 % interval, and the accuracy."""
    rows = metrics.read(calibrator(model.logits), model.labels, kind="log_probs")
    found: dict[str, Any] = {"accuracy": float(metrics.accuracy(rows))}
    for name in MEASURES:
        value = float(getattr(metrics, name)(rows))
        if math.isfinite(value):
            interval = fc.bootstrap(name, rows)
            found[name] = {"value": value, "low": interval.low, "high": interval.high}
        else:  # some label has probability 0
            found[name] = {"value": str(value)}
    return found


def run(model: Model) -> dict[str, Any]:
    """All methods on one model."""
    results: dict[str, Any] = {}
    for name, calibrator in contestants(model).items():
        start = time.perf_counter()
        calibrator.fit(model.fit_logits, model.fit_labels)
        seconds = time.perf_counter() - start
        results[name] = measure(model, calibrator) | {
            "fit_seconds": seconds,
            "fit": calibrator.report_.to_dict(),
            "fitted": {key: value for key in calibrator.FITTED if isinstance(value := getattr(calibrator, key), float)},
        }
        shown = "   ".join(f"{key} {float(results[name][key]['value']):.4f}" for key in MEASURES)
        print(f"  {name:34s} {shown}   fitted in {seconds:.2f} s", flush=True)
    return results


def require_nested_families(results: dict[str, dict[str, Any]]) -> None:
    """Focal temperature scaling contains temperature scaling: on the rows of the fit it must never be worse."""
    worse = []
    for name, found in results.items():
        for criterion in FITTED_BY:
            small, large = fit_criteria(found, criterion)
            if small is not None and large is not None and large > small * (1 + ROUNDING):
                worse.append(f"{name}: FocalTemperatureScaling by {criterion} {large}, TemperatureScaling {small}")
    assert not worse, "Nothing was written. On the rows of the fit:\n" + "\n".join(worse)


def fit_criteria(results: dict[str, Any], criterion: str) -> list[float | None]:
    """The criterion on the fit rows that temperature scaling and focal temperature scaling end at."""
    names = [f"{method}, {criterion}" for method in ("TemperatureScaling", "FocalTemperatureScaling")]
    return [results[name]["fit"]["after"] if name in results else None for name in names]


# ---------------------------------------------------------------------- tables


def cell(name: str, found: dict[str, Any], best: float) -> str:
    value = float(found["value"])
    if not math.isfinite(value):
        return "infinite"
    scale, digits = (1, 4) if name == "nll" else (100, 2)
    shown = f"{value * scale:.{digits}f}"
    ends = f"{found['low'] * scale:.{digits}f} to {found['high'] * scale:.{digits}f}"
    return f"**{shown}** ({ends})" if value == best else f"{shown} ({ends})"


def table(results: dict[str, Any]) -> list[str]:
    lines = [f"| method | {' | '.join(MEASURES.values())} | accuracy, % |", "|---|" + "---:|" * (len(MEASURES) + 1)]
    best = {name: min(float(found[name]["value"]) for found in results.values()) for name in MEASURES}
    for method, found in results.items():
        cells = " | ".join(cell(name, found[name], best[name]) for name in MEASURES)
        kept = " (kept the logits)" if method != IDENTITY and found["fit"]["kept_identity"] else ""
        lines.append(f"| {method}{kept} | {cells} | {100 * found['accuracy']:.2f} |")
    return lines


def on_the_fit_rows(results: dict[str, Any]) -> list[str]:
    """What the two temperature methods reach on the rows that they were fitted to."""
    lines = ["| on the fit rows | identity | TemperatureScaling | FocalTemperatureScaling |", "|---|---:|---:|---:|"]
    for criterion in FITTED_BY:
        small, large = fit_criteria(results, criterion)
        if small is None or large is None:
            continue
        names = [f"{method}, {criterion}" for method in ("TemperatureScaling", "FocalTemperatureScaling")]
        before, (temperature, focal) = results[names[0]]["fit"]["before"], (results[name]["fitted"] for name in names)
        first = f"{small:.6f} at T = {temperature['temperature_']:.4g}"
        second = f"{large:.6f} at T = {focal['temperature_']:.4g}, gamma = {focal['gamma_']:.4g}"
        lines.append(f"| {criterion} | {before:.6f} | {first} | {second} |")
    return lines


def wins(results: dict[str, dict[str, Any]]) -> list[str]:
    """How often each method is best, and its mean rank, over all models."""
    everywhere = [name for name in next(iter(results.values())) if all(name in found for found in results.values())]
    ranks = {
        measure_name: {
            name: [1 + sum(value(of, other, measure_name) < value(of, name, measure_name) for other in everywhere)
                   for of in results.values()]
            for name in everywhere
        }
        for measure_name in MEASURES
    }  # fmt: skip
    lines = ["| method | mean rank by ECE | by AdaECE | by NLL |", "|---|---:|---:|---:|"]
    best = {name: min(float(np.mean(places)) for places in by.values()) for name, by in ranks.items()}
    for name in everywhere:
        means = {key: float(np.mean(by[name])) for key, by in ranks.items()}
        cells = [f"**{mean:.1f}**" if mean == best[key] else f"{mean:.1f}" for key, mean in means.items()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def value(results: dict[str, Any], method: str, name: str) -> float:
    return float(results[method][name]["value"])


def blocks(results: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The tables of the page by the names of their marks: all models together, and two for each model."""
    found = {"all models": wins(results)}
    for name, measured in results.items():
        found |= {name: table(measured), f"{name}, fit rows": on_the_fit_rows(measured)}
    return found


def main() -> None:
    given = [argument for argument in sys.argv[1:] if argument != "--quick"]
    data = Path(given[0]) if given else DATA
    if not list(data.glob("predictions/*.npz")) + list(data.glob("logits/*.npz")):
        sys.exit(f"{data}: has no predictions/*.npz nor logits/*.npz. Pass the folder that has them as an argument.")
    models = [cut(model) for model in islice(read_models(data), 1)] if QUICK else list(read_models(data))
    start, results = time.perf_counter(), {}
    for model in models:
        print(f"\n{model.name}: {model.num_classes} classes, {len(model.fit_labels):,} + {len(model.labels):,} rows")
        results[model.name] = run(model)
    require_nested_families(results)
    if QUICK:
        print("\nA quick run: nothing written.")
        return
    RESULTS.mkdir(exist_ok=True)
    content = {"environment": environment(), "measured": results}
    (RESULTS / "post_hoc.json").write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    print(f"\nWritten to benchmarks/results/post_hoc.json after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
