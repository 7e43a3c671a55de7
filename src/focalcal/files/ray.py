"""Passes on a Ray cluster: every part of a stream is folded by a task, and the results are merged as a tree.

    fc.evaluate(stream, engine="ray")

A running cluster is used if this process is connected to one or `RAY_ADDRESS` says where it is; else Ray starts one on
this machine. Tasks get the description of a part (a path, the piece of a dataset, a block in Ray's memory) and read it
where they run; what travels are sums. A task whose worker is lost is run again by Ray: its result exists once, whoever
made it, so nothing is counted twice.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from focalcal.errors import InputError, MissingExtraError
from focalcal.files.datasets import RecordPart
from focalcal.files.prediction_stream import PredictionStream, ShardReader, fold_batches
from focalcal.files.stream_parts import StreamPart
from focalcal.predictions.stream import Batch, Fold, Merge
from focalcal.threads import torch_threads

P = TypeVar("P")

# Results that one task merges; the driver would receive thousands at once.
_TOGETHER = 8
# How often Ray reruns a task whose worker was lost.
_RETRIES = 5


def ray() -> Any:
    """Import Ray and connect to a cluster or start one; raises an error that names the extra if Ray is missing."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("Passes on a cluster need Ray: pip install 'focalcal[ray]'.") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
    return ray


@dataclass(frozen=True)
class PartResult:
    """The result of a part: a value, None if it has no rows, or the error if it cannot be read."""

    value: Any = None
    error: InputError | None = None


def reduce_on_ray(stream: PredictionStream, fold: Fold[P], merge: Merge[P], *, by: str | None = None) -> P:
    """One pass: a task for each part, and tasks that merge neighbours, first within a shard and then all together."""
    cluster = ray()
    fold_part = cluster.remote(max_retries=_RETRIES)(_fold_part)
    merge_some = cluster.remote(max_retries=_RETRIES)(_merge_some)
    how, merging = cluster.put((stream.reader, fold, by)), cluster.put(merge)

    def together(outcomes: list[Any]) -> Any:
        """Merge results in order into one."""
        while len(outcomes) > 1:
            outcomes = [
                merge_some.remote(merging, *outcomes[start : start + _TOGETHER])
                for start in range(0, len(outcomes), _TOGETHER)
            ]
        return outcomes[0]

    parts = [part for part in stream.parts if part.name not in stream.skipped]
    shards = {
        name: together([fold_part.remote(part, how) for part in group])
        for name, group in itertools.groupby(parts, key=lambda part: part.name)
    }
    for name, error in _bad_ones(cluster, shards):
        stream.skip(name, error)
        del shards[name]
    whole = cluster.get(together(list(shards.values()))) if shards else PartResult()
    if whole.value is None:
        raise InputError(f"{stream.name}: has no rows that count. Check the split and the files.")
    value: P = whole.value
    return value


def _fold_part(part: StreamPart, how: tuple[ShardReader, Fold[Any], str | None]) -> PartResult:
    """Fold the rows of a part. Runs in a task."""
    reader, fold, by = how
    read = _WatchedBatches(reader.batches(part, by))
    try:
        with torch_threads(1):  # a task has one core
            return PartResult(fold_batches(fold, read))
    except InputError as error:
        if read.failed:
            return PartResult(error=error)
        raise


class _WatchedBatches(Iterator[Batch]):
    """Batches that remember whether reading them has failed, to tell such errors from those of the fold."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches, self.failed = batches, False

    def __next__(self) -> Batch:
        try:
            return next(self._batches)
        except InputError:
            self.failed = True
            raise


def _merge_some(merge: Merge[Any], *outcomes: PartResult) -> PartResult:
    """Merge results; if one is an error, so is the merged one. Runs in a task."""
    bad = next((each for each in outcomes if each.error is not None), None)
    values = [each.value for each in outcomes if each.value is not None]
    return bad or PartResult(functools.reduce(merge, values) if values else None)


def _bad_ones(cluster: Any, shards: dict[str, Any]) -> list[tuple[str, InputError]]:
    """The shards that cannot be read, with their errors; values stay on the cluster."""
    error_of = cluster.remote(max_retries=_RETRIES)(lambda outcome: outcome.error)
    errors = cluster.get([error_of.remote(outcome) for outcome in shards.values()])
    return [(name, error) for name, error in zip(shards, errors, strict=True) if error is not None]


def ray_parts(dataset: Any) -> list[StreamPart]:
    """The parts of a Ray dataset: its blocks, which stay in Ray's memory until a task reads them."""
    blocks = [reference for bundle in dataset.iter_internal_ref_bundles() for reference in bundle.block_refs]
    return [RecordPart(f"block {place}", _RayBlock(block), {}) for place, block in enumerate(blocks)]


@dataclass(frozen=True)
class _RayBlock:
    block: Any

    def __call__(self) -> Iterable[Any]:
        return [ray().get(self.block)]
