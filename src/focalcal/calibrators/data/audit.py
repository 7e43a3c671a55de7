"""What a pass has read: enough to notice that another one has read something else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from focalcal.calibrators.data.block import Block
from focalcal.calibrators.data.fit import P
from focalcal.core.checks import require
from focalcal.core.focal import wide_dtype
from focalcal.predictions.stream import Batch


@dataclass(frozen=True)
class Audit:
    """What a pass has read: enough to notice that another one has read something else."""

    num_classes: int
    num_rows: int
    mass: float
    sums: tuple[float, ...]

    @staticmethod
    def of(block: Block, watched: bool) -> Audit:
        """The size of a block; if it is watched, also sums that do not cancel."""
        rows, num_classes = block.logits.shape
        mass = float(rows if block.weight is None else block.weight.sum())
        if not watched:
            return Audit(num_classes, rows, mass, ())
        at_label = block.logits.gather(1, block.labels.unsqueeze(1))
        behind = (at_label - block.logits.amax(1, keepdim=True)).sum(dtype=wide_dtype(block.logits.device))
        return Audit(num_classes, rows, mass, (float(behind), float(block.labels.sum())))

    def __add__(self, other: Audit) -> Audit:
        rule = f"all batches must have the same number of classes, {self.num_classes} so far"
        require(other.num_classes == self.num_classes, "logits", rule, other.num_classes)
        sums = tuple(one + two for one, two in zip(self.sums, other.sums, strict=True))
        return Audit(self.num_classes, self.num_rows + other.num_rows, self.mass + other.mass, sums)

    def require_same(self, later: Audit | None, name: str) -> None:
        """Refuse a pass that has read something else."""
        fix = "Pass a function that opens the data anew, not an iterator that can be read once."
        rows = 0 if later is None else later.num_rows
        require(rows == self.num_rows, name, f"gave {self.num_rows} rows before", rows, fix)
        assert later is not None
        pairs = zip((self.mass, *self.sums), (later.mass, *later.sums), strict=True)
        same = all(math.isclose(before, now, rel_tol=1e-9) for before, now in pairs)
        require(same, name, "must give the same data each time", "other values than before")


def audited(
    batches: Iterator[Batch], fold: Callable[[Iterator[Block]], P], watched: bool = False
) -> tuple[P, Audit] | None:
    """The fold of the blocks of some batches and what was read; None if there is no row."""
    read: Audit | None = None

    def blocks() -> Iterator[Block]:
        nonlocal read
        for batch in batches:
            for chunk in batch.chunks():
                block = Block.of(chunk, batch.predictions.kind)
                audit = Audit.of(block, watched)
                read = audit if read is None else read + audit
                yield block

    opened = blocks()
    first = next(opened, None)
    if first is None:
        return None
    value = fold(itertools.chain([first], opened))
    assert read is not None
    return value, read


def merged(
    one: tuple[P, Audit] | None, other: tuple[P, Audit] | None, merge: Callable[[P, P], P]
) -> tuple[P, Audit] | None:
    """The results of two parts of the data, of which either may have no row."""
    if one is None or other is None:
        return other if one is None else one
    return merge(one[0], other[0]), one[1] + other[1]
