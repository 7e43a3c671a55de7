"""Accumulate an epoch for the monitor: predictions of a split, norms of the last layer, and learned epochs.

Nothing here knows Lightning. Every part takes in batches, can be saved and loaded between any two of them, and puts
together what all processes of a distributed run have seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from focalcal.core.binning import Bins
from focalcal.core.checks import Array, require, require_label_range, require_labels, require_logits
from focalcal.kernels.class_bins import ClassBinSums, class_bins
from focalcal.metrics.predicted_rows import PredictedRows
from focalcal.predictions.arrays import Chunk
from focalcal.predictions.distributed import gather_rows, is_distributed, sum_over_ranks

IGNORED = -100

# What JSON can hold.
Record: TypeAlias = "dict[str, Any]"

# Logits, and norms, that are taken in together: at batch 128 and ten classes the reader's calls are paid for once in
# 51 steps, and what waits for them is at most 512 KB beside the last batch.
_BLOCK_LOGITS = 1 << 16
_BLOCK_NORMS = 1 << 12

# Ten bins a decade: narrow enough to draw, fixed so that histograms of steps, processes and runs add up.
_LOWEST, _HIGHEST, _PER_DECADE = -8, 4, 10
_LOGIT_BINS = 50


def gradient_edges() -> Array:
    """The edges between the bins of a record's gradient norms: 1e-8 to 1e4, ten per decade.

    A record has one count more than there are gaps at each end: norms below the first edge (0 among them) come first,
    norms from the last edge on come last.

    >>> edges = gradient_edges()
    >>> len(edges), float(edges[0]), round(float(edges[1] / edges[0]), 4)
    (121, 1e-08, 1.2589)
    """
    return np.array([10 ** (k / _PER_DECADE) for k in range(_LOWEST * _PER_DECADE, _HIGHEST * _PER_DECADE + 1)])


@dataclass(frozen=True)
class SplitPredictions:
    """The predictions of a split, over all processes: rows, the bins of every class, and how many had no finite logits.

    `rows` has the columns confidence, correct, nll and entropy.
    """

    rows: PredictedRows
    classes: Bins
    not_finite: int


class PredictionTally:
    """Predictions of a split, taken in batch by batch; of each row only four numbers stay.

    Rows with the label -100 do not count; rows whose logits are not all finite are counted and left out, so that a
    diverging run is recorded and not stopped.

    >>> tally = PredictionTally(num_bins=2)
    >>> tally.add(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, -100]))
    >>> tally.seen().rows.num_rows
    1
    """

    def __init__(self, num_bins: int = 15) -> None:
        self.num_bins = num_bins
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._held = 0
        self._rows: list[Tensor] = []  # (n, 4) in float64, on the CPU
        self._classes: ClassBinSums | None = None
        self._not_finite = 0
        self._wide = False  # whether confidences have more than float32

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Take in logits (N, K) or (N, K, d1, ...) and class numbers."""
        rows, classes = flat_rows(logits, labels)
        self._waiting.append((rows.clone(), classes.clone()))  # the caller may use their memory again
        self._held += rows.numel()
        if self._held >= _BLOCK_LOGITS:
            self._read()

    def _read(self) -> None:
        """Reduce the waiting logits to rows."""
        if not self._waiting:
            return
        device = self._waiting[-1][0].device  # those of a checkpoint wait on the CPU
        logits, labels = (torch.cat([part.to(device) for part in parts]) for parts in zip(*self._waiting, strict=True))
        self._waiting, self._held = [], 0
        counted, finite = labels != IGNORED, torch.isfinite(logits).all(1)
        self._not_finite += int((counted & ~finite).sum())
        keep = counted & finite
        chunk = Chunk(logits[keep].contiguous(), labels[keep], None)
        if not len(chunk.labels):
            return
        num_classes = logits.shape[1]
        require_label_range(chunk.labels, num_classes)
        self._classes = self._classes or ClassBinSums(num_classes, self.num_bins)
        columns = chunk.columns(("confidence", "correct", "nll", "entropy"), class_sums=self._classes)
        self._wide |= columns["confidence"].dtype == np.float64
        self._rows.append(torch.from_numpy(np.stack([column.astype(np.float64) for column in columns.values()], 1)))

    def seen(self) -> SplitPredictions | None:
        """Everything so far, over all processes; None if that is no row."""
        state = self.state()
        if not len(state["rows"]):
            return None
        confidence, correct, cross_entropy, spread = state["rows"].numpy().T
        columns = {
            # A bin's edge is compared in the precision of the confidences: give it back.
            "confidence": confidence if state["wide"] else confidence.astype(np.float32),
            "correct": correct.astype(bool),
            "nll": np.ascontiguousarray(cross_entropy),
            "entropy": np.ascontiguousarray(spread),
        }
        sums, whole = state["classes"]
        rows = PredictedRows(columns, num_classes=sums.shape[1])
        return SplitPredictions(rows=rows, classes=class_bins(sums, whole), not_finite=state["not_finite"])

    def state(self, *, reduce: bool = True) -> dict[str, Any]:
        """Everything so far, over all processes, as tensors and plain numbers.

        With `reduce=False` and in a single process, waiting logits are kept as they are, so that a resumed run adds up
        the same blocks as one that was never interrupted.
        """
        if reduce or is_distributed():
            self._read()
        rows = torch.cat([torch.empty(0, 4, dtype=torch.float64), *self._rows])
        mine = 0 if self._classes is None else self._classes.num_classes
        facts = gather_rows(torch.tensor([[mine, self._wide, self._not_finite]]))
        num_classes = int(facts[:, 0].max())
        added = self._classes or ClassBinSums(max(num_classes, 1), self.num_bins)
        return {
            "waiting": [[logits.cpu(), labels.cpu()] for logits, labels in self._waiting],
            "rows": gather_rows(rows),
            "classes": [sum_over_ranks(added.sums).clone(), sum_over_ranks(added.whole).clone()] if num_classes else [],
            "wide": bool(facts[:, 1].any()),
            "not_finite": int(facts[:, 2].sum()),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.reset()
        self._waiting = [(logits, labels) for logits, labels in state["waiting"]]
        self._held = sum(logits.numel() for logits, _ in self._waiting)
        self._rows = [state["rows"]]
        self._wide, self._not_finite = state["wide"], state["not_finite"]
        if state["classes"]:
            sums, whole = state["classes"]
            self._classes = ClassBinSums(sums.shape[1], self.num_bins)
            self._classes.sums, self._classes.whole = sums.clone(), whole.clone()


def flat_rows(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (n, K), detached and in float32 or float64, and class numbers (n,), of a batch of any shape.

    >>> rows, classes = flat_rows(torch.zeros(2, 3, 4), torch.zeros(2, 4, dtype=torch.long))
    >>> rows.shape, classes.shape
    (torch.Size([8, 3]), torch.Size([8]))
    """
    require_logits(logits)
    require(logits.dim() > 1, "logits", "must have shape (N, K) or (N, K, d1, ...)", tuple(logits.shape))
    soft = require_labels(labels, logits)
    require(not soft, "labels", "must be class numbers to be monitored", labels.dtype, "Give them by outputs=...")
    rows = logits.detach()
    rows = rows if rows.dim() == 2 else rows.movedim(1, -1).reshape(-1, rows.shape[1])
    rows = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    return rows, labels.detach().reshape(-1).to(rows.device, torch.int64)


class NormHistogram:
    """Norms, one per row: how many there are, their sum, and a histogram in fixed bins.

    Negative values stand for rows that do not count.

    >>> norms = NormHistogram()
    >>> norms.add(torch.tensor([0.0, 3.0, -1.0]))
    >>> norms.record()["mean"], norms.record()["rows"]
    (1.5, 2)
    """

    def __init__(self) -> None:
        self._edges = gradient_edges()
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._waiting: list[Tensor] = []
        self._held = 0
        self._count = torch.zeros(len(self._edges) + 2, dtype=torch.int64)  # the last one: not finite
        self._sum = torch.zeros(1, dtype=torch.float64)

    def add(self, norms: Tensor) -> None:
        """Take in norms (n,)."""
        self._waiting.append(norms.detach())
        self._held += len(norms)
        if self._held >= _BLOCK_NORMS:
            self._read()

    def _read(self) -> None:
        if not self._waiting:
            return
        values = torch.cat([part.cpu().double() for part in self._waiting]).numpy()
        self._waiting, self._held = [], 0
        finite = np.isfinite(values)
        self._count[-1] += int((~finite).sum())
        values = values[finite]
        values = values[values >= 0]
        place = np.searchsorted(self._edges, values, side="right")
        self._count[:-1] += torch.from_numpy(np.bincount(place, minlength=len(self._edges) + 1))
        self._sum += float(values.sum())

    def record(self) -> Record | None:
        """Rows, mean and counts over all processes; None without rows."""
        state = self.state()
        count = state["count"]
        rows = int(count[:-1].sum())
        if not rows and not int(count[-1]):
            return None
        return {
            "rows": rows,
            "not_finite": int(count[-1]),
            "mean": number(state["sum"].item() / rows) if rows else None,
            "log10_edges": [_LOWEST, _HIGHEST],
            "count": count[:-1].tolist(),
        }

    def state(self, *, reduce: bool = True) -> dict[str, Any]:
        """Everything so far, over all processes; waiting norms as in `PredictionTally.state`."""
        if reduce or is_distributed():
            self._read()
        return {
            "waiting": [part.cpu() for part in self._waiting],
            "count": sum_over_ranks(self._count).clone(),
            "sum": sum_over_ranks(self._sum).clone(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.reset()
        self._waiting = list(state["waiting"])
        self._held = sum(map(len, self._waiting))
        self._count, self._sum = state["count"].clone(), state["sum"].clone()


class LearnedEpochs:
    r"""Since when each training sample is classified correctly, and its largest logit: easy samples are learned early.

    $$ e_n(T) = \min \{ t : \hat y_n^{(s)} = y_n \text{ for all epochs } t \le s \le T \} $$

    A sample that is wrong in the last epoch it was seen in is not learned. Samples that come several times in an epoch
    must be right each time, and count with their mean logit.

    `starts` are the epochs at which groups begin: `(0, 10, 50)` gives 0..9, 10..49, 50.., and those not learned.

    Source: [ghosh2022, App. M, Fig. 34], which takes the plot from wang2021 and defines nothing anew.

    >>> learned = LearnedEpochs((0, 1))
    >>> for epoch, logits in enumerate(([[2.0, 0.0], [3.0, 0.0]], [[4.0, 0.0], [0.0, 5.0]])):
    ...     learned.add(torch.tensor([0, 1]), torch.tensor(logits), torch.tensor([0, 1]))
    ...     learned.close(epoch)
    >>> learned.since, learned.record()["rows"]
    (tensor([0, 1]), [1, 1, 0])
    """

    NEVER_SEEN, NOT_LEARNED = -2, -1

    def __init__(self, starts: Sequence[int]) -> None:
        rising = bool(starts) and starts[0] == 0 and list(starts) == sorted(set(starts))
        require(
            rising, "learned", "must be epochs that rise from 0, where groups begin", starts, "Such as (0, 10, 50)."
        )
        self.starts = [int(start) for start in starts]
        self.since = torch.empty(0, dtype=torch.int64)
        self.max_logit = torch.empty(0, dtype=torch.float64)
        self.reset()

    def reset(self) -> None:
        """Forget the epoch that is under way."""
        self._rows: list[Tensor] = []  # (n, 3) in float64: index, correctness, largest logit

    def add(self, index: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Take in a batch of training samples by their index in the training set."""
        rows, classes = flat_rows(logits, labels)
        index = index.detach().reshape(-1).to(rows.device)
        require(len(index) == len(rows), "index", f"must have one number for each of {len(rows)} rows", len(index))
        best, top = rows.max(1)
        found = torch.stack([index.double(), (top == classes).double(), best.double()], 1)
        self._rows.append(found[(classes != IGNORED) & torch.isfinite(best)].cpu())

    def close(self, epoch: int) -> None:
        """The epoch is over: see who is still right, over all processes."""
        rows = gather_rows(torch.cat([torch.empty(0, 3, dtype=torch.float64), *self._rows])).numpy()
        self.reset()
        if not len(rows):
            return
        rows = rows[np.lexsort(rows.T[::-1])]  # sums must not depend on the order of processes
        index, first, times = np.unique(rows[:, 0].astype(np.int64), return_index=True, return_counts=True)
        require(int(index[0]) >= 0, "index", "must not be negative", int(index[0]))
        right = np.minimum.reduceat(rows[:, 1], first) > 0
        self._grow(int(index[-1]) + 1)
        place = torch.from_numpy(index)
        self.max_logit[place] = torch.from_numpy(np.add.reduceat(rows[:, 2], first) / times)
        before = self.since[place].numpy()
        now = np.where(right, np.where(before >= 0, before, epoch), self.NOT_LEARNED)
        self.since[place] = torch.from_numpy(now)

    def _grow(self, size: int) -> None:
        more = size - len(self.since)
        if more > 0:
            self.since = torch.cat([self.since, torch.full((more,), self.NEVER_SEEN)])
            self.max_logit = torch.cat([self.max_logit, torch.zeros(more, dtype=torch.float64)])

    def record(self) -> Record | None:
        """Largest logits by group: a histogram for each, all with the same edges; the last group is not learned."""
        known = (self.since != self.NEVER_SEEN).numpy()
        if not known.any():
            return None
        since, logits = self.since.numpy()[known], self.max_logit.numpy()[known]
        group = np.where(since >= 0, np.searchsorted(self.starts, since, side="right") - 1, len(self.starts))
        edges = np.histogram_bin_edges(logits, _LOGIT_BINS)
        members = [logits[group == number_] for number_ in range(len(self.starts) + 1)]
        return {
            "since": [*self.starts, None],
            "rows": [len(each) for each in members],
            "mean_max_logit": [number(each.mean()) if len(each) else None for each in members],
            "edges": edges.tolist(),
            "count": [np.histogram(each, edges)[0].tolist() for each in members],
        }

    def state(self) -> dict[str, Any]:
        """The epochs that are over, which all processes know."""
        return {"since": self.since.clone(), "max_logit": self.max_logit.clone()}

    def rows_state(self) -> Tensor:
        """The rows of the epoch that is under way, over all processes."""
        return gather_rows(torch.cat([torch.empty(0, 3, dtype=torch.float64), *self._rows]))

    def load(self, state: Mapping[str, Any], rows: Tensor | None) -> None:
        """Go on from a state, with the rows of the epoch that was under way or without them."""
        self.since, self.max_logit = state["since"].clone(), state["max_logit"].clone()
        self._rows = [] if rows is None else [rows]


def number(value: Any) -> float | None:
    """A plain float, or None for what is undefined or has overflowed.

    >>> number(torch.tensor(0.5)), number(float("nan"))
    (0.5, None)
    """
    plain = float(value)
    return plain if math.isfinite(plain) else None
