"""Figures of mukhoti2020, "Calibrating deep neural networks using focal loss"."""

from focalcal.figures.mukhoti2020.answers import fig9
from focalcal.figures.mukhoti2020.exact import fig6
from focalcal.figures.mukhoti2020.gradients import fig4
from focalcal.figures.mukhoti2020.linear import fig7, fig8
from focalcal.figures.mukhoti2020.training import fig1, fig2, fig3, fig10
from focalcal.figures.mukhoti2020.translation import fig5

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10"]
