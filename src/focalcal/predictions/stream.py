"""The interface of streams: predictions in shards, from which one pass computes one result.

`evaluate` and the fits that sum over rows only call `reduce`, so they need not know whether the rows are in files, in
another library's dataset or on other machines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from focalcal.core.checks import Array, require
from focalcal.core.score_kinds import GivenKind, plain_kind
from focalcal.predictions.arrays import Chunk, Predictions

if TYPE_CHECKING:
    from typing_extensions import Self

P = TypeVar("P")
# A function that opens the data anew: each batch is (scores, labels) or (scores, labels, sample_weight).
BatchesFactory: TypeAlias = "Callable[[], Iterable[tuple[Any, ...]]]"

# What may grow with the number of rows, in bytes: beyond it, summaries of fixed size take over.
MEMORY = 256 << 20
# A kept confidence costs 4 bytes, twice that while its column grows, and the rest where it is sorted and ranked.
_BYTES_PER_ROW = 32
MOST_ROWS = MEMORY // _BYTES_PER_ROW


@dataclass(frozen=True)
class Batch:
    """Some rows of one shard, whose name begins messages; `groups` (n,) are the values of the column to group by."""

    name: str
    predictions: Predictions
    groups: Array | None = None
    checked: bool = False  # whether the values have been checked

    def chunks(self, *, masked_labels: bool = True) -> Iterator[Chunk]:
        """The rows (n, K) in pieces that stay in the cache; see `Predictions.chunks`."""
        return self.predictions.chunks(check=not self.checked, masked_labels=masked_labels)

    def take(self, rows: Array) -> Batch:
        """Some of the rows: a mask, or their numbers."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, predictions=self.predictions.take(rows), groups=groups)


Fold: TypeAlias = "Callable[[Iterator[Batch]], P]"
Merge: TypeAlias = "Callable[[P, P], P]"


class Stream(ABC):
    """Predictions of one kind and one number of classes, in shards; `name` begins messages."""

    name: str
    memory: int = MEMORY
    is_local: bool = True  # whether passes run in this process

    @abstractmethod
    def reduce(self, fold: Fold[P], merge: Merge[P], *, by: str | None = None) -> P:
        """Make one pass over all rows: `fold` the batches of each shard and `merge` the results in order.

        A shard without rows is left out. `by` names a column whose values become the groups of the batches.
        """

    @abstractmethod
    def on(self, engine: str | None) -> Self:
        """The same rows, with passes on a Ray cluster (`"ray"`) or in this process (`"local"`); unchanged for None."""

    @property
    def most_rows(self) -> int:
        """The number of confidences that are kept before a histogram takes their place."""
        return self.memory // _BYTES_PER_ROW


class Batches(Stream):
    """Batches that a function opens anew for each pass."""

    name = "batches"

    def __init__(self, factory: BatchesFactory, kind: GivenKind, *, memory: int | None = None, **reading: Any) -> None:
        require(callable(factory), self.name, "must be a function that opens the data anew", type(factory))
        self._factory, self.kind, self.memory = factory, plain_kind(kind), MEMORY if memory is None else memory
        self._reading = reading  # how every batch is read: see `Predictions`
        self._checked = False  # whether every value was looked at in an earlier pass

    def reduce(self, fold: Fold[P], merge: Merge[P], *, by: str | None = None) -> P:
        """One pass."""
        require(by is None, "by", "needs a stream with named columns", repr(by))
        folded = fold(self._batches())
        self._checked = True
        return folded

    def on(self, engine: str | None) -> Self:
        """Here only: a function's data is nowhere else."""
        require(engine is None, "engine", "needs a stream of files", repr(engine))
        return self

    def _batches(self) -> Iterator[Batch]:
        opened = self._factory()
        rule = "must give an iterable of batches when it is called"
        require(isinstance(opened, Iterable), self.name, rule, type(opened).__name__)
        for batch in opened:
            rule = "must give tuples (logits, labels) or (logits, labels, sample_weight)"
            fine = isinstance(batch, (tuple, list)) and len(batch) in (2, 3)
            require(fine, self.name, rule, type(batch).__name__)
            weight = batch[2] if len(batch) == 3 else None
            # Of one batch all weights may be 0; of all batches they may not.
            reading = {**self._reading, "kind": self.kind, "sample_weight": weight}
            rows = Predictions(batch[0], batch[1], argument="logits", may_be_empty=True, **reading)
            yield Batch(self.name, rows, checked=self._checked)
