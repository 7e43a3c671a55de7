"""The reliability diagram of some bins."""

from __future__ import annotations

from typing import Any

from focalcal.core.binning import Bins
from focalcal.errors import MissingExtraError
from focalcal.metrics.uncertainty import accuracy_bands

# Colour-blind safe (Okabe and Ito): blue for what is, vermilion for what is claimed.
_ACCURACY, _GAP = "#0072B2", "#D55E00"


def draw_reliability(bins: Bins, *, title: str = "", ax: Any = None) -> Any:
    """Accuracy of each bin with its 95 % band, the gap to its mean confidence, and its rows; returns the axes.

    >>> import torch
    >>> from focalcal.core.binning import bin_predictions
    >>> ax = draw_reliability(bin_predictions(torch.tensor([0.9, 0.8]), torch.tensor([1, 0])), title="two rows")
    >>> ax.get_title()
    'two rows'
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("Diagrams need matplotlib: pip install 'focalcal[plots]'.") from error
    if ax is None:
        ax = Figure(figsize=(4.5, 4.5), layout="constrained").subplots()
    held = bins.count > 0
    left, width = bins.edges[:-1][held].numpy(), (bins.edges[1:] - bins.edges[:-1])[held].numpy()
    accuracy, confidence, gap = (getattr(bins, name)[held].numpy() for name in ("accuracy", "confidence", "gap"))
    low, high = (band[held].numpy() for band in accuracy_bands(bins))
    ax.bar(left, accuracy, width, align="edge", color=_ACCURACY, edgecolor="white", label="accuracy")
    ax.bar(left, gap, width, bottom=accuracy, align="edge", fill=False, edgecolor=_GAP, hatch="///", label="gap")
    band = [(accuracy - low).clip(0), (high - accuracy).clip(0)]
    ax.errorbar(confidence, accuracy, yerr=band, fmt="none", ecolor="black", elinewidth=1, capsize=2, label="95 % band")
    ax.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
    share = bins.weight[held].numpy()
    for x, bar, part in zip(left + width / 2, accuracy, share, strict=True):
        text = f"{part:.0%}" if part >= 0.005 else "<1%"
        ax.text(x, 0.01, text, ha="center", fontsize=6, color="white" if bar > 0.05 else "black")
    ax.set(
        xlim=(0, 1), ylim=(0, 1), xlabel="confidence (at the foot: share of rows)", ylabel="accuracy", aspect="equal"
    )
    ax.set_title(title, fontsize="medium")
    ax.legend(loc="upper left")
    return ax
