"""The four papers as tables: every checkable claim and every published number.

`claims.csv` and `published_results.csv` are our own readings; their columns are described in `docs/papers.md`.
"""

from __future__ import annotations

import csv
import io
from importlib import resources

__all__ = ["claims", "published_results"]


def claims() -> list[dict[str, str]]:
    """Every checkable claim of the papers: id, paper, where, claim, kind, checkable_on, note.

    >>> len(claims())
    231
    """
    return _read("claims.csv")


def published_results() -> list[dict[str, str]]:
    """Every number of the papers' result tables: paper, table, dataset, model, method, phase, metric, value, ...

    >>> len(published_results())
    1976
    """
    return _read("published_results.csv")


def _read(name: str) -> list[dict[str, str]]:
    text = (resources.files(__name__) / name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))
