"""The shapes of the losses, and training with CalFocal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from focalcal import drawing as figures
from focalcal.losses import CalFocalLoss, focal_loss
from reproduction.figures.catalogue import figure
from reproduction.figures.ghosh2022.bins import LITTLE_DIFFERS, LOSS_LOOKS, confidences
from reproduction.figures.recorded import lab_results
from reproduction.labels import LITTLE
from reproduction.pages.dynamics.drawing import Line, draw_panel, line_of
from reproduction.result_files import Evidence

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


@figure(
    "Shapes of the losses, and training with CalFocal",
    caption=(
        "(a) Cross-entropy (CE), focal loss (FL-γ), inverse focal loss (InvFL-γ) and CalFocal (CF-λ) against the "
        "probability p of the true class; CalFocal in a validation bin with accuracy 0.8, where it falls to nearly 0 "
        "so that p does not grow far beyond. (b) Test error and (c) test ECE in bins of equal mass, by epoch. (d) "
        "Training confidence (drawn through), validation confidence (dashed, with marks) and validation accuracy "
        "(dotted) of the lowest of 15 bins; the legend below is that of (d). CalFocal brings both confidences nearer "
        "to the accuracy than cross-entropy."
    ),
    alt=(
        "Four panels: seven losses against p, of which CalFocal's fall steeply near 0.8; test error and test ECE by "
        "epoch for cross-entropy, FLSD-53 and CalFocal; and confidences and accuracy of the lowest bin by epoch"
    ),
    differs=(
        f"Panels (b) to (d): {LITTLE_DIFFERS}. Means over three seeds with a band from the lowest to the highest. "
        "CalFocal's γ is one for each bin (Eq. 3), in (a) one for each sample (Eq. 2)."
    ),
    source="recorded",
)
def fig3() -> Any:
    """Losses against p; error, ECE and the lowest bin by epoch."""
    made = figures.new_figure(2 * figures.COLUMN, 5.4)
    shapes, error, ece, lowest = made.subplots(2, 2).flat
    _draw_shapes(shapes)
    runs = _draw_runs(error, "(b) test error", "error", "test_error")
    _draw_runs(ece, "(c) test ECE, equal mass", "ECE", "test_ada_ece")
    figures.legend(error, list(runs.values()), list(runs), loc="lower left")
    handles: dict[str, Any] = {}
    for method, evidence in _methods():
        if method != "flsd-53":
            handles |= draw_panel(lowest, "confidence", confidences(method, 0.0, accuracy=True), evidence)
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


def _methods() -> list[tuple[str, Evidence]]:
    """The losses of the other panels, and where their runs are."""
    return [(method, lab_results()[LITTLE]) for method in ("ce", "flsd-53", "calfocal")]


def _draw_runs(ax: Any, title: str, label: str, name: str) -> dict[str, Any]:
    handles: dict[str, Any] = {}
    for method, evidence in _methods():
        handles |= draw_panel(ax, label, _line(method, name), evidence)
    figures.percent(ax.yaxis, 5)
    figures.style(ax, title=title, xlabel="epochs trained", ylabel=label)
    return handles


def _line(method: str, name: str) -> Iterable[Line]:
    words = {"ce": "CE", "flsd-53": "FLSD-53", "calfocal": "CalFocal, λ = 10", "calfocal-100": "CalFocal, λ = 100"}
    return [line_of(method, name, words[method], LOSS_LOOKS[method])]
