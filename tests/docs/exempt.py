"""The few reasons for which a block of a page is not run, and what such a block may hold.

Lines of `focalcal lab run` that are not run are tried with `--dry-run`, which builds network and data and takes a
step. The other lines of such a block run as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Every line that is left out must match `lines`."""

    lines: str
    dry_run: bool = False


_LAB_RUN = r"^focalcal lab run "

REASONS = {
    "installs packages": Reason(
        r"\b(pip3?|uv|conda|brew|apt-get|npm) .*install\b|pre-commit install|^python3? -m venv"
    ),
    # tests/cli/test_demo.py and lab/tests/test_problems.py run what is no target of make.
    "CI runs it": Reason(r"^make |^focalcal demo$|^python -m reproduction.toy_problems$|^one_dimensional_problem\("),
    "takes long": Reason(r"^(\w+=\S+ )?make |^(\S*/)?python benchmarks/|^(\S*/)?pytest\b"),
    "trains for long": Reason(_LAB_RUN, dry_run=True),
    "needs a GPU": Reason(_LAB_RUN, dry_run=True),
    "needs a data hub": Reason(_LAB_RUN, dry_run=True),
    "reads an address": Reason(r"\w://"),
    "needs several machines": Reason(r"^torchrun .*--nnodes "),
    "opens a window": Reason(r"--open\b|\.show\(\)|^(xdg-)?open "),
}


def problem(reason: str, lines: list[str], *, python: bool) -> str | None:
    """What speaks against leaving these lines out for this reason."""
    if reason not in REASONS:
        return f"{reason!r} is no reason to run nothing; reasons are {', '.join(REASONS)}"
    known = REASONS[reason]
    matched = [bool(re.search(known.lines, line)) for line in lines]
    enough = any(matched) if known.dry_run or python else all(matched)
    return None if enough else f"{reason!r} does not hold for this block"


def is_left_out(reason: str | None, line: str) -> bool:
    """Whether this line of a block is the one that is not run."""
    return reason is not None and (not REASONS[reason].dry_run or bool(re.search(_LAB_RUN, line)))


def instead(reason: str, line: str) -> str | None:
    """What is run in the place of a line that is left out."""
    return f"{line.removesuffix(' --dry-run')} --dry-run" if REASONS[reason].dry_run else None
