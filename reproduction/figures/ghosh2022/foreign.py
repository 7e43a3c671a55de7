"""Telling known inputs from unknown ones by the entropy of the prediction."""

from __future__ import annotations

from typing import Any

from focalcal import drawing as figures
from reproduction.figures.catalogue import figure
from reproduction.figures.recorded import every_third_epoch, lab_results, run_of
from reproduction.labels import LITTLE, method_name
from reproduction.pages.dynamics.drawing import LOOKS

_SETS = {"mnist": "(a) MNIST", "cifar10-noise": "(b) CIFAR-10 with noise", "cifar100": "(c) CIFAR-100"}
_LOSSES = ("ce", "flsd-53", "adafocal")
# Before and after temperature scaling: the line of curves, and what marks are filled with (by default, their colour).
_PHASES: dict[str, tuple[Any, str]] = {"pre": ("-", ""), "post": ((0, (3, 2)), "white")}


@figure(
    "Detection of inputs out of distribution",
    caption=(
        "Telling CIFAR-10's test images from images of other sets by the entropy of the prediction. Above: ROC curves "
        "of one network of each loss, as trained (drawn through) and after temperature scaling (dashed). Below: the "
        "areas under such curves, a mark for each seed, filled as trained and hollow after temperature scaling. "
        "Dotted lines are chance. Entropy tells little in these small networks. With MNIST the seeds of a loss lie so "
        "far apart that no loss can be called better than another; in the others they are close, and so are the losses."
    ),
    alt=(
        "Three columns, one for each foreign set: ROC curves of three losses, near the diagonal but for CIFAR-100, and "
        "below them their areas, three seeds each"
    ),
    differs=(
        "ResNet-8 on a tenth of CIFAR-10, not ResNet-110 and Wide-ResNet-26-10 on CIFAR-10; MNIST in place of SVHN, "
        "CIFAR-10 with Gaussian noise made here in place of CIFAR-10-C, and CIFAR-100 besides, 5,000 images of each. "
        "Curves are of seed 0, at every hundredth, and of other runs than the areas, on another machine."
    ),
    source="recorded",
)
def fig6() -> Any:
    """A column for each foreign set: curves, and areas by loss and seed."""
    made = figures.new_figure(2 * figures.COLUMN, 3.9)
    panels = made.subplots(2, len(_SETS), sharey="row", height_ratios=(2.2, 1))
    for (upper, lower), (name, title) in zip(panels.T, _SETS.items(), strict=True):
        _draw_curves(upper, name)
        _draw_areas(lower, name)
        label = "known inputs that pass" if name == "mnist" else ""
        figures.style(upper, title=title, xlabel="unknown inputs that pass", ylabel=label)
        figures.style(lower, xlabel="AUROC")
    return made


def _draw_curves(ax: Any, name: str) -> None:
    """Both curves of each loss."""
    for method in _LOSSES:
        run, (colour, _, _) = run_of(every_third_epoch(), method), LOOKS[method]
        for phase, (line, _) in _PHASES.items():
            passed = run.extra["roc"][name][phase]["passed"]
            ax.plot(run.extra["roc_at"], passed, color=colour, linestyle=line, linewidth=1.1)
    ax.plot([0, 1], [0, 1], color=figures.GREY, linestyle=":", linewidth=1, zorder=0)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    figures.percent(ax.xaxis, 4)
    figures.percent(ax.yaxis, 4)


def _draw_areas(ax: Any, name: str) -> None:
    """One row for each loss, one mark for each seed."""
    for row, method in enumerate(_LOSSES):
        colour, _, marker = LOOKS[method]
        for shift, (phase, (_, face)) in zip((-0.15, 0.15), _PHASES.items(), strict=True):
            areas = [run.foreign[name][phase]["auroc"] for run in lab_results()[LITTLE].of(method)]
            look = {"marker": marker, "markersize": 4, "linestyle": "none", "markerfacecolor": face or colour}
            ax.plot(areas, [row + shift] * len(areas), color=colour, **look)
    ax.axvline(0.5, color=figures.GREY, linestyle=":", linewidth=1, zorder=0)
    figures.rows_of_names(ax, [method_name(method) for method in _LOSSES])
    ax.set_xlim(0.25, 0.75)
