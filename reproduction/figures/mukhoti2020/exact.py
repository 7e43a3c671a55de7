"""What focal loss makes of a known probability."""

from __future__ import annotations

from typing import Any

import numpy as np

from focalcal import drawing as figures
from focalcal.core.focal_map import focal_minimizer
from reproduction.figures.catalogue import figure

# Gammas by their looks, up to 3 those of the losses in other figures; 0 is cross-entropy.
LOOKS: dict[float, tuple[str, Any]] = {
    0.0: (figures.VERMILION, "-"),
    1.0: (figures.SKY, "--"),
    2.0: (figures.BLUE, "-."),
    3.0: (figures.PURPLE, ":"),
    5.0: (figures.GREEN, (0, (6, 1.5))),
    7.0: (figures.BLACK, (0, (3, 1, 1, 1, 1, 1))),
}


def gamma_name(gamma: float) -> str:
    """What legends call a gamma.

    >>> gamma_name(0.0), gamma_name(2.0)
    ('γ = 0 (cross-entropy)', 'γ = 2')
    """
    return "γ = 0 (cross-entropy)" if gamma == 0 else f"γ = {gamma:g}"


@figure(
    "What minimises focal loss where the truth is known",
    caption=(
        "In a problem with two classes, the prediction p̂ that minimises the expected focal loss where class 1 has the "
        "true probability q. Cross-entropy (γ = 0) gives back q. Focal loss gives a prediction nearer to one half, the "
        "more so the larger γ is: its minimiser has more entropy than the truth, and is not a probability to be used "
        "as it is."
    ),
    alt=(
        "Optimal prediction against true probability: a diagonal for cross-entropy, and S-shaped curves for gamma 1 to "
        "7, flatter around one half the larger gamma is; all cross at one half"
    ),
    source="exact",
)
def fig6() -> Any:
    """The optimal prediction against the true probability."""
    ax = figures.axes_or_new(None, height=2.9)
    q = np.linspace(0, 1, 201)
    lines, names = [], []
    for gamma, (colour, line) in LOOKS.items():
        optimal = focal_minimizer(q, gamma, binary=True)
        lines += ax.plot(q, optimal, color=colour, linestyle=line, linewidth=1.3)
        names.append(gamma_name(gamma))
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    figures.style(ax, xlabel="true probability q of class 1", ylabel="optimal prediction p̂")
    figures.legend(ax, lines, names)
    return ax.figure
