"""Data loaders whose order depends only on the seed and the epoch, for any number of processes, from any batch on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import numpy as np
from torch.utils.data import DataLoader, Dataset, default_collate

from focalcal_lab.data.dataset import DataSplits


class EpochBatches:
    """The rows of each batch of an epoch: a permutation by seed and epoch, cut into batches, shared among processes.

    The batches of all processes together are those of one process, so that training does not depend on how many there
    are. A last batch that has no row for some process is left out.

    >>> list(EpochBatches(5, 2, seed=0))
    [[2, 4], [3, 0], [1]]
    >>> list(EpochBatches(5, 2, seed=0, rank=1, world=2))  # [1] has no row for a second process
    [[4], [0]]
    """

    def __init__(
        self, num_rows: int, batch_size: int, *, seed: int | None, rank: int = 0, world: int = 1, epoch: int = 0
    ) -> None:
        self.num_rows, self.batch_size, self.seed = num_rows, batch_size, seed
        self.rank, self.world = rank, world
        self.epoch, self.first = epoch, 0

    def __len__(self) -> int:
        full, rest = divmod(self.num_rows, self.batch_size)
        return full + (rest >= self.world if self.seed is not None else rest > 0)

    def __iter__(self) -> Iterator[list[int]]:
        order = np.arange(self.num_rows)
        if self.seed is not None:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(self.num_rows)
        for number in range(self.first, len(self)):
            start = number * self.batch_size
            yield order[start : start + self.batch_size][self.rank :: self.world].tolist()


class SeededLoader(DataLoader[Any]):
    """A loader that remembers where it is: a run resumed in mid-epoch sees the batches that were still to come.

    `seed=None` keeps the rows in their order, for evaluation.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        *,
        seed: int | None = None,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
    ) -> None:
        self.batches = EpochBatches(len(dataset), batch_size, seed=seed, rank=rank, world=world)  # type: ignore[arg-type]
        collate = _ready if hasattr(dataset, "__getitems__") else default_collate
        super().__init__(dataset, batch_sampler=self.batches, collate_fn=collate, num_workers=workers)
        self.epoch = self.position = 0
        self.rows: list[int] = []  # those of the batch that was given last
        self._resumed = False

    def __iter__(self) -> Any:
        """The batches of the next epoch, or what is left of the one that a resumed run was in."""
        if not self._resumed and self.position:
            self.epoch, self.position = self.epoch + 1, 0
        self._resumed = False
        self.batches.epoch, self.batches.first = self.epoch, self.position
        if hasattr(self.dataset, "set_epoch"):  # augmentation that happens where the rows are read
            self.dataset.set_epoch(self.epoch)
        return self._counted(super().__iter__())

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for rows, batch in zip(self.batches, batches, strict=True):
            self.position, self.rows = self.position + 1, rows
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The epoch and the batch that come next."""
        done = self.position >= len(self)
        return {"epoch": self.epoch + done, "position": 0 if done else self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self.epoch, self.position, self._resumed = state["epoch"], state["position"], True


class LabData(pl.LightningDataModule):
    """Seeded loaders of a data set's splits, with rows shared among processes and none repeated."""

    def __init__(
        self, data: DataSplits, *, batch_size: int, seed: int, eval_batch_size: int = 256, workers: int = 0
    ) -> None:
        super().__init__()
        self.data, self.batch_size, self.eval_batch_size = data, batch_size, eval_batch_size
        self.seed, self.workers = seed, min(workers, os.cpu_count() or 1)
        self._train: SeededLoader | None = None
        self._resumed_at: dict[str, int] | None = None

    @property
    def num_batches(self) -> int:
        """How many batches an epoch has."""
        return len(self.loader(self.data.train, self.batch_size, seed=self.seed))

    def train_dataloader(self) -> SeededLoader:
        """Shuffled batches of the training split."""
        self._train = self.loader(self.data.train, self.batch_size, seed=self.seed)
        if self._resumed_at is not None:
            self._train.load_state_dict(self._resumed_at)
        return self._train

    def state_dict(self) -> dict[str, Any]:
        """Where the training loader is. Lightning keeps that itself, but drops it at the end of an epoch."""
        return {} if self._train is None else {"train": self._train.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        state = state_dict.get("train")
        self._resumed_at = None if state is None else {name: int(state[name]) for name in ("epoch", "position")}

    @property
    def started(self) -> bool:
        """Whether training batches were asked for."""
        return self._train is not None

    @property
    def rows(self) -> list[int]:
        """The rows of the training split that the current batch has."""
        return [] if self._train is None else self._train.rows

    def val_dataloader(self) -> SeededLoader:
        """The validation split, in its order."""
        return self.loader(self.data.val, self.eval_batch_size)

    def test_dataloader(self) -> SeededLoader:
        """The test split, in its order."""
        return self.loader(self.data.test, self.eval_batch_size)

    def loader(self, split: Dataset[Any], batch_size: int, *, seed: int | None = None) -> SeededLoader:
        """Batches of a split for this process."""
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        return SeededLoader(split, batch_size, seed=seed, rank=rank, world=world, workers=self.workers)


def _ready(batch: Any) -> Any:
    """What `__getitems__` gave is a batch already."""
    return batch
