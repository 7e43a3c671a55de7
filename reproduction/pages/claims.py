"""The page of the papers' trends and tables: for each claim one sentence with the numbers found here."""

from __future__ import annotations

from collections import Counter
from typing import Any

from reproduction.claims import Finding, findings
from reproduction.claims.tools import NOT, PARTLY, SEEN, UNTESTED, Verdict
from reproduction.labels import All
from reproduction.result_files import file_name

TITLE = "The papers' claims on real data"
_OPENING = """\
Every claim of `focalcal_lab.papers.claims()` about trained networks, and what the experiments here say about it. A claim is
*seen here* if it holds in every experiment that can show it, *seen in part* if in some of them or in some of its parts,
*not seen* if in none. All numbers are means over seeds, made from the [result files](README.md#experiments) by one
function a claim in `reproduction.claims`. Claims that arithmetic alone decides are in [claims](../claims.md).

On a tenth of CIFAR-10 the schedules were chosen so that cross-entropy overfits, by its own curves: that it does is no
finding, what other losses do then is ([design](../design/evidence.md)).
"""
_ORDER: tuple[Verdict, ...] = (SEEN, PARTLY, NOT, "shown elsewhere", UNTESTED)


def page(evidence: All) -> str:
    """The whole page."""
    found = findings(evidence)
    counts = Counter(each.verdict for each in found)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _ORDER if counts[verdict])
    parts = [f"# {TITLE}\n", _OPENING, f"Of {len(found)} claims: {said}.\n"]
    for paper in dict.fromkeys(each.id.partition(".")[0] for each in found):
        parts.append(f"## {paper}\n")
        parts += [_entry(each) for each in found if each.id.startswith(f"{paper}.")]
    return "\n".join(parts)


def _entry(found: Finding) -> str:
    files = ", ".join(f"[{name}](../../reproduction/results/{file_name(name)})" for name in found.recipes)
    source = f" Results: {files}." if files else ""
    return (
        f"**`{found.id}`** ({found.where}). {found.claim}\n\n*{found.verdict.capitalize()}.* {found.sentence}{source}\n"
    )


def figures(evidence: All) -> dict[str, Any]:
    """None."""
    return {}
