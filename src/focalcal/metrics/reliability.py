r"""The bins behind reliability diagrams, and how far they scatter by chance."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, Scheme, bin_norm, require_bins
from focalcal.core.checks import Array, ArrayLike, is_number, require, require_whole
from focalcal.core.ranking import Ranking
from focalcal.core.score_kinds import GivenKind
from focalcal.drawing.reliability import Bars
from focalcal.kernels.bins import bin_predictions
from focalcal.metrics.predicted_rows import PredictedRows, require_resampling
from focalcal.metrics.prediction_set import CLASSWISE, PredictionSet
from focalcal.metrics.read_scores import PAIRS, TargetedReadOptions, read, rows_of
from focalcal.predictions.arrays import Target

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ConsistencyBars", "TrainValBins", "accuracy_bands", "consistency_bars", "reliability", "train_val_bins"]

# Rows of a bin that are drawn together in `consistency_bars`, as they are almost equally confident.
_CELLS_PER_BIN = 64


def reliability(
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_bins: int = 15,
    edges: Scheme | Tensor = "equal_width",
    **reading: Unpack[TargetedReadOptions],
) -> Bins:
    """The bins behind a reliability diagram, the same that `ece` reads.

    >>> reliability([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs", num_bins=2).accuracy
    tensor([0.0000, 0.5000], dtype=torch.float64)
    """
    require_bins(num_bins, edges)
    return rows_of(scores, labels, PAIRS, reading).bins(num_bins, edges)


def accuracy_bands(bins: Bins, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """The Clopper-Pearson interval of each bin's accuracy: it covers the truth at least as often as `level` says.

    Empty bins have the interval from 0 to 1. Source: [clopper1934].

    >>> from focalcal.kernels.bins import bin_predictions
    >>> bins = bin_predictions(torch.tensor([0.9] * 10), torch.tensor([1] * 9 + [0]), num_bins=1)
    >>> [round(float(end), 3) for end in accuracy_bands(bins)]
    [0.555, 0.997]
    """
    require(is_number(level) and 0 < level < 1, "level", "must lie between 0 and 1", repr(level))
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
    scores: ArrayLike | PredictionSet,
    labels: ArrayLike | None = None,
    *,
    num_bins: int = 15,
    edges: Scheme = "equal_width",
    level: float = 0.95,
    num_resamples: int = 1000,
    seed: int = 0,
    kind: GivenKind = "logits",
    target: Target = "top_label",
    ignore_index: int | None = None,
) -> ConsistencyBars:
    """How much of the ECE is chance: labels are drawn again from the confidences, as if these were right.

    ECE is never 0 on a sample, because accuracies scatter; it means something above `ece_high` only.

    Source: [brocker2007] for the bars.

    >>> rows = [[0.8, 0.2]] * 100
    >>> bars = consistency_bars(rows, [0] * 80 + [1] * 20, kind="probs")
    >>> bars.ece < bars.ece_high, round(bars.expected_ece, 2)
    (True, 0.03)
    """
    require_resampling(num_resamples, level)
    require_whole(seed, "seed", 0)
    rows = scores
    if not isinstance(rows, PredictionSet):
        require(labels is not None, "labels", "must be given beside scores", None)
        reading = {"kind": kind, "target": target, "ignore_index": ignore_index, "columns": PAIRS}
        rows = read(scores, labels, **reading)  # type: ignore[arg-type]
    require(rows.target != CLASSWISE, "target", "must be one class or the top label here", rows.target)
    require_bins(num_bins, edges)
    bins = rows.bins(num_bins, edges)
    redrawn = rows.each(lambda ordered: _redraw(ordered, bins, num_resamples, seed))
    accuracy = torch.from_numpy(redrawn)
    errors = (bins.weight * (bins.confidence - accuracy).abs()).sum(-1)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.quantile(accuracy, tails, dim=0)
    ece_low, ece_high = torch.quantile(errors, tails).tolist()
    ece = float(bin_norm(bins, "l1"))
    return ConsistencyBars(bins, low, high, ece, float(errors.mean()), ece_low, ece_high, level)


def _redraw(ordered: Ranking, bins: Bins, num_resamples: int, seed: int) -> Array:
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


def bars_of(bins: Bins, *, level: float = 0.95, chance: tuple[Tensor, Tensor] | None = None) -> Bars:
    """The bars of bins, with bands of the given level; `chance` are the ends of the band by chance of each bin.

    >>> import torch
    >>> from focalcal.kernels.bins import bin_predictions
    >>> bars_of(bin_predictions(torch.tensor([0.9, 0.8]), torch.tensor([1, 0]), num_bins=2)).accuracy
    array([0.5])
    """
    columns = (bins.edges[:-1], bins.edges[1:], bins.weight, bins.confidence, bins.accuracy)
    held = bins.count > 0
    bands = (*accuracy_bands(bins, level), *(chance or ()))
    return Bars(*(column[held].numpy() for column in (*columns, *bands)))


def chance_band(bins: Bins, level: float = 0.95) -> tuple[Tensor, Tensor] | None:
    """Where the accuracies of a perfectly calibrated model lie, if all rows of a bin are equally sure.

    `consistency_bars` knows the confidence of each row; this is for bins whose rows are gone. None for weighted rows.

    >>> import torch
    >>> from focalcal.kernels.bins import bin_predictions
    >>> bins = bin_predictions(torch.full((100,), 0.9), torch.ones(100), num_bins=1)
    >>> [round(float(end), 3) for end in chance_band(bins)]
    [0.84, 0.95]
    """
    if not bins.mass.equal(bins.count):
        return None
    from scipy.stats import binom

    count, confidence = bins.count.clamp_min(1), bins.confidence.clamp(0, 1)
    low, high = (binom.ppf(tail, count, confidence) for tail in ((1 - level) / 2, (1 + level) / 2))
    return count.new_tensor(low) / count, count.new_tensor(high) / count


@dataclass(frozen=True)
class TrainValBins:
    """Training and validation side by side: validation bins, and training rows in bins with the same edges.

    `train.confidence` is the mean probability of the true class, as AdaFocal sees training rows; empty bins are 0.

    >>> both = train_val_bins([[3.0, 0.0], [0.0, 3.0]], [0, 1], [[2.0, 0.0], [0.0, 1.0]], [0, 0], num_bins=2)
    >>> both.val.count.tolist(), both.train.count.tolist()
    ([1.0, 1.0], [0.0, 2.0])
    """

    train: Bins
    val: Bins


def train_val_bins(
    train_scores: ArrayLike,
    train_labels: ArrayLike,
    val_scores: ArrayLike,
    val_labels: ArrayLike,
    *,
    kind: GivenKind = "logits",
    num_bins: int = 15,
    edges: Scheme | Tensor = "equal_mass",
) -> TrainValBins:
    r"""Confidence on training data in the bins of validation data: $C_{\mathrm{train}}$ beside $C_{\mathrm{val}}$.

    Validation rows are binned by their largest probability, training rows by the probability of their true class, with
    the edges of the validation bins.

    Source: [ghosh2022, Sec. 4, Fig. 2].

    >>> both = train_val_bins([[2.0, 0.0], [0.0, 1.0]], [0, 1], [[1.0, 0.0], [3.0, 0.0]], [1, 0], num_bins=2)
    >>> both.train.count, both.val.count
    (tensor([1., 1.], dtype=torch.float64), tensor([1., 1.], dtype=torch.float64))
    """
    val = read(val_scores, val_labels, kind=kind, columns=("confidence", "correct")).bins(num_bins, edges)
    rows = read(train_scores, train_labels, kind=kind, columns=("nll", "correct"))
    assert isinstance(rows, PredictedRows)
    train = bin_predictions(np.exp(-rows.column("nll")), rows.column("correct"), edges=val.edges)
    return TrainValBins(train=train, val=val)
