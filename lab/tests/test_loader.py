"""Batches by seed and epoch: the same for any number of processes, and from any batch on."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import Dataset

from focalcal_lab.data import DataSplits, TensorRows
from focalcal_lab.seeded_loader import EpochBatches, LabData, SeededLoader


def rows(number: int) -> TensorRows:
    return TensorRows(torch.arange(number).float().unsqueeze(1), torch.arange(number))


def epochs(loader: SeededLoader, number: int) -> list[list[int]]:
    return [[batch[1].tolist() for batch in loader] for _ in range(number)]


@pytest.mark.parametrize(("number", "size"), [(10, 3), (12, 4), (1, 5), (7, 7)])
def test_an_epoch_has_every_row_once(number, size):
    batches = list(EpochBatches(number, size, seed=1))
    assert sorted(itertools.chain(*batches)) == list(range(number))
    assert len(batches) == len(EpochBatches(number, size, seed=1))
    assert all(len(batch) == size for batch in batches[:-1])


def test_the_order_depends_on_the_seed_and_the_epoch_only():
    first = epochs(SeededLoader(rows(20), 6, seed=3), 3)
    assert first == epochs(SeededLoader(rows(20), 6, seed=3), 3)
    assert first != epochs(SeededLoader(rows(20), 6, seed=4), 3)
    assert first[0] != first[1] != first[2]


def test_without_a_seed_rows_keep_their_order():
    assert epochs(SeededLoader(rows(5), 2), 2) == [[[0, 1], [2, 3], [4]]] * 2


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("seed", [0, None])
def test_the_shares_of_processes_make_up_the_batches_of_one(world, seed):
    whole = [sorted(batch) for batch in EpochBatches(20, 6, seed=seed)]
    shares = zip(*(EpochBatches(20, 6, seed=seed, rank=rank, world=world) for rank in range(world)), strict=True)
    together = [sorted(itertools.chain(*share)) for share in shares]
    # in training a batch of two rows has none for a third process; in evaluation nothing is left out
    assert together == (whole[:-1] if world == 3 and seed is not None else whole)


@pytest.mark.parametrize("stop", range(1, 9))
def test_a_loader_goes_on_where_another_one_stopped(stop):
    expected = list(itertools.chain(*epochs(SeededLoader(rows(20), 6, seed=3), 3)))
    loader, seen = SeededLoader(rows(20), 6, seed=3), []
    while len(seen) < stop:
        for batch in loader:
            seen.append(batch[1].tolist())
            if len(seen) == stop:
                break
    again = SeededLoader(rows(20), 6, seed=3)
    again.load_state_dict(loader.state_dict())
    while len(seen) < len(expected):
        seen += [batch[1].tolist() for batch in again]
    assert seen == expected


def test_rows_that_come_one_by_one_are_put_together():
    class Foreign(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.tensor([float(index)]), index

    inputs, labels = next(iter(SeededLoader(Foreign(), 3)))
    assert inputs.tolist() == [[0.0], [1.0], [2.0]]
    assert labels.tolist() == [0, 1, 2]


def test_a_data_set_that_augments_by_itself_is_told_the_epoch():
    class Told(TensorRows):
        def set_epoch(self, epoch):
            told.append(epoch)

    told: list[int] = []
    epochs(SeededLoader(Told(torch.zeros(4, 1), torch.zeros(4).long()), 2, seed=0), 3)
    assert told == [0, 1, 2]


def test_the_module_s_state_survives_the_end_of_an_epoch():
    data = DataSplits("x", rows(8), rows(2), rows(2), 8)
    module = LabData(data, batch_size=4, seed=5)
    loader = module.train_dataloader()
    first, second = epochs(loader, 2)
    fresh = LabData(data, batch_size=4, seed=5)
    assert fresh.state_dict() == {}
    module = LabData(data, batch_size=4, seed=5)
    assert epochs(module.train_dataloader(), 1) == [first]
    fresh.load_state_dict(module.state_dict())
    assert epochs(fresh.train_dataloader(), 1) == [second]
    assert fresh.num_batches == 2
