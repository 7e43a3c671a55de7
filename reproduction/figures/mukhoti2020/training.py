"""What happens to calibration while networks train with cross-entropy, and with focal loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from focalcal import drawing as figures
from reproduction.figures.catalogue import figure
from reproduction.figures.recorded import epochs_trained, every_epoch, lab_results, run_of
from reproduction.labels import LITTLE
from reproduction.pages.dynamics.drawing import Look, by_loss, draw_panel
from reproduction.pages.dynamics.records import GAMMAS, drops

# Epochs trained: early, in the middle, at the first drop of the learning rate, and at the end.
EPOCHS = (2, 10, 20, 30)
# The series of Fig. 2(a) and (b) by their names and looks.
_NLL: dict[str, tuple[str, Look]] = {
    "nll": ("NLL, all rows", (figures.BLACK, "-", "")),
    "nll_correct": ("NLL, correct rows", (figures.GREEN, "--", "")),
    "nll_wrong": ("NLL, wrong rows", (figures.VERMILION, "-.", "")),
    "entropy_correct": ("entropy, correct rows", (figures.SKY, ":", "")),
    "entropy_wrong": ("entropy, wrong rows", (figures.PURPLE, (0, (6, 1.5)), "")),
}
# Those of Fig. 2(c).
_SHARES: dict[str, tuple[str, Look]] = {
    "train_error": ("train error", (figures.BLUE, "--", "")),
    "test_error": ("test error", (figures.ORANGE, "-", "")),
    "test_ece": ("test ECE", (figures.BLACK, ":", "")),
}
# The panels of Fig. 3.
_PANELS = {
    "test NLL": "test_nll",
    "NLL, correct rows": "test_nll_correct",
    "NLL, wrong rows": "test_nll_wrong",
    "entropy, wrong rows": "test_entropy_wrong",
    "norm of the weights": "weight_norm",
}
_NETWORK = (
    "ResNet-8 on a tenth of CIFAR-10 (4,499 training images), 30 epochs with drops of the learning rate after 20 and "
    "27, not ResNet-50 on CIFAR-10 and 350 epochs with drops after 150 and 250"
)


@figure(
    "Confidences of training samples while a network trains",
    caption=(
        "Training samples of a network trained with cross-entropy, by confidence in 25 bins, after 2, 10, 20 and 30 "
        "epochs. Above: the share of each bin that is classified correctly; on the diagonal it equals the confidence, "
        "and bins with few samples jump. Below: the share of all training samples in each bin. They move towards the "
        "bin of the largest confidences, which has 60 % of them at the end, when nearly all are right."
    ),
    alt=(
        "Four columns, one an epoch: reliability diagrams of the training split, and shares of samples in 25 bins of "
        "confidence, spread out at first and at the end mostly in the last bin"
    ),
    differs=f"{_NETWORK}. Samples are taken as they pass in training, while weights move; one seed.",
    source="recorded",
)
def fig1() -> Any:
    """Reliability diagrams of the training split, and shares of its samples by bin, at four epochs."""
    made = figures.new_figure(2 * figures.COLUMN, 3.1)
    panels = made.subplots(2, len(EPOCHS), sharex=True, sharey="row")
    run = run_of(every_epoch(), "ce")
    for (upper, lower), epoch in zip(panels.T, EPOCHS, strict=True):
        place = epochs_trained(run).index(epoch)
        bins, right = run.extra["train_bins"][place], 1 - run.extra["train"]["error"][place]
        _draw_bins(upper, lower, np.array(bins["count"]), np.array(bins["accuracy"]))
        first = epoch == EPOCHS[0]
        figures.style(upper, title=f"epoch {epoch}\n{right:.1%} right", ylabel="accuracy" if first else "")
        figures.style(lower, xlabel="confidence", ylabel="training samples" if first else "")
    made.align_ylabels(panels[:, 0])
    return made


def _draw_bins(upper: Any, lower: Any, count: Any, accuracy: Any) -> None:
    edges = np.linspace(0, 1, len(count) + 1)
    look = {"align": "edge", "linewidth": 0.4, "edgecolor": "white"}
    there = count > 0
    upper.bar(edges[:-1][there], accuracy[there], 1 / len(count), color=figures.BLUE, **look)
    upper.plot([0, 1], [0, 1], color=figures.VERMILION, linestyle="--", linewidth=1)
    lower.bar(edges[:-1], count / count.sum(), 1 / len(count), color=figures.ORANGE, **look)
    upper.set(xlim=(0, 1), ylim=(0, 1))
    lower.set(ylim=(0, 1))
    lower.set_xticks([0, 0.5, 1], labels=["0%", "50%", "100%"])
    for ax in (upper, lower):
        figures.percent(ax.yaxis, 4)


@figure(
    "Calibration while a network trains with cross-entropy",
    caption=(
        "(a) NLL and entropy of training samples, all, correctly and wrongly classified, by epoch; (b) the same of "
        "test samples; (c) error, and ECE of the test split. Dotted vertical lines are drops of the learning rate. "
        "After the first one the test NLL rises although the training NLL falls, and the rise is that of the wrongly "
        "classified samples, whose entropy falls: the network becomes surer of its mistakes. Test ECE rises while test "
        "error hardly changes."
    ),
    alt=(
        "Three panels over 30 epochs: NLL and entropy of training samples, falling; the same of test samples, where "
        "the NLL of wrong rows rises; and train error falling to near 0 with test error level and ECE rising"
    ),
    differs=f"{_NETWORK}. One seed, training samples as they pass in training, and ECE in 25 bins instead of 15.",
    source="recorded",
)
def fig2() -> Any:
    """NLL, entropy, error and ECE by epoch."""
    made = figures.new_figure(2 * figures.COLUMN, 3.0)
    panels = made.subplots(1, 3)
    run = run_of(every_epoch(), "ce")
    epochs, series = epochs_trained(run), run.dynamics
    test = {name: series[f"test_{name}"] for name in _NLL}
    handles = _draw_series(panels[0], epochs, run.extra["train"], _NLL)
    _draw_series(panels[1], epochs, test, _NLL)
    handles |= _draw_series(panels[2], epochs, series, _SHARES)
    figures.percent(panels[2].yaxis)
    titles = {"(a) training split": "nats", "(b) test split": "nats", "(c) error and ECE": ""}
    for ax, (title, label) in zip(panels, titles.items(), strict=True):
        ax.set_ylim(bottom=0)
        _mark_drops(ax)
        figures.style(ax, title=title, xlabel="epochs trained", ylabel=label)
    figures.legend(panels[0], list(handles.values()), list(handles), under=True, columns=4)
    return made


def _draw_series(
    ax: Any, epochs: Sequence[int], values: Mapping[str, Any], looks: Mapping[str, tuple[str, Look]]
) -> dict[str, Any]:
    handles = {}
    for name, (words, (colour, line, marker)) in looks.items():
        (handles[words],) = ax.plot(
            epochs, values[name], color=colour, linestyle=line, linewidth=1.2, marker=marker, markersize=2.6
        )
    return handles


def _mark_drops(ax: Any) -> None:
    for drop in drops(every_epoch()):
        ax.axvline(drop, color=figures.GREY, linewidth=0.7, linestyle=(0, (1, 1.5)), zorder=0)


@figure(
    "Calibration while networks train with cross-entropy and with focal loss",
    caption=(
        "Cross-entropy and focal loss with γ = 1, 2, 3 by epoch, on the test split: (a) NLL, (b) of correctly and (c) "
        "of wrongly classified samples, (d) entropy of the latter, and (e) the norm of the last layer's weights. Lines "
        "are means over three seeds, bands reach from the lowest to the highest, dotted vertical lines are drops of "
        "the learning rate. After the first one, the NLL of wrong samples rises most with cross-entropy, and the "
        "larger γ is, the higher is their entropy. The norms of the weights end in the paper's order, the largest with "
        "cross-entropy; that those of focal loss are larger at first is not seen here."
    ),
    alt=(
        "Five panels over 30 epochs with a line for each loss: test NLL, NLL of correct rows, NLL of wrong rows, "
        "entropy of wrong rows, and norm of the last layer's weights"
    ),
    differs=f"{_NETWORK}; a record every third epoch.",
    source="recorded",
)
def fig3() -> Any:
    """Five series of four losses, as on the page of results."""
    made = figures.new_figure(2 * figures.COLUMN, 3.7)
    axes = made.subplots(2, 3).flat
    for ax, (label, name), letter in zip(axes, _PANELS.items(), "abcde", strict=False):
        handles = draw_panel(ax, label, by_loss(GAMMAS, name), lab_results()[LITTLE])
        figures.style(ax, title=f"({letter}) {label}", xlabel="epochs trained")
    axes[-1].set_axis_off()
    figures.legend(axes[-1], list(handles.values()), list(handles), loc="center")
    return made


@figure(
    "Norms of the last layer's inputs",
    caption=(
        "The mean L2 norm of what goes into the last layer, for cross-entropy and focal loss with γ = 1, 2, 3, by "
        "epoch. Lines are means over three seeds, bands reach from the lowest to the highest, dotted vertical lines "
        "are drops of the learning rate."
    ),
    alt="Mean norm of the last layer's inputs over 30 epochs, one line for each of four losses",
    differs=f"{_NETWORK}; a record every third epoch, and features of test images instead of training ones.",
    source="recorded",
)
def fig10() -> Any:
    """Feature norms by epoch, as on the page of results."""
    ax = figures.axes_or_new(None, height=2.7)
    handles = draw_panel(ax, "feature norm", by_loss(GAMMAS, "feature_norm"), lab_results()[LITTLE])
    figures.style(ax, xlabel="epochs trained", ylabel="mean norm of the features")
    figures.legend(ax, list(handles.values()), list(handles), under=True)
    return ax.figure
