"""`python -m reproduction.figures [FOLDER] [NAMES...]`: draw the papers' figures, list them, or write their page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from focalcal.atomic import write_atomically
from focalcal.errors import FocalCalError
from reproduction.figures import all_figures, not_drawn, save_figures
from reproduction.figures.page import page


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; 2 if they are wrong, 1 if a file could not be written."""
    given = _parser().parse_args(arguments)
    try:
        if given.list:
            _list()
        elif given.page is None or given.folder is not None:
            formats = given.format or ["svg"]
            for path in save_figures(given.folder or "figures", given.names or None, formats, progress=_progress):
                print(path)
        if given.page is not None:
            write_atomically(given.page, page().encode())
            print(given.page)
    except FocalCalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction.figures",
        description="Draw our own versions of the papers' figures.",
        epilog="Example: python -m reproduction.figures figures komisarenko2024 mukhoti2020-fig4 --format pdf",
    )
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="where files go (default: figures)")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a figure such as komisarenko2024-fig3, or a paper; all without one"
    )
    parser.add_argument(
        "--format", action="append", metavar="FORMAT", help="svg (default), png or pdf; can be repeated"
    )
    parser.add_argument("--list", action="store_true", help="show what there is, and draw nothing")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the gallery page, and no figures without FOLDER"
    )
    return parser


def _list() -> None:
    for each in all_figures():
        print(f"{each.name:24} {each.source:8}  {each.title}")
    for paper, number, reason in not_drawn():
        print(f"{f'{paper}-fig{number}':24} {'not drawn':8} {reason}")


def _progress(name: str) -> None:
    """What is being drawn, if somebody is watching."""
    if sys.stderr.isatty():
        print(f"drawing {name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
