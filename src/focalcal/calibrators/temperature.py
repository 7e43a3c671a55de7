"""Temperature scaling: one number that divides the logits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData
from focalcal.calibrators.fitted_values import FittedValue
from focalcal.calibrators.search import Criterion, Grid, search_grid, search_temperature, temperatures_of
from focalcal.calibrators.search.temperature import fit_nll_temperature
from focalcal.core.checks import require
from focalcal.core.optimum import Optimum
from focalcal.core.temperature import TEMPERATURE_BOUNDS


class TemperatureScaling(Calibrator):
    r"""Temperature scaling: softens or sharpens all predictions alike, and keeps every predicted class.

    $$ p = \mathrm{softmax}(x / T), \qquad T = \arg\min_T \text{criterion} $$

    where `criterion` is

    - `"nll"`, `"brier"` or `"focal"` (with `gamma`, the loss of training: TS_FL of charoenphakdee2021): smooth, solved
      by Newton's method in $\log(1/T)$ inside `bounds`, to the last digits;
    - `"ece"`, `"ada_ece"` (of `num_bins`) or `"smooth_ece"`: not smooth, so every temperature of `grid` is tried:
      `"mukhoti2020"` (0.1 to 10 in steps of 0.1, the default), `"komisarenko2024"` (0.01 to 5 in steps of 0.01) or your
      own. With `refine`, ever finer steps around the best one follow.

    A `grid` given to a smooth criterion is scanned as well. Ties go to the temperature nearest to 1.

    Source: [guo2017, Eq. 9]; [mukhoti2020, Sec. 5.1]; [komisarenko2024, Sec. 5.1]; [charoenphakdee2021, Sec. 6].

    >>> scaling = TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [0, 0, 1])
    >>> round(scaling.temperature_, 4)  # 2 of 3 right: 2 / log 2
    2.8854
    """

    FITTED: ClassVar = {"temperature_": FittedValue(above=0)}
    temperature_: float

    def __init__(
        self,
        criterion: str = "nll",
        *,
        gamma: float | None = None,
        grid: Grid | None = None,
        refine: bool = False,
        num_bins: int = 15,
        bounds: tuple[float, float] = TEMPERATURE_BOUNDS,
    ) -> None:
        super().__init__()
        self.criterion = Criterion(criterion, gamma, num_bins)
        self.grid, self.refine, self.bounds = plain_grid(grid), refine, checked_bounds(bounds)
        self._temperatures = None
        if grid is not None or not self.criterion.smooth:
            self._temperatures = temperatures_of("mukhoti2020" if grid is None else grid)
        scans = self._temperatures is not None
        require(scans or not refine, "refine", "belongs to a grid", f"criterion={criterion!r} without a grid")

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {
            **self.criterion.settings(),
            "grid": self.grid,
            "refine": self.refine,
            "bounds": list(self.bounds),
        }

    def _fit(self, data: FitData) -> Optimum[Any]:
        if self._temperatures is None and self.criterion.name == "nll":
            solved = fit_nll_temperature(data, self.bounds)
            self._set(temperature_=solved.point)
            assert solved.before is not None
            return replace(solved, value=min(solved.value, solved.before))
        if self._temperatures is None:
            best = search_temperature(data, self.criterion, self.bounds)
        else:
            best = search_grid(data, self.criterion, [0.0], self._temperatures, refine=self.refine)
        self._set(temperature_=best.point.temperature)
        return best

    def _log_probs(self, logits: Tensor) -> Tensor:
        return torch.log_softmax(logits / self._value("temperature_").to(logits.dtype), 1)


def plain_grid(grid: Grid | None) -> str | list[float] | None:
    """A grid as plain values, for files."""
    return grid if grid is None or isinstance(grid, str) else [float(value) for value in grid]


def checked_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """Bounds of the temperature; raises unless 0 < lower < upper.

    >>> checked_bounds((0.1, 10))
    (0.1, 10.0)
    """
    require(len(bounds) == 2, "bounds", "must be two temperatures, lower and upper", tuple(bounds))
    lower, upper = (float(bound) for bound in bounds)
    require(0 < lower < upper and math.isfinite(upper), "bounds", "must be 0 < lower < upper", tuple(bounds))
    return lower, upper
