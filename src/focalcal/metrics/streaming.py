"""The measures for streams, training loops and many processes, as torchmetrics' `Metric`s: update, compute, reset.

    from focalcal.metrics import streaming

    ece = streaming.EqualWidth("ece", num_bins=15)
    for logits, labels in batches:
        ece.update(logits, labels)
    ece.compute()

Each class is a family of measures that share a state; name the ones you want, or get a dictionary of all. They go into
a MetricCollection, into Lightning's `self.log`, and agree over processes. The result is that of one call on all rows,
however they were split into batches, merged or distributed. Needs torchmetrics: `pip install 'focalcal[metrics]'`.

| family | state | measures |
|---|---|---|
| `Scores` | 12 pairs of numbers | nll, brier, accuracy, error, ... |
| `EqualWidth` | 4 numbers per bin | ece, rms_ce, mce, ece_debiased |
| `Classwise` | 4 numbers per bin and class | classwise_ece |
| `Ranked` | 4 bytes per row (8 for float64), or 1.5 MB with `exact=False` | ada_ece, ece_sweep, smooth_ece, ... |
| `Everything` | all of these | all of `evaluate` |
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from focalcal.core.checks import Array, ArrayLike, require
from focalcal.core.confidence_histogram import CELLS, cut_error
from focalcal.core.score_kinds import GivenKind, plain_kind
from focalcal.errors import MissingExtraError
from focalcal.metrics.calibration_error import ece_debiased
from focalcal.metrics.evaluation import Evaluation, evaluation_of
from focalcal.metrics.prediction_set import PredictionSet
from focalcal.metrics.read_scores import target_class
from focalcal.metrics.summary import Summary
from focalcal.metrics.table import MEASURES, Measure, Reads, measure_means
from focalcal.predictions.arrays import Predictions, Target
from focalcal.predictions.confidence_summary import ConfidenceSummary
from focalcal.predictions.distributed import agree_on, is_distributed

try:
    from torchmetrics import Metric
    from torchmetrics.utilities.distributed import gather_all_tensors
except ImportError as missing:
    raise MissingExtraError("Streaming metrics need torchmetrics: pip install 'focalcal[metrics]'.") from missing

__all__ = ["Classwise", "EqualWidth", "Everything", "Ranked", "Scores"]

# Packed rows of float32 and of float64 scores: a list of each, so that all processes exchange the same types.
_KEYS = {"keys": torch.int32, "wide_keys": torch.int64}


class StreamingMetric(Metric):
    """What the families share: reading batches into a `Summary`, choosing measures, merging states."""

    is_differentiable = False
    higher_is_better = None
    full_state_update = False
    reads: tuple[Reads, ...] = ()  # the measures of the family: those of the table that read just this
    sums: tuple[str, ...] = ()  # states that are added up
    lists: Mapping[str, torch.dtype] = {}  # states that are strung together
    settings = (
        "kind",
        "ignore_index",
        "class_axis",
        "num_bins",
        "num_classes",
        "target",
        "exact",
    )  # alike in all that is merged

    def __init__(
        self,
        *measures: str,
        kind: GivenKind = "logits",
        ignore_index: int | None = None,
        class_axis: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        known = self.measures()
        unknown = [name for name in measures if name not in known]
        require(not unknown, "measures", f"must be among {', '.join(known)}", ", ".join(unknown))
        self.chosen, self.kind = measures, plain_kind(kind)
        self.ignore_index, self.class_axis = ignore_index, class_axis
        self._failure: Exception | None = None  # of a batch, kept until the processes meet
        self._waited_for = True  # whether other processes will meet this one before it raises

    @classmethod
    def measures(cls) -> dict[str, Measure]:
        """The measures of the family by their names."""
        return {name: each for name, each in MEASURES.items() if each.reads == cls.reads and each.in_evaluate}

    @abstractmethod
    def _empty(self, num_classes: int, target: int | None = None) -> Summary:
        """A summary of no rows, with the parts that the family keeps."""

    @abstractmethod
    def _store(self, added: Summary) -> None:
        """Take the sums of a batch into the state."""

    @abstractmethod
    def _stored(self) -> PredictionSet:
        """What the measures read of the state."""

    def compute(self) -> Any:
        """The chosen measures of everything so far, over all processes: one number, or a dictionary."""
        rows, known = self._stored(), self.measures()
        names, num_bins = self.chosen or tuple(known), getattr(self, "num_bins", 15)
        values = {name: torch.tensor(float(known[name].of(rows, num_bins)), dtype=torch.float64) for name in names}
        return values[names[0]] if len(self.chosen) == 1 else values

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Take in a batch and return its own value; if that fails, the state is as before.

        In a distributed run, the value of a batch that is refused is NaN, and `compute` raises the error on all ranks.
        """
        before = dict(self.__dict__)
        self._waited_for = bool(self.dist_sync_on_step)
        try:
            value = super().forward(*args, **kwargs)
        except BaseException as error:
            self.__dict__.update(before)
            if self.dist_sync_on_step or not isinstance(error, Exception) or not self._keep(error):
                raise
            names = self.chosen or tuple(self.measures())
            values = {name: torch.tensor(torch.nan, dtype=torch.float64) for name in names}
            return values[names[0]] if len(self.chosen) == 1 else values
        self._waited_for, self._failure = True, before["_failure"]  # which torchmetrics has reset on its way
        return value

    def reset(self) -> None:
        """Forget everything so far."""
        self._failure = None
        super().reset()

    def _keep(self, error: Exception) -> bool:
        """Keep an error until `compute`, where the other processes wait for this one; whether there are any."""
        if is_distributed() and self.sync_on_compute:
            self._failure = self._failure or error
            return True
        return False

    def merge(self, other: StreamingMetric) -> StreamingMetric:
        """Take in everything that another object of the same family has seen; returns itself."""
        require(type(other) is type(self), "other", f"must be {type(self).__name__}", type(other).__name__)
        for name in self.settings:
            mine, theirs = getattr(self, name, None), getattr(other, name, None)
            require(mine == theirs, "other", f"must have the same {name}, {mine}", theirs)
        for name in self.sums:
            self._add(name, getattr(other, name))
        for name in self.lists:
            setattr(self, name, [*getattr(self, name), *getattr(other, name)])
        self._computed = None  # torchmetrics remembers the last value
        self._update_count += other._update_count
        return self

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """torchmetrics' drawing of the value so far, or of values that `forward` gave step by step."""
        return self._plot(val, ax)

    def _take_in(self, scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """A batch, which may be empty or ignored altogether."""
        try:
            self._store(self._summary(scores, labels, sample_weight))
        except Exception as error:
            if not self._waited_for or not self._keep(error):
                raise

    def _summary(self, scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None) -> Summary:
        reading = {"kind": self.kind, "sample_weight": sample_weight, "ignore_index": self.ignore_index}
        reading |= {"class_axis": self.class_axis}
        predictions = Predictions(scores, labels, may_be_empty=True, **reading)  # type: ignore[arg-type]
        expected = getattr(self, "num_classes", predictions.num_classes)
        require(predictions.num_classes == expected, "scores", f"must have {expected} classes", predictions.num_classes)
        number, _ = target_class(getattr(self, "target", "top_label"), predictions.num_classes)
        added = self._empty(predictions.num_classes, number)
        for chunk in predictions.chunks():
            added.update(chunk)
        return added

    def _sum_state(self, name: str, *shape: int) -> None:
        self.add_state(name, torch.zeros(*shape, dtype=torch.float64), dist_reduce_fx="sum", persistent=True)

    def _key_states(self) -> None:
        self.lists = _KEYS
        for name in _KEYS:
            self.add_state(name, [], dist_reduce_fx="cat", persistent=True)

    def _add(self, name: str, values: Array | Tensor) -> None:
        state = getattr(self, name)
        setattr(self, name, state + torch.as_tensor(values).to(state.device))

    def _add_keys(self, keys: Array) -> None:
        """Keep packed rows, as torch can hold and exchange them: the same bits, with a sign."""
        name, signed = ("keys", np.int32) if keys.dtype == np.uint32 else ("wide_keys", np.int64)
        if len(keys):
            new = torch.from_numpy(keys.view(signed)).to(self.device)
            setattr(self, name, [*getattr(self, name), new])  # a new list: a saved state may hold the old one

    def _confidences(self) -> ConfidenceSummary:
        """The packed rows of all batches."""
        narrow, wide = (_joined(getattr(self, name), dtype) for name, dtype in _KEYS.items())
        require(len(narrow) + len(wide) > 0, "compute", "needs at least one row", "none")
        return ConfidenceSummary.of_keys(narrow.view(np.uint32), wide.view(np.uint64))

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Follow the model to its device, but never to its precision: sums of half precision would be wrong."""
        kept = {name: getattr(self, name) for name in self.sums}
        super()._apply(fn, *args, **kwargs)
        for name, state in kept.items():
            setattr(self, name, state.to(getattr(self, name).device))
            self._defaults[name] = torch.zeros_like(getattr(self, name))
        return self

    def _sync_dist(self, dist_sync_fn: Any = gather_all_tensors, process_group: Any = None) -> None:
        alike = {"metric": type(self).__name__, **{name: getattr(self, name, None) for name in self.settings}}
        agree_on(alike, self._failure, group=process_group or self.process_group)
        # A process that has seen no batch must still take part, with tensors of the type that the others have.
        for name, dtype in self.lists.items():
            if not getattr(self, name):
                setattr(self, name, [torch.empty(0, dtype=dtype, device=self.device)])
        super()._sync_dist(dist_sync_fn, process_group)


class Scores(StreamingMetric):
    """Streaming scores: means over rows.

    >>> scores = Scores("nll", "accuracy")
    >>> scores.update([[2.0, 0.0]], [0])
    >>> scores.update([[0.0, 1.0]], [0])
    >>> scores.compute()
    {'nll': tensor(0.7201, dtype=torch.float64), 'accuracy': tensor(0.5000, dtype=torch.float64)}
    """

    reads = ("means",)
    sums = ("score_sums",)
    score_sums: Tensor

    def __init__(
        self, *measures: str, kind: GivenKind = "logits", ignore_index: int | None = None, **options: Any
    ) -> None:
        super().__init__(*measures, kind=kind, ignore_index=ignore_index, **options)
        self._sum_state("score_sums", len(measure_means()), 2)

    def update(self, scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take in a batch."""
        self._take_in(scores, labels, sample_weight)

    def _empty(self, num_classes: int, target: int | None = None) -> Summary:
        return Summary(num_classes, self.kind, means=measure_means(), ranked=False)

    def _store(self, added: Summary) -> None:
        self._add("score_sums", added.mean_sums)

    def _stored(self) -> PredictionSet:
        summary = self._empty(0)
        summary.mean_sums = self.score_sums.cpu().numpy()
        return summary


class EqualWidth(StreamingMetric):
    """Streaming ECE in bins of equal width.

    >>> ece = EqualWidth("ece", num_bins=1, kind="probs")
    >>> ece.update([[0.9, 0.1]], [0]), ece.update([[0.8, 0.2]], [1])
    (None, None)
    >>> ece.compute()
    tensor(0.3500, dtype=torch.float64)
    """

    reads = ("bins",)
    sums = ("bin_sums",)
    bin_sums: Tensor

    def __init__(
        self,
        *measures: str,
        num_bins: int = 15,
        kind: GivenKind = "logits",
        target: Target = "top_label",
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*measures, kind=kind, ignore_index=ignore_index, **options)
        require(target != "classwise", "target", "must be one class or the top label; use Classwise", target)
        self.num_bins, self.target = num_bins, target
        self._sum_state("bin_sums", 4, num_bins)

    @classmethod
    def measures(cls) -> dict[str, Measure]:
        """The measures of the table that read bins of equal width, and the debiased ECE in such bins."""
        debiased = Measure(
            "ece_debiased", ece_debiased, "debiased ECE", options={"edges": "equal_width"}, num_bins="fixed"
        )
        return {**super().measures(), "ece_debiased": debiased}

    def update(self, scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take in a batch."""
        self._take_in(scores, labels, sample_weight)

    def _empty(self, num_classes: int, target: int | None = None) -> Summary:
        return Summary(num_classes, self.kind, num_bins=self.num_bins, ranked=False, target_class=target)

    def _store(self, added: Summary) -> None:
        self._add("bin_sums", added.bin_sums)

    def _stored(self) -> PredictionSet:
        summary = self._empty(0)
        summary.bin_sums = self.bin_sums.cpu().numpy()
        return summary


class Classwise(StreamingMetric):
    """Streaming classwise ECE: the mean over `num_classes` classes.

    >>> ece = Classwise(num_classes=2, kind="probs")
    >>> ece.update([[0.9, 0.1], [0.8, 0.2]], [0, 1])
    >>> ece.compute()
    {'classwise_ece': tensor(0.4500, dtype=torch.float64)}
    """

    reads = ("classes",)
    sums: tuple[str, ...] = ("class_sums", "class_totals")
    class_sums: Tensor
    class_totals: Tensor

    def __init__(
        self,
        *measures: str,
        num_classes: int,
        num_bins: int = 15,
        kind: GivenKind = "logits",
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*measures, kind=kind, ignore_index=ignore_index, **options)
        self.num_classes, self.num_bins = num_classes, num_bins
        self._class_states()

    def _class_states(self) -> None:
        self._sum_state("class_sums", 4, self.num_classes, self.num_bins)
        self._sum_state("class_totals", 3, self.num_classes)

    def update(self, scores: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take in a batch."""
        self._take_in(scores, labels, sample_weight)

    def _empty(self, num_classes: int, target: int | None = None) -> Summary:
        return Summary(num_classes, self.kind, num_bins=self.num_bins, ranked=False, classwise=True)

    def _store(self, added: Summary) -> None:
        assert added.classes is not None
        self._add("class_sums", added.classes.sums)
        self._add("class_totals", added.classes.whole)

    def _stored(self) -> PredictionSet:
        summary = self._empty(self.num_classes)
        self._fill_classes(summary)
        assert summary.classwise is not None
        return summary.classwise

    def _fill_classes(self, summary: Summary) -> None:
        assert summary.classes is not None
        summary.classes.sums, summary.classes.whole = self.class_sums, self.class_totals


class Ranked(StreamingMetric):
    """Streaming measures of the order of confidences.

    Exact by default, with 4 bytes per row (8 for float64 scores). `exact=False` keeps a histogram of 1.5 MB however
    many rows come; an equal-mass ECE from it is within `error_bound` of the exact one, usually far closer. With fewer
    rows than bins there are as many bins as rows.

    >>> ece = Ranked("ada_ece", num_bins=2)
    >>> ece.update([[2.0, 0.0]], [0]), ece.update([[0.0, 1.0]], [0])
    (None, None)
    >>> ece.compute()
    tensor(0.4251, dtype=torch.float64)
    """

    reads = ("ranking",)
    keys: list[Tensor]
    wide_keys: list[Tensor]
    cells: Tensor

    def __init__(
        self,
        *measures: str,
        num_bins: int = 15,
        exact: bool = True,
        kind: GivenKind = "logits",
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
        self._take_in(scores, labels)

    def error_bound(self, num_bins: int | None = None) -> float:
        """How far `ada_ece` of this process's rows can be from exact: 0 if it is exact."""
        return 0.0 if self.exact else cut_error(self.cells[0].cpu().numpy(), num_bins or self.num_bins)

    def _empty(self, num_classes: int, target: int | None = None) -> Summary:
        most_rows = None if self.exact else 0
        return Summary(num_classes, self.kind, num_bins=self.num_bins, most_rows=most_rows, target_class=target)

    def _store(self, added: Summary) -> None:
        assert added.confidences is not None
        if self.exact:
            self._add_keys(added.confidences.keys)
        elif added.num_rows:
            self._add("cells", added.confidences.cells())

    def _stored(self) -> PredictionSet:
        summary = Summary(0, num_bins=self.num_bins)
        held = ConfidenceSummary.of_cells(self.cells.cpu().numpy()) if not self.exact else self._confidences()
        summary.confidences = held
        return summary


class Everything(Classwise):
    """All of `evaluate`, for a stream: a dictionary from `compute`, an `Evaluation` from `evaluation`.

    >>> everything = Everything(num_classes=2)
    >>> everything.update([[2.0, 0.0], [1.0, 0.0]], [0, 1]), everything.update([[0.0, 3.0]], [1])
    (None, None)
    >>> round(everything.evaluation().ece, 3)
    0.299
    """

    sums = ("score_sums", "class_sums", "class_totals", "label_counts")
    score_sums: Tensor
    label_counts: Tensor
    keys: list[Tensor]
    wide_keys: list[Tensor]

    def __init__(
        self,
        *,
        num_classes: int,
        num_bins: int = 15,
        kind: GivenKind = "logits",
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_classes=num_classes, num_bins=num_bins, kind=kind, ignore_index=ignore_index, **options)
        self._sum_state("score_sums", len(measure_means()), 2)
        self._sum_state("label_counts", num_classes)
        self._key_states()
        self._evaluation: Evaluation | None = None

    def update(self, scores: ArrayLike, labels: ArrayLike) -> None:  # type: ignore[override]
        """Take in a batch."""
        self._take_in(scores, labels)

    def _empty(self, num_classes: int, target: int | None = None) -> Summary:
        return Summary(num_classes, self.kind, num_bins=self.num_bins, means=measure_means(), classwise=True)

    def _store(self, added: Summary) -> None:
        super()._store(added)
        assert added.confidences is not None
        self._add("label_counts", added.label_counts)
        self._add("score_sums", added.mean_sums)
        self._add_keys(added.confidences.keys)

    def compute(self) -> dict[str, Tensor]:
        """All measures of everything so far, over all processes."""
        summary = self._empty(self.num_classes)
        summary.label_counts, summary.mean_sums = self.label_counts.cpu().numpy(), self.score_sums.cpu().numpy()
        summary.confidences = self._confidences()
        self._fill_classes(summary)
        self._evaluation = evaluation_of(summary)
        numbers = {name: value for name, value in self._evaluation.values.items() if value is not None}
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}

    def evaluation(self) -> Evaluation:
        """Everything so far, over all processes, as `evaluate` gives it."""
        self._computed = None
        self.compute()
        assert self._evaluation is not None
        return self._evaluation


def _joined(state: Any, dtype: torch.dtype) -> Array:
    """A list state as one array; torchmetrics makes it one tensor when it has exchanged it."""
    parts = [state] if isinstance(state, Tensor) else state
    return torch.cat([torch.empty(0, dtype=dtype), *(part.cpu() for part in parts)]).numpy()
