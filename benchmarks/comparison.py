"""The tables of docs/comparison.md: who has what, and how long it takes, between the markers of the page.

    python benchmarks/comparison.py            # writes them
    python benchmarks/comparison.py --check    # says whether they are up to date

Features come from benchmarks/features.py, speeds from the JSON files of benchmarks/results.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import page
from features import FEATURES, LIBRARIES, RELEASED

PAGE = page.ROOT / "docs" / "comparison.md"
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
    rows = [row for row in page.ratios(found) if row.against.startswith(PEERS)]
    lines = ["| what | size | library | ours | theirs | ours / theirs |", "|---|---|---|---:|---:|---:|"]
    for row in sorted(rows, key=lambda row: [row.against.startswith(peer) for peer in PEERS].index(True)):
        cells = [row.what, row.size, row.against, page.times(row.ours), page.times(row.theirs), page.number(row.value)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def blocks(found: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """What goes between the markers, by the marker's name."""
    used = {name: found[name] for name in ("metrics", "calibrators")}
    versions = ", ".join(f"{name} {version}" for name, version in VERSIONS.items() if name != "focalcal")
    return {
        "versions": [f"Versions looked at: {versions}."],
        "features": feature_table(),
        "speed": [*speed_table(found), "", *page.dates(used)],
    }


def filled(text: str, found: dict[str, dict[str, Any]]) -> str:
    """The page with its tables made anew."""
    for name, lines in blocks(found).items():
        block = "\n".join([f"<!-- {name} -->", *lines, f"<!-- end of {name} -->"])
        text, times = re.subn(
            rf"<!-- {name} -->.*?<!-- end of {name} -->", lambda _, block=block: block, text, flags=re.S
        )
        if times != 1:
            raise SystemExit(f"docs/comparison.md: the markers of {name} must be there once; found {times}.")
    return text


def main() -> None:
    text = PAGE.read_text()
    new = filled(text, page.read())
    if "--check" in sys.argv[1:]:
        sys.exit(0 if text == new else "docs/comparison.md is not what benchmarks/comparison.py makes.")
    PAGE.write_text(new)
    print(f"Written to {PAGE.relative_to(page.ROOT)}")


if __name__ == "__main__":
    main()
