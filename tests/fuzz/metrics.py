"""Every measure of the table against its definition, for drawn scores: ties, edges, weights, certain and huge ones.

Three kinds of rows are drawn. Probabilities in sixty-fourths are exact in every precision, so that a row that lies on
the edge of a bin, or ties with another, does so exactly, and every measure must equal its definition. So it must for
hundredths in float64, as a forest of a hundred trees votes: they sum to 1 within rounding, and are left as they are.
Logits of any size are rounded on their way to a confidence. Measures that jump where a row crosses an edge or a tie is
broken are then compared only if no row is near such a place.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mpmath as mp
import numpy as np
from hypothesis import strategies as st

import focalcal as fc
from focalcal.core.checks import Array
from focalcal.errors import InputWarning
from focalcal.metrics.table import MEASURES
from tests import oracles
from tests.fuzz.losses import MASKED
from tests.fuzz.target import Case, Target
from tests.golden import definitions
from tests.golden.definitions import Pairs, binned, cut, debiased

_PARTS = {"parts": 64, "votes": 100}
_LARGEST = {"float16": 6e4, "float32": 3e38, "float64": 1e300}
# Relative and absolute, by the precision of the confidences. Roots near 0 double the digits that cancel.
_CLOSE = {"float16": 1e-5, "float32": 1e-5, "float64": 1e-9}
_ROOT = 1e-6
NAN = math.nan


# ----------------------------------------------------------------------------------------------------------- the cases


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Scores, labels and weights of a few rows."""
    classes, rows = draw(st.sampled_from((2, 2, 3, 5, 7))), draw(st.integers(1, 24))
    kind = draw(st.sampled_from(("parts", "votes", "logits", "log_probs")))
    dtype = "float64" if kind == "votes" else draw(st.sampled_from(("float64", "float32", "float16")))
    row = _row_of_parts(classes, _PARTS[kind]) if kind in _PARTS else _row_of_logits(classes, dtype)
    pool = draw(st.lists(row, min_size=1, max_size=rows))  # rows come from a short list: they tie
    scores = [pool[i] for i in draw(st.lists(st.integers(0, len(pool) - 1), min_size=rows, max_size=rows))]
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    weights = draw(st.one_of(st.none(), _weights(rows, 1), _weights(rows, 4)))
    num_bins = draw(st.sampled_from((1, 2, 4, 8, 10, 15, 20)))
    return {
        "kind": kind,
        "dtype": dtype,
        "scores": scores,
        "labels": labels,
        "weights": weights,
        "num_bins": num_bins,
    }


def _row_of_parts(classes: int, whole: int) -> st.SearchStrategy[list[int]]:
    """Whole numbers that add up to `whole`, zeros and all of it among them."""
    cuts = st.lists(st.integers(0, whole), min_size=classes - 1, max_size=classes - 1).map(sorted)
    return cuts.map(lambda at: [b - a for a, b in itertools.pairwise([0, *at, whole])])


def _row_of_logits(classes: int, dtype: str) -> st.SearchStrategy[list[float]]:
    width = int(dtype[-2:])
    largest = float(np.dtype(dtype).type(_LARGEST[dtype]))
    usual, any_size = st.integers(-80, 80).map(lambda n: n / 8), st.floats(-largest, largest, width=width)  # type: ignore[arg-type]
    odd = (0.0, -0.0, 2.0**-24, 2.0**-14, 1.0, -1.0, 40.0, -100.0, 1000.0)
    odd += (-math.inf, MASKED[dtype], float(np.finfo(dtype).min))
    row = st.lists(st.one_of(usual, usual, st.sampled_from(odd), any_size), min_size=classes, max_size=classes)
    return row.filter(lambda given: max(given) > MASKED[dtype])


def _weights(rows: int, share: int) -> st.SearchStrategy[list[float]]:
    """Whole numbers of shares of one, some of them 0."""
    numbers = st.lists(st.integers(0, 5), min_size=rows, max_size=rows).filter(any)
    return numbers.map(lambda given: [n / share for n in given])


# ----------------------------------------------------------------------------------------------------- the definitions


@dataclass(frozen=True)
class Rows:
    """Exact probabilities of rows with their labels; a weight is how often a row is there."""

    probs: list[list[mp.mpf]]
    top: list[int]
    labels: list[int]
    order: list[list[int]]  # the classes of each row, the first ones first
    num_bins: int

    @property
    def num_classes(self) -> int:
        return len(self.probs[0])

    @cached_property
    def correct(self) -> list[float]:
        return [float(t == y) for t, y in zip(self.top, self.labels, strict=True)]

    @cached_property
    def pairs(self) -> Pairs:
        return [(float(p[t]), c) for p, t, c in zip(self.probs, self.top, self.correct, strict=True)]

    @cached_property
    def by_class(self) -> list[Pairs]:
        return [
            [(float(p[k]), float(y == k)) for p, y in zip(self.probs, self.labels, strict=True)]
            for k in range(self.num_classes)
        ]

    @cached_property
    def entropies(self) -> list[float]:
        return [float(-mp.fsum(v * mp.log(v) for v in p if v > 0)) for p in self.probs]

    @property
    def equal_mass_bins(self) -> int:
        return min(self.num_bins, len(self.labels))


def _mean(values: Any) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else NAN


def _nll(rows: Rows) -> float:
    picked = [p[y] for p, y in zip(rows.probs, rows.labels, strict=True)]
    return _mean(math.inf if p == 0 else float(-mp.log(p)) for p in picked)


def _brier(rows: Rows) -> float:
    gaps = zip(rows.probs, rows.labels, strict=True)
    return _mean(float(mp.fsum((v - (k == y)) ** 2 for k, v in enumerate(p))) for p, y in gaps)


def _brier_part(rows: Rows, term: Callable[[float, float], float]) -> float:
    filled = definitions.table(cut(rows.pairs, "equal_width", rows.num_bins))
    return math.fsum(count * term(c, a) for count, c, a in filled) / len(rows.pairs)


def _entropy_of(rows: Rows, correct: float) -> float:
    return _mean(h for h, c in zip(rows.entropies, rows.correct, strict=True) if c == correct)


def _top(rows: Rows, k: int) -> float:
    return _mean(float(y in order[:k]) for order, y in zip(rows.order, rows.labels, strict=True))


def _sure(rows: Rows) -> list[float]:
    return [correct for confidence, correct in rows.pairs if confidence >= 0.99]


def _aurc(rows: Rows) -> float:
    """The mean, over k, of the error rate among the k surest rows; equal confidences share their errors."""
    wrong = itertools.accumulate(1 - correct for _, correct in reversed(definitions.ranked(rows.pairs)))
    return _mean(errors / k for k, errors in enumerate(wrong, start=1))


def _auroc(rows: Rows) -> float:
    return definitions.auroc(*zip(*rows.pairs, strict=True)) if len(set(rows.correct)) == 2 else NAN


def _smooth_ece(rows: Rows) -> Callable[[float], bool]:
    """Smooth ECE is the width that gives itself; the error falls as the width grows."""
    least = 2e-3

    def is_right(value: float) -> bool:
        if value < least:
            return definitions.smooth_ece(rows.pairs, least) <= least + _ROOT
        return abs(definitions.smooth_ece(rows.pairs, value) - value) < _ROOT

    return is_right


@dataclass(frozen=True)
class Definition:
    """A measure from its definition: a number, or a function that says whether a number is right.

    `jumps`: the measure is not continuous in the scores. `counts_rows`: weights are numbers of rows, so that it
    matters whether they are twice as large.
    """

    of: Callable[[Rows], float | Callable[[float], bool]]
    jumps: bool = True
    counts_rows: bool = False
    is_root: bool = False


def _smooth(of: Callable[[Rows], Any]) -> Definition:
    return Definition(of, jumps=False)


DEFINITIONS: dict[str, Definition] = {
    "accuracy": _smooth(lambda rows: _mean(rows.correct)),
    "error": _smooth(lambda rows: 1 - _mean(rows.correct)),
    "nll": _smooth(_nll),
    "brier": _smooth(_brier),
    "brier_calibration": Definition(lambda rows: _brier_part(rows, lambda c, a: (c - a) ** 2)),
    "brier_refinement": Definition(lambda rows: _brier_part(rows, lambda c, a: a * (1 - a))),
    "mean_confidence": _smooth(lambda rows: _mean(c for c, _ in rows.pairs)),
    "gap": _smooth(lambda rows: _mean(c - right for c, right in rows.pairs)),
    "entropy": _smooth(lambda rows: _mean(rows.entropies)),
    "entropy_correct": _smooth(lambda rows: _entropy_of(rows, 1.0)),
    "entropy_wrong": _smooth(lambda rows: _entropy_of(rows, 0.0)),
    "ece": Definition(lambda rows: binned(cut(rows.pairs, "equal_width", rows.num_bins), "l1")),
    "rms_ce": Definition(lambda rows: binned(cut(rows.pairs, "equal_width", rows.num_bins), "l2")),
    "mce": Definition(lambda rows: binned(cut(rows.pairs, "equal_width", rows.num_bins), "max")),
    "ada_ece": Definition(
        lambda rows: binned(cut(rows.pairs, "equal_mass", rows.equal_mass_bins), "l1"), counts_rows=True
    ),
    "classwise_ece": Definition(
        lambda rows: _mean(binned(cut(each, "equal_width", rows.num_bins), "l1") for each in rows.by_class)
    ),
    "ece_debiased": Definition(
        lambda rows: debiased(cut(rows.pairs, "array_split", rows.equal_mass_bins), "l2"),
        counts_rows=True,
        is_root=True,
    ),
    "ece_debiased_l1": Definition(
        lambda rows: debiased(cut(rows.pairs, "array_split", rows.equal_mass_bins), "l1"), counts_rows=True
    ),
    "ece_sweep": Definition(lambda rows: definitions.sweep(rows.pairs, "equal_mass", "l1"), counts_rows=True),
    "ece_sweep_equal_width": Definition(
        lambda rows: definitions.sweep(rows.pairs, "equal_width", "l1"), counts_rows=True
    ),
    "smooth_ece": _smooth(_smooth_ece),
    "ks_error": Definition(lambda rows: definitions.ks_error(rows.pairs)),
    "mmce": Definition(lambda rows: definitions.mmce(rows.pairs), jumps=False, is_root=True),
    "top_k_accuracy": _smooth(lambda rows: _top(rows, 5)),
    "top_5_accuracy": _smooth(lambda rows: _top(rows, 5) if rows.num_classes >= 5 else NAN),
    "s99": Definition(lambda rows: len(_sure(rows)) / len(rows.pairs)),
    "s99_accuracy": Definition(lambda rows: _mean(_sure(rows))),
    "aurc": Definition(_aurc, counts_rows=True),
    "auroc_correctness": Definition(_auroc),
}


# ----------------------------------------------------------------------------------------------------------- the check


def check(case: Case) -> str:
    """Every measure, alone and in `evaluate`, is what its definition says."""
    scores, kind = _scores_of(case)
    weights = None if case["weights"] is None else np.array(case["weights"])
    rows = _exact(case, scores, kind)
    exact = case["kind"] in _PARTS
    alike = exact or _far_from_jumps(rows, 10 * _CLOSE[case["dtype"]])
    whole = weights is None or bool((weights == np.round(weights)).all())
    labels, given = np.array(case["labels"]), {"kind": kind, "sample_weight": weights}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # of logits that look like probabilities
        together = fc.evaluate(scores, labels, num_bins=case["num_bins"], **given)
        for name, measure in MEASURES.items():
            definition = DEFINITIONS[name]
            if (definition.jumps and not alike) or (definition.counts_rows and not whole):
                continue
            expected = definition.of(rows)
            bins = {"fixed": case["num_bins"], "at most rows": rows.equal_mass_bins}.get(measure.num_bins)
            alone = measure(scores, labels, **({} if bins is None else {"num_bins": bins}), **given)
            close = max(_CLOSE[case["dtype"]], _ROOT if definition.is_root else 0.0)
            if rows.num_classes >= measure.least_classes:
                _require(f"{name} alone", alone, expected, close)
            if measure.in_evaluate:
                _require(f"{name} in evaluate", together[name], expected, close)
    return "exact" if exact else "compared" if alike else "near a jump"


def _require(what: str, ours: float | None, expected: float | Callable[[float], bool], close: float) -> None:
    value = NAN if ours is None else float(ours)
    if callable(expected):
        assert expected(value), f"{what} is {value!r}, which its definition does not give"
        return
    same = math.isclose(value, expected, rel_tol=close, abs_tol=close) or (math.isnan(value) and math.isnan(expected))
    assert same, f"{what} is {value!r}, by its definition {expected!r}"


def _scores_of(case: Case) -> tuple[Array, str]:
    if case["kind"] in _PARTS:
        return (np.array(case["scores"]) / _PARTS[case["kind"]]).astype(case["dtype"]), "probs"
    scores = np.array(case["scores"], dtype=case["dtype"])
    if case["kind"] == "logits":
        return scores, "logits"
    scores = np.where(scores <= MASKED[case["dtype"]], -math.inf, scores.astype(np.float64))
    exact = [[float(mp.log(v)) if v > 0 else -math.inf for v in oracles.probabilities(row)] for row in scores.tolist()]
    wide = "float64" if case["dtype"] == "float64" else "float32"
    return np.array(exact, dtype=wide), "log_probs"


def _exact(case: Case, scores: Array, kind: str) -> Rows:
    """The rows of a case, each as often as its weight says, in shares of the smallest weight."""
    given = case["weights"] or [1] * len(case["labels"])
    share = 1 if all(w == round(w) for w in given) else 4
    times = [round(w * share) for w in given]
    with mp.workdps(oracles.DIGITS):
        plain = scores.astype(np.float64)
        if kind != "probs":  # a masked class is impossible
            plain[plain <= MASKED[case["dtype"] if kind == "logits" else "float32"]] = -math.inf
        plain = plain.tolist()
        probs = [_probabilities(row, kind) for row in plain]
    order = [sorted(range(len(row)), key=lambda k, row=row: (-row[k], k)) for row in plain]
    picked = [i for i, n in enumerate(times) for _ in range(n)]
    return Rows(
        [probs[i] for i in picked],
        [order[i][0] for i in picked],
        [case["labels"][i] for i in picked],
        [order[i] for i in picked],
        case["num_bins"],
    )


def _probabilities(row: list[float], kind: str) -> list[mp.mpf]:
    return [mp.mpf(v) for v in row] if kind == "probs" else oracles.probabilities(row)


def _far_from_jumps(rows: Rows, near: float) -> bool:
    """Whether rounding can neither move a row to another bin nor break or make a tie."""
    numbers = {rows.num_bins, *range(1, len(rows.labels) + 1)}
    edges = np.array(sorted({k / n for n in numbers for k in range(1, n)} | {0.99}))
    columns = [rows.pairs, *rows.by_class]
    values = [np.array(sorted({confidence for confidence, _ in each})) for each in columns]
    return all(
        bool((np.diff(each) > near).all()) and bool((abs(each[:, None] - edges) > near).all()) for each in values
    )


TARGET = Target(
    "metrics",
    "every measure against its definition",
    cases(),
    check,
    frozenset({"exact", "compared", "near a jump"}),
    in_ci=200,
)
