"""Count what happened to the mutants, area by area."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

Line = dict[str, Any]
KINDS = ("killed by make test", "killed by slow tests only", "equivalent", "survived", "gone")


def read_lines(path: Path) -> list[Line]:
    """The objects of a file with one on each line; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kind(result: Line, equivalent: set[str]) -> str:
    """What happened to a mutant, in the words of the table."""
    if result["outcome"] == "killed":
        return KINDS[0] if result["stage"] == "fast" else KINDS[1]
    if result["outcome"] == "gone":
        return "gone"
    return "equivalent" if result["id"] in equivalent else "survived"


def table(mutants: list[Line], results: list[Line], equivalent: list[Line]) -> str:
    """A table in Markdown with one line for each area, and the mutants that a test is missing for."""
    names = {line["id"] for line in equivalent}
    last = {result["id"]: result for result in results}
    counts: dict[str, Counter[str]] = {"all": Counter()}
    missed = []
    for mutant in [mutant for mutant in mutants if mutant["id"] in last]:
        found = kind(last[mutant["id"]], names)
        for area in (mutant["area"], "all"):
            counts.setdefault(area, Counter())[found] += 1
        if found == "survived":
            missed.append(f"survived {mutant['id']} {mutant['function']}: {mutant['before']}  ->  {mutant['after']}")
    lines = ["| area | mutants | " + " | ".join(KINDS) + " |", "|---" * (len(KINDS) + 2) + "|"]
    for area in [*list(counts)[1:], "all"]:
        cells = [area, counts[area].total(), *(counts[area][name] for name in KINDS)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, *missed])
