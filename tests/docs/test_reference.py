"""The reference: every public name is on exactly one page, and has a docstring and an example that runs."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "src", ROOT / "lab/src")
PAGES = sorted((ROOT / "docs/reference").glob("*.md"))

# Lists for our own use: what calibrators read, how the exact claims of the papers are checked.
INTERNAL = ("focalcal.calibrators.search", "focalcal_lab.papers.exact")
# Public modules without a list.
UNLISTED = {"focalcal_lab": ["papers"]}


@cache
def _public() -> list[tuple[str, str]]:
    """Every name of every `__all__` of the library and the lab, with its module."""
    found = UNLISTED | {"focalcal": import_module("focalcal").__all__}
    for source in SOURCES:
        for path in sorted(source.rglob("*.py")):
            module = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
            has_list = re.search(r"^(\w+, )*__all__\b.*=", path.read_text(encoding="utf-8"), re.MULTILINE)
            if has_list and not module.startswith(INTERNAL):
                found[module] = import_module(module).__all__
    return [(module, name) for module, names in found.items() for name in names]


@cache
def _documented() -> dict[str, str]:
    """What the pages of the reference show, by its full name, and the page."""
    lines = [(line, page.name) for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    shown = [(line.removeprefix("::: "), page) for line, page in lines if line.startswith("::: ")]
    twice = [name for name, count in Counter(name for name, _ in shown).items() if count > 1]
    assert not twice, f"these stand on the pages twice: {', '.join(twice)}"
    return dict(shown)


@cache
def _thing(path: str) -> object:
    """What a full name stands for, or None if there is no such thing."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (AttributeError, ImportError):
        try:
            return import_module(path)
        except ImportError:
            return None


def test_every_public_name_is_on_exactly_one_page():
    wrong = []
    for module, name in _public():
        thing = _thing(f"{module}.{name}")
        pages = [page for path, page in _documented().items() if _thing(path) is thing]
        if len(pages) != 1:
            wrong.append(f"{module}.{name} is on {', '.join(pages) or 'no page'}")
    assert not wrong, "\n".join(wrong)
    assert len(_public()) > 150


def test_every_name_on_a_page_is_public():
    public = [_thing(f"{module}.{name}") for module, name in _public()]
    wrong = [
        f"{page}: {path}"
        for path, page in _documented().items()
        if _thing(path) is None or not any(each is _thing(path) for each in public)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_public_name_has_a_docstring_and_an_example():
    wrong = {f"{module}.{name}: {problem}" for module, name in _public() for problem in _problems(module, name)}
    assert not wrong, "\n".join(sorted(wrong))


def _problems(module: str, name: str) -> Iterator[str]:
    thing = inspect.unwrap(_thing(f"{module}.{name}"))
    if not isinstance(thing, ModuleType) and not hasattr(thing, "__name__"):
        if not _described(module, name):
            yield "a constant without a string after it that says what it holds"
        return
    if not thing.__doc__:
        yield "no docstring"
    # The doctests of the sources are tests themselves; here they have to be where pytest finds them.
    found = doctest.DocTestFinder(recurse=False).find(thing, module=False)
    if not any(test.examples for test in found):
        yield "no example"
    home = import_module(thing.__module__).__file__ if hasattr(thing, "__module__") else thing.__file__
    if not any(Path(home).is_relative_to(source) for source in SOURCES):
        yield "is defined elsewhere"


def _described(module: str, name: str) -> bool:
    """Whether a string follows the assignment of a constant, in this module or in the one that it is imported from."""
    if module == "focalcal":  # its names are loaded from elsewhere
        return any(_described(package, name) for package in ("focalcal.losses", "focalcal.calibrators"))
    body = ast.parse(Path(import_module(module).__file__).read_text(encoding="utf-8")).body
    for node, after in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and bool(after.value.value)
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.module.startswith("focalcal")]
    sources = [node.module for node in imports if {name, "*"} & {each.name for each in node.names}]
    return any(_described(source, name) for source in sources if hasattr(import_module(source), name))


@pytest.mark.slow
@pytest.mark.xdist_group("site")
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
