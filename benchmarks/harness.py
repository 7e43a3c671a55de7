"""Timing that a shared, noisy machine cannot spoil: contestants take turns, the best of many turns counts."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import focalcal as fc

# A quick run shows that a script works, in seconds: small sizes, one turn. Its figures mean nothing, and it writes none
# unless BENCH_RESULTS names a folder for them.
QUICK = "--quick" in sys.argv[1:] or os.environ.get("BENCH_QUICK", "") not in ("", "0")
SHARE = 10 if QUICK else 1
RESULTS = Path(os.environ.get("BENCH_RESULTS") or Path(__file__).parent / "results")
PEERS = (
    "torchmetrics",
    "netcal",
    "uncertainty-calibration",
    "relplot",
    "probmetrics",
    "scikit-learn",
    "numba",
    "pyarrow",
    "torch-uncertainty",
)


def turns(usual: int) -> int:
    """How many turns each takes: as many as usual, at most BENCH_REPEATS, and one in a quick run."""
    return 1 if QUICK else min(usual, int(os.environ.get("BENCH_REPEATS") or usual))


def best_times(contestants: dict[str, Callable[[], object]], *, repeats: int, calls: int) -> dict[str, float]:
    """Seconds per call of each contestant, best of `repeats` turns of `calls` calls, in an order drawn for each turn.

    In a fixed order each would always follow the same other one, and find the caches and clocks that it leaves.
    """
    best = dict.fromkeys(contestants, float("inf"))
    for run in contestants.values():
        run()
    draw = random.Random(0)
    for _ in range(turns(repeats)):
        for name, run in draw.sample(list(contestants.items()), len(contestants)):
            start = time.perf_counter()
            for _ in range(calls):
                run()
            best[name] = min(best[name], (time.perf_counter() - start) / calls)
    return best


def settle_allocator() -> None:
    """Let glibc keep blocks of up to 32 MB for reuse, as it does once a training loop has run for a while.

    It learns this from the first large block that is freed; before that, every 4 MB temporary costs a millisecond of
    page faults, and which contestant pays for it is chance.
    """
    for size in (8 << 20, 7 << 20):
        torch.zeros(size)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Let glibc keep blocks of every size for reuse, so that nobody pays page faults twice.

    `settle_allocator` reaches 32 MB, glibc's limit for reuse. A temporary of 200 MB is beyond it: mapped anew at every
    call, it costs more in page faults than the arithmetic in it. Afterwards all is as `settle_allocator` leaves it.
    """
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4  # as in malloc.h
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(mmap_max, 0)  # no block is mapped by itself
    libc.mallopt(trim_threshold, -1)  # nothing is given back
    try:
        yield
    finally:
        libc.mallopt(mmap_max, 65536)
        libc.mallopt(mmap_threshold, 32 << 20)
        libc.mallopt(trim_threshold, 64 << 20)
        libc.malloc_trim(0)


def give_back_memory() -> None:
    """Return what glibc holds but nobody uses, so that it cannot hide later allocations from `peak_memory`."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def peak_memory(reset: bool = False) -> float:
    """The largest resident memory of this process since the last reset, in MiB (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "focalcal": fc.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "peers": peer_versions(),
    }


def peer_versions() -> dict[str, str]:
    """The versions of the peers that are installed."""
    found = {}
    for name in PEERS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def may_write() -> bool:
    """Whether figures may be written: those of a quick run only where they were asked for."""
    return not QUICK or bool(os.environ.get("BENCH_RESULTS"))


def save(name: str, result: dict[str, Any]) -> None:
    """Write a result with its environment as JSON; benchmarks/pages.py makes the tables that people read."""
    if not may_write():
        print("\nA quick run: nothing written.")
        return
    RESULTS.mkdir(exist_ok=True, parents=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"environment": environment(), **result}, indent=2) + "\n")
    print(f"\nWritten to {RESULTS.name}/{name}.json")
