"""All measures of lists of the most likely classes, exact where they can be and bounds where they cannot."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from focalcal.core.checks import require
from focalcal.metrics.evaluation import evaluation_of
from focalcal.metrics.prediction_set import PredictionSet, RowMean
from focalcal.metrics.summary import Summary
from focalcal.metrics.table import measure_means
from focalcal.metrics.truncated.top_k import TopK
from focalcal.predictions.stream import MOST_ROWS

SCHEMA = 1
NLL_KNOWN = RowMean(
    "nll_known",
    ("nll", "known"),
    lambda rows: np.where(rows["known"], rows["nll"], 0.0),
    lambda rows: rows["known"],
)
REMAINING = RowMean("remaining_mass", ("mass",), lambda rows: rows["mass"])
# Ends that differ by less than this differ by the rounding of sums.
_ROUNDING = 1e-12
_WHY_NOT_CLASSWISE = (
    "needs the probability of every class in every row, and a list has only the largest ones: "
    "most classes are in most rows somewhere between 0 and the smallest listed probability"
)


@dataclass(frozen=True)
class TruncatedEvaluation:
    """Every measure of lists of the most likely classes, with what it takes to understand the numbers.

    `exact` are the measures that no completion of the lists changes: all that read confidence and correctness, and
    those that happen to be the same at both ends. `bounds` are the others, (low, high). Both ends are tight: the rows
    have completions that attain them, or come as close as one likes (with labels of which nothing is known, the ends
    of `nll` leave room for the tolerance of `TopK`). Undefined numbers are None, as in `Evaluation`, and `unavailable`
    says why a measure is missing.

    `num_unknown` labels are neither listed nor given. As a rule each of them makes the upper end of `nll` infinite.
    `nll_known` is the mean over the other rows, and flatters, as it leaves out rows that the model got wrong.
    `remaining_mass` is the mean probability of which nothing is known.

    >>> import torch
    >>> from focalcal.metrics.truncated import TopK
    >>> log_probs = torch.tensor([[0.7, 0.2], [0.8, 0.1]]).log()
    >>> lists = TopK(torch.tensor([[0, 1], [1, 0]]), log_probs, torch.tensor([0, 0]), num_classes=3)
    >>> found = evaluate_truncated(lists)
    >>> found.exact["accuracy"], round(found.remaining_mass, 4)
    (0.5, 0.1)
    """

    num_rows: int
    num_unknown: int
    num_classes: int
    num_bins: int
    remaining_mass: float
    nll_known: float | None
    exact: dict[str, float | None]
    bounds: dict[str, tuple[float, float]]
    unavailable: dict[str, str] = field(repr=False)
    warnings: tuple[str, ...] = ()
    definitions: dict[str, str] = field(default_factory=dict, repr=False)

    def interval(self, name: str) -> tuple[float, float] | None:
        """Both ends of a measure, the same number twice where it is exact; None where it is undefined."""
        if name in self.bounds:
            return self.bounds[name]
        known = name in self.exact
        fix = f"{name} {self.unavailable[name]}." if name in self.unavailable else ""
        require(known, "name", f"must be one of {', '.join([*self.exact, *self.bounds])}", repr(name), fix)
        value = self.exact[name]
        return None if value is None else (value, value)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, with a schema version; infinity is a string, for which JSON has no number.

        >>> lists = TopK([[1]], np.log([[0.5]]), [0], num_classes=9)
        >>> evaluate_truncated(lists).to_dict()["bounds"]["nll"][1]
        'inf'
        """
        plain: dict[str, Any] = {"schema": SCHEMA}
        plain |= {each.name: getattr(self, each.name) for each in fields(self)}
        plain["exact"] = {name: _plain(value) for name, value in self.exact.items()}
        plain["bounds"] = {name: [_plain(end) for end in ends] for name, ends in self.bounds.items()}
        plain["nll_known"], plain["warnings"] = _plain(self.nll_known), list(self.warnings)
        return plain | {"unavailable": dict(self.unavailable), "definitions": dict(self.definitions)}

    def rows(self) -> list[tuple[str, str]]:
        """Name and formatted value of each measure, for tables."""
        shown = [(name, "-" if value is None else f"{value:.4f}") for name, value in self.exact.items()]
        between = [(name, f"{low:.4f} .. {high:.4f}") for name, (low, high) in self.bounds.items()]
        return [*shown, ("nll_known", "-" if self.nll_known is None else f"{self.nll_known:.4f}"), *between]

    def __str__(self) -> str:
        head = (
            f"{self.num_rows:,} rows, the most likely of {self.num_classes:,} classes each, {self.num_bins} bins; "
            f"nothing is known of {self.remaining_mass:.4f} of the probability and of {self.num_unknown:,} labels"
        )
        lines = [f"  {name:22s} {value:>18s}  {self.definitions.get(name, '')}".rstrip() for name, value in self.rows()]
        missing = [f"  {name:22s} {'-':>18s}  {why}" for name, why in self.unavailable.items()]
        return "\n".join([head, *lines, *missing, *(f"  warning: {warning}" for warning in self.warnings)])


class TruncatedSummary:
    """What the measures need of any number of `TopK` lists, added up batch by batch and merged.

    It keeps 4 bytes per row (8 for float64 lists, 8 more with weights) and some sums; beyond `most_rows`, if given, a
    histogram takes the place of the confidences, as in streams.

    >>> one, two = TruncatedSummary(10), TruncatedSummary(10)
    >>> one.add(TopK([[7, 3]], np.log([[0.6, 0.3]]), [3], num_classes=10))
    >>> two.add(TopK([[2, 4]], np.log([[0.8, 0.1]]), [5], num_classes=10))
    >>> both = one.merge(two).evaluation()
    >>> both.num_rows, both.num_unknown, both.exact["accuracy"], [round(bound, 3) for bound in both.bounds["brier"]]
    (2, 1, 0.0, [1.156, 1.26])
    """

    def __init__(self, num_classes: int, *, num_bins: int = 15, most_rows: int | None = None) -> None:
        require(isinstance(num_bins, int) and num_bins >= 1, "num_bins", "must be a whole number from 1", num_bins)
        self.num_classes, self.num_bins, self.num_unknown = num_classes, num_bins, 0
        means = measure_means()
        self._low = Summary(num_classes, "log_probs", num_bins=num_bins, means=means, most_rows=most_rows)
        self._low.label_counts += 1  # that a class does not occur matters to the classwise error only
        # Rows are kept once: confidence and correctness are the same at both ends.
        self._high = Summary(num_classes, num_bins=num_bins, means=(*means, NLL_KNOWN, REMAINING), ranked=False)

    @property
    def num_rows(self) -> int:
        """How many rows were added."""
        return self._low.num_rows

    @property
    def top_label(self) -> PredictionSet:
        """Confidence and correctness of all rows, as every measure of the top label reads them."""
        return self._low

    def add(self, lists: TopK) -> None:
        """Take in some rows."""
        rule = f"must have the {self.num_classes} classes of the summary"
        require(lists.num_classes == self.num_classes, "num_classes", rule, lists.num_classes)
        for rows, weight in lists.chunks():
            low, high = rows.columns()
            self._low.add(low, weight)
            self._high.add(high, weight)
            self.num_unknown += int(np.count_nonzero(~low["known"]))

    def merge(self, other: TruncatedSummary) -> TruncatedSummary:
        """The summary of both sets of rows."""
        mine, its = (self.num_classes, self.num_bins), (other.num_classes, other.num_bins)
        require(mine == its, "other", f"must have {mine[0]} classes and {mine[1]} bins", f"{its[0]} and {its[1]}")
        merged = TruncatedSummary(self.num_classes, num_bins=self.num_bins)
        merged._low, merged._high = self._low.merge(other._low), self._high.merge(other._high)
        merged.num_unknown = self.num_unknown + other.num_unknown
        return merged

    def evaluation(self) -> TruncatedEvaluation:
        """Every measure of the rows so far."""
        require(self.num_rows > 0, "rows", "must be added before they are measured", 0, "Call add(TopK(...)) first.")
        low = evaluation_of(self._low)
        exact: dict[str, float | None] = dict(low.values)
        del exact["classwise_ece"]
        ends = {each.name: float(self._high.mean(each)) for each in self._low.means if each.name in exact}
        bounds = {}
        for name, high in ends.items():
            least = exact[name]
            if least is not None and not _same(least, high):
                bounds[name] = (least, high)
                del exact[name]
        known = float(self._high.mean(NLL_KNOWN))
        definition = "NLL in nats, mean over the rows whose label's probability is known"
        return TruncatedEvaluation(
            num_rows=self.num_rows,
            num_unknown=self.num_unknown,
            num_classes=self.num_classes,
            num_bins=self.num_bins,
            remaining_mass=float(self._high.mean(REMAINING)),
            nll_known=None if math.isnan(known) else known,
            exact=exact,
            bounds=bounds,
            unavailable={"classwise_ece": _WHY_NOT_CLASSWISE},
            warnings=(*low.warnings, *self._warnings()),
            definitions=low.definitions | {"nll_known": definition},
        )

    def _warnings(self) -> tuple[str, ...]:
        if not self.num_unknown:
            return ()
        return (
            f"{self.num_unknown} of {self.num_rows} labels are neither listed nor given: nll has no upper bound, and "
            "nll_known leaves out rows that the model got wrong.",
        )


def evaluate_truncated(lists: TopK | Iterable[TopK], *, num_bins: int = 15) -> TruncatedEvaluation:
    """Every measure of lists of the most likely classes, in one pass over one batch or many.

    What confidence and correctness decide is exact; NLL, Brier score, entropy and top-5 accuracy are intervals over all
    distributions that have these lists. See `TopK` for the lists and `TruncatedEvaluation` for the result.

    >>> evaluation = evaluate_truncated(TopK([[7, 3]], np.log([[0.6, 0.3]]), [7], num_classes=10))
    >>> round(evaluation.exact["ece"], 4), round(evaluation.exact["nll"], 4)
    (0.4, 0.5108)
    >>> [round(bound, 4) for bound in evaluation.bounds["entropy"]]
    [0.8979, 1.1059]
    """
    batches = [lists] if isinstance(lists, TopK) else lists
    summary: TruncatedSummary | None = None
    for batch in batches:
        require(isinstance(batch, TopK), "lists", "must be TopK, or batches of TopK", type(batch).__name__)
        if summary is None:
            most_rows = None if isinstance(lists, TopK) else MOST_ROWS
            summary = TruncatedSummary(batch.num_classes, num_bins=num_bins, most_rows=most_rows)
        summary.add(batch)
    if summary is None:
        summary = TruncatedSummary(2, num_bins=num_bins)  # which says that there are no rows
    return summary.evaluation()


def _same(low: float, high: float) -> bool:
    return low == high or high - low <= _ROUNDING * max(1.0, abs(low))


def _plain(value: float | None) -> float | str | None:
    return str(value) if value is not None and math.isinf(value) else value
