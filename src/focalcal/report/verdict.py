"""The verdict: is a model too sure, not sure enough, or as sure as it should be, and how certain is that?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import torch

from focalcal.core.checks import ArrayLike
from focalcal.core.score_kinds import Kind
from focalcal.metrics import Evaluation, Interval, evaluate, read
from focalcal.metrics.intervals import Estimate, bootstrap_each
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.metrics.read_scores import ReadOptions
from focalcal.metrics.reliability import ConsistencyBars, consistency_bars
from focalcal.metrics.table import MEASURES, Measure, MeasureFunction

Direction: TypeAlias = Literal["overconfident", "underconfident", "both", "calibrated"]

# What has intervals, in the order of tables.
KEY_MEASURES = ("accuracy", "mean_confidence", "gap", "ece", "ada_ece", "nll", "brier")
# Below this many points on average the verdict says "slightly".
_SLIGHT = 0.01


@dataclass(frozen=True)
class MeasureSettings:
    """How predictions are measured: bins of the calibration errors, and the intervals' level, resamples and seed."""

    num_bins: int
    level: float
    num_resamples: int
    seed: int


@dataclass(frozen=True, eq=False)
class Assessment:
    """The verdict on some predictions, every measure, and intervals of some.

    `intervals` has accuracy, mean_confidence, gap (confidence minus accuracy), nll, brier, ece and ada_ece; of a stream
    accuracy and gap only. `rows` are the predictions, which can be measured further; a stream leaves none. `chance` is
    what a perfectly calibrated model would show on these rows, where they are in memory and not weighted.
    """

    verdict: str
    direction: Direction
    intervals: dict[str, Interval]
    evaluation: Evaluation
    chance: ConsistencyBars | None = None
    rows: PredictedRows | None = field(default=None, repr=False)

    def measures(self) -> dict[str, Estimate]:
        """Every measure by its name, with its interval if it has one: key measures first."""
        values = {name: each.value for name, each in self.intervals.items()} | dict(self.evaluation.values)
        definitions = {name: each.definition for name, each in self.intervals.items()} | self.evaluation.definitions
        names = dict.fromkeys([*(name for name in KEY_MEASURES if name in values), *values])
        return {name: self._estimate(name, values[name], definitions.get(name)) for name in names}

    def _estimate(self, name: str, value: float | None, definition: str | None) -> Estimate:
        interval = self.intervals.get(name)
        low, high = (None, None) if interval is None else (interval.low, interval.high)
        return Estimate(value, low, high, definition or "undefined for these rows")


def assess(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    kind: Kind = "logits",
    sample_weight: ArrayLike | None = None,
    num_bins: int = 15,
    level: float = 0.95,
    num_resamples: int = 1000,
    seed: int = 0,
    classwise: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> Assessment:
    """Measure predictions and put the result into words.

    where `scores`, `labels`, `kind` and `sample_weight` are as in `evaluate`. A model is called over- or underconfident
    if the interval of mean confidence minus accuracy leaves 0 out and a calibrated model would not show as much by
    chance; it is called calibrated if nothing speaks against that: then its ECE is no larger than chance would make it.

    >>> assess([[3.0, 0.0]] * 100, [0] * 80 + [1] * 20).verdict
    'overconfident: on average 15.3 points too sure; ECE 15.3 % [7.3, 23.3]'
    """
    reading: ReadOptions = {"kind": kind, "sample_weight": sample_weight}
    evaluation = evaluate(scores, labels, **reading, num_bins=num_bins, classwise=classwise)
    rows = read(scores, labels, **reading, columns=("confidence", "correct", "nll", "brier"))
    assert isinstance(rows, PredictedRows)
    measures = {name: _with_bins(MEASURES[name], num_bins, rows) for name in KEY_MEASURES}
    intervals = bootstrap_each(measures, rows, num_resamples=num_resamples, level=level, seed=seed, progress=progress)
    chance = None if rows.weight is not None else consistency_bars(rows, num_bins=num_bins, level=level, seed=seed)
    direction = _direction(intervals["gap"], _gap_by_chance(rows, level), chance)
    verdict = _verdict(direction, intervals["gap"], intervals["ece"], chance, rows.num_rows)
    return Assessment(verdict, direction, intervals, evaluation, chance, rows)


def _with_bins(measure: Measure, num_bins: int, rows: PredictedRows) -> MeasureFunction:
    """A measure as a function of rows, with the number of bins if it has any."""
    if measure.num_bins == "none":
        return measure
    return partial(measure, num_bins=rows.most_bins(num_bins) if measure.num_bins == "at most rows" else num_bins)


def assess_evaluation(evaluation: Evaluation, level: float = 0.95) -> Assessment:
    r"""The verdict on an evaluation whose rows are gone, with normal intervals of accuracy and gap.

    The variance of a row's confidence minus correctness is at most its Brier score, so the gap's interval is not too
    narrow. By chance a bin of n rows with mean confidence c is off by $\sigma = \sqrt{c(1-c)/n}$, and the ECE of a
    calibrated model has the mean $\sqrt{2/\pi} \sum w \sigma$ and the variance $(1 - 2/\pi) \sum w^2 \sigma^2$.

    >>> assess_evaluation(evaluate([[3.0, 0.0]] * 1000, [0] * 800 + [1] * 200)).verdict
    'overconfident: on average 15.3 points too sure; ECE 15.3 %'
    """
    quantile = float(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))
    gap = evaluation.mean_confidence - evaluation.accuracy
    reach = {
        "gap": (gap, np.sqrt(evaluation.brier / evaluation.n)),
        "accuracy": (evaluation.accuracy, np.sqrt(evaluation.accuracy * evaluation.error / evaluation.n)),
    }
    definitions = {"gap": "mean confidence minus accuracy", **evaluation.definitions}
    intervals = {
        name: Interval(
            value,
            value - quantile * float(error),
            value + quantile * float(error),
            definitions[name],
            level,
            "normal",
        )
        for name, (value, error) in reach.items()
    }
    bins = evaluation.bins
    confidence, share = bins.confidence.numpy(), bins.weight.numpy()
    spread = share * np.sqrt(np.maximum(confidence * (1 - confidence), 0) / np.maximum(bins.count.numpy(), 1))
    high = np.sqrt(2 / np.pi) * spread.sum() + quantile * np.sqrt((1 - 2 / np.pi) * (spread**2).sum())
    direction: Direction = "both" if evaluation.ece > high else "calibrated"
    if intervals["gap"].low > 0 or intervals["gap"].high < 0:
        direction = "overconfident" if gap > 0 else "underconfident"
    words = _words(direction, gap, f"ECE {100 * evaluation.ece:.1f} %", float(high), evaluation.n)
    return Assessment(words, direction, intervals, evaluation)


def _gap_by_chance(rows: PredictedRows, level: float) -> float:
    """How large the gap of a calibrated model with these confidences gets: a row is right with its confidence c.

    The variance of its mean correctness is the sum of c (1 - c) / n^2. A bootstrap alone would be sure of its case
    after three rows that happen to be right.
    """
    confidence = rows.column("confidence").astype(np.float64)
    weight = np.ones(rows.num_rows) if rows.weight is None else rows.weight
    spread = np.sqrt((weight**2 * confidence * (1 - confidence)).sum()) / weight.sum()
    quantile = torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64))
    return float(quantile * spread)


def _direction(gap: Interval, by_chance: float, chance: ConsistencyBars | None) -> Direction:
    if gap.low > 0 and gap.value > by_chance:
        return "overconfident"
    if gap.high < 0 and gap.value < -by_chance:
        return "underconfident"
    return "both" if chance is not None and chance.ece > chance.ece_high else "calibrated"


def _verdict(direction: Direction, gap: Interval, error: Interval, chance: ConsistencyBars | None, n: int) -> str:
    measured = f"ECE {100 * error.value:.1f} %"
    if direction != "calibrated":
        measured += f" [{100 * error.low:.1f}, {100 * error.high:.1f}]"
    return _words(direction, gap.value, measured, None if chance is None else chance.ece_high, n)


def _words(direction: Direction, gap: float, measured: str, by_chance: float | None, n: int) -> str:
    slightly = "slightly " if abs(gap) < _SLIGHT else ""
    points = f"{100 * abs(gap):.1f} points"
    if direction == "overconfident":
        return f"{slightly}overconfident: on average {points} too sure; {measured}"
    if direction == "underconfident":
        return f"{slightly}underconfident: on average {points} not sure enough; {measured}"
    if direction == "both":
        return f"miscalibrated both ways: too sure in places, not sure enough in others; {measured}"
    chance = "" if by_chance is None else f"; up to {100 * by_chance:.1f} % would be expected by chance alone"
    return f"calibrated, as far as {n:,} rows can tell: {measured}{chance}"
