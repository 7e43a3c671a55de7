"""docs/security.md: every promise names tests, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
# What is trusted, and so has nothing to be held.
TRUSTED = {"What is not promised"}


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_a_test_that_the_page_names_is_there(file, name):
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_section_says_which_test_holds_it():
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert len(sections) > 6
    without = {section.splitlines()[0] for section in sections if not NAMED.search(section)}
    assert without == TRUSTED
