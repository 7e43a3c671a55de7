"""Several processes of one group, forked from one that has imported everything: few tests may wait for imports."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch.multiprocessing as mp
from torch.distributed import TCPStore
from torch.multiprocessing.spawn import ProcessException

# One worker runs all of them, so that imports are waited for once.
ranked = pytest.mark.xdist_group("ranks")


def fork_server() -> Any:
    """The context whose processes are forked from one that has imported torch, torchmetrics and Lightning."""
    multiprocessing.set_forkserver_preload(["torchmetrics", "focalcal_lab.run"])
    return multiprocessing.get_context("forkserver")


def run_ranks(function: Callable[..., None], *arguments: Any, world: int, seconds: float = 600) -> str:
    """Call `function(rank, *arguments)` in each process. Those that hang are ended; returns what went wrong.

    A busy machine takes minutes to import everything.
    """
    fork_server()
    context = mp.start_processes(function, arguments, nprocs=world, join=False, start_method="forkserver")
    end = time.monotonic() + seconds
    try:
        while not context.join(timeout=1):
            if time.monotonic() > end:
                return "they hung"
    except ProcessException as error:
        return str(error)
    finally:
        for process in context.processes:
            process.kill()
    return ""


def meeting_point(world: int) -> TCPStore:
    """Where ranks that are told of it by `launched` meet, as with torchrun; at a port that the system chooses."""
    return TCPStore("127.0.0.1", 0, world, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=600))


def launched(rank: int, world: int, port: int) -> dict[str, str]:
    """Set and return the variables that torchrun sets for each of its processes."""
    number = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
    agent = {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    variables = {**{name: str(value) for name, value in number.items()}, **agent, "CUDA_VISIBLE_DEVICES": ""}
    os.environ.update(variables)
    return variables
