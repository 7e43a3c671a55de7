"""Three classes: risks, maps and temperatures over the triangle of all distributions (Figs. 4 to 7)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import focalcal as fc
from focalcal import drawing as look
from reproduction.figures.catalogue import figure
from reproduction.figures.drawing import STYLES, curves, panels

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


@figure(
    "Conditional risk of four proper losses",
    caption=(
        "Where the risk is within its lowest 3, 12 and 20 % over the triangle, if the classes have the probabilities "
        "0.55, 0.30 and 0.15. All are lowest at that point. The regions go from circles to triangles."
    ),
    alt=(
        "Four triangles with three closed curves each around the same point: circles for the Brier score, ovals for "
        "cross-entropy, and rounded triangles for the proper parts of focal loss with γ 1 and 3."
    ),
    source="exact",
)
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


@figure(
    "The focal map and its nearest temperature as arrows",
    caption=(
        "Each arrow goes from a prediction to what the map makes of it. Both maps move predictions away from the "
        "centre. They differ most where two classes are level: there temperature scaling takes more from the third."
    ),
    alt=(
        "Four triangles full of arrows that point from the centre to the corners, longer for γ = 3 than for γ = 1, "
        "and alike for the focal map above and temperature scaling below."
    ),
    source="exact",
    differs=(
        "The paper has T = 0.81 for γ = 1 and T = 0.46 for γ = 3; those belong to γ = 0.5 and γ = 2. The nearest ones "
        "are drawn: 0.658 and 0.356."
    ),
)
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


@figure(
    "The nearest temperature of the focal map of three classes",
    caption=(
        "Left: the inverse temperature nearest to the map, and the least-squares line through it. Right: how far both "
        "are apart at most, over logits up to 10 apart: 7.7 % of probability at γ = 9."
    ),
    alt=(
        "Left, an almost straight rising curve beside two dashed lines; right, a curve that rises from 0 to almost 8 "
        "%, ever more slowly."
    ),
    source="exact",
    differs="The line of the paper is 0.64 γ + 0.91; over the same range least squares give 0.648 γ + 0.881.",
)
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


@figure(
    "Where the focal map and its nearest temperature differ",
    caption=(
        "The largest difference in the probability of any class. It is largest (crosses) where two classes are level "
        "and the third has 0.11 (left) or 0.17 (right), and vanishes in the corners and in the centre."
    ),
    alt=(
        "Two shaded triangles, dark in three spots between the centre and the middle of each side, and white in the "
        "corners and in the centre."
    ),
    source="exact",
    differs=(
        "The paper finds the largest difference near the corners; it is between two corners: 0.022 for γ = 0.5 and "
        "0.050 for γ = 2. It shows the pairs of its caption, as drawn here; its text names γ = 0.5 and 3."
    ),
)
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
