r"""How certain a measured number is: intervals, paired comparisons, bands per bin, and what chance alone would show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, Scheme, bin_norm
from focalcal.core.checks import ArrayLike, require
from focalcal.core.ranking import Array, Ranked
from focalcal.metrics import calibration, ranked
from focalcal.metrics import scores as score_measures
from focalcal.metrics.classes import ClassRows
from focalcal.metrics.read import read
from focalcal.metrics.rows import CLASSWISE, Readable, Rows
from focalcal.predictions.arrays import Kind, Target

Method = Literal["auto", "bca", "percentile", "basic"]
Metric = Callable[..., Any]

MEASURES: dict[str, Metric] = {
    measure.__name__: measure
    for measure in (
        score_measures.nll,
        score_measures.brier,
        score_measures.accuracy,
        score_measures.error,
        score_measures.mean_confidence,
        score_measures.top_k_accuracy,
        calibration.ece,
        calibration.ada_ece,
        calibration.mce,
        calibration.classwise_ece,
        calibration.ece_debiased,
        calibration.ece_sweep,
        ranked.smooth_ece,
        ranked.ks_error,
        ranked.mmce,
        ranked.aurc,
        ranked.auroc_correctness,
    )
}
# Errors that noise can only raise: resamples, which have noise twice, lie above them. Where nearly all of them do, BCa
# takes both ends from one tail and hardly ever covers the truth; the basic interval takes the difference off.
_RAISED_BY_NOISE = frozenset(
    {
        calibration.ece,
        calibration.ada_ece,
        calibration.mce,
        calibration.classwise_ece,
        calibration.ece_sweep,
        ranked.smooth_ece,
        ranked.ks_error,
        ranked.mmce,
    }
)
# Draws that are held at once, in numbers: the counts of a block of resamples stay in the cache.
_HELD = 1 << 19
# Rows are left out in so many groups to find the skewness of a measure: leaving out one by one would cost N calls.
_JACKKNIFE_GROUPS = 200
# Rows of a bin that are drawn together in `consistency_bars`, as they are almost equally confident.
_CELLS_PER_BIN = 64


@dataclass(frozen=True)
class Interval:
    """A measured `value` with the interval from `low` to `high` that covers the truth with probability `level`.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).repeat(50, 1)
    >>> found = bootstrap("accuracy", logits, torch.tensor([0, 1, 1]).repeat(50))
    >>> round(found.value, 4), found.low < found.value < found.high, found.level
    (0.6667, True, 0.95)
    """

    value: float
    low: float
    high: float
    level: float
    method: str
    num_resamples: int
    definition: str


def bootstrap(
    metric: str | Metric,
    scores: ArrayLike | Readable,
    labels: ArrayLike | None = None,
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "auto",
    seed: int = 0,
    kind: Kind = "logits",
    target: Target | None = None,
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
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
    rows = _rows_for(measure, scores, labels, kind, target, sample_weight, ignore_index)
    return _intervals({name: partial(measure, **options)}, rows, num_resamples, level, method, seed)[name]


def bootstrap_each(
    metrics: Mapping[str, Metric] | Sequence[str],
    scores: ArrayLike | Readable,
    labels: ArrayLike | None = None,
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "auto",
    seed: int = 0,
    kind: Kind = "logits",
    target: Target = "top_label",
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Interval]:
    """Bootstrap intervals of several measures from the same resamples, which are drawn only once.

    where `metrics` are names, or functions of rows by names of your own; everything else is as in `bootstrap`, and so
    are the intervals. `progress(done, num_resamples)` is called now and then.

    >>> found = bootstrap_each(["accuracy", "nll"], [[2.0, 0.0]] * 50, [0] * 40 + [1] * 10)
    >>> found["accuracy"] == bootstrap("accuracy", [[2.0, 0.0]] * 50, [0] * 40 + [1] * 10)
    True
    """
    named = metrics if isinstance(metrics, Mapping) else {name: name for name in metrics}
    measures = {name: _resolve(metric)[0] for name, metric in named.items()}
    require(len(measures) > 0, "metrics", "must name at least one measure", "none")
    reading = (kind, target, sample_weight, ignore_index)
    rows = _rows_for(None, scores, labels, *reading)
    return _intervals(measures, rows, num_resamples, level, method, seed, progress)


def _intervals(
    measures: Mapping[str, Metric],
    rows: Rows | ClassRows,
    num_resamples: int,
    level: float,
    method: Method,
    seed: int,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Interval]:
    _require_options(num_resamples, level, method)
    rows = rows.in_order() if isinstance(rows, Rows) else rows
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
        found[name] = Interval(value, low, high, level, taken, num_resamples, definition)
    return found


def replicates(
    measures: Mapping[str, Metric],
    rows: Rows | ClassRows,
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
    a: ArrayLike | Readable,
    b: ArrayLike | Readable,
    labels: ArrayLike | None = None,
    *,
    metric: str | Metric = "nll",
    num_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "auto",
    seed: int = 0,
    kind: Kind = "logits",
    target: Target | None = None,
    sample_weight: ArrayLike | None = None,
    ignore_index: int | None = None,
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
    _require_options(num_resamples, level, method)
    measure, name = _resolve(metric)
    reading = (kind, target, sample_weight, ignore_index)
    first, second = _rows_for(measure, a, labels, *reading), _rows_for(measure, b, labels, *reading)
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


def _require_options(num_resamples: int, level: float, method: str) -> None:
    require(num_resamples >= 100, "num_resamples", "must be at least 100", num_resamples, "1,000 is usual.")
    require(0 < level < 1, "level", "must lie between 0 and 1", level)
    known = get_args(Method)
    require(method in known, "method", f"must be one of {', '.join(known)}", repr(method))


def usual_resamples(num_rows: int) -> int:
    """A thousand resamples, fewer where rows are so many that intervals are narrow and each resample takes long.

    >>> usual_resamples(10_000), usual_resamples(50_000), usual_resamples(1_000_000)
    (1000, 400, 200)
    """
    return min(1000, max(200, 20_000_000 // num_rows))


def usual_method(measure: Metric) -> Method:
    """The method that `"auto"` stands for.

    >>> usual_method(calibration.ece), usual_method(score_measures.nll)
    ('basic', 'bca')
    """
    plain = getattr(measure, "func", measure)  # options make a measure a partial one
    return "basic" if plain in _RAISED_BY_NOISE else "bca"


def _resolve(metric: str | Metric) -> tuple[Metric, str]:
    if isinstance(metric, str):
        require(
            metric in MEASURES, "metric", f"must be a function of rows or one of {', '.join(MEASURES)}", repr(metric)
        )
        return MEASURES[metric], metric
    require(callable(metric), "metric", "must be a measure, its name or a function of rows", type(metric).__name__)
    return metric, getattr(metric, "__name__", "metric")


def _rows_for(
    measure: Metric | None,
    scores: ArrayLike | Readable,
    labels: ArrayLike | None,
    kind: Kind,
    target: Target | None,
    sample_weight: ArrayLike | None,
    ignore_index: int | None,
) -> Rows | ClassRows:
    """The rows of all columns, for classwise measures those of all classes."""
    if isinstance(scores, (Rows, ClassRows)):
        return scores
    require(labels is not None, "labels", "must be given beside scores", None)
    if target is None:  # class 0 is a target, too
        target = "classwise" if measure is calibration.classwise_ece else "top_label"
    rows = read(scores, labels, kind=kind, target=target, sample_weight=sample_weight, ignore_index=ignore_index)  # type: ignore[arg-type]
    assert isinstance(rows, (Rows, ClassRows))
    return rows


def _value(measured: Any, name: str) -> tuple[float, str]:
    require(isinstance(measured, (float, int)), "metric", "must give one number", type(measured).__name__)
    return float(measured), getattr(measured, "definition", name)


def _resamples(rows: Rows | ClassRows, num_resamples: int, seed: int) -> Iterator[Readable]:
    """Resamples of the rows with replacement, some at a time; the same seed draws the same rows."""
    n, generator = rows.num_rows, np.random.default_rng(seed)
    require(n < 2**31, "scores", "must have fewer than two billion rows to be resampled", n)
    step = max(1, _HELD // n)
    for start in range(0, num_resamples, step):
        times = np.empty((min(step, num_resamples - start), n))
        for row in times:
            row[:] = np.bincount(generator.integers(0, n, size=n, dtype=np.int32), minlength=n)
        yield rows.resampled(times)


def _jackknife(measures: Mapping[str, Metric], rows: Rows | ClassRows, seed: int) -> dict[str, Array]:
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
    """By torch: importing scipy would take longer than the whole bootstrap."""
    return np.asarray(torch.special.ndtri(torch.as_tensor(level, dtype=torch.float64)))


def accuracy_bands(bins: Bins, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """The Clopper-Pearson interval of each bin's accuracy: it covers the truth at least as often as `level` says.

    Empty bins have the interval from 0 to 1. Source: [clopper1934].

    >>> from focalcal.core.binning import bin_predictions
    >>> bins = bin_predictions(torch.tensor([0.9] * 10), torch.tensor([1] * 9 + [0]), num_bins=1)
    >>> [round(float(end), 3) for end in accuracy_bands(bins)]
    [0.555, 0.997]
    """
    require(0 < level < 1, "level", "must lie between 0 and 1", level)
    from scipy.special import betaincinv

    count, hits = bins.count.numpy(), (bins.accuracy * bins.count).numpy()
    tail, misses = (1 - level) / 2, count - hits
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1e-9), misses + 1, tail), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, 1e-9), 1 - tail), 1.0)
    return torch.from_numpy(low), torch.from_numpy(high)


@dataclass(frozen=True)
class ConsistencyBars:
    """What a perfectly calibrated model with these confidences would show on this many rows.

    Per bin: accuracies between `low` and `high` are no evidence against calibration. Over all: such a model shows an
    ECE of `expected_ece` on average and between `ece_low` and `ece_high` mostly; `ece` is the one that was measured.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).repeat(50, 1)
    >>> bars = consistency_bars(logits, torch.tensor([0, 1, 1]).repeat(50))
    >>> bars.ece_low < bars.expected_ece < bars.ece_high < bars.ece
    True
    """

    bins: Bins
    low: Tensor
    high: Tensor
    ece: float
    expected_ece: float
    ece_low: float
    ece_high: float
    level: float


def consistency_bars(
    scores: ArrayLike | Readable,
    labels: ArrayLike | None = None,
    *,
    num_bins: int = 15,
    edges: Scheme = "equal_width",
    level: float = 0.95,
    num_resamples: int = 1000,
    seed: int = 0,
    kind: Kind = "logits",
    target: Target = "top_label",
    ignore_index: int | None = None,
) -> ConsistencyBars:
    """How much of the ECE is chance: labels are redrawn from the confidences themselves, which are right by design.

    ECE is never 0 on a sample, because accuracies scatter; it means something above `ece_high` only.

    Source: [brocker2007] for the bars.

    >>> rows = [[0.8, 0.2]] * 100
    >>> bars = consistency_bars(rows, [0] * 80 + [1] * 20, kind="probs")
    >>> bars.ece < bars.ece_high, round(bars.expected_ece, 2)
    (True, 0.03)
    """
    _require_options(num_resamples, level, "percentile")
    rows = scores
    if not isinstance(rows, Readable):
        require(labels is not None, "labels", "must be given beside scores", None)
        reading = {"kind": kind, "target": target, "ignore_index": ignore_index, "columns": calibration.PAIRS}
        rows = read(scores, labels, **reading)  # type: ignore[arg-type]
    require(rows.target != CLASSWISE, "target", "must be one class or the top label here", rows.target)
    bins = rows.bins(num_bins, edges)
    redrawn = rows.each(lambda ordered: _redraw(ordered, bins, num_resamples, seed))
    accuracy = torch.from_numpy(redrawn)
    errors = (bins.weight * (bins.confidence - accuracy).abs()).sum(-1)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.quantile(accuracy, tails, dim=0)
    ece_low, ece_high = torch.quantile(errors, tails).tolist()
    ece = float(bin_norm(bins, "l1"))
    return ConsistencyBars(bins, low, high, ece, float(errors.mean()), ece_low, ece_high, level)


def _redraw(ordered: Ranked, bins: Bins, num_resamples: int, seed: int) -> Array:
    """Accuracies (R, B) of the bins if every row were right with the probability that it claims.

    Neighbours in the order are drawn together, as many times a coin of their mean confidence: 64 cells in each bin.
    """
    generator = np.random.default_rng(seed)
    accuracy = np.zeros((num_resamples, len(bins.count)))
    ends = np.concatenate([[0], np.cumsum(bins.count.numpy())]).round().astype(np.int64)
    rank = np.concatenate([[0], np.cumsum(ordered.count, dtype=np.int64)])
    for b, (start, end) in enumerate(itertools.pairwise(ends)):
        if start == end:
            continue
        cuts = np.unique(np.linspace(start, end, min(end - start, _CELLS_PER_BIN) + 1).round().astype(np.int64))
        total = np.interp(cuts, rank, np.concatenate([[0.0], np.cumsum(ordered.value * ordered.count.astype(float))]))
        size = np.diff(cuts)
        mean = np.clip(np.diff(total) / size, 0, 1)
        accuracy[:, b] = generator.binomial(size, mean, size=(num_resamples, len(size))).sum(1) / (end - start)
    return accuracy
