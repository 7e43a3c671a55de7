"""The demo: train with four losses, calibrate each network, measure, and leave everything in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from focalcal import noisy_digits
from focalcal.calibrators import Calibrator, FocalTemperatureScaling, TemperatureScaling
from focalcal.calibrators.optimal_temperature import optimal_temperature
from focalcal.errors import MissingExtraError
from focalcal.files import PredictionTable, write_predictions
from focalcal.losses import AdaFocalLoss
from focalcal.metrics import Estimate
from focalcal.report.build import ModelInput, build_contents
from focalcal.report.contents import Contents, ModelVersion
from focalcal.report.html import write_report
from focalcal.threads import torch_threads

Progress = Callable[[int, int, str], object]

CALIBRATORS: dict[str, Callable[[], Calibrator]] = {
    "temperature": lambda: TemperatureScaling(),
    "focal-temperature": lambda: FocalTemperatureScaling(),
}
SPLIT = "calibrators fitted to 400 validation images, everything measured on 897 test images"
# Steps of the progress bar that the report is worth, in epochs.
_REPORT_STEPS = 40
_NUM_RESAMPLES = 200


@dataclass(frozen=True)
class DemoRow:
    """The measures of a network on the test images, as it is or after a calibrator.

    `temperature` is the best one that is left: what the logits would have to be divided by; 1 for a truthful network.
    """

    loss: str
    calibrator: str
    accuracy: Estimate
    ece: Estimate
    ada_ece: Estimate
    nll: Estimate
    temperature: Estimate


@dataclass(frozen=True)
class DemoResult:
    """What the demo found and wrote; `report` is None where plotly, which draws it, is not installed."""

    seed: int
    epochs: int
    rows: list[DemoRow]
    verdicts: dict[str, str]
    folder: str
    files: list[str]
    report: str | None
    command: str = "demo"
    schema: int = 1


def run_demo(
    folder: str | Path, *, seed: int = 0, epochs: int = noisy_digits.EPOCHS, progress: Progress | None = None
) -> DemoResult:
    """Train, calibrate, measure, and write logits, calibrators and the report into a folder; the seed fixes it all."""
    # The networks are so small that a second thread gains nothing, and on a busy machine it costs minutes.
    with torch_threads(1):
        return _run(folder, seed, epochs, progress)


def _run(folder: str | Path, seed: int, epochs: int, progress: Progress | None) -> DemoResult:
    place, advance = Path(folder), progress or (lambda done, total, what: None)
    place.mkdir(parents=True, exist_ok=True)
    total = len(noisy_digits.LOSSES) * epochs + _REPORT_STEPS
    models, files = [], []
    for loss, table in _trained(seed, epochs, total, advance):
        path = place / f"{loss.lower()}.npz"
        write_predictions(table, path)
        model = _calibrated(loss, table)
        files += [path, *_save(model, path)]
        models.append(model)
    done = len(models) * epochs

    def reporting(step: int, steps: int, what: str) -> None:
        advance(done + _REPORT_STEPS * step // max(1, steps), total, what)

    contents = build_contents(models, methods={}, title="Noisy digits", seed=seed, progress=reporting)
    report = _write_report(contents, place / "report.html")
    rows = [row for model, shown in zip(models, contents.models, strict=True) for row in _rows(model, shown.versions)]
    verdicts = {shown.name: shown.verdict for shown in contents.models}
    return DemoResult(seed, epochs, rows, verdicts, str(place), [str(file) for file in files], report)


def _trained(seed: int, epochs: int, total: int, advance: Progress) -> Iterator[tuple[str, PredictionTable]]:
    """The predictions of a network for each loss."""
    train_split, val_split, test_split = noisy_digits.load(seed)
    done = 0
    for name, make_loss in noisy_digits.LOSSES.items():
        loss = make_loss()
        for network in noisy_digits.train(loss, train_split, val_split, seed=seed, epochs=epochs):  # noqa: B007
            done += 1
            advance(done, total, f"training with {name}")
        parts = [noisy_digits.predict(network, split) for split in (val_split, test_split)]
        history = loss.history if isinstance(loss, AdaFocalLoss) else {}
        yield (
            name,
            PredictionTable(
                name=name,
                scores=torch.cat(parts).numpy(),
                kind="logits",
                labels=torch.cat([val_split.labels, test_split.labels]).numpy(),
                split=np.repeat(["val", "test"], [len(part) for part in parts]),
                class_names=tuple(str(digit) for digit in range(10)),
                history={field: values.numpy() for field, values in history.items()},
            ),
        )


def _calibrated(loss: str, table: PredictionTable) -> ModelInput:
    val, test = table.of_split("val"), table.of_split("test")
    assert val.labels is not None
    fitted = {name: make().fit(val.scores, val.labels) for name, make in CALIBRATORS.items()}
    return ModelInput(name=loss, score=test, fit=val, split=SPLIT, calibrators=fitted)


def _save(model: ModelInput, path: Path) -> list[Path]:
    places = {name: path.with_name(f"{path.stem}.{name}.json") for name in model.calibrators}
    for name, place in places.items():
        model.calibrators[name].save(place)
    return list(places.values())


def _write_report(contents: Contents, path: Path) -> str | None:
    try:
        write_report(contents, path)
    except MissingExtraError:
        return None
    return str(path)


def _rows(model: ModelInput, versions: list[ModelVersion]) -> Iterator[DemoRow]:
    labels = torch.from_numpy(np.asarray(model.score.labels))
    logits = torch.from_numpy(model.score.scores)
    for version in versions:
        calibrator = model.calibrators.get(version.name)
        with torch.no_grad():
            left = logits if calibrator is None else calibrator(logits)
        measured = {name: version.numbers[name] for name in ("accuracy", "ece", "ada_ece", "nll")}
        yield DemoRow(model.name, version.name, **measured, temperature=_best_temperature(left, labels))


def _best_temperature(logits: Tensor, labels: Tensor) -> Estimate:
    """The best temperature of some logits, with a 95 % percentile interval over resampled rows."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randint(len(labels), (len(labels),), generator=generator) for _ in range(_NUM_RESAMPLES)]
    best = optimal_temperature(logits, labels)
    others = [optimal_temperature(logits[rows], labels[rows], start=best) for rows in draws]
    low, high = (float(end) for end in np.quantile(others, [0.025, 0.975]))
    return Estimate(best, low, high, "the temperature of the smallest NLL")
