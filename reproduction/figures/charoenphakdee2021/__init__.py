"""The figures of charoenphakdee2021: the minimiser of focal risk (1, 2), a line of known truth (3), networks (4-6).

`record.py` trains what Figs. 3, 4 and 6 show, and `recorded.json` keeps its numbers.
"""

from reproduction.figures.charoenphakdee2021.line import fig3
from reproduction.figures.charoenphakdee2021.networks import fig4, fig5, fig6
from reproduction.figures.charoenphakdee2021.theory import fig1, fig2

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6"]
