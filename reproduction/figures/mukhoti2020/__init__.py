"""Figures of mukhoti2020, "Calibrating deep neural networks using focal loss"."""

from reproduction.figures.catalogue import NOT_DRAWN
from reproduction.figures.mukhoti2020.exact import fig6
from reproduction.figures.mukhoti2020.gradients import fig4
from reproduction.figures.mukhoti2020.linear import fig7, fig8
from reproduction.figures.mukhoti2020.training import fig1, fig2, fig3, fig10
from reproduction.figures.mukhoti2020.translation import fig5

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig10"]

NOT_DRAWN["mukhoti2020", "9"] = (
    "It shows test images of CIFAR-10 with what four networks say about them. The images come without a licence to "
    "pass them on, and what is recorded of runs are sums over rows, not single ones."
)
