"""Three classes on a line, where the posterior is known (Fig. 3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import focalcal as fc
from focalcal import drawing as look
from focalcal_lab.data.synthetic import ClassMixture, one_dimensional
from reproduction.figures.catalogue import figure
from reproduction.figures.charoenphakdee2021.record import EVERY
from reproduction.figures.charoenphakdee2021.recorded import recorded
from reproduction.figures.drawing import panels

_CLASSES = ((look.BLUE, 1.3), (look.VERMILION, 1.3), (look.GREEN, 1.3))
_NAMES = {"raw": "as trained", "temperature": "TS by NLL", "focal-map": "Ψ"}


def grid() -> Tensor:
    """Where curves are drawn, (G, 1)."""
    return torch.linspace(-4, 4, 240 // EVERY + 1, dtype=torch.float64)[:, None]


def outputs(gamma: float, step: str) -> Tensor:
    """What a network says on the grid (G, 3), as trained or after a step."""
    network = recorded()["line"]["networks"][f"{gamma:g}"]
    probs = torch.tensor(network["probs"], dtype=torch.float64)
    probs = probs / probs.sum(1, keepdim=True)  # they are recorded to five digits
    if step == "temperature":
        return torch.softmax(torch.log(probs) / network["steps"][step]["temperature"], 1)
    mapped: Tensor = fc.focal_map(probs, gamma) if step == "focal-map" else probs
    return mapped


@figure(
    "Three classes on a line: who recovers the posterior",
    caption=(
        "(a) The densities, (b) the posterior. (c) to (i): outputs of networks (solid) and the posterior (dashed). "
        "Focal training leaves outputs underconfident, more for γ = 5; a temperature leaves a gap; Ψ closes it. The "
        "error is 35.2 % throughout."
    ),
    alt=(
        "Nine panels. Cross-entropy and the two panels of Ψ lie on the posterior; outputs of focal networks are "
        "flatter, and after temperature scaling still differ from it in the middle."
    ),
    source="recorded",
    differs="The paper gives its densities as a drawing only: here they are three normal densities. ECE has 15 bins.",
)
def fig3() -> Any:
    """Densities, posterior, and the outputs of three networks with and without a step after training."""
    made, axes = panels(3, rows=3, height=5.4, sharex=True)
    x, mixture = grid(), _mixture()
    joint = mixture.log_joint(x).exp()
    first, second, third = axes[0]
    first.plot(x[:, 0], joint.sum(1), color=look.BLACK, linewidth=1)
    _draw(first, joint)
    first.set_ylim(0, 0.3)
    look.style(first, title="(a) p(x) and p(x, y)")
    _draw(second, mixture.posterior(x))
    for label, place, height in ((1, -3.7, 0.92), (2, -0.7, 0.68), (3, 2.3, 0.92)):
        second.text(place, height, f"y = {label}", fontsize=7, color=look.BLACK)
    second.set_ylim(0, 1.02)
    look.style(second, title="(b) p(y | x)")
    _compare(third, 0.0, "raw", "(c) cross-entropy")
    for row, letters in enumerate(("dfh", "egi")):
        gamma = (1.0, 5.0)[row]
        for ax, letter, step in zip(axes[1 + row], letters, _NAMES, strict=True):
            _compare(ax, gamma, step, f"({letter}) γ = {gamma:g}, {_NAMES[step]}")
    for ax in axes[-1]:
        ax.set_xlabel("x", fontsize=8)
    for ax in (third, *axes[1:, 1:].flat):
        ax.tick_params(labelleft=False)  # as in the panel to the left
    return made


def _mixture() -> ClassMixture:
    mixture: ClassMixture = one_dimensional(train_size=1).facts["mixture"]
    return mixture


def _draw(ax: Any, values: Tensor, **style: Any) -> None:
    for (colour, width), curve in zip(_CLASSES, values.T, strict=True):
        ax.plot(grid()[:, 0], curve, color=colour, **{"linewidth": width, **style})


def _compare(ax: Any, gamma: float, step: str, title: str) -> None:
    _draw(ax, outputs(gamma, step))
    _draw(ax, _mixture().posterior(grid()), linestyle=(0, (3, 2)), linewidth=0.8)
    ax.set_ylim(0, 1.02)
    found = recorded()["line"]["networks"][f"{gamma:g}"]["steps"][step]
    numbers = f"KL {found['kl']:.4f}, ECE {found['ece']:.1%}"
    look.style(ax, title=f"{title}\n{numbers}")
    ax.title.set_fontsize(7)
