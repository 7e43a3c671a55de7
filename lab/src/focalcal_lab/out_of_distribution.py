"""Out-of-distribution detection: does a network's uncertainty tell unknown inputs from known ones?

The known inputs are the test split, the unknown ones another set, such as SVHN or CIFAR-10-C for a network that learnt
CIFAR-10. Nothing is fitted: the entropy of the softmax is the score, before and after temperature scaling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from focalcal import drawing
from focalcal.core.checks import ArrayLike, require, to_float_tensor
from focalcal.core.score_kinds import Kind
from focalcal.metrics import fpr95, ood_auroc
from focalcal.metrics.out_of_distribution import OodScore, normality
from focalcal_lab.run_results import MeasuredNumber

# What the metric of each score is called in results: the papers' tables are by entropy.
_SUFFIXES: dict[OodScore, str] = {"entropy": "", "max_prob": "_confidence"}


@dataclass(frozen=True)
class RocCurve:
    """Shares of inputs that pass as known, from the strictest threshold to the loosest.

    `true_positive_rate` is that of the known inputs, `false_positive_rate` that of the unknown ones; both start at 0
    and end at 1, and points on a line between their neighbours are left out. `auroc` is the area below.
    """

    false_positive_rate: np.ndarray[Any, np.dtype[np.float64]]
    true_positive_rate: np.ndarray[Any, np.dtype[np.float64]]
    auroc: float


def ood_table(
    test_logits: ArrayLike, ood_logits: Mapping[str, ArrayLike], temperature: float | None = None
) -> list[MeasuredNumber]:
    """AUROC and FPR95 of telling the test split from each other set, before and after temperature scaling.

    where `test_logits` (N, K) are known inputs, `ood_logits` (M, K) unknown ones by name, and `temperature` was fitted
    to validation rows of the known ones; without it there are only "pre" rows. "auroc" and "fpr95" are by entropy,
    as in the paper; "auroc_confidence" and "fpr95_confidence" by the largest probability.

    Source: [ghosh2022, Table 8, App. K]; temperatures there are by ECE.

    >>> rows = ood_table([[9.0, 0.0], [8.0, 0.0]], {"noise": [[0.1, 0.0], [8.5, 0.0]]}, temperature=2.0)
    >>> [(row.phase, row.metric, row.value) for row in rows if row.metric == "auroc"]
    [('pre', 'auroc', 0.75), ('post', 'auroc', 0.75)]
    """
    return [
        MeasuredNumber(phase, metric, value, temperature=divisor, against=name)
        for phase, divisor, known, others in _phases(test_logits, ood_logits, temperature)
        for name, unknown in others.items()
        for metric, value in _values(known, unknown)
    ]


def _values(known: Tensor, unknown: Tensor) -> Iterator[tuple[str, float]]:
    for score, suffix in _SUFFIXES.items():
        yield f"auroc{suffix}", float(ood_auroc(known, unknown, score=score))
        yield f"fpr95{suffix}", float(fpr95(known, unknown, score=score))


def _phases(
    test_logits: ArrayLike, ood_logits: Mapping[str, ArrayLike], temperature: float | None
) -> Iterator[tuple[str, float | None, Tensor, dict[str, Tensor]]]:
    require(len(ood_logits) > 0, "ood_logits", "must name at least one set", "none")
    right = temperature is None or 0 < temperature < float("inf")
    require(right, "temperature", "must be greater than 0 and finite", temperature)
    # In float64: in float32 many of the surest rows have a confidence of exactly 1, and would be tied.
    known = to_float_tensor(test_logits, "test_logits").double()
    others = {name: to_float_tensor(logits, f"ood_logits[{name!r}]").double() for name, logits in ood_logits.items()}
    for name, logits in others.items():
        same = logits.dim() == known.dim() == 2 and logits.shape[1] == known.shape[1]
        shapes = f"{tuple(logits.shape)} beside {tuple(known.shape)}"
        require(same, f"ood_logits[{name!r}]", "must have the classes of test_logits, (M, K) beside (N, K)", shapes)
    yield "pre", None, known, others
    if temperature is not None:
        softer = {name: logits / temperature for name, logits in others.items()}
        yield "post", temperature, known / temperature, softer


def roc_curve(
    in_scores: ArrayLike, out_scores: ArrayLike, *, kind: Kind = "logits", score: OodScore = "entropy"
) -> RocCurve:
    """The ROC curve of telling known from unknown inputs; arguments as in `focalcal.metrics.ood_auroc`.

    Source: [ghosh2022, Fig. 6].

    >>> curve = roc_curve([[9.0, 0.0], [8.0, 0.0]], [[0.1, 0.0], [8.5, 0.0]])
    >>> curve.false_positive_rate.tolist(), curve.true_positive_rate.tolist(), curve.auroc
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0], 0.75)
    """
    known = normality(in_scores, kind, score, "in_scores")
    unknown = normality(out_scores, kind, score, "out_scores")
    # Every value that occurs is a threshold that it passes itself, the largest first.
    thresholds = np.unique(np.concatenate([known, unknown]))[::-1]
    passed = [_passing(values, thresholds) for values in (unknown, known)]
    kept = _corners(*passed)
    area = float(ood_auroc(in_scores, out_scores, kind=kind, score=score))
    return RocCurve(passed[0][kept] / len(unknown), passed[1][kept] / len(known), area)


def _passing(values: np.ndarray[Any, Any], thresholds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How many values reach each threshold, and 0 before the first."""
    below = np.searchsorted(np.sort(values), thresholds, side="left")
    return np.concatenate([[0], len(values) - below])


def _corners(across: np.ndarray[Any, Any], up: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The points where the curve turns, and its two ends; counts are whole numbers, so this is exact."""
    steps_across, steps_up = np.diff(across), np.diff(up)
    turns = steps_across[:-1] * steps_up[1:] != steps_across[1:] * steps_up[:-1]
    return np.concatenate([[True], turns, [True]])


def draw_roc(
    test_logits: ArrayLike,
    ood_logits: Mapping[str, ArrayLike],
    temperature: float | None = None,
    *,
    title: str = "",
    ax: Any = None,
) -> Any:
    """The ROC curve by entropy of each set that is out of distribution, dashed after temperature scaling.

    Source: [ghosh2022, Fig. 6].

    >>> ax = draw_roc([[9.0, 0.0], [8.0, 0.0]], {"noise": [[0.1, 0.0], [8.5, 0.0]]})
    >>> ax.figure.legends[0].get_texts()[0].get_text()
    'noise, pre: AUROC 0.750'
    """
    ours, ax = ax is None, drawing.axes_or_new(ax)
    lines, names = [], []
    for phase, _, known, others in _phases(test_logits, ood_logits, temperature):
        for place, (name, unknown) in enumerate(others.items()):
            curve = roc_curve(known, unknown)
            look = {"color": drawing.PALETTE[place % 6], "linestyle": "-" if phase == "pre" else "--"}
            lines += ax.plot(curve.false_positive_rate, curve.true_positive_rate, **look)
            names.append(f"{drawing.shown(name)}, {phase}: AUROC {curve.auroc:.3f}")
    ax.plot([0, 1], [0, 1], color=drawing.GREY, linestyle=":", linewidth=1)
    drawing.legend(ax, lines, names, under=ours, loc="lower right", columns=1)
    drawing.percent(ax.xaxis)
    drawing.percent(ax.yaxis)
    ax.set(xlim=(0, 1), ylim=(0, 1.005))
    drawing.style(ax, title=title, xlabel="unknown inputs that pass as known", ylabel="known inputs that pass")
    return ax
