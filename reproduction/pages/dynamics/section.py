"""A topic of the page as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reproduction.labels import TITLES
from reproduction.pages.dynamics.drawing import Drawing
from reproduction.result_files import Evidence

_MARKS = (
    "Lines are means over seeds, bands reach from the lowest to the highest seed, dotted lines mark drops of the "
    "learning rate."
)


@dataclass(frozen=True)
class Section:
    """A topic: its heading, where the papers have it, what is told of each recipe, and its figures."""

    heading: str
    source: str
    tell: Callable[[Evidence], Iterator[str]]
    drawings: tuple[Drawing, ...] = ()

    def parts(self, there: Sequence[Evidence]) -> Iterator[str]:
        """Its paragraphs, if there is something to tell."""
        told = {each.name: lines for each in there if (lines := list(self.tell(each)))}
        if not told:
            return
        yield f"## {self.heading}"
        yield self.source
        for name, lines in told.items():
            yield f"### {TITLES[name]}"
            yield from lines
        for drawing in self.drawings:
            yield from _shown(drawing, [each for each in there if drawing.has(each)])


def _shown(drawing: Drawing, there: Sequence[Evidence]) -> Iterator[str]:
    """The images of the recipes beside each other, and what they show."""
    if there:
        yield "\n".join(f"![{drawing.alt}: {TITLES[each.name]}](images/{drawing.of(each)}.svg)" for each in there)
        yield f"{drawing.caption} {_MARKS}"
