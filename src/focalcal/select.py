"""Selecting a calibrator: methods are compared by cross-validation, and differences are tested for significance."""

from __future__ import annotations

import hashlib
import itertools
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.identity import Identity
from focalcal.calibrators.table import calibrator_entries, calibrator_label, make_calibrator
from focalcal.core.checks import Array, ArrayLike, require
from focalcal.core.score_kinds import Kind, logits_of, positive
from focalcal.errors import FocalCalError, InputWarning
from focalcal.metrics.intervals import bootstrap, compare, usual_method
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.metrics.prediction_set import Measured, PredictionSet
from focalcal.metrics.read_scores import read
from focalcal.metrics.table import MEASURES, MeasureFunction
from focalcal.predictions.arrays import Predictions, Target, checked_weight

Method: TypeAlias = "Calibrator | type[Calibrator] | str"
Methods: TypeAlias = "Mapping[str, Method] | Sequence[Method] | Method"
Progress: TypeAlias = Callable[[int, int, str], object]

IDENTITY = "identity"
NESTED = "select, then calibrate"
SCHEMA = 1
_NUM_RESAMPLES = 1000
_NUM_BINS = 15


@dataclass(frozen=True)
class MethodScore:
    """The result of one method: its `score` on held-out rows and its `difference` to the raw logits, with intervals.

    `p_value` is that of the paired test, `p_corrected` the same after Holm's correction for the number of methods.
    `fit_seconds` is the mean time of a fit. Of `failures` fits that raised, `error` is the first message; a method that
    failed where it had to predict has no score. What is undefined is None.
    """

    name: str
    score: float | None = None
    low: float | None = None
    high: float | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    p_value: float | None = None
    p_corrected: float | None = None
    fit_seconds: float | None = None
    failures: int = 0
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values; an infinite score becomes a string, because JSON has no number for it."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def cells(self) -> list[str]:
        """The row as tables show it: name, score and difference with their intervals, p-value, seconds of a fit."""
        p_value = self.p_value if self.p_corrected is None else self.p_corrected
        return [
            self.name,
            _number(self.score),
            _ends(self.low, self.high),
            _number(self.difference, "+.4f"),
            _ends(self.difference_low, self.difference_high, "+.4f"),
            _number(p_value, ".2g"),
            _number(self.fit_seconds, ".2g"),
        ]


@dataclass(frozen=True, eq=False)
class Selection:
    """The result of a comparison: the `table`, best first, a recommendation (`verdict`), and the calibrator (`winner`).

    `best` is the method of the best score, fitted to all rows. `winner` is what the verdict says: `best` where it is
    significantly better than the raw logits, else the `Identity`. `nested` is the score of taking the best method,
    chosen anew without the rows that it is scored on; `chosen` counts what was chosen then. `left_out` says why methods
    of the default set were not tried.

    >>> logits, labels = [[1.0, 0.0], [0.0, 1.0]] * 30, [0, 1, 0, 1, 0, 0] * 10
    >>> selection = select_calibrator(logits, labels, methods=["temperature"], nested=False)
    >>> selection.winner_name, selection.winner
    ('identity', Identity())
    """

    criterion: str
    definition: str
    table: list[MethodScore]
    verdict: str
    winner_name: str
    winner: Calibrator = field(repr=False)
    best: Calibrator = field(repr=False)
    nested: MethodScore | None
    chosen: dict[str, int]
    left_out: dict[str, str]
    level: float
    num_rows: int
    num_classes: int
    num_folds: int
    num_repeats: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, with a schema version; calibrators are left to their own files."""
        plain: dict[str, Any] = {"schema": SCHEMA}
        plain |= {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("winner", "best")}
        rows = {"table": [row.to_dict() for row in self.table]}
        return plain | rows | {"nested": None if self.nested is None else self.nested.to_dict()}

    def __str__(self) -> str:
        cells = [self._head(), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        aligned = [_aligned(line, widths) for line in cells]
        return "\n".join([self._title(), *aligned, *(f"  {note}" for note in self._notes()), self.verdict])

    def _repr_html_(self) -> str:
        from html import escape

        def line(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = line(self._head(), "th") + "".join(line(cells, "td") for cells in self._cells())
        notes = "".join(f"<li>{escape(note)}</li>" for note in self._notes())
        below = (f"<ul>{notes}</ul>" if notes else "") + f"<p>{escape(self.verdict)}</p>"
        return f"<table><caption>{escape(self._title())}</caption>{body}</table>{below}"

    def _title(self) -> str:
        repeated = f" {self.num_repeats} times" if self.num_repeats > 1 else ""
        size = f"{self.num_rows:,} rows, {self.num_classes:,} classes"
        return f"{self.definition}; {size}, {self.num_folds} folds{repeated}"

    def _head(self) -> list[str]:
        interval = f"{self.level:.0%} interval"
        return ["method", self.criterion, interval, f"against {IDENTITY}", interval, "p, corrected", "fit, s"]

    def _cells(self) -> list[list[str]]:
        rows = [row for row in self.table if row.score is not None]
        return [row.cells() for row in (rows if self.nested is None else [*rows, self.nested])]

    def _notes(self) -> list[str]:
        failed = [
            f"{row.name}: {_fits(row.failures)} failed: {row.error}" for row in self.table if row.error is not None
        ]
        picks = ", ".join(f"{name} ({count})" for name, count in self.chosen.items())
        picked = [f"{NESTED}: it chose {picks}."] if picks else []
        return picked + failed + [f"{name} left out: {reason}." for name, reason in self.left_out.items()]


def select_calibrator(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    kind: Kind = "logits",
    methods: Methods | None = None,
    criterion: str = "nll",
    num_folds: int = 5,
    num_repeats: int = 1,
    nested: bool = True,
    sample_weight: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> Selection:
    r"""Compare calibrators by cross-validation, and recommend one, or none.

    The rows are dealt out to folds, every class evenly. A method is fitted without one fold at a time and predicts the
    rows of that fold; the criterion is measured on the predictions of all rows together. The raw logits take part as
    `identity`. Each method's difference to them is tested on the same rows, and the p-values are corrected for the
    number m of methods, sorted upwards:

    $$ \tilde p_{(i)} = \min\Big(1, \max_{j \le i}\, (m - j + 1)\, p_{(j)}\Big) $$

    where `methods` is a mapping from names to calibrators, or a sequence of calibrators, their classes or names
    (`"temperature"`, `"temperature:ada_ece"`, `"TemperatureScaling"`); None takes all that suit the data. They are
    templates and are not changed themselves. `criterion` is the name of a measure of which less is better; the one that
    a method is fitted by belongs to the method. `winner` is the best method if its corrected p-value is below
    1 - `level`, else the `Identity`, as the verdict says.

    The score of the best of many methods looks better than it is. With `nested` the choice is repeated without each
    fold in turn and scored on that fold. Fits without two folds serve both of them, so a method is fitted
    $k + k(k-1)/2$ times for k = `num_folds`, and `num_repeats` times as often. Repeats deal out the rows anew; scores
    are means over them. Intervals and p-values are those of `bootstrap` and `compare`: they hold for the fits at hand.

    Of arrays (N, K, d1, ...), all positions of a sample are in one fold. `progress` is called as
    `progress(done, total, what)` after every fit. A method that raises is listed with its error.

    Source: [stone1974] for the folds, [varma2006] for the nested score, [holm1979] for the correction. Differs: the
    inner folds are the outer ones, so that fits are shared; nothing of the fold that is scored is used.

    >>> logits, labels = [[4.0, 0.0], [0.0, 4.0]] * 60, [0, 1] * 40 + [0, 0, 1, 1] * 10  # sure, right 5 times of 6
    >>> selection = select_calibrator(logits, labels, methods=["temperature", "focal"])
    >>> selection.table[0].name, selection.winner_name
    ('temperature', 'temperature')
    """
    _require_options(criterion, num_folds, num_repeats, nested, level, seed)
    data = _Data.read(logits, labels, kind, sample_weight)
    fix = "Take fewer folds, or more rows."
    require(data.num_samples >= num_folds, "logits", f"{num_folds} folds need as many rows", data.num_samples, fix)
    templates, left_out = _templates(methods, data)
    rounds = [data.folds(num_folds, np.random.default_rng([seed, repeat])) for repeat in range(num_repeats)]
    contest = _Contest(data, rounds, criterion, nested, len(templates))
    contest.progress = progress or contest.progress
    # So many resamples that the smallest p-value there is can be significant after the correction.
    enough = math.ceil(4 * len(templates) / (1 - level))
    contest.certainty = {"num_resamples": max(_NUM_RESAMPLES, enough), "level": level, "seed": seed}
    entries = {IDENTITY: contest.enter(IDENTITY, Identity())}
    entries |= {name: contest.enter(name, template) for name, template in templates.items()}
    _require_some(entries)
    rows = _corrected([entry.row for entry in entries.values()])
    best, table = contest.refit(sorted(rows, key=lambda row: (row.score is None, row.score or 0.0)), entries)
    honest, chosen = contest.nested_score(entries) if nested else (None, {})
    p_value = table[0].p_corrected
    significant = p_value is not None and p_value < 1 - level
    return Selection(
        criterion=criterion,
        definition=contest.definition,
        table=table,
        verdict=_verdict(table, significant, criterion, level),
        winner_name=table[0].name if significant else IDENTITY,
        winner=best if significant else data.fit(Identity()),
        best=best,
        nested=honest,
        chosen=chosen,
        left_out=left_out,
        level=level,
        num_rows=len(data.labels),
        num_classes=data.num_classes,
        num_folds=num_folds,
        num_repeats=num_repeats,
        seed=seed,
    )


def criteria() -> tuple[str, ...]:
    """The names of the measures that methods may be ranked by: those of which less is better.

    >>> criteria()[:3]
    ('error', 'nll', 'brier')
    """
    return tuple(name for name, measure in MEASURES.items() if measure.lower_is_better)


def _require_options(criterion: str, num_folds: int, num_repeats: int, nested: bool, level: float, seed: int) -> None:
    known = criteria()
    require(criterion in known, "criterion", f"must be one of {', '.join(known)}", repr(criterion))
    whole = all(isinstance(number, int) for number in (num_folds, num_repeats, seed))
    require(whole, "num_folds, num_repeats, seed", "must be whole numbers", (num_folds, num_repeats, seed))
    require(num_folds >= 2, "num_folds", "must be at least 2", num_folds, "5 is usual.")
    fix = "Take more folds, or nested=False."
    require(num_folds >= 3 or not nested, "num_folds", "must be at least 3 for a nested score", num_folds, fix)
    require(num_repeats >= 1, "num_repeats", "must be at least 1", num_repeats)
    require(seed >= 0, "seed", "must not be negative", seed)
    require(0 < level < 1, "level", "must lie between 0 and 1", level)


def _require_some(entries: dict[str, _Entry]) -> None:
    failed = [entry.row for entry in entries.values() if entry.row.score is None and entry.row.error is not None]
    if len(failed) == len(entries) - 1:
        raise FocalCalError("No method could be fitted. " + " ".join(f"{row.name}: {row.error}" for row in failed))


# ---------------------------------------------------------------------- the methods


def _templates(methods: Methods | None, data: _Data) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """Calibrators by name, and the reasons why some of the default set are missing."""
    if methods is None:
        return suitable_methods(data.num_classes, len(data.labels))
    if isinstance(methods, Mapping):
        named = [(name, _template(method)) for name, method in methods.items()]
    else:
        several = isinstance(methods, Iterable) and not isinstance(methods, (str, Calibrator))
        templates = [_template(method) for method in (methods if several else [methods])]  # type: ignore[union-attr]
        named = [(calibrator_label(template), template) for template in templates]
    require(len(named) > 0, "methods", "must name at least one method", "none", "None takes all that suit the data.")
    names = [name for name, _ in named]
    doubled = sorted({str(name) for name in names if names.count(name) > 1 or name == IDENTITY})
    fix = "Pass a mapping from names of your own to calibrators; the raw logits take part in any case."
    require(not doubled, "methods", f"names must differ from one another and from {IDENTITY}", ", ".join(doubled), fix)
    return dict(named), {}


def _template(method: object) -> Calibrator:
    """The calibrator of a method that is given as a calibrator, a class or a name."""
    if isinstance(method, str):
        method = make_calibrator(method)
    made = method() if isinstance(method, type) and issubclass(method, Calibrator) else method
    require(isinstance(made, Calibrator), "methods", "must be calibrators, their classes or names", repr(method))
    assert isinstance(made, Calibrator)
    return made


def suitable_methods(num_classes: int, num_rows: int) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """The calibrators of the table that suit such data, by name, and why the others do not.

    >>> suitable_methods(3, 100)[1]["platt"]
    'it is for two classes, and there are 3'
    """
    templates: dict[str, Calibrator] = {}
    left_out = {}
    for entry in calibrator_entries():
        parameters = num_classes * (num_classes + 1)
        if entry.two_classes and num_classes != 2:
            left_out[entry.name] = f"it is for two classes, and there are {num_classes:,}"
        elif entry.square and parameters > num_rows:
            left_out[entry.name] = f"it has {parameters:,} parameters, more than the {num_rows:,} rows"
        else:
            made = [entry.load()(**settings) for settings in entry.tried]
            templates |= {calibrator_label(calibrator): calibrator for calibrator in made}
    return templates, left_out


# ---------------------------------------------------------------------- the data


@dataclass(frozen=True)
class _Data:
    """Rows (n, K) of logits, -inf at masked classes, with labels, weights and the sample that each belongs to."""

    logits: Tensor
    labels: Tensor
    weight: Array | None
    sample: Array | None
    probs: Tensor | None = None  # of which the logits are the logarithms, if these are what was given

    @staticmethod
    def read(logits: ArrayLike, labels: ArrayLike, kind: Kind, sample_weight: ArrayLike | None) -> _Data:
        """The caller's rows, checked; rows of weight 0 are left out."""
        given = Predictions(logits, labels, kind=kind, sample_weight=sample_weight, argument="logits")
        chunks = list(given.chunks(masked_labels=False))
        rows = torch.cat([logits_of(chunk.scores, kind) for chunk in chunks])
        probs = torch.cat([positive(chunk.scores) for chunk in chunks]) if kind == "probs" else None
        weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
        sample = None
        shape = np.shape(labels)
        if len(shape) > 1:  # positions of the same image know of one another
            sample = np.repeat(np.arange(shape[0]), int(np.prod(shape[1:])))
            sample = sample if sample_weight is None else sample[checked_weight(sample_weight, shape).reshape(-1) > 0]
            sample = np.unique(sample, return_inverse=True)[1]
        weight = np.concatenate(weights) if weights else None
        return _Data(rows, torch.cat([chunk.labels for chunk in chunks]), weight, sample, probs)

    @property
    def num_classes(self) -> int:
        return self.logits.shape[1]

    @property
    def num_samples(self) -> int:
        return len(self.labels) if self.sample is None else int(self.sample.max()) + 1

    def folds(self, num_folds: int, generator: np.random.Generator) -> Array:
        """The fold of each row: every class is dealt out in turn, so that folds differ by one row at most."""
        n = self.num_samples
        classes = self.labels.cpu().numpy() if self.sample is None else np.zeros(n)
        fold = np.empty(n, dtype=np.int64)
        fold[np.lexsort((generator.random(n), classes))] = np.arange(n) % num_folds
        return fold if self.sample is None else fold[self.sample]

    def part(self, keep: Array) -> _Data:
        """Some of the rows."""
        index = torch.from_numpy(np.flatnonzero(keep)).to(self.logits.device)
        weight = None if self.weight is None else self.weight[keep]
        probs = None if self.probs is None else self.probs[index]
        return _Data(self.logits[index], self.labels[index], weight, None, probs)

    def fit(self, calibrator: Calibrator) -> Calibrator:
        """The calibrator, fitted to these rows."""
        with warnings.catch_warnings():
            # That logits look like probabilities was said when they were read.
            warnings.simplefilter("ignore", InputWarning)
            return calibrator.fit(self.logits, self.labels, sample_weight=self.weight)


# ---------------------------------------------------------------------- measuring


class _Rounds(PredictedRows):
    """Predictions of the same rows, once for each way to deal out the folds; resamples draw the same rows of all.

    What was measured of resamples is remembered, because an interval and a comparison draw the same ones.
    """

    def __init__(self, rounds: Sequence[Any]) -> None:
        self.rounds, self.num_rows, self.num_classes = rounds, rounds[0].num_rows, rounds[0].num_classes
        self.target, self.known = rounds[0].target, dict[bytes, Array]()

    def in_order(self) -> _Rounds:
        """The rows as they are, because each round has another order of confidence."""
        return self

    def resampled(self, times: Array) -> Any:
        """Resamples of all rounds."""
        return _ResampledRounds(self, times)

    def measured(self, measure: MeasureFunction) -> Measured:
        """The mean over rounds."""
        values = [measure(rows) for rows in self.rounds]
        return Measured(fmean(values), values[0].definition)


class _ResampledRounds:
    def __init__(self, rows: _Rounds, times: Array) -> None:
        self.rows, self.times, self.draws = rows, times, 2

    def measured(self, measure: MeasureFunction) -> Array:
        key = hashlib.blake2b(np.ascontiguousarray(self.times).data).digest()
        if key not in self.rows.known:
            values = []
            for rows in self.rows.rounds:
                resampled = rows.resampled(self.times)
                resampled.draws = self.draws
                values.append(measure(resampled))
            self.rows.known[key] = np.mean(values, 0)
        return self.rows.known[key]


@dataclass
class _Entry:
    """A method that takes part: its fits by round and left-out folds, and its scores."""

    template: Calibrator
    row: MethodScore
    fits: list[dict[frozenset[int], Calibrator]]
    inner: list[list[float]] = field(default_factory=list)  # by round and fold: the score without that fold
    seconds: list[float] = field(default_factory=list)

    def failed(self, error: Exception) -> None:
        """Record that a fit, or a prediction of it, raised."""
        said = self.row.error or f"{type(error).__name__}: {error}"
        self.row = replace(self.row, failures=self.row.failures + 1, error=said)


class _Contest:
    """The comparison of all methods on the same rows and folds."""

    def __init__(self, data: _Data, rounds: list[Array], criterion: str, nested: bool, num_methods: int) -> None:
        self.data, self.rounds, self.criterion, self.measure = data, rounds, criterion, MEASURES[criterion]
        self.folds = range(int(rounds[0].max()) + 1)
        self.alone = [frozenset({fold}) for fold in self.folds]
        self.pairs = [frozenset(pair) for pair in itertools.combinations(self.folds, 2)] if nested else []
        self.fits_each = len(rounds) * (len(self.alone) + len(self.pairs))
        self.done, self.total = 0, (num_methods + 1) * self.fits_each + 1
        self.progress: Progress = lambda done, total, what: None
        self.certainty: dict[str, Any] = {}
        self.raw: _Rounds | None = None
        self.definition = criterion

    # ------------------------------------------------------------------ fits

    def enter(self, name: str, template: Calibrator) -> _Entry:
        """Fit a method without each fold and score it; then without each two folds, for the nested score."""
        entry = _Entry(template, MethodScore(name), [{} for _ in self.rounds])
        places, last = range(len(self.rounds)), self.done + self.fits_each
        fitted = all(self._fit(entry, place, without) for place in places for without in self.alone)
        if fitted and self._score(entry) and self.pairs:
            for place in places:
                for without in self.pairs:
                    self._fit(entry, place, without)
                entry.inner.append([self._inner_score(entry, place, fold) for fold in self.folds])
        entry.row = replace(entry.row, fit_seconds=fmean(entry.seconds) if entry.seconds else None)
        self.done = last
        return entry

    def _fit(self, entry: _Entry, place: int, without: frozenset[int]) -> bool:
        """Fit a copy of the template without some folds; returns whether that succeeded."""
        start, fitted = time.perf_counter(), entry.template
        if entry.row.name != IDENTITY:
            try:
                fitted = self.data.part(~np.isin(self.rounds[place], list(without))).fit(deepcopy(fitted))
            except Exception as error:
                entry.failed(error)
                return False
            entry.seconds.append(time.perf_counter() - start)
        entry.fits[place][without] = fitted
        self._count(entry.row.name)
        return True

    def _score(self, entry: _Entry) -> bool:
        """Score each fit on the fold that it was fitted without; returns whether that succeeded."""
        alone = [{fold: fits[self.alone[fold]] for fold in self.folds} for fits in entry.fits]
        try:
            entry.row = self._scored(entry.row, alone)
        except Exception as error:
            if entry.row.name == IDENTITY:  # then the criterion does not suit the data
                raise
            entry.failed(error)
            return False
        return True

    def _count(self, what: str) -> None:
        self.done += 1
        self.progress(self.done, self.total, what)

    def refit(self, table: list[MethodScore], entries: dict[str, _Entry]) -> tuple[Calibrator, list[MethodScore]]:
        """Fit the best method to all rows; a method that cannot be fitted to them moves to the end of the table."""
        fallen: list[MethodScore] = []
        for place, row in enumerate(table):
            entry = entries[row.name]
            try:
                best = self.data.fit(deepcopy(entry.template))
            except Exception as error:
                entry.failed(error)
                fallen.append(MethodScore(row.name, failures=entry.row.failures, error=entry.row.error))
                continue
            self._count(row.name)
            return best, [*table[place:], *fallen]
        raise AssertionError("the identity can always be fitted")

    # ------------------------------------------------------------------ scores

    def _rows(self, folds: Array, by_fold: dict[int, Calibrator]) -> PredictionSet:
        """The rows of some folds, calibrated by the calibrator of each fold."""
        kept = np.isin(folds, list(by_fold))
        part = self.data.part(kept)
        target: Target = "classwise" if "classes" in self.measure.reads else "top_label"
        if part.probs is not None and all(calibrator.leaves_scores for calibrator in by_fold.values()):
            return read(part.probs, part.labels, kind="probs", target=target, sample_weight=part.weight)
        log_probs = torch.empty_like(self.data.logits)
        with torch.no_grad():
            for fold, calibrator in by_fold.items():
                index = torch.from_numpy(np.flatnonzero(folds == fold)).to(log_probs.device)
                log_probs[index] = calibrator(self.data.logits[index])
        log_probs = log_probs[torch.from_numpy(kept).to(log_probs.device)]
        return read(log_probs, part.labels, kind="log_probs", target=target, sample_weight=part.weight)

    def _measure(self, rows: Any) -> Any:
        if isinstance(rows, (_Rounds, _ResampledRounds)):
            return rows.measured(self._measure)
        # Bins of equal mass hold a row each, also when one row is left out.
        few = {"num_bins": min(_NUM_BINS, max(1, rows.num_rows - 1))} if self.measure.num_bins == "at most rows" else {}
        return self.measure(rows, **few)

    def _scored(self, row: MethodScore, rounds: list[dict[int, Calibrator]]) -> MethodScore:
        """The row with score and interval, and the difference to the raw logits, which come first."""
        rows = _Rounds([self._rows(folds, fits) for folds, fits in zip(self.rounds, rounds, strict=True)])
        measured = self._measure(rows)
        if math.isnan(measured):
            raise FocalCalError(f"{self.criterion} is not defined for its predictions.")
        self.definition, raw = measured.definition, self.raw or rows
        self.raw = raw
        row = replace(row, score=float(measured))
        if not (math.isfinite(measured) and math.isfinite(self._measure(raw))):  # a label has probability 0
            return row
        method = usual_method(self.measure)
        interval = bootstrap(self._measure, rows, method=method, **self.certainty)
        row = replace(row, low=interval.low, high=interval.high)
        if rows is raw:
            return row
        difference = compare(rows, raw, metric=self._measure, **self.certainty)
        return replace(
            row,
            difference=difference.difference,
            difference_low=difference.low,
            difference_high=difference.high,
            p_value=difference.p_value,
        )

    # ------------------------------------------------------------------ the nested score

    def _inner_score(self, entry: _Entry, place: int, outside: int) -> float:
        """The score on all folds but one, by fits that have seen neither the rows they predict nor that fold."""
        fits, others = entry.fits[place], [fold for fold in self.folds if fold != outside]
        if any(frozenset({fold, outside}) not in fits for fold in others):
            return math.inf  # some fit failed
        try:
            rows = self._rows(self.rounds[place], {fold: fits[frozenset({fold, outside})] for fold in others})
            score = float(self._measure(rows))
        except Exception as error:
            entry.failed(error)
            return math.inf
        return math.inf if math.isnan(score) else score

    def nested_score(self, entries: dict[str, _Entry]) -> tuple[MethodScore, dict[str, int]]:
        """The score of choosing the best method without each fold in turn, on that fold; and what was chosen."""
        able = {name: entry for name, entry in entries.items() if entry.inner}
        chosen: Counter[str] = Counter()
        rounds = []
        for place in range(len(self.rounds)):
            picks = [min(able, key=lambda name: able[name].inner[place][fold]) for fold in self.folds]
            chosen.update(picks)
            rounds.append({fold: able[pick].fits[place][self.alone[fold]] for fold, pick in enumerate(picks)})
        return self._scored(MethodScore(NESTED), rounds), dict(chosen.most_common())


# ---------------------------------------------------------------------- the verdict


def _corrected(rows: list[MethodScore]) -> list[MethodScore]:
    """The rows with p-values after Holm's correction; see `select_calibrator`."""
    tested = sorted((row.p_value, place) for place, row in enumerate(rows) if row.p_value is not None)
    rows, largest = list(rows), 0.0
    for rank, (p_value, place) in enumerate(tested):
        largest = max(largest, (len(tested) - rank) * p_value)
        rows[place] = replace(rows[place], p_corrected=min(1.0, largest))
    return rows


def _verdict(table: list[MethodScore], significant: bool, criterion: str, level: float) -> str:
    """The recommendation in a sentence or two."""
    raw = next(row for row in table if row.name == IDENTITY)
    others = [row for row in table if row is not raw and row.p_corrected is not None]
    keep = "Keep the logits as they are, or collect more rows."
    if not others:
        return f"No method gives a finite {criterion}. {keep}"
    best, tests = others[0], sum(row.p_corrected is not None for row in table)
    corrected = "" if tests == 1 else f" after correction for {tests} methods"
    figures = f"difference {best.difference:+.4g}, p = {best.p_corrected:.2g}{corrected}"
    if significant:
        ends = f"{level:.0%} interval {best.difference_low:+.4g} to {best.difference_high:+.4g}"
        return f"Use {best.name}: {criterion} {best.score:.4g} instead of {raw.score:.4g} ({figures}, {ends})."
    if best.difference is not None and best.difference >= 0:
        return f"No method is better than the raw logits (best: {best.name}, {figures}). {keep}"
    return f"No method is significantly better than the raw logits (best: {best.name}, {figures}). {keep}"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _fits(number: int) -> str:
    return "1 fit" if number == 1 else f"{number} fits"


def _number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def _ends(low: float | None, high: float | None, form: str = ".4f") -> str:
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"


def _aligned(cells: list[str], widths: list[int]) -> str:
    padded = [f"{cell:>{width}s}" for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  " + "  ".join([f"{cells[0]:{widths[0]}s}", *padded])
