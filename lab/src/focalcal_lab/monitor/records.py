"""The records of a monitored epoch, named after what the papers plot."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from focalcal.core.binning import Bins, bin_norm, bin_predictions
from focalcal.losses import AdaFocalLoss, CalFocalLoss, FocalLoss, ScheduledGamma
from focalcal.losses.gamma import StepGamma
from focalcal.losses.validation_bins import ValidationBinsLoss
from focalcal.metrics import ada_ece, ece, entropy, error, mce, mean_confidence, nll
from focalcal.metrics.prediction_set import RowMean
from focalcal_lab.monitor.accumulators import Record, SplitPredictions, number

_NLL_CORRECT = RowMean(
    "nll_correct", ("nll", "correct"), lambda rows: rows["nll"] * rows["correct"], lambda rows: rows["correct"]
)
_NLL_WRONG = RowMean(
    "nll_wrong", ("nll", "correct"), lambda rows: rows["nll"] * ~rows["correct"], lambda rows: ~rows["correct"]
)


def split_record(seen: SplitPredictions | None, features: Record | None, *, num_bins: int) -> Record | None:
    """The numbers of one split: NLL and entropy of all, correct and wrong rows, error, and the ECE family.

    Source: [mukhoti2020, Fig. 1, 2, 3 and 10].

    >>> from focalcal_lab.monitor.accumulators import PredictionTally
    >>> tally = PredictionTally(num_bins=1)
    >>> tally.add(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    >>> found = split_record(tally.seen(), None, num_bins=1)
    >>> found["rows"], found["error"], round(found["ece"], 4), round(found["nll_wrong"], 4)
    (2, 0.5, 0.3059, 1.3133)
    """
    if seen is None:
        return None
    rows = seen.rows
    spread, bins = entropy(rows), rows.bins(num_bins, "equal_width")
    return {
        "rows": rows.num_rows,
        "not_finite": seen.not_finite,
        "error": number(error(rows)),
        "confidence": number(mean_confidence(rows)),
        "nll": number(nll(rows)),
        "nll_correct": number(rows.mean(_NLL_CORRECT)),
        "nll_wrong": number(rows.mean(_NLL_WRONG)),
        "entropy": number(spread.overall),
        "entropy_correct": number(spread.correct),
        "entropy_wrong": number(spread.wrong),
        "ece": number(ece(rows, num_bins=num_bins)),
        "ada_ece": number(ada_ece(rows, num_bins=min(num_bins, rows.num_rows))),
        "classwise_ece": number(bin_norm(seen.classes, "l1").mean()),
        "mce": number(mce(rows, num_bins=num_bins)),
        "feature_norm": None if features is None else features["mean"],
        "bins": _bins_record(bins),
    }


def _bins_record(bins: Bins) -> Record:
    return {
        "count": bins.count.long().tolist(),
        "confidence": bins.confidence.tolist(),
        "accuracy": bins.accuracy.tolist(),
    }


def correspondence_record(
    train: SplitPredictions | None, val: SplitPredictions | None, *, num_bins: int
) -> Record | None:
    r"""$C_{\mathrm{train}}$ against $C_{\mathrm{val}}$ and $A_{\mathrm{val}}$, per validation bin.

    `val` are bins of equal mass of the validation rows' confidence. In `common`, training rows are put between the
    edges of these bins; in `independent`, they have equal-mass bins of their own. `true` bins and averages the
    probability of the true class ($C_{\mathrm{train,true}}$), `top` that of the predicted one. Empty bins are 0, as in
    the paper's footnote.

    Source: [ghosh2022, Sec. 4, Fig. 2 and 3(d); App. C, Fig. 8-14].
    """
    if train is None or val is None:
        return None
    num_bins = min(num_bins, val.rows.num_rows, train.rows.num_rows)
    held = val.rows.bins(num_bins, "equal_mass")
    correct = train.rows.column("correct")
    values = {"true": np.exp(-train.rows.column("nll")), "top": train.rows.column("confidence")}

    def binned(edges: Any) -> Record:
        found: Record = {}
        for name, column in values.items():
            bins = bin_predictions(column, correct, num_bins=num_bins, edges=edges)
            found[name] = {"edges": bins.edges.tolist(), **_bins_record(bins)}
        return found

    return {
        "val": {"edges": held.edges.tolist(), **_bins_record(held)},
        "common": binned(held.edges),
        "independent": binned("equal_mass"),
    }


def gamma_record(module: nn.Module) -> Record | None:
    """The gammas of the first focal loss in a module, and the probabilities at which one gives way to the next.

    AdaFocal and CalFocal have one for each validation bin (CalFocal's as in Eq. 3 of ghosh2022), FLSD for each step of
    its policy, FLSc and plain focal loss just one; `updates` counts those from validation data.

    >>> gamma_record(FocalLoss("flsd-53"))
    {'edges': [0.0, 0.2, 1.0], 'gamma': [5.0, 3.0], 'updates': 0}
    """
    for part in module.modules():
        if isinstance(part, AdaFocalLoss):
            return _validation_gamma(part, part.gamma)
        if isinstance(part, CalFocalLoss):
            return _validation_gamma(part, torch.exp(part.lam * (part.confidence - part.accuracy)))
        if isinstance(part, FocalLoss) and part.gamma is not None:
            return _policy_gamma(part.gamma)
    return None


def _validation_gamma(loss: ValidationBinsLoss, gamma: Tensor) -> Record:
    return {"edges": loss.edges.tolist(), "gamma": gamma.tolist(), "updates": len(loss.get_extra_state())}


def _policy_gamma(gamma: float | nn.Module) -> Record | None:
    if isinstance(gamma, StepGamma):
        return {"edges": [0.0, *gamma.thresholds, 1.0], "gamma": list(gamma.gammas), "updates": 0}
    if isinstance(gamma, nn.Module) and not isinstance(gamma, ScheduledGamma):
        return None  # a policy of the user's own
    now = gamma.gamma if isinstance(gamma, ScheduledGamma) else gamma
    return {"edges": [0.0, 1.0], "gamma": [float(now)], "updates": 0}
