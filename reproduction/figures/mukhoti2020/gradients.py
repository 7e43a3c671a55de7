"""How focal loss scales gradients, and how long they are while networks train."""

from __future__ import annotations

from typing import Any

import numpy as np

from focalcal import drawing as figures
from focalcal.core.focal import confidence_thresholds, gradient_ratio
from reproduction.figures.catalogue import figure
from reproduction.figures.mukhoti2020.exact import LOOKS as GAMMA_LOOKS
from reproduction.figures.mukhoti2020.exact import gamma_name
from reproduction.figures.recorded import epochs_trained, every_third_epoch, lab_results, run_of
from reproduction.labels import LITTLE
from reproduction.pages.dynamics.drawing import LOOKS, by_loss, draw_panel
from reproduction.pages.dynamics.records import GAMMAS
from reproduction.result_files import RunEvidence

# Histograms are drawn after so many epochs.
EPOCHS = (3, 15, 30)


@figure(
    "Gradients of focal loss beside those of cross-entropy",
    caption=(
        "(a) The factor g(p, γ) by which focal loss multiplies the gradient of cross-entropy of a sample whose true "
        "class has probability p. Dots mark where it falls below 1: focal loss pulls harder on samples to the left of "
        "its dot, and less on those to the right. (b), (c), (d) Norms of the last layer's gradients of single training "
        "samples after 3, 15 and 30 epochs, as shares of the samples in bins of a fifth of a decade. (e) Their mean by "
        "epoch, over three seeds, with bands from the lowest to the highest; dotted vertical lines are drops of the "
        "learning rate. The norms of all losses begin much alike; later those of focal loss reach further down. The "
        "larger γ is, the smaller is the mean, at every record."
    ),
    alt=(
        "Five panels: g against p for gamma 0 to 7, rising above 1 at small p and falling to 0; histograms of gradient "
        "norms on a logarithmic axis for cross-entropy and focal loss with gamma 1, 2 and 3 at three epochs; and the "
        "mean norm over 30 epochs"
    ),
    differs=(
        "ResNet-8 on a tenth of CIFAR-10 (4,499 training images) and 30 epochs, not ResNet-50 on CIFAR-10 and 350. "
        "Histograms are of one seed and on a logarithmic axis, after 3, 15 and 30 epochs instead of 10, 100 and 200. "
        "Norms are of each sample as it passed in training, while weights moved."
    ),
    source="recorded",
)
def fig4() -> Any:
    """The factor g, histograms of gradient norms at three epochs, and their mean at all."""
    made = figures.new_figure(2 * figures.COLUMN, 4.2)
    ratio, *histograms, mean, names = made.subplots(2, 3).flat
    handles = _draw_ratio(ratio)
    for ax, epoch, letter in zip(histograms, EPOCHS, "bcd", strict=True):
        _draw_norms(ax, epoch)
        title = f"({letter}) after {epoch} epochs"
        figures.style(ax, title=title, xlabel="norm of a sample's gradient", ylabel="training samples")
    _same_axis(histograms)
    draw_panel(mean, "norm", by_loss(GAMMAS, "gradient_norm"), lab_results()[LITTLE])
    mean.set_ylim(bottom=0)
    figures.style(mean, title="(e) mean by epoch", xlabel="epochs trained", ylabel="mean norm")
    names.set_axis_off()
    figures.legend(names, list(handles.values()), list(handles), loc="center")
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
    return {method: run_of(every_third_epoch(), method) for method in GAMMAS}


def _draw_norms(ax: Any, epoch: int) -> None:
    """The histograms of the losses after so many epochs, as shares of the training samples."""
    for method, run in _runs().items():
        counts, edges = _norms(run, epoch)
        colour, line, _ = LOOKS[method]
        ax.stairs(counts[1:-1] / counts.sum(), edges, color=colour, linestyle=line, linewidth=1.1)
    ax.set_xscale("log")
    figures.percent(ax.yaxis, 4)


def _norms(run: RunEvidence, epoch: int) -> tuple[Any, Any]:
    """The samples by norm and the bins' edges, two of the recorded bins in one; the outer counts are outside."""
    low, *inner, high = run.extra["gradient"][epochs_trained(run).index(epoch)]
    return np.array([low, *np.reshape(inner, (-1, 2)).sum(1), high]), np.array(run.extra["gradient_edges"][::2])


def _same_axis(axes: list[Any]) -> None:
    """One scale of norms for all; at its lower end, one in a hundred is left out."""
    found = [_norms(run, epoch) for run in _runs().values() for epoch in EPOCHS]
    shown, edges = np.sum([counts for counts, _ in found], axis=0)[1:-1], found[0][1]
    first, last = np.flatnonzero(shown.cumsum() > 0.01 * shown.sum())[0], np.flatnonzero(shown)[-1]
    for ax in axes:
        ax.set(xlim=(edges[first], edges[last + 1]), ylim=(0, None))
