r"""Calibrators that map the probability of each class by a function of its own, whatever the other classes have.

$$ p'_k = \frac{f_k(p_k)}{\sum_j f_j(p_j)} $$

where $f_k$ is fitted to the rows' probability of class k and to whether k is their label. Where every $f_j(p_j)$ is 0
all classes get 1/K. Where classes are masked, the sum and K are of those that are left; $f_k$ is fitted to the rows
that leave class k and another, and if there are none it keeps the score, within 1/30 if it is a step function.
Two classes are one problem: $f$ is fitted to class 1, and class 0 has the rest. The predicted
class may change. The scores $p_k$ are taken in float64 whatever the logits' precision, both in the fit and after it,
so that rows of the fit stay where they were.
"""

from __future__ import annotations

import functools
import math
import operator
import time
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from focalcal.calibrators.base import Calibrator
from focalcal.calibrators.fit_data import FitData, LabelledLogits, row_weights
from focalcal.calibrators.fitted_values import FittedValue
from focalcal.calibrators.piecewise import ScoreGroups, by_rows, linear_lookup, stacked, step_lookup
from focalcal.calibrators.search.criteria import Criterion
from focalcal.core.binning import bin_ranked
from focalcal.core.checks import Array, require
from focalcal.core.confidence_histogram import CELLS, cell_of
from focalcal.core.focal import wide_dtype
from focalcal.core.masking import is_masked, without_masks
from focalcal.errors import InputWarning

Edges = Literal["equal_mass", "equal_width"]

# Scores that a fit holds at a time, of as many classes as that allows: a quarter of a gigabyte.
_HELD = 1 << 25
# Four numbers for each cell of a class's histogram.
_BYTES_OF_CELLS = 4 * 8 * CELLS
# Binning models with a smaller share add nothing to a sum in float64.
_NEGLIGIBLE = 1e-18
# After so many seconds and classes it is known how long a fit will take; a longer one than this is announced.
_SECONDS_OF_TRIAL, _CLASSES_OF_TRIAL = 3.0, 10
_LONG_SECONDS = 60.0
# Bins of the step function of a class that was masked in all rows.
_UNKNOWN_BINS = 15
# A Beta prior needs positive numbers, and the middle of a bin between 0 and the next number is 0 by rounding.
_LEAST_MIDDLE = 1e-300


# A step function per class.
STEPS = {
    "edges_": FittedValue(("functions", "bins - 1"), least=0, most=1, increasing=True),
    "values_": FittedValue(("functions", "bins"), least=0, most=1),
}


class OneVsRest(Calibrator):
    """A function of the score per class, kept as a table of points (K, M) and values, named by `FITTED`."""

    PER_CLASS = True
    LINEAR: ClassVar[bool] = False  # lines between the points, or steps at them

    def __init__(self) -> None:
        super().__init__()
        self.criterion = Criterion("brier")

    @abstractmethod
    def _table(self, groups: ScoreGroups) -> tuple[Array, Array]:
        """Points and values of the function fitted to one class."""

    def _fit(self, data: FitData) -> None:
        if not data.in_memory:
            data.count()  # a stream may turn out to be small
        clock = _FitClock(type(self).__name__, data)
        rankings = clock.watched(self._groups(data))
        tables = [self._unknown() if groups is None else self._table(groups) for groups in rankings]
        columns = (stacked(column) for column in zip(*tables, strict=True))
        self._set(**dict(zip(self.FITTED, columns, strict=True)))

    def _groups(self, data: FitData) -> Iterator[ScoreGroups | None]:
        """The ranking of every class that has a function; None if it is masked in all rows."""
        return _classes(data)

    def _unknown(self) -> tuple[Array, Array]:
        """Points and values of the function of a class without rows: the score itself, or the middles of bins."""
        points = np.linspace(0, 1, _UNKNOWN_BINS + 1)
        return (points[[0, -1]], points[[0, -1]]) if self.LINEAR else (points[1:-1], (points[1:] + points[:-1]) / 2)

    def _log_probs(self, logits: Tensor) -> Tensor:
        return by_rows(self._calibrated_rows, logits)

    def _calibrated_rows(self, logits: Tensor) -> Tensor:
        lookup = linear_lookup if self.LINEAR else step_lookup
        mapped = lookup(_scores(logits), *(self._value(name) for name in self.FITTED))
        masked = is_masked(logits)
        if logits.shape[1] == 2:
            both = torch.cat([1 - mapped, mapped], 1)
            probs = torch.where(masked.any(1, keepdim=True), (~masked).to(both.dtype), both)
        else:
            mapped, left = without_masks(mapped, masked), (~masked).to(mapped.dtype)
            total = mapped.sum(1, keepdim=True)
            uniform = left / left.sum(1, keepdim=True)
            probs = torch.where(total > 0, mapped / torch.where(total > 0, total, 1.0), uniform)
        return torch.where(masked, -math.inf, torch.log(probs.clamp(min=torch.finfo(logits.dtype).tiny)))


class _FitClock:
    """Tells how far a fit class by class has come, or warns of one that will take long.

    What a pass over the rows takes, before the first of some classes, is kept apart from what each class takes.
    """

    def __init__(self, name: str, data: FitData) -> None:
        self._name, self._data, self._warned = name, data, data.progress is not None
        self._seconds_of_passes = self._seconds_of_classes = 0.0
        self._passes = 0

    def watched(self, groups: Iterator[ScoreGroups | None]) -> Iterator[ScoreGroups | None]:
        """The rankings as they come."""
        asked, read = time.perf_counter(), self._data.passes
        for done, each in enumerate(groups):
            came = time.perf_counter()
            if self._data.passes > read:  # the rows were read for it
                self._seconds_of_passes, self._passes = self._seconds_of_passes + came - asked, self._passes + 1
                asked, read = came, self._data.passes
            yield each
            now = time.perf_counter()
            self._seconds_of_classes += now - asked
            self._tell(done + 1)
            asked = time.perf_counter()

    def _tell(self, done: int) -> None:
        total = max(1, self._data.num_classes - (self._data.num_classes == 2))
        if self._data.progress is not None:
            self._data.progress(done, total, f"{self._name}: class {done:,} of {total:,}")
        spent = self._seconds_of_passes + self._seconds_of_classes
        if self._warned or spent < _SECONDS_OF_TRIAL or done < _CLASSES_OF_TRIAL:
            return
        together = max(1, min(total, _HELD // max(1, self._data.num_rows)))
        passes = math.ceil(total / together) * self._seconds_of_passes / max(1, self._passes)
        expected = passes + total * self._seconds_of_classes / done
        if expected > _LONG_SECONDS:
            self._warned = True
            warnings.warn(
                f"{self._name} fits a function for each of {total:,} classes, which takes about "
                f"{expected / 60:,.0f} minutes here. Pass progress= to fit to follow it; VectorScaling is fitted to "
                "all classes at once.",
                InputWarning,
                stacklevel=2,
            )


class HistogramBinning(OneVsRest):
    r"""Histogram binning: a score becomes the frequency of the class among the fit rows in its bin.

    $$ f_k(p) = \frac{\sum_{n \in B(p)} w_n [y_n = k]}{\sum_{n \in B(p)} w_n} $$

    where $B(p)$ are the fit rows whose probability of class k lies in the same of `num_bins` bins as p, $y$ are their
    labels and $w$ their weights; `edges` is

    - `"equal_mass"`: the row of rank i (from 0) goes to bin $\lfloor M i / N \rfloor$, except that equal scores stay
      together, in the lower of the bins that they would be cut between. Edges lie halfway between scores. With fewer
      rows than bins there are as many bins as rows;
    - `"equal_width"`: edges $i/M$. A bin without rows maps to its middle: nothing is known there.

    Of a stream that is not kept in memory a histogram of 65,536 cells stands for the scores of a class: a cut through a
    cell shares its rows in proportion.

    The module's docstring says how the classes come together. `edges_` (K, M - 1) are the edges between bins and
    `values_` (K, M) the frequencies, where neighbours of equal value are one; a score on an edge belongs below it.

    Source: [zadrozny2001]; for several classes [guo2017, Sec. 4.2].

    >>> scores, labels = [0.1, 0.2, 0.2, 0.7, 0.8, 0.9], [0, 1, 0, 1, 1, 0]
    >>> calibrator = HistogramBinning(num_bins=2).fit(scores, labels, kind="probs")
    >>> [round(p, 4) for p in calibrator.predict_probs([0.25, 0.6], kind="probs").tolist()]
    [0.3333, 0.6667]
    """

    FITTED: ClassVar = STEPS
    edges_: Tensor
    values_: Tensor

    def __init__(self, num_bins: int = 15, *, edges: Edges = "equal_mass") -> None:
        super().__init__()
        require(num_bins >= 1, "num_bins", "must be at least 1", num_bins, "The papers use 15.")
        known = edges in ("equal_mass", "equal_width")
        require(known, "edges", "must be equal_mass or equal_width", repr(edges))
        self.num_bins, self.edges = num_bins, edges

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {"num_bins": self.num_bins, "edges": self.edges}

    def _groups(self, data: FitData) -> Iterator[ScoreGroups | None]:
        return _classes(data) if data.in_memory else _class_histograms(data)

    def _table(self, groups: ScoreGroups) -> tuple[Array, Array]:
        equal_mass = self.edges == "equal_mass"
        num_bins = min(self.num_bins, int(groups.count.sum())) if equal_mass else self.num_bins
        bins = bin_ranked(groups, num_bins=num_bins, edges=self.edges)
        if equal_mass:
            cuts = np.append(_cuts(groups, bins.edges[1:-1].numpy()), [0, len(groups.value)])
            bins = bin_ranked(groups, edges=torch.from_numpy(groups.edges[np.unique(cuts)]))
        middle = (bins.edges[1:] + bins.edges[:-1]) / 2
        values = torch.where(bins.mass > 0, bins.accuracy, middle)
        return _steps(bins.edges[1:-1].numpy(), values.numpy())


class IsotonicCalibration(OneVsRest):
    r"""Isotonic regression: the non-decreasing function of the score that is nearest to the labels.

    $$ f_k = \arg\min_{f \text{ non-decreasing}} \sum_n w_n \big( f(p_{nk}) - [y_n = k] \big)^2 $$

    where $p_{nk}$ is the probability of class k in row n, $y$ the labels and $w$ the weights. Between the scores of the
    fit it is linear, beyond them constant, as in scikit-learn. The module's docstring says how the
    classes come together. `scores_` (K, M) are the points of the functions and `calibrated_` (K, M) their values.

    Source: [zadrozny2002].

    >>> scores, labels = [0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [0, 0, 1, 1, 0, 1]
    >>> calibrator = IsotonicCalibration().fit(scores, labels, kind="probs")
    >>> [round(p, 4) for p in calibrator.predict_probs([0.25, 0.6, 0.85], kind="probs").tolist()]
    [0.3333, 0.6667, 0.8333]
    """

    FITTED: ClassVar = {
        "scores_": FittedValue(("functions", "points"), least=0, most=1, increasing=True),
        "calibrated_": FittedValue(("functions", "points"), least=0, most=1, increasing=True),
    }
    scores_: Tensor
    calibrated_: Tensor
    LINEAR = True

    def settings(self) -> dict[str, Any]:
        """It has none."""
        return {}

    def _table(self, groups: ScoreGroups) -> tuple[Array, Array]:
        mass = groups.mass.astype(np.float64)
        fitted = _non_decreasing(groups.right / mass, mass).clip(0, 1)
        # Within a run of equal values the ends are enough.
        inside = np.append(fitted[1:] == fitted[:-1], False) & np.append(False, fitted[1:] == fitted[:-1])
        return groups.value[~inside], fitted[~inside]


class BayesianBinning(OneVsRest):
    r"""Bayesian binning into quantiles (BBQ): many histograms, averaged by how well they explain the labels.

    A model M cuts the fit rows into B bins of equal mass. With $m_b$ rows of the class and $n_b$ others in bin b,

    $$ \mathrm{Score}(M) = \prod_{b=1}^{B} \frac{\Gamma(\frac{N'}{B})}{\Gamma(m_b + n_b + \frac{N'}{B})}
       \frac{\Gamma(m_b + \alpha_b)}{\Gamma(\alpha_b)} \frac{\Gamma(n_b + \beta_b)}{\Gamma(\beta_b)}, \qquad
       \alpha_b = \frac{N'}{B} c_b, \quad \beta_b = \frac{N'}{B} (1 - c_b), $$
    $$ f(p) = \sum_M \frac{\mathrm{Score}(M)}{\sum_{M'} \mathrm{Score}(M')} \,
       \frac{m_b + \alpha_b}{m_b + n_b + N'/B} \quad \text{at the bin } b \text{ of } M \text{ that holds } p, $$

    where $c_b$ is the middle of the bin, N' is `prior_size`, and there is a model for each B from
    $\lfloor N^{1/3} / C \rfloor$, but at least 1, to $\lceil C N^{1/3} \rceil$, but at most as many as there are
    different scores; N is the number of rows and C is `range_factor`. Edges lie halfway between
    scores; the first bin begins at 0 and the last one ends at 1. Whole-number weights mean repeated rows; other weights
    are scaled to a mean of 1. The module's docstring says how the classes come together. `edges_` (K, M - 1) and
    `values_` (K, M) are the average, which is a step function.

    Source: [naeini2015]. Differs: equal scores are never cut apart, and B counts the bins that this leaves.

    >>> scores, labels = [0.2] * 10 + [0.8] * 10, [0] * 6 + [1] * 4 + [0] * 5 + [1] * 5
    >>> calibrator = BayesianBinning().fit(scores, labels, kind="probs")
    >>> [round(p, 4) for p in calibrator.predict_probs([0.25, 0.6, 0.85], kind="probs").tolist()]
    [0.4461, 0.463, 0.463]
    """

    FITTED: ClassVar = STEPS
    edges_: Tensor
    values_: Tensor

    def __init__(self, *, range_factor: float = 10.0, prior_size: float = 2.0) -> None:
        super().__init__()
        fine = 1 <= range_factor < math.inf
        require(fine, "range_factor", "must be at least 1 and finite", range_factor, "The paper uses 10.")
        fine = 0 < prior_size < math.inf
        require(fine, "prior_size", "must be positive and finite", prior_size, "The paper uses 2.")
        self.range_factor, self.prior_size = float(range_factor), float(prior_size)

    def settings(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        return {"range_factor": self.range_factor, "prior_size": self.prior_size}

    def _table(self, groups: ScoreGroups) -> tuple[Array, Array]:
        curve = np.zeros(len(groups.value))
        for share, cuts, means in self._models(groups):
            curve += share * np.repeat(means, np.diff(cuts))
        changes = np.concatenate([[0], np.flatnonzero(np.diff(curve)) + 1, [len(curve)]])
        return _steps(groups.edges[changes[1:-1]], curve[changes[:-1]])

    def _models(self, groups: ScoreGroups) -> Iterator[tuple[float, Array, Array]]:
        """The share of each model that has one, the groups at which its bins begin and end, and the bins' means."""
        cuts, model = self._bins(groups)
        inside = model[1:] == model[:-1]  # between the last cut of a model and the first of the next there is no bin
        below, above, model = cuts[:-1][inside], cuts[1:][inside], model[1:][inside]
        num_bins = np.bincount(model)
        scale = float(groups.count.sum()) / groups.total
        hits, rows = (
            scale * np.diff(np.append(0.0, sums)[cuts])[inside] for sums in (groups.reached_right, groups.reached)
        )
        edges = groups.edges
        middle = np.maximum((edges[below] + edges[above]) / 2, _LEAST_MIDDLE)
        prior = self.prior_size / num_bins[model]
        misses = np.maximum(rows - hits, 0)  # 0 but for rounding where all rows are hits
        evidence = np.bincount(model, _log_evidence(hits, misses, prior * middle, prior * (1 - middle)))
        share = np.exp(evidence - evidence.max())
        share /= share.sum()
        means = (hits + prior * middle) / (rows + prior)
        ends = np.cumsum(num_bins)
        for index in np.flatnonzero(share > _NEGLIGIBLE):
            bins = slice(ends[index] - num_bins[index], ends[index])
            yield float(share[index]), np.append(below[bins], above[bins][-1]), means[bins]

    def _bins(self, groups: ScoreGroups) -> tuple[Array, Array]:
        """The groups at which the bins of all models begin and end, one model after the other, and the models."""
        root = np.cbrt(float(groups.count.sum()))
        most = min(len(groups.value), math.ceil(root * self.range_factor))
        fewest = min(most, max(1, math.floor(root / self.range_factor)))
        masses, model = groups.all_mass_cuts(fewest, most)
        cuts = np.where(masses > 0, _cuts(groups, groups.values_at(masses)), 0)
        new = np.append(True, (np.diff(cuts) != 0) | (np.diff(model) != 0))  # ties make bins empty
        return cuts[new], model[new]


def _scores(logits: Tensor) -> Tensor:
    """The probabilities that are mapped (n, K): all classes, or the second of two."""
    probs = torch.softmax(logits.to(wide_dtype(logits.device)), 1)
    return probs[:, 1:] if logits.shape[1] == 2 else probs


def _fit_scores(logits: Tensor) -> Tensor:
    """The scores that functions are fitted to: NaN where the class is masked, or the only one that is left."""
    masked = is_masked(logits)
    alone = (~masked).sum(1, keepdim=True) == 1
    left_out = masked | alone
    return torch.where(left_out[:, 1:] if logits.shape[1] == 2 else left_out, math.nan, _scores(logits))


def _classes(data: FitData) -> Iterator[ScoreGroups | None]:
    """The ranking of every class that has a function, in as many passes as memory requires."""
    labels, weight = data.columns(_labels_and_weights)
    weights = None if (weight == 1).all() else weight
    first = 1 if data.num_classes == 2 else 0  # the number of the class in the first column of the scores
    together = max(1, _HELD // len(labels))
    for start in range(0, data.num_classes - first, together):
        (columns,) = data.columns(functools.partial(_some_scores, start, start + together))
        for column, scores in enumerate(columns):
            yield _ranked(scores, labels == first + start + column, weights)


def _ranked(scores: Array, correct: Array, weights: Array | None) -> ScoreGroups | None:
    """The ranking of the rows whose score is a number; None if there is none."""
    known = ~np.isnan(scores)
    if not known.all():
        scores, correct, weights = scores[known], correct[known], None if weights is None else weights[known]
    return ScoreGroups.of_scores(scores, correct, weights) if len(scores) else None


def _labels_and_weights(block: LabelledLogits) -> tuple[Array, ...]:
    """Copies of the labels, whose memory may be used again for the next batch, and the weights."""
    return block.labels.cpu().numpy().copy(), row_weights(block).cpu().numpy()


def _some_scores(first: int, end: int, block: LabelledLogits) -> tuple[Array, ...]:
    """The scores of some classes, one row per class."""
    return (_fit_scores(block.logits)[:, first:end].T.cpu().numpy(),)


def _class_histograms(data: FitData) -> Iterator[ScoreGroups | None]:
    """The rankings from histograms of the scores, for as many classes per pass as memory allows."""
    first = 1 if data.num_classes == 2 else 0
    together = max(1, data.memory // (2 * _BYTES_OF_CELLS))
    for start in range(0, data.num_classes - first, together):
        end = min(start + together, data.num_classes - first)
        cells: Tensor = data.reduce(functools.partial(_class_cells, start, end, first), operator.add)
        for mass, score, right, count in cells.numpy():
            held = mass > 0
            if not held.any():
                yield None
                continue
            value = score[held] / mass[held]
            whole = bool((mass == count).all())
            yield ScoreGroups(value, mass[held] if whole else count[held], mass[held], right[held], value)


def _class_cells(start: int, end: int, first: int, blocks: Iterator[LabelledLogits]) -> Tensor:
    """Mass, scores, mass of the class and rows (C, 4, cells) of each cell of the classes in the columns start..end."""
    cells = torch.zeros(end - start, 4, CELLS, dtype=torch.float64)
    offset = torch.arange(end - start).mul_(4 * CELLS)
    for block in blocks:
        scores = _fit_scores(block.logits)[:, start:end].cpu()
        known = ~torch.isnan(scores)
        scores, weight = scores.nan_to_num(0.0), row_weights(block).cpu().unsqueeze(1) * known
        place = torch.from_numpy(cell_of(scores.numpy())) + offset
        mine = (block.labels.cpu().unsqueeze(1) == torch.arange(first + start, first + end)).double()
        for part, values in enumerate((weight, weight * scores, weight * mine, known.to(scores.dtype))):
            cells.view(-1).index_add_(0, (place + part * CELLS).reshape(-1), values.reshape(-1))
    return cells


def _non_decreasing(values: Array, weight: Array) -> Array:
    """The non-decreasing values that are nearest in weighted squares.

    >>> _non_decreasing(np.array([0.0, 1.0, 0.0]), np.ones(3))
    array([0. , 0.5, 0.5])
    """
    try:
        from scipy.optimize import isotonic_regression
    except ImportError:  # before scipy 1.12; scikit-learn takes longer to import than to fit
        from sklearn.isotonic import isotonic_regression as of_sklearn

        return np.asarray(of_sklearn(values, sample_weight=weight))
    return np.asarray(isotonic_regression(values, weights=weight).x)


def _log_evidence(hits: Array, misses: Array, alpha: Array, beta: Array) -> Array:
    """The logarithm of the probability of labels with so many hits and misses, under a Beta prior."""
    from scipy.special import betaln

    return np.asarray(betaln(hits + alpha, misses + beta) - betaln(alpha, beta))


def _cuts(groups: ScoreGroups, edges: Array) -> Array:
    """How many groups of equal scores lie at or below each edge."""
    return np.searchsorted(groups.value, edges, side="right")


def _steps(edges: Array, values: Array) -> tuple[Array, Array]:
    """A step function without the edges between equal values; one edge is always there."""
    changes = values[1:] != values[:-1]
    if not changes.any():
        return np.ones(1), values[[0, 0]]
    return edges[changes], values[np.append(True, changes)]
