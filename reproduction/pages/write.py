"""All pages and figures of docs/results, as bytes by their paths: the same result files give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from focalcal.atomic import write_atomically
from focalcal.drawing import bytes_of
from reproduction.labels import All
from reproduction.pages import (
    after_training,
    claims,
    dynamics,
    human,
    images,
    out_of_distribution,
    start,
    suggest_gamma,
    text,
    translation,
)

PAGES: dict[str, ModuleType] = {
    "README.md": start,
    "images.md": images,
    "text.md": text,
    "translation.md": translation,
    "after_training.md": after_training,
    "out_of_distribution.md": out_of_distribution,
    "human.md": human,
    "suggest_gamma.md": suggest_gamma,
    "dynamics.md": dynamics,
    "claims.md": claims,
}


def made_pages(evidence: All) -> Iterator[tuple[str, bytes]]:
    """Every page by its file name."""
    for name, module in PAGES.items():
        yield name, module.page(evidence).encode()


def made_figures(evidence: All) -> Iterator[tuple[str, bytes]]:
    """Every figure by its path."""
    for module in PAGES.values():
        for name, figure in module.figures(evidence).items():
            yield f"images/{name}.svg", bytes_of(figure, "svg")


def write_pages(evidence: All, folder: str | Path) -> list[Path]:
    """Write all of them below a folder; nothing is written unless everything could be made."""
    made = [*made_pages(evidence), *made_figures(evidence)]
    place = Path(folder)
    (place / "images").mkdir(parents=True, exist_ok=True)
    for name, content in made:
        write_atomically(place / name, content)
    return [place / name for name, _ in made]
