"""The monitor's records of a run, cut down to the series that the papers plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any

# Series by their names here, and where a record has them.
SERIES: dict[str, tuple[str, ...]] = {
    "train_error": ("train", "error"),
    "train_nll": ("train", "nll"),
    "train_confidence": ("train", "confidence"),
    "test_error": ("test", "error"),
    "test_nll": ("test", "nll"),
    "test_nll_correct": ("test", "nll_correct"),
    "test_nll_wrong": ("test", "nll_wrong"),
    "test_entropy_correct": ("test", "entropy_correct"),
    "test_entropy_wrong": ("test", "entropy_wrong"),
    "test_ece": ("test", "ece"),
    "test_ada_ece": ("test", "ada_ece"),
    "weight_norm": ("head", "weight_norm"),
    "feature_norm": ("test", "feature_norm"),
    "gradient_norm": ("gradient", "mean"),
}


def dynamics(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Series by epoch, and what there is by bin: confidences, accuracies and gammas.

    `train_top_share` is the share of training rows in the bin of the largest confidences [mukhoti2020, Fig. 1], and
    `train_true` their mean confidence in the true class [ghosh2022, Fig. 8]. `edges` are those of equal-mass bins of
    validation and training confidences at the end [Fig. 9]. `bins` has, for every recorded epoch, validation confidence
    and accuracy and the training confidence of the true class between the same edges [Fig. 2], and the gammas that the
    epoch began with [Fig. 5]; `learned` the mean largest logits of training rows by the epoch since which they are
    right, at the end [Fig. 34].
    """
    if not records:
        return {}
    found: dict[str, Any] = {"epoch": [record["epoch"] for record in records]}
    for name, place in SERIES.items():
        found[name] = [_at(record, place) for record in records]
    found["train_top_share"] = [_top_share(record) for record in records]
    found["train_true"] = [_true_confidence(record) for record in records]
    found["bins"] = _bins(records)
    found["edges"] = {
        "val": _short(_at(records[-1], ("correspondence", "val", "edges"))),
        "train": _short(_at(records[-1], ("correspondence", "independent", "top", "edges"))),
    }
    if (learned := records[-1].get("learned")) is not None:
        found["learned"] = {name: learned[name] for name in ("since", "rows", "mean_max_logit")}
    return found


def _at(record: Mapping[str, Any], place: Sequence[str]) -> Any:
    value: Any = record
    for name in place:
        value = None if value is None else value.get(name)
    return value


def _top_share(record: Mapping[str, Any]) -> float | None:
    counts = _at(record, ("train", "bins", "count"))
    return counts[-1] / sum(counts) if counts and sum(counts) else None


def _true_confidence(record: Mapping[str, Any]) -> float | None:
    bins = _at(record, ("correspondence", "common", "true"))
    if bins is None or not sum(bins["count"]):
        return None
    return float(sum(map(mul, bins["count"], bins["confidence"])) / sum(bins["count"]))


def _bins(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    wanted = {
        "val_confidence": ("correspondence", "val", "confidence"),
        "val_accuracy": ("correspondence", "val", "accuracy"),
        "train_true": ("correspondence", "common", "true", "confidence"),
        "gamma": ("gamma", "used", "gamma"),
    }
    found = {name: [_short(_at(record, place)) for record in records] for name, place in wanted.items()}
    return {name: values for name, values in found.items() if any(each and len(each) > 1 for each in values)}


def _short(values: Any) -> Any:
    """Three digits are more than a bin of some hundred rows has."""
    if values is None:
        return None
    return [None if each is None else float(f"{each:.3g}") for each in values]
