"""Trained networks: the best temperature against gamma_ev (Fig. 8)."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from focalcal import drawing as look
from reproduction.figures.catalogue import figure
from reproduction.figures.drawing import MARKERS, STYLES, panels
from reproduction.labels import LITTLE, MORE, title_of
from reproduction.pages.after_training.temperatures import Line, lines_of
from reproduction.result_files import Evidence, evidence_of

# The training gammas of the paper, and where each is drawn alike in both panels.
TRAINED = (1.0, 2.0, 3.0, 5.0, 7.0)


def shown(evidence: Evidence) -> list[Line]:
    """The lines of the paper's training gammas."""
    return [line for line in lines_of(evidence) if line.gamma in TRAINED]


@figure(
    "The best temperature against the γ of the focal map",
    caption=(
        "For each γ_ev, the temperature with the lowest validation AdaECE of networks trained with focal loss: means "
        "over seeds (marks), their range (bars), and a straight line through them. Larger training γ need lower "
        "temperatures."
    ),
    alt=(
        "Two panels of rising, nearly straight series of points, one for each training gamma; those of larger gamma "
        "lie lower."
    ),
    source="recorded",
    differs=(
        "The paper has ResNet-50 on CIFAR-100 and CIFAR-10; these are ResNet-8 on a tenth of CIFAR-10 and on half of "
        "it, the latter without γ_tr 5 and 7."
    ),
)
def fig8() -> Any:
    """T against gamma_ev, one series for each training gamma."""
    made, axes = panels(2, height=3.0)
    handles: dict[float, Any] = {}
    for ax, recipe in zip(axes, (LITTLE, MORE), strict=True):
        evidence = evidence_of(recipe)
        for line in shown(evidence):
            handles.setdefault(line.gamma, _series(ax, line))
        ax.grid(color=look.GRID)
        ax.set_ylim(bottom=0)
        look.style(ax, title=title_of(evidence), xlabel="γ_ev of the focal map", ylabel="best temperature T")
    names = [f"γ_tr = {gamma:g}" for gamma in handles]
    look.legend(axes[0], list(handles.values()), names, under=True, columns=5)
    return made


def _series(ax: Any, line: Line) -> Any:
    place = TRAINED.index(line.gamma)
    colour, marker = look.PALETTE[place], MARKERS[place]
    slope, start = fmean(line.slopes), fmean(line.intercepts)
    gammas, values = zip(*line.points, strict=True)
    ends = [gammas[0], gammas[-1]]
    ax.plot(ends, [start + slope * each for each in ends], color=colour, linewidth=0.8, linestyle=STYLES[place])
    ax.vlines(gammas, list(map(min, values)), list(map(max, values)), color=colour, linewidth=0.6)
    return ax.plot(gammas, list(map(fmean, values)), color=colour, marker=marker, linestyle="", markersize=3.5)[0]
