"""Figures for papers and slides: the report's, drawn by matplotlib.

Each function draws into `ax`, or into a new figure, and returns the axes: `axes.figure.savefig("figure.pdf")` writes
them. Each takes scores and labels, or the values that a report was made of (`focalcal.report.contents`).
Needs matplotlib: `pip install focalcal[plots]`.

>>> from focalcal.report import plots
>>> plots.reliability_diagram([[2.0, 0.0], [0.0, 1.0]], [0, 1]).get_ylabel()
'accuracy'
"""

from focalcal.report.plots.bars import compare_versions, confusions, per_class
from focalcal.report.plots.curves import gamma_dynamics, risk_coverage
from focalcal.report.plots.landscape import criterion_landscape
from focalcal.report.plots.reliability import reliability_diagram, reliability_diagrams
from focalcal.report.plots.save import save_figures

__all__ = [
    "compare_versions",
    "confusions",
    "criterion_landscape",
    "gamma_dynamics",
    "per_class",
    "reliability_diagram",
    "reliability_diagrams",
    "risk_coverage",
    "save_figures",
]


def __dir__() -> list[str]:
    return __all__
