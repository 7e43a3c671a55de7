r"""The focal calibration map as a calibrator, by itself and after a temperature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData
from focalcal.calibrators.fitted_values import FittedValue
from focalcal.calibrators.search import (
    GAMMAS,
    Criterion,
    Grid,
    gammas_of,
    search_grid,
    search_line,
    search_newton,
    search_temperature,
    temperatures_of,
)
from focalcal.calibrators.temperature import checked_bounds, plain_grid
from focalcal.core.checks import require
from focalcal.core.focal_map import focal_log_probs, focal_temperature_log_probs
from focalcal.core.optimum import Optimum
from focalcal.core.temperature import TEMPERATURE_BOUNDS

# What `FocalCalibration` tries for a criterion that is not smooth.
_FINE_GAMMAS = tuple(round(-0.9 + 0.05 * i, 2) for i in range(119))  # -0.9 to 5


class FocalCalibration(Calibrator):
    r"""The focal calibration map: what the true posterior is where focal training gave the softmax.

    $$ p = \Psi^\gamma(\mathrm{softmax}(x)) $$

    where `gamma` is that of the training loss: then there is nothing to fit, and `fit` only reports. With `gamma=None`
    it is fitted by `criterion` (`"nll"`, `"brier"`, `"focal"` with `loss_gamma`: Newton's method; `"ece"`, `"ada_ece"`,
    `"smooth_ece"`: -0.9 to 5 in steps of 0.05, or `gammas`). Keeps every predicted class. `focalcal.focal_map` is the
    same map on probabilities.

    Source: [charoenphakdee2021, Thm. 11 and Sec. 5]; [komisarenko2024, Prop. 4].

    >>> import torch
    >>> FocalCalibration(1.0).predict_probs(torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    tensor([[0.8555, 0.1445]], dtype=torch.float64)
    """

    FITTED: ClassVar = {"gamma_": FittedValue(above=-1)}
    gamma_: float
    gamma: float | None = None

    def __init__(
        self,
        gamma: float | None = None,
        criterion: str = "nll",
        *,
        loss_gamma: float | None = None,
        gammas: Sequence[float] | None = None,
        num_bins: int = 15,
    ) -> None:
        super().__init__()
        self.gamma = None if gamma is None else float(gamma)
        fine = self.gamma is None or (math.isfinite(self.gamma) and self.gamma > -1)
        require(fine, "gamma", "must be greater than -1 and finite", gamma)
        self.criterion = Criterion(criterion, loss_gamma, num_bins)
        self.gammas = None if gammas is None else list(gammas_of(gammas))
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        if self.gamma is not None:
            self._set(gamma_=self.gamma)

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        criterion = self.criterion.settings()
        criterion["loss_gamma"] = criterion.pop("gamma")
        return {"gamma": self.gamma, **criterion, "gammas": self.gammas}

    def _fit(self, data: FitData) -> Optimum[Any]:
        if self.gamma is not None:
            return Optimum(self.gamma, math.nan, 0)
        if self.gammas is None and self.criterion.smooth:
            best = search_newton(data, self.criterion, temperature_bounds=(1.0, 1.0))
        else:
            best = search_grid(data, self.criterion, self.gammas or _FINE_GAMMAS, [1.0])
        self._set(gamma_=best.point.gamma)
        return best

    def _log_probs(self, logits: Tensor) -> Tensor:
        return focal_log_probs(logits, self._value("gamma_"))


class FocalTemperatureScaling(Calibrator):
    r"""Focal temperature scaling: a temperature, then the focal calibration map.

    $$ p = \Psi^{\gamma}(\mathrm{softmax}(x / T)), \qquad (\gamma, T) = \arg\min \text{criterion} $$

    where `search` is

    - `"full"`: every point of `gammas` (those of the paper by default) and `grid` (`"komisarenko2024"` by default);
      gamma 0 is always among them, and without a `grid` of your own so is what `TemperatureScaling` finds: the
      criterion of the fit is never above that of temperature scaling;
    - `"line"`: the paper's proposal of 3m points: the best temperatures of gamma 0 and 1 fix a line, along which m more
      points are tried;
    - `"continuous"`: Newton's method in $(\gamma, \log T)$ for the smooth criteria (`"nll"`, `"brier"`, `"focal"` with
      `loss_gamma`), to a stationary point; T inside `bounds`, gamma in -0.95..20.

    Keeps every predicted class.

    Source: [komisarenko2024, Sec. 4.2, 5.1 and 5.2].

    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = 2 * torch.randn(500, 3, generator=generator)
    >>> labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator).squeeze(1)  # too sharp
    >>> scaling = FocalTemperatureScaling("nll", search="continuous").fit(logits, labels)
    >>> scaling.report_.after < scaling.report_.before
    True
    """

    FITTED: ClassVar = {"gamma_": FittedValue(above=-1), "temperature_": FittedValue(above=0)}
    gamma_: float
    temperature_: float

    def __init__(
        self,
        criterion: str = "ada_ece",
        search: Literal["full", "line", "continuous"] = "full",
        *,
        gammas: Sequence[float] | None = None,
        grid: Grid | None = None,
        loss_gamma: float | None = None,
        refine: bool = False,
        num_bins: int = 15,
        bounds: tuple[float, float] = TEMPERATURE_BOUNDS,
    ) -> None:
        super().__init__()
        self.criterion = Criterion(criterion, loss_gamma, num_bins)
        known = ("full", "line", "continuous")
        require(search in known, "search", f"must be one of {', '.join(known)}", repr(search))
        smooth = self.criterion.smooth or search != "continuous"
        fix = "Use search='full' or 'line' for it."
        require(smooth, "criterion", "search='continuous' needs nll, brier or focal", repr(criterion), fix)
        self.search, self.grid, self.refine = search, plain_grid(grid), refine
        self.gammas = None if gammas is None else [float(gamma) for gamma in gammas]
        self.bounds = checked_bounds(bounds)
        self._gammas = gammas_of(GAMMAS if gammas is None else gammas)
        self._temperatures = temperatures_of("komisarenko2024" if grid is None else grid)

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        criterion = self.criterion.settings()
        criterion["loss_gamma"] = criterion.pop("gamma")
        return {
            **criterion,
            "search": self.search,
            "gammas": self.gammas,
            "grid": self.grid,
            "refine": self.refine,
            "bounds": list(self.bounds),
        }

    def _fit(self, data: FitData) -> Optimum[Any]:
        if self.search == "continuous":
            best = search_newton(data, self.criterion, temperature_bounds=self.bounds)
        elif self.search == "line":
            best = search_line(data, self.criterion, self._gammas, self._temperatures)
        else:
            best = search_grid(data, self.criterion, self._gammas, self._temperatures, refine=self.refine)
        if self.grid is None:  # what TemperatureScaling would take need not be a point of the grid
            best = min(best, search_temperature(data, self.criterion, self.bounds), key=lambda each: each.value)
        self._set(gamma_=best.point.gamma, temperature_=best.point.temperature)
        return best

    def _log_probs(self, logits: Tensor) -> Tensor:
        return focal_temperature_log_probs(logits, self._value("gamma_"), self._value("temperature_"))
