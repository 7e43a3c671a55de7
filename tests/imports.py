"""Which modules a source file imports, whatever the form of the import, read without running it.

>>> lines = ["from . import a", "from ..b import c", "import focalcal.d", "from focalcal import e", "focalcal.f"]
>>> sorted(imports("\\n".join(lines), package="focalcal.p", root="focalcal"))
['focalcal.b.c', 'focalcal.d', 'focalcal.e', 'focalcal.f', 'focalcal.p.a']
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_LOCATION = re.compile(r"\w+(\.\w+)+:\w+")  # "package.module:name", as tables and entry points have it


def imports(source: str, *, package: str, root: str) -> set[str]:
    """The full names that a module of `package` imports: in functions, under TYPE_CHECKING and by `import_module` too.

    Strings that name a place, such as "package.module:name", count as imports of it.
    `from a import b` counts as `a.b`, because b may be a module. Attributes of the package `root` count as imports of
    them, because loading them is what they do.
    """
    tree = ast.parse(source)
    found: set[str] = set()
    aliases = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            aliases |= {alias.asname or alias.name for alias in node.names if alias.name == root}
            aliases |= {root for alias in node.names if alias.name.startswith(f"{root}.") and not alias.asname}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{_source_of(node, package)}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call):
            found |= set(_called(node, package))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _LOCATION.fullmatch(node.value):
            found.add(node.value.replace(":", "."))
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    found |= {
        f"{root}.{each.attr}" for each in attributes if isinstance(each.value, ast.Name) and each.value.id in aliases
    }
    return found - {root}


def _source_of(node: ast.ImportFrom, package: str) -> str:
    """The module after `from`, with the dots of a relative import resolved."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base


def _called(node: ast.Call, package: str) -> Iterator[str]:
    """What `import_module` and `__import__` load, where a constant says so."""
    function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if function not in ("import_module", "__import__") or not node.args:
        return
    name = node.args[0]
    if isinstance(name, ast.JoinedStr):
        name = name.values[0]  # f"focalcal.metrics.{which}": the constant beginning says enough
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        dots = len(name.value) - len(name.value.lstrip("."))
        base = package.rsplit(".", dots - 1)[0] if dots else ""
        yield f"{base}.{name.value.lstrip('.')}".strip(".") if dots else name.value.rstrip(".")


def package_of(path: Path, source: Path) -> str:
    """The package that a file of the source folder belongs to, against which its relative imports count."""
    return ".".join(path.relative_to(source).parts[:-1])
