"""Calibration by bin while networks train: which gamma is best where, and what AdaFocal makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

from focalcal import drawing as figures
from reproduction.figures.catalogue import figure
from reproduction.figures.recorded import lab_results
from reproduction.labels import LITTLE, NEWS, TITLES, method_name
from reproduction.pages.dynamics.drawing import LOOKS, Line, Look, draw_panel
from reproduction.pages.dynamics.gammas import gap
from reproduction.pages.dynamics.records import bin_at, bin_series, bins
from reproduction.result_files import Evidence, RunEvidence

NUM_BINS = 15
# A lower, a middle and an upper bin, as shares of all bins.
_THREE = (0.0, 0.5, 1.0)
# Those of each loss in the figures of this paper.
LOSS_LOOKS: dict[str, Look] = LOOKS | {
    "fl-3.5": (figures.SKY, "--", "s"),
    "fl-5": (figures.BLUE, "-.", "^"),
    "calfocal": (figures.PURPLE, "--", "D"),
    "calfocal-100": (figures.BLUE, "-.", "^"),
}
LITTLE_DIFFERS = (
    "ResNet-8 on a tenth of CIFAR-10 (4,499 training and 500 validation images), 30 epochs with a record every third, "
    "not ResNet-50 on CIFAR-10 and 350 epochs"
)
_MARKS = (
    "Lines are means over three seeds, bands reach from the lowest to the highest, dotted vertical lines are drops of "
    "the learning rate."
)


@figure(
    "No gamma is best in all bins",
    caption=(
        "(a) ECE of the validation split in 15 bins of equal mass, by epoch, for cross-entropy, focal loss with γ = 3, "
        "3.5 and 5, and FLSD-53. (b) Validation confidence minus accuracy of the lowest bin (0), the middle one (7) "
        f"and the highest (14). {_MARKS} At the end cross-entropy is too sure in all three, γ = 5 too sure in bin 0 "
        "and not sure enough in bins 7 and 14: no γ is the best in all bins."
    ),
    alt=(
        "Four panels over 30 epochs with a line for each of five losses: ECE of the validation split, and confidence "
        "minus accuracy of the first, the middle and the last of 15 bins"
    ),
    differs=(
        f"{LITTLE_DIFFERS}; γ = 3.5 instead of 4. A bin has 33 validation images, so its accuracy is uncertain by up "
        "to 9 points (one standard deviation), and ECE is not 0 even of a calibrated network."
    ),
    source="recorded",
)
def fig1() -> Any:
    """ECE, and the gap of three bins, by epoch and loss."""
    methods = ("ce", "fl-3", "fl-3.5", "fl-5", "flsd-53")
    made = figures.new_figure(2 * figures.COLUMN, 4.1)
    overall, *panels = made.subplots(2, 2).flat
    evidence = lab_results()[LITTLE]
    lines = [Line(method, val_ece, method_name(method), LOSS_LOOKS[method]) for method in methods]
    handles = draw_panel(overall, "ECE", lines, evidence)
    overall.set_ylim(bottom=0)
    figures.style(overall, title="(a) validation ECE, equal mass", xlabel="epochs trained", ylabel="ECE")
    for ax, share in zip(panels, _THREE, strict=True):
        draw_panel(ax, "gap", _of_losses(methods, partial(gap, share=share)), evidence)
        title = f"(b) bin {bin_at(share, NUM_BINS)}"
        figures.style(ax, title=title, xlabel="epochs trained", ylabel="confidence - accuracy")
    _one_scale(panels)
    figures.legend(overall, list(handles.values()), list(handles), under=True, columns=5)
    return made


def val_ece(run: RunEvidence) -> dict[int, float]:
    """The mean over validation bins of equal mass of |confidence - accuracy|, by epochs trained."""
    records = zip(run.dynamics["epoch"], bins(run, "val_confidence"), bins(run, "val_accuracy"), strict=True)
    return {
        epoch + 1: fmean(abs(one - other) for one, other in zip(confidence, accuracy, strict=True))
        for epoch, confidence, accuracy in records
    }


def _of_losses(methods: Sequence[str], values: Any) -> list[Line]:
    return [Line(method, values, method_name(method), LOSS_LOOKS[method]) for method in methods]


def _one_scale(axes: Sequence[Any]) -> None:
    """The same vertical axis for all."""
    low, high = min(ax.get_ylim()[0] for ax in axes), max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(low, high)


@figure(
    "Training and validation confidence move together",
    caption=(
        "Mean confidence in three validation bins: of training samples in their true class (C train, drawn through) "
        "and of validation samples in the predicted one (C val, dashed, with marks), for cross-entropy and focal loss "
        f"with γ = 3 and 5. {_MARKS} Training samples are put between the edges of the validation bins, so both lie "
        "between the same edges and near each other by construction (in bins 7 and 14 one line covers the other); in "
        "bin 0, that of training samples is lower, as the true class may have any small probability. At the end, the "
        "larger γ is, the lower are both."
    ),
    alt=(
        "Three panels over 30 epochs, for the first, the middle and the last of 15 bins: solid lines of training "
        "confidence and dashed lines of validation confidence close to each other, lower for larger gamma"
    ),
    differs=f"{LITTLE_DIFFERS}; empty bins are left out, where the paper draws 0.",
    source="recorded",
)
def fig2() -> Any:
    """Both confidences in three bins, by epoch and loss."""
    return _draw_confidences(("ce", "fl-3", "fl-5"), lab_results()[LITTLE])


@figure(
    "Training and validation confidence on 20 Newsgroups",
    caption=(
        "As Fig. 2, for a convolutional network on 20 Newsgroups with cross-entropy and focal loss with γ = 3. Lines "
        "are means over two seeds, bands reach from the lower to the higher. In bins 7 and 14 both confidences are "
        "nearly the same, and at the end both are lower with focal loss; in bin 0 that of training samples is not."
    ),
    alt=(
        "Three panels over 6 epochs, for the first, the middle and the last of 15 bins: training and validation "
        "confidence of two losses"
    ),
    differs="Three of 15 bins, and 6 epochs; empty bins are left out, where the paper draws 0.",
    source="recorded",
)
def fig14() -> Any:
    """Both confidences in three bins, by epoch and loss, of texts."""
    return _draw_confidences(("ce", "fl-3"), lab_results()[NEWS])


def _draw_confidences(methods: Sequence[str], evidence: Evidence) -> Any:
    made = figures.new_figure(2 * figures.COLUMN, 2.7)
    axes = made.subplots(1, len(_THREE))
    handles: dict[str, Any] = {}
    for ax, share in zip(axes, _THREE, strict=True):
        for method in methods:
            handles |= draw_panel(ax, "confidence", confidences(method, share), evidence)
        label = "confidence" if ax is axes[0] else ""
        figures.style(ax, title=f"bin {bin_at(share, NUM_BINS)}", xlabel="epochs trained", ylabel=label)
    figures.legend(axes[0], list(handles.values()), list(handles), under=True, columns=len(methods))
    return made


def confidences(method: str, share: float, accuracy: bool = False) -> list[Line]:
    """Training and validation confidence, and accuracy if wished, of the bin at a share of all bins."""
    colour, _, marker = LOSS_LOOKS[method]
    looks: dict[str, tuple[str, Look]] = {
        "train_true": ("C train", (colour, "-", "")),
        "val_confidence": ("C val", (colour, "--", marker)),
        "val_accuracy": ("A val", (colour, ":", "")),
    }
    return [
        Line(method, partial(bin_series, name=name, share=share), f"{method_name(method)}, {words}", look)
        for name, (words, look) in looks.items()
        if accuracy or name != "val_accuracy"
    ]


@figure(
    "Gammas of AdaFocal by bin",
    caption=(
        "Three of 15 validation bins, (a) of images and (b) of texts. Above: validation confidence minus accuracy with "
        f"cross-entropy, FLSD-53 and AdaFocal. Below: the γ that AdaFocal's epoch began with. {_MARKS} (Two seeds and "
        "no drop in (b).) On images γ rises from 1 in every bin, as the network becomes too sure, and AdaFocal's gap "
        "ends near 0. On texts there are only five updates: γ stays near 1, and falls in the highest bin, where the "
        "network is not sure enough. It stays above 0 in both, so that inverse focal loss is never used."
    ),
    alt=(
        "Two blocks of three columns, one a bin: above, confidence minus accuracy by epoch for three losses; below, "
        "AdaFocal's gamma by epoch"
    ),
    differs=(
        f"(a) {LITTLE_DIFFERS}. (b) A convolutional network on 20 Newsgroups for 6 epochs, not ResNet-50 on ImageNet, "
        "where the paper's γ falls below 0 in some bins."
    ),
    source="recorded",
)
def fig5() -> Any:
    """Gaps of three losses and gammas of AdaFocal in three bins, on two recipes."""
    made = figures.new_figure(2 * figures.COLUMN, 6.0)
    upper, lower = made.subfigures(2, 1, height_ratios=(1, 1.12))
    _draw_gammas(upper, "(a)", lab_results()[LITTLE])
    handles, ax = _draw_gammas(lower, "(b)", lab_results()[NEWS])
    figures.legend(ax, list(handles.values()), list(handles), under=True, columns=3)
    return made


def _draw_gammas(part: Any, letter: str, evidence: Evidence) -> tuple[dict[str, Any], Any]:
    panels = part.subplots(2, len(_THREE), sharex=True, sharey="row")
    for (above, below), share in zip(panels.T, _THREE, strict=True):
        handles = draw_panel(
            above, "gap", _of_losses(("ce", "flsd-53", "adafocal"), partial(gap, share=share)), evidence
        )
        gammas = partial(bin_series, name="gamma", share=share)
        draw_panel(below, "gamma", _of_losses(("adafocal",), gammas), evidence)
        first = share == _THREE[0]
        figures.style(above, title=f"bin {bin_at(share, NUM_BINS)}", ylabel="C val - A val" if first else "")
        figures.style(below, xlabel="epochs trained", ylabel="γ" if first else "")
    part.align_ylabels(panels[:, 0])
    figures.plain(part.suptitle(f"{letter} {TITLES[evidence.name]}", fontsize=8))
    return handles, panels[1, 0]
