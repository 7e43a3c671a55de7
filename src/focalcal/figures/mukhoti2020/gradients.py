"""How focal loss scales gradients, and how long they are while networks train."""

from __future__ import annotations

from typing import Any

import numpy as np

from focalcal.core import figures
from focalcal.core.focal import confidence_thresholds, gradient_ratio
from focalcal.figures.catalogue import figure
from focalcal.figures.mukhoti2020.exact import LOOKS as GAMMA_LOOKS
from focalcal.figures.recorded import epochs_trained, every_third_epoch, run_of
from focalcal.lab.evidence.pages.dynamics.drawing import LOOKS
from focalcal.lab.evidence.pages.words import method_name

METHODS = ("ce", "fl-3")
# Early, after the middle, and at the end.
EPOCHS = (3, 18, 30)


@figure(
    "Gradients of focal loss beside those of cross-entropy",
    caption=(
        "(a) The factor g(p, γ) by which focal loss multiplies the gradient of cross-entropy of a sample whose true "
        "class has probability p. Dots mark where it falls below 1: focal loss pulls harder on samples to the left of "
        "its dot, and less on those to the right. (b) to (d) The norms of the last layer's gradients of single "
        "training samples after 3, 18 and 30 epochs, as shares of the samples in bins of a tenth of a decade. They "
        "begin much alike; at the end those of focal loss lie to the left of those of cross-entropy of the same epoch "
        "only as far as its network is as sure of its training samples."
    ),
    alt=(
        "Four panels: g against p for gamma 0 to 7, rising above 1 at small p and falling to 0; and histograms of "
        "gradient norms on a logarithmic axis for cross-entropy and focal loss with gamma 1, 2 and 3 at three epochs, "
        "moving to smaller norms"
    ),
    differs=(
        "Panels (b) to (d): ResNet-8 on a tenth of CIFAR-10 (4,499 training images), 30 epochs and one seed, not "
        "ResNet-50 on CIFAR-10 and epochs 10, 100 and 200; norms are of each sample as it passed in training, while "
        "weights moved, and on a logarithmic axis."
    ),
    source="recorded",
)
def fig4() -> Any:
    """The factor g, and histograms of gradient norms at three epochs."""
    made = figures.new_figure(2 * figures.COLUMN, 4.3)
    (ratio, *first), second = made.subplots(2, 2)
    _draw_ratio(ratio)
    histograms = [*first, *second]
    for ax, epoch, letter in zip(histograms, EPOCHS, "bcd", strict=True):
        handles = _draw_norms(ax, epoch)
        figures.style(
            ax, title=f"({letter}) after {epoch} epochs", xlabel="norm of the gradient", ylabel="training samples"
        )
        figures.legend(ax, list(handles.values()), list(handles))
    _same_axes(histograms)
    return made


def _draw_ratio(ax: Any) -> None:
    p = np.linspace(0, 1, 401)
    lines, names = [], []
    for gamma, (colour, line) in GAMMA_LOOKS.items():
        lines += ax.plot(p, gradient_ratio(p, gamma), color=colour, linestyle=line, linewidth=1.3)
        names.append(f"γ = {gamma:g}")
        if gamma:
            ax.plot([confidence_thresholds(gamma)[1]], [1.0], "o", color=colour, markersize=3.5)
    ax.set(xlim=(0, 1), ylim=(0, None))
    figures.style(ax, title="(a) g(p, γ)", xlabel="probability p of the true class", ylabel="g(p, γ)")
    figures.legend(ax, lines, names, loc="upper right")


def _draw_norms(ax: Any, epoch: int) -> dict[str, Any]:
    """The histograms of all losses after so many epochs, as shares of the training samples."""
    handles = {}
    for method in METHODS:
        run = run_of(every_third_epoch(), method)
        counts = run.extra["gradient"][epochs_trained(run).index(epoch)]
        colour, line, _ = LOOKS[method]
        inner = np.array(counts[1:-1]) / sum(counts)
        edges = run.extra["gradient_edges"]
        handles[method_name(method)] = ax.stairs(inner, edges, color=colour, linestyle=line, linewidth=1.2)
    ax.set_xscale("log")
    figures.percent(ax.yaxis, 4)
    return handles


def _same_axes(axes: list[Any]) -> None:
    """One scale for all, from the shortest gradient to the longest."""
    runs = [run_of(every_third_epoch(), method) for method in METHODS]
    shown = np.sum([np.array(run.extra["gradient"])[:, 1:-1].sum(0) for run in runs], axis=0)
    there = np.flatnonzero(shown > 0.0005 * shown.sum())
    edges = runs[0].extra["gradient_edges"]
    top = max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set(xlim=(edges[there[0]], edges[there[-1] + 1]), ylim=(0, top))
