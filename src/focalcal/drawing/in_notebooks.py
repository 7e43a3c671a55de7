"""Figures and axes that show themselves in a notebook, although pyplot does not know them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from focalcal import drawing


class ShownFigure(Figure):
    """A figure that a notebook shows where it is the value of a cell, and whose axes it shows, too.

    >>> ShownFigure(figsize=(1, 1))._repr_png_()[1:4]
    b'PNG'
    """

    def _repr_png_(self) -> bytes:
        return drawing.bytes_of(self, "png")

    def add_subplot(self, *args: Any, **options: Any) -> Any:
        """Axes of the figure that show it."""
        own = options if "projection" in options or "polar" in options else {"axes_class": ShownAxes, **options}
        return super().add_subplot(*args, **own)


class ShownAxes(Axes):
    """Axes that a notebook shows with their whole figure.

    >>> ShownFigure(figsize=(1, 1)).subplots()._repr_png_()[1:4]
    b'PNG'
    """

    def _repr_png_(self) -> bytes:
        return drawing.bytes_of(self.figure, "png")


class ShownArray(np.ndarray[Any, Any]):
    """An array of axes of one figure, which a notebook shows.

    >>> ShownFigure(figsize=(2, 1)).subplots(1, 2).view(ShownArray)._repr_png_()[1:4]
    b'PNG'
    """

    def _repr_png_(self) -> bytes | None:
        return drawing.bytes_of(self.flat[0].figure, "png") if self.size and hasattr(self.flat[0], "figure") else None
