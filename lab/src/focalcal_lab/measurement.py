"""A trained network's predictions, calibrated by the recipe and measured as the papers' tables do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from focalcal import calibrators, metrics
from focalcal.calibrators import Calibrator
from focalcal.errors import InputError
from focalcal_lab.recipe import Calibration, Measurement
from focalcal_lab.run_results import MeasuredNumber

# The measures of the published tables by the names of `published_results.csv`; `r` reads the rows once for all.
MEASURES: dict[str, Callable[[Any, int], float]] = {
    "error": lambda r, bins: metrics.error(r),
    "accuracy": lambda r, bins: metrics.accuracy(r),
    "top1": lambda r, bins: metrics.accuracy(r),
    "top5": lambda r, bins: metrics.top_k_accuracy(r, k=5),
    "nll": lambda r, bins: metrics.nll(r),
    "log_loss": lambda r, bins: metrics.nll(r),
    "brier": lambda r, bins: metrics.brier(r),
    "ece_ew": lambda r, bins: metrics.ece(r, num_bins=bins),
    "ece_em": lambda r, bins: metrics.ada_ece(r, num_bins=bins),
    "mce": lambda r, bins: metrics.mce(r, num_bins=bins),
    "ece_debias": lambda r, bins: metrics.ece_debiased(r, num_bins=bins),
    "ece_debias_30": lambda r, bins: metrics.ece_debiased(r, num_bins=30),
    "ece_sweep_ew": lambda r, bins: metrics.ece_sweep(r, edges="equal_width"),
    "ece_sweep_em": lambda r, bins: metrics.ece_sweep(r),
    "s99_fraction": lambda r, bins: metrics.s99(r).share,
    "s99_accuracy": lambda r, bins: metrics.s99(r).accuracy,
}
# Those of equal-mass bins, which need a row for each, and the number of bins where it is fixed.
_OF_EQUAL_MASS = {"ece_em": 0, "ece_debias": 0, "ece_debias_30": 30}
# What no calibrator of the tables changes, and the tables print once.
UNSCALED = ("error", "accuracy", "top1", "top5")


@dataclass(frozen=True)
class SplitLogits:
    """Logits (N, K) and class numbers (N,) of a split."""

    logits: Tensor
    labels: Tensor


def recipe_calibrator(wish: Calibration, loss: nn.Module | None = None) -> Calibrator | None:
    """The calibrator that a recipe asks for; None where it wants the gamma of a loss that has no fixed one.

    >>> recipe_calibrator(Calibration(phase="post", method="temperature", criterion="ece")).criterion.name
    'ece'
    """
    options = dict(wish.options) if wish.criterion is None else {**wish.options, "criterion": wish.criterion}
    if "trained" in options.values():
        gamma = getattr(loss, "gamma", None)
        if not isinstance(gamma, float):
            return None
        options = {name: gamma if value == "trained" else value for name, value in options.items()}
    return calibrators.make_calibrator(wish.method, **options)


def measure(rows: SplitLogits, names: list[str], *, num_bins: int, kind: str = "logits") -> Iterator[tuple[str, float]]:
    """The named measures of some predictions, but those that the data do not have: no row above 0.99, few rows."""
    read = metrics.read(rows.logits, rows.labels, kind=kind)  # type: ignore[arg-type]
    for name in names:
        too_few = name in _OF_EQUAL_MASS and (_OF_EQUAL_MASS[name] or num_bins) > len(rows.labels)
        if too_few or (name == "top5" and rows.logits.shape[1] <= 5):
            continue
        value = float(MEASURES[name](read, num_bins))
        if math.isfinite(value):
            yield name, value


def measure_all(
    val: SplitLogits, test: SplitLogits, plan: Measurement, loss: nn.Module | None = None
) -> tuple[list[MeasuredNumber], dict[str, Calibrator], dict[str, str]]:
    """Fit every calibrator of a recipe to the validation rows, and measure the test rows before and after each.

    Returns the measured numbers, the fitted calibrators, and why others could not be fitted (too few rows), by their
    phase, or by phase and criterion where a table takes numbers of one phase from two fits.
    """
    found = [
        MeasuredNumber("pre", name, value) for name, value in measure(test, list(MEASURES), num_bins=plan.num_bins)
    ]
    fitted: dict[str, Calibrator] = {}
    refused: dict[str, str] = {}
    scaled = [name for name in MEASURES if name not in UNSCALED]
    phases = Counter(wish.phase for wish in plan.calibrators)
    for wish in plan.calibrators:
        calibrator = recipe_calibrator(wish, loss)
        if calibrator is None:
            continue
        name = wish.phase if phases[wish.phase] == 1 else f"{wish.phase}-{wish.criterion}"
        if wish.after is not None:
            if wish.after not in fitted:
                refused[name] = f"{wish.after}, which comes before it, was not fitted."
                continue
            calibrator = calibrators.Compose(fitted[wish.after], calibrator)
        try:
            fitted[name] = calibrator.fit(val.logits, val.labels)
        except InputError as error:
            refused[name] = str(error)
            continue
        with torch.no_grad():
            after = SplitLogits(calibrator(test.logits), test.labels)
        temperature, gamma = (_fitted_number(calibrator, name) for name in ("temperature_", "gamma_"))
        names = wish.metrics or scaled
        found += [
            MeasuredNumber(wish.phase, name, value, temperature=temperature, gamma_ev=gamma)
            for name, value in measure(after, names, num_bins=plan.num_bins, kind="log_probs")
        ]
    return found, fitted, refused


def _fitted_number(calibrator: Calibrator, name: str) -> float | None:
    """A fitted value of the calibrator, or of the last of several that has it."""
    parts = list(getattr(calibrator, "parts", [calibrator]))
    return next((float(getattr(part, name)) for part in reversed(parts) if name in part.FITTED), None)
