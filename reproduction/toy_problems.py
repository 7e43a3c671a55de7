"""The papers' two toy problems as tables in Markdown and as figures: mukhoti2020's 7 and 8, charoenphakdee2021's 3.

`python -m reproduction.toy_problems FOLDER` solves both, prints their tables and draws their figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal import drawing
from focalcal.atomic import write_atomically
from focalcal_lab.data.synthetic import ClassMixture, four_clusters
from focalcal_lab.problems import (
    Estimate,
    LinearProblem,
    LinearRun,
    OneDimensionalProblem,
    linear_limit,
    linear_problem,
    one_dimensional_problem,
    sure_mistakes,
)
from focalcal_lab.problems.linear import SURE
from focalcal_lab.problems.one_dimensional import Step

_STEPS: dict[Step, str] = {"raw": "as trained", "temperature": "TS by NLL", "focal-map": "Ψ"}
_DPI = 110
# Line and hatching of each loss, by the order of the runs.
_LINES, _HATCHES = ("-", "-.", ":", (0, (3, 1, 1, 1, 1, 1))), (None, "////", "....", "xxxx")


def loss_name(gamma: float) -> str:
    """The loss of a gamma, as the papers call it.

    >>> loss_name(0.0), loss_name(5.0)
    ('CE', 'FL-5')
    """
    return "CE" if gamma == 0 else f"FL-{gamma:g}"


def step_name(step: Step) -> str:
    """What was done to the outputs, as figures and tables call it.

    >>> step_name("temperature")
    'TS by NLL'
    """
    return _STEPS[step]


def draw_norms(problem: LinearProblem) -> Any:
    """How the norms of logits and weights grow with each loss, and what they tend to (dashed).

    Source: [mukhoti2020, Fig. 7].

    >>> from focalcal_lab.problems import linear_problem
    >>> [axes.get_ylabel() for axes in draw_norms(linear_problem(epochs=3)).axes]
    ['logits, root mean square', 'norm of the weights']
    """
    figure = drawing.new_figure(2 * drawing.COLUMN, 2.4)
    left, right = figure.subplots(1, 2)
    lines = []
    for colour, line, run in zip(drawing.PALETTE, _LINES, problem.runs, strict=False):
        lines += left.plot(run.logit_norms, color=colour, linestyle=line)
        right.plot(run.weight_norms, color=colour, linestyle=line)
        for ax, limit in ((left, run.limit.logit_norm), (right, run.limit.weight_norm)):
            ax.axhline(limit, color=colour, linestyle="--", linewidth=0.8)
    drawing.style(left, xlabel="epoch", ylabel="logits, root mean square")
    drawing.style(right, xlabel="epoch", ylabel="norm of the weights")
    drawing.legend(left, lines, [loss_name(run.gamma) for run in problem.runs], loc="lower right")
    return figure


def draw_mistakes(problem: LinearProblem, *, points: int | None = None) -> Any:
    """The confidences of misclassified test points, and every loss's decision regions, with the first `points` of them.

    Source: [mukhoti2020, Fig. 8].

    >>> from focalcal_lab.problems import linear_problem
    >>> len(draw_mistakes(linear_problem(epochs=3)).axes)  # confidences, and a panel for each loss
    3
    """
    figure = drawing.new_figure(2 * drawing.COLUMN, 2.4)
    first, *others = figure.subplots(1, 1 + len(problem.runs))
    edges = np.linspace(0.5, 1, 21)
    bars = []
    for colour, hatch, run in zip(drawing.PALETTE, _HATCHES, problem.runs, strict=False):
        look = {"facecolor": (colour, 0.4), "edgecolor": colour, "linewidth": 0.8, "hatch": hatch}
        bars.append(first.hist(run.mistakes, bins=edges, **look)[2])
    first.axvline(SURE, color=drawing.GREY, linestyle=":", linewidth=1)
    drawing.percent(first.xaxis, 5)
    drawing.style(first, xlabel="confidence of mistakes", ylabel="test points")
    drawing.legend(first, bars, [loss_name(run.gamma) for run in problem.runs])
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
    ax.contour(axis, axis, logits, levels=[0.0], colors=drawing.BLACK, linewidths=1)
    for label, colour in enumerate((drawing.VERMILION, drawing.BLUE)):
        ax.plot(*inputs[labels == label].T, ".", color=colour, markersize=1.5)
    ax.set(xlim=(-5, 5), ylim=(-5, 5))
    drawing.style(ax, title=f"{loss_name(run.gamma)}: |w| = {run.weight_norms[-1]:.2f}", xlabel="x₁", ylabel="x₂")


def draw_one_dimensional(problem: OneDimensionalProblem) -> Any:
    """The densities, the posterior, and beside it (dashed) what each network says: as trained, after TS, after Ψ.

    Source: [charoenphakdee2021, Fig. 3].

    >>> from focalcal_lab.problems import one_dimensional_problem
    >>> sizes = {"epochs": 1, "train_size": 500, "val_size": 500, "test_size": 500}
    >>> problem = one_dimensional_problem(gammas=[1.0], **sizes)
    >>> [axes.get_title() for axes in draw_one_dimensional(problem).axes[:2]]
    ['p(x) and p(x, y)', 'p(y | x)']
    """
    focal = [gamma for gamma in dict.fromkeys(one.gamma for one in problem.measured) if gamma != 0]
    figure = drawing.new_figure(2 * drawing.COLUMN, 1.9 * (1 + len(focal)))
    panels = figure.subplots(1 + len(focal), 3, sharex=True, squeeze=False)
    density, truth, plain = panels[0]
    density.plot(problem.grid, problem.joint.sum(1), color=drawing.BLACK, linewidth=1)
    _curves(density, problem.grid, problem.joint)
    drawing.style(density, title="p(x) and p(x, y)")
    _curves(truth, problem.grid, problem.posterior)
    truth.set_ylim(-0.02, 1.02)
    drawing.style(truth, title="p(y | x)")
    if len(focal) < len({one.gamma for one in problem.measured}):
        _compared(plain, problem, problem.of(0.0, "raw"))
    else:
        plain.set_visible(False)
    for gamma, row in zip(focal, panels[1:], strict=True):
        for ax, step in zip(row, _STEPS, strict=True):
            _compared(ax, problem, problem.of(gamma, step))
    return figure


def _curves(ax: Any, grid: Tensor, values: Tensor, **look: Any) -> None:
    for colour, curve in zip(drawing.PALETTE, values.T, strict=False):
        ax.plot(grid, curve, color=colour, **look)


def _compared(ax: Any, problem: OneDimensionalProblem, one: Estimate) -> None:
    _curves(ax, problem.grid, problem.posterior, linestyle="--", linewidth=0.8)
    _curves(ax, problem.grid, one.probs)
    ax.set_ylim(-0.02, 1.02)
    title = f"{loss_name(one.gamma)}, {step_name(one.step)}\nKL {one.kl:.4f}, ECE {one.ece:.1%}, error {one.error:.1%}"
    drawing.style(ax, title=title)


def save_drawings(folder: str | Path, linear: LinearProblem, one_dimensional: OneDimensionalProblem) -> list[Path]:
    """Write all three figures into a folder as PNG; returns the files.

    >>> import tempfile
    >>> from focalcal_lab.problems import linear_problem, one_dimensional_problem
    >>> linear = linear_problem(epochs=3)
    >>> line = one_dimensional_problem(gammas=[1.0], epochs=1, train_size=500, val_size=500, test_size=500)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(*[path.name for path in save_drawings(folder, linear, line)])
    linear_norms.png linear_mistakes.png one_dimensional.png
    """
    drawn = {
        "linear_norms.png": draw_norms(linear),
        "linear_mistakes.png": draw_mistakes(linear),
        "one_dimensional.png": draw_one_dimensional(one_dimensional),
    }
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn.items():
        write_atomically(place / name, _small_png(figure))
    return [place / name for name in drawn]


def _small_png(figure: Any) -> bytes:
    """A figure as PNG with 64 colours: a third of the size, and no difference to the eye."""
    from PIL import Image  # comes with matplotlib

    full, small = BytesIO(), BytesIO()
    figure.savefig(full, format="png", dpi=_DPI)
    Image.open(full).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


# Flipped labels in training and at test, and the standard deviation of the clusters before they are mixed.
VARIANTS = ((0.1, 0.1, 1.0), (0.05, 0.05, 1.0), (0.05, 0.05, 0.5), (0.0, 0.0, 1.0), (0.0, 0.1, 1.0))


def linear_table(problem: LinearProblem) -> str:
    """What each loss came to after the last epoch, and in brackets what it tends to."""
    names = ("loss", "norm of weights", "logits, RMS", "test error", "mistakes over 90 %", "median mistake")
    rows = (
        (
            loss_name(run.gamma),
            f"{run.weight_norms[-1]:.3f} ({run.limit.weight_norm:.3f})",
            f"{run.logit_norms[-1]:.3f} ({run.limit.logit_norm:.3f})",
            f"{_percent(run.error, 1)} ({_percent(run.limit.error, 1)})",
            f"{_percent(run.sure_mistakes)} ({_percent(run.limit.sure_mistakes)})",
            f"{run.median_mistake:.3f}",
        )
        for run in problem.runs
    )
    return _markdown(names, rows)


def mistakes_table(gammas: Sequence[float] = (0.0, 1.0), *, distribution_seed: int = 0) -> str:
    """What it takes for mistakes to be made with over 90 % confidence: the limits of variants of the linear problem.

    >>> print(mistakes_table([0.0]).splitlines()[2])
    | 10 % | 10 % | 1 | 1.05 | 42 % |
    """
    names = ["flipped in training", "flipped at test", "std"]
    names += [f"{what}, {loss_name(gamma)}" for what in ("norm of weights", "mistakes over 90 %") for gamma in gammas]
    return _markdown(names, _variants(gammas, distribution_seed))


def _variants(gammas: Sequence[float], distribution_seed: int) -> Iterator[list[str]]:
    for train_flip, test_flip, scale in VARIANTS:
        train, test = (_mixture(flip, scale, distribution_seed) for flip in (train_flip, test_flip))
        limits = [linear_limit(train, gamma) for gamma in gammas]
        shares = [sure_mistakes(torch.tensor(limit.weights, dtype=torch.float64), test) for limit in limits]
        yield [
            _percent(train_flip),
            _percent(test_flip),
            f"{scale:g}",
            *(f"{limit.weight_norm:.2f}" for limit in limits),
            *map(_percent, shares),
        ]


def _mixture(flip: float, scale: float, distribution_seed: int) -> ClassMixture:
    data = four_clusters(
        flip=flip, scale=scale, distribution_seed=distribution_seed, train_size=1, val_size=1, test_size=1
    )
    mixture: ClassMixture = data.facts["mixture"]
    return mixture


def one_dimensional_table(problem: OneDimensionalProblem) -> str:
    """Every network as trained, after temperature scaling and after Ψ, and in brackets what it tends to."""
    names = ("loss", "outputs", "temperature", "error", "KL to the posterior", "ECE")
    rows = (
        (
            loss_name(one.gamma),
            step_name(one.step),
            "" if one.temperature is None else f"{one.temperature:.3f} ({limit.temperature:.3f})",
            f"{_percent(one.error, 2)} ({_percent(limit.error, 2)})",
            f"{one.kl:.4f} ({abs(limit.kl):.4f})",
            f"{_percent(one.ece, 2)} ({_percent(limit.ece, 2)})",
        )
        for one, limit in zip(problem.measured, problem.limits, strict=True)
    )
    return _markdown(names, rows)


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _markdown(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: list[str]) -> int:
    """Write to the folder named by the only argument; 2 if there is another number of them."""
    if len(arguments) != 1:
        print("usage: python -m reproduction.toy_problems FOLDER", file=sys.stderr)
        return 2
    torch.set_num_threads(1)  # the networks are so small that a second thread gains nothing
    linear = linear_problem()
    print(f"Linear problem, Bayes error {linear.bayes_error:.1%}, angle between the weights {linear.angle():.2f}°\n")
    print(linear_table(linear))
    print(mistakes_table())
    line = one_dimensional_problem()
    print(f"One-dimensional problem, Bayes error {line.bayes_error:.2%}\n")
    print(one_dimensional_table(line))
    for path in save_drawings(arguments[0], linear, line):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
