"""Trained networks before and after Ψ: reliability diagrams (Fig. 4) and ECE by gamma (Figs. 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from focalcal import drawing as look
from reproduction.figures.catalogue import figure
from reproduction.figures.charoenphakdee2021.recorded import recorded
from reproduction.figures.drawing import diagonal, panels
from reproduction.labels import LITTLE, LITTLE_20, MORE, over_seeds, title_of
from reproduction.result_files import Evidence, evidence_of

GAMMAS = (0, 1, 2, 3)
# The accuracy of fewer images than these says nothing.
ENOUGH = 5
# How raw outputs and those after Ψ look everywhere.
_LOOKS: dict[str, dict[str, Any]] = {
    "raw": {"color": look.VERMILION, "marker": "o", "linestyle": "-"},
    "psi": {"color": look.GREEN, "marker": "s", "linestyle": "--"},
}
_NAMES = ("without Ψ", "with Ψ")
_TRAININGS = {"standard": "standard", "ts-fl": "TS_FL", "ls": "label smoothing"}

# By gamma, the ECEs of all seeds in percent.
Series = Mapping[int, Sequence[float]]


def digits(training: str, step: str) -> Series:
    """ECEs of the recorded networks on noisy digits."""
    runs = [run for run in recorded()["digits"] if run["training"] == training]
    return {gamma: [100 * run[step]["ece"] for run in runs if run["gamma"] == gamma] for gamma in GAMMAS}


def images(evidence: Evidence, raw: str, psi: str) -> dict[str, Series]:
    """ECEs of a task's networks in the phases of both steps; Ψ leaves cross-entropy (gamma 0) as it is."""
    found: dict[str, Series] = {}
    for step, phase in (("raw", raw), ("psi", psi)):
        phases = {gamma: phase if gamma else raw for gamma in GAMMAS}
        methods = {gamma: f"fl-{gamma}" if gamma else "ce" for gamma in GAMMAS}
        found[step] = {gamma: over_seeds(evidence, methods[gamma], phases[gamma], "ece_ew") for gamma in GAMMAS}
    return found


@figure(
    "Reliability diagrams with and without Ψ",
    caption=(
        "Accuracy against confidence in ten bins, of networks trained with focal loss: as they are, after temperature "
        "scaling by the focal loss (TS_FL), and with smoothed labels. Above the diagonal is underconfident; bins of "
        "fewer than five images are left out. Ψ brings the last two rows nearer to it; standard training on 500 "
        "images is overconfident already, and Ψ makes it worse."
    ),
    alt="Nine small diagrams, three trainings by three γ, with two curves each around the diagonal.",
    source="recorded",
    differs=(
        "The paper has ResNet-110 on SVHN and CIFAR-10; here it is a small convolutional network on 500 noisy digits, "
        "one seed, measured on 897 others. It is like the paper's CIFAR-10, not like its SVHN."
    ),
)
def fig4() -> Any:
    """Accuracy against confidence of nine networks, with and without Psi."""
    made, axes = panels(3, rows=3, height=6.2, sharex=True, sharey=True)
    runs = {(run["training"], run["gamma"]): run for run in recorded()["digits"] if run["seed"] == 0}
    for row, training in zip(axes, _TRAININGS, strict=True):
        for ax, gamma in zip(row, GAMMAS[1:], strict=True):
            handles = _reliability(ax, runs[training, gamma], f"{_TRAININGS[training]}, γ = {gamma}")
            if ax is row[0]:
                ax.set_ylabel("accuracy", fontsize=8)
            if row is axes[-1]:
                ax.set_xlabel("confidence", fontsize=8)
    look.legend(axes[0, 0], handles, _NAMES, under=True)
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


@figure(
    "ECE by γ, with and without Ψ",
    caption=(
        "Test ECE of standard networks trained with cross-entropy (γ = 0) and focal loss: dots are seeds, lines their "
        "means. With half of CIFAR-10 focal training is underconfident, and Ψ takes most of that away. With a tenth "
        "of it networks learn their images by heart: a larger γ is better without Ψ, and Ψ makes up for what is not "
        "missing."
    ),
    alt=(
        "Three panels of two lines over γ from 0 to 3. In the first, ECE rises steeply without Ψ and slowly with it; "
        "in the others it falls steeply without Ψ and stays high with it."
    ),
    source="recorded",
    differs=(
        "The paper has box plots of ten trials with ResNet-8 to -110 on SVHN, CIFAR-10 and a tenth of CIFAR-10; these "
        "are two or three seeds of shorter runs of smaller networks, with 15 bins instead of 10."
    ),
)
def fig5() -> Any:
    """ECE against gamma of three tasks."""
    made, axes = panels(3, height=2.7)
    for ax, recipe in zip(axes, (MORE, LITTLE, LITTLE_20), strict=True):
        evidence = evidence_of(recipe)
        handles = _by_gamma(ax, images(evidence, "pre", "psi"), title_of(evidence))
    look.legend(axes[0], handles, _NAMES, under=True)
    return made


@figure(
    "ECE by γ after TS_FL and with smoothed labels, with and without Ψ",
    caption=(
        "Test ECE of networks after temperature scaling by the focal loss (TS_FL) of their γ, and of networks trained "
        "with smoothed labels: dots are seeds, lines their means. A larger γ is worse without Ψ, and much less so "
        "with it."
    ),
    alt="Three panels of two lines over γ from 0 to 3: without Ψ the ECE rises with γ, with Ψ it rises little.",
    source="recorded",
    differs=(
        "The paper has ResNet-110 on CIFAR-10 and a tenth of it; these are ResNet-8, and for smoothed labels a small "
        "network on noisy digits. ECE has 15 bins in the first two panels, and 10 as in the paper in the last."
    ),
)
def fig6() -> Any:
    """ECE against gamma after TS_FL and with label smoothing."""
    made, axes = panels(3, height=2.7)
    for ax, recipe in zip(axes[:2], (MORE, LITTLE), strict=True):
        evidence = evidence_of(recipe)
        name = title_of(evidence).replace("ResNet-8 on", "TS_FL,")
        handles = _by_gamma(ax, images(evidence, "ts-fl", "ts-fl+psi"), name)
    _by_gamma(axes[2], {step: digits("ls", step) for step in _LOOKS}, "smoothed labels, noisy digits")
    look.legend(axes[0], handles, _NAMES, under=True)
    return made


def _by_gamma(ax: Any, found: Mapping[str, Series], title: str) -> list[Any]:
    """The ECE of every seed, and a line through the means of each step."""
    handles = []
    for apart, (step, style) in zip((-0.06, 0.06), _LOOKS.items(), strict=True):
        places = [gamma + apart for gamma in GAMMAS]
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
    ax.set_xticks(GAMMAS)
    ax.set_ylim(bottom=0)
    look.style(ax, title=title, xlabel="γ", ylabel="ECE, %")
    return handles
