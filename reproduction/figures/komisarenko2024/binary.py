"""Two classes: the proper part of focal loss, the focal map, and temperatures that it lies between (Figs. 1 to 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import focalcal as fc
from focalcal import drawing as look
from focalcal.core.focal_map import focal_log_probs
from reproduction.figures.catalogue import figure
from reproduction.figures.drawing import curves, diagonal, gammas, panels

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


@figure(
    "The proper part of focal loss, and the binary focal map",
    caption=(
        "Left: losses of a positive sample. The proper part (dashed) is below the focal loss (solid) of the same γ up "
        "to q = 0.5 and above it after. Right: the map from predictions to calibrated probabilities. It sharpens for "
        "γ > 0 and softens for γ = −0.5."
    ),
    alt=(
        "Left, five falling loss curves that meet in pairs at q = 0.5; right, S-shaped curves through (0.5, 0.5) that "
        "grow steeper with γ, and a flatter one for a negative γ."
    ),
    source="exact",
    differs="The paper does not say which γ its right panel has; a negative one is drawn, as its text describes.",
)
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


@figure(
    "The nearest temperature of the binary focal map",
    caption=(
        "Left: the inverse temperature nearest to the map, and the least-squares line through it, 0.948 γ + 0.834, "
        "which starts too low. Middle: the map (coloured) and its nearest temperature (black, dotted) lie on each "
        "other. Right: what is left between them, in thousandths."
    ),
    alt=(
        "Left, an almost straight rising curve; middle, two S-shaped curves over the logit, each covered by a dotted "
        "one; right, two small waves, the largest 1.2 thousandths high."
    ),
    source="exact",
    differs=(
        "The captions of the paper have T = 0.76 for γ = 0.5 and T = 0.36 for γ = 3; the nearest ones are 0.731 and "
        "0.276. Its line, 0.95 γ + 0.85, depends on the range of γ, which is not stated: here γ goes up to 7. The "
        "right panel is ours."
    ),
)
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


@figure(
    "Temperatures between which the binary focal map lies",
    caption=(
        "Left: the bounds of Prop. 3 (band) and the sharpest and softest temperatures that the map acts like at "
        "logits of up to 20. Right: how far each pair is apart. The soft bound leaves room; the sharp one is reached "
        "as logits grow."
    ),
    alt=(
        "Left, a falling band over γ on a logarithmic axis with two lines inside it; right, the width of the band and "
        "of the gap between the lines, both of which rise to a maximum below γ = 1 and fall."
    ),
    source="exact",
    differs=(
        "Bounds are those that hold, with products of s where Prop. 3 has quotients. For γ = 4 the search of the "
        "paper gives 0.206 and 0.218; the first is 0.203."
    ),
)
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
