"""Cross-entropy by epoch: the table around the drop of the learning rate, its sentences and its figure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from focalcal.drawing import BLACK, BLUE, GREEN, PURPLE, VERMILION
from reproduction.labels import bullets, how_many, spread, table
from reproduction.pages.dynamics.compare import Dropped, after, from_to, risen, rises
from reproduction.pages.dynamics.drawing import Drawing, Line, Look, line_of
from reproduction.pages.dynamics.records import SERIES, ends, monitored, series, with_drop
from reproduction.pages.dynamics.section import Section
from reproduction.result_files import Evidence, RunEvidence

_SERIES = tuple(SERIES)[:7]  # up to ECE


def _tell(evidence: Evidence) -> Iterator[str]:
    runs = with_drop(evidence, "ce")
    if not runs:
        if monitored(evidence, "ce"):
            yield "The learning rate has no drop here, so nothing is compared before and after it."
        return
    yield table(
        ["cross-entropy", "first record", "last before the drop", "first after it", "last record", "rises after it"],
        (row for name in _SERIES if (row := _row(runs, name))),
    )
    yield bullets(_sentences(runs))


def _row(runs: Dropped, name: str) -> list[str]:
    heading, factor, digits = SERIES[name]
    columns = zip(*(_moments(run, name, drop) for run, drop in runs), strict=True)
    found = [[factor * value for value in column if value is not None] for column in columns]
    if not any(found):
        return []
    pairs = after(runs, name)
    return [heading, *(spread(column, digits) for column in found), risen(pairs) if pairs else ""]


def _moments(run: RunEvidence, name: str, drop: int) -> list[float | None]:
    """A series at the first record, the last one before the drop, the first one after it, and the last one."""
    values = series(run, name)
    before = [value for done, value in values.items() if done <= drop]
    later = [value for done, value in values.items() if done > drop]
    found = ([*before, *later][:1], before[-1:], later[:1], later[-1:])
    return [each[0] if each else None for each in found]


def _sentences(runs: Dropped) -> Iterator[str]:
    test, train = (after(runs, name) for name in ("test_nll", "train_nll"))
    if test and train:
        yield (
            f"From the first record after the drop to the last one, test NLL rises in {risen(test)} "
            f"({from_to(test)}) and train NLL falls in {risen(train, -1)} ({from_to(train)})."
        )
    yield _in_wrong_only(runs)
    yield _ece_with_nll(runs)
    for rows in ("correct", "wrong"):
        name = f"test_entropy_{rows}"
        if pairs := [each for run, _ in runs if (each := ends(run, name))]:
            yield (
                f"The entropy of {rows} test rows is lower at the last record than at the first in "
                f"{risen(pairs, -1)} ({from_to(pairs)}), and lower at every record than at the one before in "
                f"{how_many([_falls_throughout(run, name) for run, _ in runs])}."
            )


def _in_wrong_only(runs: Dropped) -> str:
    found = rises(runs, "test_nll_wrong", "test_nll_correct")
    if not found:
        return ""
    wrong, right = (from_to(after(runs, name)) for name in ("test_nll_wrong", "test_nll_correct"))
    return (
        f"NLL rises on wrong test rows ({wrong}) and not on correct ones ({right}) in "
        f"{how_many([rise > 0 >= other for rise, other in found])}."
    )


def _ece_with_nll(runs: Dropped) -> str:
    found = rises(runs, "test_ece", "test_nll")
    if not found:
        return ""
    shares = [(100 * start, 100 * end) for start, end in after(runs, "test_ece")]
    return (
        f"Test ECE rises in {how_many([ece > 0 for ece, _ in found])} ({from_to(shares, 2)}, in percent), and "
        f"together with test NLL in {how_many([ece > 0 and nll > 0 for ece, nll in found])}."
    )


def _falls_throughout(run: RunEvidence, name: str) -> bool:
    return all(later < before for before, later in pairwise(series(run, name).values()))


def _lines(looks: dict[str, tuple[str, Look]]) -> list[Line]:
    return [line_of("ce", name, words, look) for name, (words, look) in looks.items()]


SECTION = Section(
    "Cross-entropy by epoch",
    "mukhoti2020 Fig. 2: after the first drop of the learning rate, test NLL and ECE rise while train NLL falls, "
    "the rise comes from wrong rows only, and entropy falls throughout.",
    _tell,
    (
        Drawing(
            "cross_entropy",
            {
                "NLL": _lines(
                    {
                        "train_nll": ("train NLL", (BLUE, "--", "s")),
                        "test_nll": ("test NLL", (VERMILION, "-", "o")),
                    }
                ),
                "test NLL": _lines(
                    {
                        "test_nll_correct": ("correct test rows", (GREEN, "-.", "^")),
                        "test_nll_wrong": ("wrong test rows", (PURPLE, ":", "D")),
                    }
                ),
                "ECE": _lines({"test_ece": ("test ECE", (BLACK, "-", "v"))}),
            },
            "Train and test NLL, test NLL of correct and wrong rows, and test ECE of cross-entropy by epoch",
            "Cross-entropy by epoch, after mukhoti2020 Fig. 2.",
        ),
    ),
)
