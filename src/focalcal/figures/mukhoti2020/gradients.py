"""How focal loss scales gradients, and how long they are while networks train."""

from __future__ import annotations

from typing import Any

import numpy as np

from focalcal.core import figures
from focalcal.core.focal import confidence_thresholds, gradient_ratio
from focalcal.figures.catalogue import figure
from focalcal.figures.mukhoti2020.exact import LOOKS as GAMMA_LOOKS
from focalcal.figures.mukhoti2020.exact import gamma_name
from focalcal.figures.recorded import epochs_trained, every_epoch, first_epochs, lab_results, run_of
from focalcal.lab.evidence.files import RunEvidence
from focalcal.lab.evidence.pages.dynamics.drawing import LOOKS, by_loss, draw_panel
from focalcal.lab.evidence.pages.dynamics.records import GAMMAS
from focalcal.lab.evidence.pages.words import LITTLE

# Histograms are drawn after so many epochs.
EPOCHS = (3, 9)


@figure(
    "Gradients of focal loss beside those of cross-entropy",
    caption=(
        "(a) The factor g(p, γ) by which focal loss multiplies the gradient of cross-entropy of a sample whose true "
        "class has probability p. Dots mark where it falls below 1: focal loss pulls harder on samples to the left of "
        "its dot, and less on those to the right. (b), (c) The norms of the last layer's gradients of single training "
        "samples after 3 and 9 epochs, as shares of the samples in bins of a tenth of a decade. (d) Their mean by "
        "epoch, over three seeds, with bands from the lowest to the highest; dotted vertical lines are drops of the "
        "learning rate. The norms of cross-entropy and γ = 3 begin much alike, and those of γ = 3 reach further down; "
        "the larger γ is, the smaller is the mean, at every record."
    ),
    alt=(
        "Four panels: g against p for gamma 0 to 7, rising above 1 at small p and falling to 0; histograms of gradient "
        "norms on a logarithmic axis for cross-entropy and focal loss with gamma 3 at two epochs; and the mean norm "
        "over 30 epochs"
    ),
    differs=(
        "ResNet-8 on a tenth of CIFAR-10 (4,499 training images) and 30 epochs, not ResNet-50 on CIFAR-10 and 350. "
        "Histograms are of one seed, early in training (the paper has epochs 10, 100 and 200) and on a logarithmic "
        "axis; the rest of training is shown by the mean. Norms are of each sample as it passed in training, while "
        "weights moved."
    ),
    source="recorded",
)
def fig4() -> Any:
    """The factor g, histograms of gradient norms at two epochs, and their mean at all."""
    made = figures.new_figure(2 * figures.COLUMN, 4.5)
    ratio, *histograms, mean = made.subplots(2, 2).flat
    handles = _draw_ratio(ratio)
    for ax, epoch, letter in zip(histograms, EPOCHS, "bc", strict=True):
        _draw_norms(ax, epoch)
        title = f"({letter}) after {epoch} epochs"
        figures.style(ax, title=title, xlabel="norm of a sample's gradient", ylabel="training samples")
    _same_axes(histograms)
    draw_panel(mean, "norm", by_loss(GAMMAS, "gradient_norm"), lab_results()[LITTLE])
    mean.set_ylim(bottom=0)
    figures.style(mean, title="(d) mean by epoch", xlabel="epochs trained", ylabel="mean norm")
    figures.legend(ratio, list(handles.values()), list(handles), under=True, columns=6)
    return made


def _draw_ratio(ax: Any) -> dict[str, Any]:
    p = np.linspace(0, 1, 401)
    handles = {}
    for gamma, (colour, line) in GAMMA_LOOKS.items():
        ratio = gradient_ratio(p, gamma)
        (handles[gamma_name(gamma)],) = ax.plot(p, ratio, color=colour, linestyle=line, linewidth=1.3)
        if gamma:
            ax.plot([confidence_thresholds(gamma)[1]], [1.0], "o", color=colour, markersize=3.5)
    ax.set(xlim=(0, 1), ylim=(0, None))
    figures.style(ax, title="(a) g(p, γ)", xlabel="probability p of the true class", ylabel="g(p, γ)")
    return handles


def _runs() -> dict[str, RunEvidence]:
    return {"ce": run_of(every_epoch(), "ce"), "fl-3": run_of(first_epochs(), "fl-3")}


def _draw_norms(ax: Any, epoch: int) -> None:
    """The histograms of both losses after so many epochs, as shares of the training samples."""
    for method, run in _runs().items():
        counts = run.extra["gradient"][epochs_trained(run).index(epoch)]
        colour, line, _ = LOOKS[method]
        ax.stairs(
            np.array(counts[1:-1]) / sum(counts),
            run.extra["gradient_edges"],
            color=colour,
            linestyle=line,
            linewidth=1.2,
        )
    ax.set_xscale("log")
    figures.percent(ax.yaxis, 4)


def _same_axes(axes: list[Any]) -> None:
    """One scale for all; the shortest gradients, one in a thousand, are left out."""
    runs = list(_runs().values())
    counts = [np.array(run.extra["gradient"][epochs_trained(run).index(epoch)]) for run in runs for epoch in EPOCHS]
    shown = np.sum(counts, axis=0)[1:-1]
    there = np.flatnonzero(shown.cumsum() > 0.001 * shown.sum())
    last = np.flatnonzero(shown)[-1]
    edges = runs[0].extra["gradient_edges"]
    top = max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set(xlim=(edges[there[0]], edges[last + 1]), ylim=(0, top))
