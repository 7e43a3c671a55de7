"""Figures of charoenphakdee2021, "On focal loss for class-posterior probability estimation"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import focalcal as fc
from focalcal import drawing as look
from focalcal_lab.data.synthetic import ClassMixture, one_dimensional
from reproduction.figures.drawing import curves, diagonal, gammas, panels
from reproduction.figures.record_digits import EVERY
from reproduction.figures.recorded import lab_results, trained_here
from reproduction.labels import LITTLE, LITTLE_20, MORE
from reproduction.recipe_numbers import RecipeNumbers

_SHOWN = (0.5, 1.0, 2.0, 3.0, 5.0)
_NUM_CLASSES = 1000


def fig1() -> Any:
    """phi of several gammas, and the three regions of gamma 3."""
    made, (ax,) = panels(1, width=1.35 * look.COLUMN, height=2.9)
    over, under = fc.confidence_thresholds(3.0)
    ends = (0.0, over, under, 1.0)
    for low, high, shade in zip(ends, ends[1:], (look.VERMILION, look.GREY, look.SKY), strict=False):
        ax.axvspan(low, high, color=shade, alpha=0.2, linewidth=0, zorder=0)
    for place, name in ((over / 2, "overconfident"), ((over + under) / 2, "either")):
        ax.text(place, 0.04, name, rotation=90, ha="center", va="bottom", fontsize=7, color=look.BLACK)
    ax.text((under + 1) / 2, 1.42, "underconfident", ha="center", va="top", fontsize=7, color=look.BLACK)
    for place, name in ((over, f"τ_oc\n{over:.3f}"), (under, f"τ_uc\n{under:.3f}")):
        ax.axvline(place, color=look.GREY, linewidth=0.6)
        ax.text(place + 0.008, 1.56, name, ha="left", va="top", fontsize=7, color=look.BLACK)
    ax.axhline(1, color=look.GREY, linewidth=0.6)
    v = torch.linspace(0, 1, 401, dtype=torch.float64)
    lines = curves(ax, v, (fc.gradient_ratio(v, gamma) for gamma in _SHOWN))
    ax.set(xlim=(0, 1), ylim=(0, 1.6))
    look.style(ax, xlabel="v, the largest probability of the minimiser", ylabel="φ(v)")
    look.legend(ax, lines, gammas(_SHOWN), loc="upper right")
    return made


def one_above_equals(tops: Tensor, num_classes: int) -> Tensor:
    """Distributions with one class at each of `tops` (N,) and the others level."""
    others = (1 - tops) / (num_classes - 1)
    return torch.cat([tops[:, None], others[:, None].expand(-1, num_classes - 1)], 1)


def fig2() -> Any:
    """max q against max eta for 2 and for 1000 classes."""
    made, (left, middle, right) = panels(3, height=2.7)
    shown = (0.5, 1.0, 3.0, 5.0)
    posterior = torch.linspace(0.5, 1, 101, dtype=torch.float64)
    diagonal(left, (0.5, 1))
    lines = curves(left, posterior, (fc.focal_minimizer(posterior, gamma, binary=True) for gamma in shown))
    look.style(left, title="(a) 2 classes", xlabel="max η", ylabel="max q")
    diagonal(middle)
    right.axhline(0, color=look.GREY, linewidth=0.6)
    tops = torch.linspace(1 / _NUM_CLASSES, 1, 201, dtype=torch.float64)
    truths = [fc.focal_map(one_above_equals(tops, _NUM_CLASSES), gamma)[:, 0] for gamma in shown]
    for line, truth in zip(lines, truths, strict=True):
        style = {"color": line.get_color(), "linestyle": line.get_linestyle(), "linewidth": 1.2}
        middle.plot(truth, tops, **style)
        right.plot(truth, tops - truth, **style)
    look.style(middle, title="(b) 1000 classes", xlabel="max η", ylabel="max q")
    right.set(xlim=(0, 0.5), ylim=(-0.1, 0.03))
    look.style(right, title="(c) 1000 classes", xlabel="max η", ylabel="max q \N{MINUS SIGN} max η")
    look.legend(left, lines, gammas(shown), under=True, columns=4)
    return made


_CLASSES = ((look.BLUE, 1.3), (look.VERMILION, 1.3), (look.GREEN, 1.3))
_STEPS = {"raw": "as trained", "temperature": "TS by NLL", "focal-map": "Ψ"}


def grid() -> Tensor:
    """Where curves are drawn, (G, 1)."""
    return torch.linspace(-4, 4, 240 // EVERY + 1, dtype=torch.float64)[:, None]


def outputs(gamma: float, step: str) -> Tensor:
    """What a network says on the grid (G, 3), as trained or after a step."""
    network = trained_here()["line"]["networks"][f"{gamma:g}"]
    probs = torch.tensor(network["probs"], dtype=torch.float64)
    probs = probs / probs.sum(1, keepdim=True)  # they are recorded to five digits
    if step == "temperature":
        return torch.softmax(torch.log(probs) / network["steps"][step]["temperature"], 1)
    mapped: Tensor = fc.focal_map(probs, gamma) if step == "focal-map" else probs
    return mapped


def fig3() -> Any:
    """Densities, posterior, and the outputs of three networks with and without a step after training."""
    made, axes = panels(3, rows=3, height=5.4, sharex=True)
    x, mixture = grid(), _mixture()
    joint = mixture.log_joint(x).exp()
    first, second, third = axes[0]
    first.plot(x[:, 0], joint.sum(1), color=look.BLACK, linewidth=1)
    _draw_classes(first, joint)
    first.set_ylim(0, 0.3)
    look.style(first, title="(a) p(x) and p(x, y)")
    _draw_classes(second, mixture.posterior(x))
    for label, place, height in ((1, -3.7, 0.92), (2, -0.7, 0.68), (3, 2.3, 0.92)):
        second.text(place, height, f"y = {label}", fontsize=7, color=look.BLACK)
    second.set_ylim(0, 1.02)
    look.style(second, title="(b) p(y | x)")
    _compare(third, 0.0, "raw", "(c) cross-entropy")
    for row, letters in enumerate(("dfh", "egi")):
        gamma = (1.0, 5.0)[row]
        for ax, letter, step in zip(axes[1 + row], letters, _STEPS, strict=True):
            _compare(ax, gamma, step, f"({letter}) γ = {gamma:g}, {_STEPS[step]}")
    for ax in axes[-1]:
        ax.set_xlabel("x", fontsize=8)
    for ax in (third, *axes[1:, 1:].flat):
        ax.tick_params(labelleft=False)  # as in the panel to the left
    return made


def _mixture() -> ClassMixture:
    mixture: ClassMixture = one_dimensional(train_size=1).facts["mixture"]
    return mixture


def _draw_classes(ax: Any, values: Tensor, **style: Any) -> None:
    for (colour, width), curve in zip(_CLASSES, values.T, strict=True):
        ax.plot(grid()[:, 0], curve, color=colour, **{"linewidth": width, **style})


def _compare(ax: Any, gamma: float, step: str, title: str) -> None:
    _draw_classes(ax, outputs(gamma, step))
    _draw_classes(ax, _mixture().posterior(grid()), linestyle=(0, (3, 2)), linewidth=0.8)
    ax.set_ylim(0, 1.02)
    found = trained_here()["line"]["networks"][f"{gamma:g}"]["steps"][step]
    numbers = f"KL {found['kl']:.4f}, ECE {found['ece']:.1%}"
    look.style(ax, title=f"{title}\n{numbers}")
    ax.title.set_fontsize(7)


TRAINED_GAMMAS = (0, 1, 2, 3)
# The accuracy of fewer images than these says nothing.
ENOUGH = 5
# How raw outputs and those after Ψ look everywhere.
_LOOKS: dict[str, dict[str, Any]] = {
    "raw": {"color": look.VERMILION, "marker": "o", "linestyle": "-"},
    "psi": {"color": look.GREEN, "marker": "s", "linestyle": "--"},
}
_WITH_AND_WITHOUT = ("without Ψ", "with Ψ")
_TRAININGS = {"standard": "standard", "ts-fl": "TS_FL", "ls": "label smoothing"}

# By gamma, the ECEs of all seeds in percent.
Series = Mapping[int, Sequence[float]]


def digits(training: str, step: str) -> Series:
    """ECEs of the recorded networks on noisy digits."""
    runs = [run for run in trained_here()["digits"] if run["training"] == training]
    return {gamma: [100 * run[step]["ece"] for run in runs if run["gamma"] == gamma] for gamma in TRAINED_GAMMAS}


def images(numbers: RecipeNumbers, raw: str, psi: str) -> dict[str, Series]:
    """ECEs of a task's networks in the phases of both steps; Ψ leaves cross-entropy (gamma 0) as it is."""
    found: dict[str, Series] = {}
    for step, phase in (("raw", raw), ("psi", psi)):
        phases = {gamma: phase if gamma else raw for gamma in TRAINED_GAMMAS}
        methods = {gamma: f"fl-{gamma}" if gamma else "ce" for gamma in TRAINED_GAMMAS}
        found[step] = {gamma: numbers.values(methods[gamma], "ece_ew", phases[gamma]) for gamma in TRAINED_GAMMAS}
    return found


def fig4() -> Any:
    """Accuracy against confidence of nine networks, with and without Psi."""
    made, axes = panels(3, rows=3, height=6.2, sharex=True, sharey=True)
    runs = {(run["training"], run["gamma"]): run for run in trained_here()["digits"] if run["seed"] == 0}
    for row, training in zip(axes, _TRAININGS, strict=True):
        for ax, gamma in zip(row, TRAINED_GAMMAS[1:], strict=True):
            handles = _reliability(ax, runs[training, gamma], f"{_TRAININGS[training]}, γ = {gamma}")
            if ax is row[0]:
                ax.set_ylabel("accuracy", fontsize=8)
            if row is axes[-1]:
                ax.set_xlabel("confidence", fontsize=8)
    look.legend(axes[0, 0], handles, _WITH_AND_WITHOUT, under=True)
    return made


def _reliability(ax: Any, run: Mapping[str, Any], title: str) -> list[Any]:
    diagonal(ax)
    handles = []
    for step, style in _LOOKS.items():
        columns = zip(run[step]["count"], run[step]["confidence"], run[step]["accuracy"], strict=True)
        points = [(confidence, accuracy) for count, confidence, accuracy in columns if count >= ENOUGH]
        handles += ax.plot(*zip(*points, strict=True), markersize=3, linewidth=1, **style)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    numbers = f"ECE {run['raw']['ece']:.1%}, with Ψ {run['psi']['ece']:.1%}"
    look.style(ax, title=f"{title}\n{numbers}, error {run['error']:.1%}")
    ax.title.set_fontsize(7)
    return handles


def fig5() -> Any:
    """ECE against gamma of three tasks."""
    made, axes = panels(3, height=2.7)
    for ax, recipe in zip(axes, (MORE, LITTLE, LITTLE_20), strict=True):
        numbers = lab_results()[recipe]
        handles = _by_gamma(ax, images(numbers, "pre", "psi"), numbers.title)
    look.legend(axes[0], handles, _WITH_AND_WITHOUT, under=True)
    return made


def fig6() -> Any:
    """ECE against gamma after TS_FL and with label smoothing."""
    made, axes = panels(3, height=2.7)
    for ax, recipe in zip(axes[:2], (MORE, LITTLE), strict=True):
        numbers = lab_results()[recipe]
        name = numbers.title.replace("ResNet-8 on", "TS_FL,")
        handles = _by_gamma(ax, images(numbers, "ts-fl", "ts-fl+psi"), name)
    _by_gamma(axes[2], {step: digits("ls", step) for step in _LOOKS}, "smoothed labels, noisy digits")
    look.legend(axes[0], handles, _WITH_AND_WITHOUT, under=True)
    return made


def _by_gamma(ax: Any, found: Mapping[str, Series], title: str) -> list[Any]:
    """The ECE of every seed, and a line through the means of each step."""
    handles = []
    for apart, (step, style) in zip((-0.06, 0.06), _LOOKS.items(), strict=True):
        places = [gamma + apart for gamma in TRAINED_GAMMAS]
        for place, values in zip(places, found[step].values(), strict=True):
            ax.plot(
                [place] * len(values),
                values,
                color=style["color"],
                marker=style["marker"],
                linestyle="",
                markersize=2.5,
            )
        means = [fmean(values) for values in found[step].values()]
        handles += ax.plot(places, means, color=style["color"], linestyle=style["linestyle"], linewidth=1.2)
    ax.set_xticks(TRAINED_GAMMAS)
    ax.set_ylim(bottom=0)
    look.style(ax, title=title, xlabel="γ", ylabel="ECE, %")
    return handles
