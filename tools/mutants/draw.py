"""Draw mutants with mutmut: `python tools/mutants/draw.py PACKAGE LIST --areas core losses --each 90`.

mutmut says how each expression can be changed. Left out are changes that no test is meant to notice: of words (error
messages, logs), of annotations and of what is raised. Of one statement at most one mutant is drawn, of one function at
most `--per-function`; a fifth of an area's mutants drop an argument of a call or pass None for it, the others change
an operator, a comparison, a number, a condition, a loop's course or a truth value.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import libcst as cst
from mutmut.mutation.file_mutation import NEVER_MUTATE_FUNCTION_NAMES, MutationVisitor
from mutmut.mutation.mutators import mutation_operators, operator_arg_removal, operator_assignment, operator_string
from mutmut.mutation.pragma_handling import IgnoredCode
from places import Source, mutated_codes, places

SILENT = ("strict", "stacklevel", "cls", "category")  # keyword arguments that only matter where something is wrong


class Visitor(MutationVisitor):
    """mutmut's visitor, for functions with decorators too: mutants are put into them in another way than mutmut's."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            return node.name.value in NEVER_MUTATE_FUNCTION_NAMES
        if isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value in SILENT:
            return True
        return isinstance(node, (cst.Decorator, cst.Raise, cst.Assert)) or super()._skip_node_and_children(node)


def mutations(code: str, kind: str) -> tuple[cst.Module, list[Any]]:
    """mutmut's mutations of a module of one kind: of arguments, or all others."""
    of_arguments = [operator_arg_removal]
    never = [operator_string, operator_assignment]
    chosen = [
        (node, operator)
        for node, operator in mutation_operators
        if operator not in never and (operator in of_arguments) == (kind == "argument")
    ]
    wrapper = cst.MetadataWrapper(cst.parse_module(code))
    visitor = Visitor(chosen, IgnoredCode(set(), set(), set()))
    module = wrapper.visit(visitor)
    return module, [m for m in visitor.mutations if m.contained_by_top_level_function is not None]


def difference(code: str, mutated: str) -> tuple[int, str] | None:
    """The number of the one place that a mutation changes, with its new text."""
    old = places(ast.parse(code))
    try:
        new = places(ast.parse(mutated))
    except SyntaxError:
        return None
    if [place.function for place in old] != [place.function for place in new]:
        return None
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a.text != b.text]
    return (changed[0], new[changed[0]].text) if len(changed) == 1 else None


def speaks(text: str) -> bool:
    """Whether a statement only says something: a docstring or a warning."""
    return text.startswith(("'", '"', "warnings.warn("))


def draw(package: Path, area: str, each: int, per_function: int, without: list[str], seed: int) -> list[dict[str, Any]]:
    """Mutants of one part of the package, the same for the same seed."""
    chance = random.Random(f"{seed} {area}")
    source = Source(package)
    files = [f for f in source.files if area in f.relative_to(package).parts[:1] and f.name not in without]
    drawn: list[dict[str, Any]] = []
    functions: Counter[tuple[Path, str]] = Counter()
    statements = set()
    for kind, number in (("other", each - each // 5), ("argument", each // 5)):
        candidates = []
        for file in files:
            module, found = mutations(file.read_text(), kind)
            candidates += [(file, module, mutation) for mutation in found]
        chance.shuffle(candidates)
        taken = 0
        for file, module, mutation in candidates:
            if taken == number:
                break
            code = file.read_text()
            changed = difference(code, module.deep_replace(mutation.original_node, mutation.mutated_node).code)
            if changed is None:
                continue
            index, after = changed
            place = source.places[file][index]
            where = (file, place.function)
            if (file, index) in statements or functions[where] == per_function or speaks(place.text):
                continue
            codes = mutated_codes(file, place, after)
            if not codes or any(old.co_freevars != new.co_freevars for old, new in codes):
                continue
            mutant = source.describe(file, place, after)
            if mutant is None:
                continue
            words = "\n".join(map(str, mutant.values()))
            drawn.append({"id": hashlib.sha256(words.encode()).hexdigest()[:10], "area": area} | mutant)
            statements.add((file, index))
            functions[where] += 1
            taken += 1
    return drawn


def main() -> None:
    """Read the command line and write the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path)
    parser.add_argument("list", type=Path)
    parser.add_argument("--areas", nargs="+", default=["core", "losses", "metrics", "calibrators", "files"])
    parser.add_argument("--each", type=int, default=90)
    parser.add_argument("--per-function", type=int, default=4)
    parser.add_argument("--without", nargs="*", default=[], help="names of files to leave out")
    parser.add_argument("--seed", type=int, default=1)
    options = vars(parser.parse_args())
    path, areas = options.pop("list"), options.pop("areas")
    mutants = [mutant for area in areas for mutant in draw(area=area, **options)]
    path.write_text("".join(json.dumps(mutant, ensure_ascii=False) + "\n" for mutant in mutants))


if __name__ == "__main__":
    main()
