"""The measures for streams, training loops and many processes: update, merge, compute, reset.

    from focalcal.metrics import streaming

    ece = streaming.EqualWidth("ece", num_bins=15)
    for logits, labels in batches:
        ece.update(logits, labels)
    ece.compute()

Each class is a family of measures that share a state; name the ones you want, or get a dictionary of all. With
torchmetrics installed they are its `Metric`s: they go into a MetricCollection, into Lightning's `self.log`, and agree
over processes. The result is that of one call on all rows, however they were split into batches, merged or distributed.

| family | state | measures |
|---|---|---|
| `Scores` | 12 pairs of numbers | nll, brier, accuracy, error, ... |
| `EqualWidth` | 4 numbers a bin | ece, rms_ce, mce, ece_debiased |
| `Classwise` | 4 numbers a bin and class | classwise_ece |
| `Ranked` | 4 bytes a row (8 for float64), or 1.5 MB with `exact=False` | ada_ece, ece_sweep, smooth_ece, ... |
| `Everything` | all of these | all of `evaluate` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins
from focalcal.core.checks import ArrayLike, require
from focalcal.core.confidences import Confidences
from focalcal.core.ranking import Array, pack
from focalcal.core.ranking import Ranked as Ranking
from focalcal.core.reader import ChunkReader
from focalcal.core.sketch import CELLS, cut_error, histogram, ranking_of_cells
from focalcal.metrics import calibration, ranked
from focalcal.metrics import scores as score_measures
from focalcal.metrics.classes import ClassBinSums, ClassRows, class_bins
from focalcal.metrics.evaluation import Evaluation
from focalcal.metrics.read import target_class
from focalcal.metrics.rows import COLUMNS, Readable
from focalcal.metrics.state import PlainMetric
from focalcal.metrics.summary import SCORES, Summary
from focalcal.metrics.tally import Tally
from focalcal.predictions.arrays import KINDS, Kind, Predictions, Target

if TYPE_CHECKING:
    _Base = PlainMetric
else:
    try:
        from torchmetrics import Metric as _Metric

        class _Base(_Metric):
            """torchmetrics puts the states of all processes together before it calls `compute`."""

            is_differentiable = False
            higher_is_better = None
            full_state_update = False
            lists: ClassVar[Mapping[str, torch.dtype]] = {}

            def compute(self):
                """The value of everything so far, over all processes."""
                return self.local_value()

            def plot(self, val=None, ax=None):
                """torchmetrics' drawing of the value so far, or of values that `forward` gave step by step."""
                return self._plot(val, ax)

            def _sync_dist(self, *args, **kwargs):
                # A process that has seen no batch must still take part, with tensors of the type that the others have.
                for name, dtype in self.lists.items():
                    if not getattr(self, name):
                        setattr(self, name, [torch.empty(0, dtype=dtype, device=self.device)])
                return super()._sync_dist(*args, **kwargs)

    except ImportError:
        _Base = PlainMetric

__all__ = ["Classwise", "EqualWidth", "Everything", "Ranked", "Scores"]

Measure = Callable[..., Any]
# Packed rows of float32 and of float64 scores: a list of each, so that all processes exchange the same types.
_KEYS = {"keys": torch.int32, "wide_keys": torch.int64}


class _Family(_Base):
    """What the families share: reading batches, choosing measures, merging states."""

    measures: ClassVar[Mapping[str, Measure]] = {}
    sums: tuple[str, ...] = ()

    def __init__(self, *measures: str, kind: Kind = "logits", ignore_index: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        unknown = [name for name in measures if name not in self.measures]
        require(not unknown, "measures", f"must be among {', '.join(self.measures)}", ", ".join(unknown))
        require(kind in KINDS, "kind", f"must be one of {', '.join(KINDS)}", repr(kind))
        self.chosen, self.kind, self.ignore_index = measures, kind, ignore_index

    def _sum_state(self, name: str, *shape: int) -> None:
        self.add_state(name, torch.zeros(*shape, dtype=torch.float64), dist_reduce_fx="sum", persistent=True)

    def _key_states(self) -> None:
        self.lists = _KEYS
        for name in _KEYS:
            self.add_state(name, [], dist_reduce_fx="cat", persistent=True)

    def _add(self, name: str, values: Array | Tensor) -> None:
        state = getattr(self, name)
        setattr(self, name, state + torch.as_tensor(values).to(state.device))

    def _add_keys(self, keys: list[Array]) -> None:
        """Keep packed rows, as torch can hold and exchange them: the same bits, with a sign."""
        for name, (unsigned, signed) in zip(_KEYS, ((np.uint32, np.int32), (np.uint64, np.int64)), strict=True):
            new = [torch.from_numpy(part.view(signed)).to(self.device) for part in keys if part.dtype == unsigned]
            setattr(self, name, [*getattr(self, name), *new])  # a new list: a saved state may hold the old one

    def _read(self, scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> Predictions:
        """A batch, which may be empty or ignored altogether."""
        reading = {"kind": self.kind, "sample_weight": sample_weight, "ignore_index": self.ignore_index}
        predictions = Predictions(scores, labels, may_be_empty=True, **reading)  # type: ignore[arg-type]
        expected = getattr(self, "num_classes", predictions.num_classes)
        require(predictions.num_classes == expected, "scores", f"must have {expected} classes", predictions.num_classes)
        return predictions

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Take in a batch and give its own value; if that fails, nothing was taken in."""
        before = dict(self.__dict__)
        try:
            return super().forward(*args, **kwargs)
        except BaseException:
            self.__dict__.update(before)
            raise

    def merge(self, other: _Family) -> _Family:
        """Take in everything that another object of the same family has seen; returns itself."""
        require(type(other) is type(self), "other", f"must be {type(self).__name__}", type(other).__name__)
        for name in ("kind", "ignore_index", "num_bins", "num_classes", "target", "exact"):
            mine, theirs = getattr(self, name, None), getattr(other, name, None)
            require(mine == theirs, "other", f"must have the same {name}, {mine}", theirs)
        for name in self.sums:
            self._add(name, getattr(other, name))
        for name in self.lists:
            setattr(self, name, [*getattr(self, name), *getattr(other, name)])
        self._computed = None  # torchmetrics remembers the last value
        self._update_count = getattr(self, "_update_count", 0) + getattr(other, "_update_count", 0)
        return self

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Follow the model to its device, but never to its precision: sums of half precision would be wrong."""
        kept = {name: getattr(self, name) for name in self.sums}
        super()._apply(fn, *args, **kwargs)
        for name, state in kept.items():
            setattr(self, name, state.to(getattr(self, name).device))
            self._defaults[name] = torch.zeros_like(getattr(self, name))
        return self

    def _readable(self) -> Readable:
        """What the measures read."""
        raise NotImplementedError

    def local_value(self) -> Any:
        """The chosen measures of the state as it is: one number, or a dictionary."""
        rows = self._readable()
        names = self.chosen or tuple(self.measures)
        values = {name: torch.tensor(float(self.measures[name](rows, self)), dtype=torch.float64) for name in names}
        return values[names[0]] if len(self.chosen) == 1 else values


class Scores(_Family):
    """Streaming scores: means over rows.

    >>> scores = Scores("nll", "accuracy")
    >>> scores.update([[2.0, 0.0]], [0])
    >>> scores.update([[0.0, 1.0]], [0])
    >>> scores.compute()
    {'nll': tensor(0.7201, dtype=torch.float64), 'accuracy': tensor(0.5000, dtype=torch.float64)}
    """

    measures: ClassVar[Mapping[str, Measure]] = {
        "nll": lambda rows, _: score_measures.nll(rows),
        "brier": lambda rows, _: score_measures.brier(rows),
        "accuracy": lambda rows, _: score_measures.accuracy(rows),
        "error": lambda rows, _: score_measures.error(rows),
        "mean_confidence": lambda rows, _: score_measures.mean_confidence(rows),
        "entropy": lambda rows, _: score_measures.entropy(rows).overall,
        "entropy_correct": lambda rows, _: score_measures.entropy(rows).correct,
        "entropy_wrong": lambda rows, _: score_measures.entropy(rows).wrong,
        "top_5_accuracy": lambda rows, _: score_measures.top_k_accuracy(rows, k=5),
        "s99": lambda rows, _: score_measures.s99(rows).share,
        "s99_accuracy": lambda rows, _: score_measures.s99(rows).accuracy,
    }
    sums = ("score_sums",)
    score_sums: Tensor

    def __init__(self, *measures: str, kind: Kind = "logits", ignore_index: int | None = None, **options: Any) -> None:
        super().__init__(*measures, kind=kind, ignore_index=ignore_index, **options)
        self._sum_state("score_sums", len(SCORES), 2)

    def update(self, scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take in a batch."""
        summary = Summary(0, scores=SCORES, ranked=False)
        for chunk in self._read(scores, labels, sample_weight).chunks():
            summary.add(ChunkReader(chunk, self.kind).columns(COLUMNS), chunk.weight)
        self._add("score_sums", summary.score_sums)

    def _readable(self) -> Readable:
        summary = Summary(0, scores=SCORES, ranked=False)
        summary.score_sums = self.score_sums.cpu().numpy()
        return summary


class EqualWidth(_Family):
    """Streaming ECE in bins of equal width.

    >>> ece = EqualWidth("ece", num_bins=1, kind="probs")
    >>> ece.update([[0.9, 0.1]], [0]), ece.update([[0.8, 0.2]], [1])
    (None, None)
    >>> ece.compute()
    tensor(0.3500, dtype=torch.float64)
    """

    measures: ClassVar[Mapping[str, Measure]] = {
        "ece": lambda rows, my: calibration.ece(rows, num_bins=my.num_bins),
        "rms_ce": lambda rows, my: calibration.ece(rows, num_bins=my.num_bins, norm="l2"),
        "mce": lambda rows, my: calibration.mce(rows, num_bins=my.num_bins),
        "ece_debiased": lambda rows, my: calibration.ece_debiased(rows, num_bins=my.num_bins, edges="equal_width"),
    }
    sums = ("bin_sums",)
    bin_sums: Tensor

    def __init__(
        self,
        *measures: str,
        num_bins: int = 15,
        kind: Kind = "logits",
        target: Target = "top_label",
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*measures, kind=kind, ignore_index=ignore_index, **options)
        require(target != "classwise", "target", "must be one class or the top label; use Classwise", target)
        self.num_bins, self.target = num_bins, target
        self._sum_state("bin_sums", 4, num_bins)

    def update(self, scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take in a batch."""
        predictions = self._read(scores, labels, sample_weight)
        summary = Summary(0, num_bins=self.num_bins, ranked=False)
        number, _ = target_class(self.target, predictions.num_classes)
        for chunk in predictions.chunks():
            summary.add(ChunkReader(chunk, self.kind, number).columns(calibration.PAIRS), chunk.weight)
        self._add("bin_sums", summary.bin_sums)

    def _readable(self) -> Readable:
        summary = Summary(0, num_bins=self.num_bins, ranked=False)
        summary.bin_sums = self.bin_sums.cpu().numpy()
        return summary


class Classwise(_Family):
    """Streaming classwise ECE: the mean over `num_classes` classes.

    >>> ece = Classwise(num_classes=2, kind="probs")
    >>> ece.update([[0.9, 0.1], [0.8, 0.2]], [0, 1])
    >>> ece.compute()
    {'classwise_ece': tensor(0.4500, dtype=torch.float64)}
    """

    measures: ClassVar[Mapping[str, Measure]] = {
        "classwise_ece": lambda rows, my: calibration.classwise_ece(rows, num_bins=my.num_bins)
    }
    sums = ("class_sums", "class_totals")
    class_sums: Tensor
    class_totals: Tensor

    def __init__(
        self,
        *measures: str,
        num_classes: int,
        num_bins: int = 15,
        kind: Kind = "logits",
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*measures, kind=kind, ignore_index=ignore_index, **options)
        self.num_classes, self.num_bins = num_classes, num_bins
        self._sum_state("class_sums", 4, num_classes, num_bins)
        self._sum_state("class_totals", 3, num_classes)

    def update(self, scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take in a batch."""
        added = ClassBinSums(self.num_classes, self.num_bins)
        for chunk in self._read(scores, labels, sample_weight).chunks():
            probs = ChunkReader(chunk, self.kind).probs
            added.add(probs, chunk.labels, None if chunk.weight is None else torch.from_numpy(chunk.weight))
        self._add("class_sums", added.sums)
        self._add("class_totals", added.whole)

    def _readable(self) -> Readable:
        return _ClassSummary(class_bins(self.class_sums, self.class_totals))


class Ranked(_Family):
    """Streaming measures of the order of confidences.

    Exact by default, with 4 bytes a row (8 for float64 scores). `exact=False` keeps a histogram of 1.5 MB however many
    rows come; an equal-mass ECE from it is within `error_bound` of the exact one, usually far closer. With fewer rows
    than bins there are as many bins as rows.

    >>> ece = Ranked("ada_ece", num_bins=2)
    >>> ece.update([[2.0, 0.0]], [0]), ece.update([[0.0, 1.0]], [0])
    (None, None)
    >>> ece.compute()
    tensor(0.4251, dtype=torch.float64)
    """

    measures: ClassVar[Mapping[str, Measure]] = {
        "ada_ece": lambda rows, my: calibration.ada_ece(rows, num_bins=my.bins_for(rows)),
        "ece_debiased": lambda rows, my: calibration.ece_debiased(rows, num_bins=my.bins_for(rows)),
        "ece_debiased_l1": lambda rows, my: calibration.ece_debiased(rows, num_bins=my.bins_for(rows), norm="l1"),
        "ece_sweep": lambda rows, _: calibration.ece_sweep(rows),
        "ece_sweep_equal_width": lambda rows, _: calibration.ece_sweep(rows, edges="equal_width"),
        "smooth_ece": lambda rows, _: ranked.smooth_ece(rows),
        "ks_error": lambda rows, _: ranked.ks_error(rows),
        "mmce": lambda rows, _: ranked.mmce(rows),
        "aurc": lambda rows, _: ranked.aurc(rows),
        "auroc_correctness": lambda rows, _: ranked.auroc_correctness(rows),
    }

    keys: list[Tensor]
    wide_keys: list[Tensor]
    cells: Tensor

    def __init__(
        self,
        *measures: str,
        num_bins: int = 15,
        exact: bool = True,
        kind: Kind = "logits",
        target: Target = "top_label",
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*measures, kind=kind, ignore_index=ignore_index, **options)
        require(target != "classwise", "target", "must be one class or the top label", target)
        self.num_bins, self.exact, self.target = num_bins, exact, target
        if exact:
            self._key_states()
        else:
            self.sums = ("cells",)
            self._sum_state("cells", 3, CELLS)

    def update(self, scores: ArrayLike, labels: ArrayLike) -> None:
        """Take in a batch."""
        predictions = self._read(scores, labels)
        number, _ = target_class(self.target, predictions.num_classes)
        parts = [ChunkReader(chunk, self.kind, number).columns(calibration.PAIRS) for chunk in predictions.chunks()]
        if self.exact:
            self._add_keys([pack(part["confidence"], part["correct"]) for part in parts])
        else:
            cells = (histogram(part["confidence"], part["correct"]) for part in parts)
            self._add("cells", sum(cells, np.zeros((3, CELLS))))

    def bins_for(self, rows: Readable) -> int:
        """The number of bins, or of rows where there are fewer, as in the last batch of an epoch."""
        return min(self.num_bins, rows.num_rows)

    def error_bound(self, num_bins: int | None = None) -> float:
        """How far `ada_ece` of this process's rows can be from exact: 0 if it is exact."""
        return 0.0 if self.exact else cut_error(self.cells[0].cpu().numpy(), num_bins or self.num_bins)

    def _readable(self) -> Readable:
        if self.exact:
            return _of_keys(self, self.num_bins)
        return _RankedSummary(ranking_of_cells(*self.cells.cpu().numpy()))


class Everything(_Family):
    """All of `evaluate`, for a stream: a dictionary from `compute`, an `Evaluation` from `evaluation`.

    >>> everything = Everything(num_classes=2)
    >>> everything.update([[2.0, 0.0], [1.0, 0.0]], [0, 1]), everything.update([[0.0, 3.0]], [1])
    (None, None)
    >>> round(everything.evaluation().ece, 3)
    0.299
    """

    sums = ("score_sums", "class_sums", "class_totals", "label_counts")
    score_sums: Tensor
    class_sums: Tensor
    class_totals: Tensor
    label_counts: Tensor
    keys: list[Tensor]
    wide_keys: list[Tensor]

    def __init__(
        self,
        *,
        num_classes: int,
        num_bins: int = 15,
        kind: Kind = "logits",
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(kind=kind, ignore_index=ignore_index, **options)
        self.num_classes, self.num_bins = num_classes, num_bins
        self._sum_state("score_sums", len(SCORES), 2)
        self._sum_state("class_sums", 4, num_classes, num_bins)
        self._sum_state("class_totals", 3, num_classes)
        self._sum_state("label_counts", num_classes)
        self._key_states()
        self._evaluation: Evaluation | None = None

    def update(self, scores: ArrayLike, labels: ArrayLike) -> None:
        """Take in a batch."""
        added = self._tally()
        for chunk in self._read(scores, labels).chunks():
            added.add(chunk)
        self._add("label_counts", added.label_counts)
        self._add("score_sums", added.summary.score_sums)
        assert added.classes is not None
        assert added.summary.confidences is not None
        self._add("class_sums", added.classes.sums)
        self._add("class_totals", added.classes.whole)
        self._add_keys([added.summary.confidences.keys])

    def _tally(self) -> Tally:
        return Tally(self.num_classes, self.kind, num_bins=self.num_bins)

    def local_value(self) -> dict[str, Tensor]:
        """All measures of the state as it is."""
        tally = self._tally()
        tally.label_counts = self.label_counts.cpu().numpy()
        tally.summary.score_sums, tally.summary.confidences = self.score_sums.cpu().numpy(), _confidences(self)
        assert tally.classes is not None
        tally.classes.sums, tally.classes.whole = self.class_sums, self.class_totals
        self._evaluation = tally.evaluation()
        numbers = {name: value for name, value in self._evaluation.to_dict().items() if isinstance(value, float)}
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}

    def evaluation(self) -> Evaluation:
        """Everything so far, over all processes, as `evaluate` gives it."""
        self._computed = None
        self.compute()
        assert self._evaluation is not None
        return self._evaluation


class _ClassSummary(ClassRows):
    """Class bins that were added up."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins

    def bins(self, num_bins: int, edges: Any) -> Bins:
        return self._bins


class _RankedSummary(Summary):
    """A ranking, and nothing else."""

    def __init__(self, ranking: Ranking) -> None:
        super().__init__(0)
        self._ranked = ranking

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        return int(self.ranked.total)


def _of_keys(metric: Any, num_bins: int) -> Summary:
    summary = Summary(0, num_bins=num_bins)
    summary.confidences = _confidences(metric)
    return summary


def _confidences(metric: Any) -> Confidences:
    """The packed rows of all batches."""
    narrow, wide = (_joined(getattr(metric, name), dtype) for name, dtype in _KEYS.items())
    require(len(narrow) + len(wide) > 0, "compute", "needs at least one row", "none")
    return Confidences.of_keys(narrow.view(np.uint32), wide.view(np.uint64))


def _joined(state: Any, dtype: torch.dtype) -> Array:
    """A list state as one array; torchmetrics makes it one tensor when it has exchanged it."""
    parts = [state] if isinstance(state, Tensor) else state
    return torch.cat([torch.empty(0, dtype=dtype), *(part.cpu() for part in parts)]).numpy()
