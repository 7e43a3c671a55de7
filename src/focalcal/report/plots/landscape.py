"""The criterion landscape: how good every point of the focal temperature family is."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from focalcal import drawing
from focalcal.core.checks import ArrayLike
from focalcal.core.score_kinds import Kind
from focalcal.metrics.table import MEASURES
from focalcal.report.contents import Landscape
from focalcal.report.criterion_landscape import landscape
from focalcal.report.plots.scores_table import table_of


def criterion_landscape(
    scores: ArrayLike | Landscape,
    labels: ArrayLike | None = None,
    *,
    criterion: Literal["nll", "ada_ece"] = "nll",
    kind: Kind = "logits",
    num_bins: int = 15,
    sample_weight: ArrayLike | None = None,
    seed: int = 0,
    title: str = "",
    ax: Any = None,
) -> Any:
    """A criterion over gamma and temperature: a map with both optima and the line that komisarenko2024 searches.

    where `scores` and `labels` are those that a calibrator would be fitted to, or `scores` is the `Landscape` of a
    report. Of many rows a sample is taken by `seed`. Dark is good; colours are on a logarithmic scale.

    >>> criterion_landscape([[3.0, 0.0], [2.0, 0.0], [0.0, 1.0]] * 20, [0, 1, 1] * 20).get_xlabel()
    'focal parameter γ'
    """
    if not isinstance(scores, Landscape):
        table = table_of(scores, labels, kind=kind, sample_weight=sample_weight)
        scores = landscape(table, criterion, num_bins=num_bins, seed=seed)
    ours, ax = ax is None, drawing.axes_or_new(ax, height=3.1)
    mesh = _draw_values(ax, scores)
    handles = _draw_points(ax, scores)
    ax.set_yscale("log")
    ax.set(xlim=(min(scores.gammas), max(scores.gammas)), ylim=(min(scores.temperatures), max(scores.temperatures)))
    drawing.logarithmic(ax.yaxis)
    bar = ax.figure.colorbar(mesh, ax=ax)
    drawing.logarithmic(bar.ax.yaxis)
    drawing.style(bar.ax, ylabel=MEASURES[scores.criterion].label)
    drawing.legend(ax, list(handles.values()), list(handles), under=ours, loc="lower right")
    drawing.style(ax, title=title, xlabel="focal parameter γ", ylabel="temperature T")
    return ax


def _draw_values(ax: Any, found: Landscape) -> Any:
    from matplotlib.colors import LogNorm

    values = np.ma.masked_invalid(np.array(found.values, dtype=float).T)
    lowest = max(float(values.min()), 1e-6)  # an error of exactly 0 has no logarithm
    norm = LogNorm(lowest, max(float(values.max()), 1.01 * lowest))
    return ax.pcolormesh(
        found.gammas,
        found.temperatures,
        values.clip(lowest),
        norm=norm,
        cmap="cividis",
        shading="nearest",
        rasterized=True,  # a thousand vector cells would show seams
    )


def _draw_points(ax: Any, found: Landscape) -> dict[str, Any]:
    """The line and both optima; returns what the legend explains."""
    from matplotlib.patheffects import withStroke

    # White is seen on the map, its dark edge in the legend.
    casing = withStroke(linewidth=2.2, foreground=drawing.BLACK)
    dash = {"color": "white", "linestyle": "--", "linewidth": 1.2, "path_effects": [casing]}
    edge = {"linestyle": "none", "markeredgecolor": "white", "markeredgewidth": 0.6, "clip_on": False, "zorder": 4}
    plain, both = found.best_temperature, found.best_focal
    looks = {
        "best T, γ = 0": ([plain.gamma], [plain.temperature], {"marker": "o", "color": drawing.SKY, **edge}),
        "best T and γ": (
            [both.gamma],
            [both.temperature],
            {"marker": "*", "color": drawing.VERMILION, "markersize": 10, **edge},
        ),
        "line of komisarenko2024": (*np.array(found.line, dtype=float).reshape(-1, 2).T, dash),
    }
    return {name: ax.plot(gamma, temperature, **look)[0] for name, (gamma, temperature, look) in looks.items()}
