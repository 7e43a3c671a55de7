"""`select_calibrator`: the comparison of calibrators from the rows to the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy

import numpy as np

from focalcal.calibrators.identity import Identity
from focalcal.core.checks import ArrayLike, is_number, require
from focalcal.core.score_kinds import GivenKind
from focalcal.errors import FocalCalError
from focalcal.metrics.table import MEASURES
from focalcal.select.contest import Contest, Entry, Progress
from focalcal.select.folds import FoldedRows
from focalcal.select.methods import Methods, chosen_methods, in_order_of_simplicity
from focalcal.select.recommendation import recommend, verdict_of
from focalcal.select.result import IDENTITY, Selection, corrected

_NUM_RESAMPLES = 1000


def select_calibrator(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    kind: GivenKind = "logits",
    methods: Methods | None = None,
    criterion: str = "nll",
    num_folds: int = 5,
    num_repeats: int = 1,
    nested: bool = True,
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    class_axis: int = 1,
    class_names: Sequence[str] | None = None,
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
    a method is fitted by belongs to the method.

    `winner` is the simplest method that is within noise of the best one: its score is at most one standard error of
    their difference above, and its corrected p-value is below 1 - `level`. Simplicity is the order of the table of
    calibrators, a temperature first and functions for every class last. If no p-value is that low, the `Identity` wins.

    The score of the best of many methods looks better than it is. With `nested` the choice, by the same rule of
    simplicity, is repeated without each fold in turn and scored on that fold. Where that is not better than the raw
    logits, the `Identity` wins as well: the verdict never recommends what the nested score does not support.
    Fits without two folds serve both of them, so a method is fitted
    $k + k(k-1)/2$ times for k = `num_folds`, and `num_repeats` times as often. Repeats deal out the rows anew; scores
    are means over them. Intervals and p-values are those of `bootstrap` and `compare`: they hold for the fits at hand.

    Logits and labels are read as by `focalcal.metrics.read`; rows whose label is `ignore_index` are left out. Of arrays
    (N, K, d1, ...), or others whose classes are along `class_axis`, all positions of a sample are in one fold.
    `progress` is called as `progress(done, total, what)` after every fit. A method that raises is listed with its
    error.

    Source: [stone1974] for the folds, [varma2006] for the nested score, [holm1979] for the correction. Differs: the
    inner folds are the outer ones, so that fits are shared; nothing of the fold that is scored is used.

    >>> logits, labels = [[4.0, 0.0], [0.0, 4.0]] * 60, [0, 1] * 40 + [0, 0, 1, 1] * 10  # sure, right 5 times of 6
    >>> selection = select_calibrator(logits, labels, methods=["temperature", "focal"])
    >>> selection.table[0].name, selection.winner_name
    ('temperature', 'temperature')
    """
    _require_options(criterion, num_folds, num_repeats, nested, level, seed)
    require(labels is not None, "labels", "must be given with logits", "none")
    data = FoldedRows.read(
        logits,
        labels,
        kind,
        sample_weight,
        ignore_index=ignore_index,
        class_axis=class_axis,
        class_names=class_names,
    )
    fix = "Take fewer folds, or more rows."
    require(data.num_samples >= num_folds, "logits", f"{num_folds} folds need as many rows", data.num_samples, fix)
    templates, left_out = chosen_methods(methods, data.num_classes, len(data.labels))
    rounds = [data.folds(num_folds, np.random.default_rng([seed, repeat])) for repeat in range(num_repeats)]
    contest = Contest(data, rounds, criterion, nested, len(templates))
    contest.progress = progress or contest.progress
    # So many resamples that the smallest p-value there is can be significant after the correction.
    enough = math.ceil(4 * len(templates) / (1 - level))
    contest.certainty = {"num_resamples": max(_NUM_RESAMPLES, enough), "level": level, "seed": seed}
    entries = {IDENTITY: contest.enter(IDENTITY, Identity())}
    entries |= {name: contest.enter(name, template) for name, template in in_order_of_simplicity(templates).items()}
    _require_some(entries)
    contest.find_intervals()
    honest, chosen = contest.nested_score(entries) if nested else (None, {})
    contest.find_intervals()
    rows = corrected([entry.row for entry in entries.values()])
    best, table = contest.refit(sorted(rows, key=lambda row: (row.score is None, row.score or 0.0)), entries)
    nested_row = None if honest is None else honest.row
    choice = recommend(table, entries, nested_row, level)
    winner = best if choice.name == table[0].name else data.fit(deepcopy(entries[choice.name].template))
    return Selection(
        criterion=criterion,
        definition=contest.definition,
        table=table,
        verdict=verdict_of(table, choice, nested_row, criterion, level),
        winner_name=choice.name,
        winner=winner,
        best=best,
        nested=nested_row,
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
    require(
        isinstance(criterion, str) and criterion in known,
        "criterion",
        f"must be one of {', '.join(known)}",
        repr(criterion),
    )
    whole = all(isinstance(number, int) for number in (num_folds, num_repeats, seed))
    require(whole, "num_folds, num_repeats, seed", "must be whole numbers", (num_folds, num_repeats, seed))
    require(is_number(level), "level", "must lie between 0 and 1", repr(level))
    require(num_folds >= 2, "num_folds", "must be at least 2", num_folds, "5 is usual.")
    fix = "Take more folds, or nested=False."
    require(num_folds >= 3 or not nested, "num_folds", "must be at least 3 for a nested score", num_folds, fix)
    require(num_repeats >= 1, "num_repeats", "must be at least 1", num_repeats)
    require(seed >= 0, "seed", "must not be negative", seed)
    require(0 < level < 1, "level", "must lie between 0 and 1", level)


def _require_some(entries: dict[str, Entry]) -> None:
    failed = [entry.row for entry in entries.values() if entry.row.score is None and entry.row.error is not None]
    if len(failed) == len(entries) - 1:
        raise FocalCalError("No method could be fitted. " + " ".join(f"{row.name}: {row.error}" for row in failed))
