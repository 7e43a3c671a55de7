"""The figures of komisarenko2024: two classes (1 to 3), three classes (4 to 7), and trained networks (8)."""

from reproduction.figures.komisarenko2024.binary import fig1, fig2, fig3
from reproduction.figures.komisarenko2024.networks import fig8
from reproduction.figures.komisarenko2024.simplex import fig4, fig5, fig6, fig7

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8"]
