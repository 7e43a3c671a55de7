"""Runs compared: after the drop of the learning rate, and focal loss with cross-entropy; and the words for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from reproduction.labels import how_many, method_name
from reproduction.pages.dynamics.records import GAMMAS, series, with_ce
from reproduction.result_files import Evidence, RunEvidence

# Two numbers of every run.
Pairs: TypeAlias = "list[tuple[float, float]]"
# Runs, each with the epoch of its first drop of the learning rate.
Dropped: TypeAlias = "Sequence[tuple[RunEvidence, int]]"


def after(runs: Dropped, name: str) -> Pairs:
    """A series at the first record after the drop and at the last one, of every run that has two."""
    found = ([value for done, value in series(run, name).items() if done > drop] for run, drop in runs)
    return [(values[0], values[-1]) for values in found if len(values) > 1]


def rise(run: RunEvidence, name: str, drop: int) -> float | None:
    """How much a series changes from the first record after the drop to the last one."""
    return next((last - first for first, last in after([(run, drop)], name)), None)


def rises(runs: Dropped, one: str, other: str) -> Pairs:
    """How much two series change after the drop, of every run that has both."""
    return _known((rise(run, one, drop), rise(run, other, drop)) for run, drop in runs)


def beside_ce(evidence: Evidence, value: Callable[[RunEvidence], float | None]) -> Pairs:
    """A number of cross-entropy and of focal loss with the same seed, of every focal run that has both."""
    runs = (pair for method in GAMMAS[1:] for pair in with_ce(evidence, method))
    return _known((value(plain), value(focal)) for plain, focal in runs)


def _known(pairs: Iterable[tuple[float | None, float | None]]) -> Pairs:
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def risen(pairs: Pairs, sign: int = 1) -> str:
    """In how many runs the second number is above the first, or below it, `sign` -1."""
    return how_many([sign * (end - start) > 0 for start, end in pairs])


def from_to(pairs: Pairs, digits: int = 3) -> str:
    """Two numbers of every run, averaged.

    >>> from_to([(1.0, 2.0), (2.0, 4.0)])
    '1.500 to 3.000 on average'
    """
    start, end = (fmean(column) for column in zip(*pairs, strict=True))
    return f"{start:.{digits}f} to {end:.{digits}f} on average"


def against(pairs: Pairs, digits: int = 3) -> str:
    """The same of two losses, where the first is the one that the other is compared with.

    >>> against([(1.0, 2.0), (2.0, 4.0)])
    '3.000 against 1.500 on average'
    """
    plain, focal = (fmean(column) for column in zip(*pairs, strict=True))
    return f"{focal:.{digits}f} against {plain:.{digits}f} on average"


def order(values: Mapping[str, Sequence[float]]) -> str:
    """Methods by the mean of a number over seeds, the largest first; nothing if fewer than two have it.

    >>> order({"ce": [1.0], "fl-1": [2.0, 3.0], "fl-2": []})
    'FL-1 > cross-entropy'
    """
    means = {method: fmean(found) for method, found in values.items() if found}
    names = [method_name(method) for method in sorted(means, key=lambda each: -means[each])]
    return " > ".join(names) if len(names) > 1 else ""
