"""Largest logits of training rows by the epoch since which they are right: the table, and orders of losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from reproduction.labels import bullets, method_name, spread, table
from reproduction.pages.dynamics.compare import order
from reproduction.pages.dynamics.records import by_epoch, monitored
from reproduction.pages.dynamics.section import Section
from reproduction.result_files import Evidence, RunEvidence

_LOSSES = ("ce", "flsd-53", "adafocal")


def _tell(evidence: Evidence) -> Iterator[str]:
    by_loss = {method: found for method in _LOSSES if (found := by_epoch(evidence, method, _groups))}
    starts = sorted({start for found in by_loss.values() for start in found})
    if len(starts) < 2:
        return
    spreads = {method: _spreads(evidence, method) for method in by_loss}
    shares = {method: _spreads(evidence, method, relative=True) for method in by_loss}
    columns = {
        method: [*(found.get(start, []) for start in starts), spreads[method], shares[method]]
        for method, found in by_loss.items()
    }
    yield table(
        ["loss", *(f"epoch {name}" for name in _spans(starts)), "spread", "spread / first"],
        ([method_name(method), *map(spread, values)] for method, values in columns.items()),
    )
    if names := order(spreads):
        yield bullets(
            [
                f"Spread between the first and the last group, on average: {names}.",
                f"The same as a share of the first group's mean: {order(shares)}.",
            ]
        )


def _groups(run: RunEvidence) -> dict[int, float]:
    """The mean largest logits by the epoch at which a group of learned rows begins."""
    learned = run.dynamics.get("learned") or {}
    pairs = zip(learned.get("since", []), learned.get("mean_max_logit", []), strict=False)
    return {start: value for start, value in pairs if start is not None and value is not None}


def _spans(starts: Sequence[int]) -> list[str]:
    """Groups by their epochs, counted from 1.

    >>> _spans([0, 3, 7])
    ['1 to 3', '4 to 7', 'from 8']
    """
    ends = [f"{start + 1} to {end}" for start, end in pairwise(starts)]
    return [*ends, f"from {starts[-1] + 1}"]


def _spreads(evidence: Evidence, method: str, *, relative: bool = False) -> list[float]:
    """Of every seed, the mean of the first group above that of the last, or its share of the former."""
    found = []
    for run in monitored(evidence, method):
        groups = _groups(run)
        if len(groups) > 1:
            first, last = groups[min(groups)], groups[max(groups)]
            found.append((first - last) / (first if relative else 1))
    return found


SECTION = Section(
    "Largest logits by learned epoch",
    "ghosh2022 App. M, Fig. 34: with AdaFocal, training rows learned early and late differ more in their largest "
    "logit than with cross-entropy or FLSD-53. A group are the rows that are right since an epoch in its span; "
    "the numbers are means of the largest logit at the end, and the spread is the first group's minus the last "
    "one's.",
    _tell,
)
