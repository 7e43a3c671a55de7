"""The figures of charoenphakdee2021: the minimiser of focal risk (1, 2), a line of known truth (3), networks (4-6).

`record.py` trains what Figs. 3, 4 and 6 show, and `recorded.json` keeps its numbers.
"""

from focalcal.figures.charoenphakdee2021 import line, networks, theory

__all__ = ["line", "networks", "theory"]
