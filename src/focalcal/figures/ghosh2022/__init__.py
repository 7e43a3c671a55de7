"""Figures of ghosh2022, "AdaFocal: calibration-aware adaptive focal loss"."""

from focalcal.figures.ghosh2022.bins import fig1, fig2, fig5
from focalcal.figures.ghosh2022.foreign import fig6
from focalcal.figures.ghosh2022.losses import fig3
from focalcal.figures.ghosh2022.recipes import fig4

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6"]
