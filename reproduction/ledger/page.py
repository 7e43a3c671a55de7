"""The ledger as a page: how many claims have each standing, the corrections, then every claim by paper."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from focalcal_lab.papers import claims
from reproduction.ledger.build import ledger
from reproduction.ledger.entry import STANDINGS, Entry

_OPENING = """\
# Claims of the papers

Every claim of the four papers ([references](references.md)) that can be checked, {all} in all, and where it stands. No
claim is said to hold without a test or a result file behind it: tests make sure that both exist, that verdicts follow
from the files, and that this page is what `python -m reproduction.ledger docs/claims.md` writes.

{counts}
`focalcal claims` runs the exact checks where you are, and `focalcal claims show ID` explains one claim: its equation,
what was done, and the numbers. [The papers' claims on real data](results/claims.md) has the measured ones at length.
These networks are small. On a tenth of CIFAR-10 the schedules were chosen so that cross-entropy overfits, by its own
curves: that it does is no finding, what other losses do then is ([design](design/evidence.md)).
"""
_PAPERS = {
    "mukhoti2020": "Mukhoti et al. 2020",
    "ghosh2022": "Ghosh et al. 2022",
    "charoenphakdee2021": "Charoenphakdee et al. 2021",
    "komisarenko2024": "Komisarenko and Kull 2024",
}


def page() -> str:
    """The whole page as Markdown.

    >>> page().splitlines()[0]
    '# Claims of the papers'
    """
    entries = ledger()
    parts = [_OPENING.format(all=len(entries), counts=_counts(entries)), *_corrections(entries)]
    for paper in dict.fromkeys(row["paper"] for row in claims()):
        parts += _paper(paper, [each for each in entries if each.paper == paper])
    return "\n".join(parts)


def _counts(entries: Sequence[Entry]) -> str:
    count = Counter(each.standing for each in entries)
    rows = [(f"**{standing}**", str(count[standing]), meaning) for standing, meaning in STANDINGS.items()]
    seen = Counter(each.verdict for each in entries if each.standing == "measured")
    said = f"Of the {count['measured']} measured ones {seen['seen here']} were seen in every experiment that can show "
    said += f"them, {seen['seen in part']} in some experiments or in some of their parts.\n"
    return f"{_table(('Standing', 'Claims', 'What it means'), rows)}\n{said}"


def _corrections(entries: Sequence[Entry]) -> list[str]:
    rows = [
        (f"[{_code(each.id)}](#{_anchor(each)})", escape(each.printed), escape(each.true), _check(each))
        for each in entries
        if each.printed
    ]
    return ["## Corrections\n", _table(("Claim", "Printed", "True", "Check"), rows)]


def _paper(paper: str, entries: Sequence[Entry]) -> list[str]:
    rows = [
        (
            f'<a id="{_anchor(each)}"></a>{_code(each.id)}, {escape(each.where)}',
            escape(each.claim),
            _standing(each),
            _found(each),
        )
        for each in entries
    ]
    count = Counter(each.standing for each in entries)
    said = ", ".join(f"{standing}: {count[standing]}" for standing in STANDINGS if count[standing])
    table = _table(("Claim", "To be shown", "Standing", "Found"), rows)
    return [f"## {_PAPERS[paper]}\n", f"{len(entries)} claims ({said}).\n", table]


def _standing(entry: Entry) -> str:
    return entry.standing + (f": {entry.verdict}" if entry.standing == "measured" else "")


def _found(entry: Entry) -> str:
    """What was found, and the links to what stands behind it."""
    if entry.printed:
        return f"[Printed and true](#corrections). {_check(entry)}, {_tests(entry)}."
    parts = [escape(entry.sentence)]
    if entry.check:
        parts.append(f"{_check(entry)}, {_tests(entry)}.")
    elif entry.results:
        files = ", ".join(f"[{path.rpartition('/')[2].removesuffix('.json')}](../{path})" for path in entry.results)
        parts.append(f"{entry.runs} runs, up to {entry.seeds} seeds: {files}; {_tests(entry)}.")
    elif entry.recipes:
        parts.append(f"Recipe {', '.join(map(_code, entry.recipes))}" + (f", {_tests(entry)}." if entry.tests else "."))
    else:
        parts.append(f"{_tests(entry).capitalize()}.")
    return " ".join(parts)


def _check(entry: Entry) -> str:
    module, _, name = entry.check.rpartition(".")
    return f"[{_code(name)}](../src/{module.replace('.', '/')}.py)"


def _tests(entry: Entry) -> str:
    links = [f'[test](../{test.partition("::")[0]} "{test.partition("::")[2]}")' for test in entry.tests]
    return ", ".join(links)


def _anchor(entry: Entry) -> str:
    return entry.id


def _code(text: str) -> str:
    return f"`{text}`"


def escape(text: str) -> str:
    r"""Text as Markdown shows it unchanged, also in a table; what is in backticks stays as it is.

    >>> print(escape("gamma* = a*b, |x| < 1 and `p_y*` of L_f, _b"))
    gamma\* = a\*b, \|x\| &lt; 1 and `p_y*` of L_f, \_b
    """
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part.replace("|", r"\|") if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("*", r"\*").replace("|", r"\|")
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9{])", r"\_", text)  # inside a word it is no emphasis
    return text.replace("](", r"\]\(")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
