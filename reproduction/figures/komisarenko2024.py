"""Figures of komisarenko2024, "Relating focal loss, temperature scaling, and properness"."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

import focalcal as fc
from focalcal import drawing as look
from focalcal.core.focal_map import focal_log_probs
from reproduction.figures.drawing import MARKERS, STYLES, curves, diagonal, gammas, panels
from reproduction.figures.recorded import lab_results
from reproduction.labels import LITTLE, MORE
from reproduction.recipe_numbers import RecipeNumbers
from reproduction.tables.after_training import TemperatureLine, temperature_lines

# Logits of the paper's search for bounds (Sec. 3.2) are below this in size.
REACH = 20.0
# Closer to each other near 0, where widths change fast.
_STEPS = 10 * np.linspace(0, 1, 61) ** 2
_SHOWN = (0.5, 3.0)


def focal_logit(s: Tensor, gamma: float) -> Tensor:
    """The logit of the focal map of sigmoid(s)."""
    logits = torch.stack([torch.zeros_like(s), s], -1)
    return focal_log_probs(logits, torch.tensor(gamma, dtype=s.dtype)).diff(dim=-1).squeeze(-1)


def searched_bounds(gamma: float) -> tuple[float, float]:
    """The sharpest and the softest temperature that the map acts like at a logit of up to 20."""
    s = torch.linspace(0, REACH, 2001, dtype=torch.float64)[1:]
    temperature = s / focal_logit(s, gamma)
    return float(temperature.min()), float(temperature.max())


def fig1() -> Any:
    """Losses and their proper parts; the binary map of several gammas."""
    made, (left, right) = panels(2, height=2.7)
    q = torch.linspace(0, 1, 401, dtype=torch.float64)[1:-1]
    rows, positive = torch.stack([1 - q, q], 1), torch.ones(len(q), dtype=torch.long)

    def focal(gamma: float) -> Tensor:
        return fc.focal_loss(torch.log(rows), positive, gamma=gamma, reduction="none")

    handles = [left.plot(q, focal(0.0), color=look.BLACK, linestyle=":", linewidth=1.2)[0]]
    for gamma, colour in zip(_SHOWN, look.PALETTE, strict=False):
        proper = fc.proper_focal_loss(rows, positive, gamma, reduction="none")
        handles += left.plot(q, focal(gamma), color=colour, linewidth=1.2)
        handles += left.plot(q, proper, color=colour, linestyle="--", linewidth=1.2)
    left.set(xlim=(0, 1), ylim=(0, 3))
    look.style(left, xlabel="predicted probability q", ylabel="loss of a positive sample")
    names = [
        "cross-entropy",
        *(f"{kind}{gamma:g}" for gamma in _SHOWN for kind in ("focal, γ = ", "its proper part, γ = ")),
    ]
    look.legend(left, handles, names, loc="upper right")
    diagonal(right)
    shown = (-0.5, 0.5, 1.0, 3.0, 7.0)
    q = torch.linspace(0, 1, 201, dtype=torch.float64)
    lines = curves(right, q, (fc.focal_map(q, gamma, binary=True) for gamma in shown))
    right.set(xlim=(0, 1), ylim=(0, 1))
    look.style(right, xlabel="predicted probability q", ylabel="after the focal map")
    look.legend(right, lines, gammas(shown))
    return made


def fig2() -> Any:
    """1/T against gamma, and two maps beside their nearest temperatures."""
    made, (left, middle, right) = panels(3)
    steps = np.linspace(0, 7, 29)
    inverse = np.array([1 / fc.nearest_temperature(gamma, 2) for gamma in steps])
    slope, start = np.polyfit(steps, inverse, 1)
    lines = curves(left, steps, (inverse, start + slope * steps, 0.85 + 0.95 * steps))
    look.style(left, xlabel="γ", ylabel="nearest 1/T")
    look.legend(left, lines, ["nearest", "least squares", "printed"])
    s = torch.linspace(-6, 6, 241, dtype=torch.float64)
    mapped = [fc.focal_map(torch.sigmoid(s), gamma, binary=True) for gamma in _SHOWN]
    temperatures = [fc.nearest_temperature(gamma, 2) for gamma in _SHOWN]
    scaled = [torch.sigmoid(s / temperature) for temperature in temperatures]
    lines = curves(middle, s, mapped, linewidth=2)
    for each in scaled:
        middle.plot(s, each, color=look.BLACK, linestyle=":", linewidth=1)
    look.style(middle, xlabel="logit s", ylabel="probability")
    names = [f"γ = {gamma:g}\nT = {each:.3f}" for gamma, each in zip(_SHOWN, temperatures, strict=True)]
    look.legend(middle, lines, names, loc="lower right")
    right.axhline(0, color=look.GREY, linewidth=0.6)
    lines = curves(right, s, (1000 * (one - other) for one, other in zip(mapped, scaled, strict=True)))
    right.set_ylim(-1.4, 2.2)
    look.style(right, xlabel="logit s", ylabel="map \N{MINUS SIGN} temperature, in 1/1000")
    look.legend(right, lines, gammas(_SHOWN), loc="upper right")
    return made


def fig3() -> Any:
    """Bounds by Prop. 3 and by search, and their widths."""
    made, (left, right) = panels(2, height=2.5)
    proved = np.array([fc.temperature_bounds(gamma) for gamma in _STEPS])
    found = np.array([searched_bounds(gamma) for gamma in _STEPS])
    left.set_yscale("log")
    band = left.fill_between(_STEPS, proved[:, 0], proved[:, 1], color=look.PALE_BLUE, linewidth=0)
    lines = curves(left, _STEPS, found.T[::-1], linewidth=1)
    look.logarithmic(left.yaxis)
    look.style(left, xlabel="γ", ylabel="temperature T")
    look.legend(left, [band, *lines], ["Prop. 3", "softest, |s| ≤ 20", "sharpest, |s| ≤ 20"], loc="upper right")
    lines = curves(right, _STEPS, (np.diff(proved, axis=1)[:, 0], np.diff(found, axis=1)[:, 0]))
    right.set_ylim(bottom=0)
    look.style(right, xlabel="γ", ylabel="width of the bounds, in T")
    look.legend(right, lines, ["Prop. 3", "search, |s| ≤ 20"], loc="upper right")
    return made


# The ground truth and the percentiles of Fig. 4.
TRUTH = (0.55, 0.3, 0.15)
PERCENTILES = (3, 12, 20)
# The pairs of Fig. 7.
PAIRS = ((0.5, 0.8), (2.0, 0.46))
_HEIGHT = math.sqrt(3) / 2


def simplex(steps: int, *, least: int = 0) -> Tensor:
    """All distributions over three classes whose entries are multiples of 1/steps, of at least `least` of them."""
    counts = [(i, j, steps - i - j) for i in range(least, steps + 1) for j in range(least, steps + 1 - i - least)]
    return torch.tensor(counts, dtype=torch.float64) / steps


def flat(points: Tensor) -> tuple[Any, Any]:
    """Distributions (N, 3) as places in the triangle: class 1 left, class 2 right, class 3 on top."""
    return (points[:, 1] + points[:, 2] / 2).numpy(), (_HEIGHT * points[:, 2]).numpy()


def scaled(points: Tensor, temperature: float) -> Tensor:
    """Temperature scaling of distributions."""
    return torch.softmax(torch.log(points) / temperature, -1)


def difference(points: Tensor, gamma: float, temperature: float) -> Tensor:
    """How far the focal map and a temperature are apart, at most, in the probability of any class."""
    mapped: Tensor = fc.focal_map(points, gamma)
    return (mapped - scaled(points, temperature)).abs().amax(-1)


def worst(points: Tensor, gamma: float, temperature: float) -> Tensor:
    """Those of some points at which both maps differ most: three or six of them, by symmetry."""
    values = difference(points, gamma, temperature)
    return points[values > values.max() - 1e-9]


def triangle(ax: Any, title: str) -> None:
    """The triangle around everything, its corners named, without axes."""
    ax.plot([0, 1, 0.5, 0], [0, 0, _HEIGHT, 0], color=look.BLACK, linewidth=0.8)
    for x, y, name, side in ((0, -0.03, "class 1", "left"), (1, -0.03, "class 2", "right")):
        ax.text(x, y, name, ha=side, va="top", fontsize=7, color=look.BLACK)
    ax.text(0.5, _HEIGHT + 0.02, "class 3", ha="center", va="bottom", fontsize=7, color=look.BLACK)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.1, 0.97), aspect="equal")
    look.style(ax, title=title)
    ax.set_axis_off()


Loss = Callable[[Tensor, Tensor], Tensor]


def _risk(loss: Loss, points: Tensor) -> Tensor:
    """The expected loss of each prediction where the posterior is TRUTH."""
    labels = torch.arange(3).repeat_interleave(len(points))
    losses = loss(points.repeat(3, 1), labels).reshape(3, len(points))
    return torch.tensor(TRUTH, dtype=torch.float64) @ losses


def risks() -> dict[str, Loss]:
    """The losses of Fig. 4, of predictions (N, 3) and labels (N,)."""
    return {
        "Brier score": lambda q, y: fc.brier_loss(torch.log(q), y, reduction="none"),
        "cross-entropy": lambda q, y: fc.focal_loss(torch.log(q), y, gamma=0.0, reduction="none"),
        "proper part, γ = 1": lambda q, y: fc.proper_focal_loss(q, y, 1.0, reduction="none"),
        "proper part, γ = 3": lambda q, y: fc.proper_focal_loss(q, y, 3.0, reduction="none"),
    }


def fig4() -> Any:
    """Isolines of the conditional risk."""
    made, axes = panels(4, height=2.1)
    points = simplex(90, least=1)
    for ax, (name, loss) in zip(axes, risks().items(), strict=True):
        values = _risk(loss, points).numpy()
        levels = np.percentile(values, PERCENTILES)
        lines = ax.tricontour(
            *flat(points), values, levels=levels, colors=look.PALETTE[:3], linestyles=STYLES[:3], linewidths=1
        )
        ax.plot(*flat(torch.tensor([TRUTH])), "+", color=look.BLACK, markersize=5)
        triangle(ax, name)
    handles, _ = lines.legend_elements()
    look.legend(axes[0], handles, [f"lowest {share} %" for share in PERCENTILES], under=True, columns=3)
    return made


def fig5() -> Any:
    """Arrow fields of two focal maps and of the temperatures nearest to them."""
    made, axes = panels(2, rows=2, width=5.0, height=4.8)
    points = simplex(16, least=1)
    for column, gamma in enumerate((1.0, 3.0)):
        temperature = fc.nearest_temperature(gamma, 3)
        _arrows(axes[0, column], points, fc.focal_map(points, gamma), look.BLUE)
        triangle(axes[0, column], f"focal map, γ = {gamma:g}")
        _arrows(axes[1, column], points, scaled(points, temperature), look.VERMILION)
        triangle(axes[1, column], f"temperature scaling, T = {temperature:.3f}")
    return made


def _arrows(ax: Any, start: Tensor, end: Tensor, colour: str) -> None:
    (x, y), (to_x, to_y) = flat(start), flat(end)
    units = {"angles": "xy", "scale_units": "xy", "scale": 1, "units": "width"}
    ax.quiver(x, y, to_x - x, to_y - y, color=colour, width=0.005, headwidth=4, headlength=5, **units)


def fig6() -> Any:
    """1/T against gamma for three classes, and the largest difference."""
    made, (left, right) = panels(2, height=2.5)
    steps = np.linspace(0, 10, 41)
    temperatures = [fc.nearest_temperature(gamma, 3) for gamma in steps]
    slope, start = np.polyfit(steps, [1 / each for each in temperatures], 1)
    values = ([1 / each for each in temperatures], start + slope * steps, 0.91 + 0.64 * steps)
    lines = curves(left, steps, values)
    look.style(left, xlabel="γ", ylabel="nearest 1/T")
    look.legend(left, lines, ["nearest", f"{slope:.3f} γ + {start:.3f}", "printed: 0.64 γ + 0.91"])
    points = _apart(10.0)
    largest = [float(difference(points, *pair).max()) for pair in zip(steps, temperatures, strict=True)]
    curves(right, steps, [largest])
    right.set_ylim(bottom=0)
    look.percent(right.yaxis)
    look.style(right, xlabel="γ", ylabel="largest difference")
    return made


def _apart(gap: float) -> Tensor:
    """Distributions of three classes in order, with logits of up to `gap` apart, in steps of a twentieth."""
    steps = torch.linspace(0, gap, round(20 * gap) + 1, dtype=torch.float64)
    second, third = torch.combinations(-steps, with_replacement=True).T
    return torch.softmax(torch.stack([torch.zeros_like(second), second, third], -1), -1)


def fig7() -> Any:
    """The difference of both maps over the triangle."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("blue", ["white", look.PALE_BLUE, look.BLUE, look.BLACK])
    made, axes = panels(2, width=5.4, height=2.9)
    points, fine = simplex(45), simplex(400)
    for ax, (gamma, temperature), top in zip(axes, PAIRS, (0.024, 0.06), strict=True):
        values = difference(points, gamma, temperature).numpy()
        drawn = ax.tricontourf(*flat(points), values, levels=np.linspace(0, top, 7), cmap=shades)
        ax.plot(*flat(worst(fine, gamma, temperature)), "x", color=look.VERMILION, markersize=5)
        triangle(ax, f"γ = {gamma:g}, T = {temperature:g}")
        bar = made.colorbar(drawn, ax=ax, orientation="horizontal", shrink=0.8, ticks=np.linspace(0, top, 7)[::2])
        bar.ax.tick_params(labelsize=7, length=2.5)
        bar.ax.set_xticklabels([f"{share:.1%}" for share in np.linspace(0, top, 7)[::2]])
    return made


# The training gammas of the paper, and where each is drawn alike in both panels.
TRAINED = (1.0, 2.0, 3.0, 5.0, 7.0)


def shown(numbers: RecipeNumbers) -> list[TemperatureLine]:
    """The lines of the paper's training gammas."""
    return [line for line in temperature_lines(numbers) if line.gamma in TRAINED]


def fig8() -> Any:
    """T against gamma_ev, one series for each training gamma."""
    made, axes = panels(2, height=3.0)
    handles: dict[float, Any] = {}
    for ax, recipe in zip(axes, (LITTLE, MORE), strict=True):
        numbers = lab_results()[recipe]
        for line in shown(numbers):
            handles.setdefault(line.gamma, _series(ax, line))
        ax.grid(color=look.GRID)
        ax.set_ylim(bottom=0)
        look.style(ax, title=numbers.title, xlabel="γ_ev of the focal map", ylabel="best temperature T")
    names = [f"γ_tr = {gamma:g}" for gamma in handles]
    look.legend(axes[0], list(handles.values()), names, under=True, columns=5)
    return made


def _series(ax: Any, line: TemperatureLine) -> Any:
    place = TRAINED.index(line.gamma)
    colour, marker = look.PALETTE[place], MARKERS[place]
    slope, start = fmean(line.slopes), fmean(line.intercepts)
    gammas, values = list(line.points), list(line.points.values())
    ends = [gammas[0], gammas[-1]]
    ax.plot(ends, [start + slope * each for each in ends], color=colour, linewidth=0.8, linestyle=STYLES[place])
    ax.vlines(gammas, list(map(min, values)), list(map(max, values)), color=colour, linewidth=0.6)
    return ax.plot(gammas, list(map(fmean, values)), color=colour, marker=marker, linestyle="", markersize=3.5)[0]
