"""What the papers' figures share: curves that differ in colour and in style, so that they can be told apart in grey."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from focalcal import drawing as figures

STYLES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)), (0, (7, 1.5)))
MARKERS = "osD^vPX"
WIDE = 2 * figures.COLUMN


def panels(columns: int, *, rows: int = 1, width: float = WIDE, height: float = 2.4, **sharing: Any) -> tuple[Any, Any]:
    """A new figure of this size in inches, and its axes (rows, columns); those of a single row without their row."""
    figure = figures.new_figure(width, height)
    axes = figure.subplots(rows, columns, squeeze=False, **sharing)
    return figure, axes if rows > 1 else axes[0]


def curves(ax: Any, x: Any, values: Iterable[Any], **look: Any) -> list[Any]:
    """Lines over the same x, each with a colour and a style of its own; returns them for the legend."""
    looks = zip(figures.PALETTE, STYLES, strict=True)
    return [
        ax.plot(x, each, color=colour, linestyle=style, **{"linewidth": 1.2, **look})[0]
        for each, (colour, style) in zip(values, looks, strict=False)
    ]


def diagonal(ax: Any, ends: Sequence[float] = (0, 1)) -> None:
    """Where both axes are equal."""
    ax.plot(ends, ends, color=figures.GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=0.5)


def gammas(values: Iterable[float]) -> list[str]:
    """Names of gammas in a legend.

    >>> gammas([0.5, 3.0])
    ['γ = 0.5', 'γ = 3']
    """
    return [f"γ = {value:g}".replace("-", "\N{MINUS SIGN}") for value in values]
