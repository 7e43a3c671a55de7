"""Every measure of one set of predictions at once: of arrays and of streams, as a whole or by groups."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins
from focalcal.core.checks import Array, ArrayLike, require, require_whole, to_array
from focalcal.core.score_kinds import GivenKind
from focalcal.metrics.prediction_set import RowMean
from focalcal.metrics.summary import Summary
from focalcal.metrics.table import MEASURES, Measure, MeasureValues, measure_means
from focalcal.predictions.arrays import Chunk, Predictions
from focalcal.predictions.stream import Batch, Stream

__all__ = ["Evaluation", "GroupedEvaluation", "evaluate"]

SCHEMA = 1
# With fewer rows, the accuracy of a bin is uncertain by more than 10 points or so.
_FEW_ROWS = 50
# What is shown of each group.
_SHOWN = ("accuracy", "mean_confidence", "nll", "ece", "ada_ece", "classwise_ece")
# As many class names stand in the title.
_NAMES_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(MeasureValues):
    """Every measure of one set of predictions, with what it takes to understand the numbers.

    Each measure of the table is an attribute, and an item by its name. Undefined numbers are None: the entropy of wrong
    predictions where there are none, top-5 accuracy of fewer than five classes, the classwise error where it was not
    asked for. `definitions` says in words what each number is, `warnings` which ones are not to be trusted. `bins` are
    the equal-width bins of `ece`, `equal_mass_bins` those of `ada_ece`. `class_names` has the names of the classes in
    the order of their numbers, if labels were text or scores a data frame with named columns.

    >>> from focalcal import evaluate
    >>> result = evaluate([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
    >>> result.n, round(result.accuracy, 4), round(result["ece"], 4), result.definitions["ece"]
    (3, 0.6667, 0.1938, 'ECE, top label, 15 equal-width bins, l1')
    """

    n: int
    num_classes: int
    num_bins: int
    kind: str
    values: Mapping[str, float | None]
    bins: Bins
    equal_mass_bins: Bins
    warnings: tuple[str, ...] = ()
    definitions: dict[str, str] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None

    if not TYPE_CHECKING:  # types know the names of the table

        def __getattr__(self, name: str) -> Any:
            """A measure by its name."""
            values = self.__dict__.get("values", {})
            if name not in values:
                raise AttributeError(f"This evaluation has no {name!r}; it has {', '.join(values)}.")
            return values[name]

    def __getitem__(self, name: str) -> float | None:
        """A measure by its name."""
        require(name in self.values, "name", f"must be one of {', '.join(self.values)}", repr(name))
        return self.values[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.values]

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in ("n", "num_classes", "num_bins", "kind")}
        shown |= {**self.values, "warnings": self.warnings}
        return f"Evaluation({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, with a schema version."""
        plain: dict[str, Any] = {"schema": SCHEMA}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "values":
                plain |= value
            elif each.name == "class_names":  # left out where there are none
                plain |= {} if value is None else {"class_names": list(value)}
            else:
                plain[each.name] = _bins_to_dict(value) if isinstance(value, Bins) else value
        return plain | {"warnings": list(self.warnings), "definitions": dict(self.definitions)}

    @staticmethod
    def from_dict(plain: dict[str, Any]) -> Evaluation:
        """The evaluation that `to_dict` described."""
        known = plain.get("schema") == SCHEMA
        require(
            known, "evaluation", f"must have schema {SCHEMA}", plain.get("schema"), "It was written by another version."
        )
        own = {each.name: plain[each.name] for each in fields(Evaluation) if each.name not in ("values", "class_names")}
        values = {name: value for name, value in plain.items() if name not in {*own, "schema", "class_names"}}
        names = plain.get("class_names")
        for name in ("bins", "equal_mass_bins"):
            own[name] = Bins(**{key: torch.tensor(column, dtype=torch.float64) for key, column in own[name].items()})
        own |= {"warnings": tuple(own["warnings"]), "class_names": None if names is None else tuple(names)}
        return Evaluation(values=values, **own)

    def to_json(self, *, indent: int | None = 2) -> str:
        """`to_dict` as JSON; an infinite NLL is written as a string, which JSON has no number for."""
        plain = {
            name: str(value) if isinstance(value, float) and math.isinf(value) else value
            for name, value in self.to_dict().items()
        }
        return json.dumps(plain, indent=indent, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Evaluation:
        """The evaluation that `to_json` wrote."""
        return Evaluation.from_dict(
            {name: float("inf") if value == "inf" else value for name, value in json.loads(text).items()}
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evaluation) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def rows(self) -> list[tuple[str, str]]:
        """Name and formatted value of each measure, for tables."""
        return [(name, _shown(value)) for name, value in self.values.items()]

    def _head(self) -> str:
        named = "" if self.class_names is None else f" ({_numbered(self.class_names)})"
        return f"{self.n:,} rows, {self.num_classes:,} classes{named}, {self.num_bins} bins"

    def __rich__(self) -> Any:
        from rich.table import Table

        title = self._head()
        table = Table("measure", "value", "what it is", title=title, caption="\n".join(self.warnings) or None)
        table.columns[1].justify = "right"
        for name, value in self.rows():
            table.add_row(name, value, self.definitions.get(name, ""))
        return table

    def __str__(self) -> str:
        lines = [f"  {name:22s} {value:>8s}  {self.definitions.get(name, '')}".rstrip() for name, value in self.rows()]
        return "\n".join([self._head(), *lines, *(f"  warning: {warning}" for warning in self.warnings)])

    def plot(self, ax: Any = None) -> Any:
        """A reliability diagram: accuracy against confidence, one bar per bin, with 95 % bands of the accuracy.

        The gap between confidence and accuracy is hatched, the range in which accuracies of a perfectly calibrated
        model would lie is shaded, and the share of rows of each bin is shown below. Draws into `ax`, or into a new
        figure; returns the axes. Needs matplotlib: `pip install focalcal[plots]`.
        """
        from focalcal.drawing.reliability import draw_reliability, measured_title
        from focalcal.metrics.reliability import bars_of, chance_band

        title = measured_title(self.ece, self.accuracy, self.mean_confidence)
        bars = bars_of(self.bins, chance=chance_band(self.bins))
        return draw_reliability(bars, histogram=bars, title=title, ax=ax)

    def _repr_html_(self) -> str:
        from html import escape

        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:right'>{value}</td>"
            f"<td style='text-align:left'>{escape(self.definitions.get(name, ''))}</td></tr>"
            for name, value in self.rows()
        )
        notes = "".join(f"<li>{escape(warning)}</li>" for warning in self.warnings)
        return f"<table><caption>{escape(self._head())}</caption>{cells}</table>" + (
            f"<ul>{notes}</ul>" if notes else ""
        )


@dataclass(frozen=True, eq=False)
class GroupedEvaluation(Mapping[str, Evaluation]):
    """The evaluation of each group of rows by its name, in order of the names, and that of all rows together.

    >>> logits, labels = [[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1]
    >>> found = evaluate(logits, labels, by=["en", "de", "de"])
    >>> {name: each.accuracy for name, each in found.items()}, found.overall.n
    ({'de': 0.5, 'en': 1.0}, 3)
    """

    by: str
    overall: Evaluation
    groups: Mapping[str, Evaluation]

    def __getitem__(self, group: str) -> Evaluation:
        return self.groups[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        groups = {name: evaluation.to_dict() for name, evaluation in self.groups.items()}
        return {"by": self.by, "overall": self.overall.to_dict(), "groups": groups}

    def rows(self) -> list[list[str]]:
        """The table of a few measures, one row per group and one for all, its head first."""
        named = [*self.groups.items(), ("all", self.overall)]
        values = [[name, f"{each.n:,}", *(_shown(getattr(each, m)) for m in _SHOWN)] for name, each in named]
        return [[self.by, "rows", *_SHOWN], *values]

    def __rich__(self) -> Any:
        from rich.table import Table

        head, *rows = self.rows()
        table = Table(*head, title=f"{self.overall.n:,} rows in {len(self.groups):,} groups")
        for column in table.columns[1:]:
            column.justify = "right"
        for row in rows:
            table.add_row(*row)
        return table

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = (
            row[0].ljust(widths[0])
            + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
            for row in rows
        )
        return "\n".join(lines)


def _numbered(names: tuple[str, ...]) -> str:
    """The first names of classes with their numbers."""
    said = ", ".join(f"{k} {name}" for k, name in enumerate(names[:_NAMES_SHOWN]))
    return said + (", ..." if len(names) > _NAMES_SHOWN else "")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


@overload
def evaluate(
    scores: ArrayLike | Stream,
    labels: ArrayLike | None = ...,
    *,
    kind: GivenKind = ...,
    num_bins: int = ...,
    classwise: bool = ...,
    sample_weight: ArrayLike | None = ...,
    ignore_index: int | None = ...,
    class_axis: int = ...,
    class_names: Sequence[str] | None = ...,
    by: None = ...,
    engine: str | None = ...,
) -> Evaluation: ...


@overload
def evaluate(
    scores: ArrayLike | Stream,
    labels: ArrayLike | None = ...,
    *,
    kind: GivenKind = ...,
    num_bins: int = ...,
    classwise: bool = ...,
    sample_weight: ArrayLike | None = ...,
    ignore_index: int | None = ...,
    class_axis: int = ...,
    class_names: Sequence[str] | None = ...,
    by: str | ArrayLike,
    engine: str | None = ...,
) -> GroupedEvaluation: ...


def evaluate(
    scores: ArrayLike | Stream,
    labels: ArrayLike | None = None,
    *,
    kind: GivenKind = "logits",
    num_bins: int = 15,
    classwise: bool = True,
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    class_axis: int = 1,
    class_names: Sequence[str] | None = None,
    by: str | ArrayLike | None = None,
    engine: str | None = None,
) -> Evaluation | GroupedEvaluation:
    """Every measure at once, from one chunked pass over the scores.

    where `scores` and `labels` are read as by `read`. Beyond its input it takes 4 bytes per row for float32 scores (8
    for float64, 8 more with weights) and some temporaries; `classwise=False` saves the pass over all classes.

    A `focalcal.files.PredictionStream` in place of the scores brings its labels, weights and kind along. It is read
    once, in memory that does not grow with it: beyond `stream.memory` a histogram takes the place of the confidences,
    and `warnings` says how far `ada_ece` can be off. `engine="ray"` reads it on a Ray cluster.

    `by`, the group of each row (N,) or the name of a stream's column, gives every measure of every group in the same
    pass, as a `GroupedEvaluation`.

    >>> evaluation = evaluate([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1])
    >>> round(evaluation.accuracy, 3), round(evaluation.ece, 3), evaluation.n
    (0.667, 0.299, 3)
    >>> evaluate([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1], by=["en", "de", "en"])["en"].accuracy
    1.0
    """
    require_whole(num_bins, "num_bins", 1)
    names: tuple[str, ...] | None = None
    if isinstance(scores, Stream):
        own = labels is None and sample_weight is None and ignore_index is None and class_names is None
        rule = "must be left out with a stream, which brings its own"
        require(own and class_axis == 1, "labels", rule, "labels, weights, ignore_index, class_axis or class_names")
        require(by is None or isinstance(by, str), "by", "must name a column of the stream", type(by).__name__)
        summarise = _summarise(num_bins, classwise, scores.most_rows)
        summaries = scores.on(engine).reduce(summarise, _merged, by=by)  # type: ignore[arg-type]
        require(bool(summaries), scores.name, "must have a row that counts", "none", "Check the split and the files.")
    else:
        require(engine is None, "engine", "is for streams; arrays are read where they are", repr(engine))
        require(labels is not None, "labels", "must be given with scores", "none")
        predictions = Predictions(
            scores,
            labels,
            kind=kind,
            sample_weight=sample_weight,
            ignore_index=ignore_index,
            class_axis=class_axis,
            class_names=class_names,
        )
        names = predictions.class_names
        fix = "Leave those rows out before."
        require(by is None or ignore_index is None, "by", "does not go with ignore_index", ignore_index, fix)
        groups = None if by is None else _names_of_groups(by, predictions.num_rows)
        summaries = _summarise(num_bins, classwise)(iter([Batch("scores", predictions, groups)]))
    if by is None:
        return evaluation_of(summaries[_ALL], names)
    together = functools.reduce(Summary.merge, summaries.values())
    each = {name: evaluation_of(summaries[name], names) for name in sorted(summaries)}
    return GroupedEvaluation(by if isinstance(by, str) else "group", evaluation_of(together, names), each)


# The one group where nothing is asked for by groups: no name is empty.
_ALL = ""


def _summarise(num_bins: int, classwise: bool, most_rows: int | None = None) -> Any:
    """The function from batches to the summary of each group, with the means that the table asks for."""
    return functools.partial(
        _summaries, means=measure_means(), num_bins=num_bins, classwise=classwise, most_rows=most_rows
    )


def _summaries(batches: Iterator[Batch], *, means: Sequence[RowMean], **options: Any) -> dict[str, Summary]:
    """The summary of every group in some batches."""
    summaries: dict[str, Summary] = {}
    for batch in batches:
        start = 0
        for chunk in batch.chunks():
            groups = None if batch.groups is None else batch.groups[start : start + len(chunk.labels)]
            start += len(chunk.labels)
            for name, part in _parts(chunk, groups):
                if name not in summaries:
                    known = batch.predictions
                    summaries[name] = Summary(known.num_classes, known.kind, means=means, **options)
                summaries[name].update(part)
    return summaries


def _parts(chunk: Chunk, groups: Array | None) -> Iterator[tuple[str, Chunk]]:
    """The rows of each group in a chunk."""
    if groups is None:
        yield _ALL, chunk
        return
    names, code = np.unique(groups, return_inverse=True)
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(np.bincount(code))
    for name, rows in zip(names, np.split(order, ends[:-1]), strict=True):
        yield str(name), chunk.take(torch.from_numpy(rows).to(chunk.labels.device))


def _merged(one: dict[str, Summary], other: dict[str, Summary]) -> dict[str, Summary]:
    both = {name: summary.merge(other[name]) if name in other else summary for name, summary in one.items()}
    return both | {name: summary for name, summary in other.items() if name not in one}


def _names_of_groups(by: Any, num_rows: int) -> Array:
    """The names of the groups of rows (N,)."""
    given = to_array(by, "by")
    require(given.shape == (num_rows,), "by", f"must have shape {(num_rows,)}", given.shape)
    return given.astype(str)


def evaluation_of(summary: Summary, class_names: tuple[str, ...] | None = None) -> Evaluation:
    """Each measure of the table, computed from a summary."""
    measured = {name: _measured(measure, summary) for name, measure in MEASURES.items() if measure.in_evaluate}
    values = {name: None if value is None or math.isnan(value) else float(value) for name, value in measured.items()}
    fewer = summary.most_bins(summary.num_bins)
    bins, equal_mass = summary.bins(summary.num_bins, "equal_width"), summary.bins(fewer, "equal_mass")
    absent = [class_names[k] if class_names else str(k) for k in np.flatnonzero(summary.label_counts <= 0)]
    warnings = _warnings(bins, equal_mass, summary.num_bins, absent, summary.num_classes, values["nll"])
    return Evaluation(
        n=summary.num_rows,
        num_classes=summary.num_classes,
        num_bins=summary.num_bins,
        kind=summary.kind,
        values=values,
        bins=bins,
        equal_mass_bins=equal_mass,
        warnings=(*warnings, *_of_histogram(summary, fewer)),
        definitions={
            name: getattr(value, "definition", MEASURES[name].label)
            for name, value in measured.items()
            if value is not None
        },
        class_names=class_names,
    )


def _measured(measure: Measure, summary: Summary) -> Any:
    """The value of a measure, None where it is undefined."""
    rows = summary.classwise if measure.reads == ("classes",) else summary
    if rows is None or summary.num_classes < measure.least_classes:
        return None
    return measure.of(rows, summary.num_bins)


def _warnings(
    bins: Bins, equal_mass: Bins, num_bins: int, absent: list[str], num_classes: int, nll: float | None
) -> tuple[str, ...]:
    """What a reader should know before trusting the numbers."""
    found = []
    thin = int(((bins.count > 0) & (bins.count < _FEW_ROWS)).sum())
    if thin:
        found.append(f"{thin} of {num_bins} equal-width bins hold fewer than {_FEW_ROWS} rows: mce rests on few rows.")
    if float(equal_mass.count.min()) < _FEW_ROWS:
        found.append(f"Bins of equal mass hold fewer than {_FEW_ROWS} rows each: ada_ece is biased upwards.")
    if len(equal_mass.count) < num_bins:
        found.append(
            f"There are only {len(equal_mass.count)} rows: that many bins of equal mass instead of {num_bins}."
        )
    if absent:
        named = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
        found.append(f"{len(absent)} of {num_classes} classes do not occur in the labels: {named}.")
    if nll is not None and math.isinf(nll):
        found.append("Some label has probability 0: nll is infinite.")
    return tuple(found)


def _of_histogram(summary: Summary, num_bins: int) -> list[str]:
    """What a histogram of confidences means for the measures that need their order."""
    kept = summary.confidences
    if kept is None or kept.exact:
        return []
    bound = kept.error_bound(num_bins)
    return [
        f"Confidences of {kept.num_rows:,} rows are kept as a histogram of 65,536 cells: ada_ece is within {bound:.1g} "
        "of exact; ece_debiased, ece_sweep, smooth_ece, ks_error, mmce, aurc and auroc_correctness rest on it, too."
    ]


def _bins_to_dict(bins: Bins) -> dict[str, list[float]]:
    columns: dict[str, Tensor] = {each.name: getattr(bins, each.name) for each in fields(bins)}
    return {name: column.tolist() for name, column in columns.items()}
