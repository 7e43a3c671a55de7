"""AdaFocal under two gloo processes."""

from __future__ import annotations

import socket

import pytest
import torch
import torch.multiprocessing as mp

import focalcal as fc


def validation(epoch: int):
    generator = torch.Generator().manual_seed(epoch)
    logits = 4 * torch.randn(301, 5, generator=generator)
    return logits, torch.where(torch.rand(301, generator=generator) < 0.6, logits.argmax(1), 0)


def run_rank(rank: int, world: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    loss = fc.AdaFocalLoss(lam=3.0)
    for epoch in range(5):
        logits, labels = validation(epoch)
        mine = slice(0, 100) if rank == 0 else slice(100, None)  # unequal shares
        loss.update(logits[mine], labels[mine])
    torch.save(loss.state_dict(), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_get_the_bits_of_one(tmp_path):
    if not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo backend")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(run_rank, args=(2, port, str(tmp_path)), nprocs=2)
    alone = fc.AdaFocalLoss(lam=3.0)
    for epoch in range(5):
        alone.update(*validation(epoch))
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    for name, value in alone.state_dict().items():
        assert torch.equal(ranks[0][name], ranks[1][name]), name
        assert torch.equal(ranks[0][name], value), name
    assert (alone.gamma != 1).all()
