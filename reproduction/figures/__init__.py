"""Our own versions of the papers' figures, drawn from formulas or from recorded results.

`python -m reproduction.figures FOLDER` writes them all. A figure is a function that takes nothing and is named after its
number, in the module of its paper: `reproduction.figures.komisarenko2024.binary.fig3`.

>>> [each.name for each in all_figures() if each.paper == "komisarenko2024"][2]
'komisarenko2024-fig3'
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path

from focalcal.atomic import write_atomically
from focalcal.drawing import bytes_of, formats_of, require_matplotlib
from focalcal.errors import InputError
from reproduction.figures.catalogue import FIGURES, NOT_DRAWN, PaperFigure

__all__ = ["PAPERS", "PaperFigure", "all_figures", "find_figures", "not_drawn", "save_figures"]

PAPERS = ("mukhoti2020", "ghosh2022", "charoenphakdee2021", "komisarenko2024")
"""The papers whose figures are drawn, in the order of the pages."""


def all_figures() -> list[PaperFigure]:
    """Every figure that is drawn, by paper and number.

    >>> all_figures()[0].number
    '1'
    """
    _load()
    return [FIGURES[key] for key in sorted(FIGURES, key=_place)]


def not_drawn() -> list[tuple[str, str, str]]:
    """Paper, number and reason of each figure that is not drawn.

    >>> not_drawn()[0][:2]
    ('mukhoti2020', '9')
    """
    _load()
    return [(*key, NOT_DRAWN[key]) for key in sorted(NOT_DRAWN, key=_place)]


def find_figures(names: Iterable[str] | None = None) -> list[PaperFigure]:
    """The figures of some names, each a figure's (`komisarenko2024-fig3`) or a paper's (all of its); all without names.

    >>> [each.name for each in find_figures(["komisarenko2024-fig8"])]
    ['komisarenko2024-fig8']
    """
    figures = all_figures()
    if names is None:
        return figures
    wanted = {names} if isinstance(names, str) else set(names)
    known = {*PAPERS, *(each.name for each in figures)}
    for name in sorted(wanted - known):
        raise InputError(f"names: must be of figures or papers; got {name!r}. {_instead(name, known)}")
    return [each for each in figures if not wanted.isdisjoint((each.paper, each.name))]


def save_figures(
    folder: str | Path,
    names: Iterable[str] | None = None,
    formats: str | Sequence[str] = ("svg",),
    *,
    progress: Callable[[str], None] | None = None,
) -> list[Path]:
    """Write figures into a folder, which is made if it is not there; returns the files.

    where `names` are of figures or papers (all figures without them), `formats` are among svg, png and pdf, and
    `progress` is given the name of each figure before it is drawn. Nothing is written unless everything could be drawn,
    the same figure gives the same bytes, and files of the same name are replaced.

    >>> import tempfile
    >>> [path.name for path in save_figures(tempfile.mkdtemp(), ["charoenphakdee2021-fig1"])]
    ['charoenphakdee2021-fig1.svg']
    """
    wanted = formats_of(formats)
    figures = find_figures(names)
    require_matplotlib()
    place, drawn = Path(folder), []
    for each in figures:
        if progress is not None:
            progress(each.name)
        figure = each.draw()
        drawn += [(place / f"{each.name}.{form}", bytes_of(figure, form)) for form in wanted]
    place.mkdir(parents=True, exist_ok=True)
    for path, content in drawn:
        write_atomically(path, content)
    return [path for path, _ in drawn]


def _load() -> None:
    """Have every paper's module tie its functions to their figures."""
    for paper in PAPERS:
        import_module(f"reproduction.figures.{paper}")


def _place(key: tuple[str, str]) -> tuple[int, int, str]:
    """Papers in their order, numbers as numbers."""
    paper, number = key
    digits = re.match(r"\d*", number)
    return PAPERS.index(paper), int(digits.group() or 0) if digits else 0, number


def _instead(name: str, known: set[str]) -> str:
    """What the caller may have meant, or why there is no such figure."""
    paper, _, number = name.rpartition("-fig")
    if (paper, number) in NOT_DRAWN:
        return f"It is not drawn: {NOT_DRAWN[paper, number]}"
    wanted = name.lower()
    alike = sorted(each for each in known if wanted and wanted in each)[:3]
    alike = alike or difflib.get_close_matches(wanted, sorted(known), n=3, cutoff=0.5)
    return f"Nearest: {', '.join(alike)}." if alike else "`python -m reproduction.figures --list` shows all of them."
