"""Drawing a reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from focalcal import drawing

# An array (B,), one number for each bin that holds a row.
Array = np.ndarray[Any, Any]

# The share of the given axes that the histogram under the diagram takes, and the gap between both.
_UNDER, _BETWEEN = 0.2, 0.04


@dataclass(frozen=True)
class Bars:
    """What a reliability diagram shows of each bin; bins without rows are left out.

    `low`, `high` are the ends of the accuracy's band; `chance_low`, `chance_high` lie around the accuracy that a
    perfectly calibrated model would show. `share` is that of all rows.
    """

    lower: Array
    upper: Array
    share: Array
    confidence: Array
    accuracy: Array
    low: Array
    high: Array
    chance_low: Array | None = None
    chance_high: Array | None = None


def draw_reliability(
    bars: Bars, *, histogram: Bars | None = None, level: float = 0.95, title: str = "", ax: Any = None
) -> Any:
    """Accuracy of each bin with its band, the gap to its mean confidence, what chance would do; returns the axes.

    The shares of `histogram`, where given, are shown under the diagram, in room taken from `ax`.

    >>> lower, upper, share, confidence, accuracy, low, high = np.array([[0.8], [1], [1], [0.9], [0.7], [0.5], [0.8]])
    >>> bars = Bars(lower, upper, share, confidence, accuracy, low, high)
    >>> draw_reliability(bars, title="two rows").get_title()
    'two rows'
    """
    ours, ax = ax is None, drawing.axes_or_new(ax, height=3.6 if histogram is None else 4.2)
    handles = draw_on(ax, bars, histogram=histogram, level=level, title=title)
    drawing.legend(ax, list(handles.values()), list(handles), under=ours)
    return ax


def draw_on(ax: Any, bars: Bars, *, histogram: Bars | None, level: float, title: str) -> dict[str, Any]:
    """The same without a legend; returns what a legend explains."""
    handles = _draw_bins(ax, bars, level)
    if histogram is not None:
        _draw_histogram(_under(ax), histogram)
    drawing.style(ax, title=title, ylabel="accuracy", xlabel="" if histogram else "confidence")
    return handles


def _draw_bins(ax: Any, bars: Bars, level: float) -> dict[str, Any]:
    width = bars.upper - bars.lower
    handles = {
        "accuracy": ax.bar(bars.lower, bars.accuracy, width, align="edge", color=drawing.PALE_BLUE, edgecolor="white"),
        "gap to confidence": ax.bar(
            bars.lower,
            bars.confidence - bars.accuracy,
            width,
            bottom=bars.accuracy,
            align="edge",
            fill=False,
            edgecolor=drawing.VERMILION,
            linewidth=0.5,
            hatch="/////",
        ),
    }
    ax.plot([0, 1], [0, 1], color=drawing.GREY, linestyle="--", linewidth=1)
    if bars.chance_low is not None and bars.chance_high is not None:
        handles[f"{100 * level:.3g}% of perfect models"] = _draw_chance(ax, bars, bars.chance_low, bars.chance_high)
    handles[f"{100 * level:.3g}% band"] = _draw_bands(ax, bars)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return handles


def measured_title(error: float, accuracy: float, mean_confidence: float, *, name: str = "ECE") -> str:
    """The numbers over a diagram.

    >>> print(measured_title(0.043, 0.731, 0.774))
    ECE 4.3%
    accuracy 73.1%, mean confidence 77.4%
    """
    return f"{name} {error:.1%}\naccuracy {accuracy:.1%}, mean confidence {mean_confidence:.1%}"


def _draw_histogram(ax: Any, bars: Bars) -> None:
    ax.bar(bars.lower, bars.share, bars.upper - bars.lower, align="edge", color=drawing.GREY, edgecolor="white")
    ax.set_xlim(0, 1)
    drawing.percent(ax.yaxis, most=2)
    drawing.style(ax, xlabel="confidence", ylabel="rows")


def _draw_chance(ax: Any, bars: Bars, low: Array, high: Array) -> Any:
    # A step for each bin, with a hole after it: bins need not be neighbours.
    hole = np.full_like(bars.lower, np.nan)
    place = np.stack([bars.lower, bars.upper, bars.upper], 1).ravel()
    ends = (np.stack([end, end, hole], 1).ravel() for end in (low, high))
    return ax.fill_between(place, *ends, color=drawing.BLACK, alpha=0.18, linewidth=0, zorder=2.5)


def _draw_bands(ax: Any, bars: Bars) -> Any:
    # Lists: of arrays of one entry, matplotlib 3.8 with numpy 1.26 makes a number, of which numpy warns.
    reach = [(bars.accuracy - bars.low).clip(0).tolist(), (bars.high - bars.accuracy).clip(0).tolist()]
    look = {"color": drawing.BLUE, "markersize": 2.5, "elinewidth": 1, "capsize": 1.5}
    return ax.errorbar(bars.confidence, bars.accuracy, yerr=reach, fmt="o", zorder=3, clip_on=False, **look)


class _Upper:
    """Puts axes into the upper part of their place, and keeps the axes under them.

    Layouts go on setting the place itself, so this works in any figure, with any layout and aspect.
    """

    def __init__(self, ax: Any, under: Any) -> None:
        self.ax, self.under = ax, under

    def get_subplotspec(self) -> Any:
        # A tight layout asks the locator for the place that it may move.
        return self.ax.get_subplotspec()

    def __call__(self, ax: Any, renderer: Any) -> Any:
        from matplotlib.transforms import Bbox

        whole = ax.get_position(original=True)
        return Bbox.from_extents(whole.x0, whole.y0 + (_UNDER + _BETWEEN) * whole.height, whole.x1, whole.y1)


def _under(ax: Any) -> Any:
    """The axes for the histogram, of the same width; those that are there already when drawn again."""
    found = ax.get_axes_locator()
    if isinstance(found, _Upper):
        return found.under
    upper = 1 - _UNDER - _BETWEEN
    under = ax.inset_axes([0, -(_UNDER + _BETWEEN) / upper, 1, _UNDER / upper])
    ax.set_axes_locator(_Upper(ax, under))
    ax.tick_params(labelbottom=False)
    return under
