"""Telling known inputs from unknown ones by the entropy of the prediction."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from focalcal.core import figures
from focalcal.figures.catalogue import figure
from focalcal.figures.recorded import every_third_epoch, lab_results, run_of
from focalcal.lab.evidence.pages.dynamics.drawing import LOOKS
from focalcal.lab.evidence.pages.words import LITTLE, method_name

_SETS = {"mnist": "(a) MNIST", "cifar10-noise": "(b) CIFAR-10 with noise", "cifar100": "(c) CIFAR-100"}
_LOSSES = ("ce", "flsd-53", "adafocal")
_PHASES: dict[str, tuple[Any, str]] = {"pre": ("-", "as trained"), "post": ((0, (3, 2)), "after TS")}


@figure(
    "Detection of inputs out of distribution",
    caption=(
        "Telling CIFAR-10's test images from images of other sets by the entropy of the prediction. Curves are ROC "
        "curves of cross-entropy, as trained and after temperature scaling. Marks are where 95 % of the known inputs "
        "pass, as trained: means over three seeds, with bars from the lowest to the highest. In the panels, the mean "
        "areas below the curves. Entropy tells little in these small networks: on the dotted diagonal it is chance. "
        "With MNIST the seeds lie so far apart that no loss can be called better than another."
    ),
    alt=(
        "Three panels, one for each foreign set: two ROC curves of cross-entropy close to each other, and a mark for "
        "each of three losses near the upper right corner"
    ),
    differs=(
        "ResNet-8 on a tenth of CIFAR-10, not ResNet-110 and Wide-ResNet-26-10 on CIFAR-10; MNIST in place of SVHN, "
        "CIFAR-10 with Gaussian noise made here in place of CIFAR-10-C, and CIFAR-100 besides, 5,000 images of each. "
        "Whole curves are recorded for one run of cross-entropy only, at every hundredth."
    ),
    source="recorded",
)
def fig6() -> Any:
    """A panel for each foreign set."""
    made = figures.new_figure(2 * figures.COLUMN, 3.1)
    axes = made.subplots(1, len(_SETS), sharey=True)
    for ax, (name, title) in zip(axes, _SETS.items(), strict=True):
        handles = _draw_curves(ax, name) | _draw_marks(ax, name)
        ax.plot([0, 1], [0, 1], color=figures.GREY, linestyle=":", linewidth=1, zorder=0)
        ax.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")
        figures.percent(ax.xaxis, 4)
        figures.percent(ax.yaxis, 4)
        label = "known inputs that pass" if ax is axes[0] else ""
        figures.style(ax, title=title, xlabel="unknown ones that pass", ylabel=label)
    figures.legend(axes[0], list(handles.values()), list(handles), under=True, columns=5)
    return made


def _draw_curves(ax: Any, name: str) -> dict[str, Any]:
    """Both curves of cross-entropy."""
    run, handles = run_of(every_third_epoch(), "ce"), {}
    for phase, (line, words) in _PHASES.items():
        passed = run.extra["roc"][name][phase]["passed"]
        (handles[f"{method_name('ce')}, {words}"],) = ax.plot(
            run.extra["roc_at"], passed, color=LOOKS["ce"][0], linestyle=line, linewidth=1.1
        )
    return handles


def _draw_marks(ax: Any, name: str) -> dict[str, Any]:
    """Where 95 % of the known inputs pass, by loss, and the areas over seeds."""
    handles, areas = {}, ["AUROC"]
    for method in _LOSSES:
        found = [run.foreign[name]["pre"] for run in lab_results()[LITTLE].of(method)]
        shares = [each["fpr95"] for each in found]
        colour, _, marker = LOOKS[method]
        ax.hlines([0.95], min(shares), max(shares), color=colour, linewidth=1)
        (handles[f"{method_name(method)}, at 95 %"],) = ax.plot(
            [fmean(shares)], [0.95], color=colour, marker=marker, markersize=4.5, linestyle="none"
        )
        areas.append(f"{method_name(method)} {fmean(each['auroc'] for each in found):.3f}")
    ax.text(0.98, 0.03, "\n".join(areas), ha="right", va="bottom", fontsize=7)
    return handles
