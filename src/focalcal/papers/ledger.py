"""The page docs/claims.md, made from the claims and their checks.

python -m focalcal.papers.ledger docs/claims.md     # writes it anew
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from focalcal.core.files import write_atomically
from focalcal.papers import NEEDS, checks, claims

_OPENING = """\
# Claims of the papers

`focalcal claims` checks, on your machine, every claim of `focalcal.papers.claims()` that arithmetic alone can check
(`checkable_on` is `cpu-exact`, {exact} of {all} claims); `focalcal claims ID` shows one in full. Each has one function
in `focalcal.papers.exact`, in the file of its paper. Where a claim does not hold as printed, or only after a correction
or on a loose reading, its check shows a counterexample and proves what holds instead; those {corrected} claims come
first. The claims that need trained networks come last.

This page is written by `python -m focalcal.papers.ledger docs/claims.md`, and a test holds it to that.
"""


def page() -> str:
    """The whole page as Markdown.

    >>> page().splitlines()[0]
    '# Claims of the papers'
    """
    found, rows = checks(), claims()
    corrected = [check for check in found if not check.holds]
    parts = [_OPENING.format(exact=len(found), all=len(rows), corrected=len(corrected))]
    parts.append("## Claims that need a correction\n")
    cells: Iterable[tuple[str, ...]] = [(f"`{c.id}`", c.printed, c.true, f"`{c.name}`") for c in corrected]
    parts.append(_table(("Claim", "Printed", "True", "Check"), cells))
    parts.append("## All other exact claims\n")
    parts.append(_table(("Claim", "Check"), [(f"`{c.id}`", f"`{c.name}`") for c in found if c.holds]))
    parts.append("## Claims that arithmetic cannot check\n")
    for group in [group for group in NEEDS if group != "cpu-exact"]:
        chosen = [row for row in rows if row["checkable_on"] == group]
        parts.append(f"### `{group}`: {len(chosen)} claims that need {NEEDS[group]}\n")
        cells = [(f"`{row['id']}`", row["where"], row["claim"]) for row in chosen]
        parts.append(_table(("Claim", "Where", "To be shown"), cells))
    return "\n".join(parts)


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    write_atomically(sys.argv[1], page().encode())
