"""Training and validation confidence by bin: how far they move together, and the figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import StatisticsError, correlation, fmean
from typing import TypeAlias

from reproduction.labels import bullets, how_many, method_name, spread, table
from reproduction.pages.dynamics.drawing import LOOKS, Drawing, Line
from reproduction.pages.dynamics.records import bin_series, bins, monitored, with_ce
from reproduction.pages.dynamics.section import Section
from reproduction.result_files import Evidence, RunEvidence

_LOSSES = ("ce", "fl-3", "flsd-53", "adafocal")
# Epochs trained, bin, training confidence of the true class and validation confidence.
_Point: TypeAlias = "tuple[int, int, float, float]"


def _tell(evidence: Evidence) -> Iterator[str]:
    methods = [method for method in _LOSSES if any(map(_points, monitored(evidence, method)))]
    if methods:
        yield table(
            ["loss", "correlation", "within bins", "validation - training, points", "empty bins"],
            (_row(evidence, method) for method in methods),
        )
        yield bullets([_same_direction(evidence)])


def _points(run: RunEvidence) -> list[_Point]:
    """The points where both confidences are there.

    The monitor gives 0 to bins without training rows; they are left out.
    """
    records = zip(run.dynamics["epoch"], bins(run, "train_true"), bins(run, "val_confidence"), strict=False)
    return [
        (epoch + 1, place, left, right)
        for epoch, train, val in records
        for place, (left, right) in enumerate(zip(train or [], val or [], strict=False))
        if left and right is not None
    ]


def _row(evidence: Evidence, method: str) -> list[str]:
    runs = monitored(evidence, method)
    found = [points for run in runs if (points := _points(run))]
    overall = [each for points in found if (each := _correlation([point[2:] for point in points])) is not None]
    within = [each for points in found if (each := _correlation(_without_bins(points))) is not None]
    gaps = [100 * fmean(right - left for _, _, left, right in points) for points in found]
    return [method_name(method), spread(overall), spread(within), spread(gaps, 1), str(sum(map(_empty, runs)))]


def _empty(run: RunEvidence) -> int:
    """Bins without training rows, over all records."""
    return sum(value == 0 for record in bins(run, "train_true") for value in record or [])


def _correlation(points: Sequence[tuple[float, float]]) -> float | None:
    try:
        return correlation(*zip(*points, strict=True)) if len(points) > 1 else None
    except StatisticsError:  # all alike
        return None


def _without_bins(points: Sequence[_Point]) -> list[tuple[float, float]]:
    """Confidences without the mean of their bin: what is left is the change over epochs."""
    means = {}
    for place in {point[1] for point in points}:
        members = [point[2:] for point in points if point[1] == place]
        means[place] = tuple(fmean(column) for column in zip(*members, strict=True))
    return [(left - means[place][0], right - means[place][1]) for _, place, left, right in points]


def _same_direction(evidence: Evidence) -> str:
    """Whether both confidences fall when gamma goes from 0 to 3 [ghosh2022, Sec. 4]."""
    falls = []
    for plain, run in with_ce(evidence, "fl-3"):
        before, after = _last(plain), _last(run)
        falls += [
            (after[place][0] < before[place][0], after[place][1] < before[place][1])
            for place in before
            if place in after
        ]
    if not falls:
        return ""
    return (
        "From cross-entropy to FL-3 of the same seed, at the last record: training and validation confidence both fall "
        f"in {how_many([train and val for train, val in falls], 'bins')}, and change in the same direction in "
        f"{how_many([train == val for train, val in falls], 'bins')}."
    )


def _last(run: RunEvidence) -> dict[int, tuple[float, float]]:
    """Both confidences by bin at the last record."""
    points = _points(run)
    return {place: (left, right) for done, place, left, right in points if done == points[-1][0]}


def _lines(share: float) -> list[Line]:
    """Training confidence, drawn through, and validation confidence, dashed."""
    lines = []
    for method in _LOSSES:
        colour, _, marker = LOOKS[method]
        for name, line, words in (("train_true", "-", "training"), ("val_confidence", "--", "validation")):
            values = partial(bin_series, name=name, share=share)
            lines.append(Line(method, values, f"{method_name(method)}, {words}", (colour, line, marker)))
    return lines


SECTION = Section(
    "Training and validation confidence by bin",
    "ghosh2022 Fig. 2: in a validation bin, the training confidence of the true class and the validation "
    "confidence move together. The correlation is over all bins and records of a run; within bins, the mean of "
    "each bin is taken off first.",
    _tell,
    (
        Drawing(
            "confidence",
            {
                f"confidence,\n{words} bin": _lines(share)
                for share, words in ((0, "first"), (0.5, "middle"), (1, "last"))
            },
            "Training confidence of the true class and validation confidence in the first, middle and last validation "
            "bin by epoch",
            "Training confidence of the true class and validation confidence by bin, after ghosh2022 Fig. 2.",
        ),
    ),
)
