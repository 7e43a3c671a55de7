"""The tables of docs/comparison.md: who has what, and how long it takes.

Features come from benchmarks/features.py, speeds from the JSON files of benchmarks/results.
"""

from __future__ import annotations

from typing import Any

import speed
from features import FEATURES, LIBRARIES, RELEASED

# The versions in which features.py was checked.
VERSIONS = {
    "focalcal": "this version",
    "torchmetrics": "1.9.0",
    "netcal": "1.4.0",
    "torch-uncertainty": "0.13.0",
    "probmetrics": "1.3.0",
    "scikit-learn": "1.9.1",
}
PEERS = (
    "torchmetrics",
    "netcal",
    "probmetrics",
    "scikit-learn",
    "relplot",
    "uncertainty-calibration",
    "L-BFGS as published",
)


def feature_table() -> list[str]:
    """One row a feature."""
    lines = [f"| | {' | '.join([*LIBRARIES, RELEASED])} |", "|---|" + "---|" * (len(LIBRARIES) + 1)]
    for feature, (cells, released) in FEATURES.items():
        lines.append(f"| {feature} | {' | '.join([*(cell.words for cell in cells), released])} |")
    return lines


def speed_table(found: dict[str, dict[str, Any]]) -> list[str]:
    """Every ratio to a library."""
    rows = [row for row in speed.ratios(found) if row.against.startswith(PEERS)]
    lines = ["| what | size | library | ours | theirs | ours / theirs |", "|---|---|---|---:|---:|---:|"]
    for row in sorted(rows, key=lambda row: [row.against.startswith(peer) for peer in PEERS].index(True)):
        cells = [
            row.what,
            row.size,
            row.against,
            speed.times(row.ours),
            speed.times(row.theirs),
            speed.number(row.value),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def blocks(found: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The tables of the page by the names of their marks."""
    used = {name: found[name] for name in ("metrics", "calibrators")}
    versions = ", ".join(f"{name} {version}" for name, version in VERSIONS.items() if name != "focalcal")
    return {
        "versions": [f"Versions looked at: {versions}."],
        "features": feature_table(),
        "speed": [*speed_table(found), "", *speed.dates(used)],
    }
