"""Reliability diagrams of scores, of what was read or evaluated already, and of a report's bins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from focalcal import drawing
from focalcal.core.binning import Bins, Scheme, bin_norm
from focalcal.core.checks import Array, ArrayLike, require
from focalcal.core.score_kinds import Kind
from focalcal.drawing.reliability import Bars, draw_on, draw_reliability, measured_title
from focalcal.metrics import Evaluation, consistency_bars, read
from focalcal.metrics.prediction_set import CLASSWISE, PredictionSet
from focalcal.metrics.read_scores import PAIRS
from focalcal.metrics.reliability import bars_of, chance_band
from focalcal.report.contents import Diagram

Measurable: TypeAlias = "ArrayLike | PredictionSet | Evaluation | Diagram"

# The most diagrams side by side, and the size of each in inches.
_ACROSS, _WIDTH = 4, 2.4


def reliability_diagram(
    scores: Measurable,
    labels: ArrayLike | None = None,
    *,
    kind: Kind = "logits",
    num_bins: int = 15,
    edges: Scheme = "equal_width",
    level: float = 0.95,
    chance: bool = True,
    histogram: bool = True,
    sample_weight: ArrayLike | None = None,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """Accuracy against confidence, bin by bin: what the model says, and what it keeps.

    Bars are accuracies with their Clopper-Pearson bands of probability `level`, hatched is the gap to the mean
    confidence. With `chance`, shaded is where the accuracies of a perfectly calibrated model would lie (left out for
    weighted rows); with `histogram`, the confidences are shown under the diagram, in room taken from `ax`.

    where `scores`, `labels`, `kind`, `sample_weight` are as in `evaluate`, and `edges` as in `bin_predictions`; or
    `scores` are rows that `metrics.read` gave, an `Evaluation`, or a `Diagram` of a report. The last two bring their
    own bins and ignore `num_bins`. Without a `title` it is the error, accuracy and mean confidence.

    >>> reliability_diagram([[2.0, 0.0], [0.0, 1.0]], [0, 1], title="two rows").get_title()
    'two rows'
    """
    options = _Options(kind, num_bins, edges, level, chance, sample_weight)
    found = _measured(scores, labels, options)
    under = found.histogram if histogram else None
    return draw_reliability(
        found.bars, histogram=under, level=level, title=found.title if title is None else title, ax=ax
    )


def reliability_diagrams(
    models: Mapping[str, Measurable],
    labels: ArrayLike | None = None,
    *,
    kind: Kind = "logits",
    num_bins: int = 15,
    edges: Scheme = "equal_width",
    level: float = 0.95,
    chance: bool = True,
    histogram: bool = True,
    sample_weight: ArrayLike | None = None,
    axes: Any = None,
) -> Array:
    """Reliability diagrams side by side, such as before and after calibration; returns the axes (n,).

    where `models` are scores, or what else `reliability_diagram` takes, by the names that become titles; `axes` are as
    many axes to draw into.

    >>> axes = reliability_diagrams({"before": [[4.0, 0.0]], "after": [[1.0, 0.0]]}, [0])
    >>> [ax.get_title().splitlines()[0] for ax in axes]
    ['before', 'after']
    """
    require(len(models) > 0, "models", "must name at least one model", "none")
    options = _Options(kind, num_bins, edges, level, chance, sample_weight)
    drawn = _grid(len(models), histogram) if axes is None else np.ravel(axes)
    require(len(drawn) == len(models), "axes", f"must be {len(models)}, one for each model", len(drawn))
    for ax, (name, scores) in zip(drawn, models.items(), strict=True):
        known = None if isinstance(scores, (PredictionSet, Evaluation, Diagram)) else labels
        found = _measured(scores, known, options)
        title = f"{drawing.shown(name, 32)}\n{found.error_name} {found.error:.1%}"
        handles = draw_on(ax, found.bars, histogram=found.histogram if histogram else None, level=level, title=title)
    columns = min(len(models), 2) * 2 if len(models) > 1 else 2
    drawing.legend(drawn[0], list(handles.values()), list(handles), under=axes is None, columns=columns)
    return drawn


@dataclass(frozen=True)
class _Options:
    kind: Kind
    num_bins: int
    edges: Scheme
    level: float
    chance: bool
    sample_weight: ArrayLike | None


@dataclass(frozen=True)
class _DrawnBins:
    """The bars, those whose shares are the histogram, and the error over the diagram."""

    bars: Bars
    histogram: Bars
    error: float
    error_name: str

    @property
    def title(self) -> str:
        share = self.bars.share
        means = float(share @ self.bars.accuracy), float(share @ self.bars.confidence)
        return measured_title(self.error, *means, name=self.error_name)


def _measured(scores: Measurable, labels: ArrayLike | None, options: _Options) -> _DrawnBins:
    ready = isinstance(scores, (PredictionSet, Evaluation, Diagram))
    require(labels is None or not ready, "labels", "must not be given beside what was measured", type(scores).__name__)
    if isinstance(scores, Diagram):
        return of_diagram(scores, scores, chance=options.chance)
    if isinstance(scores, Evaluation):
        return _of_evaluation(scores, options)
    if not isinstance(scores, PredictionSet):
        require(labels is not None, "labels", "must be given beside scores", None)
        scores = read(scores, labels, kind=options.kind, sample_weight=options.sample_weight, columns=PAIRS)  # type: ignore[arg-type]
    return _of_rows(scores, options)


def _of_rows(rows: PredictionSet, options: _Options) -> _DrawnBins:
    require(rows.target != CLASSWISE, "scores", "must be rows of one class or the top label", f"the {rows.target}")
    edges, num_bins = options.edges, options.num_bins
    if edges in ("equal_mass", "array_split"):
        num_bins = rows.most_bins(num_bins)
    bins, band = rows.bins(num_bins, edges), None
    if options.chance and getattr(rows, "weight", None) is None:
        bars = consistency_bars(rows, num_bins=num_bins, edges=edges, level=options.level)
        band = bars.low, bars.high
    return _of_bins(bins, band, rows.bins(options.num_bins, "equal_width"), options)


def _of_evaluation(evaluation: Evaluation, options: _Options) -> _DrawnBins:
    known = {"equal_width": evaluation.bins, "equal_mass": evaluation.equal_mass_bins}
    rule, fix = f"of an evaluation must be one of {', '.join(known)}", "Give scores and labels for other bins."
    require(options.edges in known, "edges", rule, repr(options.edges), fix)
    bins = known[options.edges]
    band = chance_band(bins, options.level) if options.chance else None
    return _of_bins(bins, band, evaluation.bins, options)


def _of_bins(bins: Bins, band: tuple[Tensor, Tensor] | None, equal_width: Bins, options: _Options) -> _DrawnBins:
    bars = bars_of(bins, level=options.level, chance=band)
    return _DrawnBins(bars, bars_of(equal_width), float(bin_norm(bins, "l1")), _error_name(options.edges))


def of_diagram(diagram: Diagram, equal_width: Diagram, *, chance: bool = True) -> _DrawnBins:
    """The bars of a report's diagram, and those of its histogram."""
    bars = _bars_of_diagram(diagram, chance)
    return _DrawnBins(bars, _bars_of_diagram(equal_width, False), diagram.error, _error_name(diagram.scheme))


def _bars_of_diagram(diagram: Diagram, chance: bool) -> Bars:
    count = np.array(diagram.count, dtype=float)
    names = ["lower", "upper", "confidence", "accuracy", "low", "high"]
    if chance and diagram.chance_low:  # weighted rows have none
        names += ["chance_low", "chance_high"]
    columns = {name: np.array(getattr(diagram, name), dtype=float) for name in names}
    return Bars(share=count / count.sum(), **columns)


def _error_name(edges: str) -> str:
    return "AdaECE" if edges == "equal_mass" else "ECE"


def _grid(number: int, histogram: bool) -> Array:
    across = min(number, _ACROSS)
    down = -(-number // across)
    figure = drawing.new_figure(_WIDTH * across, (_WIDTH + 0.4 + 0.5 * histogram) * down)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for unused in axes[number:]:
        unused.remove()
    from focalcal.drawing.in_notebooks import ShownArray

    return axes[:number].view(ShownArray)  # type: ignore[no-any-return]
