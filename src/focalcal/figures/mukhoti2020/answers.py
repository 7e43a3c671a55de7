"""Single test samples: what four losses say about them, and how sure they are."""

from __future__ import annotations

from typing import Any

from focalcal.core import figures
from focalcal.figures.catalogue import figure
from focalcal.figures.recorded import every_third_epoch, run_of
from focalcal.lab.evidence.pages.words import method_name

_LOOKS = {
    "ce": (figures.VERMILION, "o"),
    "brier": (figures.BLUE, "s"),
    "mmce": (figures.GREEN, "^"),
    "flsd-53": (figures.PURPLE, "D"),
}


@figure(
    "Confidences of single test samples",
    caption=(
        "Left: the first six test images that networks trained with four losses all classify correctly, by their true "
        "class. Right: the first six that all take for the same wrong class (true class → prediction). Filled marks are "
        "the confidences of the predictions as trained, hollow ones those after temperature scaling. Cross-entropy and "
        "MMCE are nearly as sure of what is wrong as of what is right; temperature scaling lowers both."
    ),
    alt=(
        "Two panels with six test images each as rows, and confidence as the horizontal axis: four losses by marker, "
        "filled before and hollow after temperature scaling"
    ),
    differs=(
        "Confidences alone: the pictures are left out, as nothing says that CIFAR-10's may be passed on, and rows are "
        "named by their place in the test split. ResNet-8 on a tenth of CIFAR-10, 30 epochs and one seed, not "
        "ResNet-50 on CIFAR-10; the paper does not say how its images were chosen."
    ),
    source="recorded",
)
def fig9() -> Any:
    """Confidences before and after temperature scaling, of right and of wrong predictions."""
    made = figures.new_figure(2 * figures.COLUMN, 2.9)
    right, wrong = made.subplots(1, 2)
    answers = {method: run_of(every_third_epoch(), method).extra["answers"] for method in _LOOKS}
    truth = [label == each for label, each in zip(answers["ce"]["label"], answers["ce"]["predicted"], strict=True)]
    for ax, kind, title in ((right, True, "all four are right"), (wrong, False, "all four are wrong")):
        shown = [place for place, each in enumerate(truth) if each == kind]
        handles = _draw(ax, answers, shown)
        figures.style(ax, title=title, xlabel="confidence")
    figures.legend(right, list(handles.values()), list(handles), under=True, columns=5)
    return made


def _draw(ax: Any, answers: dict[str, Any], shown: list[int]) -> dict[str, Any]:
    """One row for each sample, one marker for each loss; those of a row stand below each other."""
    handles = {}
    for place, (method, (colour, marker)) in enumerate(_LOOKS.items()):
        heights = [row + 0.16 * (place - 1.5) for row in range(len(shown))]
        before, after = ([answers[method][name][each] for each in shown] for name in ("before", "after"))
        look = {"color": colour, "marker": marker, "markersize": 4, "linestyle": "none"}
        ax.hlines(heights, after, before, color=colour, linewidth=0.6)
        ax.plot(after, heights, markerfacecolor="white", **look)
        (handles[method_name(method)],) = ax.plot(before, heights, **look)
    figures.rows_of_names(ax, [_name(answers["ce"], each) for each in shown])
    ax.set_xlim(0, 1.02)
    figures.percent(ax.xaxis)
    hollow = ax.plot([], [], "o", color=figures.GREY, markerfacecolor="white", markersize=4)
    return handles | {"after TS": hollow[0]}


def _name(answers: dict[str, Any], place: int) -> str:
    """A sample by its row in the test split, its class and, if it is another, the predicted one."""
    label, predicted = answers["label"][place], answers["predicted"][place]
    words = label if label == predicted else figures.arrow(label, predicted)
    return f"{answers['row'][place]}: {words}"
