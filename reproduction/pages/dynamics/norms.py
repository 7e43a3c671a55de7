"""Norms of weights, features and gradients: the table at both ends, orders of losses, and the figures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import fmean

from reproduction.labels import bullets, how_many, method_name, spread, table
from reproduction.pages.dynamics.compare import against, beside_ce, order, risen
from reproduction.pages.dynamics.drawing import Drawing, by_loss
from reproduction.pages.dynamics.records import GAMMAS, LOSSES, SERIES, end, monitored, over_seeds, present
from reproduction.pages.dynamics.section import Section
from reproduction.result_files import Evidence

# Series by their headings, at the first record (0) or the last (-1).
_COLUMNS = {
    "weights, first": ("weight_norm", 0),
    "weights, last": ("weight_norm", -1),
    "features, first": ("feature_norm", 0),
    "features, last": ("feature_norm", -1),
    "gradient, last": ("gradient_norm", -1),
    "top bin, %": ("train_top_share", -1),
}


def _tell(evidence: Evidence) -> Iterator[str]:
    if methods := present(evidence, LOSSES):
        yield table(["loss", *_COLUMNS], (_row(evidence, method) for method in methods))
        norms = (sentence for name in ("weight_norm", "feature_norm") for sentence in _sentences(evidence, name))
        yield bullets([*norms, _top(evidence)])


def _row(evidence: Evidence, method: str) -> list[str]:
    found = (spread(over_seeds(evidence, method, name, place), SERIES[name][2]) for name, place in _COLUMNS.values())
    return [method_name(method), *found]


def _sentences(evidence: Evidence, name: str) -> Iterator[str]:
    """The order of losses by a norm at both ends, and how many seeds have the paper's."""
    heading = SERIES[name][0].capitalize()
    told = []
    for place, words in ((0, "at the first record"), (-1, "at the last one")):
        seeds = [found == list(GAMMAS) for found in _orders(evidence, name, place)]
        paper = f" (the paper's order in {how_many(seeds, 'seeds')})" if seeds else ""
        if names := order({method: over_seeds(evidence, method, name, place) for method in GAMMAS}):
            told.append(f"{names} {words}{paper}")
    if told:
        yield f"{heading} by the mean: {', '.join(told)}."
    if pairs := beside_ce(evidence, partial(end, name=name, place=0)):
        yield (
            f"{heading} at the first record, focal loss: above cross-entropy of the same seed in "
            f"{risen(pairs)} ({against(pairs, 2)})."
        )


def _orders(evidence: Evidence, name: str, place: int) -> list[list[str]]:
    """The losses by a norm, the largest first, of every seed that has all of them."""
    by_seed: dict[int, dict[str, float]] = {}
    for method in GAMMAS:
        for run in monitored(evidence, method):
            if (value := end(run, name, place)) is not None:
                by_seed.setdefault(run.seed, {})[method] = value
    complete = (found for found in by_seed.values() if len(found) == len(GAMMAS))
    return [sorted(found, key=lambda each: -found[each]) for found in complete]


def _top(evidence: Evidence) -> str:
    shares = {method: over_seeds(evidence, method, "train_top_share") for method in LOSSES}
    told = [f"{method_name(method)} {fmean(found):.1f} %" for method, found in shares.items() if found]
    if not told:
        return ""
    return f"Training rows in the bin of the largest confidences at the last record, on average: {', '.join(told)}."


SECTION = Section(
    "Norms of weights, features and gradients",
    "mukhoti2020 Fig. 3(e) and 10: weight norms of focal losses start above that of cross-entropy and end in the "
    "order cross-entropy > FL-1 > FL-2 > FL-3, which feature norms have throughout. Fig. 1: all training rows "
    "move into the bin of the largest confidences.",
    _tell,
    (
        Drawing(
            "norms",
            {"weight norm": by_loss(GAMMAS, "weight_norm"), "feature norm": by_loss(GAMMAS, "feature_norm")},
            "Norm of the last layer's weights and of its inputs by epoch for cross-entropy and focal losses",
            "Norms of the last layer's weights and of its inputs, after mukhoti2020 Fig. 3(e) and Fig. 10.",
        ),
        Drawing(
            "gradient",
            {"gradient norm": by_loss(LOSSES, "gradient_norm")},
            "Mean norm of the last layer's gradient of one training sample by epoch for each loss",
            "The mean norm over training samples of the last layer's gradient, whose histograms are in mukhoti2020 "
            "Fig. 4.",
        ),
    ),
)
