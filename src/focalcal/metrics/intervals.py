r"""How certain a measured number is: bootstrap intervals and paired comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch

from focalcal.core.checks import Array, ArrayLike, require, require_whole
from focalcal.core.score_kinds import GivenKind
from focalcal.metrics.classwise_rows import ClasswiseRows
from focalcal.metrics.predicted_rows import PredictedRows, require_resampling
from focalcal.metrics.prediction_set import PredictionSet
from focalcal.metrics.read_scores import ReadOptions, read
from focalcal.metrics.table import MEASURES, MeasureFunction, measure_for
from focalcal.predictions.arrays import Target

__all__ = ["Comparison", "Estimate", "Interval", "bootstrap", "bootstrap_each", "compare"]

Method = Literal["auto", "bca", "percentile", "basic"]

# Draws that are held at once, in numbers: the counts of a block of resamples stay in the cache.
_HELD = 1 << 19
# Rows are left out in so many groups to find the skewness of a measure: leaving out one by one would cost N calls.
_JACKKNIFE_GROUPS = 200


@dataclass(frozen=True)
class Estimate:
    """A measured number, None where it is undefined, with the ends of its interval, if it has one.

    >>> Estimate(0.05, 0.04, 0.06, "ECE, top label, 15 equal-width bins, l1").low
    0.04
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    definition: str = ""


@dataclass(frozen=True)
class Interval(Estimate):
    """A measured `value` with the interval from `low` to `high` that covers the truth with probability `level`.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).repeat(50, 1)
    >>> found = bootstrap("accuracy", logits, torch.tensor([0, 1, 1]).repeat(50))
    >>> round(found.value, 4), found.low < found.value < found.high, found.level
    (0.6667, True, 0.95)
    """

    value: float
    low: float
    high: float
    definition: str = ""
    level: float = 0.95
    method: str = ""
    num_resamples: int = 0


def bootstrap(
    metric: str | MeasureFunction,
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "auto",
    seed: int = 0,
    kind: GivenKind = "logits",
    target: Target | None = None,
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    class_axis: int = 1,
    class_names: Sequence[str] | None = None,
    **options: Any,
) -> Interval:
    r"""A bootstrap interval of any measure.

    where `metric` is a measure of this package, its name, or any function of rows (`lambda rows: nll(rows) +
    ece(rows)`); `options` go to it. Scores are read once: resamples reuse what was found for each row, and means and
    bins of all resamples come from one product. `method` is

    - `"bca"`: quantiles of the resamples, corrected for bias and skewness;
    - `"basic"`: $[2v - q_{1-\alpha/2}, 2v - q_{\alpha/2}]$ for a value v, which takes off the bias that resampling adds
      to errors which noise can only raise, such as ECE. Where that noise is much of the value, as for the ECE of a
      calibrated model, the interval may lie wholly below it;
    - `"percentile"`: the quantiles as they are;
    - `"auto"`: basic for such errors, BCa for everything else.

    Source: [efron1987] for BCa; its acceleration comes from a jackknife over 200 groups of rows.

    >>> interval = bootstrap("accuracy", [[2.0, 0.0]] * 50, [0] * 40 + [1] * 10)
    >>> interval.value, interval.low < 0.8 < interval.high
    (0.8, True)
    """
    measure, name = _resolve(metric)
    reading = ReadOptions(
        kind=kind,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        class_axis=class_axis,
        class_names=class_names,
    )
    rows = _rows_for(measure, scores, labels, target, reading)
    return _intervals({name: partial(measure, **options)}, rows, num_resamples, level, method, seed)[name]


def bootstrap_each(
    metrics: Mapping[str, MeasureFunction] | Sequence[str],
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "auto",
    seed: int = 0,
    kind: GivenKind = "logits",
    target: Target = "top_label",
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    class_axis: int = 1,
    class_names: Sequence[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Interval]:
    """Bootstrap intervals of several measures from the same resamples, which are drawn only once.

    where `metrics` are names, or functions of rows by names of your own; everything else is as in `bootstrap`, and so
    are the intervals. `progress(done, num_resamples)` is called now and then.

    >>> found = bootstrap_each(["accuracy", "nll"], [[2.0, 0.0]] * 50, [0] * 40 + [1] * 10)
    >>> found["accuracy"] == bootstrap("accuracy", [[2.0, 0.0]] * 50, [0] * 40 + [1] * 10)
    True
    """
    several = isinstance(metrics, (Mapping, Sequence)) and not isinstance(metrics, str)
    require(several, "metrics", "must be several names of measures, or functions by name", repr(metrics))
    named = metrics if isinstance(metrics, Mapping) else {name: name for name in metrics}
    measures = {name: _resolve(metric)[0] for name, metric in named.items()}
    require(len(measures) > 0, "metrics", "must name at least one measure", "none")
    reading = ReadOptions(
        kind=kind,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        class_axis=class_axis,
        class_names=class_names,
    )
    rows = _rows_for(None, scores, labels, target, reading)
    return _intervals(measures, rows, num_resamples, level, method, seed, progress)


def _intervals(
    measures: Mapping[str, MeasureFunction],
    rows: PredictedRows | ClasswiseRows,
    num_resamples: int,
    level: float,
    method: Method,
    seed: int,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Interval]:
    _require_options(num_resamples, level, method, seed)
    rows = rows.in_order() if isinstance(rows, PredictedRows) else rows
    measured = {name: _value(measure(rows), name) for name, measure in measures.items()}
    drawn = replicates(measures, rows, num_resamples=num_resamples, seed=seed, progress=progress)
    methods = {name: usual_method(measure) if method == "auto" else method for name, measure in measures.items()}
    left_out = _jackknife({name: measures[name] for name, taken in methods.items() if taken == "bca"}, rows, seed)
    found = {}
    for name, taken in methods.items():
        value, definition = measured[name]
        low, high = _ends(value, drawn[name], left_out.get(name), level, taken)
        if taken == "basic" and (drawn[name] >= 0).all():  # mirrored, an error may seem negative
            low, high = max(low, 0.0), max(high, 0.0)
        found[name] = Interval(value, low, high, definition, level, taken, num_resamples)
    return found


def replicates(
    measures: Mapping[str, MeasureFunction],
    rows: PredictedRows | ClasswiseRows,
    *,
    num_resamples: int,
    seed: int,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Array]:
    """The measures of bootstrap resamples (R,); the same seed draws the same rows, so differences are paired.

    >>> rows = read([[2.0, 0.0]] * 50, [0] * 40 + [1] * 10)
    >>> drawn = replicates({"accuracy": MEASURES["accuracy"]}, rows, num_resamples=100, seed=0)
    >>> drawn["accuracy"].shape
    (100,)
    """
    drawn: dict[str, list[Array]] = {name: [] for name in measures}
    for part in _resamples(rows, num_resamples, seed):
        for name, measure in measures.items():
            drawn[name].append(np.asarray(measure(part)))
        if progress is not None:
            progress(sum(map(len, drawn[name])), num_resamples)
    return {name: np.concatenate(parts) for name, parts in drawn.items()}


@dataclass(frozen=True)
class Comparison:
    """The paired `difference` of a measure, first minus second, its interval, and a two-sided `p_value`.

    >>> logits = torch.tensor([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]]).repeat(50, 1)
    >>> found = compare(logits, logits / 4, torch.tensor([0, 1, 1]).repeat(50), metric="nll")
    >>> round(found.first, 3), round(found.second, 3), found.p_value < 0.05
    (1.351, 0.647, True)
    """

    difference: float
    low: float
    high: float
    p_value: float
    first: float
    second: float
    level: float
    method: str
    num_resamples: int
    definition: str


def compare(
    a: ArrayLike | PredictionSet,
    b: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    metric: str | MeasureFunction = "nll",
    num_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "auto",
    seed: int = 0,
    kind: GivenKind = "logits",
    target: Target | None = None,
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    class_axis: int = 1,
    class_names: Sequence[str] | None = None,
    **options: Any,
) -> Comparison:
    """Whether two sets of predictions of the same rows differ in a measure: the same rows are drawn for both.

    where `a` and `b` are scores (N, K) for the same `labels`, and everything else is as in `bootstrap`. The p-value is
    twice the share of resamples whose difference lies on the other side of 0; it is never below 2 / (R + 1), and
    not a number where the difference is not.

    >>> sure, modest = [[4.0, 0.0]] * 50, [[1.4, 0.0]] * 50
    >>> result = compare(sure, modest, [0] * 40 + [1] * 10)
    >>> result.difference > 0, result.p_value < 0.05
    (True, True)
    """
    _require_options(num_resamples, level, method, seed)
    measure, name = _resolve(metric)
    reading = ReadOptions(
        kind=kind,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        class_axis=class_axis,
        class_names=class_names,
    )
    first, second = (_rows_for(measure, scores, labels, target, reading) for scores in (a, b))
    same = first.num_rows == second.num_rows
    require(same, "b", f"must have as many rows as a, {first.num_rows}", second.num_rows)

    def difference(parts: tuple[Any, Any]) -> Any:
        return measure(parts[0], **options) - measure(parts[1], **options)

    pair = zip(_resamples(first, num_resamples, seed), _resamples(second, num_resamples, seed), strict=True)
    replicates = np.concatenate([np.asarray(difference(part)) for part in pair])
    (of_a, definition), (of_b, _) = _value(measure(first, **options), name), _value(measure(second, **options), name)

    left_out = None
    if method in ("auto", "bca"):  # noise raises both values, and cancels in the difference: BCa serves every measure
        method, measured = "bca", {name: partial(measure, **options)}
        left_out = _jackknife(measured, first, seed)[name] - _jackknife(measured, second, seed)[name]
    low, high = _ends(of_a - of_b, replicates, left_out, level, method)
    beyond = min(int((replicates <= 0).sum()), int((replicates >= 0).sum()))
    p_value = min(1.0, 2 * (beyond + 1) / (num_resamples + 1))
    if math.isnan(of_a - of_b):  # both are infinite: nothing can be said
        p_value = math.nan
    return Comparison(of_a - of_b, low, high, p_value, of_a, of_b, level, method, num_resamples, definition)


def _require_options(num_resamples: int, level: float, method: str, seed: int) -> None:
    require_resampling(num_resamples, level)
    require_whole(seed, "seed", 0)
    known = get_args(Method)
    require(isinstance(method, str) and method in known, "method", f"must be one of {', '.join(known)}", repr(method))


def usual_resamples(num_rows: int) -> int:
    """The usual number of resamples: a thousand; fewer for many rows, where intervals are narrow and resamples slow.

    >>> usual_resamples(10_000), usual_resamples(50_000), usual_resamples(1_000_000)
    (1000, 400, 200)
    """
    return min(1000, max(200, 20_000_000 // num_rows))


def usual_method(measure: MeasureFunction) -> Method:
    """The method that `"auto"` stands for.

    Resamples of an error that noise can only raise have noise twice and lie above it. Where nearly all of them do, BCa
    takes both ends from one tail and hardly ever covers the truth; the basic interval takes the difference off.

    >>> usual_method(MEASURES["ece"]), usual_method(MEASURES["nll"])
    ('basic', 'bca')
    """
    known = measure_for(measure)
    return "basic" if known is not None and known.raised_by_noise else "bca"


def _resolve(metric: str | MeasureFunction) -> tuple[MeasureFunction, str]:
    if isinstance(metric, str):
        rule = f"must be a function of rows or one of {', '.join(MEASURES)}"
        require(metric in MEASURES, "metric", rule, repr(metric))
        return MEASURES[metric], metric
    require(callable(metric), "metric", "must be a measure, its name or a function of rows", type(metric).__name__)
    return metric, getattr(metric, "__name__", "metric")


def _rows_for(
    measure: MeasureFunction | None,
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None,
    target: Target | None,
    reading: ReadOptions,
) -> PredictedRows | ClasswiseRows:
    """The rows of all columns, for classwise measures those of all classes."""
    if isinstance(scores, (PredictedRows, ClasswiseRows)):
        return scores
    require(labels is not None, "labels", "must be given beside scores", None)
    if target is None:  # class 0 is a target, too
        known = None if measure is None else measure_for(measure)
        target = "classwise" if known is not None and known.reads == ("classes",) else "top_label"
    rows = read(scores, labels, target=target, **reading)  # type: ignore[arg-type]
    assert isinstance(rows, (PredictedRows, ClasswiseRows))
    return rows


def _value(measured: Any, name: str) -> tuple[float, str]:
    number = isinstance(measured, (float, int)) or getattr(measured, "ndim", None) == 0
    require(number, "metric", "must give one number", type(measured).__name__)
    return float(measured), getattr(measured, "definition", name)


def _resamples(rows: PredictedRows | ClasswiseRows, num_resamples: int, seed: int) -> Iterator[PredictionSet]:
    """Resamples of the rows with replacement, some at a time; the same seed draws the same rows."""
    n, generator = rows.num_rows, np.random.default_rng(seed)
    require(n < 2**31, "scores", "must have fewer than two billion rows to be resampled", n)
    step = max(1, _HELD // n)
    for start in range(0, num_resamples, step):
        times = np.empty((min(step, num_resamples - start), n))
        for row in times:
            row[:] = np.bincount(generator.integers(0, n, size=n, dtype=np.int32), minlength=n)
        yield rows.resampled(times)


def _jackknife(
    measures: Mapping[str, MeasureFunction], rows: PredictedRows | ClasswiseRows, seed: int
) -> dict[str, Array]:
    """The measures without each of many groups of rows."""
    if not measures:
        return {}
    n = rows.num_rows
    groups = min(n, _JACKKNIFE_GROUPS)
    group = np.random.default_rng(seed + 1).permutation(n) % groups
    values: dict[str, list[Array]] = {name: [] for name in measures}
    for start in range(0, groups, max(1, _HELD // n)):
        some = np.arange(start, min(groups, start + max(1, _HELD // n)))
        left_out = rows.resampled((group[None, :] != some[:, None]).astype(np.int64))
        left_out.draws = 1
        for name, measure in measures.items():
            values[name].append(measure(left_out))
    return {name: np.concatenate(parts) for name, parts in values.items()}


def _ends(value: float, replicates: Array, left_out: Array | None, level: float, method: Method) -> tuple[float, float]:
    """The ends of the interval: quantiles of the replicates, at other levels for BCa, mirrored for basic."""
    finite = replicates[np.isfinite(replicates)]
    if not len(finite) or not np.isfinite(value):
        return float("nan"), float("nan")
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    if left_out is not None and finite.min() < finite.max():
        tails = _bca_tails(value, finite, left_out, tails)
    low, high = (float(end) for end in np.quantile(finite, tails))
    if method == "basic":
        return 2 * value - high, 2 * value - low
    return low, high


def _bca_tails(value: float, replicates: Array, left_out: Array, tails: Array) -> Array:
    r"""$\Phi(z_0 + (z_0 + z_\alpha) / (1 - a (z_0 + z_\alpha)))$ with bias $z_0$ and acceleration $a$."""
    below = ((replicates < value).mean() + (replicates <= value).mean()) / 2
    edge = 1 / (len(replicates) + 1)
    bias = _normal_quantile(np.clip(below, edge, 1 - edge))
    left_out = left_out[np.isfinite(left_out)]
    deviation = left_out.mean() - left_out
    spread = (deviation**2).sum() ** 1.5
    acceleration = (deviation**3).sum() / (6 * spread) if spread > 0 else 0.0
    shifted = bias + _normal_quantile(tails)
    return np.asarray(torch.special.ndtr(torch.from_numpy(bias + shifted / (1 - acceleration * shifted))))


def _normal_quantile(level: Any) -> Array:
    """The quantile of the normal distribution, by torch: importing scipy would take longer than the whole bootstrap."""
    return np.asarray(torch.special.ndtri(torch.as_tensor(level, dtype=torch.float64)))
