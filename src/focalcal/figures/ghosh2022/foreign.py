"""Telling known inputs from unknown ones by the entropy of the prediction."""

from __future__ import annotations

from typing import Any

from focalcal.core import figures
from focalcal.figures.catalogue import figure
from focalcal.figures.recorded import every_third_epoch, run_of
from focalcal.lab.evidence.pages.dynamics.drawing import LOOKS
from focalcal.lab.evidence.pages.words import method_name

_SETS = {"mnist": "(a) MNIST", "cifar10-noise": "(b) CIFAR-10 with noise", "cifar100": "(c) CIFAR-100"}
_LOSSES = ("ce", "flsd-53", "adafocal")


@figure(
    "Detection of inputs out of distribution",
    caption=(
        "ROC curves of telling CIFAR-10's test images from images of other sets by the entropy of the prediction, as "
        "trained (drawn through) and after temperature scaling (dashed); the areas below are in the panels. Entropy "
        "tells little in these small networks: a curve along the dotted diagonal is chance, and one below it worse. "
        "Temperature scaling hardly moves the curves."
    ),
    alt="Three panels with ROC curves of three losses before and after temperature scaling, one for each foreign set",
    differs=(
        "ResNet-8 on a tenth of CIFAR-10, one seed, not ResNet-110 and Wide-ResNet-26-10 on CIFAR-10; MNIST in place "
        "of SVHN, CIFAR-10 with Gaussian noise made here in place of CIFAR-10-C, and CIFAR-100 besides, 5,000 images "
        "of each. Curves are read off at every hundredth."
    ),
    source="recorded",
)
def fig6() -> Any:
    """A panel for each foreign set."""
    made = figures.new_figure(2 * figures.COLUMN, 3.1)
    axes = made.subplots(1, len(_SETS), sharey=True)
    for ax, (name, title) in zip(axes, _SETS.items(), strict=True):
        handles = _draw(ax, name)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        figures.percent(ax.xaxis, 4)
        figures.percent(ax.yaxis, 4)
        label = "known inputs that pass" if ax is axes[0] else ""
        figures.style(ax, title=title, xlabel="unknown ones that pass", ylabel=label)
    figures.legend(axes[0], list(handles.values()), list(handles), under=True, columns=3)
    return made


def _draw(ax: Any, name: str) -> dict[str, Any]:
    """The curves of all losses for a set, and the areas below them."""
    handles, areas = {}, ["AUROC"]
    for method in _LOSSES:
        run = run_of(every_third_epoch(), method)
        for phase, line, words in (("pre", "-", "as trained"), ("post", (0, (3, 2)), "after TS")):
            curve = run.extra["roc"][name][phase]
            (handles[f"{method_name(method)}, {words}"],) = ax.plot(
                run.extra["roc_at"], curve["passed"], color=LOOKS[method][0], linestyle=line, linewidth=1.1
            )
        pre, post = (run.extra["roc"][name][phase]["auroc"] for phase in ("pre", "post"))
        areas.append(f"{method_name(method)} {pre:.3f}, {post:.3f}")
    ax.plot([0, 1], [0, 1], color=figures.GREY, linestyle=":", linewidth=1)
    ax.text(0.98, 0.03, "\n".join(areas), ha="right", va="bottom", fontsize=7)
    return handles
