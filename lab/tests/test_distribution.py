"""The distribution: its version is the library's, it declares what it imports, and it never imports the evidence."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import focalcal

LAB = Path(__file__).resolve().parents[1]
PROJECT = (LAB / "pyproject.toml").read_text(encoding="utf-8")
# Where the name of a distribution is not that of the package, and what comes with one that is declared.
DISTRIBUTIONS = {"yaml": "PyYAML", "PIL": "pillow", "pyarrow": "files", "tokenizers": "transformers"}
# Networks of other libraries are used if they are there.
OPTIONAL = {"timm", "torchvision"}


def imported() -> set[str]:
    """Every package that a module of the lab imports, at its top or inside a function."""
    found: set[str] = set()
    for path in (LAB / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def test_the_versions_of_library_and_lab_are_one():
    assert f'\nversion = "{focalcal.__version__}"\n' in PROJECT
    assert re.search(rf'"focalcal\[[\w,]+\]=={re.escape(focalcal.__version__)}"', PROJECT)


def test_every_import_is_a_declared_dependency_and_none_is_of_the_evidence_or_of_tests():
    third_party = imported() - set(sys.stdlib_module_names) - {"focalcal", "focalcal_lab"} - OPTIONAL
    declared = re.split(r"\W+", PROJECT.partition("dependencies = [")[2].partition("\n]\n")[0])
    assert {name for name in third_party if DISTRIBUTIONS.get(name, name) not in declared} == set()
    assert not {"reproduction", "tests", "lab"} & imported()
