"""Figures of mukhoti2020, "Calibrating deep neural networks using focal loss"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal import drawing as figures
from focalcal.core.focal import confidence_thresholds, gradient_ratio
from focalcal.core.focal_map import focal_minimizer
from focalcal_lab.problems import LinearProblem, LinearRun
from focalcal_lab.problems.linear import SURE
from reproduction.figures.recorded import epochs_trained, every_epoch, every_third_epoch, lab_results, linear, run_of
from reproduction.labels import LITTLE
from reproduction.recipe_numbers import RecipeNumbers
from reproduction.result_figures import translation_temperature
from reproduction.result_files import RunEvidence
from reproduction.tables.dynamics import GAMMAS
from reproduction.toy_problems import loss_name
from reproduction.training_curves import LOOKS, Look, by_loss, draw_panel, drops

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
    for drop in drops(RecipeNumbers(every_epoch())):
        ax.axvline(drop, color=figures.GREY, linewidth=0.7, linestyle=(0, (1, 1.5)), zorder=0)


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


def fig10() -> Any:
    """Feature norms by epoch, as on the page of results."""
    ax = figures.axes_or_new(None, height=2.7)
    handles = draw_panel(ax, "feature norm", by_loss(GAMMAS, "feature_norm"), lab_results()[LITTLE])
    figures.style(ax, xlabel="epochs trained", ylabel="mean norm of the features")
    figures.legend(ax, list(handles.values()), list(handles), under=True)
    return ax.figure


# The histograms of Fig. 4 are drawn after so many epochs.
NORM_EPOCHS = (3, 15, 30)


def fig4() -> Any:
    """The factor g, histograms of gradient norms at three epochs, and their mean at all."""
    made = figures.new_figure(2 * figures.COLUMN, 4.2)
    ratio, *histograms, mean, names = made.subplots(2, 3).flat
    handles = _draw_ratio(ratio)
    for ax, epoch, letter in zip(histograms, NORM_EPOCHS, "bcd", strict=True):
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


def _gamma_runs() -> dict[str, RunEvidence]:
    return {method: run_of(every_third_epoch(), method) for method in GAMMAS}


def _draw_norms(ax: Any, epoch: int) -> None:
    """The histograms of the losses after so many epochs, as shares of the training samples."""
    for method, run in _gamma_runs().items():
        counts, edges = _norm_counts(run, epoch)
        colour, line, _ = LOOKS[method]
        ax.stairs(counts[1:-1] / counts.sum(), edges, color=colour, linestyle=line, linewidth=1.1)
    ax.set_xscale("log")
    figures.percent(ax.yaxis, 4)


def _norm_counts(run: RunEvidence, epoch: int) -> tuple[Any, Any]:
    """The samples by norm and the bins' edges, two of the recorded bins in one; the outer counts are outside."""
    low, *inner, high = run.extra["gradient"][epochs_trained(run).index(epoch)]
    return np.array([low, *np.reshape(inner, (-1, 2)).sum(1), high]), np.array(run.extra["gradient_edges"][::2])


def _same_axis(axes: list[Any]) -> None:
    """One scale of norms for all; at its lower end, one in a hundred is left out."""
    found = [_norm_counts(run, epoch) for run in _gamma_runs().values() for epoch in NORM_EPOCHS]
    shown, edges = np.sum([counts for counts, _ in found], axis=0)[1:-1], found[0][1]
    first, last = np.flatnonzero(shown.cumsum() > 0.01 * shown.sum())[0], np.flatnonzero(shown)[-1]
    for ax in axes:
        ax.set(xlim=(edges[first], edges[last + 1]), ylim=(0, None))


# Gammas by their looks, up to 3 those of the losses in other figures; 0 is cross-entropy.
GAMMA_LOOKS: dict[float, tuple[str, Any]] = {
    0.0: (figures.VERMILION, "-"),
    1.0: (figures.SKY, "--"),
    2.0: (figures.BLUE, "-."),
    3.0: (figures.PURPLE, ":"),
    5.0: (figures.GREEN, (0, (6, 1.5))),
    7.0: (figures.BLACK, (0, (3, 1, 1, 1, 1, 1))),
}


def gamma_name(gamma: float) -> str:
    """What legends call a gamma.

    >>> gamma_name(0.0), gamma_name(2.0)
    ('γ = 0 (cross-entropy)', 'γ = 2')
    """
    return "γ = 0 (cross-entropy)" if gamma == 0 else f"γ = {gamma:g}"


def fig6() -> Any:
    """The optimal prediction against the true probability."""
    ax = figures.axes_or_new(None, height=2.9)
    q = np.linspace(0, 1, 201)
    lines, names = [], []
    for gamma, (colour, line) in GAMMA_LOOKS.items():
        optimal = focal_minimizer(q, gamma, binary=True)
        lines += ax.plot(q, optimal, color=colour, linestyle=line, linewidth=1.3)
        names.append(gamma_name(gamma))
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    figures.style(ax, xlabel="true probability q of class 1", ylabel="optimal prediction p̂")
    figures.legend(ax, lines, names)
    return ax.figure


def fig7() -> Any:
    """Norms by epoch, and their limits."""
    return draw_norm_growth(linear())


def fig8() -> Any:
    """Mistakes and regions."""
    return draw_mistakes(linear(), points=250)


def fig5() -> Any:
    """Both against temperature, as on the page of results."""
    return translation_temperature(lab_results())


# Line and hatching of each loss of the linear problem, by the order of the runs.
_LINEAR_LINES, _LINEAR_HATCHES = ("-", "-.", ":", (0, (3, 1, 1, 1, 1, 1))), (None, "////", "....", "xxxx")


def draw_norm_growth(problem: LinearProblem) -> Any:
    """How the norms of logits and weights grow with each loss, and what they tend to (dashed).

    Source: [mukhoti2020, Fig. 7].
    """
    figure = figures.new_figure(2 * figures.COLUMN, 2.4)
    left, right = figure.subplots(1, 2)
    lines = []
    for colour, line, run in zip(figures.PALETTE, _LINEAR_LINES, problem.runs, strict=False):
        lines += left.plot(run.logit_norms, color=colour, linestyle=line)
        right.plot(run.weight_norms, color=colour, linestyle=line)
        for ax, limit in ((left, run.limit.logit_norm), (right, run.limit.weight_norm)):
            ax.axhline(limit, color=colour, linestyle="--", linewidth=0.8)
    figures.style(left, xlabel="epoch", ylabel="logits, root mean square")
    figures.style(right, xlabel="epoch", ylabel="norm of the weights")
    figures.legend(left, lines, [loss_name(run.gamma) for run in problem.runs], loc="lower right")
    return figure


def draw_mistakes(problem: LinearProblem, *, points: int | None = None) -> Any:
    """The confidences of misclassified test points, and every loss's decision regions, with the first `points` of them.

    Source: [mukhoti2020, Fig. 8].
    """
    figure = figures.new_figure(2 * figures.COLUMN, 2.4)
    first, *others = figure.subplots(1, 1 + len(problem.runs))
    edges = np.linspace(0.5, 1, 21)
    bars = []
    for colour, hatch, run in zip(figures.PALETTE, _LINEAR_HATCHES, problem.runs, strict=False):
        look = {"facecolor": (colour, 0.4), "edgecolor": colour, "linewidth": 0.8, "hatch": hatch}
        bars.append(first.hist(run.mistakes, bins=edges, **look)[2])
    first.axvline(SURE, color=figures.GREY, linestyle=":", linewidth=1)
    figures.percent(first.xaxis, 5)
    figures.style(first, xlabel="confidence of mistakes", ylabel="test points")
    figures.legend(first, bars, [loss_name(run.gamma) for run in problem.runs])
    for ax, run in zip(others, problem.runs, strict=True):
        _regions(ax, run, problem.test.inputs[:points], problem.test.labels[:points])
    return figure


def _regions(ax: Any, run: LinearRun, inputs: Tensor, labels: Tensor) -> None:
    """The probability of class 1 as shading, its line of one half, and the test points by label."""
    import matplotlib

    axis = torch.tensor([-5.0, 5.0], dtype=torch.float64)  # logits are linear, so their contours need no more points
    logits = run.weights[0] * axis + run.weights[1] * axis[:, None]
    steps = np.linspace(0, 1, 11)
    levels = [-1e3, *np.log(steps[1:-1] / (1 - steps[1:-1])), 1e3]
    colours = matplotlib.colormaps["PuOr"](steps[:-1] + 0.05)
    ax.contourf(axis, axis, logits, levels=levels, colors=colours, alpha=0.5)
    ax.contour(axis, axis, logits, levels=[0.0], colors=figures.BLACK, linewidths=1)
    for label, colour in enumerate((figures.VERMILION, figures.BLUE)):
        ax.plot(*inputs[labels == label].T, ".", color=colour, markersize=1.5)
    ax.set(xlim=(-5, 5), ylim=(-5, 5))
    figures.style(ax, title=f"{loss_name(run.gamma)}: |w| = {run.weight_norms[-1]:.2f}", xlabel="x₁", ylabel="x₂")
