"""Our own versions of the papers' figures, drawn from formulas or from recorded results.

`python -m reproduction.figures FOLDER` writes them all. A figure is a function without arguments in the module of its
paper, named after its number: `reproduction.figures.komisarenko2024.fig3`. docs/figures.md shows and explains them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from focalcal.atomic import write_atomically
from focalcal.drawing import bytes_of, formats_of
from focalcal.errors import InputError

__all__ = ["PAPERS", "all_figures", "find_figures", "save_figures"]

PAPERS = ("mukhoti2020", "ghosh2022", "charoenphakdee2021", "komisarenko2024")
"""The papers whose figures are drawn, in the order of the page."""


def all_figures() -> dict[str, Callable[[], Any]]:
    """What draws each figure, by its name, in the order of papers and numbers.

    >>> list(all_figures())[:2]
    ['mukhoti2020-fig1', 'mukhoti2020-fig2']
    """
    found: dict[str, Callable[[], Any]] = {}
    for paper in PAPERS:
        module = import_module(f"reproduction.figures.{paper}")
        numbers = sorted(int(name[3:]) for name in vars(module) if re.fullmatch(r"fig\d+", name))
        found |= {f"{paper}-fig{number}": getattr(module, f"fig{number}") for number in numbers}
    return found


def find_figures(names: Iterable[str] = ()) -> dict[str, Callable[[], Any]]:
    """The figures of some names, each a figure's (`komisarenko2024-fig3`) or a paper's (all of its); all without names.

    >>> list(find_figures(["komisarenko2024-fig8"]))
    ['komisarenko2024-fig8']
    """
    figures, wanted = all_figures(), set(names)
    if unknown := sorted(wanted - {*PAPERS, *figures}):
        raise InputError(f"names: must be names of figures or papers; got {unknown[0]!r}. --list shows all of them.")
    return {name: draw for name, draw in figures.items() if not wanted or wanted & {name, name.partition("-")[0]}}


def save_figures(folder: str | Path, names: Iterable[str] = (), formats: Sequence[str] = ("svg",)) -> list[Path]:
    """Write figures into a folder, which is made if it is not there; returns the files.

    `names` are of figures or papers, and `formats` are among svg, png and pdf. The same figure gives the same bytes.

    >>> import tempfile
    >>> [path.name for path in save_figures(tempfile.mkdtemp(), ["charoenphakdee2021-fig1"])]
    ['charoenphakdee2021-fig1.svg']
    """
    wanted, place, files = formats_of(formats), Path(folder), []
    for name, draw in find_figures(names).items():
        figure = draw()
        files += [(place / f"{name}.{form}", bytes_of(figure, form)) for form in wanted]
    place.mkdir(parents=True, exist_ok=True)
    for path, content in files:
        write_atomically(path, content)
    return [path for path, _ in files]
