"""Curves of monitored runs by epoch: means over seeds with a band from the lowest to the highest seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, TypeAlias

from focalcal.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, percent
from reproduction.labels import method_name
from reproduction.recipe_numbers import RecipeNumbers
from reproduction.result_files import RunEvidence

# Colour, line and marker.
Look: TypeAlias = "tuple[str, Any, str]"
# Those of each loss in all figures.
LOOKS: dict[str, Look] = {
    "ce": (VERMILION, "-", "o"),
    "fl-1": (SKY, "--", "s"),
    "fl-2": (BLUE, "-.", "^"),
    "fl-3": (PURPLE, ":", "D"),
    "flsd-53": (GREEN, (0, (6, 1.5)), "v"),
    "adafocal": (ORANGE, (0, (3, 1, 1, 1, 1, 1)), "P"),
}


@dataclass(frozen=True)
class EpochCurve:
    """A number of a loss's runs by epochs trained, its name in the legend and its look."""

    method: str
    values: Callable[[RunEvidence], dict[int, float]]
    name: str
    look: Look

    def over_seeds(self, numbers: RecipeNumbers) -> dict[int, list[float]]:
        """The number of every seed by epochs trained."""
        found: dict[int, list[float]] = {}
        for run in numbers.runs(self.method):
            for epoch, value in self.values(run).items():
                found.setdefault(epoch, []).append(value)
        return dict(sorted(found.items()))


def series(run: RunEvidence, name: str) -> dict[int, float]:
    """A series by the number of epochs that were trained; the monitor's first epoch is 0."""
    found = zip(run.dynamics["epoch"], run.dynamics[name], strict=True)
    return {epoch + 1: value for epoch, value in found if value is not None}


def bin_at(share: float, number: int) -> int:
    """The bin at a share of all bins: 0 is the first, 1 the last."""
    return round((number - 1) * share)


def bin_series(run: RunEvidence, name: str, share: float) -> dict[int, float]:
    """A number of the bin at a share of all bins by epochs trained; bins without training rows have none."""
    found = {
        epoch + 1: values[bin_at(share, len(values))]
        for epoch, values in zip(run.dynamics["epoch"], run.dynamics["bins"].get(name, []), strict=False)
        if values and len(values) > 1
    }
    empty = (None, 0) if name == "train_true" else (None,)
    return {done: value for done, value in found.items() if value not in empty}


def gap(run: RunEvidence, share: float) -> dict[int, float]:
    """Validation confidence minus accuracy of the bin at a share of all bins."""
    confidence, accuracy = (bin_series(run, name, share) for name in ("val_confidence", "val_accuracy"))
    return {done: value - accuracy[done] for done, value in confidence.items() if done in accuracy}


def curve_of(method: str, name: str, words: str, look: Look) -> EpochCurve:
    """A series of a loss."""
    return EpochCurve(method, partial(series, name=name), words, look)


def by_loss(methods: Iterable[str], name: str) -> list[EpochCurve]:
    """A series of several losses."""
    return [curve_of(method, name, method_name(method), LOOKS[method]) for method in methods]


def drops(numbers: RecipeNumbers) -> list[int]:
    """After how many epochs the learning rate falls, each time."""
    return list(numbers.evidence.recipe["training"].get("milestones", []))


def draw_panel(ax: Any, label: str, curves: Iterable[EpochCurve], numbers: RecipeNumbers) -> dict[str, Any]:
    """Draw curves and the drops of the learning rate; returns the lines by name. `label` decides on the axis."""
    found = [(curve, values) for curve in curves if (values := curve.over_seeds(numbers))]
    handles = {curve.name: _draw_curve(ax, values, curve.look) for curve, values in found}
    for drop in drops(numbers):
        ax.axvline(drop, color=GREY, linewidth=0.7, linestyle=(0, (1, 1.5)), zorder=0)
    if label.startswith(("ECE", "confidence", "gap")):
        percent(ax.yaxis, 4)
    if label.startswith("gap"):
        ax.axhline(0, color=GREY, linewidth=0.7, zorder=0)
    return handles


def _draw_curve(ax: Any, found: dict[int, list[float]], look: Look) -> Any:
    colour, line, marker = look
    low, high = ([end(values) for values in found.values()] for end in (min, max))
    ax.fill_between(list(found), low, high, color=colour, alpha=0.15, linewidth=0)
    means = [fmean(values) for values in found.values()]
    (handle,) = ax.plot(list(found), means, color=colour, linestyle=line, linewidth=1.1, marker=marker, markersize=2.6)
    return handle
