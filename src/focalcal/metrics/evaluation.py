"""All measures of one set of predictions, from one pass over its scores."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, bin_norm
from focalcal.core.inputs import ArrayLike, require
from focalcal.core.predictions import Kind, Predictions
from focalcal.core.ranking import Array
from focalcal.core.reader import ChunkReader
from focalcal.metrics import calibration, ranked
from focalcal.metrics import scores as score_measures
from focalcal.metrics.classes import ClassBinSums
from focalcal.metrics.rows import COLUMNS, Measured
from focalcal.metrics.summary import SCORES, Summary

SCHEMA = 1
# With fewer rows, the accuracy of a bin is uncertain by more than 10 points or so.
_FEW_ROWS = 50


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every measure of one set of predictions, with what it takes to understand the numbers.

    Undefined numbers are None: the entropy of wrong predictions where there are none, top-5 accuracy of fewer than five
    classes, the classwise error where it was not asked for. `definitions` says in words what each number is, `warnings`
    which ones are not to be trusted. `bins` are the equal-width bins of `ece`, `equal_mass_bins` those of `ada_ece`.
    """

    n: int
    num_classes: int
    num_bins: int
    kind: str
    accuracy: float
    error: float
    nll: float
    brier: float
    brier_calibration: float
    brier_refinement: float
    mean_confidence: float
    entropy: float
    entropy_correct: float | None
    entropy_wrong: float | None
    ece: float
    rms_ce: float
    mce: float
    ada_ece: float
    classwise_ece: float | None
    ece_debiased: float
    ece_debiased_l1: float
    ece_sweep: float
    ece_sweep_equal_width: float
    smooth_ece: float
    ks_error: float
    mmce: float
    top_5_accuracy: float | None
    s99: float
    s99_accuracy: float | None
    aurc: float
    auroc_correctness: float | None
    bins: Bins = field(repr=False)
    equal_mass_bins: Bins = field(repr=False)
    warnings: tuple[str, ...] = ()
    definitions: dict[str, str] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, with a schema version."""
        plain: dict[str, Any] = {"schema": SCHEMA}
        for each in fields(self):
            value = getattr(self, each.name)
            plain[each.name] = _bins_to_dict(value) if isinstance(value, Bins) else value
        return plain | {"warnings": list(self.warnings), "definitions": dict(self.definitions)}

    @staticmethod
    def from_dict(plain: dict[str, Any]) -> Evaluation:
        """The evaluation that `to_dict` described."""
        known = plain.get("schema") == SCHEMA
        require(
            known, "evaluation", f"must have schema {SCHEMA}", plain.get("schema"), "It was written by another version."
        )
        values = {name: value for name, value in plain.items() if name != "schema"}
        for name in ("bins", "equal_mass_bins"):
            values[name] = Bins(
                **{key: torch.tensor(column, dtype=torch.float64) for key, column in values[name].items()}
            )
        return Evaluation(**values | {"warnings": tuple(values["warnings"])})

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
        shown = [(each.name, getattr(self, each.name)) for each in fields(self)]
        numbers = [(name, value) for name, value in shown if isinstance(value, float) or (value is None)]
        return [(name, "-" if value is None else f"{value:.4f}") for name, value in numbers]

    def __rich__(self) -> Any:
        from rich.table import Table

        title = f"{self.n:,} rows, {self.num_classes:,} classes, {self.num_bins} bins"
        table = Table("measure", "value", "what it is", title=title, caption="\n".join(self.warnings) or None)
        table.columns[1].justify = "right"
        for name, value in self.rows():
            table.add_row(name, value, self.definitions.get(name, ""))
        return table

    def __str__(self) -> str:
        head = f"{self.n:,} rows, {self.num_classes:,} classes, {self.num_bins} bins"
        lines = [f"  {name:22s} {value:>8s}  {self.definitions.get(name, '')}".rstrip() for name, value in self.rows()]
        return "\n".join([head, *lines, *(f"  warning: {warning}" for warning in self.warnings)])

    def plot(self, ax: Any = None) -> Any:
        """A reliability diagram: accuracy against confidence, one bar a bin, with 95 % bands of the accuracy.

        Hatched is what the model claims beyond what it keeps, or falls short of it; shaded is where accuracies of a
        perfectly calibrated model would lie; below stands how many rows a bin has. Draws into `ax`, or into a new
        figure; returns the axes. Needs matplotlib: `pip install focalcal[plots]`.
        """
        from focalcal.metrics.diagram import bars_of, chance_band, draw_reliability, measured_title

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
        head = f"{self.n:,} rows, {self.num_classes:,} classes, {self.num_bins} bins"
        return f"<table><caption>{head}</caption>{cells}</table>" + (f"<ul>{notes}</ul>" if notes else "")


def evaluate(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    kind: Kind = "logits",
    num_bins: int = 15,
    classwise: bool = True,
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
) -> Evaluation:
    """Every measure at once, from one chunked pass over the scores.

    where `scores` and `labels` are read as by `read`. Beyond its input it takes 4 bytes a row for float32 scores (8
    for float64, 8 more with weights) and some temporaries; `classwise=False` saves the pass over all classes.

    >>> evaluation = evaluate([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1])
    >>> round(evaluation.accuracy, 3), round(evaluation.ece, 3), evaluation.n
    (0.667, 0.299, 3)
    """
    require(isinstance(num_bins, int) and num_bins >= 1, "num_bins", "must be a whole number from 1", num_bins)
    predictions = Predictions(scores, labels, kind=kind, sample_weight=sample_weight, ignore_index=ignore_index)
    summary = Summary(predictions.num_classes, num_bins=num_bins, scores=SCORES)
    classes = ClassBinSums(predictions.num_classes, num_bins) if classwise else None
    present = np.zeros(predictions.num_classes, dtype=bool)
    for chunk in predictions.chunks():
        reader = ChunkReader(chunk, kind)
        summary.add(reader.columns(COLUMNS), chunk.weight)
        present |= torch.bincount(chunk.labels, minlength=len(present)).cpu().numpy() > 0
        if classes is not None:
            classes.add(reader.probs, chunk.labels, None if chunk.weight is None else torch.from_numpy(chunk.weight))
    return evaluation_of(summary, kind=kind, class_bins=None if classes is None else classes.bins(), present=present)


def evaluation_of(summary: Summary, *, kind: str, class_bins: Bins | None, present: Array) -> Evaluation:
    """The evaluation of rows that have been added up: every public measure, called on the summary.

    >>> summary = Summary(2, scores=SCORES)
    >>> one = {"confidence": [0.9], "correct": [True], "nll": [0.105], "brier": [0.02], "entropy": [0.3], "rank": [0]}
    >>> summary.add({name: np.array(column) for name, column in one.items()})
    >>> evaluation_of(summary, kind="logits", class_bins=None, present=np.array([True, True])).nll
    0.105
    """
    num_bins = summary.num_bins
    fewer = min(num_bins, summary.num_rows)  # bins of equal mass hold a row each
    parts = calibration.brier_decomposition(summary, num_bins=num_bins)
    entropies, sure = score_measures.entropy(summary), score_measures.s99(summary)
    measured: dict[str, Measured | None] = {
        "accuracy": score_measures.accuracy(summary),
        "error": score_measures.error(summary),
        "nll": score_measures.nll(summary),
        "brier": score_measures.brier(summary),
        "brier_calibration": parts.calibration,
        "brier_refinement": parts.refinement,
        "mean_confidence": score_measures.mean_confidence(summary),
        "entropy": entropies.overall,
        "entropy_correct": entropies.correct,
        "entropy_wrong": entropies.wrong,
        "ece": calibration.ece(summary, num_bins=num_bins),
        "rms_ce": calibration.ece(summary, num_bins=num_bins, norm="l2"),
        "mce": calibration.mce(summary, num_bins=num_bins),
        "ada_ece": calibration.ada_ece(summary, num_bins=fewer),
        "classwise_ece": None if class_bins is None else _classwise(class_bins),
        "ece_debiased": calibration.ece_debiased(summary, num_bins=fewer),
        "ece_debiased_l1": calibration.ece_debiased(summary, num_bins=fewer, norm="l1"),
        "ece_sweep": calibration.ece_sweep(summary),
        "ece_sweep_equal_width": calibration.ece_sweep(summary, edges="equal_width"),
        "smooth_ece": ranked.smooth_ece(summary),
        "ks_error": ranked.ks_error(summary),
        "mmce": ranked.mmce(summary),
        "top_5_accuracy": score_measures.top_k_accuracy(summary, k=5) if summary.num_classes >= 5 else None,
        "s99": sure.share,
        "s99_accuracy": sure.accuracy,
        "aurc": ranked.aurc(summary),
        "auroc_correctness": ranked.auroc_correctness(summary),
    }
    values = {name: None if value is None or math.isnan(value) else float(value) for name, value in measured.items()}
    bins, equal_mass = summary.bins(num_bins, "equal_width"), summary.bins(fewer, "equal_mass")
    return Evaluation(
        n=summary.num_rows,
        num_classes=summary.num_classes,
        num_bins=num_bins,
        kind=kind,
        bins=bins,
        equal_mass_bins=equal_mass,
        warnings=_warnings(bins, equal_mass, num_bins, present, values["nll"]),
        definitions={name: value.definition for name, value in measured.items() if value is not None},
        **values,  # type: ignore[arg-type]
    )


def _classwise(bins: Bins) -> Measured:
    num_bins = bins.count.shape[-1]
    value = float(bin_norm(bins, "l1").mean())
    return Measured(value, f"ECE, mean over classes, {num_bins} equal-width bins, l1")


def _warnings(bins: Bins, equal_mass: Bins, num_bins: int, present: Array, nll: float | None) -> tuple[str, ...]:
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
    absent = np.flatnonzero(~present)
    if len(absent):
        named = ", ".join(map(str, absent[:5])) + (", ..." if len(absent) > 5 else "")
        found.append(f"{len(absent)} of {len(present)} classes do not occur in the labels: {named}.")
    if nll is not None and math.isinf(nll):
        found.append("Some label has probability 0: nll is infinite.")
    return tuple(found)


def _bins_to_dict(bins: Bins) -> dict[str, list[float]]:
    columns: dict[str, Tensor] = {each.name: getattr(bins, each.name) for each in fields(bins)}
    return {name: column.tolist() for name, column in columns.items()}
