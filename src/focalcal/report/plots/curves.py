"""Curves: what error remains among the surest rows, and how AdaFocal's gammas went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from focalcal import drawing
from focalcal.core.checks import ArrayLike, require
from focalcal.core.score_kinds import Kind
from focalcal.losses import AdaFocalLoss
from focalcal.metrics import RiskCoverage, read, risk_coverage_curve
from focalcal.metrics.prediction_set import PredictionSet
from focalcal.metrics.read_scores import PAIRS
from focalcal.metrics.selective_prediction import aurc
from focalcal.report.contents import Curve, Dynamics

Curved: TypeAlias = "ArrayLike | PredictionSet | RiskCoverage | Curve"

_LINES = ("-", "--", ":", "-.")


def risk_coverage(
    scores: Curved | Mapping[str, Curved],
    labels: ArrayLike | None = None,
    *,
    kind: Kind = "logits",
    sample_weight: ArrayLike | None = None,
    title: str = "",
    ax: Any = None,
) -> Any:
    """The error rate among the surest rows, for every share of rows that is kept.

    where `scores` are those of one model, or of several by their names: scores as in `evaluate`, rows that
    `metrics.read` gave, a curve that `metrics.risk_coverage_curve` gave, or that of a report. The area under each
    curve (AURC) stands beside its name where it can be known.

    >>> ax = risk_coverage({"a model": [[3.0, 0.0], [2.0, 0.0]]}, [0, 1])
    >>> ax.figure.legends[0].get_texts()[0].get_text()
    'a model: AURC 0.250'
    """
    models = scores if isinstance(scores, Mapping) else {"": scores}
    require(len(models) > 0, "scores", "must name at least one model", "none")
    ours, ax = ax is None, drawing.axes_or_new(ax, height=2.7)
    names, lines, highest = [], [], 0.0
    for place, (name, one) in enumerate(models.items()):
        curve, area = _curve(one, labels, kind, sample_weight)
        style = {"color": drawing.PALETTE[place % 6], "linestyle": _LINES[place // 6 % 4]}
        # Temperatures hardly change the order of rows: a curve under another is seen by its width.
        lines += ax.plot(curve.coverage, curve.risk, **style, linewidth=max(1.0, 2.8 - 0.7 * place))
        names.append(": ".join(part for part in (drawing.shown(name, 40) if name else "", area) if part))
        # Among the first few rows the rate jumps between 0 and 1; what matters starts after them.
        settled = np.asarray(curve.risk)[np.asarray(curve.coverage) >= 0.05]
        highest = max(highest, float(settled.max()))
    if any(names):
        drawing.legend(ax, lines, names, under=ours, columns=1)
    drawing.percent(ax.xaxis)
    drawing.percent(ax.yaxis)
    ax.set(xlim=(0, 1), ylim=(0, min(1.0, 1.25 * highest) or 0.01))
    ax.grid(color=drawing.GRID)
    drawing.style(ax, title=title, xlabel="rows kept, surest first (coverage)", ylabel="error among them (risk)")
    return ax


def _curve(one: Curved, labels: Any, kind: Kind, sample_weight: Any) -> tuple[RiskCoverage | Curve, str]:
    if isinstance(one, (RiskCoverage, Curve)):
        return one, ""
    if not isinstance(one, PredictionSet):
        require(labels is not None, "labels", "must be given beside scores", None)
        one = read(one, labels, kind=kind, sample_weight=sample_weight, columns=PAIRS)
    return risk_coverage_curve(one), f"AURC {aurc(one):.3f}"


def gamma_dynamics(history: AdaFocalLoss | Mapping[str, Any] | Dynamics, *, title: str = "", ax: Any = None) -> Any:
    """How AdaFocal's gammas went: one line for each validation bin, update by update.

    where `history` is the loss, its `history`, or the `Dynamics` of a report. Above the dotted line it is focal
    loss, below it inverse focal loss.

    >>> gamma_dynamics({"gamma": [[1.0, 1.0], [1.1, 0.9]]}).get_xlabel()
    'update'
    """
    gamma = _gammas(history)
    require(gamma.ndim == 2, "history", "must have gammas (updates, bins)", f"shape {gamma.shape}")
    require(len(gamma) > 0, "history", "must have at least one update", "none", "Call `update` while training.")
    ax = drawing.axes_or_new(ax, height=2.6)
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm

    updates, bins = range(1, len(gamma) + 1), gamma.shape[1]
    colours = colormaps["cividis"].resampled(bins)
    norm = BoundaryNorm(np.arange(bins + 1) + 0.5, bins)
    for b in range(bins):
        ax.plot(updates, gamma[:, b], color=colours(b), linewidth=1.2, marker="o" if len(gamma) == 1 else None)
    ax.axhline(0, color=drawing.GREY, linestyle=":", linewidth=1)
    bar = ax.figure.colorbar(ScalarMappable(norm, colours), ax=ax, ticks=sorted({1, bins}))
    bar.ax.minorticks_off()
    drawing.style(bar.ax, ylabel="bin, from least to most confident")
    ax.xaxis.get_major_locator().set_params(integer=True)
    drawing.style(ax, title=title, xlabel="update", ylabel="γ")
    return ax


def _gammas(history: AdaFocalLoss | Mapping[str, Any] | Dynamics) -> Any:
    if isinstance(history, AdaFocalLoss):
        history = history.history
    if isinstance(history, Mapping):
        require("gamma" in history, "history", "must have gamma", sorted(history))
        return np.asarray(history["gamma"], dtype=float)
    return np.asarray(history.gamma, dtype=float)
