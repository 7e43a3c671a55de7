"""Two criteria over the focal temperature family, with their optima and the line that komisarenko2024 searches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import data_of_arrays
from focalcal.calibrators.focal import FocalTemperatureScaling
from focalcal.calibrators.search import Criterion, search_temperature
from focalcal.core.checks import Array, require
from focalcal.core.temperature import TEMPERATURE_BOUNDS
from focalcal.files.prediction_table import PredictionTable
from focalcal.report.classes import labels_of
from focalcal.report.contents import CriterionPoint, Landscape
from focalcal.report.explorer import ExplorerSample, sample_of, some_rows

CRITERIA = ("nll", "ada_ece")
# Rows that a landscape is computed from, at most; and logits of all rows, so that with more classes there are fewer.
MAX_ROWS = 5000
_MAX_LOGITS = 50_000
# Rows with many classes are reduced more than in the page's sample: a map needs three digits.
_WIDTH, _RANGES = 10, 4
# Dense where the criteria bend most; 0 and 1, which fix the line, are among them.
_GAMMAS = (
    -0.9, -0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.2, -0.1, 0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5,
    3.0, 3.5, 4.0, 4.5, 5.0,
)  # fmt: skip
_NUM_TEMPERATURES = 40
# How far the map reaches below and above the best temperatures: gamma 5 asks for more than three times as much.
_BELOW, _ABOVE = 3.0, 4.0
# Around the best point so far, rounds of ever closer points: so many to each side.
_ROUNDS, _AROUND, _CLOSER = 4, 2, 2.5
_LINE_POINTS = 60


@dataclass(frozen=True, eq=False)
class _Ground:
    """The rows of the landscapes."""

    sample: ExplorerSample
    num_bins: int

    def values(self, temperature: float, gammas: Iterable[float]) -> Array:
        """Both criteria at one temperature, (2, gammas)."""
        tempered = self.sample.at(temperature)
        return np.stack([np.array(self._values(*tempered.columns(gamma))) for gamma in gammas], 1)

    def _values(self, confidence: Tensor, nll: Tensor) -> tuple[float, float]:
        weight = None if self.sample.weights is None else self.sample.weights.numpy()
        given, correct = confidence.numpy().clip(0.0, 1.0), self.sample.correct.numpy()
        ada_ece = Criterion("ada_ece", num_bins=self.num_bins).of_confidences(given, correct, weight)
        return float(np.average(nll.numpy(), weights=weight)), ada_ece

    def lowest(self, criterion: str, gammas: Iterable[float], temperatures: Iterable[float]) -> CriterionPoint:
        """The best point of a grid."""
        gammas, temperatures = list(gammas), list(temperatures)
        values = np.stack([self.values(temperature, gammas) for temperature in temperatures], 2)
        return _lowest(values[CRITERIA.index(criterion)], gammas, temperatures)


def landscape(table: PredictionTable, criterion: str, *, num_bins: int = 15, seed: int = 0) -> Landscape:
    """The landscape of one criterion, `"nll"` or `"ada_ece"`; see `landscapes`."""
    require(criterion in CRITERIA, "criterion", f"must be one of {', '.join(CRITERIA)}", repr(criterion))
    return landscapes(table, num_bins=num_bins, seed=seed)[CRITERIA.index(criterion)]


def landscapes(
    table: PredictionTable, *, fitted: Sequence[Calibrator] = (), num_bins: int = 15, seed: int = 0
) -> list[Landscape]:
    """The landscapes of NLL and AdaECE on a table's rows, or on a seeded sample of at most 5,000 of them.

    With more than ten classes there are fewer rows, from 18 on 2,777. The best temperature is that of
    `TemperatureScaling` on those rows. The best focal temperature is that of the `fitted` calibrators by the same
    criterion or the best point of the map and of a closer search around it, whichever is better: no value of the map
    lies below it.

    >>> logits = np.random.default_rng(0).normal(size=(60, 3))
    >>> table = PredictionTable("t", logits, "logits", labels=(logits + [1.0, 0.0, 0.0]).argmax(1))
    >>> [each.criterion for each in landscapes(table)]
    ['nll', 'ada_ece']
    """
    width, ranges = (_WIDTH, _RANGES) if table.num_classes > _WIDTH + 2 * _RANGES else (table.num_classes, 0)
    table = some_rows(table, min(MAX_ROWS, _MAX_LOGITS // (width + 2 * ranges)), seed)
    ground = _Ground(sample_of(table, width=width, ranges=ranges), num_bins)
    plain = [_best_temperature(table, criterion, num_bins) for criterion in CRITERIA]
    known = [_known(fitted, criterion) for criterion in CRITERIA]
    temperatures = _temperatures([*plain, *(temperature for points in known for _, temperature in points)])
    values = np.stack([ground.values(temperature, _GAMMAS) for temperature in temperatures], 2)
    return [
        _landscape(ground, criterion, plain[place], known[place], temperatures, values[place])
        for place, criterion in enumerate(CRITERIA)
    ]


def _landscape(
    ground: _Ground,
    criterion: str,
    temperature: float,
    known: list[tuple[float, float]],
    temperatures: list[float],
    values: Array,
) -> Landscape:
    zero, one = ([_GAMMAS.index(gamma)] for gamma in (0.0, 1.0))
    plain = ground.lowest(criterion, [0.0], [temperature])
    plain = _lower(plain, _lowest(values[zero], [0.0], temperatures))
    found = _lower(plain, *(ground.lowest(criterion, [gamma], [t]) for gamma, t in known))
    focal = _closer(ground, criterion, _lower(found, _lowest(values, _GAMMAS, temperatures)), temperatures)
    of_one = _closer(ground, criterion, _lowest(values[one], [1.0], temperatures), temperatures, fixed=True)
    return Landscape(
        criterion=criterion,
        gammas=list(_GAMMAS),
        temperatures=temperatures,
        values=values.tolist(),
        best_temperature=plain,
        best_focal=focal,
        line=_line(plain.temperature, of_one.temperature, temperatures),
    )


def _best_temperature(table: PredictionTable, criterion: str, num_bins: int) -> float:
    data = data_of_arrays(table.scores, labels_of(table), table.kind, table.weights)
    return search_temperature(data, Criterion(criterion, num_bins=num_bins), TEMPERATURE_BOUNDS).point.temperature


def _known(fitted: Sequence[Calibrator], criterion: str) -> list[tuple[float, float]]:
    """The points of calibrators by the same criterion, if they lie on the map."""
    focal = (each for each in fitted if isinstance(each, FocalTemperatureScaling) and each.criterion.name == criterion)
    return [(each.gamma_, each.temperature_) for each in focal if _GAMMAS[0] <= each.gamma_ <= _GAMMAS[-1]]


def _temperatures(optima: list[float]) -> list[float]:
    """Evenly spaced in log T, from well below the least optimum to well above the largest, with 1 inside."""
    low, high = min(*optima, 1.0) / _BELOW, max(*optima, 1.0) * _ABOVE
    return [float(value) for value in np.geomspace(low, high, _NUM_TEMPERATURES)]


def _lowest(values: Array, gammas: Sequence[float], temperatures: Sequence[float]) -> CriterionPoint:
    i, j = divmod(int(np.argmin(values)), len(temperatures))
    return CriterionPoint(float(gammas[i]), float(temperatures[j]), float(values[i, j]))


def _lower(*points: CriterionPoint) -> CriterionPoint:
    """The best point; the first of equals."""
    return min(points, key=lambda point: point.value)


def _closer(
    ground: _Ground, criterion: str, best: CriterionPoint, temperatures: list[float], *, fixed: bool = False
) -> CriterionPoint:
    """The best point of ever finer grids around one, the first as wide as the map's meshes; `fixed` keeps gamma."""
    step = np.arange(-_AROUND, _AROUND + 1) / _AROUND
    place = min(int(np.searchsorted(_GAMMAS, best.gamma)), len(_GAMMAS) - 2)
    mesh, factor = _GAMMAS[place + 1] - _GAMMAS[place], temperatures[1] / temperatures[0]
    for _ in range(_ROUNDS):
        gammas = [best.gamma] if fixed else np.unique(np.clip(best.gamma + mesh * step, _GAMMAS[0], _GAMMAS[-1]))
        best = _lower(best, ground.lowest(criterion, gammas, best.temperature * factor**step))
        mesh, factor = mesh / _CLOSER, factor ** (1 / _CLOSER)
    return best


def _line(of_zero: float, of_one: float, temperatures: list[float]) -> list[list[float]]:
    """T(gamma) = T0 + (T1 - T0) gamma, where it lies on the map. Source: [komisarenko2024, Sec. 5.2]."""
    along = np.linspace(_GAMMAS[0], _GAMMAS[-1], _LINE_POINTS)
    line = of_zero + (of_one - of_zero) * along
    inside = (line >= temperatures[0]) & (line <= temperatures[-1])
    points: list[list[float]] = np.stack([along, line], 1)[inside].tolist()
    return points
