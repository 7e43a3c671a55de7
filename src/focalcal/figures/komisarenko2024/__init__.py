"""The figures of komisarenko2024: two classes (1 to 3), three classes (4 to 7), and trained networks (8)."""

from focalcal.figures.komisarenko2024 import binary, networks, simplex

__all__ = ["binary", "networks", "simplex"]
