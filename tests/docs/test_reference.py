"""The reference: every public name is on exactly one page, and has a docstring and an example that runs."""

from __future__ import annotations

import ast
import doctest
import inspect
from collections import Counter
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs/reference").glob("*.md"))

# Lists for our own use: what calibrators read, how claims are checked, how pages of results and of claims are written.
# The figures' functions are in the gallery, docs/figures.md.
PAPERS = ("mukhoti2020", "ghosh2022", "charoenphakdee2021", "komisarenko2024")
INTERNAL = (
    "focalcal.calibrators.data",
    "focalcal_lab.papers.exact",
    "reproduction",
    "reproduction.ledger",
    *(f"reproduction.figures.{paper}" for paper in PAPERS),
)
# Public modules without a list.
UNLISTED = {
    "focalcal.integrations.sklearn": ["CalibratedModel"],
    "reproduction.figures.catalogue": ["FIGURES", "NOT_DRAWN", "PaperFigure", "figure"],
}


def _lists() -> dict[str, list[str]]:
    """Every `__all__` of the package, by module, read without importing it unless it is lazy."""
    found = {}
    for path in sorted((ROOT / "src/focalcal").glob("*/__init__.pyi")):
        found[f"focalcal.{path.parent.name}"] = list(import_module(f"focalcal.{path.parent.name}").__all__)
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id == "__all__"
            ):
                found[module] = ast.literal_eval(node.value)
    return {module: names for module, names in found.items() if not module.startswith(INTERNAL)} | UNLISTED


PUBLIC = [(module, name) for module, names in _lists().items() for name in names]


@cache
def _documented() -> dict[str, str]:
    """What pages of the reference show, by its full name, and the page."""
    lines = [(line, page.name) for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    shown = [(line.removeprefix("::: "), page) for line, page in lines if line.startswith("::: ")]
    assert len(shown) == len(dict(shown)), [name for name, count in Counter(dict(shown)).items() if count > 1]
    return dict(shown)


@cache
def _thing(path: str) -> object:
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except AttributeError:
        return import_module(path)


def _constant(thing: object) -> bool:
    return not isinstance(thing, ModuleType) and not hasattr(thing, "__name__")


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_a_public_name_is_on_exactly_one_page(module, name):
    thing = getattr(import_module(module), name)
    pages = [page for path, page in _documented().items() if _thing(path) is thing]
    assert len(pages) == 1, f"{module}.{name} is on {pages or 'no page'}"


@pytest.mark.parametrize("path", _documented())
def test_a_name_on_a_page_is_public(path):
    assert any(getattr(import_module(module), name) is _thing(path) for module, name in PUBLIC)


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_a_public_name_has_a_docstring_and_an_example(module, name):
    thing = inspect.unwrap(getattr(import_module(module), name))
    if _constant(thing):
        assert _described(module, name)  # what a constant holds, its description says
        return
    assert thing.__doc__
    # The doctests of src are tests themselves; here they have to be where pytest finds them.
    found = doctest.DocTestFinder(recurse=False).find(thing, module=False)
    assert any(test.examples for test in found)
    assert Path(inspect.getfile(thing)).is_relative_to(ROOT / "src")


def _described(module: str, name: str) -> bool:
    """Whether a string follows the assignment of a constant."""
    body = ast.parse(Path(import_module(module).__file__).read_text(encoding="utf-8")).body
    for node, after in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and bool(after.value.value)
    source = [node for node in body if isinstance(node, ast.ImportFrom) and name in [each.name for each in node.names]]
    return bool(source) and _described(source[0].module, name)


@pytest.mark.slow
def test_every_name_has_its_anchor_and_its_example_is_set_as_code(site):
    for path, page in _documented().items():
        html = site.pages[f"reference/{page.removesuffix('.md')}.html"]
        assert path in html.ids, path
        assert ">>>" not in "".join(html.prose), page


def test_examples_are_fenced_and_text_is_not(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/hooks")
    fenced = import_module("docstrings").fenced
    example = ">>> 1 + 1\n2\n\n>>> for i in range(1):\n...     print(i)\n0"
    assert fenced(f"Adds.\n\n{example}\n\nMore.") == f"Adds.\n\n```pycon\n{example}\n```\n\nMore."
    assert fenced("$$ a $$\n$$ b $$") == "$$ a $$\n\n$$ b $$"
    assert fenced("No example > here.") == "No example > here."
