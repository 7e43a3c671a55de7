r"""Beyond one labelled data set: out-of-distribution detection, a known posterior, training beside validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins, Scheme, bin_predictions
from focalcal.core.checks import ArrayLike, require, require_distribution, to_float_tensor
from focalcal.core.ranking import Array, Ranked, dense_rank
from focalcal.core.reader import ChunkReader
from focalcal.metrics.ranked import area_under_roc
from focalcal.metrics.read import read
from focalcal.metrics.rows import Measured, Rows
from focalcal.predictions.arrays import Kind, Predictions

OodScore = Literal["entropy", "max_prob", "energy"]
_COLUMN = {"entropy": "entropy", "max_prob": "confidence", "energy": "energy"}


def normality(scores: ArrayLike, kind: Kind, score: OodScore, argument: str) -> Array:
    """How much like in-distribution each row looks: higher means more."""
    require(score in _COLUMN, "score", f"must be one of {', '.join(_COLUMN)}", repr(score))
    fix = "An energy is a sum over logits; probabilities have lost it."
    require(score != "energy" or kind == "logits", "kind", "must be logits for score=energy", repr(kind), fix)
    predictions, name = Predictions(scores, None, kind=kind, argument=argument), _COLUMN[score]
    column = np.concatenate([ChunkReader(chunk, kind).columns((name,))[name] for chunk in predictions.chunks()])
    return -column if score == "entropy" else column


def ood_auroc(
    in_scores: ArrayLike, out_scores: ArrayLike, *, kind: Kind = "logits", score: OodScore = "entropy"
) -> Measured:
    r"""How well a score tells known from unknown inputs: the area under the ROC curve.

    The probability that a row of `in_scores` (N, K) looks more like in-distribution than a row of `out_scores` (M, K),
    a tie counting one half; `score` is low entropy, high largest probability, or energy $\log \sum_k e^{x_k}$.

    Source: [ghosh2022, App. K] by entropy; [hendrycks2017] for the largest probability, [liu2020] for the energy.

    >>> ood_auroc([[9.0, 0.0], [8.0, 0.0]], [[0.1, 0.0], [8.5, 0.0]])
    0.75
    """
    known, unknown = normality(in_scores, kind, score, "in_scores"), normality(out_scores, kind, score, "out_scores")
    place = dense_rank(np.concatenate([known, unknown]))
    ranked = Ranked.of_rows(place, np.arange(len(place)) < len(known))
    return Measured(area_under_roc(ranked), f"AUROC of in- against out-of-distribution by {score}")


def fpr95(
    in_scores: ArrayLike, out_scores: ArrayLike, *, kind: Kind = "logits", score: OodScore = "entropy"
) -> Measured:
    """The share of unknown inputs that pass as known where 95 % of the known ones do.

    The threshold is the largest score that at least 95 % of `in_scores` reach; arguments as in `ood_auroc`.

    Source: [hendrycks2017], as used since.

    >>> fpr95([[9.0, 0.0], [8.0, 0.0]], [[0.1, 0.0], [8.5, 0.0]])
    0.5
    """
    known, unknown = normality(in_scores, kind, score, "in_scores"), normality(out_scores, kind, score, "out_scores")
    allowed = int(np.floor(0.05 * len(known) + 1e-9))  # this many may fall below
    threshold = np.sort(known)[allowed]
    return Measured(float((unknown >= threshold).mean()), f"false positive rate at 95 % true positives by {score}")


def kl_to_posterior(scores: ArrayLike, posterior: ArrayLike, *, kind: Kind = "logits") -> Measured:
    r"""The mean Kullback-Leibler divergence of the predictions from the true posterior, where that is known.

    $$ \frac1N \sum_n \sum_k \eta_{nk} \log \frac{\eta_{nk}}{p_{nk}} $$

    where `posterior` (N, K) is $\eta$ and $p$ are the probabilities of `scores` (N, K).

    Source: [charoenphakdee2021, Sec. 5.1].

    >>> round(kl_to_posterior([[0.5, 0.5]], [[0.8, 0.2]], kind="probs"), 4)
    0.1927
    """
    truth = to_float_tensor(posterior, "posterior")
    predictions = Predictions(scores, None, kind=kind)
    expected = (len(scores), predictions.num_classes)  # type: ignore[arg-type]
    require(tuple(truth.shape) == expected, "posterior", f"must have shape {expected}", tuple(truth.shape))
    require_distribution(truth, "posterior", 1)
    total, start = 0.0, 0
    for chunk in predictions.chunks():
        eta = truth[start : start + len(chunk.scores)].to(chunk.scores.device, torch.float64)
        wide = chunk.scores.double()
        log_probs = torch.log(wide / wide.sum(1, keepdim=True)) if kind == "probs" else torch.log_softmax(wide, 1)
        rows = torch.where(eta > 0, eta * (torch.log(eta) - log_probs), 0.0).sum(1)
        total, start = total + float(rows.sum()), start + len(eta)
    return Measured(total / start, "KL divergence of the predictions from the posterior in nats, mean over rows")


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
    kind: Kind = "logits",
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
    rows: Any = read(train_scores, train_labels, kind=kind, columns=("nll", "correct"))
    assert isinstance(rows, Rows)
    train = bin_predictions(np.exp(-rows.column("nll")), rows.column("correct"), edges=val.edges)
    return TrainValBins(train=train, val=val)
