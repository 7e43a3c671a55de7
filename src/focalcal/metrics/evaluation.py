"""Every measure of one set of predictions, and how it is shown and kept."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from focalcal.core.binning import Bins
from focalcal.core.checks import require

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every measure of one set of predictions, with what it takes to understand the numbers.

    Undefined numbers are None: the entropy of wrong predictions where there are none, top-5 accuracy of fewer than five
    classes, the classwise error where it was not asked for. `definitions` says in words what each number is, `warnings`
    which ones are not to be trusted. `bins` are the equal-width bins of `ece`, `equal_mass_bins` those of `ada_ece`.

    >>> from focalcal import evaluate
    >>> result = evaluate([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
    >>> result.n, round(result.accuracy, 4), round(result.ece, 4), result.definitions["ece"]
    (3, 0.6667, 0.1938, 'ECE, top label, 15 equal-width bins, l1')
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


def _bins_to_dict(bins: Bins) -> dict[str, list[float]]:
    columns: dict[str, Tensor] = {each.name: getattr(bins, each.name) for each in fields(bins)}
    return {name: column.tolist() for name, column in columns.items()}
