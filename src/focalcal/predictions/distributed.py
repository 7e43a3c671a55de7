"""Gather rows and sums over all processes of a distributed run, and have them agree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from focalcal.errors import FocalCalError, InputError


def is_distributed() -> bool:
    """Whether this process is one of several that talk to each other."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def exchange_device() -> torch.device:
    """Where tensors must lie for the processes to exchange them: NCCL takes those on its GPU only."""
    if torch.distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def gather_rows(rows: Tensor, device: torch.device | None = None, group: Any = None) -> Tensor:
    """The rows (n, ...) of all ranks in the order of ranks, on the CPU; just `rows` in a single process.

    Ranks may have different numbers of rows, or none. `group` is a process group of torch, if not all ranks take part.

    >>> gather_rows(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if not is_distributed():
        return rows
    device = device or exchange_device()
    world = torch.distributed.get_world_size(group)
    sizes = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(world)]
    torch.distributed.all_gather(sizes, torch.tensor([len(rows)], device=device), group)
    longest = max(int(size) for size in sizes)
    padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype, device=device)
    padded[: len(rows)] = rows.to(device)
    shares = [torch.empty_like(padded) for _ in range(world)]
    torch.distributed.all_gather(shares, padded, group)
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


def agree_on(settings: Mapping[str, Any], failure: Exception | None = None, group: Any = None) -> None:
    """Raise on all ranks what failed on one of them, or that they differ in a setting; every rank must call it.

    A rank that raised on its own would leave the others waiting for it in the next exchange. So it keeps the failure
    until the ranks meet, and all raise the same error.

    >>> agree_on({"num_bins": 15})  # a single process agrees with itself
    """
    if not is_distributed():
        if failure is not None:
            raise failure
        return
    mine = {
        "failure": "" if failure is None else _in_words(failure),
        "of_input": isinstance(failure, InputError),
        "settings": {name: repr(value) for name, value in settings.items()},
    }
    content = torch.tensor([*json.dumps(mine).encode(), 0], dtype=torch.uint8)  # JSON has no byte 0
    ranks = [json.loads(each) for each in bytes(gather_rows(content, group=group).tolist()).split(b"\0")[:-1]]
    for rank, each in enumerate(ranks):
        if each["failure"]:
            error = InputError if each["of_input"] else FocalCalError
            raise error(f"{each['failure']} This is on rank {rank} of {len(ranks)}.") from failure
    for rank, each in enumerate(ranks):
        for name, value in ranks[0]["settings"].items():
            if each["settings"].get(name) != value:
                raise InputError(
                    f"{name}: must be the same on all ranks; got {value} on rank 0 and {each['settings'].get(name)} on "
                    f"rank {rank}."
                )


def _in_words(failure: Exception) -> str:
    return str(failure) if isinstance(failure, FocalCalError) else f"{type(failure).__name__}: {failure}."
