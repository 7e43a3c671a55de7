"""docs/figures.md: every figure with its picture and caption, and those that are not drawn."""

from __future__ import annotations

from reproduction.figures import PAPERS, all_figures, not_drawn
from reproduction.figures.catalogue import PaperFigure

_START = """# The papers' figures

Our own versions of the papers' figures: nothing is copied; `focalcal` draws them itself, from formulas (exact) or from
results that ship with it (recorded). Where a printed number is wrong, the true one is shown and said.

<!-- slow -->
```sh
python -m reproduction.figures FOLDER                                  # all of them, as SVG
python -m reproduction.figures FOLDER komisarenko2024 --format pdf     # those of one paper
python -m reproduction.figures FOLDER komisarenko2024-fig3             # one of them
python -m reproduction.figures --list
```

In Python, a figure is a function that returns a matplotlib figure:

```python
from reproduction.figures import all_figures, save_figures

figure = all_figures()[0].draw()
save_figures("figures", ["komisarenko2024-fig3"], formats=("pdf",))
```

This page and its pictures are written by `python -m reproduction.figures docs/images/figures --page docs/figures.md`.
"""
_SOURCES = {
    "exact": "Exact: computed from formulas.",
    "recorded": "Recorded: drawn from results that ship with focalcal.",
}


def page() -> str:
    """The page as Markdown."""
    return "\n".join([_START, *(_paper(paper) for paper in PAPERS)]).rstrip() + "\n"


def _paper(paper: str) -> str:
    drawn = [_entry(each) for each in all_figures() if each.paper == paper]
    reasons = [f"- Fig. {number}: {reason}" for key, number, reason in not_drawn() if key == paper]
    parts = [f"## {paper}\n", *drawn]
    if reasons:
        parts += ["### Not drawn here\n", "\n".join(reasons) + "\n"]
    return "\n".join(parts)


def _entry(each: PaperFigure) -> str:
    lines = [
        f"### Fig. {each.number}: {each.title}\n",
        f"![{each.alt}](images/figures/{each.name}.svg)\n",
        each.caption,
    ]
    if each.differs:
        lines.append(f"\n**Differs.** {each.differs}")
    return "\n".join([*lines, f"\n{_SOURCES[each.source]} Drawn by {_link(each)}.\n"])


def _link(each: PaperFigure) -> str:
    """The function, and the file that it is in."""
    code = each.draw.__code__
    module = each.draw.__module__
    file = "src/" + module.replace(".", "/") + ("/__init__.py" if code.co_filename.endswith("__init__.py") else ".py")
    return f"[`{module}.{each.draw.__name__}`](../{file})"
