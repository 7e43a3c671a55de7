"""Which figures of the papers are drawn here: one function a figure, tied to it by a decorator.

A paper's functions are in the module (or package) of its key, and are named after the figure: `fig4` of
`reproduction.figures.mukhoti2020` draws its Fig. 4. Each takes nothing and returns a matplotlib figure, the same one at
every call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

# "exact": computed from formulas alone. "recorded": drawn from files of results that ship with focalcal.
Source: TypeAlias = Literal["exact", "recorded"]
Draw: TypeAlias = Callable[[], Any]

FIGURES: dict[tuple[str, str], PaperFigure] = {}
"""Every figure that is drawn here, by its paper and number."""
NOT_DRAWN: dict[tuple[str, str], str] = {}
"""Why a figure cannot be drawn here, by its paper and number."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper, and our version of it.

    `title` names it, `caption` says what ours shows and what to see in it, `differs` what is not as in the paper (empty
    if nothing but the look), and `alt` describes it to who cannot see it.

    >>> drawn = PaperFigure("mukhoti2020", "4", "title", "caption", "alt", "", "exact", draw=lambda: None)
    >>> drawn.name
    'mukhoti2020-fig4'
    """

    paper: str
    number: str
    title: str
    caption: str
    alt: str
    differs: str
    source: Source
    draw: Draw

    @property
    def name(self) -> str:
        """Its name on the command line and as a file, such as `mukhoti2020-fig4`."""
        return f"{self.paper}-fig{self.number}"


def figure(title: str, *, caption: str, alt: str, source: Source, differs: str = "") -> Callable[[Draw], Draw]:
    """Tie a function to the figure that its module and name say.

    >>> callable(figure("Gradients", caption="How they shrink.", alt="A falling curve.", source="exact"))  # a decorator
    True
    """

    def tie(draw: Draw) -> Draw:
        paper, number = draw.__module__.split(".")[2], draw.__name__.removeprefix("fig")
        assert (paper, number) not in FIGURES, (paper, number)
        FIGURES[paper, number] = PaperFigure(paper, number, title, caption, alt, differs, source, draw)
        return draw

    return tie
