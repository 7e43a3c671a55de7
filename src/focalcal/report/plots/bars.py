"""One row for each class, confusion or version: bars and dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from focalcal import drawing
from focalcal.core.checks import ArrayLike, require
from focalcal.core.score_kinds import Kind
from focalcal.metrics import Estimate, bootstrap, read
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.metrics.prediction_set import PredictionSet
from focalcal.metrics.table import MEASURES
from focalcal.report import classes
from focalcal.report.contents import ClassTable, Confusions, Contents, Model
from focalcal.report.plots.scores_table import table_of

Comparable: TypeAlias = "Estimate | ArrayLike | PredictionSet"

# Inches that a row takes, and those of title and axis.
_ROW, _FRAME = 0.2, 0.95


def per_class(
    scores: ClassTable | ArrayLike,
    labels: ArrayLike | None = None,
    *,
    kind: Kind = "logits",
    class_names: Sequence[str] | None = None,
    num_bins: int = 15,
    sample_weight: ArrayLike | None = None,
    most: int = 15,
    title: str = "",
    ax: Any = None,
) -> Any:
    """The classes that are calibrated worst: bars are their classwise ECE, dots by how much they are said too often.

    A dot is the class's mean probability minus its share of the rows. At most `most` classes are shown, worst first.

    where `scores` and `labels` are as in `evaluate`, or `scores` is the `ClassTable` of a report.

    >>> table = ClassTable(2, ["cat", "dog"], [6, 4], [0.6, 0.4], [0.7, 0.3], [0.1, -0.1], [0.1, 0.1], [1.0, 0.5])
    >>> [text.get_text() for text in per_class(table).get_yticklabels()]
    ['cat', 'dog']
    """
    require(most >= 1, "most", "must be at least 1", most)
    found = scores
    if not isinstance(found, ClassTable):
        table = table_of(scores, labels, kind=kind, sample_weight=sample_weight, class_names=class_names)
        found = classes.class_table(table, classes.Decisions.of(table), classes.class_names(table), num_bins, most)
    worst = np.argsort(-np.array(found.ece), kind="stable")[:most]
    error, gap = (np.array(column, dtype=float)[worst] for column in (found.ece, found.gap))
    names = [drawing.shown(found.name[k]) for k in worst]
    ours, ax = ax is None, _axes(ax, len(names) + 1)
    place = np.arange(len(names))
    bars = ax.barh(place, error, height=0.7, color=drawing.PALE_BLUE)
    (dots,) = ax.plot(gap, place, "o", color=drawing.VERMILION, markersize=3.5, clip_on=False)
    ax.axvline(0, color=drawing.GREY, linewidth=0.8)
    drawing.rows_of_names(ax, names)
    drawing.percent(ax.xaxis, most=4)
    drawing.legend(ax, [bars, dots], ["classwise ECE", "said minus true share"], under=ours, loc="best")
    note = f"worst {len(names)} of {found.num_classes} classes" if len(names) < found.num_classes else ""
    drawing.style(ax, title=_lines(title, note), xlabel="share of all rows", side="right")
    return ax


def confusions(
    scores: Confusions | ArrayLike,
    labels: ArrayLike | None = None,
    *,
    kind: Kind = "logits",
    class_names: Sequence[str] | None = None,
    most: int = 15,
    title: str = "",
    ax: Any = None,
) -> Any:
    """The most frequent confusions among confident errors, with their mean confidence.

    where `scores` and `labels` are as in `evaluate`, or `scores` are the `Confusions` of a report; they say what
    confident is. There are at most 15.

    >>> ax = confusions(Confusions(0.9, 3, ["cat", "dog"], ["dog", "cat"], [2, 1], [0.95, 0.93]))
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['cat → dog', 'dog → cat']
    """
    require(most >= 1, "most", "must be at least 1", most)
    pairs = scores
    if not isinstance(pairs, Confusions):
        table = table_of(scores, labels, kind=kind, class_names=class_names)
        rows = read(table.scores, classes.labels_of(table), kind=kind, columns=("confidence",))
        assert isinstance(rows, PredictedRows)
        pairs = classes.confusions(classes.Decisions.of(table), rows.column("confidence"), classes.class_names(table))
    shown = list(zip(pairs.true, pairs.predicted, pairs.count, pairs.mean_confidence, strict=True))[:most]
    names = [drawing.arrow(true, predicted) for true, predicted, _, _ in shown]
    ax = _axes(ax, len(names))
    for place, (_, _, count, sure) in enumerate(shown):
        ax.barh(place, count, height=0.7, color=drawing.PALE_BLUE)
        ax.annotate(f"{100 * sure:.4g}%", (count, place), (2, 0), textcoords="offset points", va="center", fontsize=6)
    ax.margins(x=0.15)
    drawing.rows_of_names(ax, names)
    ax.xaxis.get_major_locator().set_params(integer=True)
    if not shown:
        ax.set_xticks([])
        ax.text(0.5, 0.5, "no confident errors", transform=ax.transAxes, ha="center", fontsize=8)
    note = f"true → predicted class of {pairs.total:,} errors\nwith a confidence from {100 * pairs.threshold:.4g}%"
    drawing.style(ax, title=_lines(title, note), xlabel="rows (beside: mean confidence)", side="right")
    return ax


def compare_versions(
    versions: Contents | Model | Mapping[str, Comparable],
    labels: ArrayLike | None = None,
    *,
    measure: str = "ece",
    kind: Kind = "logits",
    level: float = 0.95,
    num_resamples: int = 1000,
    seed: int = 0,
    sample_weight: ArrayLike | None = None,
    title: str = "",
    ax: Any = None,
) -> Any:
    """A measure of each version of a model, or of several models, with its interval.

    where `versions` are those of a report or of one of its models, or by their names: intervals that
    `metrics.bootstrap` gave, or scores or rows, which are then resampled. Each model has its colour.

    >>> ax = compare_versions({"before": Estimate(0.08, 0.07, 0.09), "after": Estimate(0.02, 0.01, 0.03)})
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['before', 'after']
    """
    certainty = {"level": level, "num_resamples": num_resamples, "seed": seed}
    reading = {"kind": kind, "sample_weight": sample_weight}
    numbers = _numbers(versions, measure, certainty, {"labels": labels, **reading})
    require(len(numbers) > 0, "versions", f"must have at least one version with {measure}", "none")
    ax = _axes(ax, len(numbers))
    for place, (_, number, colour) in enumerate(numbers):
        value, low, high = (np.nan if end is None else float(end) for end in (number.value, number.low, number.high))
        ax.plot([low, high], [place, place], "|-", color=colour, linewidth=1.2, markersize=5)
        ax.plot(value, place, "o", color=colour, markersize=3.5)
    drawing.rows_of_names(ax, [name for name, _, _ in numbers])
    if MEASURES[measure].unit == "%":
        drawing.percent(ax.xaxis, most=5)
    if measure.endswith("ece"):
        ax.set_xlim(left=0)
    ax.grid(axis="x", color=drawing.GRID)
    drawing.style(ax, title=title, xlabel=MEASURES[measure].label)
    return ax


def _axes(ax: Any, rows: int) -> Any:
    return drawing.axes_or_new(ax, height=_FRAME + _ROW * max(rows, 2))


def _lines(*lines: str) -> str:
    return "\n".join(filter(None, lines))


def _numbers(
    versions: Any, measure: str, certainty: dict[str, Any], reading: dict[str, Any]
) -> Sequence[tuple[str, Estimate, str]]:
    """Names, numbers and colours; each model has its colour."""
    if isinstance(versions, (Contents, Model)):
        models = versions.models if isinstance(versions, Contents) else [versions]
        return [
            (_version_name(model, version.name, len(models) > 1), version.numbers[measure], colour)
            for model, colour in zip(models, drawing.PALETTE * len(models), strict=False)
            for version in model.versions
            if measure in version.numbers
        ]
    found = []
    for name, one in versions.items():
        if not isinstance(one, Estimate):
            one = bootstrap(measure, one, **certainty, **({} if isinstance(one, PredictionSet) else reading))
        found.append((drawing.shown(name, 28), one, drawing.BLUE))
    return found


def _version_name(model: Model, version: str, several: bool) -> str:
    version = drawing.shown(version, 20)
    return f"{drawing.shown(model.name, 18)}, {version}" if several else version
