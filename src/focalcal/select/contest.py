"""The comparison itself: every method is fitted without each fold and each two folds, and scored on held-out rows."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
import torch

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.identity import Identity
from focalcal.core.checks import Array
from focalcal.errors import FocalCalError
from focalcal.metrics.prediction_set import COLUMNS, PredictionSet
from focalcal.metrics.read_scores import read
from focalcal.metrics.table import MEASURES
from focalcal.predictions.arrays import Target
from focalcal.select.folds import FoldedRows
from focalcal.select.resampling import HeldOut, certainties, measured
from focalcal.select.result import IDENTITY, NESTED, MethodScore

Progress: TypeAlias = Callable[[int, int, str], object]

# Numbers of held-out predictions that wait to be resampled together: half a gigabyte.
_WAITING = 1 << 26


@dataclass
class Entry:
    """A method that takes part: its fits by round and left-out folds, and its scores."""

    template: Calibrator
    row: MethodScore
    fits: list[dict[frozenset[int], Calibrator]]
    inner: list[list[float]] = field(default_factory=list)  # by round and fold: the score without that fold
    seconds: list[float] = field(default_factory=list)
    held_out: HeldOut | None = None  # until its interval is known
    differences: Array | None = None  # of resamples, to the raw logits

    def failed(self, error: Exception) -> None:
        """Record that a fit, or a prediction of it, raised."""
        said = self.row.error or f"{type(error).__name__}: {error}"
        self.row = replace(self.row, failures=self.row.failures + 1, error=said)


class Contest:
    """The comparison of all methods on the same rows and folds."""

    def __init__(self, data: FoldedRows, rounds: list[Array], criterion: str, nested: bool, num_methods: int) -> None:
        self.data, self.rounds, self.criterion, self.measure = data, rounds, criterion, MEASURES[criterion]
        self.folds = range(int(rounds[0].max()) + 1)
        self.alone = [frozenset({fold}) for fold in self.folds]
        self.pairs = [frozenset(pair) for pair in itertools.combinations(self.folds, 2)] if nested else []
        self.fits_each = len(rounds) * (len(self.alone) + len(self.pairs))
        self.done, self.total = 0, (num_methods + 1) * self.fits_each + 1
        self.progress: Progress = lambda done, total, what: None
        self.certainty: dict[str, Any] = {}
        self.raw: HeldOut | None = None
        self.waiting: dict[str, Entry] = {}
        self.definition = criterion
        self.target: Target = "classwise" if "classes" in self.measure.reads else "top_label"
        means = {name for mean in self.measure.means for name in mean.needs}
        self.columns = tuple(sorted(means)) if self.measure.reads == ("means",) else COLUMNS
        width = data.num_classes if self.target == "classwise" else len(self.columns)
        self.most_waiting = max(1, _WAITING // (width * len(data.labels) * len(rounds)))

    # ------------------------------------------------------------------ fits

    def enter(self, name: str, template: Calibrator) -> Entry:
        """Fit a method without each fold and score it; then without each two folds, for the nested score."""
        entry = Entry(template, MethodScore(name), [{} for _ in self.rounds])
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

    def _fit(self, entry: Entry, place: int, without: frozenset[int]) -> bool:
        """Fit a copy of the template without some folds; returns whether that succeeded."""
        start, fitted = time.perf_counter(), entry.template
        if entry.row.name != IDENTITY:
            try:
                fitted = self.data.part(np.flatnonzero(~np.isin(self.rounds[place], list(without)))).fit(
                    deepcopy(fitted)
                )
            except Exception as error:
                entry.failed(error)
                return False
            entry.seconds.append(time.perf_counter() - start)
        entry.fits[place][without] = fitted
        self._count(entry.row.name)
        return True

    def _score(self, entry: Entry) -> bool:
        """Score each fit on the fold that it was fitted without; returns whether that succeeded."""
        alone = [{fold: fits[self.alone[fold]] for fold in self.folds} for fits in entry.fits]
        try:
            self._hold_out(entry, alone)
        except Exception as error:
            if entry.row.name == IDENTITY:  # then the criterion does not suit the data
                raise
            entry.failed(error)
            return False
        return True

    def _count(self, what: str) -> None:
        self.done += 1
        self.progress(self.done, self.total, what)

    def refit(self, table: list[MethodScore], entries: dict[str, Entry]) -> tuple[Calibrator, list[MethodScore]]:
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
        kept = np.flatnonzero(np.isin(folds, list(by_fold)))
        part = self.data.part(kept)
        options: dict[str, Any] = {"target": self.target, "sample_weight": part.weight, "columns": self.columns}
        if part.probs is not None and all(calibrator.leaves_scores for calibrator in by_fold.values()):
            return read(part.probs, part.labels, kind="probs", **options)
        log_probs = torch.empty_like(part.logits)
        with torch.no_grad():
            for fold, calibrator in by_fold.items():
                index = torch.from_numpy(np.flatnonzero(folds[kept] == fold)).to(log_probs.device)
                log_probs[index] = calibrator(part.logits[index])
        return read(log_probs, part.labels, kind="log_probs", **options)

    def _hold_out(self, entry: Entry, rounds: list[dict[int, Calibrator]]) -> None:
        """Score the predictions for held-out rows; their interval waits for those of other methods."""
        rows = [self._rows(folds, fits) for folds, fits in zip(self.rounds, rounds, strict=True)]
        held_out = HeldOut.of(rows, self.measure)
        if math.isnan(held_out.score):
            raise FocalCalError(f"{self.criterion} is not defined for its predictions.")
        self.definition = held_out.score.definition
        self.raw = self.raw or held_out
        entry.row = replace(entry.row, score=float(held_out.score))
        if math.isfinite(held_out.score) and math.isfinite(self.raw.score):  # else a label has probability 0
            entry.held_out = held_out
            self.waiting[entry.row.name] = entry
        if len(self.waiting) >= self.most_waiting:
            self.find_intervals()

    def find_intervals(self) -> None:
        """Intervals and differences to the raw logits, which come first, of all methods that wait for them."""
        if not self.waiting or self.raw is None:
            return
        waiting = {name: entry.held_out for name, entry in self.waiting.items() if entry.held_out is not None}
        found = certainties({IDENTITY: self.raw} | waiting, self.measure, against=IDENTITY, **self.certainty)
        for name, entry in self.waiting.items():
            score, difference = found[name].score, found[name].difference
            entry.row, entry.held_out = replace(entry.row, low=score.low, high=score.high), None
            entry.differences = found[name].differences
            if name != IDENTITY:
                entry.row = replace(
                    entry.row,
                    difference=difference.value,
                    difference_low=difference.low,
                    difference_high=difference.high,
                    p_value=found[name].p_value,
                )
        self.waiting = {}

    # ------------------------------------------------------------------ the nested score

    def _inner_score(self, entry: Entry, place: int, outside: int) -> float:
        """The score on all folds but one, by fits that have seen neither the rows they predict nor that fold."""
        fits, others = entry.fits[place], [fold for fold in self.folds if fold != outside]
        if any(frozenset({fold, outside}) not in fits for fold in others):
            return math.inf  # some fit failed
        try:
            rows = self._rows(self.rounds[place], {fold: fits[frozenset({fold, outside})] for fold in others})
            score = float(measured(self.measure, rows))
        except Exception as error:
            entry.failed(error)
            return math.inf
        return math.inf if math.isnan(score) else score

    def nested_score(self, entries: dict[str, Entry]) -> tuple[Entry, dict[str, int]]:
        """The score of choosing a method without each fold in turn, on that fold; and what was chosen."""
        able = {name: entry for name, entry in entries.items() if entry.inner}
        chosen: Counter[str] = Counter()
        rounds = []
        for place in range(len(self.rounds)):
            picks = [
                simplest_within_noise(able, {name: entry.inner[place][fold] for name, entry in able.items()})
                for fold in self.folds
            ]
            chosen.update(picks)
            rounds.append({fold: able[pick].fits[place][self.alone[fold]] for fold, pick in enumerate(picks)})
        nested = Entry(Identity(), MethodScore(NESTED), [])
        self._hold_out(nested, rounds)
        return nested, dict(chosen.most_common())


def simplest_within_noise(entries: Mapping[str, Entry], scores: Mapping[str, float]) -> str:
    """The simplest method whose score is at most one standard error above the best one.

    The error is that of the difference between the two on the same rows. Entries come in order of simplicity.
    """
    best = min(scores, key=lambda name: scores[name])
    return next(name for name in scores if scores[name] - scores[best] <= noise_between(entries[name], entries[best]))


def noise_between(one: Entry, other: Entry) -> float:
    """The standard error of the difference between two methods; 0 where it is not known."""
    if one is other or one.differences is None or other.differences is None:
        return 0.0
    return float(np.std(one.differences - other.differences, ddof=1))
