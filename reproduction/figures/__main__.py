"""`python -m reproduction.figures [FOLDER] [NAMES...]`: draw the papers' figures, or list them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from focalcal.errors import FocalCalError
from reproduction.figures import all_figures, save_figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; returns 2 if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduction.figures",
        description="Draw our own versions of the papers' figures.",
        epilog="Example: python -m reproduction.figures figures komisarenko2024 mukhoti2020-fig4 --format pdf",
    )
    parser.add_argument("folder", nargs="?", default="figures", metavar="FOLDER", help="where the files go")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a figure such as komisarenko2024-fig3, or a paper")
    parser.add_argument(
        "--format", action="append", metavar="FORMAT", help="svg (default), png or pdf; can be repeated"
    )
    parser.add_argument("--list", action="store_true", help="show what there is, and draw nothing")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(f"{name:24} {(draw.__doc__ or '').strip()}" for name, draw in all_figures().items()))
        return 0
    try:
        for path in save_figures(given.folder, given.names, given.format or ["svg"]):
            print(path)
    except FocalCalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
