"""What a monitored epoch is made of: predictions of a split, norms of the last layer, gammas, and learned epochs.

Nothing here knows Lightning. Every part takes in batches, can be saved and loaded between any two of them, and puts
together what all processes of a distributed run have seen.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from focalcal.core.binning import Bins, bin_norm, bin_predictions
from focalcal.core.files import write_atomically
from focalcal.core.gather import gather_rows, is_distributed, sum_over_ranks
from focalcal.core.inputs import require, require_label_range, require_labels, require_logits
from focalcal.core.predictions import Chunk
from focalcal.core.ranking import Array
from focalcal.core.reader import ChunkReader
from focalcal.errors import FileFormatError
from focalcal.losses import AdaFocalLoss, CalFocalLoss, FocalLoss, ScheduledGamma
from focalcal.losses.gamma import StepGamma
from focalcal.losses.validation_bins import ValidationBinsLoss
from focalcal.metrics import ada_ece, ece, entropy, error, mce, mean_confidence, nll
from focalcal.metrics.classes import ClassBinSums, class_bins
from focalcal.metrics.rows import Column, Rows
from focalcal.streams.parquet import pyarrow

SCHEMA = 1
FORMAT = "focalcal monitor"
IGNORED = -100

Record: TypeAlias = "dict[str, Any]"

# Logits, and norms, that are taken in together: at batch 128 and ten classes the reader's calls are paid for once in
# 51 steps, and what waits for them is at most 512 KB beside the last batch.
_BLOCK_LOGITS = 1 << 16
_BLOCK_NORMS = 1 << 12

# Ten bins a decade: narrow enough to draw, fixed so that histograms of steps, processes and runs add up.
_LOWEST, _HIGHEST, _PER_DECADE = -8, 4, 10
_LOGIT_BINS = 50

_NLL_CORRECT = Column(
    "nll_correct", ("nll", "correct"), lambda rows: rows["nll"] * rows["correct"], lambda rows: rows["correct"]
)
_NLL_WRONG = Column(
    "nll_wrong", ("nll", "correct"), lambda rows: rows["nll"] * ~rows["correct"], lambda rows: ~rows["correct"]
)


def gradient_edges() -> Array:
    """The edges between the bins of a record's gradient norms: 1e-8 to 1e4, ten a decade.

    A record has one count more than there are gaps at each end: norms below the first edge (0 among them) come first,
    norms from the last edge on come last.

    >>> edges = gradient_edges()
    >>> len(edges), float(edges[0]), round(float(edges[1] / edges[0]), 4)
    (121, 1e-08, 1.2589)
    """
    return np.array([10 ** (k / _PER_DECADE) for k in range(_LOWEST * _PER_DECADE, _HIGHEST * _PER_DECADE + 1)])


@dataclass(frozen=True)
class Seen:
    """The predictions of a split, over all processes: rows, the bins of every class, and how many had no finite logits.

    `rows` has the columns confidence, correct, nll and entropy.
    """

    rows: Rows
    classes: Bins
    not_finite: int


class Tally:
    """Predictions of a split, taken in batch by batch; of each row only four numbers stay.

    Rows with the label -100 do not count; rows whose logits are not all finite are counted and left out, so that a
    diverging run is recorded and not stopped.

    >>> tally = Tally(num_bins=2)
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
        self._waiting.append((rows, classes))
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
        reader = ChunkReader(chunk, "logits")
        columns = (reader.confidence, reader.correct, reader.nll, reader.entropy)
        self._wide |= columns[0].dtype == torch.float64
        self._rows.append(torch.stack([column.cpu().double() for column in columns], 1))
        self._classes.add(reader.probs, chunk.labels, None)  # takes the memory of the shares: last

    def seen(self) -> Seen | None:
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
        rows = Rows(columns, num_classes=sums.shape[1])
        return Seen(rows=rows, classes=class_bins(sums, whole), not_finite=state["not_finite"])

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


class Norms:
    """Norms, one a row: how many, their sum, and a histogram in fixed bins.

    Negative values stand for rows that do not count.

    >>> norms = Norms()
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
        """Everything so far, over all processes; waiting norms as in `Tally.state`."""
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


def split_record(seen: Seen | None, features: Record | None, *, num_bins: int) -> Record | None:
    """The numbers of one split: NLL and entropy of all, correct and wrong rows, error, and the ECE family.

    Source: [mukhoti2020, Fig. 1, 2, 3 and 10].

    >>> tally = Tally(num_bins=1)
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


def correspondence_record(train: Seen | None, val: Seen | None, *, num_bins: int) -> Record | None:
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


def number(value: Any) -> float | None:
    """A plain float, or None for what is undefined or has overflowed.

    >>> number(torch.tensor(0.5)), number(float("nan"))
    (0.5, None)
    """
    plain = float(value)
    return plain if math.isfinite(plain) else None


def write_monitor(path: str | Path, records: Sequence[Record]) -> None:
    """Write the records of all epochs so far, as JSON or Parquet by the name of the file.

    The same records always give the same bytes.
    """
    if Path(path).suffix == ".parquet":
        write_atomically(path, _as_parquet(records))
        return
    lines = ",\n".join(json.dumps(record, allow_nan=False) for record in records)
    head = f'"format": {json.dumps(FORMAT)}, "schema": {SCHEMA}'
    write_atomically(path, f'{{{head}, "epochs": [\n{lines}\n]}}\n'.encode())


def _as_parquet(records: Sequence[Record]) -> bytes:
    arrow = pyarrow()
    table = arrow.Table.from_pylist(list(records))
    table = table.replace_schema_metadata({"format": FORMAT, "schema": str(SCHEMA)})
    file = io.BytesIO()
    arrow.parquet.write_table(table, file)
    return file.getvalue()


def read_monitor(path: str | Path) -> list[Record]:
    """The records of a monitored run, one an epoch, from JSON or Parquet: the same either way.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "monitor.json"
    >>> write_monitor(place, [{"epoch": 0, "val": {"nll": 0.5}}])
    >>> [record["val"]["nll"] for record in read_monitor(place)]
    [0.5]
    """
    place = Path(path)
    facts, records = _from_parquet(place) if place.suffix == ".parquet" else _from_json(place)
    if facts.get("format") != FORMAT or not isinstance(records, list):
        raise FileFormatError(f"{path}: it is not the file of a monitor.")
    if str(facts.get("schema")) != str(SCHEMA):
        raise FileFormatError(f"{path}: it has schema {facts.get('schema')}; this version reads {SCHEMA}.")
    return records


def _from_json(place: Path) -> tuple[Mapping[str, Any], Any]:
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{place}: it is not JSON: {error}.") from error
    content = content if isinstance(content, dict) else {}
    return content, content.get("epochs")


def _from_parquet(place: Path) -> tuple[Mapping[str, Any], Any]:
    arrow = pyarrow()
    try:
        table = arrow.parquet.read_table(io.BytesIO(place.read_bytes()))
    except arrow.ArrowException as error:
        raise FileFormatError(f"{place}: it is not a Parquet file: {error}.") from error
    facts = {key.decode(): value.decode(errors="replace") for key, value in (table.schema.metadata or {}).items()}
    return facts, table.to_pylist()


__all__ = ["LearnedEpochs", "Norms", "Seen", "Tally", "gradient_edges", "read_monitor", "write_monitor"]
