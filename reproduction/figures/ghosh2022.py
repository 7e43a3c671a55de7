"""Figures of ghosh2022, "AdaFocal: calibration-aware adaptive focal loss"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import torch

from focalcal import drawing as figures
from focalcal.losses import CalFocalLoss, focal_loss
from reproduction.figures.recorded import every_third_epoch, lab_results, run_of
from reproduction.labels import LITTLE, LITTLE_20, MORE, NEWS, TITLES, method_name
from reproduction.recipe_numbers import RecipeNumbers
from reproduction.result_files import RunEvidence
from reproduction.training_curves import LOOKS, EpochCurve, Look, bin_at, bin_series, by_loss, curve_of, draw_panel, gap

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


def fig1() -> Any:
    """ECE, and the gap of three bins, by epoch and loss."""
    methods = ("ce", "fl-3", "fl-3.5", "fl-5", "flsd-53")
    made = figures.new_figure(2 * figures.COLUMN, 4.1)
    overall, *panels = made.subplots(2, 2).flat
    numbers = lab_results()[LITTLE]
    lines = [EpochCurve(method, val_ece, method_name(method), LOSS_LOOKS[method]) for method in methods]
    handles = draw_panel(overall, "ECE", lines, numbers)
    overall.set_ylim(bottom=0)
    figures.style(overall, title="(a) validation ECE, equal mass", xlabel="epochs trained", ylabel="ECE")
    for ax, share in zip(panels, _THREE, strict=True):
        draw_panel(ax, "gap", _of_losses(methods, partial(gap, share=share)), numbers)
        title = f"(b) bin {bin_at(share, NUM_BINS)}"
        figures.style(ax, title=title, xlabel="epochs trained", ylabel="confidence - accuracy")
    _one_scale(panels)
    figures.legend(overall, list(handles.values()), list(handles), under=True, columns=5)
    return made


def val_ece(run: RunEvidence) -> dict[int, float]:
    """The mean over validation bins of equal mass of |confidence - accuracy|, by epochs trained."""
    records = zip(
        run.dynamics["epoch"], run.dynamics["bins"]["val_confidence"], run.dynamics["bins"]["val_accuracy"], strict=True
    )
    return {
        epoch + 1: fmean(abs(one - other) for one, other in zip(confidence, accuracy, strict=True))
        for epoch, confidence, accuracy in records
    }


def _of_losses(methods: Sequence[str], values: Any) -> list[EpochCurve]:
    return [EpochCurve(method, values, method_name(method), LOSS_LOOKS[method]) for method in methods]


def _one_scale(axes: Sequence[Any]) -> None:
    """The same vertical axis for all."""
    low, high = min(ax.get_ylim()[0] for ax in axes), max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(low, high)


def fig2() -> Any:
    """Both confidences in three bins, by epoch and loss."""
    return _draw_confidences(("ce", "fl-3", "fl-5"), lab_results()[LITTLE])


def fig14() -> Any:
    """Both confidences in three bins, by epoch and loss, of texts."""
    return _draw_confidences(("ce", "fl-3"), lab_results()[NEWS])


def _draw_confidences(methods: Sequence[str], numbers: RecipeNumbers) -> Any:
    made = figures.new_figure(2 * figures.COLUMN, 2.7)
    axes = made.subplots(1, len(_THREE))
    handles: dict[str, Any] = {}
    for ax, share in zip(axes, _THREE, strict=True):
        for method in methods:
            handles |= draw_panel(ax, "confidence", confidences(method, share), numbers)
        label = "confidence" if ax is axes[0] else ""
        figures.style(ax, title=f"bin {bin_at(share, NUM_BINS)}", xlabel="epochs trained", ylabel=label)
    figures.legend(axes[0], list(handles.values()), list(handles), under=True, columns=len(methods))
    return made


def confidences(method: str, share: float, accuracy: bool = False) -> list[EpochCurve]:
    """Training and validation confidence, and accuracy if wished, of the bin at a share of all bins."""
    colour, _, marker = LOSS_LOOKS[method]
    looks: dict[str, tuple[str, Look]] = {
        "train_true": ("C train", (colour, "-", "")),
        "val_confidence": ("C val", (colour, "--", marker)),
        "val_accuracy": ("A val", (colour, ":", "")),
    }
    return [
        EpochCurve(method, partial(bin_series, name=name, share=share), f"{method_name(method)}, {words}", look)
        for name, (words, look) in looks.items()
        if accuracy or name != "val_accuracy"
    ]


def fig5() -> Any:
    """Gaps of three losses and gammas of AdaFocal in three bins, on two recipes."""
    made = figures.new_figure(2 * figures.COLUMN, 6.0)
    upper, lower = made.subfigures(2, 1, height_ratios=(1, 1.12))
    _draw_gammas(upper, "(a)", lab_results()[LITTLE])
    handles, ax = _draw_gammas(lower, "(b)", lab_results()[NEWS])
    figures.legend(ax, list(handles.values()), list(handles), under=True, columns=3)
    return made


def _draw_gammas(part: Any, letter: str, numbers: RecipeNumbers) -> tuple[dict[str, Any], Any]:
    panels = part.subplots(2, len(_THREE), sharex=True, sharey="row")
    for (above, below), share in zip(panels.T, _THREE, strict=True):
        handles = draw_panel(
            above, "gap", _of_losses(("ce", "flsd-53", "adafocal"), partial(gap, share=share)), numbers
        )
        gammas = partial(bin_series, name="gamma", share=share)
        draw_panel(below, "gamma", _of_losses(("adafocal",), gammas), numbers)
        first = share == _THREE[0]
        figures.style(above, title=f"bin {bin_at(share, NUM_BINS)}", ylabel="C val - A val" if first else "")
        figures.style(below, xlabel="epochs trained", ylabel="γ" if first else "")
    part.align_ylabels(panels[:, 0])
    figures.plain(part.suptitle(f"{letter} {numbers.title}", fontsize=8))
    return handles, panels[1, 0]


# The accuracy of the validation bin that CalFocal's loss is drawn for.
ACCURACY = 0.8
# The losses of panel (a): gamma, or lambda of CalFocal.
_SHAPES: dict[str, tuple[float, float | None, Any]] = {
    "CE": (0.0, None, (figures.VERMILION, "-")),
    "FL-3": (3.0, None, (figures.PURPLE, ":")),
    "FL-5": (5.0, None, (figures.BLUE, "-.")),
    "InvFL-1": (-1.0, None, (figures.GREEN, (0, (6, 1.5)))),
    "InvFL-2": (-2.0, None, (figures.ORANGE, (0, (3, 1, 1, 1, 1, 1)))),
    "CF-10": (0.0, 10.0, (figures.SKY, "--")),
    "CF-100": (0.0, 100.0, (figures.BLACK, (0, (1, 1)))),
}


def fig3() -> Any:
    """Losses against p; error, ECE and the lowest bin by epoch."""
    made = figures.new_figure(2 * figures.COLUMN, 5.4)
    shapes, error, ece, lowest = made.subplots(2, 2).flat
    _draw_shapes(shapes)
    runs = _draw_runs(error, "(b) test error", "error", "test_error")
    _draw_runs(ece, "(c) test ECE, equal mass", "ECE", "test_ada_ece")
    figures.legend(error, list(runs.values()), list(runs), loc="lower left")
    handles: dict[str, Any] = {}
    for method, numbers in _methods():
        if method != "flsd-53":
            handles |= draw_panel(lowest, "confidence", confidences(method, 0.0, accuracy=True), numbers)
    figures.style(lowest, title="(d) bin 0", xlabel="epochs trained", ylabel="confidence, accuracy")
    figures.legend(lowest, list(handles.values()), list(handles), under=True, columns=2)
    return made


def loss_at(p: Any, gamma: float, lam: float | None = None) -> Any:
    """The loss of a sample whose true class has probability p, by focalcal's own losses.

    >>> loss_at(np.array([0.5]), 2.0).round(4)  # 0.25 log 2
    array([0.1733])
    """
    logits = torch.tensor(np.stack([np.log(p), np.log1p(-p)], 1))
    labels = torch.zeros(len(p), dtype=torch.int64)
    if lam is None:
        return focal_loss(logits, labels, gamma=gamma, reduction="none").numpy()
    loss = CalFocalLoss(lam, per_sample=True, num_bins=1, reduction="none")
    loss.accuracy.fill_(ACCURACY)
    return loss(logits, labels).numpy()


def _draw_shapes(ax: Any) -> None:
    p = np.linspace(0.005, 0.995, 199)
    lines = []
    for gamma, lam, (colour, line) in _SHAPES.values():
        lines += ax.plot(p, loss_at(p, gamma, lam), color=colour, linestyle=line, linewidth=1.2)
    ax.axvline(ACCURACY, color=figures.GREY, linewidth=0.7, linestyle=(0, (1, 1.5)), zorder=0)
    ax.set(xlim=(0, 1), ylim=(0, 4))
    figures.style(ax, title="(a) losses", xlabel="probability p of the true class", ylabel="loss")
    figures.legend(ax, lines, list(_SHAPES), loc="upper right")


def _methods() -> list[tuple[str, RecipeNumbers]]:
    """The losses of the other panels, and where their runs are."""
    return [(method, lab_results()[LITTLE]) for method in ("ce", "flsd-53", "calfocal")]


def _draw_runs(ax: Any, title: str, label: str, name: str) -> dict[str, Any]:
    handles: dict[str, Any] = {}
    for method, numbers in _methods():
        handles |= draw_panel(ax, label, _line(method, name), numbers)
    figures.percent(ax.yaxis, 5)
    figures.style(ax, title=title, xlabel="epochs trained", ylabel=label)
    return handles


def _line(method: str, name: str) -> Iterable[EpochCurve]:
    words = {"ce": "CE", "flsd-53": "FLSD-53", "calfocal": "CalFocal, λ = 10", "calfocal-100": "CalFocal, λ = 100"}
    return [curve_of(method, name, words[method], LOSS_LOOKS[method])]


_FOUR_RECIPES = (LITTLE, LITTLE_20, MORE, NEWS)
_LOSSES = ("ce", "flsd-53", "adafocal")


def fig4() -> Any:
    """Error and ECE by epoch, a column for each recipe."""
    made = figures.new_figure(2 * figures.COLUMN, 3.7)
    panels = made.subplots(2, len(_FOUR_RECIPES), sharex="col")
    for (error, ece), recipe in zip(panels.T, _FOUR_RECIPES, strict=True):
        numbers, first = lab_results()[recipe], recipe == _FOUR_RECIPES[0]
        handles = draw_panel(error, "error", by_loss(_LOSSES, "test_error"), numbers)
        draw_panel(ece, "ECE", by_loss(_LOSSES, "test_ada_ece"), numbers)
        figures.percent(error.yaxis, 4)
        ece.set_ylim(bottom=0)
        title = TITLES[recipe].replace(" on ", "\non ")
        figures.style(error, title=title, ylabel="test error" if first else "")
        figures.style(ece, xlabel="epochs trained", ylabel="test ECE" if first else "")
    made.align_ylabels(panels[:, 0])
    figures.legend(panels[1, 0], list(handles.values()), list(handles), under=True, columns=3)
    return made


def fig16() -> Any:
    """Error and ECE by epoch on 20 Newsgroups."""
    made = figures.new_figure(2 * figures.COLUMN, 2.5)
    axes = made.subplots(1, 2)
    looks: dict[str, Look] = {method: LOOKS[method] for method in _LOSSES}
    looks["adafocal-10"] = (figures.BLUE, ":", "s")
    for ax, name, label in zip(axes, ("test_error", "test_ada_ece"), ("error", "ECE"), strict=True):
        lines = [curve_of(method, name, method_name(method), look) for method, look in looks.items()]
        handles = draw_panel(ax, label, lines, lab_results()[NEWS])
        figures.percent(ax.yaxis, 5)
        figures.style(ax, xlabel="epochs trained", ylabel=f"test {label}")
    figures.legend(axes[0], list(handles.values()), list(handles), under=True, columns=4)
    return made


_SETS = {"mnist": "(a) MNIST", "cifar10-noise": "(b) CIFAR-10 with noise", "cifar100": "(c) CIFAR-100"}
# Before and after temperature scaling: the line of curves, and what marks are filled with (by default, their colour).
_PHASES: dict[str, tuple[Any, str]] = {"pre": ("-", ""), "post": ((0, (3, 2)), "white")}


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
            areas = [run.foreign[name][phase]["auroc"] for run in lab_results()[LITTLE].runs(method)]
            look = {"marker": marker, "markersize": 4, "linestyle": "none", "markerfacecolor": face or colour}
            ax.plot(areas, [row + shift] * len(areas), color=colour, **look)
    ax.axvline(0.5, color=figures.GREY, linestyle=":", linewidth=1, zorder=0)
    figures.rows_of_names(ax, [method_name(method) for method in _LOSSES])
    ax.set_xlim(0.25, 0.75)
