"""Gather rows and sums over all processes of a distributed run."""

from __future__ import annotations

import torch
from torch import Tensor


def is_distributed() -> bool:
    """Whether this process is one of several that talk to each other."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def exchange_device() -> torch.device:
    """Where tensors must lie for the processes to exchange them: NCCL takes those on its GPU only."""
    if torch.distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def gather_rows(rows: Tensor, device: torch.device | None = None) -> Tensor:
    """The rows (n, ...) of all ranks in the order of ranks, on the CPU; just `rows` in a single process.

    Ranks may have different numbers of rows, or none.

    >>> gather_rows(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if not is_distributed():
        return rows
    device = device or exchange_device()
    world = torch.distributed.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(world)]
    torch.distributed.all_gather(sizes, torch.tensor([len(rows)], device=device))
    longest = max(int(size) for size in sizes)
    padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype, device=device)
    padded[: len(rows)] = rows.to(device)
    shares = [torch.empty_like(padded) for _ in range(world)]
    torch.distributed.all_gather(shares, padded)
    return torch.cat([share[: int(size)] for share, size in zip(shares, sizes, strict=True)]).cpu()


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of the tensors of all ranks, on the CPU; just `values` in a single process.

    >>> sum_over_ranks(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if not is_distributed():
        return values
    total = values.to(exchange_device(), copy=True)
    torch.distributed.all_reduce(total)
    return total.cpu()
