"""docs/results is what the recorded result files say, byte for byte."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from focalcal_lab.catalog import catalog
from reproduction.labels import LITTLE, LITTLE_20, MORE, NETWORKS, NEWS, SST, TRANSLATION
from reproduction.pages.write import PAGES, made_figures, made_pages, write_pages
from reproduction.result_files import recorded

from .made import evidence

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs/results"


@pytest.fixture(scope="module")
def found():
    return recorded()


def test_every_experiment_is_recorded_with_enough_seeds(found):
    seeds = {LITTLE: 3, LITTLE_20: 3, MORE: 2, NEWS: 2, SST: 3, TRANSLATION: 2}
    assert set(found) == {*seeds, NETWORKS}
    for name, number in seeds.items():
        recipe = catalog()[name]
        assert found[name].methods == list(recipe.methods)
        assert {method: len(found[name].of(method)) for method in recipe.methods} == dict.fromkeys(
            recipe.methods, number
        )


def test_the_recorded_recipes_are_those_that_ship(found):
    """Who runs the command again runs what was recorded."""
    for name, each in found.items():
        if name != NETWORKS:
            assert each.recipe == catalog()[name].model_dump(mode="json", exclude_defaults=True)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_what_the_result_files_say(found, name):
    made = dict(made_pages(found))[name]
    assert (DOCS / name).read_bytes() == made, "run: python -m reproduction.pages docs/results"


@pytest.mark.slow
def test_every_figure_is_what_the_result_files_say(found):
    made = dict(made_figures(found))
    there = {f"images/{path.name}": path.read_bytes() for path in (DOCS / "images").glob("*.svg")}
    assert {name: _digest(content) for name, content in there.items()} == {
        name: _digest(content) for name, content in made.items()
    }, "run: python -m reproduction.pages docs/results"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_pages_link_to_files_and_figures_that_exist(found):
    links = 0
    for name in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (DOCS / name).read_text()):
            assert (DOCS / target).exists(), f"{name}: {target}"
            links += 1
    assert links > 50


def test_pages_hold_no_number_that_is_none(found):
    for name in PAGES:
        assert not re.search(r"(?<![\w.])(nan|None|inf)\b", (DOCS / name).read_text()), name  # an id ends in .inf


def test_the_same_files_give_the_same_bytes_and_other_numbers_other_pages(tmp_path):
    def better(recipe, method, seed, phase, measure):
        return (0.05 if method == "brier" else 0.3) + 0.01 * seed + 0.001 * len(method)

    names = (LITTLE, LITTLE_20, MORE, NEWS, SST, TRANSLATION)
    first, other = ({name: evidence(name, **more) for name in names} for more in ({}, {"value": better}))
    one, again, third = (dict(made_pages(each)) for each in (first, first, other))
    assert one == again
    assert all(
        one[name] != third[name] for name in ("README.md", "images.md", "text.md", "after_training.md", "claims.md")
    )
    assert b"**You can train again, and want no calibrator:** Brier has the best mean rank" in third["README.md"]


def test_figures_do_not_depend_on_chance(tmp_path):
    made = {LITTLE: evidence(LITTLE)}
    paths = write_pages(made, tmp_path)
    before = {path: path.read_bytes() for path in paths}
    write_pages(made, tmp_path)
    assert {path: path.read_bytes() for path in paths} == before
    assert any(path.suffix == ".svg" for path in paths)
