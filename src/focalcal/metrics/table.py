"""The table of measures, from which evaluation, intervals, streaming metrics, the command line and reports are driven.

>>> MEASURES["ece"].label, MEASURES["ece"].unit, MEASURES["ece"].raised_by_noise
('ECE', '%', True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from focalcal.core.checks import require
from focalcal.metrics.accuracy import (
    ACCURACY,
    CONFIDENCE,
    ERROR,
    accuracy,
    error,
    gap,
    mean_confidence,
    s99,
    sure_accuracy,
    sure_share,
    top_k,
    top_k_accuracy,
)
from focalcal.metrics.bin_free_errors import ks_error, mmce, smooth_ece
from focalcal.metrics.calibration_error import ada_ece, classwise_ece, ece, ece_debiased, ece_sweep, mce
from focalcal.metrics.entropy import ENTROPY, ENTROPY_CORRECT, ENTROPY_WRONG, entropy
from focalcal.metrics.prediction_set import PredictionSet, RowMean
from focalcal.metrics.proper_scores import BRIER, NLL, SQUARED_GAP, brier, brier_decomposition, nll
from focalcal.metrics.selective_prediction import aurc, auroc_correctness

# A measure in a new file becomes public by standing in this list.
__all__ = ["MEASURES", "Measure", "register_measure"]

MeasureFunction: TypeAlias = "Callable[..., Any]"
# What of a set of predictions a measure looks at: means over rows, bins of equal width, the ranking by confidence
# (bins of equal mass are cut from it), or the bins of every class.
Reads: TypeAlias = Literal["means", "bins", "ranking", "classes"]


@dataclass(frozen=True)
class Measure:
    """A measure: its function, and what one has to know to compute, show and judge it. Call it like the function.

    Args:
        name: its name in results, on the command line and in `bootstrap`.
        function: takes rows as `read` gives them, or scores and labels, and returns a number.
        label: what tables call it.
        unit: "%" for shares and differences of shares, which people read in percent; "" for plain numbers.
        options: arguments of the function.
        reads: what of the predictions it looks at.
        means: the means over rows that it needs beyond its bins and ranking.
        num_bins: whether it has bins, "fixed" in number or "at most rows", where bins of equal mass need a row each.
        raised_by_noise: whether noise can only raise it, as it does a distance. Resamples, which have noise twice,
            then lie above the value, and `bootstrap` takes the difference off.
        lower_is_better: whether predictions with a lower value are better, so that calibrators may be ranked by it.
        least_classes: with fewer classes it is undefined.
        in_evaluate: whether `evaluate` reports it.
        place: where short tables show it; None leaves it to the full list.

    >>> MEASURES["rms_ce"]([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs").definition
    'ECE, top label, 15 equal-width bins, l2'
    """

    name: str
    function: MeasureFunction
    label: str
    unit: Literal["%", ""] = "%"
    options: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[Reads, ...] = ("means", "bins", "ranking")
    means: tuple[RowMean, ...] = ()
    num_bins: Literal["none", "fixed", "at most rows"] = "none"
    raised_by_noise: bool = False
    lower_is_better: bool = True
    least_classes: int = 2
    in_evaluate: bool = True
    place: int | None = None

    def __call__(self, *predictions: Any, **options: Any) -> Any:
        """The measure of rows, or of scores and labels."""
        return self.function(*predictions, **{**self.options, **options})

    def of(self, rows: PredictionSet, num_bins: int = 15) -> Any:
        """The measure of rows with the given number of bins, if it has bins; fewer where rows are fewer.

        >>> from focalcal.metrics import read
        >>> MEASURES["ada_ece"].of(read([[0.9, 0.1], [0.8, 0.2]], [0, 1], kind="probs")).definition
        'ECE, top label, 2 equal-mass bins, l1'
        """
        if self.num_bins == "none":
            return self(rows)
        return self(rows, num_bins=rows.most_bins(num_bins) if self.num_bins == "at most rows" else num_bins)


class MeasureValues:
    """The names of the measures as attributes of an `Evaluation`; those that can be undefined are None then."""

    accuracy: float
    error: float
    nll: float
    brier: float
    brier_calibration: float
    brier_refinement: float
    mean_confidence: float
    entropy: float
    entropy_correct: float | None
    entropy_wrong: float | None
    ece: float
    rms_ce: float
    mce: float
    ada_ece: float
    classwise_ece: float | None
    ece_debiased: float
    ece_debiased_l1: float
    ece_sweep: float
    ece_sweep_equal_width: float
    smooth_ece: float
    ks_error: float
    mmce: float
    top_5_accuracy: float | None
    s99: float
    s99_accuracy: float | None
    aurc: float
    auroc_correctness: float | None


def _part(function: MeasureFunction, name: str) -> MeasureFunction:
    """One of several numbers that a function returns together."""

    def part(*predictions: Any, **options: Any) -> Any:
        return getattr(function(*predictions, **options), name)

    return part


# Brier parts are computed with the third, which is what the bins leave of the squared gap.
_BRIER_PARTS: dict[str, Any] = {
    "unit": "",
    "reads": ("means", "bins"),
    "means": (SQUARED_GAP,),
    "num_bins": "fixed",
}
_MEAN: dict[str, Any] = {"reads": ("means",)}
_FACT: dict[str, Any] = {"reads": ("means",), "lower_is_better": False}
_BINS: dict[str, Any] = {"reads": ("bins",), "num_bins": "fixed", "raised_by_noise": True}
_RANKING: dict[str, Any] = {"reads": ("ranking",)}
_NOISY: dict[str, Any] = {"reads": ("ranking",), "raised_by_noise": True}

MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("accuracy", accuracy, "accuracy", means=(ACCURACY,), place=1, **_FACT),
        Measure("error", error, "error", means=(ERROR,), **_MEAN),
        Measure("nll", nll, "NLL", "", means=(NLL,), place=6, **_MEAN),
        Measure("brier", brier, "Brier", "", means=(BRIER,), place=7, **_MEAN),
        Measure(
            "brier_calibration",
            _part(brier_decomposition, "calibration"),
            "Brier, calibration",
            raised_by_noise=True,
            **_BRIER_PARTS,
        ),
        Measure("brier_refinement", _part(brier_decomposition, "refinement"), "Brier, refinement", **_BRIER_PARTS),
        Measure("mean_confidence", mean_confidence, "mean confidence", means=(CONFIDENCE,), place=2, **_FACT),
        Measure("gap", gap, "gap", means=(CONFIDENCE, ACCURACY), in_evaluate=False, place=3, **_FACT),
        Measure("entropy", _part(entropy, "overall"), "entropy", "", means=(ENTROPY,), **_FACT),
        Measure(
            "entropy_correct", _part(entropy, "correct"), "entropy of correct", "", means=(ENTROPY_CORRECT,), **_FACT
        ),
        Measure("entropy_wrong", _part(entropy, "wrong"), "entropy of wrong", "", means=(ENTROPY_WRONG,), **_FACT),
        Measure("ece", ece, "ECE", place=4, **_BINS),
        Measure("rms_ce", ece, "RMS calibration error", options={"norm": "l2"}, **_BINS),
        Measure("mce", mce, "MCE", place=11, **_BINS),
        Measure("ada_ece", ada_ece, "AdaECE", num_bins="at most rows", place=5, **_NOISY),
        Measure(
            "classwise_ece",
            classwise_ece,
            "classwise ECE",
            reads=("classes",),
            num_bins="fixed",
            raised_by_noise=True,
            place=10,
        ),
        Measure("ece_debiased", ece_debiased, "debiased ECE", num_bins="at most rows", place=9, **_RANKING),
        Measure(
            "ece_debiased_l1",
            ece_debiased,
            "debiased ECE, l1",
            options={"norm": "l1"},
            num_bins="at most rows",
            **_RANKING,
        ),
        Measure("ece_sweep", ece_sweep, "ECE by sweep", **_NOISY),
        Measure(
            "ece_sweep_equal_width", ece_sweep, "ECE by equal-width sweep", options={"edges": "equal_width"}, **_NOISY
        ),
        Measure("smooth_ece", smooth_ece, "smooth ECE", place=8, **_NOISY),
        Measure("ks_error", ks_error, "KS error", place=12, **_NOISY),
        Measure("mmce", mmce, "MMCE", "", **_NOISY),
        Measure("top_k_accuracy", top_k_accuracy, "top-k accuracy", means=(top_k(5),), in_evaluate=False, **_FACT),
        Measure(
            "top_5_accuracy",
            top_k_accuracy,
            "top-5 accuracy",
            options={"k": 5},
            means=(top_k(5),),
            least_classes=5,
            place=15,
            **_FACT,
        ),
        Measure("s99", _part(s99, "share"), "share of confidence 0.99", means=(sure_share(0.99),), **_FACT),
        Measure("s99_accuracy", _part(s99, "accuracy"), "their accuracy", means=(sure_accuracy(0.99),), **_FACT),
        Measure("aurc", aurc, "AURC", "", place=13, **_RANKING),
        Measure("auroc_correctness", auroc_correctness, "AUROC", "", place=14, lower_is_better=False, **_RANKING),
    )
}
"""The measures by name, in the order in which an `Evaluation` lists them."""


def register_measure(
    name: str,
    function: MeasureFunction,
    *,
    label: str | None = None,
    unit: Literal["%", ""] = "%",
    means: tuple[RowMean, ...] = (),
    raised_by_noise: bool = False,
    lower_is_better: bool = True,
    in_evaluate: bool = True,
    place: int | None = 100,
) -> Measure:
    """Enter a measure of your own in the table: `evaluate`, `bootstrap`, `compare` and the command line then know it.

    where `function` takes rows as `read` gives them. It may call other measures, or read the rows itself by
    `rows.mean(row_mean)`, `rows.bins(num_bins, edges)` and `rows.each(function_of_ranking)`, which also serve streams
    and resamples; each `RowMean` of its own has to be named in `means`. The other arguments are those of `Measure`.

    >>> def underconfident_share(rows):
    ...     bins = rows.bins(15, "equal_width")
    ...     return (bins.weight * (bins.gap < 0)).sum(-1)
    >>> measure = register_measure("underconfident_share", underconfident_share)
    >>> from focalcal import evaluate
    >>> evaluation = evaluate([[0.9, 0.1], [0.6, 0.4]], [0, 1], kind="probs")
    >>> evaluation["underconfident_share"]
    0.5
    >>> del MEASURES["underconfident_share"]
    """
    require(name.isidentifier(), "name", "must be a name that Python allows", repr(name))
    require(name not in MEASURES and name not in _TAKEN, "name", "must not be taken", repr(name))
    require(callable(function), "function", "must be a function of rows", type(function).__name__)
    MEASURES[name] = Measure(
        name,
        function,
        name.replace("_", " ") if label is None else label,
        unit,
        means=means,
        raised_by_noise=raised_by_noise,
        lower_is_better=lower_is_better,
        in_evaluate=in_evaluate,
        place=place,
    )
    return MEASURES[name]


# What an Evaluation has beside its measures.
_TAKEN = frozenset(
    ("schema", "n", "num_classes", "num_bins", "kind", "bins", "equal_mass_bins", "warnings", "definitions", "values")
)


def measure_means() -> tuple[RowMean, ...]:
    """The means over rows that the measures of the table need, each once."""
    return tuple({mean.name: mean for measure in MEASURES.values() for mean in measure.means}.values())


def measure_for(function: MeasureFunction) -> Measure | None:
    """The entry of a measure, of its function, or of either with options; None for functions that the table lacks.

    >>> measure_for(ece).name, measure_for(abs)
    ('ece', None)
    """
    plain = getattr(function, "func", function)  # options make a function a partial one
    if isinstance(plain, Measure):
        return plain
    return next((measure for measure in MEASURES.values() if measure.function is plain), None)
