"""Where a mutant lies: found by the text of its statement, so that it is found again after code has moved.

A place is a statement inside a function (of a compound statement only the header: `if x > 0:`), or the default value
of a parameter. A mutant is a place's text before and after. Line numbers, file names and layout play no part.
"""

from __future__ import annotations

import ast
import gc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

BLOCKS = ("body", "orelse", "finalbody", "handlers", "decorator_list", "cases")
LONG = 30  # letters of a statement that is hardly written twice by chance
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Place:
    """A statement, or a parameter's default, and the list of the syntax tree that holds it."""

    function: str
    holder: list[Any]
    index: int
    text: str
    lines: range
    parameter: str = ""
    before: str = ""
    after: str = ""


def header(node: ast.stmt) -> str:
    """The statement in one standard layout, without what is nested in it."""
    fields = {name: getattr(node, name) for name in node._fields if name not in BLOCKS}
    blocks = {name: [] for name in node._fields if name in BLOCKS}
    if "body" in blocks:
        blocks["body"] = [ast.Pass()]
    return ast.unparse(type(node)(**fields, **blocks, lineno=0))  # type: ignore[arg-type]


def _defaults(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[Place]:
    lines = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
    positional = node.args.posonlyargs + node.args.args
    pairs = [(node.args.defaults, positional[len(positional) - len(node.args.defaults) :])]
    for holder, parameters in [*pairs, (node.args.kw_defaults, node.args.kwonlyargs)]:
        for index, (default, parameter) in enumerate(zip(holder, parameters, strict=True)):
            if default is not None:
                text = f"{parameter.arg}={ast.unparse(default)}"
                yield Place(name, holder, index, text, lines, parameter.arg)


def places(tree: ast.Module) -> list[Place]:
    """All places of a module, in order, each knowing the text before and after it."""

    def walk(holder: list[Any], scope: tuple[str, ...], inside: bool) -> Iterator[Place]:
        for index, node in enumerate(holder):
            named = isinstance(node, (*FUNCTIONS, ast.ClassDef))
            if inside and isinstance(node, ast.stmt) and not named and not isinstance(node, (ast.Try, ast.Match)):
                blocks = [block[0].lineno for block in [getattr(node, "body", [])] if block]
                end = max(blocks[0] - 1, node.lineno) if blocks else node.end_lineno or node.lineno
                yield Place(".".join(scope), holder, index, header(node), range(node.lineno, end + 1))
            below = (*scope, node.name) if named else scope
            if isinstance(node, FUNCTIONS):
                yield from _defaults(node, ".".join(below))
            for name in ("body", "handlers", "orelse", "finalbody", "cases"):
                block = getattr(node, name, [])
                if isinstance(block, list):
                    yield from walk(block, below, inside or isinstance(node, FUNCTIONS))

    found = list(walk(tree.body, (), False))
    for first, second in itertools.pairwise(found):
        if first.function == second.function:
            first.after, second.before = second.text, first.text
    return found


def change(place: Place, text: str) -> None:
    """Put another text in the place, in the syntax tree."""
    old = place.holder[place.index]
    if place.parameter:
        new: ast.AST = ast.parse(text.partition("=")[2], mode="eval").body
    else:
        new = ast.parse(text).body[0]
        for name in BLOCKS:
            if hasattr(old, name) and hasattr(new, name):
                setattr(new, name, [])
    for node in ast.walk(new):
        if hasattr(node, "lineno") or isinstance(node, (ast.stmt, ast.expr, ast.arg, ast.keyword)):
            ast.copy_location(node, old)
    if not place.parameter:
        for name in BLOCKS:
            if hasattr(old, name) and hasattr(new, name):
                setattr(new, name, getattr(old, name))
    place.holder[place.index] = new


class Source:
    """The modules of a package, in which mutants are looked for."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.files = sorted(package.rglob("*.py"))
        self.places = {file: places(ast.parse(file.read_text())) for file in self.files}
        self.by_text: dict[str, list[tuple[Path, Place]]] = {}
        for file, found in self.places.items():
            for place in found:
                self.by_text.setdefault(place.text, []).append((file, place))

    def find(self, mutant: dict[str, Any]) -> tuple[Path, Place] | None:
        """The place most like the one the mutant was drawn from; its function may have moved or been renamed."""

        def likeness(found: tuple[Path, Place]) -> tuple[int, bool]:
            file, place = found
            ours, theirs = place.function.split("."), mutant["function"].split(".")
            near = (place.before == mutant["near"][0]) + (place.after == mutant["near"][1])
            return 4 * (ours == theirs) + 2 * (ours[-1] == theirs[-1]) + near, file.name == Path(mutant["file"]).name

        same = sorted(self.by_text.get(mutant["before"], []), key=likeness, reverse=True)
        enough = 2 if len(mutant["before"]) >= LONG and not mutant["function"].endswith("__") else 3
        if not same or (likeness(same[0])[0] < enough and not (len(same) == 1 and len(mutant["before"]) >= LONG)):
            return None
        best = [found for found in same if likeness(found) == likeness(same[0])]
        return best[min(mutant["nth"], len(best) - 1)]

    def describe(self, file: Path, place: Place, after: str) -> dict[str, Any] | None:
        """What is written down about a mutant: enough to find it again, or None if another place looks the same."""
        mutant = {
            "file": file.relative_to(self.package).as_posix(),
            "function": place.function,
            "before": place.text,
            "after": after,
            "near": [place.before, place.after],
        }
        for nth in range(len(self.by_text[place.text])):
            found = self.find(mutant | {"nth": nth})
            if found is not None and found[1] is place:
                return mutant | {"nth": nth}
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def mutated_codes(file: Path, place: Place, after: str) -> list[tuple[CodeType, CodeType]]:
    """The code objects of a module that the mutant changes, with what they become."""
    text = file.read_text()
    tree = ast.parse(text)
    same = next(p for p in places(tree) if (p.lines, p.text, p.function) == (place.lines, place.text, place.function))
    change(same, after)
    old = {_key(code): code for code in _codes(compile(text, str(file), "exec", dont_inherit=True))}
    new = _codes(compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True))
    return [(old[_key(code)], code) for code in new if _key(code) in old and old[_key(code)] != code]


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def mutate(file: Path, place: Place, after: str) -> int:
    """Give the functions of a loaded module their mutated code; the number of functions that were changed.

    Function objects stay what they are, so every import, method and decorator made before sees the mutant.
    """
    codes = {_key(old): new for old, new in mutated_codes(file, place, after)}
    changed = 0
    for function in [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__.co_filename == str(file)]:
        if _key(function.__code__) in codes:
            function.__code__ = codes[_key(function.__code__)]
            changed += 1
        if place.parameter and function.__code__.co_qualname == place.function:
            value = eval(after.partition("=")[2], function.__globals__)
            names = function.__code__.co_varnames[: function.__code__.co_argcount]
            if place.parameter in names:
                defaults = list(function.__defaults__ or ())
                defaults[names.index(place.parameter) - len(names)] = value
                function.__defaults__ = tuple(defaults)
            else:
                function.__kwdefaults__ = {**(function.__kwdefaults__ or {}), place.parameter: value}
            changed += 1
    return changed
