"""Measure a finished run: every calibrator with intervals, calibrators in pairs, and against people's answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal import metrics
from focalcal.calibrators import Calibrator
from focalcal.core.binning import bin_norm, bin_predictions
from focalcal.core.checks import require
from focalcal.errors import FileFormatError
from focalcal.metrics.intervals import replicates
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal_lab.data.array_files import read_npz
from focalcal_lab.measurement import MEASURES, SplitLogits
from reproduction.result_files import Pairs, Phases

# What is measured of every phase, by the names of `focalcal_lab.measurement`.
MEASURED = ("error", "nll", "brier", "ece_ew", "ece_em", "ece_debias", "ece_sweep_em", "s99_fraction")
# The phases that are compared: what comes after the minus sign is the plainer of the two.
COMPARED = (
    ("ts-nll", "pre"),
    ("post", "ts-nll"),
    ("ts-ada", "ts-nll"),
    ("fts", "ts-ada"),
    ("fts-line", "fts"),
    ("fts-nll", "ts-nll"),
    ("ets", "ts-nll"),
    ("spline", "ts-nll"),
    ("psi", "pre"),
    ("ts-fl", "pre"),
    ("ts-fl+psi", "pre"),
)
# The measures of paired comparisons.
PAIRED = ("nll", "ece_ew", "ece_em", "ece_debias", "ece_sweep_em")
NUM_RESAMPLES = 500
_TAILS = (0.025, 0.975)


@dataclass(frozen=True)
class HumanAnswers:
    """How often people gave each class to each test row (N, K), and the rows' labels (N,), by which they are known."""

    counts: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any] | None = None

    @staticmethod
    def read(path: Path) -> HumanAnswers:
        """From an .npz file with `counts` and, to be checked, `labels`."""
        arrays = read_npz(path, ("counts", "labels"))
        fine = "counts" in arrays and arrays["counts"].ndim == 2 and bool((arrays["counts"].sum(1) > 0).all())
        if not fine:
            raise FileFormatError(f"{path}: must have an array counts (N, K) with an answer in each row.")
        return HumanAnswers(arrays["counts"], arrays.get("labels"))

    def after(self, start: int) -> HumanAnswers:
        """Those of the rows from `start` on."""
        return HumanAnswers(self.counts[start:], None if self.labels is None else self.labels[start:])


@dataclass(frozen=True)
class CalibratedLogProbs:
    """The log-probabilities of the test rows after each phase, and their labels."""

    log_probs: dict[str, Tensor]
    labels: Tensor

    @staticmethod
    def of(test: SplitLogits, calibrators: Mapping[str, Calibrator]) -> CalibratedLogProbs:
        """Before and after each calibrator."""
        with torch.no_grad():
            after = {phase: calibrator(test.logits) for phase, calibrator in calibrators.items()}
        return CalibratedLogProbs({"pre": torch.log_softmax(test.logits.double(), 1), **after}, test.labels)


@dataclass(frozen=True)
class _ResampledMeasure:
    """A measure of a phase, and of the same resamples of the test rows as all others'."""

    value: float
    replicates: np.ndarray[Any, Any]

    def interval(self, name: str) -> list[float | None]:
        """The value and its 95 % interval."""
        low, high = np.quantile(_unbiased(name, self.value, self.replicates), _TAILS).tolist()
        return [self.value, max(0.0, low), max(0.0, high)]

    def against(self, name: str, other: _ResampledMeasure) -> list[float]:
        """The paired difference to another, its 95 % interval, and a two-sided p-value."""
        value = self.value - other.value
        differences = _unbiased(name, value, self.replicates - other.replicates)
        low, high = np.quantile(differences, _TAILS).tolist()
        beyond = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
        return [value, low, high, min(1.0, 2 * (beyond + 1) / (len(differences) + 1))]


def _unbiased(name: str, value: float, replicates: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Replicates of errors that noise raises, mirrored at the value: drawing anew raises a small ECE the most."""
    return 2 * value - replicates if name.startswith("ece") else replicates


def measure_phases(
    found: CalibratedLogProbs, *, num_bins: int = 15, num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> tuple[Phases, Pairs]:
    """Every measure of every phase with its interval, and the paired differences between phases."""
    drawn = {
        phase: _draw(log_probs, found.labels, num_bins, num_resamples, seed)
        for phase, log_probs in found.log_probs.items()
    }
    phases = {phase: {name: each.interval(name) for name, each in drawn[phase].items()} for phase in drawn}
    pairs = {
        f"{after} - {before}": {name: drawn[after][name].against(name, drawn[before][name]) for name in PAIRED}
        for after, before in COMPARED
        if after in drawn and before in drawn
    }
    return phases, pairs


def _draw(
    log_probs: Tensor, labels: Tensor, num_bins: int, num_resamples: int, seed: int
) -> dict[str, _ResampledMeasure]:
    rows = metrics.read(log_probs, labels, kind="log_probs")
    assert isinstance(rows, PredictedRows)
    wanted = {name: partial(_measured, name=name, num_bins=num_bins) for name in MEASURED}
    drawn = replicates(wanted, rows, num_resamples=num_resamples, seed=seed)
    return {name: _ResampledMeasure(float(measure(rows)), drawn[name]) for name, measure in wanted.items()}


def _measured(rows: Any, *, name: str, num_bins: int) -> Any:
    return MEASURES[name](rows, num_bins)


def measure_human(found: CalibratedLogProbs, answers: HumanAnswers, num_bins: int = 15) -> dict[str, dict[str, float]]:
    r"""How far each phase is from the distribution of people's answers, by phase.

    `kl` is the mean divergence
    $\mathrm{KL}(\eta \| p)$ of the predictions $p$ from the shares $\eta$ of the answers; `ece` the calibration error
    of the predicted class against its share of the answers instead of one label,
    $\sum_b \frac{n_b}{N} |\bar p_b - \bar\eta_b|$; and `gap` the mean of $|p - \eta|$ of the predicted class, row by
    row. `agreement` is the mean share of the predicted class.
    """
    expected = (len(found.labels), next(iter(found.log_probs.values())).shape[1])
    require(answers.counts.shape == expected, "counts", f"must have shape {expected}", answers.counts.shape)
    same = answers.labels is None or np.array_equal(answers.labels, found.labels.numpy())
    require(same, "labels", "of the answers must be those of the test rows, in their order", "others")
    share = torch.from_numpy(answers.counts / answers.counts.sum(1, keepdims=True))
    return {phase: _human(log_probs.double(), share, num_bins) for phase, log_probs in found.log_probs.items()}


def _human(log_probs: Tensor, share: Tensor, num_bins: int) -> dict[str, float]:
    confidence, predicted = log_probs.exp().max(1)
    agreed = share.gather(1, predicted.unsqueeze(1)).squeeze(1)
    bins = bin_predictions(confidence, agreed, num_bins=num_bins)
    return {
        "kl": float(metrics.kl_to_posterior(log_probs, share, kind="log_probs")),
        "ece": float(bin_norm(bins, "l1")),
        "gap": float((confidence - agreed).abs().mean()),
        "agreement": float(agreed.mean()),
    }
