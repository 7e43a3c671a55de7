"""The minimiser of focal risk: where it is over- or underconfident (Figs. 1 and 2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import focalcal as fc
from focalcal import drawing as look
from reproduction.figures.catalogue import figure
from reproduction.figures.drawing import curves, diagonal, gammas, panels

_SHOWN = (0.5, 1.0, 2.0, 3.0, 5.0)
_NUM_CLASSES = 1000


@figure(
    "φ, and where the minimiser is over- or underconfident",
    caption=(
        "The function φ for several γ. Shading is for γ = 3: the minimiser of focal risk is overconfident where its "
        "largest probability is at most τ_oc, the place of the maximum, and underconfident from τ_uc on, where φ is 1 "
        "again; in between it depends on the other classes."
    ),
    alt=(
        "Five curves that start at 1, rise to a maximum at a small v, and fall to 0 at v = 1, faster for larger γ; "
        "behind them a narrow, a medium and a wide band."
    ),
    source="exact",
)
def fig1() -> Any:
    """phi of several gammas, and the three regions of gamma 3."""
    made, (ax,) = panels(1, width=1.35 * look.COLUMN, height=2.9)
    over, under = fc.confidence_thresholds(3.0)
    ends = (0.0, over, under, 1.0)
    for low, high, shade in zip(ends, ends[1:], (look.VERMILION, look.GREY, look.SKY), strict=False):
        ax.axvspan(low, high, color=shade, alpha=0.2, linewidth=0, zorder=0)
    for place, name in ((over / 2, "overconfident"), ((over + under) / 2, "either")):
        ax.text(place, 0.04, name, rotation=90, ha="center", va="bottom", fontsize=7, color=look.BLACK)
    ax.text((under + 1) / 2, 1.42, "underconfident", ha="center", va="top", fontsize=7, color=look.BLACK)
    for place, name in ((over, f"τ_oc\n{over:.3f}"), (under, f"τ_uc\n{under:.3f}")):
        ax.axvline(place, color=look.GREY, linewidth=0.6)
        ax.text(place + 0.008, 1.56, name, ha="left", va="top", fontsize=7, color=look.BLACK)
    ax.axhline(1, color=look.GREY, linewidth=0.6)
    v = torch.linspace(0, 1, 401, dtype=torch.float64)
    lines = curves(ax, v, (fc.gradient_ratio(v, gamma) for gamma in _SHOWN))
    ax.set(xlim=(0, 1), ylim=(0, 1.6))
    look.style(ax, xlabel="v, the largest probability of the minimiser", ylabel="φ(v)")
    look.legend(ax, lines, gammas(_SHOWN), loc="upper right")
    return made


def one_above_equals(tops: Tensor, num_classes: int) -> Tensor:
    """Distributions with one class at each of `tops` (N,) and the others level."""
    others = (1 - tops) / (num_classes - 1)
    return torch.cat([tops[:, None], others[:, None].expand(-1, num_classes - 1)], 1)


@figure(
    "The largest probability of the posterior and of the minimiser",
    caption=(
        "(a) Two classes: the minimiser is underconfident, the more the larger γ. (b) 1000 classes, all but one "
        "level. (c) The difference in (b): overconfident at low probabilities, by up to 0.023, and underconfident "
        "above."
    ),
    alt=(
        "Left, curves below the diagonal from 0.5 to 1; middle, curves that cross the diagonal at a low probability; "
        "right, their distance from it, first positive, then negative."
    ),
    source="exact",
    differs="The paper does not say how the other 999 classes are spread. Panel (c) is ours.",
)
def fig2() -> Any:
    """max q against max eta for 2 and for 1000 classes."""
    made, (left, middle, right) = panels(3, height=2.7)
    shown = (0.5, 1.0, 3.0, 5.0)
    posterior = torch.linspace(0.5, 1, 101, dtype=torch.float64)
    diagonal(left, (0.5, 1))
    lines = curves(left, posterior, (fc.focal_minimizer(posterior, gamma, binary=True) for gamma in shown))
    look.style(left, title="(a) 2 classes", xlabel="max η", ylabel="max q")
    diagonal(middle)
    right.axhline(0, color=look.GREY, linewidth=0.6)
    tops = torch.linspace(1 / _NUM_CLASSES, 1, 201, dtype=torch.float64)
    truths = [fc.focal_map(one_above_equals(tops, _NUM_CLASSES), gamma)[:, 0] for gamma in shown]
    for line, truth in zip(lines, truths, strict=True):
        style = {"color": line.get_color(), "linestyle": line.get_linestyle(), "linewidth": 1.2}
        middle.plot(truth, tops, **style)
        right.plot(truth, tops - truth, **style)
    look.style(middle, title="(b) 1000 classes", xlabel="max η", ylabel="max q")
    right.set(xlim=(0, 0.5), ylim=(-0.1, 0.03))
    look.style(right, title="(c) 1000 classes", xlabel="max η", ylabel="max q \N{MINUS SIGN} max η")
    look.legend(left, lines, gammas(shown), under=True, columns=4)
    return made
